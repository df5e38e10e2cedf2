"""What HTTP clients of podgpu-exporter meet: routes, headers, health during a reload, TLS, passwords, client certificates."""
import base64
import http.client
import os
import signal
import socket
import ssl
import struct
import subprocess

import pytest

from harness import BUILD, ROOT, SLOW, exporter_at, run_to_end, wait_until
from test_http_server import Authority, bcrypt

UTIL = "DCGM_FI_DEV_GPU_UTIL"
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
FRONT_PAGE = ("<html>\n\t\t\t<head><title>GPU Exporter</title></head>\n\t\t\t<body>\n\t\t\t<h1>GPU Exporter</h1>\n"
              "\t\t\t<p><a href=\"./metrics\">Metrics</a></p>\n\t\t\t<p><a href=\"./health\">Health</a></p>\n"
              "\t\t\t</body>\n\t\t\t</html>")


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo", kubelet=False) as n:
        yield n


@pytest.fixture(scope="module")
def exporter(node):
    with exporter_at(node, kubernetes=False) as e:
        e.page_when(lambda p: p.samples(UTIL), what="devices")
        yield e


def ask(port, path, method="GET", context=None, headers=None):
    """(status, headers, body) without following redirects."""
    if context:
        connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10 * SLOW)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10 * SLOW)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


# --- Routes ---

ROUTES = [
    ("/", 200, "text/html; charset=utf-8", FRONT_PAGE),
    ("/health", 200, TEXT, "OK"),
    ("/metrics", 200, METRICS, None),
    ("/metrics?name[]=x&y=%zz", 200, METRICS, None),
    ("/metrics/", 404, TEXT, "404 page not found\n"),
    ("/Metrics", 404, TEXT, "404 page not found\n"),
    ("/health/", 404, TEXT, "404 page not found\n"),
    ("/nothing", 404, TEXT, "404 page not found\n"),
    ("/debug/pprof/", 404, TEXT, "404 page not found\n"),
    ("/debug/pprof/heap", 404, TEXT, "404 page not found\n"),
    ("/-/reload", 404, TEXT, "404 page not found\n"),
]


@pytest.mark.parametrize("path, status, kind, text", ROUTES, ids=[r[0] for r in ROUTES])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_each_route_answers_every_method(exporter, path, status, kind, text, method):
    got, headers, body = ask(exporter.port, path, method)
    assert got == status
    assert headers.get_all("Content-Type") == [kind]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Date" in headers
    if method == "HEAD":
        assert body == "" and int(headers["Content-Length"]) > 0
    elif text is not None:
        assert body == text
        assert int(headers["Content-Length"]) == len(text)
    else:
        assert body.startswith("# HELP DCGM_FI_DEV_SM_CLOCK ") and int(headers["Content-Length"]) == len(body.encode())


@pytest.mark.parametrize("path, location", [
    ("//metrics", "/metrics"), ("/./metrics", "/metrics"), ("/a/../metrics", "/metrics"), ("/metrics/.", "/metrics"),
    ("/metrics//", "/metrics/"), ("//nothing", "/nothing"), ("/..", "/"), ("//example.com/..", "/"),
    ("//a%0d%0aX-Evil:%20y", "/a%0D%0AX-Evil:%20y"), ("/%5cexample.com//", "/%5Cexample.com/"),
])
def test_an_unclean_path_is_sent_to_the_clean_one(exporter, path, location):
    status, headers, _ = ask(exporter.port, path)
    assert (status, headers["Location"]) == (301, location)
    assert "X-Evil" not in headers


def test_health_says_that_the_page_is_there(exporter):
    _, headers, _ = ask(exporter.port, "/health")
    assert headers["X-Registry-Available"] == "true"
    assert "X-Reload-In-Progress" not in headers


def test_health_says_that_a_reload_is_under_way_and_the_old_page_is_served(node, tmp_path):
    counters = tmp_path / "counters.csv"
    counters.write_text(f"{UTIL},gauge,before\n")
    with exporter_at(node, kubernetes=False, counters=counters) as exporter:
        exporter.page_when(lambda p: p.samples(UTIL), what="devices")
        node.fault("nvmlDeviceGetUtilizationRates", "delay=300")
        try:
            counters.write_text(f"{UTIL},gauge,after\n")
            exporter.process.send_signal(signal.SIGHUP)
            def reloading():
                status, headers, body = ask(exporter.port, "/health")
                assert (status, body, headers["X-Registry-Available"]) == (200, "OK", "true")
                return headers["X-Reload-In-Progress"]
            assert wait_until(reloading, 5, "reload seen") == "true"
            assert len(exporter.page().samples(UTIL)) == 4
        finally:
            node.clear_faults()
        wait_until(lambda: not reloading(), 10, "reload over")
        assert f"# HELP {UTIL} after" in exporter.page().text


def test_a_client_that_goes_away_in_the_middle_harms_nobody(exporter):
    for _ in range(50):
        s = socket.create_connection(("127.0.0.1", exporter.port))
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    assert len(exporter.page().samples(UTIL)) == 4


def test_a_request_with_a_body_is_refused(exporter):
    for head in (b"Content-Length: 2\r\n\r\nhi", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", exporter.port), 10 * SLOW) as s:
            s.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\n" + head)
            answer = b""
            while piece := s.recv(4096):
                answer += piece
            assert answer.startswith(b"HTTP/1.1 400 ")


def test_sockets_of_systemd_are_used_instead_of_the_address(node, tmp_path):
    with socket.socket() as listening, socket.socket() as taken:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = listening.getsockname()[1]
        log = open(tmp_path / "log", "wb")

        program = ["/bin/sh", "-c", 'LISTEN_PID=$$; export LISTEN_PID; exec "$@"', "sh", str(BUILD / "podgpu-exporter"),
                   "--web-systemd-socket", "-a", f"127.0.0.1:{taken.getsockname()[1]}", "-f", node.counters,
                   "--nvml-library", node.nvml_library, "--kmsg-path", ""]
        process = subprocess.Popen(program, env={**node.env, "LISTEN_FDS": "1"}, stdout=log, stderr=log,
                                   preexec_fn=lambda: os.dup2(listening.fileno(), 3), close_fds=False)
        try:
            def works():
                try:
                    return ask(port, "/health")[0] == 200
                except OSError:
                    return False
            wait_until(works, 10, "answers on the socket that was handed over")
        finally:
            process.terminate()
            assert process.wait(10 * SLOW) == 0
            log.close()


# --- TLS, passwords, client certificates ---

@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    ca = Authority(tmp_path_factory.mktemp("pki"))
    ca.server()
    ca.server("second")
    ca.client()
    other = Authority(tmp_path_factory.mktemp("other"), "other")
    other.client("stranger")
    return ca, other


def tls_lines(ca, certificate="server", **more):
    lines = ["tls_server_config:", f"  cert_file: {ca.directory / certificate}.pem",
             f"  key_file: {ca.directory / certificate}.key"]
    return "\n".join(lines + [f"  {k}: {v}" for k, v in more.items()]) + "\n"


USERS = f"basic_auth_users:\n  alice: {bcrypt('password')}\n"


def context_of(pki, client=None):
    context = ssl.create_default_context(cafile=str(pki[0].pem))
    if client:
        folder = pki[1 if client == "stranger" else 0].directory
        context.load_cert_chain(folder / f"{client}.pem", folder / f"{client}.key")
    return context


def credentials(user, password):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def replace(path, text):
    (path.parent / "new").write_text(text)
    (path.parent / "new").rename(path)


def secured(node, path):
    return exporter_at(node, f"--web-config-file={path}", kubernetes=False)


def test_tls_and_passwords_guard_every_path(node, tmp_path, pki):
    path = tmp_path / "web.yml"
    path.write_text(tls_lines(pki[0]) + USERS)
    context = context_of(pki)
    with secured(node, path) as exporter:
        port = exporter.port
        for route in ("/metrics", "/health", "/", "/readyz", "/nothing"):
            status, headers, body = ask(port, route, context=context)
            assert (status, body, headers["WWW-Authenticate"]) == (401, "Unauthorized\n", "Basic")
        assert ask(port, "/health", context=context, headers=credentials("alice", "password"))[0] == 200
        wait_until(lambda: UTIL in ask(port, "/metrics", context=context, headers=credentials("alice", "password"))[2],
                   what="the page")
        for user, password in (("alice", "bad password"), ("alice", ""), ("carol", "password"), ("", "")):
            assert ask(port, "/metrics", context=context, headers=credentials(user, password))[0] == 401
        status, _, body = ask(port, "/metrics")
        assert (status, body) == (400, "Client sent an HTTP request to an HTTPS server.\n")


def test_tls_clients_that_prefer_http_2_get_http_1_1(node, tmp_path, pki):
    path = tmp_path / "web.yml"
    path.write_text(tls_lines(pki[0]))
    context = context_of(pki)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with secured(node, path) as exporter:
        with socket.create_connection(("127.0.0.1", exporter.port), 10 * SLOW) as raw:
            with context.wrap_socket(raw, server_hostname="localhost") as s:
                assert s.selected_alpn_protocol() in (None, "http/1.1")
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert s.recv(12) == b"HTTP/1.1 200"


def test_a_client_certificate_is_asked_for(node, tmp_path, pki):
    path = tmp_path / "web.yml"
    path.write_text(tls_lines(pki[0], client_ca_file=pki[0].pem, client_auth_type="RequireAndVerifyClientCert"))
    with secured(node, path) as exporter:
        port = exporter.port
        assert ask(port, "/metrics", context=context_of(pki, "client"))[0] == 200
        for client in (None, "stranger"):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                ask(port, "/metrics", context=context_of(pki, client))


def served_certificate(port, pki):
    with socket.create_connection(("127.0.0.1", port), 10 * SLOW) as raw:
        with context_of(pki).wrap_socket(raw, server_hostname="localhost") as s:
            return s.getpeercert()["serialNumber"]


def test_the_web_config_is_followed_without_a_restart(node, tmp_path, pki):
    path = tmp_path / "web.yml"
    path.write_text(tls_lines(pki[0]))
    context = context_of(pki)
    with secured(node, path) as exporter:
        port, pid = exporter.port, exporter.pid
        assert ask(port, "/health", context=context)[0] == 200
        first = served_certificate(port, pki)
        replace(path, tls_lines(pki[0], "second") + USERS)
        wait_until(lambda: served_certificate(port, pki) != first, what="the second certificate")
        assert ask(port, "/health", context=context)[0] == 401
        replace(path, "tls_server_confg: {}\n")
        wait_until(lambda: "web config not reloaded" in exporter.log, what="the mistake is told")
        status, _, page = ask(port, "/metrics", context=context, headers=credentials("alice", "password"))
        assert status == 200
        wait_until(lambda: "podgpu_exporter_web_config_last_reload_success 0" in
                   ask(port, "/metrics", context=context, headers=credentials("alice", "password"))[2], what="the gauge")
        replace(path, "http_server_config: {http2: false}\n")
        wait_until(lambda: not raises(lambda: ask(port, "/health")) and ask(port, "/health")[0] == 200, what="plain again")
        assert exporter.pid == pid and exporter.process.poll() is None


def raises(call):
    try:
        call()
        return False
    except (OSError, http.client.HTTPException):
        return True


@pytest.mark.parametrize("text, says", [
    ("tls_server_confg: {}\n", ["web.yml:1", "tls_server_confg"]),
    ("basic_auth_users:\n  alice: plain\n", ["web.yml:2", "alice"]),
    ("tls_server_config:\n  cert_file: nowhere.pem\n  key_file: nowhere.key\n", ["nowhere.pem"]),
    ("tls_server_config: [\n", ["web.yml:"]),
])
def test_a_bad_web_config_at_start_ends_with_status_1_and_is_placed(tmp_path, text, says):
    path = tmp_path / "web.yml"
    path.write_text(text)
    status, log = run_to_end(["-a", "127.0.0.1:0", "-f", ROOT / "etc" / "default-counters.csv", "--web-config-file", path])
    assert status == 1
    errors = [l for l in log.splitlines() if "level=ERROR" in l]
    assert len(errors) == 1 and all(word in errors[0] for word in says), log
    assert ": plain" not in log  # nor any other password

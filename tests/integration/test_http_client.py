"""The HTTP client alone (tests/tools/http_client_probe.c) against Python's servers: answers, caps, redirects,
deadlines, TLS, proxies, signatures."""
import base64
import contextlib
import gzip
import http.server
import json
import os
import pathlib
import socket
import socketserver
import ssl
import subprocess
import threading
import time

import pytest

from harness import BUILD, ROOT, SLOW

pytestmark = pytest.mark.faults
PROBE = BUILD / "tests" / "tools" / "http_client_probe"
VENV = ROOT / "build" / "venv" / "bin" / "python"
ERRNO = {"EPROTO": -71, "ETIMEDOUT": -110, "ECONNREFUSED": -111, "EFBIG": -27, "EKEYREJECTED": -129, "ECONNRESET": -104,
         "EHOSTUNREACH": -113, "ENOENT": -2, "ECANCELED": -125}
# What a proxy variable of the machine would change.
ENV = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def address_string(self):
        return "peer"

    def setup(self):
        super().setup()
        self.server.connections += 1

    def answer(self, body=b"", status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        path = self.path.split("?")[0]
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        if path.startswith("/bytes/"):
            self.answer(b"x" * int(path[7:]), Content_Type="text/plain", X_Test="yes", Retry_After="7")
        elif path.startswith("/gzip/"):
            self.answer(gzip.compress(b"z" * int(path[6:])), Content_Encoding="gzip")
        elif path == "/broken-gzip":
            self.answer(b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 50, Content_Encoding="gzip")
        elif path.startswith("/status/"):
            self.answer(b"sorry", int(path[8:]))
        elif path.startswith("/to/"):
            self.answer(status=302, Location=base64.urlsafe_b64decode(path[4:]).decode())
        elif path.startswith("/loop/"):
            n = int(path[6:])
            self.answer(status=302, Location=f"/loop/{n - 1}" if n > 1 else "/bytes/3")
        elif path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(10):
                self.wfile.write(b"64\r\n" + b"c" * 100 + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"only this")
            self.close_connection = True
        elif path == "/headers":
            self.send_response(200)
            for i in range(60):
                self.send_header(f"X-{i}", "v" * 5000)
            self.end_headers()
        elif path == "/hang":
            self.server.hanging.set()
            self.server.let_go.wait(30)
            self.close_connection = True
        elif path == "/drip":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"drop")
            self.wfile.flush()
            self.server.let_go.wait(30)
            self.close_connection = True
        elif path == "/close":
            self.close_connection = True
        else:
            self.answer(json.dumps({"method": self.command, "path": self.path, "body": body.decode("latin-1"),
                                    "headers": {k.lower(): v for k, v in self.headers.items()}}).encode())

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0

    def handle_error(self, request, client_address):
        pass


class UnixServer(Server):
    address_family = socket.AF_UNIX


@contextlib.contextmanager
def serving(context=None, path=None):
    server = UnixServer(str(path), Handler) if path else Server(("127.0.0.1", 0), Handler)
    server.connections, server.seen = 0, []
    server.hanging, server.let_go = threading.Event(), threading.Event()
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    if not path:
        server.port = server.socket.getsockname()[1]
        server.url = f"{'https' if context else 'http'}://127.0.0.1:{server.port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()


class Answer:
    def __init__(self, line, body):
        fields = line.split("\t")
        self.result, self.status, self.length = int(fields[1]), int(fields[2]), int(fields[3])
        self.date, self.retry_after = int(fields[4]), int(fields[5])
        self.type, self.test, self.streamed, self.error = fields[6], fields[7], int(fields[8]), fields[9]
        self.body = body


def run(*args, env=None, code=0):
    done = subprocess.run([PROBE, *map(str, args)], capture_output=True, timeout=60 * SLOW, env={**ENV, **(env or {})})
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stderr == b"", done.stderr
    return done.stdout


def answers(*args, **kw):
    out, found = run(*args, **kw), []
    while out:
        line, out = out.split(b"\n", 1)
        assert line.startswith(b"answer\t"), line
        length = int(line.split(b"\t")[3])
        found.append(Answer(line.decode(), out[:length]))
        out = out[length:]
    return found


def ask(*args, **kw):
    found = answers(*args, **kw)
    assert len(found) == 1
    return found[0]


def fails(name, *args, **kw):
    answer = ask(*args, **kw)
    assert answer.result == ERRNO[name], (answer.result, answer.error)
    assert answer.error
    return answer


@pytest.fixture(scope="module")
def plain():
    with serving() as server:
        yield server


def make_certificate(folder, name, issuer=None, extension="basicConstraints=CA:FALSE", days="10"):
    key, request, cert = (folder / f"{name}.{e}" for e in ("key", "csr", "pem"))
    extensions = folder / f"{name}.ext"
    extensions.write_text(extension + "\n")
    subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", f"/CN={name}", "-keyout", key, "-out", request], check=True, capture_output=True)
    signer = ["-CA", folder / f"{issuer}.pem", "-CAkey", folder / f"{issuer}.key", "-CAcreateserial"] if issuer else \
        ["-signkey", key]
    subprocess.run(["openssl", "x509", "-req", "-in", request, "-out", cert, "-days", days, "-extfile", extensions,
                    *signer], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    authority = "basicConstraints=critical,CA:TRUE"
    make_certificate(folder, "ca", extension=authority)
    make_certificate(folder, "other", extension=authority)
    make_certificate(folder, "server", "ca", "subjectAltName=IP:127.0.0.1,DNS:inner.example")
    make_certificate(folder, "stranger", "ca", "subjectAltName=DNS:elsewhere.example")
    make_certificate(folder, "client", "ca")
    return folder


def server_context(folder, name="server", client_ca=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    if client_ca:
        context.load_verify_locations(folder / f"{client_ca}.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_an_answer_comes_whole(plain):
    before = time.time()
    answer = ask("--url", plain.url + "/bytes/300000")
    assert (answer.result, answer.status, answer.error) == (0, 200, "")
    assert answer.body == b"x" * 300000
    assert (answer.type, answer.test, answer.retry_after) == ("text/plain", "yes", 7)
    assert before - 2 <= answer.date <= time.time() + 1


@pytest.mark.parametrize("status", [204, 304, 400, 403, 404, 429, 500, 503])
def test_any_status_is_an_answer(plain, status):
    answer = ask("--url", f"{plain.url}/status/{status}")
    assert (answer.result, answer.status) == (0, status)


def test_what_is_asked_reaches_the_server(plain):
    args = ("--url", plain.url + "/echo?a=b&c", "--header", "Accept: text/plain", "--header", "X-Empty:")
    echo = json.loads(ask(*args).body)
    assert (echo["method"], echo["path"], echo["body"]) == ("GET", "/echo?a=b&c", "")
    agent = echo["headers"].pop("user-agent")
    assert agent.startswith("podgpu/")
    assert echo["headers"] == {"host": f"127.0.0.1:{plain.port}", "accept": "text/plain", "x-empty": ""}
    for method in ("POST", "PUT"):
        for body in ("", "a body", "b" * 100_000):
            echo = json.loads(ask("--url", plain.url + "/echo", "--method", method, "--body", body).body)
            assert (echo["method"], echo["body"]) == (method, body)
            assert "content-type" not in echo["headers"] and "expect" not in echo["headers"]
    answer = ask("--url", plain.url + "/bytes/9", "--method", "HEAD")
    assert (answer.result, answer.status, answer.body) == (0, 200, b"")


def test_basic_authentication(plain):
    echo = json.loads(ask("--url", plain.url + "/echo", "--user", "me", "--password", "a:b").body)
    assert echo["headers"]["authorization"] == "Basic " + base64.b64encode(b"me:a:b").decode()


def test_the_body_cap_is_exact(plain):
    assert ask("--url", plain.url + "/bytes/1000", "--max", 1000).length == 1000
    answer = fails("EFBIG", "--url", plain.url + "/bytes/1001", "--max", 1000)
    assert (answer.status, answer.error) == (200, "answer over its limit")
    assert ask("--url", plain.url + "/chunked", "--max", 1000).length == 1000
    fails("EFBIG", "--url", plain.url + "/chunked", "--max", 999)
    fails("EFBIG", "--url", plain.url + "/headers")


def test_gzip_is_unpacked_within_the_cap(plain):
    assert ask("--url", plain.url + "/gzip/5000", "--gzip").body == b"z" * 5000
    assert plain.seen[-1][2]["Accept-Encoding"] == "gzip"
    assert ask("--url", plain.url + "/gzip/5000", "--gzip", "--max", 5000).length == 5000
    fails("EFBIG", "--url", plain.url + "/gzip/5000", "--gzip", "--max", 4999)
    fails("EFBIG", "--url", plain.url + "/gzip/100000000", "--gzip", "--max", 1 << 20)
    fails("EPROTO", "--url", plain.url + "/broken-gzip", "--gzip")
    raw = ask("--url", plain.url + "/gzip/5000")
    assert gzip.decompress(raw.body) == b"z" * 5000 and "Accept-Encoding" not in plain.seen[-1][2]


def to(server, location):
    return f"{server.url}/to/{base64.urlsafe_b64encode(location.encode()).decode()}"


def test_redirects_are_followed_only_when_asked_for_and_ten_times(plain):
    answer = ask("--url", to(plain, "/bytes/5"))
    assert (answer.result, answer.status, answer.body) == (0, 302, b"")
    answer = ask("--url", to(plain, "/bytes/5"), "--follow")
    assert (answer.status, answer.body) == (200, b"xxxxx")
    assert ask("--url", plain.url + "/loop/10", "--follow").status == 200
    fails("EPROTO", "--url", plain.url + "/loop/11", "--follow")
    fails("EPROTO", "--url", to(plain, "file:///etc/passwd"), "--follow")
    fails("EPROTO", "--url", to(plain, "ftp://127.0.0.1:1/"), "--follow")


def test_redirects_never_leave_https(plain, certificates):
    ca = ("--ca", certificates / "ca.pem")
    with serving(server_context(certificates)) as tls:
        assert ask("--url", to(plain, tls.url + "/bytes/4"), "--follow", *ca).body == b"xxxx"
        assert ask("--url", to(tls, tls.url + "/bytes/4"), "--follow", *ca).body == b"xxxx"
        seen = len(plain.seen)
        fails("EPROTO", "--url", to(tls, plain.url + "/bytes/4"), "--follow", *ca)
        assert len(plain.seen) == seen
        fails("EPROTO", "--url", to(plain, to(tls, plain.url + "/bytes/4")), "--follow", *ca)
        assert len(plain.seen) == seen + 1


def test_a_password_does_not_follow_to_another_host(plain):
    with serving() as other:
        login = ("--user", "me", "--password", "secret", "--header", "Authorization: Bearer x")
        assert ask("--url", to(plain, other.url + "/echo"), "--follow", *login[:4]).status == 200
        assert ask("--url", to(plain, other.url + "/echo"), "--follow", *login[4:]).status == 200
        assert [("Authorization" in headers) for _, _, headers, _ in other.seen] == [False, False]


def test_the_deadline_ends_everything(plain):
    for path in ("/hang", "/drip"):
        began = time.monotonic()
        answer = fails("ETIMEDOUT", "--url", plain.url + path, "--deadline-ms", 300)
        assert 0.25 < time.monotonic() - began < 5 * SLOW
        assert answer.error == "no whole answer within 300 ms"
    with socket.socket() as deaf:  # accepts nobody
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        fails("ETIMEDOUT", "--url", url, "--deadline-ms", 200)
        fails("ETIMEDOUT", "--url", url.replace("http", "https"), "--deadline-ms", 200)


def test_connections_that_fail(plain, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        fails("ECONNREFUSED", "--url", f"http://127.0.0.1:{unused.getsockname()[1]}/")
    fails("EHOSTUNREACH", "--url", "http://no-such-name.invalid/", "--deadline-ms", 9000)
    fails("ECONNRESET", "--url", plain.url + "/close")
    answer = fails("EPROTO", "--url", plain.url + "/cut")
    assert (answer.status, answer.body) == (200, b"only this")
    fails("ENOENT", "--url", "http://x/", "--unix", tmp_path / "none")
    fails("EKEYREJECTED", "--url", plain.url.replace("http", "https") + "/")


def test_a_unix_socket(tmp_path):
    with serving(path=tmp_path / "s") as server:
        answer = ask("--url", "http://name/echo", "--unix", tmp_path / "s", env={"http_proxy": "http://127.0.0.1:1"})
        assert json.loads(answer.body)["headers"]["host"] == "name"
        assert len(server.seen) == 1


def test_a_handle_keeps_its_connection():
    with serving() as server:
        assert [a.length for a in answers("--url", server.url + "/bytes/7", "--repeat", 20, "--keep")] == [7] * 20
        assert server.connections == 1
        assert [a.length for a in answers("--url", server.url + "/bytes/7", "--repeat", 3)] == [7] * 3
        assert server.connections == 4
        # Closed by the server after each answer: asked anew.
        close = ("--header", "Connection: close")
        assert [a.length for a in answers("--url", server.url + "/bytes/7", "--repeat", 3, "--keep", *close)] == [7] * 3
        assert server.connections == 7


def test_requests_are_cancelled_in_flight(plain):
    for keep in ((), ("--keep",)):
        for path in ("/hang", "/drip"):
            assert run("--url", plain.url + path, "--cancel-ms", 100, *keep) == b"cancelled\n"
        assert run("--url", plain.url + "/drip", "--stream", "--cancel-in-data", *keep) == b"cancelled\n"
        assert ask("--url", plain.url + "/bytes/3", "--free-inside", *keep).body == b"xxx"


def test_a_body_is_handed_on_as_it_comes(plain):
    answer = ask("--url", plain.url + "/chunked", "--stream")
    assert (answer.result, answer.streamed, answer.body) == (0, 1000, b"")
    answer = fails("ECANCELED", "--url", plain.url + "/drip", "--stream", "--stop-after", 4)
    assert answer.streamed == 4


def test_tls_trusts_the_given_authority_alone(certificates):
    ca, other = certificates / "ca.pem", certificates / "other.pem"
    with serving(server_context(certificates)) as server:
        url = ("--url", server.url + "/bytes/2")
        for args in (("--ca", ca), ("--ca-pem", ca.read_text()), ("--insecure",)):
            for keep in ((), ("--keep", "--repeat", 2)):
                assert {a.body for a in answers(*url, *args, *keep)} == {b"xx"}
        for args in ((), ("--ca", other), ("--ca-pem", other.read_text()), ("--ca", certificates / "none"),
                     ("--ca-pem", "nonsense"), ("--ca", ca, "--server-name", "elsewhere.example")):
            assert fails("EKEYREJECTED", *url, *args).status == 0
        assert server.seen and all(seen[1] == "/bytes/2" for seen in server.seen)
    with serving(server_context(certificates, "stranger")) as server:
        fails("EKEYREJECTED", "--url", server.url, "--ca", ca)
        echo = json.loads(ask("--url", server.url + "/echo", "--ca", ca, "--server-name", "elsewhere.example").body)
        assert echo["headers"]["host"] == f"127.0.0.1:{server.port}"


def test_tls_versions(certificates):
    context = server_context(certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with serving(context) as server:
        args = ("--url", server.url + "/bytes/2", "--ca", certificates / "ca.pem")
        assert ask(*args, "--min-tls", 12).body == b"xx"
        assert ask(*args, "--max-tls", 12).body == b"xx"
        fails("EKEYREJECTED", *args, "--min-tls", 13)


def test_a_client_certificate(certificates):
    ca = ("--ca", certificates / "ca.pem")
    cert, key = certificates / "client.pem", certificates / "client.key"
    with serving(server_context(certificates, client_ca="ca")) as server:
        url = ("--url", server.url + "/bytes/2")
        assert ask(*url, *ca, "--cert", cert, "--key", key).body == b"xx"
        assert ask(*url, *ca, "--cert-pem", cert.read_text(), "--key-pem", key.read_text()).body == b"xx"
        # In TLS 1.3 the server judges after the handshake: the reset may overtake its alert.
        refused = ask(*url, *ca)
        assert refused.status == 0 and refused.result in (ERRNO["EKEYREJECTED"], ERRNO["ECONNRESET"]), refused.error
        fails("EKEYREJECTED", *url, *ca, "--cert", cert, "--key", certificates / "none")
        fails("EKEYREJECTED", *url, *ca, "--cert", cert, "--key", certificates / "other.key")
        fails("EKEYREJECTED", *url, *ca, "--cert-pem", "x", "--key-pem", "y")


def test_proxies_are_those_said(plain):
    with serving() as proxy:
        target = ("--url", "http://far.example/echo")
        echo = json.loads(ask(*target, "--proxy", proxy.url).body)
        assert echo["path"] == "http://far.example/echo"
        nobody = {"http_proxy": "http://127.0.0.1:1", "all_proxy": "http://127.0.0.1:1"}
        assert json.loads(ask(*target, "--proxy", proxy.url, env=nobody).body)["path"] == "http://far.example/echo"
        assert ask("--url", plain.url + "/bytes/1", env=nobody).body == b"x"
        assert ask("--url", plain.url + "/bytes/1", "--proxy", "http://127.0.0.1:1", "--no-proxy", "a,127.0.0.1",
                   env={"no_proxy": "b"}).body == b"x"
        fails("ECONNREFUSED", "--url", plain.url + "/", "--proxy", "http://127.0.0.1:1", env={"no_proxy": "*"})


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_proxies_of_the_environment(plain, variable):
    with serving() as proxy:
        target = ("--url", "http://far.example/echo", "--env-proxy")
        assert json.loads(ask(*target, env={variable: proxy.url}).body)["path"] == "http://far.example/echo"
        assert json.loads(ask(*target, env={variable: proxy.url, "no_proxy": "near.example"}).body)["method"] == "GET"
        seen = len(proxy.seen)
        for name in ("no_proxy", "NO_PROXY"):
            for hosts in ("*", "x,.example", "far.example"):
                fails("EHOSTUNREACH", *target, env={variable: proxy.url, name: hosts})
        assert ask("--url", plain.url + "/bytes/1", "--env-proxy", env={variable: proxy.url}).body == b"x"
        assert len(proxy.seen) == seen


@contextlib.contextmanager
def saying(data):
    """A server that reads a little, says data and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError), listener.accept()[0] as peer:
                peer.recv(65536)
                peer.sendall(data)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


@pytest.mark.parametrize("data,name,status", [
    (b"hello there, this is not HTTP at all\n", "EPROTO", 0),
    (b"HTTP/1.1 2x0 OK\r\n\r\n", "EPROTO", 0),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "EPROTO", 200),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "EPROTO", 200),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "EPROTO", 200),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "EPROTO", 200),
])
def test_answers_that_are_not_http(data, name, status):
    with saying(data) as url:
        assert fails(name, "--url", url, "--gzip").status == status


def test_an_endless_head_is_cut_off():
    for head in (b"HTTP/1.1 200 OK\r\nX: " + b"v" * 2_000_000, b"HTTP/1.1 200 OK\r\n" + b"X: v\r\n" * 200_000):
        with saying(head) as url:
            assert ask("--url", url).result in (ERRNO["EFBIG"], ERRNO["EPROTO"], ERRNO["ECONNRESET"], -12)


SIGNER = """
import sys, json, datetime, hashlib
import botocore.auth, botocore.awsrequest, botocore.credentials
r = json.load(sys.stdin)
moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
request = botocore.awsrequest.AWSRequest(r["method"], r["url"], data=r["body"].encode(), headers=r["headers"])
request.context["timestamp"] = "20260102T030405Z"
signer = botocore.auth.SigV4Auth(botocore.credentials.Credentials(r["key"], r["secret"], r["token"]), r["service"],
                                 r["region"])
canonical = signer.canonical_request(request)
print(signer.signature(signer.string_to_sign(request, canonical), request), end="")
"""


@pytest.mark.skipif(subprocess.run([VENV, "-c", "import botocore"], capture_output=True).returncode != 0
                    if VENV.exists() else True, reason="botocore is not installed")
@pytest.mark.parametrize("token", ["", "the/token+of=a session"])
@pytest.mark.parametrize("method,path,body,header", [
    ("POST", "/", '{"a": "ü"}', "X-Amz-Target: Logs_20140328.PutLogEvents"),
    ("POST", "/", "Action=AssumeRole&Version=2011-06-15", "Content-Type: application/x-www-form-urlencoded"),
    ("POST", "/workspaces/ws-1/api/v1/remote_write", "bytes", "Content-Encoding: snappy"),
    ("GET", "/?Action=GetCallerIdentity&Version=2011-06-15", "", "Accept: application/json"),
    ("PUT", "/x", "", "Content-Type: application/json"),
])
def test_signatures_are_botocores(plain, method, path, body, header, token):
    who = {"key": "AKIDEXAMPLE", "secret": "a/secret+key", "service": "logs", "region": "eu-central-1"}
    args = ["--url", plain.url + path, "--method", method, "--header", header, "--service", who["service"],
            "--region", who["region"], "--access-key", who["key"], "--secret-key", who["secret"],
            "--date", "20260102T030405Z"]
    args += ["--body", body] if body else []
    args += ["--token", token] if token else []
    assert ask(*args).result == 0
    seen_method, seen_path, headers, seen_body = plain.seen[-1]
    assert (seen_method, seen_path, seen_body.decode()) == (method, path, body)
    lower = {k.lower(): v for k, v in headers.items()}
    scheme, fields = lower["authorization"].split(" ", 1)
    fields = dict(f.strip().split("=", 1) for f in fields.split(","))
    assert scheme == "AWS4-HMAC-SHA256"
    assert fields["Credential"] == "AKIDEXAMPLE/20260102/eu-central-1/logs/aws4_request"
    signed = fields["SignedHeaders"].split(";")
    assert {"host", "x-amz-date"} <= set(signed) and (not token or "x-amz-security-token" in signed)
    asked = {"method": method, "url": plain.url + path, "body": body, "token": token or None,
             "headers": {name: lower[name] for name in signed}, **who}
    judged = subprocess.run([VENV, "-c", SIGNER], input=json.dumps(asked), capture_output=True, text=True, check=True)
    assert fields["Signature"] == judged.stdout


# In a mount namespace of the probe's own: its folder of libraries under a layer in which libcurl can be changed.
HIDE = """
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" || exit 77
folder=$(dirname "$(readlink -f "$(ldconfig -p | sed -n 's/.*libcurl.so.4 .*x86-64.*=> //p' | head -1)")") || exit 77
mount -t overlay none -o "lowerdir=$folder,upperdir=$1/upper,workdir=$1/work" "$folder" || exit 77
rm "$folder"/libcurl.so.4* || exit 77
[ -z "$2" ] || echo nonsense >"$folder/libcurl.so.4"
exec "$3" --url http://127.0.0.1:1/
"""


@pytest.mark.parametrize("there,said", [
    ("", "HTTP requests need libcurl: 'libcurl.so.4' not found (Debian: libcurl4)\n"),
    ("bad", "cannot load 'libcurl.so.4': "),
])
def test_without_libcurl_it_says_so(tmp_path, there, said):
    done = subprocess.run(["unshare", "-m", "sh", "-c", HIDE, "sh", tmp_path, there, PROBE], capture_output=True,
                          text=True, env=ENV)
    if done.returncode in (1, 77):
        pytest.skip("no mounts here")
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith(said)

"""The scraper (src/agent/scrape*.c) against targets of every kind: what it asks, how it reads answers, what becomes of
hostile ones, what a reload keeps."""
import base64
import gzip
import itertools
import json
import pathlib
import re
import resource
import socket
import time

import pytest

from agent_harness import agent_at, configuration, scrape_job, write_files
from scrape_peers import TEXT, answer, by_label, peer, probing, reset, scrape_once, zipped
from test_http_client import certificates, server_context  # noqa: F401

pytestmark = pytest.mark.faults

ACCEPT = ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
          "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
          "text/plain;version=0.0.4;q=0.3,*/*;q=0.2")


def write(folder, text, name="prometheus.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def one_job(folder, address, options="", job="j"):
    options = f"  {options}\n" if options else ""
    return write(folder, f"scrape_configs:\n- job_name: {job}\n{options}  static_configs: [{{targets: ['{address}']}}]\n")


def paths_job(folder, server, paths, options="", labels=lambda name: {}):
    """A job with a target for each path, label name its name."""
    groups = [{"targets": [server.address],
               "labels": {"name": p.strip("/"), "__metrics_path__": p, **labels(p.strip("/"))}} for p in paths]
    return write(folder, json.dumps({"scrape_configs": [{"job_name": "j", "static_configs": groups, **(options or {})}]}))


# --- What is asked ---

def seen(tmp_path, options="", page=answer("a 1\n"), env=None):
    with peer({"/metrics": page}) as server:
        view, _, _ = scrape_once(one_job(tmp_path, server.address, options), env=env)
        assert view["targets"][0]["health"] == "up", view
        assert len(server.requests) == 1
        return server.requests[0]


def test_a_scrape_asks_as_prometheus_does(tmp_path):
    request = seen(tmp_path)
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers["user-agent"].startswith("podgpu-agent/")
    del request.headers["user-agent"], request.headers["host"]
    assert request.headers == {"accept": ACCEPT, "accept-encoding": "gzip", "x-prometheus-scrape-timeout-seconds": "10"}


@pytest.mark.parametrize("option,header,value", [
    ("enable_compression: false", "accept-encoding", "identity"),
    ("scrape_timeout: 1500ms", "x-prometheus-scrape-timeout-seconds", "1.5"),
    ("scrape_protocols: [PrometheusText0.0.4, OpenMetricsText1.0.0]", "accept",
     "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.4"),
    ("scrape_protocols: [PrometheusProto, PrometheusText0.0.4]", "accept", "text/plain;version=0.0.4;q=0.5,*/*;q=0.4"),
    ("basic_auth: {username: me, password: 'a:b'}", "authorization", "Basic " + base64.b64encode(b"me:a:b").decode()),
    ("authorization: {credentials: tok}", "authorization", "Bearer tok"),
    ("authorization: {type: Token, credentials: tok}", "authorization", "Token tok"),
    ("bearer_token: tok", "authorization", "Bearer tok"),
    ("http_headers: {X-A: {values: [v]}}", "x-a", "v"),
    ("http_headers: {X-A: {secrets: [s]}}", "x-a", "s"),
])
def test_options_reach_the_request(tmp_path, option, header, value):
    assert seen(tmp_path, option).headers[header] == value


def test_parameters_and_paths_are_in_the_url(tmp_path):
    with peer({"/a%20b": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "metrics_path: '/a b'\n  params: {x: ['1', '&'], token: [secret]}")
        view, _, log = scrape_once(config)
        assert server.requests[0].path == "/a%20b?token=secret&x=1&x=%26"
        target = view["targets"][0]
        assert (target["health"], target["url"]) == ("up", f"http://{server.address}/a%20b?token=xxxxx&x=1&x=%26")


def test_files_of_secrets_are_read_for_each_request(tmp_path):
    token, password, header = (write(tmp_path, text, name) for name, text in
                               (("token", " one\n"), ("password", "p1\n"), ("header", "h1\n")))
    with peer({"/a": answer("a 1\n"), "/b": answer("a 1\n")}) as server:
        config = write(tmp_path, f"""scrape_configs:
- {{job_name: a, metrics_path: /a, scrape_interval: 200ms, scrape_timeout: 200ms,
    authorization: {{credentials_file: {token}}},
    http_headers: {{X-H: {{files: [{header}]}}}}, static_configs: [{{targets: ['{server.address}']}}]}}
- {{job_name: b, metrics_path: /b, scrape_interval: 200ms, scrape_timeout: 200ms,
    basic_auth: {{username: me, password_file: {password}}}, static_configs: [{{targets: ['{server.address}']}}]}}
""")

        def last(path):
            found = server.asked(path)
            return found[-1].headers if found else {}

        def basic(text):
            return "Basic " + base64.b64encode(text.encode()).decode()

        with probing(config) as probe:
            probe.view_when(lambda v: last("/a").get("authorization") == "Bearer one" and last("/a").get("x-h") == "h1"
                            and last("/b").get("authorization") == basic("me:p1"), "first secrets are sent")
            token.write_text("two")
            password.write_text("p2")
            header.write_text("h2")
            probe.view_when(lambda v: last("/a").get("authorization") == "Bearer two" and last("/a").get("x-h") == "h2"
                            and last("/b").get("authorization") == basic("me:p2"), "new secrets are sent")
            token.unlink()
            view = probe.view_when(lambda v: by_label(v, "job")["a"]["health"] == "down", "without a token it is down")
            assert str(token) in by_label(view, "job")["a"]["error"]
            token.write_text("three")
            probe.view_when(lambda v: last("/a").get("authorization") == "Bearer three", "the third token is sent")


def test_redirects_are_followed_unless_they_are_not_to_be(tmp_path):
    pages = {"/metrics": answer("", status="302 Found", Location="/there"), "/there": answer("a 1\n")}
    with peer(pages) as server:
        view, _, _ = scrape_once(one_job(tmp_path, server.address))
        assert view["targets"][0]["health"] == "up"
        view, _, _ = scrape_once(one_job(tmp_path, server.address, "follow_redirects: false"))
        assert view["targets"][0]["error"] == "server returned HTTP status 302"


def test_a_proxy_is_asked_where_it_is_set(tmp_path):
    with peer({"http://target.invalid:80/metrics": answer("a 1\n"), "http://target.invalid/metrics": answer("a 1\n")}) as proxy:
        url = f"http://{proxy.address}"
        for options, env in ((f"proxy_url: {url}", {}), ("proxy_from_environment: true", {"http_proxy": url})):
            view, _, _ = scrape_once(one_job(tmp_path, "target.invalid", options), env=env)
            assert view["targets"][0]["health"] == "up", view
        assert len(proxy.requests) == 2
    with peer({"/metrics": answer("a 1\n")}) as server:
        for options, env in ((f"proxy_url: {url}\n  no_proxy: 127.0.0.1", {}), ("", {"http_proxy": url})):
            view, _, _ = scrape_once(one_job(tmp_path, server.address, options), env=env)
            assert view["targets"][0]["health"] == "up", view


def test_tls_by_file_and_in_line(tmp_path, certificates):  # noqa: F811
    def indented(name):
        return "".join("      " + line + "\n" for line in (certificates / name).read_text().splitlines())

    with peer({"/metrics": answer("a 1\n")}, server_context(certificates, client_ca="ca")) as server:
        files = (f"scheme: https\n  tls_config: {{ca_file: {certificates}/ca.pem, cert_file: {certificates}/client.pem, "
                 f"key_file: {certificates}/client.key}}")
        view, _, _ = scrape_once(one_job(tmp_path, server.address, files))
        assert view["targets"][0]["health"] == "up", view
        inline = (f"scheme: https\n  tls_config:\n    ca: |\n{indented('ca.pem')}    cert: |\n{indented('client.pem')}"
                  f"    key: |\n{indented('client.key')}")
        view, _, _ = scrape_once(one_job(tmp_path, server.address, inline))
        assert view["targets"][0]["health"] == "up", view
        name = "scheme: https\n  tls_config: {insecure_skip_verify: true}"
        view, _, _ = scrape_once(one_job(tmp_path, server.address, name))
        assert view["targets"][0]["health"] == "down"  # it wants our certificate


# --- How an answer is read ---

def read(tmp_path, page, options=""):
    with peer({"/metrics": page}) as server:
        view, samples, log = scrape_once(one_job(tmp_path, server.address, options), "--samples")
        return view["targets"][0], [s for s in samples if not s["internal"]], log


def test_samples_carry_the_labels_of_the_target(tmp_path):
    with peer({"/metrics": answer('# TYPE a gauge\na{x="y",job="own"} 1.5\n')}) as server:
        before = time.time() * 1000
        view, samples, _ = scrape_once(one_job(tmp_path, server.address), "--samples")
        sample, = [s for s in samples if not s["internal"]]
        assert before - 1000 <= sample.pop("ms") <= time.time() * 1000
        assert sample == {"name": "a", "internal": False, "value": "1.5", "labels": {
            "x": "y", "exported_job": "own", "job": "j", "instance": server.address}}
        own = {s["name"]: s["value"] for s in samples if s["internal"]}
        assert (own["up"], own["scrape_samples_scraped"]) == ("1", "1")
        assert view["targets"][0]["scraped"] == 1


@pytest.mark.parametrize("kind,page", [
    (TEXT, "a 1\n"), ("text/plain", "a 1\n"), ("TEXT/PLAIN;charset=utf-8", "a 1\n"),
    ("application/openmetrics-text; version=1.0.0; charset=utf-8", "a 1\n# EOF\n"),
    ("", "a 1\n"), ("text/html", "a 1\n"), ("application/json", "a 1\n"), ("garbage/;;=", "a 1\n"),
])
def test_content_type_or_the_fallback_decides_the_parser(tmp_path, kind, page):
    target, samples, _ = read(tmp_path, answer(page, kind))
    assert target["health"] == "up", target
    assert [(s["name"], s["value"]) for s in samples] == [("a", "1")]


def test_a_fallback_of_openmetrics_wants_its_end(tmp_path):
    target, _, _ = read(tmp_path, answer("a 1\n", ""), "scrape_fallback_protocol: OpenMetricsText1.0.0")
    assert target["health"] == "down"
    target, _, _ = read(tmp_path, answer("a 1\n# EOF\n", ""), "scrape_fallback_protocol: OpenMetricsText1.0.0")
    assert target["health"] == "up"


def test_protobuf_is_refused(tmp_path):
    kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
    target, _, _ = read(tmp_path, answer(b"\x0a\x01a", kind))
    assert (target["health"], target["error"]) == ("down", "answered in protobuf, which was not asked for")


def test_gzip_is_unpacked(tmp_path):
    target, samples, _ = read(tmp_path, zipped("a 1\n" * 1 + "b 2\n"))
    assert target["health"] == "up" and [s["name"] for s in samples] == ["a", "b"]


def test_an_empty_page_is_up(tmp_path):
    target, samples, _ = read(tmp_path, answer(""))
    assert (target["health"], target["scraped"], samples) == ("up", 0, [])


def test_body_size_limit_is_exact_as_in_prometheus(tmp_path):
    body = "a 1\nbcd 2\n"
    target, _, _ = read(tmp_path, answer(body), f"body_size_limit: {len(body) + 1}B")
    assert target["health"] == "up"
    target, samples, _ = read(tmp_path, answer(body), f"body_size_limit: {len(body)}B")
    assert (target["health"], samples) == ("down", [])
    assert target["error"] == f"body_size_limit of {len(body)} bytes exceeded"


@pytest.mark.parametrize("option,page", [
    ("sample_limit: 1", "a 1\nb 2\n"), ("label_limit: 2", 'a{x="y"} 1\n'),
    ("label_name_length_limit: 8", 'a{long_name="y"} 1\n'), ("label_value_length_limit: 30", f'a{{x="{"v" * 31}"}} 1\n'),
])
def test_a_limit_exceeded_gives_nothing_of_the_page(tmp_path, option, page):
    target, samples, _ = read(tmp_path, answer(page), option)
    assert (target["health"], samples) == ("down", [])
    assert "limit" in target["error"], target


def test_more_targets_than_target_limit_fail_together(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = write(tmp_path, f"""scrape_configs:
- job_name: over
  target_limit: 1
  static_configs: [{{targets: ['{server.address}'], labels: {{name: a}}}}, {{targets: ['{server.address}'], labels: {{name: b}}}}]
- job_name: at
  target_limit: 1
  static_configs: [{{targets: ['{server.address}'], labels: {{name: c}}}}]
""")
        view, _, _ = scrape_once(config)
        targets = by_label(view)
        assert {name: t["health"] for name, t in targets.items()} == {"a": "down", "b": "down", "c": "up"}
        assert targets["a"]["error"] == "target_limit exceeded (number of targets: 2, limit: 1)"
        assert (view["stats"]["limited"], len(server.requests)) == (1, 1)


# --- Hostile targets ---

def endless(request, connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\n\r\n".encode())
    for i in itertools.count():
        connection.sendall(f"a{{i=\"{i}\"}} 1\n".encode())
        time.sleep(0.01)


def drip(request, connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: 1000\r\n\r\n".encode())
    for _ in range(1000):
        connection.sendall(b"#")
        time.sleep(0.05)


def silent(request, connection):
    connection.recv(1)  # until the other side gives up


def huge(request, connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: {500 << 20}\r\n\r\n".encode())
    line = b"#" * 65535 + b"\n"
    for _ in range((500 << 20) // len(line)):
        connection.sendall(line)


def cut(request, connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: 100\r\n\r\na 1\n".encode())


def cut_chunk(request, connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nTransfer-Encoding: chunked\r\n\r\n40\r\na 1\n".encode())


def broken(request, connection):
    connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Type: {TEXT}\r\nContent-Length: 100\r\n\r\na 1\n".encode())
    reset(connection)


def bomb():
    return answer(gzip.compress(b"#" * (1 << 20), 9) * 200, Content_Encoding="gzip")


def long_bomb():
    import zlib
    packer = zlib.compressobj(9, wbits=31)
    pieces = [packer.compress(b"\n" * (1 << 20)) for _ in range(200)]
    return answer(b"".join(pieces) + packer.flush(), Content_Encoding="gzip")


TIMEOUT = "no whole answer within"
DOWN = {  # path: (page, in the error)
    "/endless": (endless, TIMEOUT),
    "/drip": (drip, TIMEOUT),
    "/silent": (silent, TIMEOUT),
    "/huge": (huge, "answer over its limit (67108864 bytes)"),
    "/bomb": (long_bomb(), "answer over its limit (67108864 bytes)"),
    "/utf8": (answer(b'a{x="\xff"} 1\n'), "UTF-8"),
    "/html": (answer("<!DOCTYPE html><html><body>no metrics here</body></html>\n", "text/html"), "1:1"),
    "/binary": (answer(bytes(range(256)) * 100), ""),
    "/loop": (answer("", status="302 Found", Location="/loop"), "redirect"),
    "/500": (answer("a 1\n", status="500 Internal Server Error"), "server returned HTTP status 500"),
    "/204": (b"HTTP/1.1 204 No Content\r\n\r\n", "server returned HTTP status 204"),
    "/cut": (cut, ""),
    "/cut-chunk": (cut_chunk, ""),
    "/reset": (broken, ""),
    "/ssh": (lambda r, c: c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"), ""),
    "/gzip": (answer(b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 50, Content_Encoding="gzip"), ""),
    "/headers": (b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 5000) for i in range(80)) + b"\r\n", ""),
    "/value": (answer("a 1\nb x\nc 3\n"), "2:3: "),
    "/half": (answer("a 1\nb{"), ""),
    "/no-eof": (answer("a 1\n", "application/openmetrics-text"), ""),
}
UP = {  # path: (page, samples scraped)
    "/nan": (answer("a NaN\nb +Inf\nc -Inf\n"), 3),
    "/1970": (answer("a 1 1000\n"), 1),
    "/type": (answer('# TYPE a counter\na{x="1"} 1\n# TYPE a gauge\na{x="2"} 2\n'), 2),
    "/twice": (answer("a 1\na 2\n"), 2),
    "/wrong-type": (answer("a 1\n", "image/png"), 1),
    "/good": (answer("a 1\n"), 1),
}
SLOW_ONES = ("endless", "drip", "silent")


def test_hostile_targets_are_down_with_a_reason_and_harm_no_other(tmp_path):
    pages = {path: page for path, (page, _) in {**DOWN, **UP}.items()}
    with peer(pages) as server:
        config = paths_job(tmp_path, server, pages, labels=lambda name: {
            "__scrape_timeout__": "1s" if name in SLOW_ONES else "50s"})
        view, samples, log = scrape_once(config, "--samples", seconds=120)
        targets = by_label(view)
        for path, (_, error) in DOWN.items():
            target = targets[path.strip("/")]
            assert target["health"] == "down", (path, target)
            assert target["error"] and error in target["error"], (path, target["error"])
            assert f"{server.address}{path} " in log + " ", path
        for path, (_, count) in UP.items():
            target = targets[path.strip("/")]
            assert (target["health"], target["error"], target["scraped"]) == ("up", "", count), (path, target)
        down = {s["labels"]["name"] for s in samples if s["name"] == "up" and s["value"] == "0"}
        assert down == {p.strip("/") for p in DOWN}
        given = {s["labels"]["name"] for s in samples if not s["internal"]}
        assert given <= {p.strip("/") for p in UP}
        assert targets["twice"]["duplicates"] == 1
        assert [s["ms"] for s in samples if s["labels"].get("name") == "1970" and not s["internal"]] == [1000]


def test_a_target_that_cannot_be_reached_says_why(tmp_path, certificates):  # noqa: F811
    with socket.socket() as deaf, peer({"/metrics": answer("a 1\n")}, server_context(certificates)) as tls, \
            peer({"/metrics": answer("a 1\n")}, server_context(certificates, "stranger")) as stranger:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        config = write(tmp_path, f"""scrape_configs:
- job_name: refused
  static_configs: [{{targets: ['127.0.0.1:{deaf.getsockname()[1]}']}}]
- job_name: ca
  scheme: https
  tls_config: {{ca_file: {certificates}/other.pem}}
  static_configs: [{{targets: ['{tls.address}']}}]
- job_name: name
  scheme: https
  tls_config: {{ca_file: {certificates}/ca.pem}}
  static_configs: [{{targets: ['{stranger.address}']}}]
- job_name: no-file
  scheme: https
  tls_config: {{ca_file: {tmp_path}/absent.pem}}
  static_configs: [{{targets: ['{tls.address}']}}]
- job_name: plain-to-tls
  static_configs: [{{targets: ['{tls.address}']}}]
- job_name: scheme
  scheme: http
  relabel_configs: [{{target_label: __scheme__, replacement: gopher}}]
  static_configs: [{{targets: ['{tls.address}']}}]
- job_name: host
  static_configs: [{{targets: ['a b']}}]
""")
        view, _, log = scrape_once(config)
        errors = {t["job"]: t["error"] for t in view["targets"]}
        assert all(t["health"] == "down" and t["error"] for t in view["targets"]), view
        assert "certificate" in errors["ca"] and "name" in errors["name"].lower(), errors
        assert "absent.pem" in errors["no-file"] and "neither http nor https" in errors["scheme"], errors
        assert log.count("target is down") == 7


def test_secrets_are_in_no_log_and_no_view(tmp_path):
    config = write(tmp_path, """scrape_configs:
- job_name: j
  basic_auth: {username: me, password: hunter2}
  params: {api_key: [hunter2]}
  http_headers: {X-Key: {secrets: [hunter2]}}
  static_configs: [{targets: ['127.0.0.1:1', 'a b'], labels: {__param_token: hunter2}}]
  relabel_configs: [{source_labels: [__address__], regex: a b, target_label: __scheme__, replacement: gopher}]
""")
    view, _, log = scrape_once(config)
    assert [t["health"] for t in view["targets"]] == ["down", "down"]
    assert "not a URL that can be asked" in [t["error"] for t in view["targets"]]
    assert "hunter2" not in json.dumps(view) + log


# --- Turns ---

def test_turns_keep_their_phase_and_do_not_drift(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 200ms\n  scrape_timeout: 200ms")
        with probing(config) as probe:
            probe.view_when(lambda v: len(server.requests) >= 15, "15 turns")
            downs = probe.log().count("target is down")
        times = [r.when for r in server.requests]
        # Late ones there may be on a busy machine; the median turn is a whole number of intervals after the first.
        late = sorted((t - min(times)) % 0.2 for t in times)
        middle = late[len(late) // 2]
        assert middle < 0.08 or middle > 0.12, late
        assert server.connections <= 1 + downs  # it is kept


def test_the_phase_is_the_same_after_a_restart(tmp_path):
    phases = []
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 2s\n  scrape_timeout: 2s")
        for _ in range(2):
            server.requests.clear()
            with probing(config) as probe:
                probe.view_when(lambda v: v["stats"]["scrapes"] >= 1 and server.requests, "a turn")
            phases.append(server.requests[0].when % 2)
    apart = abs(phases[0] - phases[1])
    assert min(apart, 2 - apart) < 0.7, phases


def test_a_turn_during_a_scrape_is_skipped_and_counted(tmp_path):
    def late(request, connection):
        time.sleep(0.35)
        return answer("a 1\n")

    with peer({"/metrics": late}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 10s\n  scrape_timeout: 10s")
        config.write_text(config.read_text().replace(
            "  static_configs", "  relabel_configs: [{target_label: __scrape_interval__, replacement: 100ms}, "
            "{target_label: __scrape_timeout__, replacement: 100ms}]\n  static_configs"))
        with probing(config) as probe:
            view = probe.view_when(lambda v: v["stats"]["failures"] >= 3 and v["stats"]["skipped"] >= 1, "skipped turns")
            assert view["targets"][0]["error"] == "no whole answer within 100 ms"


def test_a_target_that_comes_back_is_up_again_and_logged_once(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 100ms\n  scrape_timeout: 100ms")
        with probing(config) as probe:
            probe.view_when(lambda v: v["stats"]["up"] == 1, "up")
            server.pages["/metrics"] = answer("", status="503 Busy")
            view = probe.view_when(lambda v: v["stats"]["down"] == 1, "down")
            before = view["stats"]["scrapes"]
            view = probe.view_when(lambda v: v["stats"]["scrapes"] >= before + 5, "five more failures")
            assert view["stats"]["sink_stale"] >= 1 and view["stats"]["down"] == 1
            server.pages["/metrics"] = answer("a 1\n")
            probe.view_when(lambda v: v["stats"]["up"] == 1, "up again")
            log = probe.log()
            assert log.count("target is down") == log.count("target is up") >= 1
            assert log.count("target is down") < view["stats"]["failures"]


def test_stop_asks_nobody_any_more(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 50ms\n  scrape_timeout: 50ms")
        with probing(config) as probe:
            probe.view_when(lambda v: v["stats"]["scrapes"] >= 2, "two turns")
            probe.command("stop")
            before = probe.view()["stats"]["scrapes"]
            time.sleep(0.3)
            assert probe.view()["stats"]["scrapes"] == before


# --- Several ways to one target, and reloads ---

def test_equal_targets_of_a_job_are_scraped_once(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = write(tmp_path, f"""scrape_configs:
- job_name: a
  relabel_configs: [{{action: labeldrop, regex: drop}}]
  static_configs: [{{targets: ['{server.address}', '{server.address}'], labels: {{drop: '1'}}}}, {{targets: ['{server.address}']}}]
- job_name: b
  static_configs: [{{targets: ['{server.address}']}}]
""")
        view, _, _ = scrape_once(config)
        assert (view["stats"]["targets"], len(server.requests), len(view["targets"])) == (2, 2, 2)


def rules(*texts):
    return "relabel_configs: [" + ", ".join(texts) + "]"


def test_a_reload_keeps_what_stays_and_drops_what_goes(tmp_path):
    with peer({"/metrics": answer("a 1\n"), "/other": answer("b 1\n")}) as server:
        def config(groups, options=""):
            text = "".join(f"  - {{targets: ['{server.address}'], labels: {{name: {name}}}}}\n" for name in groups)
            return write(tmp_path, "scrape_configs:\n- job_name: j\n  scrape_interval: 100ms\n  scrape_timeout: 100ms\n"
                         f"{options}  static_configs:\n{text}")

        with probing(config("ab")) as probe:
            probe.view_when(lambda v: v["stats"]["up"] == 2 and v["stats"]["sink_targets"] == 2, "both are up")
            config("bc", "  metric_relabel_configs: [{target_label: new, replacement: x}]\n")
            probe.reload()
            view = probe.view_when(lambda v: set(by_label(v)) == {"b", "c"} and v["stats"]["up"] == 2
                                   and v["stats"]["sink_targets"] == 2, "b stayed, c came, a went")
            probe.view_when(lambda v: v["stats"]["sink_renewed"] >= 1, "the series of b were told anew")
            assert view["stats"]["sink_targets_new"] >= 3
            requests = len(server.requests)
            # Relabelling that makes other targets of the same groups.
            config("bc", f"  {rules('{target_label: __metrics_path__, replacement: /other}')}\n")
            probe.reload()
            probe.view_when(lambda v: v["stats"]["up"] == 2 and all(t["url"].endswith("/other") for t in v["targets"])
                            and v["stats"]["sink_targets"] == 2, "other targets")
            assert len(server.requests) > requests
            write(tmp_path, "scrape_configs: []\n")
            probe.reload()
            probe.view_when(lambda v: v["stats"]["targets"] == 0 and v["stats"]["sink_targets"] == 0, "no target")


def test_a_target_keeps_its_connection_over_a_reload(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 100ms\n  scrape_timeout: 100ms")
        with probing(config) as probe:
            probe.view_when(lambda v: v["stats"]["scrapes"] >= 2, "two turns")
            for _ in range(3):
                before = probe.view()["stats"]["scrapes"]
                probe.reload()
                probe.view_when(lambda v: v["stats"]["scrapes"] >= before + 2, "two more turns")
            assert probe.view()["stats"]["sink_series_new"] >= 1
        # A busy machine may miss a deadline of 100 ms and so lose a connection.
        assert server.connections <= 1 + probe.log().count("target is down")


def test_a_job_with_another_interval_keeps_its_series(tmp_path):
    with peer({"/metrics": answer("a 1\n")}) as server:
        config = one_job(tmp_path, server.address, "scrape_interval: 100ms\n  scrape_timeout: 100ms")
        with probing(config) as probe:
            probe.view_when(lambda v: v["stats"]["up"] == 1, "up")
            config.write_text(config.read_text().replace("100ms", "200ms"))
            probe.reload()
            probe.view_when(lambda v: v["targets"] and v["targets"][0]["interval_ns"] == 200_000_000
                            and v["stats"]["sink_renewed"] >= 1, "the series went over")


def test_unusable_and_dropped_targets_are_shown_with_their_reason(tmp_path):
    config = write(tmp_path, f"""scrape_configs:
- job_name: j
  {rules("{action: drop, source_labels: [x], regex: drop}")}
  static_configs:
  - {{targets: ['h:1'], labels: {{x: drop}}}}
  - {{targets: ['h/p']}}
""")
    view, _, log = scrape_once(config)
    found = {t["discovered"]["__address__"]: (t["dropped"], t["error"]) for t in view["targets"]}
    assert found == {"h:1": (True, ""), "h/p": (True, "'h/p' is not a host and port")}
    assert (view["stats"]["dropped"], view["stats"]["invalid"]) == (1, 1)
    assert log.count("targets left out that relabelling made unusable") == 1


def test_keep_dropped_targets_bounds_what_is_shown(tmp_path):
    config = write(tmp_path, f"""scrape_configs:
- job_name: j
  keep_dropped_targets: 2
  {rules("{action: drop}")}
  static_configs: [{{targets: [a, b, c, d]}}]
""")
    view, _, _ = scrape_once(config)
    assert (len(view["targets"]), view["stats"]["dropped"]) == (2, 4)


def test_the_agent_keeps_more_connections_than_a_soft_limit_of_1024(tmp_path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 2000:
        pytest.skip(f"this machine lets a program have {hard} descriptors")
    write_files(tmp_path, configuration(), [scrape_job("127.0.0.1:1")])
    low = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # noqa: E731
    with agent_at(tmp_path, "--output", "stdout", preexec_fn=low) as agent:
        agent.page_when(lambda p: p.value("podgpu_agent_targets", state="down") >= 0, 20, "its page")
        limits = pathlib.Path(f"/proc/{agent.pid}/limits").read_text()
    soft = int(re.search(r"^Max open files\s+(\d+)", limits, re.M)[1])
    assert soft == min(hard, (1 << 14) + 1024)

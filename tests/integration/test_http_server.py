"""The HTTP server alone (tests/tools/http_probe.c): protocol, caps, deadlines, TLS, passwords, reload."""
import base64
import concurrent.futures
import contextlib
import gzip
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

import pytest

from harness import BUILD, SLOW, wait_until

pytestmark = pytest.mark.faults
PROBE = BUILD / "tests" / "tools" / "http_probe"
SANITIZED = BUILD.name in ("asan", "tsan", "build-asan")


def bcrypt(password, cost=4):
    """A bcrypt text, made by libcrypt itself."""
    import ctypes
    lib = ctypes.CDLL("libcrypt.so.1")
    lib.crypt.restype = ctypes.c_char_p
    return lib.crypt(password.encode(), b"$2b$%02d$abcdefghijklmnopqrstuu" % cost).decode()


class Probe:
    def __init__(self, *args, env=None, preexec_fn=None, pass_fds=()):
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([PROBE, *args], stdout=subprocess.PIPE, stderr=self.stderr, text=True, env=env,
                                        preexec_fn=preexec_fn, pass_fds=pass_fds)
        line = self.process.stdout.readline()
        assert line.startswith("port "), self.log()
        self.port = int(line.split()[1])

    def log(self):
        self.stderr.seek(0)
        return self.stderr.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(10 * SLOW)
        self.process.stdout.close()
        assert code == 0, self.log()

    def connect(self, host="127.0.0.1", timeout=10):
        return socket.create_connection((host, self.port), timeout * SLOW)

    def stats(self, **kw):
        return json.loads(self.get("/stats", **kw).body)

    def get(self, path, method="GET", headers=(), version="1.1", context=None, sock=None, close=True):
        s = sock or self.connect()
        if context:
            s = context.wrap_socket(s, server_hostname="localhost")
        lines = [f"{method} {path} HTTP/{version}", "Host: localhost"] + [f"{k}: {v}" for k, v in headers]
        if close:
            lines.append("Connection: close")
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        reply = read_reply(s, method)
        if not sock:
            s.close()
        return reply


class Reply:
    def __init__(self, head, body):
        status, *lines = head.decode("latin-1").split("\r\n")
        self.version, self.code = status.split(" ")[0], int(status.split(" ")[1])
        self.headers = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in self.headers, f"twice: {name}"
            self.headers[name.lower()] = value
        self.body = body


def read_until_close(s):
    data = b""
    while True:
        piece = s.recv(1 << 16)
        if not piece:
            return data
        data += piece


def read_head(s):
    data = b""
    while b"\r\n\r\n" not in data:
        piece = s.recv(1)
        assert piece, f"closed in a reply's head: {data!r}"
        data += piece
    return data[:-4]


def read_reply(s, method="GET"):
    reply = Reply(read_head(s), b"")
    left = 0 if method == "HEAD" else int(reply.headers["content-length"])
    pieces = []
    while left:
        piece = s.recv(min(left, 1 << 16))
        assert piece, "closed in a reply's body"
        pieces.append(piece)
        left -= len(piece)
    reply.body = b"".join(pieces)
    return reply


def is_closed(s, seconds=5):
    """The peer closed (FIN or reset) without another byte."""
    s.settimeout(seconds * SLOW)
    try:
        return s.recv(1) == b""
    except ConnectionError:
        return True


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def assert_at_rest(probe):
    """Within a few seconds there is one in which the program hardly runs; one that spins has none."""
    for _ in range(4 * SLOW):
        before = cpu_seconds(probe.process.pid)
        time.sleep(1)
        used = cpu_seconds(probe.process.pid) - before
        if used <= 0.05:
            return
    raise AssertionError(f"busy while nothing happens: {used} s of a second")


@pytest.fixture
def start():
    with contextlib.ExitStack() as stack:
        def go(*args, **kw):
            probe = Probe(*args, **kw)
            stack.callback(probe.stop)
            return probe
        yield go


@pytest.fixture
def probe(start):
    return start()


# --- Protocol ---

def test_a_page_has_its_headers(probe):
    r = probe.get("/metrics", close=False)
    assert (r.version, r.code) == ("HTTP/1.1", 200)
    assert set(r.headers) == {"date", "content-type", "x-content-type-options", "vary", "content-length"}
    assert r.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert r.headers["x-content-type-options"] == "nosniff"
    assert r.headers["vary"] == "Accept-Encoding"
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", r.headers["date"])
    assert len(r.body) == int(r.headers["content-length"]) > 73 * 1024


@pytest.mark.threads
@pytest.mark.parametrize("path", ["/metrics", "/big", "/bytes/1048576", "/bytes/1100000"])
def test_gzip_is_the_same_page_compressed(probe, path):
    plain = probe.get(path)
    packed = probe.get(path, headers=[("Accept-Encoding", "gzip")])
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert "content-encoding" not in plain.headers
    assert len(packed.body) < len(plain.body) / 5
    assert gzip.decompress(packed.body) == plain.body


@pytest.mark.parametrize("value,packed", [("gzip;q=0", False), ("identity", False), ("*", True), ("br, gzip;q=0.1", True),
                                          ("gzip;q=0.5, identity;q=0.8", False)])
def test_accept_encoding_is_weighed(probe, value, packed):
    r = probe.get("/metrics", headers=[("Accept-Encoding", value)])
    assert ("content-encoding" in r.headers) == packed


def test_a_small_body_is_not_compressed(probe):
    r = probe.get("/bytes/900", headers=[("Accept-Encoding", "gzip")])
    assert "content-encoding" not in r.headers and "vary" not in r.headers


@pytest.mark.threads
def test_many_ask_for_the_first_gzip_at_once(probe):
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        bodies = {r.body for r in pool.map(lambda _: probe.get("/big", headers=[("Accept-Encoding", "gzip")]), range(32))}
    assert len(bodies) == 1 and gzip.decompress(bodies.pop()) == probe.get("/big").body


def test_head_is_get_without_a_body(probe):
    with probe.connect() as s:
        for headers in ([], [("Accept-Encoding", "gzip")]):
            full = probe.get("/metrics", headers=headers)
            head = probe.get("/metrics", method="HEAD", headers=headers, sock=s, close=False)
            assert head.headers["content-length"] == full.headers["content-length"]
            assert head.headers["content-type"] == full.headers["content-type"]
            assert head.headers.get("content-encoding") == full.headers.get("content-encoding")


def test_an_empty_body_has_its_type(probe):
    r = probe.get("/empty")
    assert r.code == 200 and r.body == b"" and r.headers["content-length"] == "0"
    assert r.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_unknown_paths_are_not_found(probe):
    for path in ("/", "/metrics/", "/metrics%00", "/metrics%00.html", "/METRICS"):
        r = probe.get(path)
        assert (r.code, r.body) == (404, b"404 page not found\n")
        assert r.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("target", ["/%6detrics", "/metrics?name=x&a=%00", "http://localhost/metrics", "/metrics?"])
def test_other_spellings_of_a_path(probe, target):
    assert probe.get(target).code == 200


def test_request_headers_and_replies_with_headers_of_their_own(probe):
    r = probe.get("/echo", headers=[("X-ECHO", "hello there")])
    assert r.body == b"GET hello there local\n"
    assert r.headers["x-registry-available"] == "true" and r.headers["x-other"] == "1"
    r = probe.get("/extra", headers=[("Accept-Encoding", "gzip")])
    assert r.headers["x-extra"] == "yes" and len(r.body) > 0


def test_a_connection_is_used_again(probe):
    with probe.connect() as s:
        for _ in range(50):
            assert probe.get("/metrics", sock=s, close=False).code == 200
            assert probe.get("/nothing", sock=s, close=False).code == 404
        s.sendall(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert read_reply(s).headers["connection"].lower() == "keep-alive"
    assert probe.stats()["connections"] == 2


def test_http_1_0_closes(probe):
    with probe.connect() as s:
        s.sendall(b"GET /echo HTTP/1.0\r\n\r\n")
        assert read_reply(s).code == 200
        assert is_closed(s)


def test_pipelined_requests_are_answered_in_order(probe):
    with probe.connect() as s:
        s.sendall(b"".join(b"GET /echo HTTP/1.1\r\nHost: x\r\nX-Echo: %d\r\n\r\n" % i for i in range(40)))
        for i in range(40):
            assert read_reply(s).body == b"GET %d local\n" % i
    with probe.connect() as s:
        s.sendall(b"GET /bytes/1100000 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n" * 3)
        for _ in range(3):
            assert len(gzip.decompress(read_reply(s).body)) >= 1100000


def test_a_half_closed_client_gets_its_answer(probe):
    for path, least in (("/metrics", 73 * 1024), ("/big", 5 << 19)):
        with probe.connect() as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            s.shutdown(socket.SHUT_WR)
            assert len(read_reply(s).body) >= least
            assert is_closed(s)


def test_a_post_without_a_body_is_taken(probe):
    with probe.connect() as s:
        for extra in ("", "Content-Length: 0\r\n"):
            s.sendall(f"POST /echo HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode())
            assert read_reply(s).body.startswith(b"POST ")


BAD = {
    "a body": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    "a body to come": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n",
    "a body after waiting": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
    "chunked": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": "GET /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n",
    "length and coding": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    "two lengths": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nabcde",
    "two equal lengths": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a listed length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 5\r\n\r\nabcde",
    "a signed length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n",
    "a negative length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a huge length": "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    "a folded coding": "GET /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded length": "GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n 5\r\n\r\nabcde",
    "space before the colon": "GET /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n",
    "space in a name": "GET /echo HTTP/1.1\r\nHost: x\r\nX Y: z\r\n\r\n",
    "space before a name": "GET /echo HTTP/1.1\r\n Host: x\r\n\r\n",
    "two hosts": "GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no host": "GET /echo HTTP/1.1\r\n\r\n",
    "no colon": "GET /echo HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n",
    "NUL in a name": "GET /echo HTTP/1.1\r\nHost: x\r\nA\0B: c\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_and_nothing_behind_it_is_read(probe, name):
    with probe.connect() as s:
        s.sendall(BAD[name].encode() + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        data = read_until_close(s)
    assert data.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), data[:200]
    assert b"Connection: close" in data
    assert b"404" not in data
    if not name.endswith(" length"):  # what libmicrohttpd 0.9.75 refuses itself comes with its head twice
        assert data.count(b"HTTP/1.1 ") == 1
    assert probe.stats()["requests"] == 0 + 1


def test_garbage_does_no_harm(probe):
    import random
    rng = random.Random(1)
    for i in range(60):
        with probe.connect() as s, contextlib.suppress(ConnectionError):
            s.sendall(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4000))) + b"\r\n\r\n")
            s.shutdown(socket.SHUT_WR)
            read_until_close(s)
    assert probe.get("/metrics").code == 200


def test_an_oversized_head_is_refused(probe):
    for head in ("GET /" + "a" * 20000 + " HTTP/1.1\r\nHost: x\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: x\r\nA: " + "a" * 20000 + "\r\n\r\n",
                 "GET / HTTP/1.1\r\nHost: x\r\n" + "A: b\r\n" * 5000 + "\r\n"):
        with probe.connect() as s, contextlib.suppress(ConnectionError):
            s.sendall(head.encode())
            assert re.match(rb"HTTP/1.1 (414|431) ", read_until_close(s) or b"HTTP/1.1 431 ")
    assert probe.get("/metrics").code == 200


def test_large_heads_fit(probe):
    assert probe.get("/metrics", headers=[("Cookie", "c" * 3000)]).code == 200
    assert probe.get("/metrics", headers=[("Authorization", "Bearer " + "t" * 5000)]).code == 200
    assert probe.get("/metrics", headers=[(f"X-{i}", "v") for i in range(60)]).code == 200


def test_a_reset_in_the_middle_does_no_harm(probe):
    for path in ("/big", "/metrics"):
        for _ in range(20):
            s = probe.connect()
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            s.recv(1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
    assert probe.get("/metrics").code == 200
    wait_until(lambda: probe.stats()["open"] == 1, what="the reset connections are gone")


# --- Caps and deadlines ---

def silent(probe):
    return probe.connect(), b""


def dripping(probe):
    return probe.connect(), b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100


def dripping_later(probe):
    s = probe.connect()
    assert probe.get("/echo", sock=s, close=False).code == 200
    return s, b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100


def time_until_closed(make, probe):
    s, drops = make(probe)
    began = time.monotonic()
    with s:
        s.settimeout(0.25)
        for i in range(60 * SLOW):
            with contextlib.suppress(ConnectionError):
                s.sendall(drops[i:i + 1])
            try:
                if s.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    return time.monotonic() - began


@pytest.mark.parametrize("make,least,most", [(silent, 4.9, 6), (dripping, 4.9, 6), (dripping_later, 4.9, 8)])
def test_who_does_not_finish_asking_is_shut_after_five_seconds(probe, make, least, most):
    assert least < time_until_closed(make, probe) < most * SLOW
    assert probe.stats()["timed_out"] == 1


def test_an_idle_connection_lasts_as_configured(start):
    probe = start("--idle-ms", "1500")
    with probe.connect() as s:
        for _ in range(3):
            assert probe.get("/echo", sock=s, close=False).code == 200
            time.sleep(0.5)
        began = time.monotonic()
        assert is_closed(s)
        assert 0.4 < time.monotonic() - began < 3 * SLOW
    assert probe.stats()["timed_out"] == 0


def test_stalled_readers_hold_nobody_up_and_can_be_shut(probe):
    stalled = []
    for _ in range(20):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", probe.port))
        s.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        stalled.append(s)
    wait_until(lambda: probe.get("/readers").body == b"20\n", what="all are being answered")
    began = time.monotonic()
    assert probe.get("/metrics").code == 200
    assert time.monotonic() - began < 1 * SLOW
    assert probe.get("/shut").body == b"20\n"
    wait_until(lambda: probe.get("/readers").body == b"0\n", what="all are shut")
    assert probe.get("/shut").body == b"0\n"
    for s in stalled:
        s.close()


def test_a_stalled_reader_is_shut_after_thirty_seconds(probe):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", probe.port))
        s.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        began = time.monotonic()
        wait_until(lambda: probe.get("/readers").body == b"1\n", what="it is being answered")
        wait_until(lambda: probe.get("/readers").body == b"0\n", seconds=40, what="it is shut")
        assert 29 < time.monotonic() - began < 33 * SLOW
    assert probe.stats()["timed_out"] == 1


@pytest.mark.parametrize("asks", [b"", b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /e"])
def test_three_hundred_clients_do_not_keep_a_scraper_out(probe, asks):
    clients = []
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            s = stack.enter_context(probe.connect())
            if asks:
                with contextlib.suppress(ConnectionError):
                    s.sendall(asks)
            clients.append(s)
        began = time.monotonic()
        assert probe.get("/metrics").code == 200
        assert time.monotonic() - began < 5 * SLOW
        stats = probe.stats()
        assert stats["open"] <= 256 and stats["evicted"] >= 300 - 224


def test_the_longest_idle_goes_first(probe):
    with contextlib.ExitStack() as stack:
        idle = []
        for _ in range(223):
            s = stack.enter_context(probe.connect())
            assert probe.get("/echo", sock=s, close=False).code == 200
            idle.append(s)
        busy = idle.pop(0)
        assert probe.get("/echo", sock=busy, close=False).code == 200
        for _ in range(2):
            stack.enter_context(probe.connect())
        assert is_closed(idle[0])
        assert probe.get("/echo", sock=busy, close=False).code == 200
        assert probe.get("/echo", sock=idle[1], close=False).code == 200


def own_address():
    """An address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return s.getsockname()[0]


def test_one_address_holds_at_most_64_connections(start):
    address = own_address()
    if not address or address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    probe = start("--address", ":0")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(probe.connect(address)) for _ in range(70)]
        wait_until(lambda: probe.stats()["refused"] == 6, what="the last six are refused")
        assert all(is_closed(s) for s in clients[64:])
        assert probe.get("/echo", sock=clients[63], close=False).body == b"GET  remote\n"
        # Loopback has no such cap.
        for _ in range(70):
            stack.enter_context(probe.connect())
        assert probe.get("/echo").body == b"GET  local\n"
        clients[0].close()
        wait_until(lambda: probe.get("/echo", sock=stack.enter_context(probe.connect(address))).code == 200, what="room")


def test_out_of_descriptors_is_survived(start):
    import resource
    probe = start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(probe.connect())
        assert_at_rest(probe)
    wait_until(lambda: probe.get("/metrics").code == 200, what="service after the rush")


def count_of(path):
    with open(path, "rb") as f:
        return struct.unpack("=Q", f.read(8))[0]


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has its own allocator")
@pytest.mark.parametrize("headers", [[], [("Accept-Encoding", "gzip")]])
def test_a_scrape_allocates_nothing(start, tmp_path, headers):
    counter = tmp_path / "count"
    counter.write_bytes(b"\0" * 8)
    probe = start(env=dict(os.environ, MALLOC_COUNT=str(counter),
                           LD_PRELOAD=str(BUILD / "tests" / "libmalloc_count.so")))
    with probe.connect() as s:
        for path in ("/metrics", "/big"):
            probe.get(path, headers=headers, sock=s, close=False)
            before = count_of(counter)
            assert before > 0
            for _ in range(100):
                probe.get(path, headers=headers, sock=s, close=False)
            assert count_of(counter) == before
    before = count_of(counter)
    for _ in range(10):
        probe.get("/metrics", headers=headers).code
    assert count_of(counter) - before <= 4 * 10


# --- Addresses ---

def test_a_taken_port_is_named(probe):
    r = subprocess.run([PROBE, "--address", f"127.0.0.1:{probe.port}"], capture_output=True, text=True)
    assert r.returncode == 1
    assert r.stderr == f"cannot listen on '127.0.0.1:{probe.port}': Address already in use\n"


def test_every_address_means_both_families(start):
    probe = start("--address", ":0")
    assert probe.get("/echo").code == 200
    if socket.has_ipv6:
        with probe.connect("::1") as s:
            assert probe.get("/echo", sock=s).body == b"GET  local\n"


def test_ipv6_alone(start):
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", 0))
        probe = start("--address", "[::1]:0")
        with probe.connect("::1") as c:
            assert probe.get("/echo", sock=c).code == 200


def test_a_unix_socket_is_served_and_removed(start, tmp_path):
    path = str(tmp_path / "s.sock")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    probe = Probe("--address", f"unix:{path}")
    try:
        assert probe.port == 0
        for _ in range(100):  # no cap per peer
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(path)
                assert probe.get("/echo", sock=s).body == b"GET  local\n"
        r = subprocess.run([PROBE, "--address", f"unix:{path}"], capture_output=True, text=True)
        assert (r.returncode, "in use" in r.stderr) == (1, True)
    finally:
        probe.stop()
    assert not os.path.exists(path)


def test_a_file_in_the_way_of_a_unix_socket_stays(tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    r = subprocess.run([PROBE, "--address", f"unix:{path}"], capture_output=True, text=True)
    assert r.returncode == 1 and path.read_text() == "precious"


def test_sockets_from_systemd(start):
    with socket.socket() as listener, socket.socket() as second:
        for s in (listener, second):
            s.bind(("127.0.0.1", 0))
            s.listen()
        # systemd hands them over as descriptors from 3 on, and names the process.
        shell = (f"exec 3<&{listener.fileno()} 4<&{second.fileno()}; export LISTEN_FDS=2 LISTEN_PID=$$; "
                 f"exec '{PROBE}' --systemd")
        process = subprocess.Popen(["bash", "-c", shell], stdout=subprocess.PIPE, text=True,
                                   pass_fds=(listener.fileno(), second.fileno()))
        try:
            port = int(process.stdout.readline().split()[1])
            assert port == listener.getsockname()[1]
            for s in (listener, second):
                with socket.create_connection(s.getsockname(), 10 * SLOW) as c:
                    c.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n")
                    assert read_reply(c).code == 200
        finally:
            process.terminate()
            assert process.wait(10 * SLOW) == 0
            process.stdout.close()


def test_without_a_socket_from_systemd_the_reason_is_given():
    r = subprocess.run([PROBE, "--systemd"], capture_output=True, text=True)
    assert r.returncode == 1 and "LISTEN_PID" in r.stderr


# --- TLS ---

class Authority:
    def __init__(self, directory, name="ca"):
        self.directory, self.name = directory, name
        self.pem, self.key = self.make(name, None, "basicConstraints=critical,CA:TRUE")

    def make(self, name, issuer, extension):
        key, pem, request, ext = (self.directory / f"{name}{end}" for end in (".key", ".pem", ".csr", ".ext"))
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        ext.write_text(extension)
        run("openssl", "req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        sign = ["-CA", self.pem, "-CAkey", self.key, "-CAcreateserial"] if issuer else ["-signkey", key]
        run("openssl", "x509", "-req", "-in", request, "-days", "2", "-extfile", ext, "-out", pem, *sign)
        return pem, key

    def server(self, name="server"):
        return self.make(name, self, "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth")

    def client(self, name="client", usage="clientAuth", san="DNS:scraper.example,IP:10.1.2.3,URI:spiffe://x/y"):
        return self.make(name, self, f"subjectAltName={san}\nextendedKeyUsage={usage}")


def run(*command):
    subprocess.run([str(c) for c in command], check=True, capture_output=True)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pki")
    ca = Authority(directory)
    other = Authority(tmp_path_factory.mktemp("other"), "other")
    ca.server()
    ca.server("second")
    ca.client()
    ca.client("server-only", usage="serverAuth")
    other.client("stranger")
    return directory, other.directory


def context_for(pki, client=None, stranger=False, **kw):
    context = ssl.create_default_context(cafile=str(pki[0] / "ca.pem"))
    if client:
        at = pki[1] if stranger else pki[0]
        context.load_cert_chain(at / f"{client}.pem", at / f"{client}.key")
    for name, value in kw.items():
        setattr(context, name, value)
    return context


def web_config(tmp_path, pki, extra="", cert="server", **tls):
    lines = ["tls_server_config:", f"  cert_file: {pki[0] / (cert + '.pem')}", f"  key_file: {pki[0] / (cert + '.key')}"]
    lines += [f"  {k}: {v}" for k, v in tls.items()]
    path = tmp_path / "web.yml"
    path.write_text("\n".join(lines) + "\n" + extra)
    return path


def handshakes(probe, context):
    """The status of a request over TLS, or the name of what went wrong."""
    try:
        return probe.get("/echo", context=context).code
    except (ssl.SSLError, ConnectionError, AssertionError) as e:
        return type(e).__name__


def test_tls_serves_the_same_pages(start, tmp_path, pki):
    probe = start("--web-config", str(web_config(tmp_path, pki)))
    context = context_for(pki)
    assert probe.get("/metrics", context=context).code == 200
    packed = probe.get("/big", context=context, headers=[("Accept-Encoding", "gzip")])
    assert gzip.decompress(packed.body) == probe.get("/big", context=context).body
    with context.wrap_socket(probe.connect(), server_hostname="localhost") as s:
        assert s.version() == "TLSv1.3"
        for _ in range(20):
            assert probe.get("/metrics", sock=s, close=False).code == 200


def test_plain_http_to_a_tls_port_is_told(start, tmp_path, pki):
    probe = start("--web-config", str(web_config(tmp_path, pki)))
    for request in (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /x HTTP/1.1\r\nContent-Length: 20\r\n\r\n" + b"x" * 20):
        with probe.connect() as s:
            s.sendall(request)
            data = read_until_close(s)
        assert data.startswith(b"HTTP/1.0 400 Bad Request\r\n")
        assert data.endswith(b"\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
    assert probe.stats(context=context_for(pki))["bad_requests"] == 2


def test_garbage_to_a_tls_port_does_no_harm(start, tmp_path, pki):
    probe = start("--web-config", str(web_config(tmp_path, pki)))
    for first in (b"\x16\x03\x01\xff\xff" + b"\0" * 300, b"\0" * 100, b"\x16", b"\x16\x03\x01\0\x05hello", b"SSH-2.0-x\r\n"):
        with probe.connect() as s, contextlib.suppress(ConnectionError):
            s.sendall(first)
            with contextlib.suppress(OSError):  # already shut by the other side
                s.shutdown(socket.SHUT_WR)
            read_until_close(s)
    assert probe.get("/echo", context=context_for(pki)).code == 200


def test_a_dripped_handshake_is_shut_after_five_seconds(start, tmp_path, pki):
    probe = start("--web-config", str(web_config(tmp_path, pki)))
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 100
    assert 4.9 < time_until_closed(lambda p: (p.connect(), hello), probe) < 6 * SLOW


@pytest.mark.parametrize("tls,lowest,highest,works", [
    ({}, "TLSv1_2", "TLSv1_2", True),
    ({"min_version": "TLS13"}, "TLSv1_2", "TLSv1_2", False),
    ({"min_version": "TLS13"}, "TLSv1_3", "TLSv1_3", True),
    ({"max_version": "TLS12"}, "TLSv1_3", "TLSv1_3", False),
    ({"max_version": "TLS12"}, "TLSv1_2", "TLSv1_3", True),
])
def test_tls_versions_are_those_configured(start, tmp_path, pki, tls, lowest, highest, works):
    probe = start("--web-config", str(web_config(tmp_path, pki, **tls)))
    context = context_for(pki, minimum_version=ssl.TLSVersion[lowest], maximum_version=ssl.TLSVersion[highest])
    assert (handshakes(probe, context) == 200) == works


def test_cipher_suites_are_those_configured(start, tmp_path, pki):
    probe = start("--web-config", str(web_config(tmp_path, pki, max_version="TLS12",
                                                 cipher_suites="[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]")))
    context = context_for(pki)
    with context.wrap_socket(probe.connect(), server_hostname="localhost") as s:
        assert s.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    assert handshakes(probe, context) != 200


MUTUAL = {  # mode: who gets in of (nobody, client, server-only, stranger)
    "NoClientCert": (1, 1, 1, 1),
    "RequestClientCert": (1, 1, 1, 1),
    "RequireAnyClientCert": (0, 1, 1, 1),
    "VerifyClientCertIfGiven": (1, 1, 0, 0),
    "RequireAndVerifyClientCert": (0, 1, 0, 0),
}


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("mode", MUTUAL)
def test_client_certificates(start, tmp_path, pki, mode, version):
    ca = {} if mode == "NoClientCert" else {"client_ca_file": pki[0] / "ca.pem"}
    probe = start("--web-config", str(web_config(tmp_path, pki, client_auth_type=mode, **ca)))
    only = dict(minimum_version=ssl.TLSVersion[version], maximum_version=ssl.TLSVersion[version])
    got = tuple(int(handshakes(probe, context_for(pki, client, stranger=client == "stranger", **only)) == 200)
                for client in (None, "client", "server-only", "stranger"))
    assert got == MUTUAL[mode]


@pytest.mark.parametrize("sans,works", [("[scraper.example]", True), ("[other, 10.1.2.3]", True), ("['spiffe://x/y']", True),
                                        ("[scraper]", False), ("[SCRAPER.example]", False)])
def test_client_names_are_checked(start, tmp_path, pki, sans, works):
    probe = start("--web-config", str(web_config(tmp_path, pki, client_auth_type="RequireAndVerifyClientCert",
                                                 client_ca_file=pki[0] / "ca.pem", client_allowed_sans=sans)))
    assert (handshakes(probe, context_for(pki, "client")) == 200) == works


def test_pem_texts_may_stand_in_the_file(start, tmp_path, pki):
    def block(path):
        return "|\n" + "".join(f"    {line}\n" for line in path.read_text().splitlines())
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config:\n  cert: " + block(pki[0] / "server.pem") + "  key: " + block(pki[0] / "server.key") +
                    "  client_ca: " + block(pki[0] / "ca.pem") + "  client_auth_type: RequireAndVerifyClientCert\n")
    probe = start("--web-config", str(path))
    assert handshakes(probe, context_for(pki, "client")) == 200
    assert handshakes(probe, context_for(pki)) != 200


def test_bad_files_are_named_at_start(tmp_path, pki):
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("no pem\n")
    cases = [
        (dict(cert_file=tmp_path / "missing.pem", key_file=pki[0] / "server.key"), f"cannot read '{tmp_path}/missing.pem'"),
        (dict(cert_file=nothing, key_file=pki[0] / "server.key"), f"cert_file '{nothing}': no certificate"),
        (dict(cert_file=pki[0] / "server.pem", key_file=nothing), f"key_file '{nothing}': no private key"),
        (dict(cert_file=pki[0] / "server.pem", key_file=pki[0] / "second.key"), "cannot be used together"),
        (dict(cert_file=pki[0] / "server.pem", key_file=pki[0] / "server.key", client_ca_file=nothing,
              client_auth_type="RequireAndVerifyClientCert"), f"client_ca_file '{nothing}': no certificate"),
    ]
    path = tmp_path / "web.yml"
    for keys, message in cases:
        path.write_text("tls_server_config:\n" + "".join(f"  {k}: {v}\n" for k, v in keys.items()))
        r = subprocess.run([PROBE, "--web-config", str(path)], capture_output=True, text=True)
        assert r.returncode == 1 and message in r.stderr
    path.write_text("tls_server_config:\n  cert_fil: x\n")
    r = subprocess.run([PROBE, "--web-config", str(path)], capture_output=True, text=True)
    assert r.returncode == 1 and r.stderr.startswith(f"{path}:2:3: ") and "cert_file" in r.stderr
    r = subprocess.run([PROBE, "--web-config", str(tmp_path / "none.yml")], capture_output=True, text=True)
    assert r.returncode == 1 and "none.yml" in r.stderr


# --- Reload ---

def replace(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.rename(path)


def serial(probe, pki):
    with context_for(pki).wrap_socket(probe.connect(), server_hostname="localhost") as s:
        return s.getpeercert()["serialNumber"]


def copy_pair(pki, name, directory):
    directory.mkdir(exist_ok=True)
    for end in (".pem", ".key"):
        replace(directory / f"tls{end}", (pki[0] / f"{name}{end}").read_text())


def test_a_new_certificate_is_picked_up_and_a_bad_one_is_not(start, tmp_path, pki):
    copy_pair(pki, "server", tmp_path)
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config: {cert_file: tls.pem, key_file: tls.key}\n")
    probe = start("--web-config", str(path))
    first = serial(probe, pki)
    kept = context_for(pki).wrap_socket(probe.connect(), server_hostname="localhost")
    copy_pair(pki, "second", tmp_path)
    wait_until(lambda: serial(probe, pki) != first, what="the new certificate")
    second = serial(probe, pki)
    assert probe.get("/echo", sock=kept, close=False).code == 200
    kept.close()
    replace(tmp_path / "tls.pem", (pki[0] / "server.pem").read_text())  # without its key
    wait_until(lambda: not probe.stats(context=context_for(pki))["web_config_ok"], what="the mismatch is noticed")
    assert serial(probe, pki) == second
    log = probe.log()
    assert log.count("web config not reloaded") == 1 and "cannot be used together" in log
    replace(tmp_path / "tls.key", (pki[0] / "server.key").read_text())
    wait_until(lambda: serial(probe, pki) == first, what="the repaired pair")
    assert probe.stats(context=context_for(pki))["web_config_ok"]


def test_a_configmap_swap_is_noticed(start, tmp_path, pki):
    for name in ("server", "second"):
        copy_pair(pki, name, tmp_path / name)
        (tmp_path / name / "web.yml").write_text("tls_server_config: {cert_file: tls.pem, key_file: tls.key}\n")
    mount = tmp_path / "mount"
    mount.mkdir()
    (mount / "..data").symlink_to(tmp_path / "server")
    for name in ("web.yml", "tls.pem", "tls.key"):
        (mount / name).symlink_to(f"..data/{name}")
    probe = start("--web-config", str(mount / "web.yml"))
    first = serial(probe, pki)
    (mount / "..data_tmp").symlink_to(tmp_path / "second")
    (mount / "..data_tmp").rename(mount / "..data")
    wait_until(lambda: serial(probe, pki) != first, what="the new certificate")


@pytest.mark.threads
def test_tls_and_passwords_come_and_go_with_the_file(start, tmp_path, pki):
    path = tmp_path / "web.yml"
    path.write_text("")
    probe = start("--web-config", str(path))
    plain = probe.connect()
    assert probe.get("/echo", sock=plain, close=False).code == 200
    replace(path, web_config(tmp_path, pki).read_text())
    wait_until(lambda: handshakes(probe, context_for(pki)) == 200, what="TLS is on")
    assert is_closed(plain)
    replace(path, f"basic_auth_users:\n  alice: {bcrypt('sesame')}\nhttp_server_config: {{headers: {{X-Frame-Options: deny}}}}\n")

    def asks_for_a_password():
        with contextlib.suppress(AssertionError, ConnectionError, KeyError):
            return probe.get("/metrics").code == 401
    wait_until(asks_for_a_password, what="passwords are asked for")
    assert login(probe, "alice", "sesame", "/metrics").headers["x-frame-options"] == "deny"
    replace(path, "basic_auth_users: [oops]\n")
    wait_until(lambda: "web config not reloaded" in probe.log(), what="the mistake is noticed")
    assert probe.get("/metrics").code == 401
    replace(path, "http_server_config: {headers: {X-Frame-Options: sameorigin}}\n")
    wait_until(lambda: probe.get("/metrics").code == 200, what="open again")
    r = probe.get("/metrics")
    assert r.headers["x-frame-options"] == "sameorigin"
    assert "x-frame-options" in probe.get("/nothing").headers


# --- Passwords and rate ---

def login(probe, user, password, path="/echo", scheme="Basic", **kw):
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return probe.get(path, headers=[("Authorization", f"{scheme} {token}")], **kw)


@pytest.fixture
def guarded(start, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  alice: {bcrypt('sesame', 5)}\n  bob: {bcrypt('b:o:b', 5)}\n")
    return start("--web-config", str(path))


@pytest.mark.threads
def test_passwords_are_asked_for_on_every_path(guarded):
    for path in ("/metrics", "/health", "/", "/nothing"):
        r = guarded.get(path)
        assert (r.code, r.body) == (401, b"Unauthorized\n")
        assert r.headers["www-authenticate"] == "Basic"
        assert r.headers["content-type"] == "text/plain; charset=utf-8"
        assert r.headers["x-content-type-options"] == "nosniff"


@pytest.mark.threads
@pytest.mark.parametrize("user,password,code", [
    ("alice", "sesame", 200), ("bob", "b:o:b", 200), ("alice", "Sesame", 401), ("alice", "", 401), ("bob", "sesame", 401),
    ("carol", "sesame", 401), ("", "", 401), ("alice", "sesame\0x", 401), ("alice", "s" * 2000, 401)])
def test_who_gets_in(guarded, user, password, code):
    for _ in range(2):  # checked, then remembered
        assert login(guarded, user, password).code == code


def test_malformed_credentials_are_refused(guarded):
    for value in ("", "Basic", "Basic x", "Bearer abc", "Basic ====", "Basic YWxpY2U6c2VzYW1l="):
        assert guarded.get("/echo", headers=[("Authorization", value)]).code == 401
    with guarded.connect() as s:
        s.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Basic eDp4\r\nAuthorization: Basic YWxpY2U6c2VzYW1l\r\n\r\n")
        assert read_reply(s).code == 400


@pytest.mark.threads
def test_a_checked_password_is_remembered(start, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  alice: {bcrypt('sesame', 10)}\n")
    probe = start("--web-config", str(path))

    def seconds(user, password):
        began = time.monotonic()
        login(probe, user, password)
        return time.monotonic() - began
    first = seconds("alice", "sesame")
    assert min(seconds("alice", "sesame") for _ in range(5)) < first / 4
    # An unknown user takes as long as a wrong password.
    unknown, wrong = seconds("nobody", "x"), seconds("alice", "x")
    assert unknown > first / 4 and wrong > first / 4
    with probe.connect() as s:
        began = time.monotonic()
        for _ in range(100):
            assert login(probe, "alice", "sesame", sock=s, close=False).code == 200
        assert time.monotonic() - began < 100 * first


@pytest.mark.threads
def test_equal_credentials_share_one_check(start, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  alice: {bcrypt('sesame', 10)}\n")
    probe = start("--web-config", str(path))
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        codes = list(pool.map(lambda _: login(probe, "alice", "sesame").code, range(40)))
    assert codes == [200] * 40


@pytest.mark.threads
def test_a_flood_of_wrong_passwords_does_not_lock_out_who_is_known(start, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  alice: {bcrypt('sesame', 10)}\n")
    probe = start("--web-config", str(path))
    assert login(probe, "alice", "sesame").code == 200
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        flood = [pool.submit(login, probe, "alice", f"wrong {i}") for i in range(300)]
        for _ in range(20):
            began = time.monotonic()
            assert login(probe, "alice", "sesame").code == 200
            assert time.monotonic() - began < 2 * SLOW
        codes = [f.result().code for f in flood]
    assert set(codes) == {401, 503}
    assert codes.count(503) > 100


@pytest.mark.threads
def test_stopping_beside_waiting_checks_is_quick_and_clean(tmp_path):
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users:\n  alice: {bcrypt('sesame', 10)}\n")
    probe = Probe("--web-config", str(path))
    clients = []
    for i in range(30):
        s = probe.connect()
        token = base64.b64encode(f"alice:{i}".encode()).decode()
        s.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {token}\r\n\r\n".encode())
        clients.append(s)
    began = time.monotonic()
    probe.stop()
    assert time.monotonic() - began < 2 * SLOW
    for s in clients:
        s.close()


@pytest.mark.threads
def test_stopping_beside_readers_and_compressions_is_clean():
    probe = Probe()
    clients = []
    for path in ("/bytes/20000000", "/big", "/metrics") * 5:
        s = probe.connect()
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        clients.append(s)
    probe.stop()
    for s in clients:
        s.close()


def test_requests_over_the_rate_are_told(start, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text("rate_limit: {burst: 5, interval: 500ms}\n")
    probe = start("--web-config", str(path))
    began = time.monotonic()
    replies = [probe.get("/echo") for _ in range(12)]
    allowed = sum(r.code == 200 for r in replies)
    assert 5 <= allowed <= 6 + (time.monotonic() - began) / 0.5
    refused = [r for r in replies if r.code != 200]
    assert {(r.code, r.body) for r in refused} == {(429, b"Too Many Requests\n")}
    time.sleep(1.1)
    assert [probe.get("/echo").code for _ in range(2)] == [200, 200]


def test_a_new_rate_starts_afresh(start, tmp_path):
    path = tmp_path / "web.yml"
    path.write_text("rate_limit: {burst: 1, interval: 1h}\n")
    probe = start("--web-config", str(path))
    assert [probe.get("/echo").code for _ in range(2)] == [200, 429]
    replace(path, "rate_limit: {burst: 2, interval: 1h}\n")
    wait_until(lambda: "web config reloaded" in probe.log(), what="the reload")
    assert [probe.get("/echo").code for _ in range(3)] == [200, 200, 429]


# --- At rest ---

def test_waiting_costs_nothing(start, tmp_path, pki):
    probe = start("--web-config", str(web_config(tmp_path, pki)))
    with contextlib.ExitStack() as stack:
        for sends in (b"", b"\x16", b"\x16\x03\x01\x02\x00"):
            s = stack.enter_context(probe.connect())
            s.sendall(sends)
        idle = stack.enter_context(context_for(pki).wrap_socket(probe.connect(), server_hostname="localhost"))
        assert probe.get("/metrics", sock=idle, close=False).code == 200
        stalled = context_for(pki).wrap_socket(probe.connect(), server_hostname="localhost")
        stack.enter_context(stalled)
        stalled.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
        asking = stack.enter_context(context_for(pki).wrap_socket(probe.connect(), server_hostname="localhost"))
        asking.sendall(b"GET /met")
        assert_at_rest(probe)

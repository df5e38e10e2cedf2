"""The exporter's port among strangers: oddities, floods, slow readers, few descriptors, another machine's clients."""
import contextlib
import os
import random
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

import pytest

from harness import BUILD, ROOT, SLOW, Page, exporter_at, exporter_on, wait_until
from test_hostile_start import STOCK, answers
from test_http_server import Authority, Probe, context_for, handshakes, web_config

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo") as node:
        yield node


@pytest.fixture(scope="module")
def exporter(node):
    with exporter_at(node, "-c", "100") as exporter:
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        yield exporter


def talk(exporter, data):
    """What comes back to these bytes until the server closes, or nothing comes for a while."""
    answer = b""
    with socket.create_connection(("127.0.0.1", exporter.port), 10 * SLOW) as s:
        with contextlib.suppress(OSError):
            s.sendall(data)
        s.settimeout(0.3 * SLOW)
        with contextlib.suppress(OSError):
            while piece := s.recv(1 << 16):
                answer += piece
    return answer


# Request: first line of the answer, in whole or in part; None: any answer or none.
ODD = {
    "HTTP/0.9": (b"GET /metrics\r\n\r\n", b"HTTP/1.1 400 "),
    "HTTP/0.9 by name": (b"GET /metrics HTTP/0.9\r\n\r\n", b"HTTP/1.1 505 "),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/1.1 505 "),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2, None),
    "NULs": (b"\0" * 5000, None),
    "NUL in the path": (b"GET /met\0rics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 404 "),
    "NUL in a header": (GET + b"X: a\0b\r\n\r\n", b"HTTP/1.1 200 "),
    "another host's URI": (b"GET http://evil.example/metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 "),
    "CONNECT": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 301 "),
    "OPTIONS *": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 301 "),
    "a parent path": (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", None),
    "10 MB of URI": (b"GET /" + b"a" * 10_000_000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.1 414 "),
    "10 MB of a header": (GET + b"X: " + b"a" * 10_000_000 + b"\r\n\r\n", b"HTTP/1.1 431 "),
    "10,000 headers": (GET + b"".join(b"X%d: y\r\n" % i for i in range(10000)) + b"\r\n", b"HTTP/1.1 431 "),
    "10,000 empty lines": (b"\r\n" * 10000, None),
    "1,000 parameters": (b"GET /metrics?" + b"&".join(b"a=%d" % i for i in range(1000)) + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                         b"HTTP/1.1 200 "),
    "a control request": (b"POST /-/release HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 404 "),
    "h2c": (GET + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", b"HTTP/1.1 200 "),
    "a range": (GET + b"Range: bytes=0-10\r\n\r\n", b"HTTP/1.1 200 "),
    "5,000 codings": (GET + b"Accept-Encoding: " + b"gzip;q=0.5," * 500 + b"\r\n\r\n", b"HTTP/1.1 200 "),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_request_gets_its_answer_and_does_no_harm(exporter, name):
    data, expected = ODD[name]
    answer = talk(exporter, data)
    if expected:
        assert answer.startswith(expected), answer[:200]
    assert b"root:" not in answer
    assert exporter.get("/health")[0] == 200


@pytest.mark.parametrize("target, location", [
    (b"//%5cevil.example", b"/%5Cevil.example"), (b"//a%0d%0aSet-Cookie:x", b"/a%0D%0ASet-Cookie:x"),
    (b"//evil.example/x", b"/evil.example/x"), (b"/x/..//metrics", b"/metrics"), (b"//%c3%a9%22%3c", b"/%C3%A9%22%3C")])
def test_a_redirect_stays_here_and_is_one_line(exporter, target, location):
    answer = talk(exporter, b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"\r\nLocation: " + location + b"\r\n" in answer, answer


def test_nothing_a_stranger_sends_is_logged(exporter):
    chance = random.Random(1)
    pieces = [d[:3000] for d, _ in ODD.values()]
    before = exporter.log.count("\n")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        data = bytearray(b"".join(chance.choices(pieces, k=chance.randrange(1, 6))))
        for _ in range(chance.randrange(10)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with socket.create_connection(("127.0.0.1", exporter.port), 10 * SLOW) as s, contextlib.suppress(OSError):
            s.sendall(data)
            if chance.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert exporter.log.count("\n") == before
    assert len(exporter.page().samples(UTIL)) == 4
    assert exporter.page().value("podgpu_exporter_http_rejected_requests_total", reason="malformed") > 10


def test_who_leaves_in_the_middle_of_a_request_is_not_waited_for(exporter):
    open_now, taken = "podgpu_exporter_http_open_connections", "podgpu_exporter_http_connections_total"
    wait_until(lambda: exporter.page().value(open_now) < 3, 20, "the others are gone")
    before = exporter.page()
    exporter.process.send_signal(signal.SIGSTOP)  # so that it sees the end together with the beginning
    try:
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", exporter.port), 10 * SLOW) as s:
                s.sendall(b"GET /" + b"x" * 3000)
    finally:
        exporter.process.send_signal(signal.SIGCONT)
    wait_until(lambda: exporter.page().value(taken) >= before.value(taken) + 100, 20, "all came")
    wait_until(lambda: exporter.page().value(open_now) < 3, 20, "all are gone")
    closed = "podgpu_exporter_http_closed_connections_total"
    assert exporter.page().value(closed, reason="deadline") == before.value(closed, reason="deadline")


def test_three_thousand_resets_in_a_row_do_no_harm(exporter):
    for _ in range(3000):
        with socket.create_connection(("127.0.0.1", exporter.port), 10 * SLOW) as s:
            s.sendall(GET + b"\r\n")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert len(exporter.page().samples(UTIL)) == 4
    wait_until(lambda: exporter.page().value("podgpu_exporter_http_open_connections") < 3, 20, "all are gone")


# --- Slow readers ---

def read_slowly(port, bytes_per_s, results, ended):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(30 * SLOW)
        s.connect(("127.0.0.1", port))
        s.sendall(GET + b"Connection: close\r\n\r\n")
        data = b""
        with contextlib.suppress(OSError):
            while not ended.is_set() and (piece := s.recv(8192)):
                data += piece
                time.sleep(len(piece) / bytes_per_s)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    results.append((len(body) == length, body))


def test_slow_readers_of_a_large_page_cost_three_pages_and_nobody_else(tmp_path):
    names = [line.split("\t")[1] for line in (ROOT / "data" / "dcgm-fields.tsv").read_text().splitlines()[1:]]
    counters = tmp_path / "counters.csv"
    counters.write_text("".join(f"{n}, gauge, h\n" for n in names if n.startswith("DCGM_FI")))
    with exporter_on("h100x8", "-c", "100", counters=counters) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.text) > 500000, 20)
        memory = lambda: int(next(l for l in open(f"/proc/{exporter.pid}/status") if l.startswith("VmRSS")).split()[1]) << 10
        before, slow, ended = memory(), [], threading.Event()
        threads = [threading.Thread(target=read_slowly, args=(exporter.port, 30000, slow, ended)) for _ in range(40)]
        for t in threads:
            t.start()
            time.sleep(0.03)
        steady = []
        other = threading.Thread(target=read_slowly, args=(exporter.port, 1 << 20, steady, ended))
        other.start()
        worst = 0
        end = time.monotonic() + 3
        while time.monotonic() < end:
            begun = time.monotonic()
            assert len(exporter.page().text) > 500000
            worst = max(worst, time.monotonic() - begun)
            time.sleep(0.03)
        assert worst < 0.5 * SLOW
        other.join()
        assert steady[0][0], "a reader at 1 MB/s has the whole page"
        Page(steady[0][1].decode())
        if SLOW == 1:
            assert memory() - before < 8 * len(page.text)
        assert exporter.page().value("podgpu_exporter_page_readers_cut_total") >= 30
        ended.set()
        for t in threads:
            t.join()


# --- Few descriptors ---

@pytest.mark.parametrize("limit", [64, 40])
def test_few_descriptors_are_kept_for_the_helper_the_kubelet_and_a_scraper(node, limit):
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with exporter_at(node, preexec_fn=few) as exporter, contextlib.ExitStack() as stack:
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for _ in range(limit + 20):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", exporter.port)))
            with contextlib.suppress(OSError):
                s.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                s.settimeout(2 * SLOW)
                s.recv(1000)
        helper = exporter.helper_pid()
        os.kill(helper, signal.SIGKILL)
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_helper_starts_total", source="nvml") == 2, 5, "another helper")
        first = page.value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml")
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml") > first, 5, "a sample")
        assert page.value("podgpu_exporter_attribution_up") == 1
        assert page.value("podgpu_exporter_http_open_connections") < limit - 16


def test_a_soft_limit_on_descriptors_is_raised(node):
    def soft():
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    with exporter_at(node, preexec_fn=soft) as exporter, contextlib.ExitStack() as stack:
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for _ in range(150):
            stack.enter_context(socket.create_connection(("127.0.0.1", exporter.port)))
        exporter.page_when(lambda p: p.value("podgpu_exporter_http_open_connections") > 140, 5)


# --- Signals ---

def test_a_reload_asked_for_before_it_is_ready_does_not_end_it(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("version: 1\n" + "# it takes a while to read this\n" * 30000)
    for delay in range(6):
        address = tmp_path / f"s{delay}"
        process = subprocess.Popen([BUILD / "podgpu-exporter", "-a", f"unix:{address}", "-f", STOCK, "--nvml-library=/none",
                                    "--kmsg-path=", "--config-file", config], stderr=subprocess.PIPE)
        assert b"starting podgpu-exporter" in process.stderr.readline()
        time.sleep(delay / 1000)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: answers(address), 10, "it runs")
        process.terminate()
        process.communicate()
        assert process.returncode == 0


def test_being_asked_to_end_again_and_again_is_an_orderly_end(node):
    for _ in range(5):
        with exporter_at(node) as exporter:
            exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
            while exporter.process.poll() is None:
                for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                    exporter.process.send_signal(signo)
        assert exporter.process.returncode == 0


# --- Another machine ---

FLOOD = """
import socket, sys, time
address, port, sources, count = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(","), int(sys.argv[4])
kept = []
for i in range(count):
    s = socket.socket()
    s.bind((sources[i % len(sources)], 0))
    s.settimeout(5)
    s.connect((address, port))
    if i % 2:
        s.sendall(b"GET /metr" if i % 4 == 1 else b"GET /livez HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    kept.append(s)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_machine():
    """(prefix to run a program there, this machine's address, its addresses)."""
    name = f"podgpu-test-{os.getpid()}"
    link, net = f"pg{os.getpid() % 100000}", f"10.231.{os.getpid() % 250}"
    run = lambda *words: subprocess.run(words, check=True, capture_output=True)
    if os.geteuid() != 0:
        pytest.skip("needs network namespaces")
    try:
        try:
            run("ip", "netns", "add", name)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "addr", "add", f"{net}.1/24", "dev", link)
            run("ip", "link", "set", link, "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            addresses = [f"{net}.{i}" for i in range(2, 8)]
            for address in addresses:
                run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("needs network namespaces")
        yield ["ip", "netns", "exec", name], f"{net}.1", addresses
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


def test_clients_of_other_machines_are_capped_and_keep_nobody_out(node, other_machine):
    prefix, here, sources = other_machine
    with exporter_at(node, "-a", "0.0.0.0:0") as exporter:
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for addresses, count, most in ((sources[:1], 100, 64), (sources, 500, 224)):
            flood = subprocess.Popen([*prefix, sys.executable, "-c", FLOOD, here, str(exporter.port), ",".join(addresses), str(count)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                assert flood.stdout.readline() == b"ready\n"
                begun = time.monotonic()
                exporter.page()
                assert time.monotonic() - begun < 1 * SLOW
                opened = lambda p: p.value("podgpu_exporter_http_open_connections")
                page = exporter.page_when(lambda p: opened(p) > most // 2, 5, "they are open")
                assert opened(page) <= most + 2
            finally:
                flood.communicate()
        assert page.value("podgpu_exporter_http_closed_connections_total", reason="peer_limit") >= 36
        assert exporter.log.count("\n") < 40


# --- TLS ---

def test_broken_and_repeated_handshakes_do_no_harm(tmp_path):
    directory = tmp_path / "pki"
    directory.mkdir()
    ca = Authority(directory)
    ca.server()
    ca.client()
    pki = (directory, directory)
    path = web_config(tmp_path, pki, client_auth_type="RequireAndVerifyClientCert", client_ca_file=ca.pem)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context_for(pki, client="client").wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello, chance = outgoing.read(), random.Random(2)
    probe = Probe("--web-config", str(path))
    try:
        for cut in range(0, len(hello), 5):
            for tail in (b"", bytes(60), chance.randbytes(60)):
                with probe.connect() as s:
                    s.sendall(hello[:cut] + tail)
        for _ in range(300):
            mutated = bytearray(hello)
            for _ in range(chance.randrange(1, 5)):
                mutated[chance.randrange(len(mutated))] = chance.randrange(256)
            with probe.connect() as s, contextlib.suppress(OSError):
                s.sendall(mutated)
        done = subprocess.run(f"(sleep 0.3; echo R; sleep 0.3) | timeout 10 openssl s_client -connect 127.0.0.1:{probe.port} -tls1_2 "
                              f"-cert {directory}/client.pem -key {directory}/client.key", shell=True, capture_output=True, check=False)
        assert b"RENEGOTIATING" in done.stdout + done.stderr
        assert handshakes(probe, context_for(pki, client="client")) == 200
        assert handshakes(probe, context_for(pki)) != 200
        assert probe.log() == ""
    finally:
        probe.stop()

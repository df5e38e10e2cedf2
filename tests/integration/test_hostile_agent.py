"""podgpu-agent and what means it harm: configurations, targets, signals at awkward moments, secrets on the way out."""
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import socketserver
import subprocess
import threading
import time

import pytest

from agent_harness import (KEYS, Agent, Target, agent_at, configuration, declaration, read_events, run_agent,
                           scrape_job, write_files)
from harness import BLOG, BUILD, ROOT, SLOW, wait_until

pytestmark = pytest.mark.faults

RULES = declaration(["^(temp|done)$"], [["ClusterName", "gpu"]])
GAUGE = "# TYPE temp gauge\ntemp{gpu=\"0\"} 42\n"


class RawServer:
    """Answers each connection's first request by handler(socket)."""

    def __init__(self, handler):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.settimeout(20 * SLOW)
                try:
                    asked = b""
                    while b"\r\n\r\n" not in asked:
                        part = self.request.recv(65536)
                        if not part:
                            return
                        asked += part
                    handler(self.request)
                except OSError:
                    pass

        class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def page_of(body):
    """The handler that answers with a page of metrics."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
    return lambda s: s.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


# --- Configurations ---

TOKENS = [b"null", b"{}", b"[[]]", b"-1", b"1e999", b"&a ", b"*a", b"<<: ", b"!!binary ", b"\x00", b"\xff\xfe",
          b"\xef\xbb\xbf", b"\r\n", b"\t", b"- ", b": ", b"{", b"]", b'"', b"'", b"${9}", b"(?P<x>", b"\\", b"\\ud800",
          b"|\n", b"---\n", b"\xe2\x80\xa8", b"a" * 5000, b"labeldrop", b"[a-z]{1000}", b"0s", b"__address__"]


def damaged(rng, text):
    text = bytearray(text)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at, how = rng.randrange(len(text) + 1), rng.randrange(5)
        lines = text.split(b"\n")
        if how == 0:
            text[at:at] = rng.choice(TOKENS)
        elif how == 1:
            del text[at:at + rng.randrange(1, 40)]
        elif how == 2:
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            text = bytearray(b"\n".join(lines))
        elif how == 3:
            text = text[:at]
        else:
            words = [m.span() for m in re.finditer(rb"[\w.^$*]+", bytes(text))]
            if words:
                start, end = rng.choice(words)
                text[start:end] = rng.choice(TOKENS)
    return bytes(text)


def test_damaged_configurations_get_a_verdict_with_a_place_and_the_same_one_twice(tmp_path):
    rng = random.Random(20)
    deploy = ROOT / "deploy" / "cloudwatch"
    good = [(deploy / "cwagentconfig.json").read_bytes(), (BLOG / "cwagentconfig.json").read_bytes()]
    jobs = [(deploy / "prometheus.yaml").read_bytes(), (BLOG / "prometheus-cwagent.yaml").read_bytes()]
    config, prometheus = tmp_path / "c.json", tmp_path / "p.yaml"
    place = re.compile(rf"{re.escape(str(tmp_path))}/(c\.json|p\.yaml):\d+(:\d+)?: \S")
    statuses = set()
    for i in range(60):
        config.write_bytes(damaged(rng, rng.choice(good)) if i % 3 == 0 else good[0])
        prometheus.write_bytes(damaged(rng, rng.choice(jobs)) if i % 3 else jobs[0])
        arguments = ["--config", config, "--prometheus-config", prometheus, "--lint" if i % 2 else "--check"]
        verdict = run_agent(*arguments)
        statuses.add(verdict[0])
        assert verdict[0] in (0, 1) and verdict[2] == "", (i, verdict)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", verdict[1]), (i, verdict)
        # Not splitlines: U+2028 of a damaged file is no end of a line.
        for line in verdict[1].rstrip("\n").split("\n") if verdict[0] else ():
            assert place.match(line), (i, line)
        if i % 6 == 0:
            assert run_agent(*arguments) == verdict
    assert statuses == {0, 1}


DEAR = r"\pL{20}"  # 400 KB when compiled


@pytest.mark.parametrize("file", ["prometheus.yaml", "cwagentconfig.json"])
def test_many_dear_regular_expressions_are_refused_before_they_take_the_memory(tmp_path, file):
    dear = [DEAR + str(i) for i in range(300)]
    rules = "  relabel_configs:\n" + "".join(f"  - {{source_labels: [a], action: keep, regex: '{d}'}}\n" for d in dear)
    in_yaml = file == "prometheus.yaml"
    write_files(tmp_path, configuration(RULES if in_yaml else declaration(dear, [["job"]])),
                [scrape_job("127.0.0.1:1", more=rules if in_yaml else "")])
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    status, out, _ = run_agent("--config", tmp_path / "cwagentconfig.json", "--check", seconds=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert status == 1
    first = out.splitlines()[0]
    assert re.match(rf"{tmp_path}/{file}:\d+:\d+: ", first), first
    assert "all regular expressions together are larger than 67108864 bytes" in first
    assert SLOW > 1 or after == before or after < 128 << 10, "KiB at most"


def test_as_many_plain_regular_expressions_are_taken(tmp_path):
    rules = "  relabel_configs:\n" + "".join(
        f"  - {{source_labels: [a], action: keep, regex: '.*(dcgm|podgpu)-{i}([^:]+)?'}}\n" for i in range(1000))
    write_files(tmp_path, configuration(RULES), [scrape_job("127.0.0.1:1", name=f"j{n}", more=rules) for n in range(10)])
    assert run_agent("--config", tmp_path / "cwagentconfig.json", "--check", seconds=120)[:2] == \
        (0, "the configuration is good\n")


@pytest.mark.parametrize("which", ["--config", "--prometheus-config"])
def test_what_is_no_file_is_refused_at_once(tmp_path, which):
    write_files(tmp_path, configuration(RULES), [scrape_job("127.0.0.1:1")])
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "loop", "zero", "folder"):
        arguments = {"--config": tmp_path / "cwagentconfig.json", which: tmp_path / name}
        status, out, _ = run_agent(*[x for pair in arguments.items() for x in pair], "--check")
        assert status == 1 and str(tmp_path / name) in out, (name, out)


# --- Starts ---

def without_place(folder):
    """A configuration that leaves region and cluster to be found."""
    config = configuration(RULES)
    config["agent"] = {}
    del config["logs"]["metrics_collected"]["prometheus"]["cluster_name"]
    write_files(folder, config, [scrape_job("127.0.0.1:9", name="old")])


def silent(gate):
    """Metadata that is not answered until the gate opens."""
    return RawServer(lambda s: gate.wait(60 * SLOW))


@pytest.mark.parametrize("how", ["file", "signal"])
def test_a_configuration_mended_while_the_region_is_looked_for_is_taken(tmp_path, how):
    gate = threading.Event()
    without_place(tmp_path)
    with Target(GAUGE) as target, silent(gate) as metadata:
        with agent_at(tmp_path, "--output", f"file:{tmp_path}/events",
                      env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{metadata.address}",
                           "AWS_METADATA_SERVICE_TIMEOUT": "60"}) as agent:
            assert agent.get("/readyz")[0] == 503
            write_files(tmp_path, configuration(RULES), [scrape_job(target.address, name="new", interval="300ms")])
            if how == "signal":
                for _ in range(10):
                    agent.process.send_signal(signal.SIGHUP)
            wait_until(lambda: [t["job"] for t in agent.targets()] == ["new"], 20, "the mended one is taken")
            wait_until(lambda: read_events(tmp_path / "events"), 20, "an event")
            gate.set()
    assert read_events(tmp_path / "events")[0]["ClusterName"] == "demo"


def test_signals_at_any_moment_of_a_start_end_it_in_order(tmp_path):
    rng, gate = random.Random(7), threading.Event()
    with silent(gate) as metadata:
        for i in range(10):
            folder = tmp_path / str(i)
            folder.mkdir()
            without_place(folder)
            agent = Agent(["--config", folder / "cwagentconfig.json", "--listen", "127.0.0.1:0"],
                          {**KEYS, "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{metadata.address}"}, folder=folder)
            # Until its own handler is there a signal ends it as the system has it.
            wait_until(lambda: "starting" in agent.log or agent.process.poll() is not None, 20, "it starts")
            time.sleep(rng.random() * 0.2)
            for signo in (signal.SIGHUP, signal.SIGHUP, rng.choice([signal.SIGTERM, signal.SIGINT])):
                agent.process.send_signal(signo)
            status = agent.process.wait(30 * SLOW)
            agent.log_file.close()
            assert status in (0, -signal.SIGTERM, -signal.SIGINT), agent.log
        gate.set()


# --- Targets ---

def endless(s):
    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n")
    while True:
        s.sendall(b'm{a="1"} 1\n' * 2000)


HOSTILE = {
    "noise": lambda s: s.sendall(random.Random(1).randbytes(100_000)),
    "noise_page": page_of(random.Random(2).randbytes(100_000)),
    "endless": endless,
    "nothing": lambda s: None,
    "file": lambda s: s.sendall(b"HTTP/1.1 302 x\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
    "length": lambda s: s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\ntemp 1\n"),
    "chunk": lambda s: s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\ntemp 1\n"),
    "headers": lambda s: s.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000 + b"\r\n"),
    "labels": page_of(b"temp{" + b",".join(b'l%d="v"' % i for i in range(10_000)) + b"} 1\n"),
    "families": page_of(b"".join(b"# TYPE f%d gauge\nf%d 1\n" % (i, i) for i in range(70_000))),
    "bytes": page_of(b'temp{gpu="\xff\x00"} 1\n'),
}
NASTY = '</td><script>alert(1)</script>\\n\\"level=error msg=forged \x1b[31m\u2028'


def test_hostile_targets_are_down_and_the_good_one_beside_them_is_shipped(tmp_path):
    servers = {name: RawServer(handler) for name, handler in HOSTILE.items()}
    with Target(f'# TYPE temp gauge\ntemp{{gpu="{NASTY}"}} 42\n') as good:
        jobs = [scrape_job(s.address, name=name, interval="2s") for name, s in servers.items()]
        write_files(tmp_path, configuration(RULES), [scrape_job(good.address, name="good", interval="2s"), *jobs])
        try:
            with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
                def told():
                    health = {t["job"]: t["health"] for t in agent.targets()}
                    return health if "unknown" not in health.values() and health["good"] == "up" else None
                health = wait_until(told, 60, "every target was asked")
                wait_until(lambda: read_events(tmp_path / "events"), 30, "an event")
                page = agent.get("/targets", {"Accept": "text/html"})[2]
                log = agent.log
        finally:
            for server in servers.values():
                server.__exit__()
    assert {n for n, h in health.items() if h != "down"} == {"good"}
    assert read_events(tmp_path / "events")[0]["gpu"].startswith("</td><script>alert(1)</script>\n\"level=error")
    assert "<script>" not in page and "\x1b" not in page
    assert all(line.startswith("time=") and "\x1b" not in line for line in log.splitlines())


# --- Secrets ---

def test_secrets_are_nowhere_on_the_way_out(tmp_path):
    (tmp_path / "token").write_text("HUSHFILE\n")
    redirect = (b"HTTP/1.1 302 x\r\nLocation: http://u:HUSHPLACE@127.0.0.1:9/?token=HUSHQUERY\r\n"
                b"Content-Length: 0\r\n\r\n")
    with RawServer(lambda s: s.sendall(redirect)) as server:
        sd = "- job_name: {}\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  http_sd_configs: [{}]\n"
        jobs = [
            scrape_job("127.0.0.1:9", name="password",
                       more="  basic_auth: {username: u, password: HUSHBASIC}\n  params: {sig: [HUSHSIG], "
                            "api_key: [HUSHKEY], jwt: [HUSHJWT], design: [seen]}\n"),
            scrape_job(server.address, name="bearer", more="  authorization: {credentials: HUSHBEARER}\n"),
            scrape_job("127.0.0.1:9", name="file",
                       more=f"  authorization: {{credentials_file: {tmp_path}/token}}\n"),
            scrape_job("127.0.0.1:9", name="proxy", more="  proxy_url: http://p:HUSHPROXY@127.0.0.1:9/\n"),
            sd.format("sd", f'{{url: "http://u:HUSHSD@{server.address}/?token=HUSHSDQUERY", refresh_interval: 1s}}')]
        write_files(tmp_path, configuration(RULES), jobs)
        with agent_at(tmp_path, "--output", f"file:{tmp_path}/events", "--debug",
                      env={"AWS_SECRET_ACCESS_KEY": "HUSHAWS", "AWS_SESSION_TOKEN": "HUSHSESSION"}) as agent:
            def told():
                status, _, body = agent.get("/targets")
                found = json.loads(body)
                return body if found["discovery_problems"] and \
                    all(t["health"] == "down" for t in found["targets"]) else None
            targets = wait_until(told, 30, "everything failed")
            pages = [targets, agent.get("/targets", {"Accept": "text/html"})[2], agent.get("/metrics")[2]]
    assert "design=seen" in targets and "sig=xxxxx" in targets and "jwt=xxxxx" in targets
    assert set(re.findall("HUSH[A-Z]+", "".join([*pages, agent.log]))) == set()


# --- Streams ---

@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_are_not_taken_for_others(tmp_path, closed):
    write_files(tmp_path, configuration(RULES), [scrape_job("127.0.0.1:9", interval="300ms")])
    streams = " ".join(f"{n}{'<' if n == 0 else '>'}&-" for n in closed)
    arguments = f'exec "$0" --config "$1" --once --output "file:$2" --listen "" {streams}'
    done = subprocess.run(["sh", "-c", arguments, str(BUILD / Agent.NAME),
                           str(tmp_path / "cwagentconfig.json"), str(tmp_path / "events")],
                          stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 1 and read_events(tmp_path / "events") == []
    assert not (tmp_path / "events").exists() or (tmp_path / "events").read_bytes() == b""


# --- Readers ---

def memory_kib(agent):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{agent.pid}/status").read_text())[1])


def slow_reader(agent, is_html):
    """A connection that asked for /targets and reads the first byte of it."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(30 * SLOW)
    reader.connect(("127.0.0.1", agent.port))
    accept = b"text/html" if is_html else b"application/json"
    reader.sendall(b"GET /targets HTTP/1.1\r\nHost: a\r\nAccept: " + accept + b"\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        reader.recv(1)
    return reader


def test_slow_readers_of_a_large_page_share_it_and_others_are_answered(tmp_path):
    groups = [{"targets": [f"127.0.0.1:{1 + i % 9}" for i in range(3000)], "labels": {"v": "<&>\"" * 200}}]
    for i, address in enumerate(groups[0]["targets"]):
        groups.append({"targets": [address], "labels": {"v": "<&>\"" * 200, "n": str(i)}})
    (tmp_path / "sd.json").write_text(json.dumps(groups[1:]))
    write_files(tmp_path, configuration(RULES), [
        "- job_name: many\n  scrape_interval: 10m\n  scrape_timeout: 10s\n"
        f"  file_sd_configs: [{{files: ['{tmp_path}/sd.json']}}]\n"])
    with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
        agent.page_when(lambda p: sum(float(v) for _, v in p.samples("podgpu_agent_targets")) >= 3000, 30, "all targets")
        status, _, body = agent.get("/targets", {"Accept": "text/html"}, timeout=30)
        size_kib = len(body) >> 10
        assert status == 200 and size_kib > 5000
        before = memory_kib(agent)
        readers = [slow_reader(agent, is_html=i % 2) for i in range(40)]
        for _ in range(5):  # later pages, read slowly, too, take the place of those that are held
            time.sleep(1.2)
            readers.append(slow_reader(agent, is_html=False))
        if SLOW == 1:  # a sanitizer keeps what was freed for a while
            assert memory_kib(agent) - before < 8 * size_kib + (32 << 10)
        assert agent.get("/livez")[0] == 200
        assert agent.page().value("podgpu_agent_http_shut_readers_total") > 0
        for reader in readers:
            reader.close()

"""podgpu-agent for the tests: its two files, the pages it scrapes, and what it has shipped."""
import contextlib
import copy
import gzip
import http.server
import json
import pathlib
import socketserver
import subprocess
import threading
import time

import fake_logs
from harness import SLOW, Program, wait_until

CLUSTER = "demo"
GROUP = f"/aws/containerinsights/{CLUSTER}/prometheus"
REGION = "us-west-2"
KEYS = {"AWS_ACCESS_KEY_ID": fake_logs.KEYS[0], "AWS_SECRET_ACCESS_KEY": fake_logs.KEYS[1]}


class Agent(Program):
    NAME = "podgpu-agent"
    NOT_INHERITED = ("AWS_", "PODGPU_", "NODE_NAME", "K8S_", "CW_", "RUN_", "KUBERNETES_", "HTTP", "http", "NO_PROXY",
                     "no_proxy", "ECS_", "PROMETHEUS_", "HOST_", "POD_")

    def targets(self):
        """[target] of /targets."""
        status, _, body = self.get("/targets")
        assert status == 200
        return json.loads(body)["targets"]


class Target:
    """An endpoint with metrics. text: what it answers; may be changed while it runs, as may status and headers."""

    def __init__(self, text="", path="/metrics"):
        self.text, self.path, self.status = text, path, 200
        self.content_type = "text/plain; version=0.0.4; charset=utf-8"
        self.requests = []  # headers of each
        self.server = None

    def start(self):
        target = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                target.requests.append(self.headers)
                text = target.text() if callable(target.text) else target.text
                body = text if isinstance(text, bytes) else text.encode()
                found = self.path.split("?")[0] == target.path
                self.send_response(target.status if found else 404)
                self.send_header("Content-Type", target.content_type)
                if "gzip" in self.headers.get("Accept-Encoding", ""):
                    body = gzip.compress(body, 1)
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    @property
    def address(self):
        return f"127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def declaration(selectors, dimensions, label="job", matcher=".*"):
    return {"source_labels": [label], "label_matcher": matcher, "metric_selectors": selectors, "dimensions": dimensions}


def configuration(*declarations, endpoint=None, podgpu=None, units=None, **prometheus):
    """cwagentconfig.json as a dict; what is not said has the cluster's name and a flush each second."""
    processor = {"metric_declaration": list(declarations)}
    if units:
        processor["metric_unit"] = units
    logs = {"force_flush_interval": 1,
            "metrics_collected": {"prometheus": {"cluster_name": CLUSTER, "emf_processor": processor, **prometheus}}}
    if endpoint:
        logs["endpoint_override"] = endpoint
    config = {"agent": {"region": REGION, "omit_hostname": True}, "logs": logs}
    if podgpu is not None:
        config["podgpu"] = podgpu
    return config


def scrape_job(*addresses, name="app", interval="1s", more=""):
    """A job of prometheus.yaml with static targets."""
    targets = ", ".join(f"'{a}'" for a in addresses)
    return (f"- job_name: {name}\n  scrape_interval: {interval}\n  scrape_timeout: {interval}\n"
            f"  static_configs:\n  - targets: [{targets}]\n{more}")


def write_files(folder, config, jobs):
    """Both files; config may be text, jobs is the list below scrape_configs."""
    folder = pathlib.Path(folder)
    (folder / "prometheus.yaml").write_text("scrape_configs:\n" + "".join(jobs))
    if isinstance(config, dict):
        config = copy.deepcopy(config)
        prometheus = config["logs"]["metrics_collected"]["prometheus"]
        prometheus.setdefault("prometheus_config_path", str(folder / "prometheus.yaml"))
        config = json.dumps(config, indent=2)
    (folder / "cwagentconfig.json").write_text(config)
    return folder / "cwagentconfig.json"


@contextlib.contextmanager
def agent_at(folder, *arguments, env=None, ends=0, **popen):
    """The agent with the files in a folder, its page on a port of its own."""
    agent = Agent(["--config", pathlib.Path(folder) / "cwagentconfig.json", "--listen", "127.0.0.1:0", *arguments],
                  {**KEYS, **(env or {})}, folder=folder, **popen)
    try:
        yield agent
    finally:
        status, _ = agent.stop(seconds=20)
    assert ends is None or status == ends, f"podgpu-agent ended with {status}:\n{agent.log[-4000:]}"


def run_agent(*arguments, env=None, seconds=30):
    """To its end: (status, stdout, stderr)."""
    done = subprocess.run([str(_program()), *map(str, arguments)], capture_output=True, text=True, check=False,
                          env=_environment(env), timeout=seconds * SLOW, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def _program():
    from harness import BUILD
    return BUILD / Agent.NAME


def _environment(env):
    import os
    kept = {k: v for k, v in os.environ.items() if not k.startswith(Agent.NOT_INHERITED)}
    return {**kept, **KEYS, **(env or {})}


def read_events(path):
    """The events of an output file, whole lines only."""
    with contextlib.suppress(FileNotFoundError):
        text = pathlib.Path(path).read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    return []


def events_when(path, condition, seconds=20, what="events"):
    """The events of an output file once condition(events) holds."""
    def check():
        events = read_events(path)
        return events if condition(events) else None
    return wait_until(check, seconds, what)


def now_ms():
    return int(time.time() * 1000)

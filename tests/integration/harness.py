"""Runs the real programs for the integration tests: an exporter on a simulated node, and reading its pages."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("PODGPU_BUILD", ROOT / "build"))
BLOG = ROOT / "tests" / "blog"
sys.path.insert(0, str(ROOT / "sim"))

# Sanitizers make everything slower; deadlines that are not behaviour stretch with them.
SLOW = 4 if BUILD.name in ("asan", "tsan") else 1


def wait_until(condition, seconds=10, what="condition"):
    """Polls until condition() is truthy and returns that value; fails with a name otherwise."""
    deadline = time.monotonic() + seconds * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds * SLOW} s: {what}")
        time.sleep(0.02)


class Page:
    """A page by family: HELP and TYPE lines, and sample lines in order."""

    def __init__(self, text):
        self.text = text
        self.families = {}
        self.order = []
        name = None
        for line in text.split("\n"):  # not splitlines: a label may hold U+2028
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                if name not in self.families:
                    self.families[name] = []
                    self.order.append(name)
                self.families[name].append(line)
            elif line and not line.startswith("#"):
                self.families.setdefault(name, []).append(line)

    def samples(self, family):
        """[(labels, value text)] of one family."""
        found = []
        for line in self.families.get(family, []):
            if not line.startswith("#"):
                found.append((parse_labels(line), line.rsplit(" ", 1)[1]))
        return found

    def value(self, family, **labels):
        """The one sample that has these labels, as a float."""
        hits = [v for have, v in self.samples(family) if labels.items() <= have.items()]
        assert len(hits) == 1, f"{family}{labels}: {len(hits)} samples"
        return float(hits[0])

    def device_families(self):
        return [n for n in self.order if n.startswith(("DCGM_", "dcgm_"))]


def parse_labels(line):
    inside = line[line.index("{") + 1:line.rindex("}")] if "{" in line else ""
    pairs = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', inside)
    unescape = lambda v: re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], v)
    return {k: unescape(v) for k, v in pairs}


class Program:
    """One of our programs, running; stderr goes to a file that can be read while it runs."""

    NAME = None
    NOT_INHERITED = ()  # beginnings of environment variables

    def __init__(self, arguments, env=None, folder=None, **popen):
        self.started = time.monotonic()
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="podgpu-test-"))
        self.log_path = self.folder / f"{self.NAME}.log"
        self.log_file = open(self.log_path, "ab")
        full_env = {k: v for k, v in os.environ.items() if not k.startswith(self.NOT_INHERITED)}
        full_env.update(env or {})
        streams = {"stdin": subprocess.DEVNULL, "stdout": self.log_file, "stderr": self.log_file}
        self.process = subprocess.Popen([str(BUILD / self.NAME), *map(str, arguments)], env=full_env,
                                        **{**streams, **popen})

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    @property
    def port(self):
        def listening():
            if self.process.poll() is not None:
                raise AssertionError(f"{self.NAME} ended with {self.process.returncode}:\n{self.log}")
            return re.search(r"msg=listening.* port=(\d+)", self.log)
        return int(wait_until(listening, 10, f"{self.NAME} listens")[1])

    def url(self, path="/metrics"):
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path="/metrics", headers=None, timeout=10):
        """(status, headers, body text); HTTP errors are answers too."""
        request = urllib.request.Request(self.url(path), headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=timeout * SLOW) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def page(self, headers=None):
        status, _, body = self.get("/metrics", headers)
        assert status == 200
        return Page(body)

    def page_when(self, condition, seconds=10, what="page"):
        """The first page for which condition(page) holds."""
        last = [None]

        def check():
            last[0] = self.page()
            return last[0] if condition(last[0]) else None
        try:
            return wait_until(check, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\nlog:\n{self.log[-4000:]}\npage:\n{last[0].text[-6000:] if last[0] else None}") from None

    def stop(self, signo=signal.SIGTERM, seconds=10):
        """Ends it and returns (status, seconds it took)."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signo)
        try:
            self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not end within {seconds * SLOW} s:\n{self.log[-4000:]}") from None
        finally:
            self.log_file.close()
        return self.process.returncode, time.monotonic() - begun


class Exporter(Program):
    NAME = "podgpu-exporter"
    NOT_INHERITED = ("DCGM_", "NVIDIA_", "NODE_NAME", "KUBERNETES_", "KUBECONFIG")

    def helper_pid(self, source="nvml"):
        """Pid of the running podgpu-source of this source, or None."""
        return self.helpers().get(source)

    def helpers(self):
        """{source: pid} of the podgpu-source processes that run."""
        found = {}
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if b"podgpu-source" in words[0] and len(words) > 1:
                    found[words[1].decode()] = int(child)
        return found


def run_to_end(arguments, env=None, seconds=20):
    """For starts that must fail: (status, output)."""
    exporter = Exporter(arguments, env)
    try:
        exporter.process.wait(seconds * SLOW)
    except subprocess.TimeoutExpired:
        exporter.stop()
        raise AssertionError(f"still running:\n{exporter.log}") from None
    finally:
        exporter.log_file.close()
    return exporter.process.returncode, exporter.log


@contextlib.contextmanager
def exporter_at(node, *arguments, kubernetes=True, counters=None, env=None, ends=0, **popen):
    """The exporter on a node that runs already; ends: the exit status expected at the end; popen: how it is started."""
    base = ["-a", "127.0.0.1:0", "-f", counters or node.counters, "--nvml-library", node.nvml_library,
            "--kmsg-path", node.kmsg_path, "--pod-resources-kubelet-socket", node.socket]
    if kubernetes:
        base.append("-k")
    loader = {"LD_LIBRARY_PATH": node.env["LD_LIBRARY_PATH"]} if node.node.dcgm_library else {}
    exporter = Exporter([*base, *arguments],
                        {"SIM_NODE": node.env["SIM_NODE"], "NODE_NAME": node.node_name, **loader, **(env or {})},
                        **popen)
    try:
        yield exporter
    finally:
        status, _ = exporter.stop()
    assert status == ends, f"exporter ended with {status}:\n{exporter.log[-4000:]}"


@contextlib.contextmanager
def exporter_on(scenario, *arguments, kubernetes=True, counters=None, env=None, ends=0, **node_options):
    """A simulated node and the exporter on it: yields (node, exporter)."""
    import run_node
    with run_node.SimNode(scenario, **node_options) as node:
        with exporter_at(node, *arguments, kubernetes=kubernetes, counters=counters, env=env, ends=ends) as exporter:
            yield node, exporter

# SPDX-License-Identifier: Apache-2.0
"""Starts a simulated node for tests, benchmarks and the demo.

    with SimNode("post") as n:
        subprocess.Popen([exporter, "--pod-resources-kubelet-socket", n.socket], env=n.env)
        n.set("gpu0.lost", 1)

n.env             the environment for programs on the node: SIM_NODE and LD_LIBRARY_PATH on top of os.environ
n.nvml_library    path of the vendor library double
n.socket          the kubelet's pod-resources socket
n.pods_api_socket the kubelet's Pods API, there while kubelet.pods_api is 1
n.proc_path       a procfs with the node's processes (procfs.py), where SimNode has proc=True, or proc="private": what a
                  program without hostPID sees; else None
n.log_path        a /var/log with the names of pods and containers, where SimNode has logs=True; else None
n.api             an API server (apiserver.py) with the node's pods and ResourceSlices, where SimNode has api=True or an
                  ApiServer; else None
n.kmsg_path       a FIFO that behaves like /dev/kmsg: one record a write
n.node_name       what NODE_NAME is there
n.counters        a counters file that suits the scenario: its own, or the stock one
n.node            the node itself (node.py): the truth, counts, pods
n.engine          the DCGM host engine that runs (an Engine), None without one; n.start_engine() starts another
"""
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import pods  # noqa: E402
import procfs  # noqa: E402
from apiserver import ApiServer  # noqa: E402
from node import BUILD, EVENT_KMSG, NS, Node  # noqa: E402

PYTHON = "/usr/bin/python3"
TICK_S = 0.02
XID_TEXTS = {48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer.",
             79: "GPU has fallen off the bus.", 119: "Timeout waiting for RPC from GSP!"}


class Engine:
    """A simulated nv-hostengine process. address is what -r takes: host:port, or unix:///PATH."""

    def __init__(self, node_file, *, socket=None, listen="127.0.0.1:0", major=None, behave="normal", deadline_s=20):
        command = [BUILD / "sim" / "nv-hostengine", "--node", node_file, "--behave", behave]
        command += ["--socket", socket] if socket else ["--listen", listen]
        command += ["--major", str(major)] if major else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            self.address = self.process.stdout.readline().strip() if selector.select(deadline_s) else ""
        if not self.address:
            self.kill()
            raise RuntimeError("the simulated host engine didn't start")

    def kill(self):
        """SIGKILL: what was made in it is gone, and its clients notice at their next call."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def scenario_path(name):
    """A scenario by name, or a path to a scenario file."""
    path = Path(name)
    return path if path.suffix == ".yaml" else HERE / "scenarios" / f"{name}.yaml"


class SimNode:
    """scenario: a name of sim/scenarios or a path. text: the scenario itself instead. directory: where files go (a
    temporary one if None, removed at the end). freeze: hold the clock at that scenario second from the start."""

    def __init__(self, scenario="post", *, text=None, rate=1.0, kubelet=True, directory=None, freeze=None, proc=False,
                 logs=False, api=None):
        self.scenario = scenario
        self.text = text
        self.rate = rate
        self.with_kubelet = kubelet
        self.freeze_at = freeze
        self.with_proc, self.with_logs, self.with_api = proc, logs, api
        self.proc_path = self.log_path = self.api = None
        self._files = self._mirror = self._mirror_node = None
        self._syncing = threading.Lock()
        self._given = directory
        self._process = None
        self._kmsg = -1
        self._feeder = None
        self._ending = threading.Event()
        self._engines = []
        self.node = None

    # --- life ---

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.directory = Path(self._given or tempfile.mkdtemp(prefix="podgpu-sim-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.file = self.directory / "node"
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self):
        source = scenario_path(self.scenario)
        if self.text is not None:
            source = self.directory / "scenario.yaml"
            source.write_text(self.text, encoding="utf-8")
            shutil.copy(HERE / "scenarios" / "models.yaml", self.directory)
        made = subprocess.run([BUILD / "sim" / "simnode", source, "--out", self.file, "--rate", str(self.rate)],
                              capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(made.stderr.strip())
        self.node = Node(self.file)
        if self.freeze_at is not None:
            self.freeze(self.freeze_at)
        self.node_name = self.node.name
        folder = BUILD / "sim" / "old" if self.node.old_library else BUILD / "sim"
        self.nvml_library = str(folder / "libnvidia-ml.so.1")
        own = source.with_suffix("") / "counters.csv"
        self.counters = str(own if own.exists() else HERE.parent / "etc" / "default-counters.csv")
        self.kmsg_path = str(self.directory / "kmsg")
        os.mkfifo(self.kmsg_path)
        self._kmsg = os.open(self.kmsg_path, os.O_RDWR | os.O_NONBLOCK)
        self._feeder = threading.Thread(target=self._feed_kmsg, daemon=True)
        self._feeder.start()
        (self.directory / "pod-resources").mkdir(exist_ok=True)
        self.socket = str(self.directory / "pod-resources" / "kubelet.sock")
        self.pods_api_socket = str(self.directory / "pods-api" / "pods-api.sock")
        self._start_surroundings()
        if self.node.dcgm_engine_runs:
            self.start_engine()
        if self.with_kubelet:
            self._start_kubelet()

    def _start_surroundings(self):
        """What the kernel, the kubelet and the API server say of the pods, and what keeps it in step."""
        if self.with_proc:
            self.proc_path = str(self.directory / "proc")
        if self.with_logs:
            self.log_path = str(self.directory / "log")
        if self.with_proc or self.with_logs:
            self._files = procfs.Files(self.file, proc=self.proc_path, logs=self.log_path,
                                       private=self.with_proc == "private")
        if self.with_api:
            self.api = self.with_api if isinstance(self.with_api, ApiServer) else ApiServer()
            self._mirror_node = Node(self.file)
            self._mirror = pods.Mirror(self._mirror_node, self.api)
        self.sync()

    def sync(self):
        """Brings procfs, /var/log and API server in step now; happens by itself after each change and in between."""
        with self._syncing:
            if self._files:
                self._files.sync()
            if self._mirror:
                self._mirror.sync()

    # --- DCGM ---

    @property
    def engine(self):
        return next((e for e in reversed(self._engines) if e.process.poll() is None), None)

    def start_engine(self, **words):
        """Starts a host engine on this node; words as of Engine. It ends with the node, or by engine.kill()."""
        engine = Engine(self.file, **words)
        self._engines.append(engine)
        return engine

    def restart_engine(self):
        """Kills the engine that runs and starts one at the same address, which knows of no group and no watch."""
        old = self.engine
        old.kill()
        unix = old.address.removeprefix("unix://") if old.address.startswith("unix://") else None
        return self.start_engine(socket=unix) if unix else self.start_engine(listen=old.address)

    def _start_kubelet(self, deadline_s=20):
        self._process = subprocess.Popen([PYTHON, HERE / "kubelet.py", self.file, self.socket, self.pods_api_socket],
                                         stdout=subprocess.PIPE, env=dict(os.environ, PODGPU_BUILD=str(BUILD)))
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(deadline_s) or self._process.stdout.readline() != b"ready\n":
                raise RuntimeError("the simulated kubelet didn't start")

    def stop(self):
        self._ending.set()
        for engine in self._engines:
            if engine.process.poll() is None:
                engine.kill()
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
        if self._feeder:
            self._feeder.join()
            self._feeder = None
        if self._kmsg >= 0:
            os.close(self._kmsg)
            self._kmsg = -1
        if self.api and not isinstance(self.with_api, ApiServer):
            self.api.stop()
        if self._mirror_node:
            self._mirror_node.close()
        if self._files:
            self._files.close()
        self._files = self._mirror = self._mirror_node = None
        if self.node:
            self.node.close()
            self.node = None
        if self._given is None and hasattr(self, "directory"):
            shutil.rmtree(self.directory, ignore_errors=True)

    # --- the environment of programs on the node ---

    @property
    def env(self):
        env = dict(os.environ)
        env["SIM_NODE"] = str(self.file)
        old = env.get("LD_LIBRARY_PATH")
        folders = [os.path.dirname(self.nvml_library)]
        if self.node.dcgm_library:
            folders.insert(0, str(BUILD / "sim" / f"dcgm{self.node.dcgm_library}"))
        env["LD_LIBRARY_PATH"] = ":".join(folders + ([old] if old else []))
        return env

    # --- changes ---

    def command(self, line, at_ns=-1):
        answer = self.node.command(line, at_ns)
        self.sync()
        return answer

    def set(self, name, value):
        """set("gpu0.lost", 1), set("gpu0.load", "square:on=20s,off=20s"), set("kubelet.down", 1)"""
        text = str(value).replace(" ", "")
        return self.command(f"set {name}={text}")

    def fault(self, symbol, what, **words):
        """fault("nvmlDeviceGetPowerUsage", "return=999", gpu=0, count=1); "hang", "crash", "delay=MS"."""
        return self.command(" ".join(["fault", symbol, what] + [f"{k}={v}" for k, v in words.items()]))

    def clear_faults(self, symbol=""):
        return self.command(f"fault clear {symbol}".strip())

    def xid(self, code, gpu=0, **words):
        return self.command(" ".join([f"xid gpu={gpu} code={code}"] + [f"{k}={v}" for k, v in words.items()]))

    def reset(self, gpu):
        """Resets a GPU; NodeError with errno EBUSY while a process has a handle of it."""
        return self.command(f"reset gpu={gpu}")

    def freeze(self, seconds):
        """Holds the scenario's clock at a second."""
        return self.command(f"clock freeze={int(seconds * NS)}ns")

    def advance(self, seconds):
        return self.command(f"clock add={int(seconds * NS)}ns")

    def run(self):
        return self.command("clock run")

    def counts(self):
        return self.node.counts()

    def reset_counts(self):
        return self.command("counts reset")

    def wait_until(self, condition, deadline_s=10, tick_s=0.01):
        """Waits for a condition of the node; TimeoutError when the deadline is over."""
        until = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError("the condition didn't come about")
            time.sleep(tick_s)

    # --- the kernel log ---

    def write_kmsg(self, text, priority=3):
        """One record as /dev/kmsg gives it: priority, sequence, microseconds since boot, flags; text."""
        self._sequence = getattr(self, "_sequence", 1000) + 1
        record = f"{priority},{self._sequence},{time.monotonic_ns() // 1000},-;{text}\n"
        try:
            os.write(self._kmsg, record.encode())
        except BlockingIOError:
            pass  # nobody reads: an old record would be overwritten, too

    def _feed_kmsg(self):
        """Writes the kernel's line of each XID when its time comes."""
        written = set()
        while not self._ending.wait(TICK_S):
            now = self.node.now()
            self.sync()
            for index, event in enumerate(self.node.events()):
                if index in written or event.at_ns > now:
                    continue
                written.add(index)
                if event.flags & EVENT_KMSG:
                    bus = self.node.gpu_text(event.gpu, "bus_id").decode()
                    domain, number, device = bus.split(":")
                    text = XID_TEXTS.get(event.data, "Graphics Exception")
                    self.write_kmsg(f"NVRM: Xid (PCI:{domain[-4:]}:{number}:{device.split('.')[0]}): {event.data}, "
                                    f"pid='<unknown>', name=<unknown>, {text}")

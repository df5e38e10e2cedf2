# SPDX-License-Identifier: Apache-2.0
"""Runs the real exporter on a simulated GPU node and prints where to look; script/demo starts it."""
import argparse
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import run_node

USUAL_PORT = 9400
READY_SECONDS = 10
LEDGER_SECONDS = 10
SHARE, BUSY = "podgpu_container_gpu_share_ratio", "podgpu_container_gpu_busy_seconds_total"
END_SECONDS = 10


def parse_arguments(argv):
    ours, exporter = argv, []
    if "--" in argv:
        cut = argv.index("--")
        ours, exporter = argv[:cut], argv[cut + 1:]
    names = sorted(p.stem for p in (run_node.HERE / "scenarios").glob("*.yaml") if p.stem != "models")
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__.split(";")[0] + ".",
                                     epilog="Arguments behind -- go to podgpu-exporter.")
    parser.add_argument("--scenario", default="demo",
                        help=f"the node: a scenario file, or one of {', '.join(names)} (default: demo)")
    parser.add_argument("--port", type=int,
                        help="port of /metrics on 127.0.0.1; 0: any free one (default: 9400, or a free one if that is "
                             "taken)")
    parser.add_argument("--seconds", type=float, help="end by itself after this time")
    parser.add_argument("--cloudwatch", action="store_true",
                        help="run podgpu-agent, too: it ships the metrics to a CloudWatch Logs on this machine and to a file")
    arguments = parser.parse_args(ours)
    if not run_node.scenario_path(arguments.scenario).is_file():
        parser.error(f"no scenario '{arguments.scenario}'; there are: {', '.join(names)}")
    return arguments, exporter


def usual_port():
    """9400, or 0 where another program has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            return 0
    return USUAL_PORT


def engine_words(node):
    """A host engine that the scenario has from the start is one that the exporter is told of."""
    return ["-r", node.engine.address] if node.engine else []


class Exporter:
    """podgpu-exporter on a node. Its log goes on to our stderr, and tells the port."""

    def __init__(self, node, port, extra):
        command = [str(run_node.BUILD / "podgpu-exporter"), "-k", "-a", f"127.0.0.1:{port}", "-f", str(node.counters),
                   "--pod-resources-kubelet-socket", str(node.socket), "--nvml-library", str(node.nvml_library),
                   "--kmsg-path", str(node.kmsg_path), "--proc-path", node.proc_path, "--pod-log-path", node.log_path,
                   "--pods-api-socket", node.pods_api_socket, *engine_words(node), *extra]
        self.port = port
        self.process = subprocess.Popen(command, env=dict(node.env, NODE_NAME=node.node_name),
                                        stderr=subprocess.PIPE, text=True, errors="replace")
        self.reader = threading.Thread(target=self._relay, daemon=True)
        self.reader.start()

    def _relay(self):
        for line in self.process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            found = re.search(r'(?:msg=listening |"msg":"listening",).*?"?port"?[=:](\d+)', line)
            if found:
                self.port = int(found[1])

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def get(self, path):
        """(status, text), or None while it doesn't answer."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=2) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError:
            return None

    def wait_ready(self, shared=False):
        """Its page once it is ready, or what there is when the time is over; None when it doesn't answer."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.port and (self.get("/readyz") or (0,))[0] == 200:
                break
            time.sleep(0.05)
        page = self.page()
        until = time.monotonic() + LEDGER_SECONDS
        while shared and page and is_being_booked(page) and time.monotonic() < until:
            time.sleep(0.1)
            page = self.page()
        return page

    def page(self):
        answer = self.get("/metrics") if self.port and self.process.poll() is None else None
        return answer[1] if answer and answer[0] == 200 else None

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def wait_end(self):
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(END_SECONDS)
        return self.process.returncode


def samples(page, family):
    """[(labels, value)] of one family."""
    return [(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line)), float(line.rsplit(" ", 1)[1]))
            for line in page.splitlines() if line.startswith(family + "{")]


def is_being_booked(page):
    """Whether the use of those who share a GPU is still to come; where it can't be told apart it never comes."""
    return "podgpu_gpu_info{" in page and not any(value for _, value in samples(page, BUSY))


def has_replicas(node):
    return any(node.node.replicas(gpu) > 1 for gpu in range(node.node.gpu_count))


def overview(page):
    """A line for each GPU, or GPU instance, and its owner."""
    def key(labels):
        return labels["UUID"], labels.get("GPU_I_ID"), labels.get("pod"), labels.get("vgpu")
    power = {key(labels): value for labels, value in samples(page, "DCGM_FI_DEV_POWER_USAGE")}
    busy = {key(labels): value for labels, value in samples(page, "DCGM_FI_DEV_GPU_UTIL")}
    lines = []
    for labels, memory in samples(page, "DCGM_FI_DEV_FB_USED"):
        name = f"GPU {labels.get('gpu')}"
        if "GPU_I_ID" in labels:
            name += f" instance {labels['GPU_I_ID']} ({labels.get('GPU_I_PROFILE', '')})"
        owner = "/".join(labels.get(k, "") for k in ("namespace", "pod", "container")) if labels.get("pod") \
            else "(no single owner)"
        numbers = [f"{memory:.0f} MiB"]
        if key(labels) in power:
            numbers.append(f"{power[key(labels)]:.0f} W")
        if key(labels) in busy:
            numbers.append(f"{busy[key(labels)]:.0f} % busy")
        lines.append(f"    {name:8}  {labels.get('modelName', ''):24}  {owner:50}  {', '.join(numbers)}")
    return lines + counts(page, bool(lines))


def shares(page):
    """A line for each container of a device that several hold."""
    rows = samples(page, SHARE)
    holders = [(labels["gpu"], labels.get("GPU_I_ID")) for labels, _ in rows]
    busy = {tuple(sorted(labels.items())): value for labels, value in samples(page, BUSY)}
    lines = []
    for (labels, share), device in zip(rows, holders):
        if holders.count(device) > 1:
            owner = "/".join(labels[k] for k in ("namespace", "pod", "container"))
            seconds = busy.get(tuple(sorted(labels.items())))
            used = "use not to be told apart" if seconds is None else f"busy {seconds:.3f} s so far"
            lines.append(f"    GPU {device[0]:4}  {owner:50}  {share:.1%} of it, {used}")
    return lines


# What tells a device of a kind from the others of it: the first of the labels that a sample has.
KINDS = (("NVLink", "nvlink"), ("NVSwitch", "nvswitch"), ("CPU core", "cpucore"), ("CPU", "cpu"), ("GPU", "gpu"))


def counts(page, gpus_are_told):
    """A line for each other kind of device on the page, and one for GPUs that have none of the numbers above."""
    found = {}
    for line in page.splitlines():
        if line.startswith(("DCGM_", "dcgm_", "podgpu_gpu_up{")):
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))
            kind, label = next(((k, l) for k, l in KINDS if l in labels), (None, None))
            if kind:
                owner = labels.get("nvswitch") or labels.get("cpu") or labels.get("gpu")
                found.setdefault(kind, set()).add((owner, labels[label], labels.get("GPU_I_ID")))
    return [f"    {kind:8}  {len(devices)} on the page" for kind, devices in sorted(found.items())
            if kind != "GPU" or not gpus_are_told]


def tell(arguments, node, exporter, page):
    print(f"\npodgpu-exporter runs on the simulated node '{arguments.scenario}':")
    print(f"  metrics    {exporter.url}/metrics")
    print(f"  readiness  {exporter.url}/readyz")
    print(f"  to break something, as sim/README.md tells:  build/sim/simnode {node.file} xid gpu=0 code=79")
    if page is None:
        print("  It serves no page that this demo could read.")
    else:
        print("  What its page says now:")
        print("\n".join(overview(page)[:12] or ["    no device"]))
        shared = shares(page)
        if shared:
            print(f"  Of shared GPUs, by {BUSY} (docs/shared-gpus.md):")
            print("\n".join(shared[:16]))
            print(f"  to see it grow:  curl -s {exporter.url}/metrics | grep ^{BUSY}")
    print("  Ctrl-C ends it." if arguments.seconds is None else f"  It ends by itself in {arguments.seconds:g} s.",
          flush=True)


def run(arguments, extra):
    ending = threading.Event()
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signo, lambda *_: ending.set())
    with run_node.SimNode(arguments.scenario, proc=True, logs=True) as node:
        exporter = Exporter(node, usual_port() if arguments.port is None else arguments.port, extra)
        agent, shipped = None, True
        try:
            page = exporter.wait_ready(has_replicas(node))
            if exporter.process.poll() is None:
                tell(arguments, node, exporter, page)
            if arguments.cloudwatch and exporter.process.poll() is None:
                from demo_cloudwatch import Agent
                agent = Agent(node.directory, f"127.0.0.1:{exporter.port}")
                shipped = agent.tell()
                if page and shares(page):
                    agent.tell_shares()
            until = time.monotonic() + (arguments.seconds if arguments.seconds is not None else float("inf"))
            while not ending.wait(0.1) and exporter.process.poll() is None and time.monotonic() < until:
                pass
        finally:
            agent_status = agent.end() if agent else 0
            exporter.end()
            status = exporter.wait_end()
        served = page is not None and bool(samples(page, "DCGM_FI_DEV_FB_USED") or samples(page, "podgpu_gpu_up"))
    if status != 0:
        print(f"demo: podgpu-exporter ended with status {status}")
        return 1
    if not served and not extra:
        print("demo: podgpu-exporter showed no device")
        return 1
    if agent_status != 0 or not shipped:
        print(f"demo: podgpu-agent {'shipped no event' if not shipped else f'ended with status {agent_status}'}")
        return 1
    print("demo: ended; podgpu-exporter had status 0")
    return 0


def main():
    arguments, extra = parse_arguments(sys.argv[1:])
    try:
        return run(arguments, extra)
    except RuntimeError as error:
        print(f"script/demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""Runs the real exporter on a simulated node and prints where to look; script/demo starts it."""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

import run_node

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse_arguments(argv):
    ours, exporter = argv, []
    if "--" in argv:
        cut = argv.index("--")
        ours, exporter = argv[:cut], argv[cut + 1:]
    parser = argparse.ArgumentParser(prog="script/demo", description=__doc__,
                                     epilog="Arguments behind -- go to podgpu-exporter.")
    parser.add_argument("--scenario", default="demo", help="a name of sim/scenarios (default: demo)")
    parser.add_argument("--port", type=int, default=9400, help="port of /metrics (default: 9400)")
    parser.add_argument("--seconds", type=float, help="end by itself after this time")
    return parser.parse_args(ours), exporter


def wait_for_page(url, exporter, deadline):
    """The first page with devices on it, or the last page there was."""
    page = ""
    while time.monotonic() < deadline and exporter.poll() is None:
        try:
            page = urllib.request.urlopen(url, timeout=2).read().decode()
            if "podgpu_gpu_up" in page or "DCGM_FI" in page:
                return page
        except OSError:
            pass
        time.sleep(0.05)
    return page


def excerpt(page):
    wanted = ("DCGM_FI_DEV_GPU_UTIL{", "DCGM_FI_DEV_POWER_USAGE{", "podgpu_gpu_up{")
    return [line for line in page.splitlines() if line.startswith(wanted)][:12]


def main():
    arguments, extra = parse_arguments(sys.argv[1:])
    build = pathlib.Path(os.environ.get("PODGPU_BUILD", ROOT / "build"))
    with run_node.SimNode(arguments.scenario) as node:
        command = [str(build / "podgpu-exporter"), "-k", "-a", f"127.0.0.1:{arguments.port}",
                   "-f", str(node.counters), "--pod-resources-kubelet-socket", str(node.socket),
                   "--nvml-library", str(node.nvml_library), "--kmsg-path", str(node.kmsg_path), *extra]
        env = dict(os.environ, **node.env, NODE_NAME=node.node_name)
        exporter = subprocess.Popen(command, env=env)
        stop = lambda *_: exporter.send_signal(signal.SIGTERM)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGTERM, stop)
        url = f"http://127.0.0.1:{arguments.port}"
        page = wait_for_page(url + "/metrics", exporter, time.monotonic() + 10)
        if exporter.poll() is None:
            print(f"\npodgpu-exporter runs on the simulated node '{arguments.scenario}':")
            print(f"  metrics   {url}/metrics")
            print(f"  readiness {url}/readyz")
            print("  a few lines of what it says now:")
            for line in excerpt(page):
                print("   ", line)
            print("  Ctrl-C ends it." if arguments.seconds is None else f"  It ends by itself in {arguments.seconds:g} s.",
                  flush=True)
        try:
            exporter.wait(arguments.seconds)
        except subprocess.TimeoutExpired:
            exporter.send_signal(signal.SIGTERM)
            exporter.wait(10)
        return exporter.returncode


if __name__ == "__main__":
    sys.exit(main())

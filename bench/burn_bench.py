# SPDX-License-Identifier: Apache-2.0
"""What podgpu-burn takes of the node whose GPUs it loads; the kernels are the double's, their time passes by the clock."""
import contextlib
import pathlib
import re
import subprocess
import tempfile
import time

from common import process_cpu_us, row
from harness import BUILD, wait_until
from measure import memory_kib, pss_kib
import run_node

KINDS = ["fp32", "bf16", "dram"]
SECONDS = 6


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextlib.contextmanager
def at_full_load(kind):
    """podgpu-burn on one GPU of a simulated node: yields (node, pids of parent and worker)."""
    with run_node.SimNode("burn", kubelet=False) as node, tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        with open(out, "wb") as file:
            burn = subprocess.Popen([BUILD / "podgpu-burn", f"--kind={kind}", "--gpus=0", "--memory=4GiB", "--json"],
                                    env=node.env, stdout=file, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: re.search(r'"phase":"on"', out.read_text()), 20, "load")
            yield node, (burn.pid, *children(burn.pid))
        finally:
            burn.terminate()
            burn.wait(20)


def bench_burn():
    row("podgpu-burn, the file", f"{(BUILD / 'podgpu-burn').stat().st_size / 1024:.0f} KiB", "<= 1024 KiB")
    for kind in KINDS:
        with at_full_load(kind) as (node, pids):
            busy_us = lambda: node.node.busy_us(0, 0, node.node.now())
            read = lambda: (busy_us(), *map(process_cpu_us, pids), time.monotonic() * 1e6)
            before = read()
            time.sleep(SECONDS)
            *shares, spent = (now - then for now, then in zip(read(), before))
            full, parent, worker = (100 * share / spent for share in shares)
            row(f"CPU of podgpu-burn at full load, {kind}, of one core",
                f"worker {worker:.2f} % with the double's work, parent {parent:.2f} %; the GPU was busy {full:.1f} %")
            if kind == KINDS[0]:
                row("Pss of podgpu-burn, parent + worker, without the driver's own",
                    " + ".join(f"{pss_kib(p) / 1024:.1f}" for p in pids) +
                    f" MiB (Rss {sum(memory_kib(p, 'Rss') for p in pids) / 1024:.1f})")


BENCHES = {"burn": bench_burn}

# SPDX-License-Identifier: Apache-2.0
"""XIDs in storms, over the death of helpers and with a kernel log that misbehaves: each is counted once."""
import os
import signal
import time

import pytest

from harness import SLOW, Exporter, exporter_on, wait_until
import run_node

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"
COUNT = "podgpu_gpu_xid_errors_total"


def counts(page, xid):
    return {int(l["gpu"]): float(v) for l, v in page.samples(COUNT) if l["xid"] == str(xid) and v != "0"}


def test_a_storm_is_counted_to_the_last_and_costs_no_scrape():
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for i in range(3000):
            node.xid(31 if i % 3 else 13, gpu=i % 4)
        want = {gpu: 500.0 for gpu in range(4)}
        begun, slowest = time.monotonic(), 0
        while counts(exporter.page(), 31) != want:
            asked = time.monotonic()
            page = exporter.page()
            slowest = max(slowest, time.monotonic() - asked)
            assert len(page.samples(UTIL)) == 4
            assert time.monotonic() - begun < 20 * SLOW, counts(page, 31)
            time.sleep(0.02)
        assert slowest < 0.5 * SLOW
        time.sleep(3)  # nothing comes behind
        page = exporter.page()
        assert counts(page, 31) == want and counts(page, 13) == {gpu: 250.0 for gpu in range(4)}
        assert page.value("podgpu_exporter_errors_total", source="nvml", code="protocol") == 0


def test_events_that_are_fetched_late_are_not_counted_again():
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("nvmlEventSetWait_v2", "delay=900")  # the kernel's lines are told long before
        for gpu in range(4):
            for _ in range(5):
                node.xid(48, gpu=gpu)
        want = {gpu: 5.0 for gpu in range(4)}
        exporter.page_when(lambda p: counts(p, 48) == want, 10, "all counted")
        node.clear_faults()
        time.sleep(4)
        assert counts(exporter.page(), 48) == want


class KernelLog:
    """A kernel log that can be read again, as /dev/kmsg: numbered records in a file."""

    def __init__(self, path):
        self.path = path
        self.seq = 5000
        path.touch()

    def write(self, text):
        self.seq += 1
        with open(self.path, "a") as log:
            log.write(f"4,{self.seq},{time.monotonic_ns() // 1000},-;{text}\n")

    def xid(self, code, bus):
        self.write(f"NVRM: Xid (PCI:{bus}): {code}, pid=1, name=x, text")


def exporter_with_log(node, log, *arguments):
    return Exporter(["-a", "127.0.0.1:0", "-f", node.counters, "--nvml-library", node.nvml_library, "--kmsg-path", log,
                     *arguments], {"SIM_NODE": str(node.file)})


def bus(node, gpu):
    domain, number, device = node.node.gpu_text(gpu, "bus_id").decode().split(":")
    return f"{domain[-4:]}:{number}:{device.split('.')[0]}"


def test_what_the_kernel_says_while_no_helper_runs_is_counted_when_one_does(tmp_path):
    log = KernelLog(tmp_path / "kmsg")
    with run_node.SimNode("demo", kubelet=False) as node:
        log.xid(31, bus(node, 1))  # before us: no news
        exporter = exporter_with_log(node, log.path)
        try:
            exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
            log.write("usb 1-1: new device")
            log.xid(79, bus(node, 1))
            exporter.page_when(lambda p: counts(p, 79) == {1: 1.0}, what="the first")
            time.sleep(0.5)  # the record's number is noted
            for round in range(3):
                helper = exporter.helper_pid()
                if round == 2:
                    log.xid(79, bus(node, 1))  # waits for its event when the helper dies
                    time.sleep(0.3)
                os.kill(helper, signal.SIGKILL)
                wait_until(lambda: not os.path.exists(f"/proc/{helper}"), 5, "the helper is gone")
                if round < 2:
                    log.xid(79, bus(node, 1))
                exporter.page_when(lambda p: counts(p, 79) == {1: 2.0 + round}, 20, f"round {round}")
            time.sleep(2)
            page = exporter.page()
            assert counts(page, 79) == {1: 4.0} and counts(page, 31) == {}
        finally:
            assert exporter.stop()[0] == 0


def test_a_log_of_garbage_is_read_through_to_the_one_line_that_counts(tmp_path):
    log = KernelLog(tmp_path / "kmsg")
    with run_node.SimNode("demo", kubelet=False) as node:
        exporter = exporter_with_log(node, log.path)
        try:
            exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
            with open(log.path, "ab") as raw:
                raw.write(os.urandom(1 << 20))
                raw.write(b"\n" + b"x" * (1 << 20) + b"\n")
                raw.write(b"NVRM: Xid (PCI:\n4,9,\n" * 20000)
            log.xid(94, bus(node, 2))
            exporter.page_when(lambda p: counts(p, 94) == {2: 1.0}, 10, "the line")
            os.truncate(log.path, 0)  # a log that is rotated in place
            time.sleep(0.5)
            log.xid(95, bus(node, 3))
            exporter.page_when(lambda p: counts(p, 95) == {3: 1.0}, 10, "the line behind")
            assert len(exporter.page().samples(UTIL)) == 4
        finally:
            assert exporter.stop()[0] == 0

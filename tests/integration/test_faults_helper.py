# SPDX-License-Identifier: Apache-2.0
"""The helper killed, stopped, replaced by something else; the exporter killed and frozen."""
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import ROOT, SLOW, Exporter, exporter_on, wait_until
from source_client import PROGRAM, place_descriptors
from test_failures import post
import run_node

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"


def state_of(pid):
    """The process's state letter, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def size_of(pid):
    """(descriptors, anonymous memory in KiB)"""
    with open(f"/proc/{pid}/status") as status:
        return len(os.listdir(f"/proc/{pid}/fd")), int(re.search(r"RssAnon:\s+(\d+)", status.read())[1])


class Scraper(threading.Thread):
    """Scrapes over one connection until it is told to end."""

    def __init__(self, exporter):
        super().__init__()
        self.exporter, self.ending = exporter, threading.Event()
        self.scrapes, self.failures, self.slowest = 0, [], 0
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.exporter.port, timeout=10 * SLOW)
        while not self.ending.wait(0.005):
            begun = time.monotonic()
            try:
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.failures.append(answer.status)
            except OSError as error:
                self.failures.append(error)
                connection.close()
            self.scrapes += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def stop(self):
        self.ending.set()
        self.join()
        assert not self.failures and self.scrapes > 50 / SLOW
        return self.slowest


def test_a_hundred_deaths_of_the_helper_cost_no_scrape_and_leave_nothing_behind(tmp_path):
    admin, rng = tmp_path / "admin.sock", random.Random(1)
    # A sanitizer takes SIGSEGV for an error that the program made.
    crash = signal.SIGSEGV if SLOW == 1 else signal.SIGSYS
    signals = [signal.SIGKILL, crash, signal.SIGTERM, signal.SIGABRT, signal.SIGSTOP]
    with exporter_on("demo", f"--admin-address=unix:{admin}", "-c", "100", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        before = size_of(exporter.pid)
        scraper = Scraper(exporter)
        deaths = 0
        while deaths < 100:
            helper = exporter.helper_pid()
            if not helper:  # there is a backoff, which a new attachment begins anew
                post(admin, "/-/release")
                post(admin, "/-/attach")
                continue
            time.sleep(rng.choice([0, 0.001, 0.005, 0.03]))
            for number in (rng.choice(signals), signal.SIGKILL):
                try:
                    os.kill(helper, number)
                except ProcessLookupError:
                    break
            deaths += 1
            wait_until(lambda: state_of(helper) is None, 5, "it is reaped")
        if not exporter.helper_pid():
            post(admin, "/-/release")
            post(admin, "/-/attach")
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4 and {v for _, v in p.samples("podgpu_gpu_up")} == {"1"},
                           15, "all is well again")
        assert scraper.stop() < 0.5 * SLOW
        after = size_of(exporter.pid)
        assert after[0] <= before[0] + 1 and (SLOW > 1 or after[1] < before[1] + 600), (before, after)


@pytest.mark.parametrize("how", ["running", "stopped", "in a hung call"])
def test_the_helper_dies_with_its_exporter(how):
    with run_node.SimNode("demo", kubelet=False) as node:
        exporter = Exporter(["-a", "127.0.0.1:0", "-f", node.counters, "--nvml-library", node.nvml_library,
                             "--kmsg-path", ""], {"SIM_NODE": str(node.file)})
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        helper = exporter.helper_pid()
        if how == "stopped":
            os.kill(helper, signal.SIGSTOP)
        if how == "in a hung call":
            node.fault("nvmlDeviceGetUtilizationRates", "hang")
            time.sleep(1.2)
        exporter.process.kill()
        exporter.process.wait()
        exporter.log_file.close()
        wait_until(lambda: state_of(helper) in (None, "Z"), 5, "the helper is gone")


def test_a_helper_whose_exporter_died_before_it_began_ends_before_it_asks_the_driver():
    with run_node.SimNode("demo", kubelet=False) as node:
        node.fault("nvmlInitWithFlags", "hang")
        ours, theirs = socket.socketpair()
        ours.close()
        page = os.memfd_create("calls", 0)
        os.ftruncate(page, 4096)
        pairs = {theirs.fileno(): 3, page: 4}
        helper = subprocess.Popen([PROGRAM, "nvml", "--library", node.nvml_library], close_fds=False,
                                  env={**os.environ, "SIM_NODE": str(node.file)},
                                  preexec_fn=lambda: place_descriptors(pairs))
        theirs.close()
        os.close(page)
        try:
            assert helper.wait(5 * SLOW) == 0
        finally:
            helper.kill()
        assert node.node.calls("nvmlInitWithFlags") == 0


def test_a_suspended_machine_costs_no_gpu_and_no_helper():
    with exporter_on("demo", f"--call-deadline={SLOW}s", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("nvmlDeviceGetUtilizationRates", "delay=150")  # so that it is mostly caught in a call
        time.sleep(1.2)
        helper = exporter.helper_pid()
        for pid in (exporter.pid, helper):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.5 * SLOW)
        os.kill(exporter.pid, signal.SIGCONT)
        time.sleep(0.1)
        os.kill(helper, signal.SIGCONT)
        node.clear_faults()
        time.sleep(1.5)
        page = exporter.page()
        assert page.value("podgpu_exporter_errors_total", source="nvml", code="hung") == 0
        assert exporter.helper_pid() == helper
        assert len(page.samples(UTIL)) == 4


def test_a_frozen_exporter_goes_on_where_it_was():
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        helper = exporter.helper_pid()
        os.kill(exporter.pid, signal.SIGSTOP)
        for i in range(160):
            node.xid(31, gpu=i % 4)
            time.sleep(0.02)
        os.kill(exporter.pid, signal.SIGCONT)
        exporter.page_when(lambda p: sum(float(v) for l, v in p.samples("podgpu_gpu_xid_errors_total")
                                         if l["xid"] == "31") == 160, 10, "what happened meanwhile")
        assert exporter.helper_pid() == helper
        assert len(exporter.page().samples(UTIL)) == 4


IMPOSTOR = r"""#!/usr/bin/python3
import os, socket, struct, sys, time
s = socket.socket(fileno=3)
mode = os.path.basename(sys.argv[0])
def frame(kind, body, protocol=3):
    s.sendall(struct.pack("=IHH", len(body), kind, protocol) + body)
def sample():
    now = time.monotonic_ns()
    frame(4, struct.pack("=IIIIIIQQ", 1, 1, 1, 1, 0, 1, now, now) + struct.pack("=IHBBQq", 0, 150, 0, 1, now, 40))
if mode == "another-protocol":
    frame(1, struct.pack("=IIiI", 1, 1, os.getpid(), 0), 1)
frame(1, struct.pack("=IIiI", 3, 1, os.getpid(), 0))
if mode == "mute":
    time.sleep(60)
frame(2, struct.pack("=IiII256s80s80s256sIi128s", 0, 0, 1, 1, b"", b"1", b"1", b"/x", 0, 0, b""))
frame(3, struct.pack("=II", 1, 1) + struct.pack("=BBBBIIIIIIIIII96s96s96s32s32s", 1, 0, 0, 0, 0, 0, 0, 0xffffffff,
                                               0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0, 0,
                                               b"GPU-x", b"", b"X", b"00000000:01:00.0", b""))
sample()
if mode == "half-a-frame":
    s.sendall(struct.pack("=IHH", 100, 4, 3) + b"abc")
    time.sleep(60)
while True:
    if mode == "states":
        frame(2, struct.pack("=IiII256s80s80s256sIi128s", 0, 0, 1, 1, b"%d" % time.monotonic_ns(), b"1", b"1", b"/x",
                              0, 0, b""))
    else:
        sample()
    if mode != "flood":
        time.sleep(0.0004)
"""


@pytest.mark.parametrize("program", ["/bin/true", "/bin/cat", "another-protocol", "mute", "half-a-frame", "flood",
                                     "states"])
def test_whatever_stands_in_the_helpers_place_the_exporter_serves(tmp_path, program):
    if not program.startswith("/"):
        path = tmp_path / program
        path.write_text(IMPOSTOR)
        path.chmod(0o755)
        program = path
    exporter = Exporter(["-a", "127.0.0.1:0", "-f", ROOT / "etc" / "default-counters.csv", "--kmsg-path", "",
                         "--source-path", program])
    try:
        scraper = Scraper(exporter)
        time.sleep(0.8)
        before = size_of(exporter.pid)
        time.sleep(1.2)
        assert scraper.stop() < 0.5 * SLOW
        after = size_of(exporter.pid)
        assert after[0] <= before[0] + 3 and (SLOW > 1 or after[1] < before[1] + 600), (before, after)
        assert exporter.page().value("podgpu_exporter_helper_starts_total", source="nvml") < 8
        assert len(exporter.log) < 20000
    finally:
        status, took = exporter.stop()
    assert status == 0 and took < 2 * SLOW

# SPDX-License-Identifier: Apache-2.0
"""A driver that fails, drags, crashes or is replaced: what does not fail goes on."""
import contextlib
import time

import pytest

from harness import SLOW, exporter_on, wait_until
from source_client import ENTITIES, SAMPLE, S, Source
import run_node

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"
STOCK = [1, 100, 101, 140, 150, 155, 156, 202, 203, 204, 207, 230, 251, 252, 253, 393, 394, 395, 449, 526, 1001,
         1004, 1005, 1009, 1010]
QUICK = (S // 20,) * 4


@contextlib.contextmanager
def source_on(scenario, *arguments, **options):
    """A node and a source on it: yields (node, source)."""
    with run_node.SimNode(scenario, kubelet=False, **options) as node:
        with Source("--library", node.nvml_library, "--kmsg", "", *arguments,
                    env={"SIM_NODE": str(node.file)}) as source:
            yield node, source


class Board:
    """What an exporter would know: the last status or value of each field of each GPU."""

    def __init__(self, source):
        self.source = source
        self.entities = []
        self.known = {}
        self.samples = 0

    def watch(self, seconds, until=lambda: False):
        """Reads frames for so long, or until the condition holds; returns whether it does."""
        end = time.monotonic() + seconds
        while not until():
            try:
                kind, frame = self.source.read_frame(end)
            except TimeoutError:
                return until()
            if kind == ENTITIES:
                self.entities = frame[1]
            elif kind == SAMPLE:
                self.samples += 1
                for r in frame.records:
                    self.known[self.entities[r.entity].index, r.field] = r.status
        return True

    def missing(self, gpu=None):
        return {k: v for k, v in self.known.items() if v != "ok" and gpu in (None, k[0])}


CODES = {1: "vendor_error", 6: "no_data", 7: "vendor_error", 9: "vendor_error", 10: "vendor_error",
         12: "vendor_error", 18: "vendor_error", 21: "no_data", 999: "vendor_error"}
FINAL = {2: "not_supported", 3: "not_supported", 4: "no_permission", 13: "no_symbol", 25: "no_symbol"}
OF_THE_GPU = {15: "lost"}
# A function, a field that comes from it, another that does not, and what is tried.
FUNCTIONS = [("nvmlDeviceGetPowerUsage", 155, 150, {**CODES, **FINAL, **OF_THE_GPU}),
             ("nvmlDeviceGetUtilizationRates", 203, 155, {**CODES, **FINAL}),
             ("nvmlDeviceGetFieldValues", 156, 155, {**CODES, **FINAL}),
             ("nvmlGpmSampleGet", 1001, 155, {**CODES, **FINAL})]


@pytest.mark.parametrize("symbol, field, other, codes", FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_whatever_a_function_answers_it_costs_that_gpu_that_field(symbol, field, other, codes):
    with source_on("h100x8") as (node, source):
        source.state("ready", 10 * SLOW)
        source.watch(STOCK, QUICK)
        board = Board(source)
        assert board.watch(5 * SLOW, lambda: board.samples > 3 and board.known.get((7, 1001)) == "ok")
        healthy = {k for k, v in board.known.items() if v == "ok"}
        opened = node.node.calls("nvmlInitWithFlags")
        given_up = set()  # what is final is asked again after a minute only
        for gpu, (code, status) in enumerate(codes.items()):
            gpu = 7 - len(given_up) if code in FINAL else gpu % 3
            node.fault(symbol, f"return={code}", gpu=gpu)
            assert board.watch(5 * SLOW, lambda: board.known[gpu, field] == status), (code, board.known[gpu, field])
            before = board.samples
            assert board.watch(5 * SLOW, lambda: board.samples > before + 2)
            wrong = {k: board.known[k] for k in healthy
                     if k[0] not in {gpu, *given_up} and board.known[k] != "ok"}
            assert not wrong, (code, wrong)
            assert code in OF_THE_GPU or board.known[gpu, other] == "ok"
            node.clear_faults()
            if code in OF_THE_GPU:  # it comes back at a walk
                assert board.watch(20 * SLOW, lambda: all(e.state == "up" for e in board.entities)), code
            if code in FINAL:
                given_up.add(gpu)
            else:
                assert board.watch(5 * SLOW, lambda: board.known[gpu, field] == "ok"), (code, board.known[gpu, field])
        # No single function has the driver opened anew; a lost GPU may.
        assert node.node.calls("nvmlInitWithFlags") - opened <= (15 in codes)
        assert source.process.poll() is None


def test_a_gpu_that_fails_at_everything_is_failed_until_it_answers():
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("*", "return=999", gpu=2)
        page = exporter.page_when(lambda p: p.value("podgpu_gpu_up", gpu="2") == 0, what="down")
        assert [l["reason"] for l, _ in page.samples("podgpu_gpu_state_info")] == ["failed"]
        assert sorted(l["gpu"] for l, _ in page.samples(UTIL)) == ["0", "1", "3"]
        node.clear_faults()
        exporter.page_when(lambda p: p.value("podgpu_gpu_up", gpu="2") == 1 and len(p.samples(UTIL)) == 4, 15, "up again")


@pytest.mark.parametrize("code, reason", [(18, "mismatch"), (9, "no_driver"), (1, "failed")])
def test_a_driver_that_goes_while_we_run_is_named_and_opened_again_when_it_is_back(code, reason):
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("*", f"return={code}")
        page = exporter.page_when(lambda p: {l["reason"] for l, _ in p.samples("podgpu_gpu_state_info")} == {reason},
                                  what=reason)
        assert {v for _, v in page.samples("podgpu_gpu_up")} == {"0"} and not page.samples(UTIL)
        time.sleep(2.5)
        assert node.node.calls("nvmlInitWithFlags") < 10  # with backoff
        node.clear_faults()
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4 and {v for _, v in p.samples("podgpu_gpu_up")} == {"1"},
                           20, "back")


def test_one_slow_gpu_slows_no_other():
    with source_on("h100x8") as (node, source):
        source.state("ready", 10 * SLOW)
        source.watch(STOCK, (S // 2, S, S, S))
        board = Board(source)
        assert board.watch(5 * SLOW, lambda: board.known.get((7, 1001)) == "ok")
        node.fault("*", "delay=400", gpu=3)
        board.watch(1)
        seen, stamps = set(), []
        end = time.monotonic() + 6
        while time.monotonic() < end:
            sample = source.sample(5 * SLOW)
            seen |= {r.field for r in sample.records if r.entity == 3 and r.status == "ok"}
            if any(r.entity == 5 and r.field == 155 for r in sample.records):
                stamps.append(sample.started_ns)
        gaps = [(b - a) / S for a, b in zip(stamps, stamps[1:])]
        assert len(stamps) > 6 / SLOW and max(gaps) < 2.5 * SLOW, gaps
        assert {100, 150, 155, 203, 156} <= seen  # it has its turn, too


def test_a_call_that_crashes_its_process_is_left_alone_on_that_gpu():
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_ENC_UTIL")) == 4)
        node.fault("nvmlDeviceGetEncoderUtilization", "crash", gpu=1, count=1000)
        def avoided(page):
            return any((l["field"], l["reason"], l["gpu"]) == ("DCGM_FI_DEV_ENC_UTIL", "avoided", "1")
                       for l, _ in page.samples("podgpu_exporter_field_unavailable_info"))
        page = exporter.page_when(avoided, 20, "the call is left alone")
        assert page.value("podgpu_exporter_errors_total", source="nvml", code="crashed") == 2
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4, what="all go on")
        assert sorted(l["gpu"] for l, _ in page.samples("DCGM_FI_DEV_ENC_UTIL")) == ["0", "2", "3"]
        assert "again and again" in exporter.log


def test_a_wait_for_events_that_hangs_costs_the_events_alone():
    with exporter_on("demo", f"--call-deadline={SLOW}s", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("nvmlEventSetWait_v2", "hang")
        wait_until(lambda: "again and again" in exporter.log, 30, "it is left alone")
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4 and {v for _, v in p.samples("podgpu_gpu_up")} == {"1"},
                           20, "samples go on")

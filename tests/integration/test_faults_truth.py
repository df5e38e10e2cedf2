# SPDX-License-Identifier: Apache-2.0
"""Every number is the driver's, at the time it carries: all fields of eight H100, GPM means and NVLink rates too; and
none outlives its age or its GPU."""
import os
import time

import pytest

from harness import SLOW, exporter_on
from source_client import S, Source
from test_faults_driver import source_on

MIB = 1 << 20
SECONDS = float(os.environ.get("PODGPU_TRUTH_SECONDS", "5"))


def whole(value):
    return value


def mib(value):
    return value // MIB


def watts(value):
    return value / 1000


def whole_watts(value):
    return float(value // 1000)


# DCGM field: the driver's signal and DCGM's arithmetic.
SIGNALS = {
    100: ("sm_clock_mhz", whole), 101: ("memory_clock_mhz", whole), 102: ("video_clock_mhz", whole),
    110: ("app_sm_clock_mhz", whole), 111: ("app_memory_clock_mhz", whole), 112: ("clocks_event_reasons", whole),
    113: ("max_sm_clock_mhz", whole), 114: ("max_memory_clock_mhz", whole), 115: ("max_video_clock_mhz", whole),
    140: ("memory_temperature_c", whole), 150: ("temperature_c", whole), 151: ("max_memory_temperature_c", whole),
    152: ("max_temperature_c", whole), 153: ("margin_temperature_c", whole), 155: ("power_mw", watts),
    156: ("energy_mj", whole), 158: ("slowdown_temperature_c", whole), 159: ("shutdown_temperature_c", whole),
    160: ("power_limit_mw", whole_watts), 161: ("min_power_limit_mw", whole_watts),
    162: ("max_power_limit_mw", whole_watts), 163: ("default_power_limit_mw", whole_watts),
    164: ("enforced_power_limit_mw", whole_watts), 190: ("pstate", whole), 202: ("pcie_replays", whole),
    203: ("gpu_percent", whole), 204: ("memory_percent", whole), 207: ("decoder_percent", whole),
    235: ("max_pcie_generation", whole), 236: ("max_pcie_width", whole), 237: ("pcie_generation", whole),
    238: ("pcie_width", whole), 240: ("violation_power_ns", whole), 241: ("violation_thermal_ns", whole),
    242: ("violation_sync_boost_ns", whole), 243: ("violation_board_limit_ns", whole),
    244: ("violation_low_utilization_ns", whole), 245: ("violation_reliability_ns", whole),
    246: ("violation_app_clocks_ns", whole), 247: ("violation_base_clocks_ns", whole),
    250: ("memory_total_bytes", mib), 253: ("memory_reserved_bytes", mib), 300: ("ecc_mode", whole),
    301: ("ecc_pending", whole), 310: ("ecc_sbe_volatile", whole), 311: ("ecc_dbe_volatile", whole),
    312: ("ecc_sbe_aggregate", whole), 313: ("ecc_dbe_aggregate", whole), 391: ("retired_dbe_pages", whole),
    393: ("remapped_uncorrectable_rows", whole), 394: ("remapped_correctable_rows", whole),
    395: ("remap_failure", whole), 396: ("remap_pending", whole),
}
# GPM: percent signals become ratios, counters bytes a second. 1001 is the load itself.
MEANS = {1002: ("gpm_sm_percent", 0.01), 1003: ("gpm_sm_occupancy_percent", 0.01),
         1004: ("gpm_tensor_percent", 0.01), 1005: ("gpm_dram_percent", 0.01), 1006: ("gpm_fp64_percent", 0.01),
         1007: ("gpm_fp32_percent", 0.01), 1008: ("gpm_fp16_percent", 0.01), 1009: ("pcie_tx_bytes", 1),
         1010: ("pcie_rx_bytes", 1), 1011: ("nvlink_tx_kib", 1024), 1012: ("nvlink_rx_kib", 1024)}
# NVLink rates: DCGM's MB/s of the growth in KiB between two readings.
RATES = {449: ("nvlink_tx_kib", "nvlink_rx_kib"), 843: ("nvlink_tx_kib",), 897: ("nvlink_rx_kib",)}


class Clock:
    """The scenario's time at a time of CLOCK_MONOTONIC, from the closest of many looks at both clocks."""

    def __init__(self, node):
        looks = []
        for _ in range(200):
            before = time.monotonic_ns()
            now = node.now()
            looks.append((time.monotonic_ns() - before, now - before))
        self.slack, self.offset = min(looks)

    def __call__(self, mono_ns):
        return mono_ns + self.offset


def test_every_value_of_eight_h100_is_the_drivers_at_its_time():
    with source_on("h100x8") as (node, source):
        source.state("ready", 10 * SLOW)
        period = S // 4
        source.watch([*SIGNALS, 251, 252, 1001, *MEANS, *RATES], (period,) * 4)
        at, n = Clock(node.node), node.node
        before = {}  # (entity, field): time of the last value
        checked, last = {}, {}
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            sample = source.sample()
            last = {}
            for r in sample.records:
                if r.status != "ok":
                    absent = r.field in SIGNALS and n.truth(r.entity, SIGNALS[r.field][0]) is None
                    assert absent or r.field in (1001, *MEANS, *RATES), (r.field, r.status)
                    continue
                t = at(r.taken_ns)
                checked[r.field] = checked.get(r.field, 0) + 1
                last[r.entity, r.field] = r
                begin = before.get((r.entity, r.field))
                before[r.entity, r.field] = t
                check(n, r, at(sample.started_ns) - at.slack, t + at.slack, begin)
        assert set(checked) == {*SIGNALS, 251, 252, 1001, *MEANS, *RATES} - {391}  # HBM remaps rows, retires no page
        assert min(checked.values()) >= 8 * (SECONDS / 0.25 - 4) / SLOW


def check(n, r, earliest, t, begin):
    gpu, field = r.entity, r.field
    if field in SIGNALS:
        name, convert = SIGNALS[field]
        # Nobody knows when in the call the driver looked: the truth at some time of the pass.
        span = t - earliest
        truths = [convert(n.truth(gpu, name, earliest + span * i // 8)) for i in range(9)]
        assert min(truths) <= r.value <= max(truths), (field, gpu, r.value, truths)
    elif field in (251, 252):
        used = [n.memory(gpu, at)[2 if field == 252 else 3] // MIB for at in (earliest, t)]
        assert r.value in used, (field, gpu)
    elif begin is not None and field == 1001:
        assert r.value == pytest.approx(n.busy_us(gpu, begin, t) * 1000 / (t - begin), abs=0.02 * SLOW)
    elif begin is not None and field in MEANS:
        name, factor = MEANS[field]
        want = n.mean(gpu, name, begin, t) * factor
        assert r.value == pytest.approx(want, rel=0.02 * SLOW, abs=0.005 if factor == 0.01 else 1000), (field, gpu)
    elif begin is not None and field in RATES:
        want = sum(n.mean(gpu, name, begin, t) for name in RATES[field]) / 1000
        assert r.value == pytest.approx(want, rel=0.02 * SLOW, abs=1), (field, gpu)


def test_no_reading_outlives_its_gpu_and_evidence_does():
    with exporter_on("h100x8", kubernetes=False) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 8, what="all there")
        families = [f for f in page.device_families()]
        uuid = node.node.uuid(5)
        node.xid(79, gpu=5)
        node.set("gpu5.lost", 1)
        page = exporter.page_when(lambda p: p.value("podgpu_gpu_up", UUID=uuid) == 0, what="lost")
        left = [f for f in families if any(l["UUID"] == uuid for l, _ in page.samples(f))]
        assert left in (["DCGM_FI_DEV_XID_ERRORS"], [])
        assert all(len({l["UUID"] for l, _ in page.samples(f)} | {uuid}) == 8 for f in families)


def test_ages_are_told_and_values_end_after_15_seconds_of_silence():
    with exporter_on("demo", kubernetes=False) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_GPU_UTIL")) == 4)
        silent = time.monotonic()
        node.fault("*", "hang")  # nothing answers any more, the deadline is 10 s
        page = exporter.page_when(lambda p: not p.samples("DCGM_FI_DEV_GPU_UTIL"), 20, "values are gone")
        took = time.monotonic() - silent
        assert took < 16 + 4 * SLOW
        assert set(v for _, v in page.samples("podgpu_gpu_up")) == {"0"}
        stamp = float(page.samples("podgpu_exporter_last_sample_timestamp_seconds")[0][1])
        assert took - 3 * SLOW <= time.time() - stamp <= took + 3 * SLOW

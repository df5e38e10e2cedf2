# SPDX-License-Identifier: Apache-2.0
"""podgpu-source alone, on the simulated node: what it says, what it calls, and how it takes faults."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from harness import BUILD, SLOW, wait_until
from source_client import (ENTITIES, EVENTS, FAST, HELLO, MEDIUM, NONE32, PROGRAM, PROTOCOL, S, SAMPLE, SLOW as SLOW_CLASS,
                           STATE, STATIC, Closed, Source)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sim"))
import run_node  # noqa: E402

STOCK = [1, 100, 101, 140, 150, 155, 156, 202, 203, 204, 206, 207, 230, 251, 252, 253, 393, 394, 395, 449, 526, 1001,
         1004, 1005, 1009, 1010]
QUICK = (S // 10, S // 10, S // 10, S)  # periods for tests that count samples rather than seconds


TWO_A10G = """
driver: {version: 535.183.01, cuda: 12020, reinit_after_loss: %d}
models: models.yaml
gpus:
  - {model: a10g, uuid: GPU-4f1e2d3c-0000-4a5b-8c6d-7e8f9a0b1c00, bus_id: "00000000:00:1D.0"}
  - {model: a10g, uuid: GPU-4f1e2d3c-0000-4a5b-8c6d-7e8f9a0b1c01, bus_id: "00000000:00:1E.0"}
"""


@contextlib.contextmanager
def source_on(scenario, *arguments, kmsg=False, **options):
    """A node and a source on it: yields (node, source)."""
    with run_node.SimNode(scenario, kubelet=False, **options) as node:
        base = ["--library", node.nvml_library, "--kmsg", node.kmsg_path if kmsg else ""]
        with Source(*base, *arguments, env={"SIM_NODE": str(node.file)}) as source:
            yield node, source


def ready(source):
    return source.state("ready", 10 * SLOW)


def scenario_time(node, mono_ns, late):
    """The scenario's time at mono_ns; two clocks are read one after the other, so a little late or a little early."""
    if late:
        mono = time.monotonic_ns()
        return node.node.now() - (mono - mono_ns)
    return node.node.now() - (time.monotonic_ns() - mono_ns)


# --- what it says ---

@pytest.mark.smoke
def test_it_says_hello_state_and_entities_before_it_is_asked(tmp_path):
    with source_on("post") as (node, source):
        assert source.next(HELLO) == (PROTOCOL, 1, source.process.pid, 0)
        state = source.next(STATE)
        assert state.code == "ready" and state.text == "" and state.vendor_code == 0
        assert state.driver_version == "470.182.03" and state.library_version == "11.470.182.03"
        assert state.library_path == node.nvml_library
        assert (state.xid_events_armed, state.kmsg_armed) == (1, 0)
        [gpu] = source.entities()
        assert (gpu.kind, gpu.state, gpu.index, gpu.parent, gpu.minor) == (1, "up", 0, 0, 0)
        assert (gpu.uuid, gpu.name, gpu.bus_id) == (node.node.uuid(0), "NVIDIA A10G", "00000000:00:1E.0")
        assert (gpu.gpm, gpu.mig_enabled, gpu.total_slices) == (0, 0, 0)
        assert (gpu.gpu_instance_id, gpu.instance_entity_id) == (NONE32, NONE32)


@pytest.mark.smoke
def test_the_posts_node_has_the_posts_numbers():
    with source_on("post") as (_, source):
        ready(source)
        source.watch(STOCK + [50, 53, 54, 57, 85, 56, 80, 81, 82, 160, 161, 164, 190, 250, 254])
        sample = source.sample()
        want = {1: "470.182.03", 50: "NVIDIA A10G", 53: "1324121068497", 57: "00000000:00:1E.0", 85: "94.02.75.00.01",
                54: "GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", 56: "2.0", 80: "6.16", 82: "G133.0210.00.04",
                100: 1455, 101: 6250, 150: 65, 155: 299.437, 156: 15782796862, 160: 300.0, 161: 100.0, 164: 300.0,
                190: 0, 202: 0, 203: 100, 204: 38, 206: 0, 207: 0, 230: 0, 250: 22731, 251: 2230, 252: 20501,
                254: 20501 / 22731, 393: 0, 394: 0, 395: 0, 449: 0, 526: 0, 140: "not_supported", 253: "not_supported",
                1001: "needs_gpm", 1004: "needs_gpm", 1005: "needs_gpm", 1009: "needs_gpm", 1010: "needs_gpm"}
        assert {f: sample.get(f) for f in want} == want


def test_moving_values_are_the_drivers_at_the_time_they_carry():
    with source_on("h100x8") as (node, source):
        ready(source)
        source.watch([100, 101, 155, 156, 240], QUICK)
        names = {100: "sm_clock_mhz", 101: "memory_clock_mhz", 156: "energy_mj", 240: "violation_power_ns"}
        for _ in range(5):
            sample = source.sample()
            for record in sample.records:
                if record.status != "ok" or record.field not in names:
                    continue
                after = scenario_time(node, record.taken_ns, True)
                before = scenario_time(node, sample.started_ns, False)
                low = node.node.truth(record.entity, names[record.field], before)
                high = node.node.truth(record.entity, names[record.field], after)
                assert min(low, high) <= record.value <= max(low, high)


def test_values_come_each_period_and_statuses_once():
    with source_on("post") as (_, source):
        ready(source)
        source.watch([140, 155, 1001, 60], QUICK)
        first, second = source.sample(), source.sample()
        assert first.get(140) == "not_supported" and first.get(1001) == "needs_gpm" and first.get(60) == "needs_dcgm"
        assert second.get(155) == 299.437
        assert [r.field for r in second.records] == [155]
        source.watch([140, 155], QUICK)
        again = source.sample(where=lambda s: s.watch_id == 2)
        assert again.get(140) == "not_supported"


def test_classes_come_at_multiples_of_their_period_in_one_frame():
    with source_on("post") as (_, source):
        ready(source)
        source.watch([155, 202, 66, 53], (S // 5, S // 5 * 2, S // 5 * 4, 600 * S))
        first = source.sample()
        assert first.classes == 0b1111
        for _ in range(6):
            sample = source.sample()
            tick = round(sample.started_ns / (S // 5))
            assert abs(sample.started_ns - tick * (S // 5)) < S // 20 * SLOW
            want = 1 | (tick % 2 == 0) << MEDIUM | (tick % 4 == 0) << SLOW_CLASS
            assert sample.classes == want
            assert sample.started_ns <= min(r.taken_ns for r in sample.records)
            assert max(r.taken_ns for r in sample.records) <= sample.ended_ns
        assert (FAST, STATIC) == (0, 3)


# --- what it calls ---

def test_a_fast_sample_of_the_stock_counters_is_nine_calls_a_gpu():
    with source_on("post") as (node, source):
        ready(source)
        source.watch(STOCK)
        source.sample()
        fast = [source.sample(where=lambda s: s.classes == 1) for _ in range(2)]
        assert [s.vendor_calls for s in fast] == [9, 9]
        counts = {name: calls for name, (calls, _) in node.counts().items() if calls}
        assert "nvmlDeviceGetPcieThroughput" not in counts  # blocks for 20 ms
        for name in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues"):
            assert counts[name] <= 2 * 4 + 2


def test_nothing_but_events_and_the_walk_is_called_without_a_watch():
    with source_on("h100x8") as (node, source):
        ready(source)
        source.entities()
        time.sleep(0.3)
        node.reset_counts()
        before = source.calls()
        time.sleep(2.5)
        counts = {name: calls for name, (calls, _) in node.counts().items() if calls}
        counts.pop("nvmlDeviceGetUUID", 0)
        counts.pop("nvmlDeviceGetMigMode", 0)
        assert set(counts) == {"nvmlEventSetWait_v2"} and 2 <= counts["nvmlEventSetWait_v2"] <= 3
        assert source.calls() - before <= 3 + 16


def test_a_first_complete_page_with_gpm_takes_a_fifth_of_a_second():
    with source_on("h100x8") as (_, source):
        ready(source)
        begun = time.monotonic()
        source.watch(STOCK)
        first = source.sample()
        assert all(first.get(1001, gpu) == "no_data" for gpu in range(8))
        second = source.sample(where=lambda s: s.has(1001, 7) and isinstance(s.get(1001, 7), float))
        assert time.monotonic() - begun < 0.2 * SLOW
        assert all(isinstance(second.get(field, gpu), float) for field in (1001, 1004, 1005) for gpu in range(8))
        assert second.started_ns - first.started_ns >= 100_000_000


def test_gpm_is_the_mean_of_the_window_and_one_call_a_pair():
    with source_on("h100x8") as (node, source):
        ready(source)
        source.watch([1001, 1002, 1005, 1009, 1012], QUICK)
        fields = {1002: ("gpm_sm_percent", 1 / 100), 1005: ("gpm_dram_percent", 1 / 100), 1009: ("pcie_tx_bytes", 1),
                  1012: ("nvlink_rx_kib", 1024)}
        # GPUs 4 and 5 have a constant load, so the mean is the same in any window.
        for _ in range(3):
            last = source.sample(where=lambda s: s.has(1001, 7))
        assert last.get(1001, 4) == 0.25 and last.get(1001, 5) == 0.5
        at = node.node.now()
        for field, (name, factor) in fields.items():
            want = node.node.mean(4, name, at - S // 20, at) * factor
            assert last.get(field, 4) == pytest.approx(want, rel=1e-6, abs=1)
        assert last.vendor_calls == 8 * 2  # a sample and the metrics of the pair


def test_nvlink_rate_is_dcgms():
    with source_on("h100x8") as (node, source):
        ready(source)
        source.watch([449, 843, 897, 440], (S // 2, S, S, S))
        assert source.sample().get(449, 4) == "no_data"
        sample = source.sample(where=lambda s: s.has(449, 4))
        at = node.node.now()
        tx, rx = (node.node.mean(4, f"nvlink_{d}_kib", at - S // 20, at) for d in ("tx", "rx"))
        assert sample.get(449, 4) == pytest.approx((tx + rx) / 1000, rel=0.02)
        assert sample.get(843, 4) == pytest.approx(tx / 1000, rel=0.02)
        assert sample.get(897, 4) == pytest.approx(rx / 1000, rel=0.02)


# --- MIG ---

def test_mig_instances_stand_behind_their_gpu_with_values_of_their_own():
    with source_on("mig") as (node, source):
        ready(source)
        entities = source.entities()
        truth = node.node.instances()
        want = sorted({(i["gi"], i["profile"].split("c.")[-1], i["slices"]) for i in truth})
        have = [e for e in entities if not e.is_gpu]
        assert sorted((e.gpu_instance_id, e.profile, e.slices) for e in have) == want
        assert len(entities) == 2 + len(want) and len(truth) == len(want) + 1  # one has two compute instances
        assert all(e.parent == 0 and e.index == 0 and e.total_slices == 7 and e.gpm == 1 for e in have)
        assert [e.instance_entity_id for e in have] == list(range(len(have)))
        assert all(e.legacy_uuid == f"MIG-{node.node.uuid(0)}/{e.gpu_instance_id}/0" for e in have)
        assert {e.uuid for e in have} <= {i["uuid"] for i in truth}
        assert entities[0].mig_enabled == 1 and entities[-1].is_gpu and entities[-1].mig_enabled == 0

        source.watch([50, 54, 150, 203, 250, 251, 252, 1001, 1005, 1009], QUICK)
        first = source.sample()
        sample = source.sample(where=lambda s: s.has(1001, 1))
        sample = source.sample(where=lambda s: s.has(1001, 1))
        for position, entity in enumerate(entities[:-1]):
            if entity.is_gpu:
                continue
            index = next(i["index"] for i in truth if i["gi"] == entity.gpu_instance_id)
            total, _, used, free = (v // 1048576 for v in node.node.memory(0, instance=index))
            assert [sample.get(f, position) for f in (250, 251, 252)] == [total, free, used]
            assert first.get(50, position) == entity.profile and first.get(54, position) == entity.uuid
            assert not sample.has(150, position) and not sample.has(1009, position)
        by_gi = {e.gpu_instance_id: i for i, e in enumerate(entities) if not e.is_gpu}
        assert sample.get(1001, by_gi[1]) == 1.0 and sample.get(1001, by_gi[7]) == 0.25
        assert sample.get(150, 0) == node.node.truth(0, "temperature_c")
        assert first.get(203, 0) == "not_supported"


def test_a_new_mig_layout_is_followed_while_running():
    with source_on("mig") as (node, source):
        ready(source)
        before = source.entities()
        source.watch([252, 1001], QUICK)
        source.sample(where=lambda s: s.has(1001, 1) and isinstance(s.get(1001, 1), float))
        node.command("mig gpu=0 layout=1g.10gb,1g.10gb force")
        after = source.entities(10 * SLOW, where=lambda e: e != before)
        assert [e.profile for e in after if not e.is_gpu] == ["1g.10gb", "1g.10gb"]
        sample = source.sample(where=lambda s: s.has(1001, 1) and isinstance(s.get(1001, 1), float))
        assert sample.get(252, 1) == 0
        assert source.process.poll() is None


# --- a driver that is not there, or old ---

@pytest.mark.parametrize("code, state", [(9, "no_driver"), (12, "no_library"), (18, "mismatch"), (4, "no_permission"),
                                         (999, "failed")])
def test_a_driver_that_does_not_start_is_named_and_tried_again(code, state):
    with run_node.SimNode("post", kubelet=False) as node:
        node.set("driver.init_return", code)
        with Source("--library", node.nvml_library, env={"SIM_NODE": str(node.file)}) as source:
            source.watch([155])
            said = source.next(STATE)
            assert (said.code, said.vendor_code) == (state, code) and len(said.text) > 20
            node.set("driver.init_return", 0)
            assert ready(source).text == ""
            assert source.entities()[0].state == "up"
            assert source.sample().get(155) == 299.437


def test_without_a_library_it_says_so_and_lives(tmp_path):
    with Source("--library", tmp_path / "none.so") as source:
        state = source.next(STATE)
        assert state.code == "no_library" and "none.so" in state.text
        time.sleep(0.3)
        assert source.process.poll() is None


def test_a_library_that_appears_is_found(tmp_path):
    with run_node.SimNode("post", kubelet=False) as node:
        library = tmp_path / "libnvidia-ml.so.1"
        with Source("--library", library, env={"SIM_NODE": str(node.file)}) as source:
            assert source.next(STATE).code == "no_library"
            library.symlink_to(node.nvml_library)
            ready(source)


def test_a_library_that_is_none_is_refused(tmp_path):
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_text("not a library")
    with Source("--library", library) as source:
        assert source.next(STATE).code == "failed"


def test_an_old_driver_gives_what_it_has():
    with source_on("old-driver") as (node, source):
        state = ready(source)
        assert state.driver_version == "450.80.02"
        source.watch(STOCK + [50, 112, 240, 1523, 157, 153, 175])
        sample = source.sample()
        assert sample.get(150) == node.node.truth(0, "temperature_c")
        assert sample.get(112) == node.node.truth(0, "clocks_event_reasons")
        total, reserved, used, _ = (v // 1048576 for v in node.node.memory(0))
        assert sample.get(252) == used + reserved  # this generation counts it so
        assert sample.get(253) == "not_supported"
        assert sample.get(1523) == "not_supported"  # the driver leaves ids that it doesn't know untouched
        assert sample.get(157) == "not_supported"
        assert sample.get(153) == "no_symbol" and sample.get(175) == "no_symbol"
        assert sample.get(1001) == "needs_gpm"


@pytest.mark.parametrize("way", [0, 1, 2])
def test_field_ids_the_driver_does_not_know_cost_only_themselves(way):
    with source_on("old-driver") as (node, source):
        node.set("driver.unknown_fields", way)
        ready(source)
        source.watch([156, 157, 310, 1523, 1400], QUICK)
        sample = source.sample()
        assert isinstance(sample.get(156), int) and isinstance(sample.get(310), int)
        assert sample.get(157) == "not_supported" and sample.get(1523) == "not_supported"
        source.sample()
        node.reset_counts()
        source.sample()
        calls = node.counts()["nvmlDeviceGetFieldValues"][0]
        assert calls in (2, 4)  # one a class


# --- GPUs that are lost, and come back ---

@pytest.mark.faults
def test_a_lost_gpu_is_marked_and_the_others_go_on():
    with source_on("h100x8") as (node, source):
        ready(source)
        source.entities()
        source.watch([50, 150, 155, 230], QUICK)
        source.sample()
        node.xid(79, gpu=1, only="nvml")
        node.set("gpu1.lost", 1)
        [event] = source.events()
        assert (event.entity, event.xid, event.origin, event.gpu_instance_id, event.text) == (1, 79, "nvml", NONE32, "")
        entities = source.entities(where=lambda e: e[1].state == "lost")
        assert entities[1].uuid == node.node.uuid(1) and entities[1].name == "NVIDIA H100 80GB HBM3"
        assert [e.state for e in entities] == ["up", "lost"] + ["up"] * 6
        sample = source.sample(where=lambda s: s.has(150, 1))
        assert sample.get(150, 1) == "lost" and sample.get(155, 1) == "lost" and sample.get(50, 1) == "lost"
        sample = source.sample(where=lambda s: s.has(230, 1) and s.get(230, 1) == 79)
        assert sample.get(230, 0) == 0 and sample.get(150, 0) == node.node.truth(0, "temperature_c")
        sample = source.sample(where=lambda s: s.started_ns > sample.started_ns)
        assert sample.vendor_calls == 7 * 2


@pytest.mark.faults
@pytest.mark.parametrize("sticky", [0, 1])
def test_a_lost_gpu_that_is_back_is_found_and_reopened_where_that_is_needed(sticky):
    with source_on("post", text=TWO_A10G % sticky) as (node, source):
        ready(source)
        source.watch([150], QUICK)
        node.set("gpu1.lost", 1)
        source.entities(10 * SLOW, where=lambda e: e[1].state == "lost")
        node.set("gpu1.lost", 0)
        back = source.entities(25 * SLOW, where=lambda e: e[1].state == "up")
        assert [e.uuid for e in back] == [node.node.uuid(0), node.node.uuid(1)]
        assert node.node.calls("nvmlInitWithFlags") == 1 + sticky
        assert source.sample(where=lambda s: s.has(150, 1) and s.get(150, 1) == 31)


@pytest.mark.faults
def test_when_all_are_lost_the_driver_is_opened_again_soon():
    with source_on("post") as (node, source):
        ready(source)
        source.watch([150], QUICK)
        source.sample()
        node.set("gpu0.lost", 1)
        source.entities(where=lambda e: e[0].state == "lost")
        lost = node.node.calls("nvmlShutdown")
        wait_until(lambda: node.node.calls("nvmlShutdown") > lost, 5, "the driver is opened again")
        node.set("gpu0.lost", 0)
        assert source.entities(10 * SLOW, where=lambda e: e[0].state == "up")[0].uuid == node.node.uuid(0)
        assert source.sample(where=lambda s: s.has(150) and s.get(150) == 65)


@pytest.mark.faults
def test_a_gpu_that_needs_a_reset_says_so():
    with source_on("post") as (node, source):
        ready(source)
        source.watch([150], QUICK)
        node.set("gpu0.reset_required", 1)
        assert source.entities(where=lambda e: e[0].state == "reset_required")
        assert source.sample(where=lambda s: s.has(150) and s.get(150) == "vendor_error")
        node.set("gpu0.reset_required", 0)
        assert source.entities(15 * SLOW, where=lambda e: e[0].state == "up")


@pytest.mark.faults
def test_gpus_are_counted_again_when_device_files_come(tmp_path):
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    with source_on("post", "--device-dir", tmp_path) as (node, source):
        ready(source)
        source.entities()
        before = node.node.calls("nvmlInitWithFlags")
        (tmp_path / "nvidia1").touch()
        wait_until(lambda: node.node.calls("nvmlInitWithFlags") > before, 10, "the driver is opened again")
        assert source.entities()[0].state == "up"
        (tmp_path / "nvidia-caps").touch()  # none of a GPU
        node.reset_counts()
        time.sleep(0.1)


def test_one_failing_call_costs_one_field():
    with source_on("post") as (node, source):
        ready(source)
        node.fault("nvmlDeviceGetPowerUsage", "return=999")
        source.watch([150, 155], QUICK)
        sample = source.sample()
        assert sample.get(155) == "vendor_error" and sample.get(150) == 65
        assert [r.value for r in sample.records if r.field == 155] == [999]
        node.clear_faults()
        assert source.sample(where=lambda s: s.has(155)).get(155) == 299.437


# --- XIDs ---

@pytest.mark.threads
def test_an_xid_of_driver_and_kernel_is_told_once_with_both_ones_knowledge():
    with source_on("mig", kmsg=True) as (node, source):
        assert ready(source).kmsg_armed == 1
        entities = source.entities()
        source.watch([230], QUICK)
        assert {source.sample().get(230, i) for i in range(len(entities))} == {0}
        node.xid(43, gpu=0, gi=7)
        [event] = source.events()
        assert (event.entity, event.origin, event.xid, event.gpu_instance_id) == (0, "nvml", 43, 7)
        assert event.text.startswith("Xid (PCI:0000:1b:00): 43, ") or event.text.startswith("Xid (PCI:0000:1B:00): 43, ")
        assert abs(event.wall_ns - time.time_ns()) < 10 * S * SLOW
        sample = source.sample(where=lambda s: s.get(230, 0) == 43)
        of = {e.gpu_instance_id: sample.get(230, i) for i, e in enumerate(entities) if e.index == 0}
        assert of[7] == 43 and of[1] == 0 and of[8] == 0
        with pytest.raises(TimeoutError):
            source.events(timeout=1.5)


@pytest.mark.threads
def test_a_burst_is_counted_to_the_last():
    with source_on("post", kmsg=True) as (node, source):
        ready(source)
        for _ in range(5):
            node.xid(31)
        told = 0
        while told < 5:
            for event in source.events(5 * SLOW):
                assert event.xid == 31
                told += event.count
        assert told == 5
        with pytest.raises(TimeoutError):
            source.events(timeout=2)


@pytest.mark.threads
def test_what_the_kernel_alone_says_is_told_after_a_moment():
    with source_on("post", kmsg=True) as (node, source):
        ready(source)
        node.xid(119, only="kmsg")
        begun = time.monotonic()
        [event] = source.events(5 * SLOW)
        assert time.monotonic() - begun > 0.9
        assert (event.origin, event.xid, event.gpu_instance_id) == ("kmsg", 119, NONE32)
        assert "Timeout waiting for RPC from GSP!" in event.text
        node.write_kmsg("NVRM: Xid (PCI:0000:00:1e): 79, written by a program", priority=14)
        node.write_kmsg("NVRM: Xid (PCI:0000:77:00): 79, of a GPU we do not have")
        with pytest.raises(TimeoutError):
            source.events(timeout=1.7)


# --- hangs, crashes, ends ---

@pytest.mark.threads
@pytest.mark.faults
def test_a_call_that_hangs_stands_in_the_page_and_the_kernels_word_still_comes():
    with source_on("post", text=TWO_A10G % 0, kmsg=True) as (node, source):
        ready(source)
        source.watch([150, 155], QUICK)
        source.sample()
        assert source.call_in_flight()[0] == 0 or source.call_in_flight()[2].startswith("nvml")
        node.fault("nvmlDeviceGetPowerUsage", "hang", gpu=1)
        asked = time.monotonic_ns()
        stuck = wait_until(lambda: source.call_in_flight() if source.call_in_flight()[2] == "nvmlDeviceGetPowerUsage"
                           and source.call_in_flight()[1] == 1 and source.call_in_flight()[0] else None, 5, "a hang")
        time.sleep(0.5)
        assert source.call_in_flight() == stuck and stuck[0] > asked - S
        node.xid(119, gpu=1, only="kmsg")
        [event] = source.events(5 * SLOW)
        assert (event.entity, event.xid) == (1, 119)
        source.process.kill()
        assert source.wait() == -signal.SIGKILL
        base = ["--library", node.nvml_library, "--kmsg", node.kmsg_path, "--skip", "1=00000000:00:1E.0"]
        with Source(*base, env={"SIM_NODE": str(node.file)}) as another:
            ready(another)
            assert [(e.state, e.bus_id) for e in another.entities()] == [("up", "00000000:00:1D.0"),
                                                                         ("skipped", "00000000:00:1E.0")]
            another.watch([150, 155], QUICK)
            sample = another.sample()
            assert sample.get(150, 0) == node.node.truth(0, "temperature_c") and sample.get(155, 1) == "no_data"
            node.xid(79, gpu=1, only="kmsg")  # of the GPU that is left alone
            [event] = another.events(5 * SLOW)
            assert (event.entity, event.xid) == (1, 79)
        node.clear_faults()


@pytest.mark.faults
def test_a_crash_of_the_library_is_the_processs_own():
    with source_on("post") as (node, source):
        ready(source)
        node.command("crash nvmlDeviceGetPowerUsage")
        source.watch([155])
        assert source.wait(10 * SLOW) == -signal.SIGSEGV or BUILD.name == "asan"


@pytest.mark.faults
def test_signals_to_the_whole_group_are_the_exporters_to_handle():
    with source_on("post") as (_, source):
        ready(source)
        source.watch([155], QUICK)
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            source.process.send_signal(signo)
        source.sample()
        source.sample()
        assert source.process.poll() is None


@pytest.mark.faults
def test_it_ends_when_the_exporter_closes_the_socket():
    with source_on("post") as (_, source):
        ready(source)
        source.watch([155])
        source.sample()
        source.socket.close()
        assert source.wait(3 * SLOW) == 0


@pytest.mark.faults
def test_it_ends_in_the_middle_of_its_waiting_for_a_driver(tmp_path):
    with Source("--library", tmp_path / "none.so") as source:
        source.next(STATE)
        source.socket.close()
        assert source.wait(3 * SLOW) == 0


@pytest.mark.faults
def test_it_dies_with_its_parent_even_in_a_hung_call():
    code = """
import sys, time
sys.path[:0] = %r
from source_client import Source
s = Source("--library", sys.argv[1], env={"SIM_NODE": sys.argv[2]})
s.state("ready")
s.watch([155])
print(s.process.pid, flush=True)
time.sleep(60)
""" % [str(pathlib.Path(__file__).parent)]
    with run_node.SimNode("post", kubelet=False) as node:
        node.fault("nvmlDeviceGetPowerUsage", "hang")
        parent = subprocess.Popen(["/usr/bin/python3", "-c", code, node.nvml_library, node.file],
                                  stdout=subprocess.PIPE, env={**os.environ, "PODGPU_BUILD": str(BUILD)})
        pid = int(parent.stdout.readline())
        wait_until(lambda: node.node.calls("nvmlDeviceGetTemperature") >= 0 and state_of(pid), 5, "the helper runs")
        time.sleep(0.3)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        wait_until(lambda: state_of(pid) in (None, "Z"), 5, "the helper is gone")
        node.clear_faults()


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


@pytest.mark.faults
def test_an_exporter_of_another_protocol_ends_it():
    with source_on("post") as (_, source):
        ready(source)
        source.socket.sendall(b"\1\0\0\0\6\0\7\0x")
        assert source.wait(3 * SLOW) == 1
        assert "another protocol" in source.stderr()


@pytest.mark.faults
def test_a_reader_that_sleeps_costs_samples_but_neither_memory_nor_lists():
    with run_node.SimNode("h100x8", kubelet=False) as node:
        with Source("--library", node.nvml_library, env={"SIM_NODE": str(node.file)}, receive_buffer=8192) as source:
            ready(source)
            source.entities()
            source.watch(list(range(100, 260)) + STOCK, (S // 200, S // 100, S, S))
            source.sample()
            calls = source.calls()
            before = memory_kib(source.process.pid)
            time.sleep(2)
            assert source.calls() > calls + 1000  # it does not wait for us
            assert memory_kib(source.process.pid) - before < 16384
            node.set("gpu3.lost", 1)
            time.sleep(1.2)
            node.set("gpu3.lost", 0)
            newest = source.entities(10 * SLOW, where=lambda e: e[3].state == "lost")
            assert len(newest) == 8
            sample = source.sample()
            assert sample.watch_id == 1 and sample.records


def memory_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    raise AssertionError("no Pss_Anon")


def test_it_is_small():
    if BUILD.name in ("asan", "tsan"):
        pytest.skip("sanitizers are large")
    with source_on("h100x8") as (_, source):
        ready(source)
        source.watch(STOCK, QUICK)
        for _ in range(10):
            source.sample()
        assert memory_kib(source.process.pid) < 600


@pytest.mark.parametrize("arguments", [[], ["dcgm"], ["nvml", "--skip", "x"], ["nvml", "--skip", "64"], ["nvml", "--what", "x"],
                                       ["nvml", "--library"], ["nvml", "--log-format", "xml"],
                                       ["nvml", "--log-level", "all"], ["nvml"]])
def test_a_start_by_hand_ends_with_status_2_and_a_usage_line(arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=10 * SLOW, stdin=subprocess.DEVNULL,
                          check=False)
    assert done.returncode == 2
    assert "usage: podgpu-source" in done.stderr


def test_text_that_is_not_utf8_comes_as_bytes_the_exporter_mends():
    with run_node.SimNode("bad-text", kubelet=False) as node:
        with Source("--library", node.nvml_library, env={"SIM_NODE": str(node.file)}) as source:
            with pytest.raises(UnicodeDecodeError):
                source.entities()


def test_the_order_of_frames_is_hello_state_entities_then_samples():
    with source_on("post") as (_, source):
        source.watch([155], QUICK)
        kinds = [source.read_frame(time.monotonic() + 10)[0] for _ in range(5)]
        assert kinds == [HELLO, STATE, ENTITIES, SAMPLE, SAMPLE]
        assert EVENTS not in kinds
        with pytest.raises(Closed):
            source.process.kill()
            while True:
                source.read_frame(time.monotonic() + 10)

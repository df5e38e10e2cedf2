# SPDX-License-Identifier: Apache-2.0
"""USAGE frames of podgpu-source on the simulated node: busy time, shares, processes, energy and memory against its truth."""
import time

from harness import SLOW
from source_client import (BUSY, COMPUTE, ENERGY, GAP, GRAPHICS, MEMORY, MPS, NONE32, PROCESSES, S, SHARES, Source)
from test_source import TWO_A10G, ready, run_node, source_on

ALL = BUSY | SHARES | PROCESSES | ENERGY | MEMORY
MIB = 1 << 20


def frames(source, count, period=S, timeout=10):
    source.watch([], usage=period)
    return [source.usage(timeout * SLOW) for _ in range(count)]


def integral(frames_, place):
    """(busy ns, ns told of, filled spans) of a device over frames that follow on each other."""
    told = busy = filled = 0
    at = frames_[0].devices[place].busy_to_ns
    for frame in frames_[1:]:
        assert not frame.devices[place].flags & GAP
        for start, end, ppm, is_filled in frame.devices[place].spans:
            assert start == at
            told, busy, at = told + end - start, busy + (end - start) * ppm / 1e6, end
            filled += is_filled
        assert frame.devices[place].busy_to_ns == at
    return busy, told, filled


def true_busy(node, place, start_ns, end_ns):
    """The same from the node's truth."""
    ahead = node.node.now() - time.monotonic_ns()
    return node.node.mean(place, "gpu_percent", start_ns + ahead, end_ns + ahead) / 100 * (end_ns - start_ns)


LOADED = """
driver: {version: 535.183.01, cuda: 12020, signals: {process_lag_ms: %d}}
models: models.yaml
gpus:
  - {model: a10g, uuid: GPU-4f1e2d3c-0000-4a5b-8c6d-7e8f9a0b1c00, bus_id: "00000000:00:1D.0", signals: {%s}}
  - {model: a10g, uuid: GPU-4f1e2d3c-0000-4a5b-8c6d-7e8f9a0b1c01, bus_id: "00000000:00:1E.0"}
processes:
  - {device: gpu0, pid: 701, memory: 100MiB, load: "bursts:every=1s,width=200ms,pulses=1"}
  - {device: gpu1, pid: 702, memory: 100MiB, load: "square:on=2500ms,off=2500ms,high=0.8"}
  - {device: gpu1, pid: 703, memory: 100MiB, load: 0.2}
"""


def test_bursts_between_two_looks_are_in_the_spans_and_a_pass_costs_the_same_calls():
    with source_on("usage", text=LOADED % (0, "")) as (node, source):
        ready(source)
        told = frames(source, 7)
        for place in (0, 1):
            busy, time_ns, filled = integral(told, place)
            begin, end = told[0].devices[place].busy_to_ns, told[-1].devices[place].busy_to_ns
            assert time_ns == end - begin > 4 * S and filled == 0
            assert abs(busy - true_busy(node, place, begin, end)) <= 0.01 * time_ns
    assert told[0].vendor_calls == 14  # with the lists of graphics processes
    assert {frame.vendor_calls for frame in told[1:]} == {12}


def test_entries_that_come_late_and_that_are_lost_cost_little():
    with source_on("usage", text=LOADED % (0, "samples_lag_ms: 300, samples_lost: 4")) as (node, source):
        ready(source)
        node.set("gpu0.load", "square:on=3s,off=3s")
        told = frames(source, 9)
        busy, time_ns, filled = integral(told, 0)
        begin, end = told[0].devices[0].busy_to_ns, told[-1].devices[0].busy_to_ns
        assert time_ns == end - begin and filled >= time_ns / S
        assert abs(busy - true_busy(node, 0, begin, end)) <= 0.05 * time_ns


def test_shares_of_processes_that_come_late_are_whole():
    with source_on("usage", text=LOADED % (400, "")) as (_node, source):
        ready(source)
        told = frames(source, 6)
    shares = [share for frame in told[2:] for share in frame.devices[1].shares if share[2] == 703]
    assert {ppm for _, _, _, ppm in shares} == {205000}
    assert all(a[1] == b[0] for a, b in zip(shares, shares[1:]))  # none is missing
    for frame in told[2:]:
        device = frame.devices[1]
        assert all(end <= device.shares_to_ns for _, end, _, _ in device.shares)
    for before, frame in zip(told[1:], told[2:]):
        assert all(start >= before.devices[1].shares_to_ns for start, _, _, _ in frame.devices[1].shares)


def test_a_gpu_that_is_lost_for_a_while_is_left_out_and_comes_back_with_a_gap():
    with source_on("usage", text=TWO_A10G % 0) as (node, source):
        ready(source)
        frames(source, 1, S // 5)
        node.fault("*", "return=15", gpu=1)
        away = source.usage(10 * SLOW, lambda u: 1 not in u.devices)
        assert away.devices[0].flags & ~BUSY == ALL & ~BUSY
        node.clear_faults("*")
        back = source.usage(10 * SLOW, lambda u: 1 in u.devices)
        assert back.devices[1].flags & GAP
        assert not source.usage(10 * SLOW).devices[1].flags & GAP


def test_a_slow_gpu_slows_no_other():
    with source_on("h100x8") as (node, source):
        ready(source)
        frames(source, 2, S // 2)
        node.fault("*", "delay=400", gpu=3)
        stamps = []
        for _ in range(8):
            frame = source.usage(10 * SLOW)
            stamps.append(frame.devices[5].taken_ns)
            assert frame.devices[7].flags == ALL
        gaps = [(b - a) / S for a, b in zip(stamps, stamps[1:])]
        assert max(gaps) < 2.5 * SLOW, gaps


def test_a_reader_that_sleeps_loses_frames_and_is_told():
    with run_node.SimNode("h100x8", kubelet=False) as node, Source(
            "--library", node.nvml_library, "--kmsg", "", env={"SIM_NODE": str(node.file)}, receive_buffer=4096) as source:
        ready(source)
        source.watch([], usage=S // 100)
        first = source.usage(10 * SLOW)
        dropped = time.monotonic() + 30 * SLOW
        while "frames dropped" not in source.stderr() and time.monotonic() < dropped:
            time.sleep(0.1)
        told = [first] + [source.usage(10 * SLOW) for _ in range(120)]
    gaps = 0
    for place in first.devices:
        at = None
        for frame in told:
            device = frame.devices[place]
            gaps += bool(device.flags & GAP)
            for start, end, _, _ in device.spans:
                assert at in (None, start) or device.flags & GAP
                at = end
            at = None if device.flags & GAP and not device.spans else at
    assert gaps > len(first.devices)  # the first frame, and one more


def test_instances_tell_their_profile_and_place():
    with source_on("mig") as (_node, source):
        entities = source.entities(10 * SLOW)
    places = [(e.profile_id, e.placement) for e in entities]
    assert places[1:4] == [(9, 0), (14, 4), (19, 6)]
    assert all(place == (NONE32, NONE32) for e, place in zip(entities, places) if e.is_gpu)


def test_a_shared_gpu_has_spans_shares_processes_energy_and_memory():
    with source_on("timeslice") as (_node, source):
        ready(source)
        first, *later = frames(source, 3)
    assert first.devices[0].flags == ALL | GAP
    assert (first.devices[0].spans, first.devices[0].shares) == ([], [])
    energy = first.devices[0].energy_mj
    for frame in later:
        device = frame.devices[0]
        assert device.flags == ALL
        assert device.processes == {6101: (COMPUTE, 3000 * MIB), 6102: (COMPUTE, 2000 * MIB), 6103: (COMPUTE, 1000 * MIB),
                                    6999: (GRAPHICS, 100 * MIB)}
        assert (device.memory_used, device.memory_total) == (6100 * MIB, 15360 * MIB)
        assert device.energy_mj > energy
        energy = device.energy_mj
    assert later[1].vendor_calls == 6  # the graphics list was asked in the first


def test_instances_have_gpm_spans_and_processes_and_their_gpu_energy_alone():
    with source_on("mig") as (_node, source):
        entities = source.entities(10 * SLOW)
        ready(source)
        first, second = frames(source, 2)
    for place, device in second.devices.items():
        entity = entities[place]
        if entity.is_gpu and entity.mig_enabled:
            assert device.flags == ENERGY and device.processes == {}
        elif entity.is_gpu:
            assert device.flags == ALL
        else:
            assert device.flags == BUSY | PROCESSES | MEMORY
    assert [(d.spans[0][2], list(d.processes)) for d in list(second.devices.values())[1:4]] == [
        (1000000, [5101]), (500000, [5102]), (250000, [5103])]
    for place, device in second.devices.items():
        if not entities[place].is_gpu and device.spans:
            assert device.spans[0][0] == first.devices[place].busy_to_ns


def test_clients_of_mps_are_of_another_kind():
    with source_on("mps") as (_node, source):
        ready(source)
        device = frames(source, 1)[0].devices[0]
    assert device.processes == {8100: (COMPUTE, 30 * MIB), 8101: (MPS, 6000 * MIB), 8102: (MPS, 4000 * MIB)}

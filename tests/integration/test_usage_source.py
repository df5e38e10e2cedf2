# SPDX-License-Identifier: Apache-2.0
"""USAGE frames of podgpu-source on the simulated node: busy time, shares, processes, energy and memory against its truth."""
import time

import pytest

from harness import SLOW
from source_client import (BUSY, COMPUTE, ENERGY, GAP, GRAPHICS, MEMORY, MPS, PROCESSES, S, SHARES, Source)
from test_source import TWO_A10G, ready, source_on

ALL = BUSY | SHARES | PROCESSES | ENERGY | MEMORY
MIB = 1 << 20


def frames(source, count, period=S, timeout=10):
    source.watch([], usage=period)
    return [source.usage(timeout * SLOW) for _ in range(count)]


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

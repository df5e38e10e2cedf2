# SPDX-License-Identifier: Apache-2.0
"""Instances of an A100, which tells no instance's activity itself: with DCGM the ledger has their busy time, without it
none. DCGM tells an instance's activity on Ampere as its part of the whole GPU, the ledger as the instance's own."""
import pytest

from harness import SLOW, exporter_at, wait_until
from test_ledger_page import CONTAINER, check_sums, container, flags

import run_node

BUSY = "podgpu_gpu_busy_seconds_total"


def busy_of(page):
    """{instance: busy seconds} of the GPU in MIG mode."""
    return {labels["GPU_I_ID"]: float(value) for labels, value in page.samples(BUSY) if labels["gpu"] == "0"}


def test_with_dcgm_an_amperes_instances_are_as_busy_as_their_loads():
    loads = {"1": 1.0, "3": 0.5, "7": 0.25, "8": 0.0}
    pods = {"notebook-a": "1", "notebook-b": "3", "notebook-c": "7"}
    with run_node.SimNode("dcgm-mig", proc=True, logs=True) as node, exporter_at(node, *flags(node)) as exporter:
        first = exporter.page_when(lambda p: busy_of(p).get("1", 0) > 0, 30, "busy time of instances")
        instances = {str(i["gi"]) for i in node.node.instances() if i["gpu"] == 0}
        assert set(busy_of(first)) == instances and len(instances) == 4
        page = exporter.page_when(lambda p: busy_of(p)["1"] - busy_of(first)["1"] >= 3, 30, "three seconds more")
        # The one at full load tells how much time was booked; DCGM's own values are exact.
        booked = busy_of(page)["1"] - busy_of(first)["1"]
        for instance in instances:
            grown = busy_of(page)[instance] - busy_of(first)[instance]
            want = loads.get(instance, 0.0)
            assert grown == pytest.approx(want * booked, abs=0.03 * booked), instance
        for pod, instance in pods.items():
            own = container(page, "busy_seconds_total", pod) - container(first, "busy_seconds_total", pod)
            assert own == pytest.approx(loads[instance] * booked, abs=0.03 * booked), pod
        assert check_sums(page) > 0


def test_without_dcgm_an_amperes_instances_have_no_busy_families():
    with run_node.SimNode("mig-a100", proc=True, logs=True) as node, exporter_at(node, *flags(node)) as exporter:
        page = exporter.page_when(lambda p: container(p, "energy_joules_total", "notebook-a"), 30, "energy")
        for family in (BUSY, "podgpu_gpu_unattributed_busy_seconds_total", "podgpu_gpu_ended_busy_seconds_total",
                       CONTAINER + "busy_seconds_total", CONTAINER + "idle_seconds"):
            assert not [labels for labels, _ in page.samples(family) if labels["gpu"] == "0"], family
            if "ended" not in family:
                assert [labels for labels, _ in page.samples(family) if labels["gpu"] == "1"], family
        assert container(page, "memory_used_bytes", "notebook-a") == 15000 << 20
        assert check_sums(page) > 0
        wait_until(lambda: container(exporter.page(), "allocated_seconds_total", "notebook-b") > 0, 10 * SLOW, "a share")

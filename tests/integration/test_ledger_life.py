# SPDX-License-Identifier: Apache-2.0
"""The ledger over lives: a Job shorter than a scrape, pods that come and go, a GPU that is lost, an exporter that starts
again. Each number against what the simulated node really did."""
import time

import pytest

from harness import SLOW, exporter_at
from test_ledger_page import CONTAINER, check_sums, container, flags, whole

import run_node

SECOND = 1_000_000_000
POD_BEGINS = 5  # the kubelet gives it the GPU before its container starts, as it always does
JOB = (7, 14)  # the seconds in which its process runs; in the scenario all starts at 20 s
POD = "short-x4z8k"
LINGER = 6


def job_soon():
    """The scenario job-7s, whose seven seconds come a little earlier."""
    text = run_node.scenario_path("job-7s").read_text(encoding="utf-8")
    assert "start: 20s" in text and "completes: 27s" in text
    text = text.replace("start: 20s", f"start: {POD_BEGINS}s").replace("completes: 27s", f"completes: {JOB[1]}s")
    return text.replace("pid: 7301,", f"pid: 7301, start: {JOB[0]}s,")


def growth_mj(node, start, end):
    return node.node.truth(0, "energy_mj", end * SECOND) - node.node.truth(0, "energy_mj", start * SECOND)


def test_a_job_of_seven_seconds_keeps_its_whole_total_for_a_scrape_that_comes_later():
    """In the intervals of its begin and its end the holders change, but what its process did there is known to be its."""
    with run_node.SimNode(text=job_soon(), proc=True, logs=True) as node, \
            exporter_at(node, *flags(node), f"--ended-pod-linger={LINGER}s") as exporter:
        first = exporter.page_when(lambda p: p.samples("podgpu_gpu_busy_seconds_total"), 6, "a page before the Job")
        assert node.node.now() < POD_BEGINS * SECOND and container(first, "busy_seconds_total", POD) is None
        # The kubelet is asked once a second, an interval has a second and is booked within the ledger's lag of two.
        node.wait_until(lambda: node.node.now() > (JOB[1] + 4.2) * SECOND, 30 * SLOW)
        late = exporter.page()
        frozen = counters(late)
        time.sleep(0.5)
        assert frozen == counters(exporter.page())
        busy = node.node.busy_us(0, JOB[0] * SECOND, JOB[1] * SECOND) / 1e6
        assert busy == pytest.approx(6.3)
        own, energy, held = map(float, frozen)
        assert held == pytest.approx(JOB[1] - POD_BEGINS, abs=1.2)  # the kubelet is asked once a second
        rest = late.value("podgpu_gpu_unattributed_busy_seconds_total")
        assert own + rest == pytest.approx(busy, abs=0.07)  # 1 % of seven seconds
        assert own == pytest.approx(busy, abs=0.07), (own, rest)
        # All that the board used while the process ran is its, but in the two intervals in which the holders changed (it
        # ends in one of them) it has its process's share alone.
        joules = growth_mj(node, *JOB) / 1e3
        assert 0.96 * joules <= energy <= growth_mj(node, POD_BEGINS - 1, JOB[1] + 1) / 1e3
        assert check_sums(late) == 3
        for what in ("memory_used_bytes", "processes", "idle_seconds", "share_ratio"):
            assert container(late, what, POD) is None
        gone = exporter.page_when(lambda p: container(p, "busy_seconds_total", POD) is None, 15, "the linger is over")
        assert [v for _, v in gone.samples("podgpu_gpu_ended_busy_seconds_total")] == frozen[:1]
        assert [v for _, v in gone.samples("podgpu_gpu_ended_energy_joules_total")] == frozen[1:2]
        assert check_sums(gone) == 3


def counters(page):
    """Of the Job: busy time, energy, time allocated, to the last digit."""
    return [value for what in ("busy_seconds_total", "energy_joules_total", "allocated_seconds_total")
            for labels, value in page.samples(CONTAINER + what) if labels["pod"] == POD]


def test_sums_hold_on_sixty_pages_while_pods_come_and_go():
    """Eight pods share a GPU; one after another ends, is there again with another UID, loses or gets a process."""
    with run_node.SimNode("shared-8", proc=True, logs=True) as node, \
            exporter_at(node, *flags(node), "--collect-interval=100", "--ended-pod-linger=1s") as exporter:
        exporter.page_when(lambda p: len(p.samples(CONTAINER + "busy_seconds_total")) >= 8, 20, "eight pods")
        names = [(p["name"], p["namespace"], p["containers"][0]["devices"]) for p in node.node.pods()]
        texts, step, lingered = set(), 0, 0
        deadline = time.monotonic() + 60 * SLOW
        while len(texts) < 64:
            assert time.monotonic() < deadline
            page = exporter.page()
            assert check_sums(page) == 3
            live = {l["pod"] for l, _ in page.samples(CONTAINER + "share_ratio")}
            lingered += any(l["pod"] not in live for l, _ in page.samples(CONTAINER + "busy_seconds_total"))
            if page.text not in texts and len(texts) % 8 == 4:
                churn(node, names, step)
                step += 1
            texts.add(page.text)
            time.sleep(0.05)
        assert step == 8 and lingered > 0
        page = exporter.page_when(lambda p: p.value("podgpu_gpu_ended_energy_joules_total") > 0, 10, "somebody ended for good")
        assert check_sums(page) == 3
        assert page.value("podgpu_exporter_ledger_holder_changes_total") >= 1


def churn(node, names, step):
    name, namespace, devices = names[step // 2]
    if step % 2 == 0:
        node.command(f"pods end {name}")
        return
    node.command(f"pods add {name} namespace={namespace} container=main device=gpu0::{step // 2} "
                 f"resource=nvidia.com/gpu.shared")
    node.command(f"process add device=gpu0 pid={8600 + step} memory=500MiB load=0.1 pod={name}")


def test_a_lost_gpus_counters_stand_still_and_its_gauges_end():
    """It is lost at 5 s and back at 10 s; the last interval before is booked within the ledger's lag of two seconds."""
    with run_node.SimNode("lost", proc=True, logs=True) as node, exporter_at(node, *flags(node)) as exporter:
        exporter.page_when(lambda p: (container(p, "busy_seconds_total", "job-1") or 0) > 0 and
                           container(p, "memory_used_bytes", "job-1"), 5, "the second GPU's pod")
        assert {f: len(second(exporter.page(), f)) for f in GAUGES} == {f: 1 for f in GAUGES}
        exporter.page_when(lambda p: p.value("podgpu_gpu_up", gpu="1") == 0 and not any(second(p, f) for f in GAUGES),
                           10, "lost, and without gauges")
        node.wait_until(lambda: node.node.now() > 8 * SECOND, 10 * SLOW)
        lost = exporter.page()
        held = {f: second(lost, f) for f in COUNTERS}
        assert {f: len(values) for f, values in held.items()} == {f: 1 for f in COUNTERS}
        assert whole(held["podgpu_gpu_energy_joules_total"][0]) > 0
        while node.node.now() < 9.5 * SECOND:
            page = exporter.page()
            assert {f: second(page, f) for f in COUNTERS} == held
            assert {f: second(page, f) for f in GAUGES} == {f: [] for f in GAUGES}
            check_sums(page)
            time.sleep(0.1)
        energy = "podgpu_gpu_energy_joules_total"
        exporter.page_when(lambda p: p.value(energy, gpu="0") > lost.value(energy, gpu="0"), 5, "the other GPU goes on")
        back = exporter.page_when(lambda p: p.value(energy, gpu="1") > lost.value(energy, gpu="1"), 20, "booked again")
        assert {f: len(second(back, f)) for f in GAUGES} == {f: 1 for f in GAUGES} and check_sums(back) == 6


COUNTERS = ("podgpu_gpu_busy_seconds_total", "podgpu_gpu_energy_joules_total", "podgpu_gpu_unattributed_energy_joules_total",
            CONTAINER + "busy_seconds_total", CONTAINER + "energy_joules_total")
GAUGES = ("podgpu_gpu_memory_used_bytes", "podgpu_gpu_memory_total_bytes", "podgpu_gpu_unattributed_memory_bytes",
          CONTAINER + "memory_used_bytes", CONTAINER + "processes", CONTAINER + "idle_seconds")


def second(page, family):
    """Values of the second GPU."""
    return [value for labels, value in page.samples(family) if labels["gpu"] == "1"]


def test_an_exporter_that_starts_again_counts_from_its_own_start():
    """Nothing of the time in which nobody looked: not a digit more than the node did since the second start."""
    with run_node.SimNode("lost", proc=True) as node:
        with exporter_at(node, *flags(node)) as exporter:
            exporter.page_when(lambda p: p.samples("podgpu_gpu_busy_seconds_total") and
                               p.value("podgpu_gpu_busy_seconds_total", gpu="0") > 0.5, 20, "half a second")
        begun = node.node.now()
        with exporter_at(node, *flags(node)) as exporter:
            page = exporter.page_when(lambda p: p.samples("podgpu_gpu_energy_joules_total") and
                                      p.value("podgpu_gpu_energy_joules_total", gpu="0") > 0, 20, "energy")
            now = node.node.now()
            grown = (node.node.truth(0, "energy_mj", now) - node.node.truth(0, "energy_mj", begun)) / 1e3
            assert page.value("podgpu_gpu_energy_joules_total", gpu="0") <= grown
            assert page.value("podgpu_gpu_busy_seconds_total", gpu="0") <= node.node.busy_us(0, begun, now) / 1e6 + 0.01
            assert check_sums(page) >= 3

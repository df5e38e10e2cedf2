"""What containers used of shared GPUs, from the driver's double to the page: sums to the last digit, gaps, ends."""
import subprocess
import time

import pytest

from harness import SLOW, exporter_at, exporter_on

import run_node

SHARED = "timeslice"
PODS = ("infer-a", "infer-b", "infer-c", "idle-d")
CONTAINER = "podgpu_container_gpu_"


def whole(text):
    """A fixed-point number as its integer in the last digit."""
    return int(text.replace(".", ""))


def device_of(labels):
    return labels["gpu"], labels["UUID"], labels.get("GPU_I_ID", "")


def check_sums(page):
    """On each device busy time and memory, on each board energy: containers + ended + unattributed = all."""
    checked = 0
    for what, ended, key in (("busy_seconds", True, device_of), ("energy_joules", True, lambda l: l["gpu"]),
                             ("memory", False, device_of)):
        total = f"podgpu_gpu_{what}_total" if ended else "podgpu_gpu_memory_used_bytes"
        parts = [f"podgpu_gpu_unattributed_{what}" + ("_total" if ended else "_bytes"),
                 CONTAINER + what + ("_total" if ended else "_used_bytes")]
        if ended:
            parts.append(f"podgpu_gpu_ended_{what}_total")
        sums = {}
        for part in parts:
            for labels, value in page.samples(part):
                sums[key(labels)] = sums.get(key(labels), 0) + whole(value)
        for labels, value in page.samples(total):
            assert sums[key(labels)] == whole(value), f"{total} of {labels}\n{page.text}"
            checked += 1
    return checked


def container(page, what, pod):
    values = [value for labels, value in page.samples(CONTAINER + what) if labels["pod"] == pod]
    assert len(values) <= 1
    return float(values[0]) if values else None


def started(page):
    """Booking has begun, and of a shared GPU by process."""
    return page.samples("podgpu_gpu_busy_seconds_total") and page.value("podgpu_gpu_busy_seconds_total") > 0


def named(page):
    return all(container(page, "memory_used_bytes", pod) for pod in PODS[:3])


def flags(node):
    return ["--proc-path", node.proc_path, "--pod-log-path", node.log_path]


@pytest.fixture(name="shared", scope="module")
def fixture_shared():
    with run_node.SimNode(SHARED, proc=True, logs=True) as node:
        with exporter_at(node, *flags(node), "--podgpu-families=all") as exporter:
            exporter.page_when(named, 20, "each pod's memory")
            yield node, exporter


def test_each_pod_has_what_its_processes_used(shared):
    _, exporter = shared
    page = exporter.page_when(lambda p: (container(p, "busy_seconds_total", "infer-b") or 0) > 1, 30, "a second of busy time")
    mib = 1 << 20
    assert [container(page, "memory_used_bytes", pod) for pod in PODS[:3]] == [3000 * mib, 2000 * mib, 1000 * mib]
    assert [container(page, "processes", pod) for pod in PODS] == [1, 1, 1, 0]
    assert page.value("podgpu_gpu_unattributed_memory_bytes") >= 100 * mib
    assert {labels["method"] for labels, _ in page.samples("podgpu_exporter_attribution_info")} == {"process"}
    assert page.value("podgpu_exporter_process_view_info", view="host") == 1
    busy = page.value("podgpu_gpu_busy_seconds_total")
    assert 0 < container(page, "busy_seconds_total", "infer-b") < busy
    for pod in PODS:
        assert container(page, "share_ratio", pod) == 0.25


def test_sums_hold_on_every_page_to_the_last_digit(shared):
    _, exporter = shared
    texts, last = set(), {}
    deadline = time.monotonic() + 60 * SLOW
    while len(texts) < 8:
        assert time.monotonic() < deadline
        page = exporter.page()
        assert check_sums(page) == 3
        texts.add(page.text)
        for family in (f for f in page.families if f.startswith("podgpu_") and f.endswith(("_seconds_total", "_joules_total"))):
            for labels, value in page.samples(family):
                at = (family, tuple(sorted(labels.items())))
                assert whole(value) >= last.get(at, 0), at
                last[at] = whole(value)
        time.sleep(0.05)


def test_the_histogram_is_one(shared):
    _, exporter = shared
    page = exporter.page_when(lambda p: "podgpu_gpu_utilization_ratio_bucket" in p.text, 20, "a histogram")
    lines = [line for line in page.families["podgpu_gpu_utilization_ratio"] if not line.startswith("#")]
    buckets = [int(line.rsplit(" ", 1)[1]) for line in lines if "_bucket{" in line]
    assert len(buckets) == 13 and buckets == sorted(buckets)
    assert int(lines[-1].rsplit(" ", 1)[1]) == buckets[-1]


def test_the_node_says_what_is_given_out(shared):
    _, exporter = shared
    page = exporter.page_when(lambda p: p.samples("podgpu_node_gpu_allocatable"), 20, "allocatable")
    assert page.value("podgpu_node_gpu_allocatable", resource="nvidia.com/gpu.shared") == 4
    assert page.value("podgpu_node_gpu_allocated", resource="nvidia.com/gpu.shared") == 4
    assert page.value("podgpu_node_gpu_idle_allocated", resource="nvidia.com/gpu.shared") == 0


def test_readiness_and_self_metrics_know_of_processes(shared):
    _, exporter = shared
    status, _, text = exporter.get("/readyz")
    assert status == 200 and "processes" in text
    page = exporter.page_when(lambda p: p.value("podgpu_exporter_ledger_intervals_total") > 0, 20, "an interval")
    assert page.value("podgpu_exporter_processes", kind="pod") == 3
    assert page.value("podgpu_exporter_processes", kind="host") == 1


def test_gauges_end_with_their_pod_and_counters_stay():
    with run_node.SimNode(SHARED, proc=True, logs=True) as node, \
            exporter_at(node, *flags(node), "--ended-pod-linger=3s") as exporter:
        exporter.page_when(lambda p: named(p) and (container(p, "busy_seconds_total", "infer-b") or 0) > 0, 30, "busy time")
        node.command("pods end infer-b")
        page = exporter.page_when(lambda p: container(p, "memory_used_bytes", "infer-b") is None, 10, "the gauge ended")
        page = exporter.page_when(lambda p: container(p, "share_ratio", "infer-b") is None, 10, "the share ended")
        kept = [container(page, "busy_seconds_total", "infer-b")]
        assert kept[0] > 0 and check_sums(page) == 3

        def is_over(page):  # the driver's last shares of its processes come after their end
            value = container(page, "busy_seconds_total", "infer-b")
            kept.extend([] if value is None else [value])
            return value is None
        page = exporter.page_when(is_over, 15, "the linger is over")
        assert page.value("podgpu_gpu_ended_busy_seconds_total") == kept[-1]
        assert kept == sorted(kept)
        assert check_sums(page) == 3


def test_a_helper_that_dies_costs_a_gap_and_no_more():
    with run_node.SimNode(SHARED, proc=True, logs=True) as node, exporter_at(node, *flags(node)) as exporter:
        page = exporter.page_when(lambda p: started(p) and named(p), 30, "busy time")
        gaps = page.value("podgpu_exporter_ledger_gaps_total")
        pid = exporter.helper_pid()
        subprocess.run(["kill", "-9", str(pid)], check=True)
        before = exporter.page().value("podgpu_gpu_busy_seconds_total")
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_ledger_gaps_total") > gaps and
                                  p.value("podgpu_gpu_busy_seconds_total") > before, 30, "it goes on")
        assert check_sums(page) == 3


def test_none_asks_for_nothing():
    with exporter_on(SHARED, "--podgpu-families=none", "--proc-path=/nonexistent") as (node, exporter):
        page = exporter.page_when(lambda p: "DCGM_FI_DEV_GPU_UTIL" in p.families, 10, "a sample")
        time.sleep(1.2)
        page = exporter.page()
        assert "podgpu_container" not in page.text and "podgpu_exporter_ledger" not in page.text
        assert node.node.calls("nvmlDeviceGetSamples") == 0
        assert node.node.calls("nvmlDeviceGetProcessUtilization") == 0


def test_without_process_evidence_a_shared_gpu_is_unattributed():
    with run_node.SimNode(SHARED, proc="private", logs=True) as node, exporter_at(node, *flags(node)) as exporter:
        page = exporter.page_when(started, 30, "busy time")
        assert check_sums(page) >= 2
        for pod in PODS:
            assert container(page, "busy_seconds_total", pod) is None
            assert container(page, "memory_used_bytes", pod) is None
            assert container(page, "share_ratio", pod) == 0.25
        assert {labels["method"] for labels, _ in page.samples("podgpu_exporter_attribution_info")} == {"held"}
        status, _, text = exporter.get("/readyz")
        assert status == 200 and "hostPID" in text
        assert "hostPID" in exporter.log

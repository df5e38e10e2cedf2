# SPDX-License-Identifier: Apache-2.0
"""Pods on a shared GPU in CloudWatch: what deploy/cloudwatch makes of each container's share of it."""
import json

import pytest

from agent_harness import Target
from aws_stubs import key_text
from fake_logs import FakeLogs
from harness import exporter_at, wait_until
from test_agent_post import DEPLOY, GROUP, REGION, exporter_pod, exporter_service, pod_agent, with_mounts
from test_agent_post import cluster, instance  # noqa: F401  (fixtures)

pytestmark = with_mounts

DEVICE = 'gpu="0",UUID="GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb924",hostname="node"'
# pod: busy µs a scrape, memory
PODS = {"infer-a": (1_500_000, 3000 << 20), "infer-b": (1_000_000, 2000 << 20), "idle-d": (0, 0)}
DIMENSIONS = [["ClusterName", "Namespace"], ["ClusterName", "Namespace", "pod"],
              ["ClusterName", "Namespace", "container", "pod"], ["ClusterName", "Namespace", "container", "gpu", "pod"]]


def ledger_page(scrape):
    """The families as the exporter prints them, each with its own increase a scrape; and one no declaration takes."""
    lines = ["# TYPE podgpu_container_gpu_busy_seconds_total counter"]
    busy = {pod: 7_000_000 + scrape * each for pod, (each, _) in PODS.items()}
    for pod, micros in busy.items():
        lines.append(f'podgpu_container_gpu_busy_seconds_total{{{DEVICE},namespace="default",pod="{pod}",container="main"}} '
                     f"{micros // 10**6}.{micros % 10**6:06}")
    lines.append("# TYPE podgpu_container_gpu_memory_used_bytes gauge")
    for pod, (_, memory) in PODS.items():
        lines.append(f'podgpu_container_gpu_memory_used_bytes{{{DEVICE},namespace="default",pod="{pod}",container="main"}} {memory}')
    lines += ["# TYPE podgpu_container_gpu_processes gauge",
              f'podgpu_container_gpu_processes{{{DEVICE},namespace="default",pod="infer-a",container="main"}} 1']
    return "\n".join(lines) + "\n"


def objects(address):
    host, port = address.split(":")
    text = json.dumps([exporter_pod("podgpu-exporter-1", "gpu-monitoring", "node", host, int(port)),
                       *exporter_service("gpu-monitoring", "podgpu-exporter-1", "node", host, int(port))])
    return json.loads(text.replace("nvidia-dcgm-exporter", "podgpu-exporter"))


@pytest.mark.faults
def test_each_pod_of_a_shared_gpu_has_its_own_metrics(cluster, instance, tmp_path):  # noqa: F811
    server, _ = cluster
    scrapes = []

    def page():
        scrapes.append(1)
        return ledger_page(len(scrapes) - 1)
    with Target(page) as target, FakeLogs(keys=key_text("IMDS"), region=REGION) as logs:
        server.put(*objects(target.address))
        agent = pod_agent(cluster, instance, tmp_path, "--config", DEPLOY / "cwagentconfig.json", "--prometheus-config",
                          DEPLOY / "prometheus.yaml", AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=logs.url)
        try:
            wait_until(lambda: len(logs.messages(GROUP, "gpu-pod-metrics")) >= 3 * len(PODS), 60, "two scrapes have arrived")
        finally:
            status, _ = agent.stop()
        assert status == 0, agent.log
        events = [json.loads(m) for m in logs.messages(GROUP, "gpu-pod-metrics")]
    counters = [e for e in events if e["prom_metric_type"] == "counter"][:len(PODS)]
    gauges = [e for e in events if e["prom_metric_type"] == "gauge"][:len(PODS)]
    for event in counters + gauges:
        [directive] = event["_aws"]["CloudWatchMetrics"]
        assert directive["Dimensions"] == DIMENSIONS
        assert (event["Namespace"], event["namespace"], event["container"], event["gpu"]) == ("default", "default", "main", "0")
        assert event["Service"] == "podgpu-exporter" and event["ExporterNamespace"] == "gpu-monitoring"
    # Counters arrive as what they grew since the scrape before, the workload's pod under its own name.
    assert {e["pod"]: e["podgpu_container_gpu_busy_seconds_total"] for e in counters} == \
        {pod: pytest.approx(each / 1e6, abs=1e-9) for pod, (each, _) in PODS.items()}
    assert {e["pod"]: e["podgpu_container_gpu_memory_used_bytes"] for e in gauges} == {p: m for p, (_, m) in PODS.items()}
    units = {m["Name"]: m.get("Unit") for e in counters + gauges for m in e["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
    assert units == {"podgpu_container_gpu_busy_seconds_total": "Seconds", "podgpu_container_gpu_memory_used_bytes": "Bytes"}


# --- The exporter's own page, of a node whose truth is known ---

PIDS = {"infer-a": 6101, "infer-b": 6102, "infer-c": 6103}
MIB = 1 << 20
LATE_NS = 4 * 10**9  # how old the use may be that a page tells of: drained once a second, published once a second


def shipped(logs, kind):
    """The events about containers."""
    mark = {"counter": "busy_seconds_total", "gauge": "share_ratio"}[kind]
    events = [json.loads(message) for message in logs.messages(GROUP, "gpu-pod-metrics")]
    return [e for e in events if e["prom_metric_type"] == kind and f"podgpu_container_gpu_{mark}" in e]


def scenario_time(node, event):
    now = node.node.now()
    return now - (node.node.wall_us(now) - event["_aws"]["Timestamp"] * 1000) * 1000


@pytest.mark.faults
def test_each_pod_of_the_time_sliced_scenario_is_in_the_emf_output_with_what_it_used(cluster, instance, tmp_path):  # noqa: F811
    import run_node
    server, _ = cluster

    def all_named(page):
        return {l["pod"] for l, v in page.samples("podgpu_container_gpu_memory_used_bytes") if float(v) > 0} == set(PIDS) and \
            page.samples("podgpu_container_gpu_busy_seconds_total")
    with run_node.SimNode("timeslice", proc=True, logs=True) as node, FakeLogs(keys=key_text("IMDS"), region=REGION) as logs, \
            exporter_at(node, "--proc-path", node.proc_path, "--pod-log-path", node.log_path) as exporter:
        exporter.page_when(all_named, 30, "each pod's memory")
        server.put(*objects(f"127.0.0.1:{exporter.port}"))
        agent = pod_agent(cluster, instance, tmp_path, "--config", DEPLOY / "cwagentconfig.json", "--prometheus-config",
                          DEPLOY / "prometheus.yaml", AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=logs.url)
        try:
            wait_until(lambda: len(shipped(logs, "counter")) >= 3 * 4, 60, "four scrapes have arrived")
        finally:
            status, _ = agent.stop()
        assert status == 0, agent.log
        counters, gauges = shipped(logs, "counter"), shipped(logs, "gauge")
        begin = scenario_time(node, min(gauges, key=lambda e: e["_aws"]["Timestamp"]))
        end = scenario_time(node, max(counters, key=lambda e: e["_aws"]["Timestamp"]))
        assert end - begin > 10 * 10**9
        assert {e["pod"] for e in counters} == {e["pod"] for e in gauges} == {*PIDS, "idle-d"}

        def total(what, pod):
            return sum(e[f"podgpu_container_gpu_{what}_total"] for e in counters if e["pod"] == pod)
        slack = 0.01 * (end - begin) / 1e9
        for pod, pid in PIDS.items():
            least = node.node.process_busy_us(pid, begin, end - LATE_NS) / 1e6 - slack
            most = node.node.process_busy_us(pid, begin - LATE_NS, end) / 1e6 + slack
            assert least <= total("busy_seconds", pod) <= most, pod
        assert total("busy_seconds", "idle-d") == 0
        for pod in (*PIDS, "idle-d"):
            assert total("allocated_seconds", pod) == pytest.approx((end - begin) / 4e9, abs=LATE_NS / 4e9)
            assert total("energy_joules", pod) > 0
    assert {(e["pod"], e["podgpu_container_gpu_memory_used_bytes"], e["podgpu_container_gpu_share_ratio"]) for e in gauges} == \
        {("infer-a", 3000 * MIB, 0.25), ("infer-b", 2000 * MIB, 0.25), ("infer-c", 1000 * MIB, 0.25), ("idle-d", 0, 0.25)}
    for event in counters + gauges:
        assert (event["Namespace"], event["container"], event["gpu"]) == ("default", "main", "0")
        assert DIMENSIONS in [d["Dimensions"] for d in event["_aws"]["CloudWatchMetrics"]]

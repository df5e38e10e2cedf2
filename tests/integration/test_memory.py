# SPDX-License-Identifier: Apache-2.0
"""Memory: how much the programs take, and that it stays what it is however long they run."""
import pathlib
import resource
import time

import pytest

from harness import BUILD, exporter_at, exporter_on
from measure import STOCK, Client, a10g_node, has_profiling, ledger_soak, memory_kib, pss_kib, soak, wide_counters
import run_node

pytestmark = pytest.mark.skipif(BUILD.name in ("asan", "tsan"), reason="a sanitizer's memory is not ours")

SAMPLES = 20000


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_devices(page):
    return bool(page.samples("DCGM_FI_DEV_GPU_TEMP") or page.samples("DCGM_FI_DEV_FB_USED"))


@pytest.mark.parametrize("instances, counters, samples", [(0, "stock", SAMPLES), (7, "wide", 4000)])
def test_the_heap_of_the_engines_is_flat(instances, counters, samples, tmp_path):
    # Pods that change, lost GPUs, XIDs and reloads come again each thousand samples, and the reports stand at the same
    # point of each thousand: but for the rounding of a few sizes they are alike.
    path = STOCK if counters == "stock" else wide_counters(tmp_path / "counters.csv")
    _, heap = soak(samples, 8, instances, path, exact=True)
    assert [s for s, _ in heap] == list(range(0, samples + 1, 1000))
    later = [h for s, h in heap if s > 0]
    assert later[0] > 100000
    assert max(later) - min(later) <= 1024, heap


def test_the_heap_of_the_ledger_is_flat_while_pods_come_and_go():
    # Every tenth second a pod of 64 is followed by another; those that ended linger for five minutes.
    numbers, heap = ledger_soak(8000, STOCK, exact=True)
    assert [s for s, _ in heap] == list(range(0, 8001, 1000))
    assert numbers["accounts"] == 64 + 30
    later = [h for s, h in heap if s > 1000]
    assert later[0] > 100000
    assert max(later) - min(later) <= 4096, heap
    # Listed processes are looked at every fifth second, not with each of the samples.
    assert numbers["looks"] < 8000 * 192 / 4


def holders_are_booked(page):
    return len(page.samples("podgpu_container_gpu_busy_seconds_total")) == 64


def test_with_the_ledger_of_a_full_node_exporter_and_helper_are_small():
    with run_node.SimNode("node-110", proc=True, logs=True) as node:
        flags = ["--proc-path", node.proc_path, "--pod-log-path", node.log_path]
        with exporter_at(node, *flags, counters=STOCK) as exporter:
            exporter.page_when(holders_are_booked, 30, "busy time of 64 containers")
            clients = [Client(exporter.port, gzip=n % 2 == 1) for n in range(4)]
            for _ in range(30):
                for client in clients:
                    client.scrape()
                time.sleep(0.1)
            taken = [pss_kib(exporter.pid), pss_kib(exporter.helper_pid())]
            for client in clients:
                client.close()
    assert sum(taken) <= 9 * 1024, taken


def test_the_programs_are_flat_over_twenty_thousand_samples(tmp_path):
    env = {"FAST_SOURCE_PROGRAM": str(BUILD / "podgpu-source"), "FAST_SOURCE_FACTOR": "100"}
    fast = ["--source-path", BUILD / "tests" / "tools" / "fast_source", "--collect-interval=100"]
    with exporter_on("h100x8", *fast, counters=STOCK, env=env) as (node, exporter):
        exporter.page_when(has_devices, 20, "first page")
        relay = children(exporter.pid)[0]
        helper = children(relay)[0]
        clients = [Client(exporter.port, gzip=n % 2 == 1) for n in range(4)]
        samples = lambda: node.counts()["nvmlDeviceGetPowerUsage"][0] // 8

        def scrape_until(count):
            while samples() < count:
                for client in clients:
                    assert client.scrape() > 1000
                time.sleep(0.1)
            return [memory_kib(pid, "Anonymous") for pid in (exporter.pid, helper)]

        first = scrape_until(SAMPLES // 5)
        last = scrape_until(SAMPLES)
        for client in clients:
            client.close()
        assert exporter.page().value("podgpu_exporter_helper_starts_total", source="nvml") == 1
    # A few pages more or less may be alive when slow readers hold them; 32 bytes a sample would be 500 KiB.
    assert last[0] - first[0] <= 400, (first, last)
    assert last[1] - first[1] <= 100, (first, last)


@pytest.mark.parametrize("scenario, counters, most_mib", [("h100x8", "stock", 9), ("mig-8x7", "wide", 16)])
def test_exporter_and_helper_are_small(scenario, counters, most_mib, tmp_path):
    path = STOCK if counters == "stock" else wide_counters(tmp_path / "counters.csv")
    with exporter_on(scenario, counters=path) as (_, exporter):
        exporter.page_when(has_devices, 20, "first page")
        clients = [Client(exporter.port, gzip=n % 2 == 1) for n in range(4)]
        for _ in range(30):
            for client in clients:
                client.scrape()
            time.sleep(0.1)
        taken = [pss_kib(exporter.pid), pss_kib(exporter.helper_pid())]
        for client in clients:
            client.close()
    assert sum(taken) <= most_mib * 1024, taken


def test_with_a_running_host_engine_exporter_and_both_helpers_are_small():
    with run_node.SimNode(text=a10g_node()) as node:
        engine = node.start_engine()
        with exporter_at(node, "-r", engine.address, counters=STOCK) as exporter:
            exporter.page_when(has_profiling, 20, "profiling families of eight GPUs")
            clients = [Client(exporter.port, gzip=n % 2 == 1) for n in range(4)]
            for _ in range(30):
                for client in clients:
                    client.scrape()
                time.sleep(0.1)
            helpers = exporter.helpers()
            assert helpers.keys() == {"nvml", "dcgm"}
            taken = [pss_kib(exporter.pid), *(pss_kib(pid) for pid in helpers.values())]
            for client in clients:
                client.close()
    assert sum(taken) <= 9 * 1024, taken


def test_a_thousand_clients_cost_at_most_five_mebibytes():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    clients = []
    try:
        with exporter_on("h100x8", counters=STOCK) as (_, exporter):
            exporter.page_when(has_devices, 20, "first page")
            before = pss_kib(exporter.pid)
            for _ in range(1000):
                clients.append(Client(exporter.port))
                clients[-1].scrape()
            grown = pss_kib(exporter.pid) - before
            kept = lambda page: page.value("podgpu_exporter_http_open_connections")
            open_now = kept(exporter.page_when(lambda p: kept(p) >= 200, 10, "a page after the last client"))
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert open_now <= 256
    assert grown <= 5 * 1024


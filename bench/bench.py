# SPDX-License-Identifier: Apache-2.0
"""The exporter's numbers, each beside its target. script/bench starts it; machines are noisy, so read ratios first."""
import contextlib
import mmap
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

from common import ROOT, bare_server, cpu_us, process_cpu_us, row  # noqa: E402, puts the tests' modules on the path
import agent_bench  # noqa: E402
import burn_bench  # noqa: E402
from harness import BUILD, exporter_at, exporter_on  # noqa: E402
from measure import STOCK, Client, a10g_node, has_profiling, ledger_soak, memory_kib, pss_kib, soak, wide_counters  # noqa: E402
import run_node  # noqa: E402

CLIENTS = 4  # keep-alive scrapers while memory is measured
WIDE = BUILD / "bench-counters.csv"
PAIRS = 5  # of runs of the exporter and the bare server in turn


# --- A node and what is read of its processes ---

def has_devices(page):
    return bool(page.samples("DCGM_FI_DEV_GPU_TEMP") or page.samples("DCGM_FI_DEV_FB_USED"))


@contextlib.contextmanager
def running(scenario, *arguments, counters=STOCK, **options):
    with exporter_on(scenario, *arguments, counters=counters, **options) as (node, exporter):
        exporter.page_when(has_devices, 20, "first page")
        yield node, exporter


def waits(pid):
    """How often the main thread went to sleep."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[1])


# --- Pages, memory, start ---

def bench_series():
    for name, scenario in (("the AWS post's A10G node", "post"), ("8 x H100", "h100x8"), ("8 x 7 MIG", "mig-8x7")):
        with running(scenario) as (_, exporter):
            time.sleep(1.5)
            page = exporter.page()
            device = sum(len(page.samples(f)) for f in page.device_families())
            rest = sum(len(page.samples(f)) for f in page.families) - device
            row(f"series of a page, {name}, stock counters", f"{device} of devices, {rest} of our own, {len(page.text) / 1024:.0f} KiB")


def bench_memory():
    for name, scenario, counters, target in (("8 GPUs x stock counters", "h100x8", STOCK, 9),
                                             ("8 x 7 MIG x 120 fields", "mig-8x7", wide_counters(WIDE), 16)):
        with running(scenario, counters=counters) as (_, exporter):
            clients = [Client(exporter.port, gzip=n % 2 == 1) for n in range(CLIENTS)]
            for _ in range(40):
                for client in clients:
                    client.scrape()
                time.sleep(0.1)
            own, helper = pss_kib(exporter.pid), pss_kib(exporter.helper_pid())
            rss = sum(memory_kib(p, "Rss") for p in (exporter.pid, exporter.helper_pid()))
            for client in clients:
                client.close()
            row(f"Pss of exporter + helper, {CLIENTS} clients, {name}",
                f"{own / 1024:.1f} + {helper / 1024:.1f} = {(own + helper) / 1024:.1f} MiB (Rss {rss / 1024:.1f})", f"<= {target} MiB")


def first_page_ms(scenario, complete):
    with exporter_on(scenario, counters=STOCK) as (_, exporter):
        url = exporter.url()
        while not complete(urllib.request.urlopen(url).read()):
            time.sleep(0.001)
        return (time.monotonic() - exporter.started) * 1000


def bench_start():
    owned = lambda page: re.search(rb'DCGM_FI_DEV_GPU_TEMP{[^\n]*pod="[^"]', page)
    profiled = lambda page: owned(page) and b"DCGM_FI_PROF_GR_ENGINE_ACTIVE{" in page
    for name, scenario, complete, target in (("A10G, no GPM", "post", owned, 50), ("8 x H100 with GPM", "h100x8", profiled, 200)):
        times = [first_page_ms(scenario, complete) for _ in range(7)]
        row(f"start to first complete page, pods' names on it, {name}", f"{statistics.median(times):.0f} ms", f"<= {target} ms")


# --- Scrapes ---

def load(port, pid, *gzip, seconds=2):
    """(scrapes a second, p99 in ms, CPU us a scrape) of 8 connections."""
    cpu = process_cpu_us(pid)
    text = subprocess.run([BUILD / "bench" / "bench_scrape", str(port), "8", str(seconds), *gzip],
                          capture_output=True, text=True, check=True).stdout
    cpu = process_cpu_us(pid) - cpu
    n = {k: int(v) for k, v in re.findall(r"^(\w+)=(\d+)$", text, re.M)}
    return n["scrapes"] * 1e9 / n["took_ns"], n["p99_ns"] / 1e6, cpu / n["scrapes"]


def bench_scrape():
    with running("h100x8") as (_, exporter):
        get = lambda headers: urllib.request.urlopen(urllib.request.Request(exporter.url(), headers=headers)).read()
        page, zipped = get({}), get({"Accept-Encoding": "gzip"})
        for name, body, gzip, target in ((f"{len(page) / 1000:.0f} KB page", page, (), 45000),
                                          (f"gzipped, {len(zipped) / 1000:.1f} KB", zipped, ("gzip",), 100000)):
            with bare_server(body) as (bare_port, bare_pid):
                pairs = [(load(exporter.port, exporter.pid, *gzip), load(bare_port, bare_pid, *gzip)) for _ in range(PAIRS)]
            median = lambda side, what: statistics.median(p[side][what] for p in pairs)
            ratio = statistics.median(p[0][0] / p[1][0] for p in pairs)
            cpu_ratio = statistics.median(p[1][2] / p[0][2] for p in pairs)
            row(f"scrapes per second, {name}", f"{median(0, 0):,.0f} (bare libmicrohttpd {median(1, 0):,.0f})", f">= {target:,}")
            row(f"... p99, {name}", f"{median(0, 1):.2f} ms (bare {median(1, 1):.2f})", "<= 0.5 ms")
            row(f"... beside the bare server, pairs in turn, {name}", f"{ratio:.2f} of its rate", ">= 0.9")
            row(f"... CPU a scrape, {name}",
                f"{median(0, 2):.1f} us, so {1e6 / median(0, 2):,.0f} a second on a core of its own "
                f"(bare {median(1, 2):.1f} us: {cpu_ratio:.2f})", f">= {target:,}, >= 0.9")
        syscalls(exporter)
    allocations()


def syscalls(exporter):
    if not shutil.which("strace"):
        return
    with tempfile.NamedTemporaryFile("r") as out:
        tracer = subprocess.Popen(["strace", "-c", "-o", out.name, "-p", str(exporter.pid)], stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        rate, _, _ = load(exporter.port, exporter.pid)
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)
        calls = int(re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+)", out.read(), re.M)[1])
    row("system calls a scrape, 8 clients", f"{calls / (2 * rate):.2f}")


def allocations():
    with tempfile.NamedTemporaryFile() as counter:
        counter.write(bytes(8))
        counter.flush()
        env = {"LD_PRELOAD": str(BUILD / "tests" / "libmalloc_count.so"), "MALLOC_COUNT": counter.name}
        with running("h100x8", "--collect-interval=60000", kubernetes=False, env=env) as (_, exporter), \
                mmap.mmap(counter.fileno(), 8) as page:
            mallocs = lambda: struct.unpack("Q", page[:8])[0]
            client = Client(exporter.port)
            client.scrape()
            before = mallocs()
            for _ in range(10000):
                client.scrape()
            row("allocations in 10,000 keep-alive scrapes", f"{mallocs() - before} (those of the ticks meanwhile)", "none a scrape")
            client.close()


def bench_clients():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with running("h100x8") as (_, exporter):
        before = pss_kib(exporter.pid)
        clients = [Client(exporter.port) for _ in range(1000)]
        for client in clients[::-1]:
            with contextlib.suppress(ConnectionError):
                client.scrape()
        grown = pss_kib(exporter.pid) - before
        time.sleep(1.5)
        kept = exporter.page().value("podgpu_exporter_http_open_connections")
        row("1,000 clients connecting, those kept scraping", f"{kept:.0f} kept, Pss +{grown / 1024:.1f} MiB", "<= 256 kept, +5 MiB")
        for client in clients:
            client.close()


# --- Samples ---

def bench_cpu():
    numbers, _ = soak(4000, 8, 0, STOCK)
    row("engines, a sample of 8 x stock counters in, page out", f"{(numbers['apply_ns'] + numbers['publish_ns']) / 1000:.1f} us", "<= 40 us")
    wide, _ = soak(400, 8, 7, wide_counters(WIDE))
    row("the same, 8 x 7 MIG x 120 fields", f"{(wide['apply_ns'] + wide['publish_ns']) / 1000:.0f} us")
    plain, _ = soak(4000, 8, 0, STOCK, "--podgpu-families=none")
    for what, n, target in (("fields of DCGM alone", plain, "<= 100 us"), ("all", numbers, "-")):
        row(f"gzip of a {n['page_bytes'] / 1000:.0f} KB page, {what}", f"{n['gzip_ns'] / 1000:.0f} us, to {n['gzip_bytes'] / 1000:.1f} KB", target)
    for name, kubernetes in (("without Kubernetes", False), ("with the kubelet asked", True)):
        with running("h100x8", kubernetes=kubernetes) as (node, exporter):
            time.sleep(1)
            pids = exporter.pid, exporter.helper_pid()
            read = lambda: (cpu_us(pids[0]), cpu_us(pids[1]), vendor_us(node), waits(pids[0]), waits(pids[1]))
            seconds, last = [], read()
            for _ in range(9):
                time.sleep(1)
                now = read()
                seconds.append([n - l for n, l in zip(now, last)])
                last = now
            own, helper, vendor = (statistics.median(s[i] for s in seconds) for i in range(3))
            woken = [sum(s[i] for s in seconds) / len(seconds) for i in (3, 4)]
            row(f"CPU a second and sample, kernel's work included, {name}",
                f"exporter {own:.0f} us, helper {helper - vendor:.0f} us and {vendor:.0f} us in the driver's library")
            row(f"wake-ups a second, {name}", f"exporter {woken[0]:.1f}, helper {woken[1]:.1f}")


def bench_ledger():
    """A full node: 110 pods, eight GPUs in eight replicas each, 200 processes."""
    numbers, _ = ledger_soak(4000, STOCK)
    row("ledger, a sample of 8 GPUs x 24 processes: who ran, whose they are, facts", f"{numbers['take_ns'] / 1000:.0f} us")
    row("... booked", f"{numbers['book_ns'] / 1000:.0f} us")
    booked = lambda page: len(page.samples("podgpu_container_gpu_busy_seconds_total")) == 64
    with run_node.SimNode("node-110", proc=True, logs=True) as node:
        flags = ["--proc-path", node.proc_path, "--pod-log-path", node.log_path]
        with exporter_at(node, *flags, counters=STOCK) as exporter:
            page = exporter.page_when(booked, 30, "busy time of 64 containers")
            pids = exporter.pid, exporter.helper_pid()
            read = lambda: (cpu_us(pids[0]), cpu_us(pids[1]), vendor_us(node))
            seconds, last = [], read()
            for _ in range(15):
                time.sleep(1)
                now = read()
                seconds.append([n - l for n, l in zip(now, last)])
                last = now
            own, helper, vendor = (statistics.median(s[i] for s in seconds) for i in range(3))
            pss = [pss_kib(pid) / 1024 for pid in pids]
            row("node of 110 pods and 200 processes: CPU a second, kernel's work included",
                f"exporter {own:.0f} us, helper {helper - vendor:.0f} us and {vendor:.0f} us in the driver's library", "exporter <= 1 ms")
            row("... Pss of exporter + helper", f"{pss[0]:.1f} + {pss[1]:.1f} = {sum(pss):.1f} MiB", "<= 9 MiB")
            series = sum(len(page.samples(f)) for f in page.families if f.startswith("podgpu_container_gpu_"))
            row("... page", f"{len(page.text) / 1024:.0f} KiB, {series} series of containers")


def vendor_us(node, library="nvml"):
    return sum(ns for name, (_, ns) in node.counts().items() if name.startswith(library)) / 1000


# --- DCGM beside NVML ---

@contextlib.contextmanager
def with_engine(engine):
    """Eight A10G whose profiling fields a host engine has, one that runs or one of our own: yields (node, exporter)."""
    with run_node.SimNode(text=a10g_node()) as node:
        address = ("-r", node.start_engine().address) if engine == "remote" else ()
        with exporter_at(node, *address, counters=STOCK) as exporter:
            yield node, exporter


def bench_dcgm():
    for engine in ("remote", "embedded"):
        times = []
        for _ in range(7):
            with with_engine(engine) as (_, exporter):
                exporter.page_when(has_profiling, 20)
                times.append((time.monotonic() - exporter.started) * 1000)
        row(f"start to the first page with profiling families of DCGM, 8 A10G, {engine} engine", f"{statistics.median(times):.0f} ms")
    with with_engine("remote") as (node, exporter):
        exporter.page_when(has_profiling, 20)
        clients = [Client(exporter.port, gzip=n % 2 == 1) for n in range(CLIENTS)]
        for _ in range(40):
            for client in clients:
                client.scrape()
            time.sleep(0.1)
        helpers = exporter.helpers()
        pids = exporter.pid, helpers["nvml"], helpers["dcgm"]
        own = [pss_kib(pid) / 1024 for pid in pids]
        rss = sum(memory_kib(pid, "Rss") for pid in pids) / 1024
        row(f"Pss of exporter + both helpers, {CLIENTS} clients, 8 A10G x stock counters, remote engine, without libdcgm's own",
            f"{own[0]:.1f} + {own[1]:.1f} + {own[2]:.1f} = {sum(own):.1f} MiB (Rss {rss:.1f})", "<= 9 MiB")
        for client in clients:
            client.close()
        seconds, calls = [], node.counts()
        read = lambda: (process_cpu_us(pids[2]), vendor_us(node, "dcgm"), waits(pids[2]))
        last = read()
        for _ in range(9):
            time.sleep(1)
            now = read()
            seconds.append([n - l for n, l in zip(now, last)])
            last = now
        asked = sum(n - calls.get(name, (0, 0))[0] for name, (n, _) in node.counts().items() if name.startswith("dcgm")) / 9
        helper, vendor = (statistics.median(s[i] for s in seconds) for i in range(2))
        row("CPU of DCGM's helper a second and sample, 5 profiling fields of 8 A10G",
            f"{helper - vendor:.0f} us and {vendor:.0f} us in libdcgm's double, {asked:.1f} calls, "
            f"{sum(s[2] for s in seconds) / len(seconds):.1f} wake-ups")


def bench_soak():
    """10^6 samples through the engines, then the real programs for ten minutes at 10 samples a second."""
    for name, samples, instances, counters in (("8 GPUs x stock counters", 1000000, 0, STOCK),
                                               ("8 x 7 MIG x 120 fields", 50000, 7, wide_counters(WIDE))):
        heap = [h for s, h in soak(samples, 8, instances, counters, exact=True)[1] if s > 0]
        row(f"heap of the engines over {samples:,} samples, {name}",
            f"{heap[0] / 1024:.0f} KiB, at the end {heap[-1] - heap[0]:+} bytes", "flat")
    with running("h100x8", "--collect-interval=100") as (_, exporter):
        sizes = []
        for _ in range(10):
            end = time.monotonic() + 60
            while time.monotonic() < end:
                client = Client(exporter.port, gzip=True)
                client.scrape()
                client.close()
                time.sleep(0.5)
            sizes.append(sum(memory_kib(p, "Anonymous") for p in (exporter.pid, exporter.helper_pid())))
        row("memory of the programs' own over 6,000 samples", f"{sizes[0]} KiB, at the end {sizes[-1] - sizes[0]:+} KiB", "flat")


BENCHES = {"series": bench_series, "memory": bench_memory, "start": bench_start, "scrape": bench_scrape,
           "clients": bench_clients, "cpu": bench_cpu, "ledger": bench_ledger, "dcgm": bench_dcgm, **agent_bench.BENCHES,
           **burn_bench.BENCHES, "soak": bench_soak}
BY_NAME = ("soak", "agent_churn")  # they take long


def main():
    names = sys.argv[1:] or [n for n in BENCHES if n not in BY_NAME]
    unknown = [n for n in names if n not in BENCHES]
    if unknown:
        sys.exit(f"script/bench: no benchmark '{unknown[0]}'; there are {' '.join(BENCHES)}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n\n| what | measured | target |\n|---|---|---|")
    for name in names:
        BENCHES[name]()


if __name__ == "__main__":
    main()

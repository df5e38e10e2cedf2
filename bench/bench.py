"""The exporter's numbers, each beside its target. script/bench starts it; machines are noisy, so read ratios first."""
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "sim")]
from harness import BUILD, Exporter, exporter_on, wait_until  # noqa: E402

MIB = 1 << 20


def row(what, measured, target):
    print(f"| {what} | {measured} | {target} |", flush=True)


def pss_kib(pid):
    """(Pss of the process, of its child processes) in KiB."""
    def one(p):
        text = pathlib.Path(f"/proc/{p}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return one(pid), sum(one(c) for c in children)



def cpu_ns(pid):
    """Run time of the main thread as the scheduler counts it, in ns."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def has_devices(page):
    return bool(page.samples("DCGM_FI_DEV_SM_CLOCK") or page.samples("DCGM_FI_DEV_FB_USED"))


@contextlib.contextmanager
def running(scenario, *arguments, **options):
    with exporter_on(scenario, *arguments, **options) as (node, exporter):
        exporter.page_when(has_devices, 20, "first page")
        yield node, exporter


STOCK = ROOT / "etc" / "default-counters.csv"


def wide_counters():
    """A counters file of 120 fields that NVML can give on a Hopper MIG node."""
    names = []
    for line in (ROOT / "data" / "field-origins.tsv").read_text().splitlines()[1:]:
        columns = line.split("\t")
        if columns[1] != "NONE" and columns[0].isdigit():
            names.append(columns[0])
    ids = {}
    for line in (ROOT / "data" / "dcgm-fields.tsv").read_text().splitlines()[1:]:
        columns = line.split("\t")
        if columns[4] in ("i64", "double"):
            ids[columns[0]] = columns[1]
    rows = [f"{ids[i]}, gauge, Field {i}" for i in names if i in ids][:120]
    path = BUILD / "bench-counters.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def bench_series():
    for name, scenario in (("post's A10G node", "post"), ("8 x H100, stock counters", "h100x8"),
                           ("8 x 7 MIG, stock counters", "mig-8x7")):
        with running(scenario, counters=STOCK) as (_, exporter):
            time.sleep(2)
            page = exporter.page()
            series = sum(len(page.samples(f)) for f in page.device_families())
            rest = sum(len(page.samples(f)) for f in page.families) - series
            row(f"series on a page, {name}", f"{series} device + {rest} of our own, {len(page.text) / 1024:.0f} KiB", "-")


def bench_memory():
    for name, scenario, counters, target in (
            ("8 GPUs x stock counters", "h100x8", STOCK, 9), ("8 x 7 MIG x 120 fields", "mig-8x7", wide_counters(), 16)):
        with running(scenario, counters=counters) as (_, exporter):
            for _ in range(40):
                exporter.page()
                time.sleep(0.1)
            own, helper = pss_kib(exporter.pid)
            row(f"Pss of exporter + helper, {name}", f"{own / 1024:.1f} + {helper / 1024:.1f} MiB", f"<= {target} MiB")


def first_page_ms(scenario):
    begun = time.monotonic()
    with exporter_on(scenario, counters=STOCK) as (_, exporter):
        begun = exporter.started
        port = exporter.port
        while True:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            if "DCGM_FI_DEV_GPU_TEMP{" in text and (scenario == "post" or "DCGM_FI_PROF_GR_ENGINE_ACTIVE{" in text):
                return (time.monotonic() - begun) * 1000


def bench_start():
    for name, scenario, target in (("without GPM", "post", 50), ("8 x H100 with GPM", "h100x8", 200)):
        times = [first_page_ms(scenario) for _ in range(5)]
        row(f"start to first complete page, {name}", f"{statistics.median(times):.0f} ms (median of 5)", f"<= {target} ms")


def wrk(port, *headers, seconds=4):
    command = ["wrk", "-t1", "-c8", f"-d{seconds}s", "--latency", *headers, f"http://127.0.0.1:{port}/metrics"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rps = float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    return rps, float(p99[1]) * {"us": 0.001, "ms": 1, "s": 1000}[p99[2]]


@contextlib.contextmanager
def bare_server(body):
    path = BUILD / "bench-page.txt"
    path.write_bytes(body)
    server = subprocess.Popen([str(BUILD / "bench" / "bare_server"), str(path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    try:
        yield int(server.stdout.readline())
    finally:
        server.stdin.close()
        server.wait(10)


def bench_scrape():
    with running("h100x8", counters=STOCK) as (_, exporter):
        page = exporter.page().text.encode()
        gzip_request = urllib.request.Request(exporter.url(), headers={"Accept-Encoding": "gzip"})
        zipped = urllib.request.urlopen(gzip_request).read()
        for name, body, headers, target in ((f"{len(page) / 1024:.0f} KiB page", page, (), 45000),
                                            (f"gzipped, {len(zipped) / 1024:.1f} KiB", zipped,
                                             ("-H", "Accept-Encoding: gzip"), 100000)):
            with bare_server(body) as bare_port:
                pairs = [(wrk(exporter.port, *headers), wrk(bare_port)) for _ in range(3)]
            rps = statistics.median(p[0][0] for p in pairs)
            p99 = statistics.median(p[0][1] for p in pairs)
            ratio = statistics.median(p[0][0] / p[1][0] for p in pairs)
            row(f"scrapes per second, {name}", f"{rps:,.0f}, p99 {p99:.2f} ms, {ratio:.2f} of a bare libmicrohttpd server",
                f">= {target:,}, p99 <= 0.5 ms, >= 0.9")


def bench_cpu():
    with running("h100x8", "--collect-interval=100", counters=STOCK) as (_, exporter):
        time.sleep(1)
        begun, cpu = time.monotonic(), cpu_ns(exporter.pid)
        time.sleep(5)
        samples = (time.monotonic() - begun) / 0.1
        row("exporter CPU per sample, 8 x H100 stock", f"{(cpu_ns(exporter.pid) - cpu) / samples / 1000:.0f} us", "<= 40 us")


def bench_soak():
    with running("h100x8", "--collect-interval=100", counters=STOCK) as (_, exporter):
        sizes = []
        for minute in range(10):
            time.sleep(60)
            sizes.append(sum(pss_kib(exporter.pid)))
            print(f"minute {minute + 1}: {sizes[-1]} KiB", flush=True)
        row("growth over 6,000 samples", f"{sizes[-1] - sizes[0]} KiB after the first minute", "flat")


BENCHES = {"series": bench_series, "memory": bench_memory, "start": bench_start, "scrape": bench_scrape,
           "cpu": bench_cpu, "soak": bench_soak}


def main():
    names = sys.argv[1:] or [n for n in BENCHES if n != "soak"]
    unknown = [n for n in names if n not in BENCHES]
    if unknown:
        sys.exit(f"script/bench: no benchmark '{unknown[0]}'; there are {' '.join(BENCHES)}")
    print(f"# {os.cpu_count()} cores\n\n| what | measured | target |\n|---|---|---|")
    for name in names:
        BENCHES[name]()


if __name__ == "__main__":
    main()

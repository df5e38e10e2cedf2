"""Judges that podgpu's authors did not write: promtool, Prometheus, prometheus_client, and counters in the doubles."""
import gzip
import mmap
import re
import socket
import struct
import subprocess
import time
import urllib.request

import pytest

from harness import BUILD, ROOT, SLOW, Exporter, Page, exporter_on, wait_until
from prometheus_server import prometheus

UTIL = "DCGM_FI_DEV_GPU_UTIL"
SCENARIOS = ["post", "demo", "h100x8", "mig", "timeslice", "old-driver"]

# What the scrapers of the field send.
ACCEPT_PROMETHEUS = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                     "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
ACCEPT_CLOUDWATCH_AGENT = ("application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;"
                           "version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1")


def first_page(exporter):
    return exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_FB_USED"), 15, "first page with devices")


# dcgm-exporter's names and types are what they are; promtool would have named them otherwise.
DCGM_LINTS = {
    'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter metrics should have "_total" suffix',
    'DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter metrics should have "_total" suffix',
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not include type 'counter'",
    'DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter metrics should have "_total" suffix',
    'DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter metrics should have "_total" suffix',
    'DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter metrics should have "_total" suffix',
}


def allowed_lint(line):
    """modelName is dcgm-exporter's label; podgpu_gpu_info takes it over for joins."""
    return line in DCGM_LINTS or re.fullmatch(
        r"(DCGM_\w+|podgpu_gpu_info) label names should be written in 'snake_case' not 'camelCase'", line)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_promtool_accepts_the_page(scenario):
    with exporter_on(scenario, "--enable-exporter-metrics") as (node, exporter):
        page = first_page(exporter)
    done = subprocess.run(["promtool", "check", "metrics"], input=page.text, text=True, capture_output=True)
    assert "error while linting" not in done.stderr
    assert [l for l in done.stderr.splitlines() if not allowed_lint(l)] == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_prometheus_client_parses_every_page_and_no_series_stands_twice(scenario):
    from prometheus_client.parser import text_string_to_metric_families
    with exporter_on(scenario) as (node, exporter):
        text = first_page(exporter).text
    series = [(s.name, tuple(sorted(s.labels.items()))) for f in text_string_to_metric_families(text)
              for s in f.samples]
    assert len(series) == len(set(series)) > 20
    headers = [l for l in text.splitlines() if l.startswith("# TYPE")]
    assert len(headers) == len(set(headers))


@pytest.mark.parametrize("accept", [ACCEPT_PROMETHEUS, ACCEPT_CLOUDWATCH_AGENT, "*/*", None])
def test_counters_are_typed_counter_whatever_the_scraper_asks_for(accept):
    with exporter_on("demo") as (node, exporter):
        first_page(exporter)
        status, headers, text = exporter.get("/metrics", {"Accept": accept} if accept else {})
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter" in text
    assert "# EOF" not in text


def test_openmetrics_is_served_only_with_the_flag_and_parses():
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    with exporter_on("demo", "--openmetrics") as (node, exporter):
        first_page(exporter)
        _, headers, text = exporter.get("/metrics", {"Accept": ACCEPT_PROMETHEUS})
        assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        families = {f.name: f for f in text_string_to_metric_families(text)}
        assert len(families[UTIL].samples) == 4
        assert families["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"].type == "unknown"
        _, headers, _ = exporter.get("/metrics", {"Accept": "text/plain"})
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")


def test_gzip_when_asked_for_is_the_same_page():
    with exporter_on("h100x8", "--collect-interval=60000") as (node, exporter):
        plain = first_page(exporter).text
        request = urllib.request.Request(exporter.url(), headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            zipped = gzip.decompress(answer.read()).decode()
        assert Page(zipped).order == Page(plain).order


# --- a scrape costs nothing but its bytes ---

def keep_alive_scrapes(port, count):
    """That many requests over one connection; the first body."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(10 * SLOW)
        f = s.makefile("rb")
        first = None
        for _ in range(count):
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            length = 0
            while (line := f.readline()) != b"\r\n":
                assert line, "connection closed"
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = f.read(length)
            first = first or body
        return first


def test_a_scrape_causes_no_vendor_call_and_no_kubelet_call():
    with exporter_on("demo", "--collect-interval=60000") as (node, exporter):
        first_page(exporter)
        time.sleep(0.5)
        before, begun = node.counts(), time.monotonic()
        keep_alive_scrapes(exporter.port, 500)
        for _ in range(50):
            exporter.page()
        after = node.counts()
        # The wait for events is renewed whether or not anybody scrapes.
        vendor = lambda counts: {k: v for k, v in counts.items() if not k.startswith(("kubelet.", "nvmlEventSetWait"))}
        assert vendor(after) == vendor(before)
        # The kubelet is asked once a second, whoever scrapes.
        asked = after["kubelet.v1.List"][0] - before["kubelet.v1.List"][0]
        assert asked <= time.monotonic() - begun + 2


def test_a_keep_alive_scrape_allocates_no_memory(tmp_path):
    if BUILD.name in ("asan", "tsan"):
        pytest.skip("the sanitizer owns the allocator")
    counter = tmp_path / "mallocs"
    counter.write_bytes(bytes(8))
    env = {"LD_PRELOAD": str(BUILD / "tests" / "libmalloc_count.so"), "MALLOC_COUNT": str(counter)}
    with exporter_on("demo", "--collect-interval=60000", kubernetes=False, env=env) as (node, exporter):
        first_page(exporter)
        with open(counter, "r+b") as f, mmap.mmap(f.fileno(), 8) as page:
            mallocs = lambda: struct.unpack("Q", page[:8])[0]
            assert mallocs() > 100, "the counter counts"
            keep_alive_scrapes(exporter.port, 10)
            before = mallocs()
            keep_alive_scrapes(exporter.port, 10)
            few = mallocs() - before
            before = mallocs()
            keep_alive_scrapes(exporter.port, 1010)
            many = mallocs() - before
    # A connection costs a few allocations and the tick of a second a few more; a scrape costs none.
    assert many - few < 100, (few, many)


# --- Prometheus itself ---

def test_prometheus_sees_the_square_wave_under_the_pods_name(tmp_path):
    with exporter_on("demo") as (node, exporter):
        first_page(exporter)
        with prometheus(tmp_path, [f"127.0.0.1:{exporter.port}"], "1s") as server:
            time.sleep(46)  # more than one whole period of 40 s
            selector = UTIL + '{pod=~"gpu-burn.*"}[46s]'
            result = wait_until(lambda: server.query(selector), 10, "samples in Prometheus")
            up = server.value("count_over_time(up[46s])")
        epoch = time.time() - node.node.now() / 1e9
    assert up >= 40
    assert len(result) == 1, result
    points = [(float(t), float(v)) for t, v in result[0]["values"]]
    assert {v for _, v in points} >= {0.0, 100.0}
    edges = [(t1, v1 > v0) for (_, v0), (t1, v1) in zip(points, points[1:]) if (v0 > 50) != (v1 > 50)]
    assert len(edges) >= 2
    for at, rising in edges:
        # The demo's gpu-burn starts at t = 0: on for 20 s, off for 20 s.
        phase = (at - epoch) % 40
        want = 0 if rising else 20
        off = (phase - want) % 40
        assert off <= 2 or off >= 39.5, (at, phase, rising)


# --- Groups that DCGM alone has ---

ALL_GROUPS = """\
DCGM_FI_DEV_GPU_TEMP, gauge, t
DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, s
DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS, gauge, l
DCGM_FI_DEV_NVLINK_GET_STATE, gauge, n
DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, u
DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, c
DCGM_FI_DRIVER_VERSION, label, d
"""


@pytest.mark.parametrize("scenario, families", [
    ("dcgm-fabric", {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT",
                     "DCGM_FI_DEV_NVSWITCH_LINK_FLIT_ERRORS", "DCGM_FI_DEV_NVLINK_GET_STATE"}),
    ("dcgm-grace", {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_CPU_UTIL_TOTAL", "DCGM_FI_DEV_CPU_TEMP_CURRENT"}),
])
def test_promtool_and_prometheus_client_accept_switches_links_cpus_and_cores(scenario, families, tmp_path):
    from prometheus_client.parser import text_string_to_metric_families
    counters = tmp_path / "counters.csv"
    counters.write_text(ALL_GROUPS)
    with exporter_on(scenario, counters=str(counters)) as (node, exporter):
        page = exporter.page_when(lambda p: all(p.samples(f) for f in families), 60, "all groups")
    done = subprocess.run(["promtool", "check", "metrics"], input=page.text, text=True, capture_output=True)
    assert "error while linting" not in done.stderr
    assert [l for l in done.stderr.splitlines() if not allowed_lint(l)] == []
    series = [(s.name, tuple(sorted(s.labels.items()))) for f in text_string_to_metric_families(page.text)
              for s in f.samples]
    assert len(series) == len(set(series))
    headers = [l for l in page.text.splitlines() if l.startswith("# TYPE")]
    assert len(headers) == len(set(headers))
    for family in families:
        assert all("DCGM_FI_DRIVER_VERSION" in labels for labels, _ in page.samples(family))

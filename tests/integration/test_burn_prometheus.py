"""burn -> exporter -> Prometheus: what a real Prometheus scraped of the exporter is what it scraped of podgpu-burn."""
import contextlib
import re
import subprocess

import pytest

from harness import BUILD, SLOW, exporter_on, wait_until
from prometheus_server import prometheus

pytestmark = pytest.mark.slow
UTIL = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"}'
BUSY = 'podgpu_burn_busy_seconds_total{gpu="0"}'
SCHEDULED = 'podgpu_burn_scheduled_seconds_total{gpu="0"}'
CYCLES, ON_S, SCRAPE_S = 10, 1.5, 0.25


@contextlib.contextmanager
def burning(node, folder, *arguments):
    """podgpu-burn with a listener: yields (Popen, its address)."""
    log = folder / "burn.log"
    with open(log, "wb") as log_file:
        burn = subprocess.Popen([BUILD / "podgpu-burn", "--listen", "127.0.0.1:0", *arguments], env=node.env,
                                stdout=log_file, stderr=log_file)
    try:
        port = wait_until(lambda: re.search(r"msg=listening.* port=(\d+)", log.read_text()), 10, "listens")[1]
        yield burn, f"127.0.0.1:{port}"
    finally:
        if burn.poll() is None:
            burn.kill()
        burn.wait()


def integral(points, end):
    """Seconds of full load up to that time: each value holds until the next."""
    inside = [(at, value) for at, value in points if at < end] + [(end, None)]
    return sum(value / 100 * (later[0] - at) for (at, value), later in zip(inside, inside[1:]))


def test_over_ten_cycles_prometheus_has_the_same_from_both(tmp_path):
    counters = tmp_path / "counters.csv"
    counters.write_text("DCGM_FI_DEV_GPU_UTIL, gauge, Utilization.\n")
    with exporter_on("burn", "-c", "100", counters=counters) as (node, exporter), \
            burning(node, tmp_path, "--gpus=0", f"--on={ON_S}", f"--off={ON_S}", "--memory=256MiB") as (burn, address), \
            prometheus(tmp_path, [f"127.0.0.1:{exporter.port}", address], f"{int(SCRAPE_S * 1000)}ms") as server:
        # More than those: the ones before Prometheus came, and the one it is asked in.
        wait_until(lambda: (found := server.query(SCHEDULED)) and float(found[0]["value"][1]) > (CYCLES + 2.1) * ON_S,
                   90, "the cycles")
        util, busy, scheduled = (server.points(selector, "5m") for selector in (UTIL, BUSY, SCHEDULED))
        # From the last scrape in the first off phase that was seen as one, ten cycles on.
        offs = [n for n in range(1, len(scheduled) - 1)
                if 0 < scheduled[n - 1][1] == scheduled[n][1] < scheduled[n + 1][1]]
        first = offs[0]
        last = next(n for n in offs if scheduled[n][1] >= scheduled[first][1] + (CYCLES - 0.01) * ON_S)
        begin, end = scheduled[first][0], scheduled[last][0]
        said = dict(busy)[end] - dict(busy)[begin]
        seen = integral(util, end) - integral(util, begin)
        edge = max(later[0] - at for (at, _), later in zip(util, util[1:]))
        assert scheduled[last][1] - scheduled[first][1] == pytest.approx(CYCLES * ON_S, abs=1e-3)
        assert said == pytest.approx(CYCLES * ON_S, rel=0.05 * SLOW)
        assert seen == pytest.approx(said, abs=0.01 * said + 2 * CYCLES * edge)
        # Edges up and down make up for each other, so that much less than a sample an edge is left.
        if edge < 2 * SCRAPE_S:
            assert seen == pytest.approx(said, abs=0.01 * said + 2 * edge)
            # docs/burn.md's query: both as a percentage, joined by the GPU.
            window = f"{round((end - begin) * 1000)}ms"
            shares = [server.value(f"{head} by (UUID) ({of}[{window}]))", end)
                      for head, of in (("avg", f"avg_over_time({UTIL}"), ("100 * sum", f"rate({BUSY}"))]
            assert shares == [pytest.approx(50, abs=3), pytest.approx(50, abs=3)]
            difference = (f"avg by (UUID) (avg_over_time({UTIL}[{window}]))"
                          f" - on (UUID) 100 * sum by (UUID) (rate({BUSY}[{window}]))")
            assert server.value(difference, end) == pytest.approx(shares[0] - shares[1], abs=1e-6)
        assert burn.poll() is None

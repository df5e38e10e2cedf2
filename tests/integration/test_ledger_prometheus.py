# SPDX-License-Identifier: Apache-2.0
"""What a real Prometheus makes of the ledger's families: integrals, quantiles and rates against what the node did."""
import subprocess

import pytest

from harness import SLOW, exporter_at, wait_until
from prometheus_server import prometheus
from test_ledger_page import flags

import run_node

RATIO = "podgpu_gpu_utilization_ratio"
SECOND = 1_000_000_000
STEP = 2  # seconds between scrapes
PODS = ("burn-5d8f7c6b9d-k4m2x", "infer-0")


@pytest.fixture(name="scraped", scope="module")
def fixture_scraped(tmp_path_factory):
    """(node, page, Prometheus, the time of the last scrape) after a wave of 20 s that was low before the first scrape
    and is low at the last one, so that what was done between the two is known."""
    folder = tmp_path_factory.mktemp("prometheus")
    with run_node.SimNode("wave", proc=True, logs=True) as node:
        node.set("process.7101.load", 0)
        with exporter_at(node, *flags(node), "--podgpu-families=all") as exporter, \
                prometheus(folder, [f"127.0.0.1:{exporter.port}"], f"{STEP}s") as server:
            wait_until(lambda: server.query(RATIO + "_count"), 30, "a scrape")
            start = node.node.now() + SECOND
            node.node.command("set process.7101.load=1", start)
            node.node.command("set process.7101.load=0", start + 20 * SECOND)
            # A second of interval, two of the ledger's lag, a scrape.
            wait_until(lambda: node.node.now() > start + (20 + 3.5 + STEP) * SECOND, 60 * SLOW, "the wave is over")
            page = exporter.page()
            yield node, page, server, server.points(RATIO + '_count{gpu="0"}', "1m")[-1][0]


def grown(server, selector):
    """(by how much, over how many seconds) from the first scrape to the last."""
    seen = server.points(selector, "2m")
    assert len(seen) >= 10
    return seen[-1][1] - seen[0][1], seen[-1][0] - seen[0][0]


def test_promtool_has_nothing_to_say_of_the_ledger(scraped):
    _, page, _, _ = scraped
    own = "".join(f"{line}\n" for name in page.order if name.startswith("podgpu_") for line in page.families[name])
    assert RATIO + "_bucket" in own and "podgpu_container_gpu_busy_seconds_total" in own
    judged = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True, text=True, check=False)
    assert [line for line in judged.stderr.splitlines() if not line.startswith("podgpu_gpu_info ")] == []


def test_the_histogram_integrates_to_what_was_done(scraped):
    """A sample is a sixth of a second of the driver's: of the wave their sum is its twenty seconds, of the bursts their
    mean is a fifth."""
    node, _, server, _ = scraped
    total, _ = grown(server, RATIO + '_sum{gpu="0"}')
    done = node.node.busy_us(0, 3 * SECOND, node.node.now()) / 1e6
    assert done == pytest.approx(20) and total / 6 == pytest.approx(done, rel=0.01)
    total, _ = grown(server, RATIO + '_sum{gpu="1"}')
    count, span = grown(server, RATIO + '_count{gpu="1"}')
    assert count == pytest.approx(6 * span, abs=12)
    mean = node.node.busy_us(1, 0, 20 * SECOND) / 20e6
    assert mean == pytest.approx(0.2) and total / count == pytest.approx(mean, rel=0.04)


@pytest.mark.parametrize("gpu, quantile, low, high", [
    (0, 0.05, 0, 0), (0, 0.95, 0.99, 1),                       # low or high, nothing between
    (1, 0.5, 0, 0), (1, 0.75, 0.1, 0.3), (1, 0.95, 0.99, 1)])  # of six samples one is 1, one about 0.2, four are 0
def test_quantiles_of_the_histogram(scraped, gpu, quantile, low, high):
    _, _, server, at = scraped
    value = server.value(f'histogram_quantile({quantile}, sum by (le) (increase({RATIO}_bucket{{gpu="{gpu}"}}[26s])))', at)
    assert low <= value <= high


def test_rate_over_busy_seconds_is_the_share_of_time_that_a_gpu_was_busy(scraped):
    _, _, server, at = scraped
    busy = 'podgpu_gpu_busy_seconds_total{gpu="%d"}'
    total, span = grown(server, busy % 0)
    assert total == pytest.approx(20, rel=0.01)
    assert server.value(f"rate({busy % 0}[{round(span) + 1}s])", at) == pytest.approx(total / span, rel=0.1)
    assert server.value(f"rate({busy % 1}[{round(span) + 1}s])", at) == pytest.approx(0.2, rel=0.1)


def test_what_a_pod_alone_on_its_gpu_had_and_nobody_had_is_what_the_gpu_did(scraped):
    _, _, server, at = scraped
    for gpu, pod in enumerate(PODS):
        own = server.value(f'podgpu_container_gpu_busy_seconds_total{{pod="{pod}"}}', at)
        rest = server.value(f'podgpu_gpu_unattributed_busy_seconds_total{{gpu="{gpu}"}}', at)
        assert own + rest == pytest.approx(server.value(f'podgpu_gpu_busy_seconds_total{{gpu="{gpu}"}}', at), abs=1e-6)
        assert rest <= 0.5  # the interval in which the holder was told of

# SPDX-License-Identifier: Apache-2.0
"""How often the programs wake up when nobody asks for anything: timers share their moments."""
import pathlib
import re
import time

import pytest

from harness import BUILD, exporter_on
from measure import STOCK, Client

pytestmark = pytest.mark.skipif(BUILD.name in ("asan", "tsan"), reason="a sanitizer's thread wakes too")

SECONDS = 5


def waits(pid):
    """How often the main thread went to sleep."""
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


@pytest.mark.parametrize("kubernetes, most", [(False, 3), (True, 7)])
def test_a_second_costs_a_handful_of_wake_ups(kubernetes, most):
    # A sample and the timers, which fall together but for some; a poll of the kubelet has three more.
    with exporter_on("h100x8", counters=STOCK, kubernetes=kubernetes) as (_, exporter):
        exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_GPU_TEMP"), 20, "first page")
        client = Client(exporter.port)  # a scraper that keeps its connection, idle between its scrapes
        client.scrape()
        time.sleep(2)
        before = waits(exporter.pid), waits(exporter.helper_pid())
        begun = time.monotonic()
        time.sleep(SECONDS)
        after = waits(exporter.pid), waits(exporter.helper_pid())
        seconds = time.monotonic() - begun + 1
        client.close()
    assert after[0] - before[0] <= most * seconds
    assert after[1] - before[1] <= 3 * seconds

"""The A10G node of the AWS post with DCGM, end to end: its whole page, byte for byte."""
import pytest

from harness import exporter_on
from test_post import expected, without_new_labels

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def page():
    with exporter_on("post-dcgm", "--hostname-label=Hostname") as (_, exporter):
        yield exporter.page_when(lambda p: p.samples("DCGM_FI_PROF_PCIE_RX_BYTES"), seconds=20,
                                 what="profiling families")


def test_the_page_equals_the_posts_page_for_all_23_families(page):
    want = {n: set(lines) for n, lines in expected().families.items()}
    assert len(want) == 23
    have = {n: {without_new_labels(line) for line in page.families.get(n, [])} for n in page.device_families()}
    assert have == want


def test_only_the_profiling_families_come_from_dcgm(page):
    sources = {}
    for labels, _ in page.samples("podgpu_exporter_field_source_info"):
        sources.setdefault(labels["source"], set()).add(labels["field"])
    assert sources["dcgm"] == {n for n in expected().order if "_PROF_" in n}
    others = set().union(*(fields for source, fields in sources.items() if source != "dcgm"))
    assert not others & sources["dcgm"]


def test_nothing_is_told_as_missing_but_what_the_board_lacks(page):
    missing = {labels["field"] for labels, _ in page.samples("podgpu_exporter_field_unavailable_info")}
    assert not {n for n in missing if "_PROF_" in n}

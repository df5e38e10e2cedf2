"""The A10G node of the AWS post, end to end: its page byte for byte, the profiling families where there is DCGM."""
import subprocess

import pytest

from harness import BLOG, Page, exporter_on

pytestmark = pytest.mark.smoke

# Labels newer than the post.
NEW_LABELS = ("pci_bus_id", "err_code", "err_msg")


def without_new_labels(line):
    for label in NEW_LABELS:
        at = line.find(f',{label}="')
        if at >= 0:
            end = line.index('"', at + len(label) + 3)
            line = line[:at] + line[end + 1:]
    return line


def expected():
    return Page((BLOG / "metrics.txt").read_text())


@pytest.fixture(scope="module")
def page():
    with exporter_on("post", "--hostname-label=Hostname") as (_, exporter):
        yield exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_GPU_UTIL"), what="first page with devices")


def test_the_page_equals_the_posts_page_for_its_18_non_profiling_families(page):
    want = {n: set(lines) for n, lines in expected().families.items() if "_PROF_" not in n}
    assert len(want) == 18
    have = {n: {without_new_labels(l) for l in page.families.get(n, [])} for n in want}
    assert have == want


def test_no_other_device_family_is_there(page):
    want = [n for n in expected().order if "_PROF_" not in n]
    assert sorted(page.device_families()) == sorted(want)


def test_the_new_labels_are_there(page):
    labels, value = page.samples("DCGM_FI_DEV_XID_ERRORS")[0]
    assert (labels["err_code"], labels["err_msg"], value) == ("0", "No Error", "0")
    assert all(l["pci_bus_id"] for n in page.device_families() for l, _ in page.samples(n))


def test_profiling_families_are_absent_with_a_stated_reason(page):
    assert not [n for n in page.families if "_PROF_" in n]
    missing = {l["field"]: l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")}
    prof = [n for n in expected().order if "_PROF_" in n]
    assert len(prof) == 5
    assert {n: missing.get(n) for n in prof} == {n: "needs_gpm" for n in prof}


# --- The same node with DCGM ---

@pytest.fixture(scope="module")
def whole_page():
    with exporter_on("post-dcgm", "--hostname-label=Hostname") as (_, exporter):
        yield exporter.page_when(lambda p: p.samples(expected().order[-1]), what="profiling values")


def test_with_dcgm_the_page_equals_the_posts_page_whole(whole_page):
    want = {n: set(lines) for n, lines in expected().families.items()}
    assert len(want) == 23
    have = {n: {without_new_labels(l) for l in whole_page.families.get(n, [])} for n in whole_page.device_families()}
    assert have == want


def test_only_the_profiling_families_come_from_dcgm(whole_page):
    sources = {}
    for labels, _ in whole_page.samples("podgpu_exporter_field_source_info"):
        sources.setdefault(labels["source"], set()).add(labels["field"])
    dcgm = sources.pop("dcgm")
    assert dcgm == {n for n in expected().order if "_PROF_" in n}
    assert not dcgm & set().union(*sources.values())


def test_with_dcgm_no_profiling_family_is_told_as_missing(whole_page):
    missing = {labels["field"] for labels, _ in whole_page.samples("podgpu_exporter_field_unavailable_info")}
    assert not {n for n in missing if "_PROF_" in n}

"""Kubelets that restart, refuse, answer at length, are old or silent: owner labels stay for a while and never lie."""
import time

import pytest

from harness import SLOW, exporter_at, exporter_on

USED = "DCGM_FI_DEV_FB_USED"


@pytest.fixture
def node():
    """One GPU that the pod "job" holds."""
    import run_node
    with run_node.SimNode("post") as n:
        n.command("pods clear")
        n.command("pods add job device=gpu0")
        yield n

def job_owners(page):
    return [l.get("pod") for l, _ in page.samples(USED)]


def test_labels_stay_over_a_restart_of_the_kubelet():
    with exporter_on("kubelet-restart", rate=2) as (node, exporter):
        exporter.page_when(lambda p: job_owners(p) == ["job-0", "job-1"], what="owners")
        saw_down = False
        while node.node.now() < 14e9:  # down from 5 s, back at 8 s, short until 12 s
            page = exporter.page()
            assert job_owners(page) == ["job-0", "job-1"]
            saw_down = saw_down or page.value("podgpu_exporter_attribution_up") == 0
            time.sleep(0.05)
        assert saw_down
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 1, 10, "answered again")
        assert page.value("podgpu_exporter_attribution_failures_total") >= 1


def test_labels_stay_while_the_kubelet_refuses_and_the_age_tells():
    with exporter_on("kubelet-limited", rate=2) as (node, exporter):
        exporter.page_when(lambda p: job_owners(p) == ["job-0", "job-1"], what="owners")
        oldest = 0
        while node.node.now() < 21e9:  # refused from 5 s to 20 s
            page = exporter.page()
            assert job_owners(page) == ["job-0", "job-1"]
            oldest = max(oldest, page.value("podgpu_exporter_attribution_age_seconds"))
            time.sleep(0.05)
        assert oldest > 5
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_age_seconds") < 2, 10, "fresh again")
        assert page.value("podgpu_exporter_attribution_rate_limited_total") >= 3
        assert "level=WARN" not in exporter.log


def test_a_kubelet_with_an_answer_of_megabytes_is_understood():
    with exporter_on("kubelet-big") as (node, exporter):
        page = exporter.page_when(lambda p: job_owners(p) == ["job-0", "job-1"], 15, "owners")
        assert page.value("podgpu_exporter_attribution_rows") == 2
        assert page.value("podgpu_exporter_attribution_failures_total") == 0


def test_a_kubelet_without_v1_is_asked_by_v1alpha1(node):
    node.set("kubelet.v1", 0)
    with exporter_at(node) as exporter:
        page = exporter.page_when(lambda p: job_owners(p) == ["job"], what="the owner")
        assert page.value("podgpu_exporter_attribution_up") == 1
        assert page.value("podgpu_exporter_attribution_failures_total") == 0
    assert node.node.calls("kubelet.v1alpha1.List") > 0


def test_a_silent_kubelet_holds_the_first_page_for_two_seconds_only(node):
    node.set("kubelet.silent", 1)
    with exporter_at(node) as exporter:
        begun = time.monotonic()
        page = exporter.page_when(lambda p: p.samples(USED), 5, "devices")
        assert 1.5 < time.monotonic() - begun < 3 * SLOW
        assert job_owners(page) == [None]
        node.set("kubelet.silent", 0)
        exporter.page_when(lambda p: job_owners(p) == ["job"], 15, "the owner")


@pytest.mark.slow
def test_labels_go_after_a_minute_without_an_answer(node):
    with exporter_at(node) as exporter:
        exporter.page_when(lambda p: job_owners(p) == ["job"], what="the owner")
        node.set("kubelet.down", 1)
        begun = time.monotonic()
        exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_up") == 0, 5, "down")
        age = 0
        while job_owners(page := exporter.page()) == ["job"]:
            now = page.value("podgpu_exporter_attribution_age_seconds")
            assert now >= age, "the age grows"
            age = now
            assert time.monotonic() - begun < 65 * SLOW
            time.sleep(0.2)
        assert job_owners(page) == [None]
        assert time.monotonic() - begun > 57 and 57 < age <= 61
        node.set("kubelet.down", 0)
        exporter.page_when(lambda p: job_owners(p) == ["job"], 15, "the owner is back")

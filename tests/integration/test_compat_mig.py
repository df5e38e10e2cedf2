"""MIG: which entities are shown, whose numbers they carry, who holds them, and a layout that changes while running."""
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import SLOW, exporter_at, exporter_on, wait_until

pytestmark = pytest.mark.faults

TEMP = "DCGM_FI_DEV_GPU_TEMP"        # the board's
USED = "DCGM_FI_DEV_FB_USED"         # the instance's
UUIDS = ["GPU-8a6f0d9c-5b3e-4d27-a1c4-93f2e07b6d10", "GPU-8a6f0d9c-5b3e-4d27-a1c4-93f2e07b6d11"]
# Of the scenario: GPU, instance, profile, container, namespace, pod.
INSTANCES = [("0", "1", "3g.40gb", "jupyter", "students", "notebook-a"),
             ("0", "3", "2g.20gb", "jupyter", "students", "notebook-b"),
             ("0", "7", "1g.10gb", "jupyter", "students", "notebook-c"),
             ("0", "8", "1g.10gb", None, None, None)]
WHOLE = ("1", None, None, "worker", "research", "batch-0")
BOARD = ("0", None, None, None, None, None)


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("mig", freeze=5) as n:
        yield n


def entity(labels):
    return tuple(labels.get(k) for k in ("gpu", "GPU_I_ID", "GPU_I_PROFILE", "container", "namespace", "pod"))


def entities(page, family):
    return [entity(labels) for labels, _ in page.samples(family)]


def shown(exporter, count):
    return exporter.page_when(lambda p: len(p.samples(USED)) == count and len(p.samples(TEMP)) > 0, what=f"{count} entities")


@pytest.mark.parametrize("selection, want", [
    ("f", [*INSTANCES, WHOLE]),
    ("g", [BOARD, WHOLE]),
    ("g:0", [BOARD]),
    ("i", INSTANCES),
    ("i:0,2-3", [INSTANCES[0], INSTANCES[2], INSTANCES[3]]),
    ("g+i", [BOARD, WHOLE, *INSTANCES]),
    ("g:1+i:1", [WHOLE, INSTANCES[1]]),
])
def test_each_selection_shows_its_entities_in_order(node, selection, want):
    with exporter_at(node, "-d", selection) as exporter:
        page = shown(exporter, len(want))
    for family in (TEMP, USED, "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_POWER_USAGE"):
        assert entities(page, family) == want, family
    for family in page.device_families():
        for labels, _ in page.samples(family):
            assert labels["UUID"] == UUIDS[int(labels["gpu"])]  # the board's, also on instances
            assert labels["device"] == "nvidia" + labels["gpu"]
    series = [(s.name, tuple(sorted(s.labels.items()))) for f in text_string_to_metric_families(page.text)
              for s in f.samples]
    assert len(series) == len(set(series))


def test_the_instances_labels_stand_between_model_and_host(node):
    with exporter_at(node) as exporter:
        page = shown(exporter, 5)
    labels, _ = page.samples(USED)[0]
    assert list(labels) == ["gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "hostname",
                            "DCGM_FI_DRIVER_VERSION", "container", "namespace", "pod"]
    assert "GPU_I_ID" not in page.samples(USED)[4][0]


def test_an_instance_has_its_own_memory_and_the_boards_temperature(node):
    with exporter_at(node) as exporter:
        page = shown(exporter, 5)
    by_id = {labels.get("GPU_I_ID"): int(value) for labels, value in page.samples(USED)}
    first = {}
    for instance in node.node.instances():
        if instance["gi"] not in first:
            first[instance["gi"]] = node.node.memory(0, instance=instance["index"])[2] >> 20
    assert {k: v for k, v in by_id.items() if k} == {str(gi): used for gi, used in first.items()}
    assert len({by_id["1"], by_id["3"], by_id["7"], by_id["8"]}) == 4
    board = str(node.node.truth(0, "temperature_c"))
    assert [v for l, v in page.samples(TEMP) if l["gpu"] == "0"] == [board] * 4


def test_board_fields_once_stand_on_the_unowned_board(node):
    with exporter_at(node, "--mig-board-fields=once") as exporter:
        page = shown(exporter, 5)
    assert entities(page, USED) == [*INSTANCES, WHOLE]
    for family in (TEMP, "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"):
        assert entities(page, family) == [BOARD, WHOLE], family
    with exporter_at(node, "--mig-board-fields=once", "--empty-owner-labels") as exporter:
        page = shown(exporter, 5)
    assert entities(page, TEMP)[0] == ("0", None, None, "", "", "")
    assert entities(page, USED)[3] == ("0", "8", "1g.10gb", "", "", "")


def test_what_the_board_cannot_tell_under_mig_is_absent_with_a_reason(node):
    with exporter_at(node) as exporter:
        page = shown(exporter, 5)
    assert entities(page, "DCGM_FI_DEV_GPU_UTIL") == [WHOLE]
    missing = {(l["field"], l["reason"], l["gpu"]) for l, _ in page.samples("podgpu_exporter_field_unavailable_info")}
    assert ("DCGM_FI_DEV_GPU_UTIL", "not_supported", "0") in missing


def test_podgpu_families_tell_of_boards_and_instances(node):
    with exporter_at(node) as exporter:
        page = shown(exporter, 5)
    assert [(l["gpu"], l.get("GPU_I_ID"), v) for l, v in page.samples("podgpu_gpu_up")] == [
        ("0", None, "1"), ("0", "1", "1"), ("0", "3", "1"), ("0", "7", "1"), ("0", "8", "1"), ("1", None, "1")]
    assert [l["gpu"] for l, _ in page.samples("podgpu_gpu_info")] == ["0", "1"]


def test_instances_have_their_activity_from_gpm():
    with exporter_on("mig") as (node, exporter):
        family = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
        page = exporter.page_when(lambda p: len(p.samples(family)) == 5, what="activity")
        assert entities(page, family) == [*INSTANCES, WHOLE]
        active = [float(v) for _, v in page.samples(family)]
        assert active[0] == pytest.approx(1, abs=0.02) and active[3] == pytest.approx(0, abs=0.02)
        assert active[4] == pytest.approx(0.9, abs=0.02)


def test_an_instance_that_is_not_there_is_told(node):
    with exporter_at(node, "-d", "i:9") as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_device_selection_ok") == 0, what="told")
        assert page.device_families() == []
        wait_until(lambda: "couldn't find requested GPU instance ID '9'" in exporter.log, what="logged")


def test_an_xid_of_an_instance_is_told_there():
    with exporter_on("mig") as (node, exporter):
        shown(exporter, 5)
        node.xid(31, gpu=0, gi=7, ci=0)
        family = "DCGM_FI_DEV_XID_ERRORS"
        page = exporter.page_when(lambda p: any(v == "31" for _, v in p.samples(family)), what="the XID")
        time.sleep(1.2)  # the kernel's line does not make it two
        page = exporter.page()
        assert [(l.get("GPU_I_ID"), v) for l, v in page.samples(family)] == [
            ("1", "0"), ("3", "0"), ("7", "31"), ("8", "0"), (None, "0")]
        assert [(l["gpu"], l.get("GPU_I_ID"), v) for l, v in page.samples("podgpu_gpu_xid_errors_total")
                if l["xid"] == "31" and v != "0"] == [("0", "7", "1")]


def test_a_new_layout_is_followed_and_never_gives_an_old_owner_a_new_instance():
    with exporter_on("mig") as (node, exporter):
        shown(exporter, 5)
        old = {i["gi"]: i["uuid"] for i in node.node.instances()}
        for name in ("notebook-a", "notebook-b", "notebook-c"):
            node.command(f"pods end {name}")
        node.command("mig gpu=0 layout=1g.10gb,1g.10gb,4g.40gb force")
        new = {i["gi"]: i for i in node.node.instances()}
        assert not set(old.values()) & {i["uuid"] for i in new.values()}
        want = [("0", str(gi), i["profile"].split("+")[0]) for gi, i in sorted(new.items())]
        is_new = lambda p: sorted(e[:3] for e in entities(p, USED) if e[1]) == sorted(want)
        deadline = time.monotonic() + 30 * SLOW
        while not is_new(page := exporter.page()):
            # On the way a sample shows either layout, and no instance of the new one has an owner of the old.
            for e in entities(page, USED):
                if e[:3] in want and e[:3] not in [i[:3] for i in INSTANCES]:
                    assert e[5] is None
            assert time.monotonic() < deadline, page.text[:4000]
            time.sleep(0.02)
        page = exporter.page_when(lambda p: is_new(p) and all(e[5] is None for e in entities(p, USED) if e[1]), 10, "no owners")
        assert entities(page, USED)[-1] == WHOLE
        gi, instance = next((g, i) for g, i in new.items() if i["profile"].startswith("4g"))
        node.command(f"pods add trainer namespace=research container=main resource=nvidia.com/mig-4g.40gb device={instance['uuid']}")
        page = exporter.page_when(lambda p: any(e[5] == "trainer" for e in entities(p, USED)), 10, "the new owner")
        assert [e for e in entities(page, USED) if e[5] == "trainer"] == [
            ("0", str(gi), "4g.40gb", "main", "research", "trainer")]
        assert exporter.page().value("podgpu_exporter_helper_starts_total", source="nvml") == 1


def test_mig_that_is_turned_off_gives_the_board_back():
    with exporter_on("mig", kubernetes=False, kubelet=False) as (node, exporter):
        shown(exporter, 5)
        node.command("mig gpu=0 layout=off force")
        page = exporter.page_when(lambda p: [e[:2] for e in entities(p, USED)] == [("0", None), ("1", None)], 30, "whole GPUs")
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_GPU_UTIL")) == 2, 10, "the board's utilisation")

"""The page as dcgm-exporter's clients read it: labels and their order, host name, device selection, XIDs, foreign text."""
import re
import socket
import subprocess
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import SLOW, Page, exporter_at, exporter_on, parse_labels, wait_until

UTIL = "DCGM_FI_DEV_GPU_UTIL"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
XID = "DCGM_FI_DEV_XID_ERRORS"


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo", freeze=5) as n:
        yield n


def devices(exporter, count=4):
    return exporter.page_when(lambda p: len(p.samples(TEMP)) == count, what=f"{count} devices")


# --- Layout ---

def test_a_family_is_two_comments_and_its_samples_in_device_order(node):
    with exporter_at(node) as exporter:
        page = devices(exporter)
    uuids = [node.node.uuid(i) for i in range(4)]
    owners = [("main", "kube-system", "gpu-burn-c68d8c774-ltg9s"), ("trainer", "ml-team", "train-resnet-0"),
              ("trainer", "ml-team", "train-resnet-0"), ("server", "serving", "llm-server-7d9f6c5b8-x2k4q")]
    want = [f"# HELP {TEMP} GPU temperature (in C).", f"# TYPE {TEMP} gauge"]
    for i in range(4):
        container, namespace, pod = owners[i]
        want.append(f'{TEMP}{{gpu="{i}",UUID="{uuids[i]}",pci_bus_id="00000000:00:1{"BCDE"[i]}.0",device="nvidia{i}",'
                    f'modelName="NVIDIA A10G",hostname="{node.node_name}",DCGM_FI_DRIVER_VERSION="535.183.01",'
                    f'container="{container}",namespace="{namespace}",pod="{pod}"}} {node.node.truth(i, "temperature_c")}')
    assert page.families[TEMP] == want
    # One block without empty lines, device families first.
    assert "\n\n" not in page.text and page.text.endswith("\n")
    assert "\n".join(want) + "\n" in page.text
    assert page.order[0] == "DCGM_FI_DEV_SM_CLOCK"


def test_the_page_is_the_same_whoever_scrapes_and_however_often(node):
    with exporter_at(node, "-c", "60000", kubernetes=False) as exporter:
        devices(exporter)
        def family_lines():
            return [l for l in exporter.page().text.splitlines() if l.startswith(("DCGM_", "podgpu_gpu_"))]
        first = family_lines()
        assert len(first) > 60
        assert all(family_lines() == first for _ in range(20))


@pytest.mark.parametrize("flags, labels", [
    ([], ["gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DRIVER_VERSION",
          "container", "namespace", "pod"]),
    (["-o"], ["gpu", "uuid", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DRIVER_VERSION",
              "container_name", "pod_name", "pod_namespace"]),
    (["-n"], ["gpu", "UUID", "pci_bus_id", "device", "modelName", "DCGM_FI_DRIVER_VERSION", "container", "namespace",
              "pod"]),
    (["--hostname-label=both"], ["gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "hostname",
                                 "DCGM_FI_DRIVER_VERSION", "container", "namespace", "pod"]),
    (["--hostname-label=Hostname", "-o"], ["gpu", "uuid", "pci_bus_id", "device", "modelName", "Hostname",
                                           "DCGM_FI_DRIVER_VERSION", "container_name", "pod_name", "pod_namespace"]),
])
def test_the_labels_of_every_device_sample_stand_in_this_order(node, flags, labels):
    with exporter_at(node, *flags) as exporter:
        page = devices(exporter)
    with_error = sorted(labels[labels.index("DCGM_FI_DRIVER_VERSION") + 1:] + ["err_code", "err_msg"])
    for family in page.device_families():
        for have, _ in page.samples(family):
            want = labels if family != XID else labels[:labels.index("DCGM_FI_DRIVER_VERSION") + 1] + with_error
            assert list(have) == want, family
            assert {v for k, v in have.items() if k.lower() == "hostname"} <= {node.node_name}
    up, _ = page.samples("podgpu_gpu_up")[0]
    assert [k for k in up if k.lower() == "hostname"] == [k for k in labels if k.lower() == "hostname"]


def test_without_kubernetes_there_are_no_owners_and_the_kubelet_is_not_asked(node):
    before = node.node.calls("kubelet.v1.List")
    with exporter_at(node, kubernetes=False) as exporter:
        page = devices(exporter)
        time.sleep(1.2)
        assert node.node.calls("kubelet.v1.List") == before
    assert not {"pod", "namespace", "container"} & page.samples(UTIL)[0][0].keys()
    assert not page.samples("podgpu_exporter_attribution_up")


@pytest.mark.parametrize("flags, name", [([], "NVIDIA H100 80GB HBM3"),
                                         (["--replace-blanks-in-model-name"], "NVIDIA-H100-80GB-HBM3"),
                                         (["-rbmn"], "NVIDIA-H100-80GB-HBM3")])
def test_blanks_in_the_model_name_are_replaced_on_request(flags, name):
    with exporter_on("h100x8", *flags, kubernetes=False, kubelet=False) as (_, exporter):
        page = devices(exporter, 8)
    for family in [*page.device_families(), "podgpu_gpu_info"]:
        assert {l["modelName"] for l, _ in page.samples(family)} == {name}


# --- The host name ---

def test_the_hostname_is_the_nodes_or_the_machines(node):
    for env, name in [({"NODE_NAME": "worker-7"}, "worker-7"), ({"NODE_NAME": ""}, socket.gethostname())]:
        for kubernetes in (False, True):
            with exporter_at(node, env=env, kubernetes=kubernetes) as exporter:
                assert {l["hostname"] for l, _ in devices(exporter).samples(TEMP)} == {name}


@pytest.mark.parametrize("remote", ["localhost:5555", "127.0.0.1:5555", "127.0.0.1", "[::1]:5555", "[::1]", "::1",
                                    "tcp://localhost:5555", "unix:///run/hostengine.sock", ""])
def test_an_engine_on_this_machine_leaves_the_hostname_alone(node, remote):
    with exporter_at(node, "-r", remote, kubernetes=False) as exporter:
        page = devices(exporter)
        assert page.samples(TEMP)[0][0]["hostname"] == node.node_name
        assert page.samples("podgpu_exporter_feature_unavailable_info") == []


def test_an_engine_elsewhere_leaves_the_hostname_alone_in_kubernetes(node):
    with exporter_at(node, "-r", "gpu-engine.example:5555") as exporter:
        assert devices(exporter).samples(TEMP)[0][0]["hostname"] == node.node_name


# --- Selection ---

@pytest.mark.parametrize("selection, gpus", [("f", [0, 1, 2, 3]), ("g", [0, 1, 2, 3]), ("g:0,2-3", [0, 2, 3]),
                                             ("g:3", [3]), ("g:3,1", [1, 3]), ("g:0+i", [0])])
def test_the_chosen_gpus_are_shown_in_their_order(node, selection, gpus):
    with exporter_at(node, "-d", selection) as exporter:
        page = devices(exporter, len(gpus))
    for family in [*page.device_families(), "podgpu_gpu_up", "podgpu_gpu_info"]:
        assert [int(l["gpu"]) for l, _ in page.samples(family)] == gpus, family
    assert page.value("podgpu_exporter_device_selection_ok") == 1


@pytest.mark.parametrize("selection, reason", [("g:7", "couldn't find requested GPU ID '7'"),
                                               ("g:0,4", "couldn't find requested GPU ID '4'"),
                                               ("i:0", "couldn't find requested GPU instance ID '0'")])
def test_a_missing_device_is_told_and_leaves_no_device_families(node, selection, reason):
    with exporter_at(node, "-d", selection) as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_device_selection_ok") == 0, what="told")
        assert page.device_families() == []
        wait_until(lambda: reason in exporter.log, what="logged")
        assert 'msg="not collecting GPU metrics"' in exporter.log
        assert exporter.get("/health")[0] == 200


# --- XIDs ---

def test_an_xid_of_driver_and_kernel_counts_once_and_has_its_text():
    with exporter_on("demo") as (node, exporter):
        page = devices(exporter)
        assert {(l["err_code"], l["err_msg"], v) for l, v in page.samples(XID)} == {("0", "No Error", "0")}
        uuid = node.node.uuid(2)
        totals = lambda p: {l["xid"]: v for l, v in p.samples("podgpu_gpu_xid_errors_total") if l["UUID"] == uuid}
        node.xid(42, gpu=2)                    # both channels
        exporter.page_when(lambda p: totals(p).get("42") == "1", what="the first")
        node.xid(255, gpu=2, only="nvml")
        exporter.page_when(lambda p: totals(p).get("255") == "1", what="the driver's alone")
        node.xid(13, gpu=2, only="kmsg")
        page = exporter.page_when(lambda p: totals(p).get("13") == "1", what="the kernel's alone")
        for _ in range(3):
            node.xid(42, gpu=2)
        page = exporter.page_when(lambda p: totals(p).get("42") == "4", what="three more")
        time.sleep(1.5)
        page = exporter.page()
        assert (totals(page)["42"], totals(page)["255"], totals(page)["13"], totals(page)["79"]) == ("4", "1", "1", "0")
        last = [(l["err_code"], l["err_msg"], v) for l, v in page.samples(XID) if l["gpu"] == "2"]
        assert last == [("42", "Video processor exception", "42")]
        others = {v for l, v in page.samples(XID) if l["gpu"] != "2"}
        assert others == {"0"}


def test_an_unknown_xid_has_a_text_too():
    with exporter_on("demo", kubernetes=False, kubelet=False) as (node, exporter):
        devices(exporter)
        node.xid(255, gpu=0)
        page = exporter.page_when(lambda p: p.samples(XID)[0][1] == "255", what="the code")
        assert page.samples(XID)[0][0]["err_msg"] == "Unknown Error"


# --- Foreign text ---

def test_the_drivers_odd_text_is_escaped_and_repaired():
    with exporter_on("bad-text", counters=None) as (node, exporter):
        page = devices(exporter, 1)
    assert page.samples(TEMP)[0][0]["modelName"] == "NVIDIA ??A10G"
    list(text_string_to_metric_families(page.text))


def test_a_serial_with_quotes_and_line_breaks_is_one_label(tmp_path):
    counters = tmp_path / "c.csv"
    counters.write_text(f"{TEMP},gauge,t\nDCGM_FI_DEV_SERIAL,label,s\n")
    with exporter_on("bad-text", counters=counters) as (node, exporter):
        page = devices(exporter, 1)
    assert page.families[TEMP][2].count(r'DCGM_FI_DEV_SERIAL="13\"24\n\\7"') == 1
    family = next(f for f in text_string_to_metric_families(page.text) if f.name == TEMP)
    assert family.samples[0].labels["DCGM_FI_DEV_SERIAL"] == '13"24\n\\7'

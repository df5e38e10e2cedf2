# SPDX-License-Identifier: Apache-2.0
"""Devices given out by resource claims (DRA): whose they are by name and by ResourceSlice, in both layouts."""
import contextlib

import pytest

from harness import exporter_at, wait_until
from kubelet_peers import GrpcKubelet, claim_answer, socket_folder
from test_pod_labels import kubeconfig

from apiserver import ApiServer  # sim/ is on the path by harness

pytestmark = pytest.mark.faults

USED = "DCGM_FI_DEV_FB_USED"
LAYOUT = "--kubernetes-enable-dra"
KNOWN = "ResourceSlices are known"
GPUS = [f"GPU-c4a7d1e0-58b3-4f62-9d0e-2b6c8a1f3e0{i}" for i in range(3)]
# By (gpu, instance): who, of which claim. GPU 1 is /dev/nvidia2 there and the other way round.
CLAIMS = {
    ("1", None): [("trainer", "research", "worker", "trainer-gpu-x7k2p", "gpu-2", None)],
    ("0", "7"): [("notebook-static", "students", "jupyter", "static-mig-m4n8q", "gpu-0-mig-1g10gb-19-6", "1g.10gb")],
    ("0", "3"): [("notebook-dynamic", "students", "jupyter", "dynamic-mig-b2v6w", "gpu-0-mig-2g20gb-14-4", "2g.20gb")],
    ("2", None): [("sharer-a", "team", "main", "shared-gpu", "gpu-1", None),
                  ("sharer-b", "team", "main", "shared-gpu", "gpu-1", None)],
}


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("dra") as n:
        yield n


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    with contextlib.suppress(OSError):
        server.stop()


def owners(page):
    """{(gpu, instance): pods} of each sample that has a pod, and of those that have none."""
    found = {}
    for labels, _ in page.samples(USED):
        found.setdefault((labels["gpu"], labels.get("GPU_I_ID")), []).append(labels.get("pod"))
    return found


def claims(page):
    found = {}
    for labels, _ in page.samples(USED):
        if "dra_claim_name" not in labels:
            continue
        assert labels["dra_driver_name"] == "gpu.nvidia.com" and labels["dra_pool_name"] == "dra-0"
        assert labels["dra_claim_namespace"] == labels["namespace"]
        found.setdefault((labels["gpu"], labels.get("GPU_I_ID")), []).append(
            (labels["pod"], labels["namespace"], labels["container"], labels["dra_claim_name"],
             labels["dra_device_name"], labels.get("dra_mig_profile")))
    return {device: sorted(users) for device, users in found.items()}


def slice_of(name, generation, count, *devices):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
            "spec": {"driver": "gpu.nvidia.com", "nodeName": "dra-0",
                     "pool": {"name": "dra-0", "generation": generation, "resourceSliceCount": count},
                     "devices": [{"name": n, "attributes": {"type": {"string": "gpu"}, "uuid": {"string": u}}}
                                 for n, u in devices]}}


def test_names_alone_tell_a_claims_gpu_or_instance(node):
    with exporter_at(node) as exporter:
        page = exporter.page_when(lambda p: owners(p).get(("1", None)) == ["trainer"], what="owners")
        assert owners(page) == {("0", "1"): [None], ("0", "3"): ["notebook-dynamic"], ("0", "7"): ["notebook-static"],
                                ("1", None): ["trainer"], ("2", None): [None]}  # two share it
        assert claims(page) == {}


@pytest.mark.parametrize("versions", [("v1", "v1beta2", "v1beta1"), ("v1beta2", "v1beta1"), ("v1beta1",)])
def test_each_user_of_a_claim_has_a_copy_with_the_claims_labels(node, tmp_path, versions):
    import pods
    api = ApiServer(slice_versions=versions)
    try:
        api.put(*pods.slice_objects(node.node))
        with exporter_at(node, LAYOUT, "--kubeconfig", kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}")) as exporter:
            wait_until(lambda: KNOWN in exporter.log, 20, "slices")
            assert f'version={versions[0]}' in exporter.log
            page = exporter.page_when(lambda p: claims(p) == CLAIMS, what="claims")
            assert owners(page)[("0", "1")] == [None]
            instance = {i["gi"]: i["uuid"] for i in node.node.instances() if i["ci"] == 0}
            uuids = {labels["GPU_I_ID"]: labels["dra_mig_device_uuid"] for labels, _ in page.samples(USED)
                     if "dra_mig_device_uuid" in labels}
            assert uuids == {"7": instance[7], "3": instance[3]}
    finally:
        api.stop()


def test_without_leave_to_read_slices_the_layout_is_the_same_and_nobody_is_warned(node, api, tmp_path):
    api.denied |= {("list", "resourceslices"), ("watch", "resourceslices")}
    with exporter_at(node, LAYOUT, "--kubeconfig", kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}")) as exporter:
        exporter.page_when(lambda p: claims(p) == CLAIMS, what="claims")
        wait_until(lambda: "ResourceSlices cannot be read" in exporter.log, 20, "the reason")
        assert not [l for l in exporter.log.splitlines() if "level=warn" in l and "ResourceSlice" in l]


def test_outside_a_cluster_the_layout_is_the_same(node):
    with exporter_at(node, LAYOUT) as exporter:
        exporter.page_when(lambda p: claims(p) == CLAIMS, what="claims")


def test_a_pool_that_is_published_anew_changes_nothing_until_it_is_whole(node, api, tmp_path):
    api.put(slice_of("a", 1, 2, ("gpu-1", GPUS[1])), slice_of("b", 1, 2, ("gpu-2", GPUS[2])))
    def whole(page):
        return {device: pods for device, pods in owners(page).items() if device[0] != "0"}
    with exporter_at(node, "--kubernetes-enable-dra", "--kubeconfig",
                     kubeconfig(tmp_path, f"http://127.0.0.1:{api.port}")) as exporter:
        first = {("1", None): ["sharer-a", "sharer-b"], ("2", None): ["trainer"]}
        exporter.page_when(lambda p: whole(p) == first, what="slices of the first generation")
        api.put(slice_of("a", 2, 2, ("gpu-1", GPUS[2])))
        put_at = len(api.requests)
        seen = len(api.history["resourceslices@v1"])
        assert seen and whole(exporter.page_when(lambda p: True, what="page")) == first
        api.put(slice_of("b", 2, 2, ("gpu-2", GPUS[1])))
        exporter.page_when(lambda p: whole(p) == {("1", None): ["trainer"], ("2", None): ["sharer-a", "sharer-b"]},
                           what="slices of the second generation")


def test_an_instance_that_is_nowhere_gives_no_sibling_its_pod(node):
    """Of the same profile, on the same GPU: a real peer of gRPC lists a claim that the driver does not know of."""
    with socket_folder() as folder:
        path = folder / "kubelet.sock"
        message = claim_answer(("p", "main", "c", ["gpu-0-mig-2g20gb-14-0"]), ("q", "a", "d", ["gpu-1"]),
                               ("q", "b", "d", ["gpu-1"]), pool="dra-0")
        with GrpcKubelet(path, lambda *_: message):
            with exporter_at(node, "--pod-resources-kubelet-socket", path) as exporter:
                page = exporter.page_when(lambda p: owners(p).get(("2", None)) == ["q"], what="owners")
                assert {pods[0] for device, pods in owners(page).items() if device[0] == "0"} == {None}
                # One device in two containers of a pod: one series, the pod's.
                labels = next(labels for labels, _ in page.samples(USED) if labels["gpu"] == "2")
                assert labels["container"] == ""

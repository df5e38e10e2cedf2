# SPDX-License-Identifier: Apache-2.0
"""The exporter against the gRPC library that the kubelet is built on: grpc-go serves what this test encodes
(tests/grpc_go; script/bootstrap builds it)."""
import contextlib
import subprocess

import pytest

from harness import ROOT, exporter_at, wait_until
from kubelet_peers import allocatable_answer, answer, gpu_row, socket_folder
from test_pod_labels import by_gpu, with_labels
from test_pod_sources import JOB, NODE, WEB, infos, ups

import pods_proto  # noqa: E402  (sim/ is on the path by harness)
import run_node  # noqa: E402

SERVER = ROOT / "build" / "judges" / "grpc_go_kubelet"
UUID = "GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb92"
GPU = "nvidia.com/gpu"
pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="script/bootstrap had no Go to build tests/grpc_go with")


class GoKubelet:
    """Both sockets on grpc-go servers that answer with the files of their folder."""

    def __init__(self, folder):
        self.folder = folder
        self.log_path = folder / "log"
        self.sockets = {"kubelet": folder / "kubelet.sock", "pods": folder / "pods.sock"}
        self.processes = []

    def put(self, method, data):
        part = self.folder / "part"
        part.write_bytes(data)
        part.rename(self.folder / method)

    def refuse(self, method, code, text):
        self.put(f"{method}.error", f"{code} {text}".encode())

    def relent(self, method):
        (self.folder / f"{method}.error").unlink()

    def calls(self):
        return [tuple(line.split()) for line in self.log_path.read_text().splitlines() if line.startswith("/")]

    def __enter__(self):
        with open(self.log_path, "a") as log:
            for path in self.sockets.values():
                self.processes.append(subprocess.Popen([SERVER, path, self.folder], stdout=log, stderr=log))
        wait_until(lambda: all(p.exists() for p in self.sockets.values()), 20, "grpc-go listens")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def listed(*pods):
    bodies = [{"metadata": {"namespace": "team", **pod}} for pod in pods]
    bodies += [{"metadata": {"namespace": "kube-system", "name": f"plain-{i}", "labels": {"note": "x" * 100},
                             "uid": f"00000000-0000-4000-8000-{i:012}"}} for i in range(1500)]
    return pods_proto.MESSAGES["ListPodsResponse"](pods=map(pods_proto.pod_bytes, bodies)).SerializeToString()


def owned(name, uid, kind, owner, **labels):
    reference = {"kind": kind, "name": owner, "uid": "9" * 8, "apiVersion": "v1", "controller": True}
    return {"name": name, "uid": uid, "labels": labels, "ownerReferences": [reference]}


@contextlib.contextmanager
def running(*flags):
    with socket_folder() as folder, GoKubelet(folder) as kubelet, run_node.SimNode("pods", text=NODE) as node:
        node.socket = kubelet.sockets["kubelet"]
        kubelet.put("v1.PodResourcesLister.List", answer(
            gpu_row("web-7d4b9c6f5-x2x4q", UUID + "4", namespace="team"), gpu_row("train-0", UUID + "5", namespace="team"),
            plain_pods=4000))
        kubelet.put("v1.PodResourcesLister.GetAllocatableResources",
                    allocatable_answer(*((GPU, UUID + end) for end in "456")))
        hash_label = {"pod-template-hash": "7d4b9c6f5"}
        kubelet.put("v1alpha1.Pods.ListPods", listed(
            owned("web-7d4b9c6f5-x2x4q", WEB, "ReplicaSet", "web-7d4b9c6f5", app="web", **hash_label),
            owned("train-0", JOB, "Job", "train")))
        assert all((folder / name).stat().st_size > 128 << 10 for name in ("v1.PodResourcesLister.List", "v1alpha1.Pods.ListPods"))
        with exporter_at(node, "--pods-api-socket", kubelet.sockets["pods"], "--pod-log-path", folder / "none", *flags) as exporter:
            yield kubelet, exporter


def test_large_answers_of_grpc_go_give_owners_and_what_is_allocatable():
    with running("--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid") as (kubelet, exporter):
        page = exporter.page_when(lambda p: len(infos(p)) == 2 and p.samples("podgpu_node_gpu_allocatable"), 20, "all of it")
        page = exporter.page_when(lambda p: with_labels(p, "0", pod_uid=WEB, app="web"), what="labels")
        assert infos(page) == {"web-7d4b9c6f5-x2x4q": (WEB, "Deployment", "web"), "train-0": (JOB, "Job", "train")}
        assert with_labels(page, "1", pod="train-0", pod_uid=JOB, namespace="team", container="main")
        assert not by_gpu(page)["2"].get("pod")
        assert page.value("podgpu_node_gpu_allocatable", resource=GPU) == 3
        assert page.value("podgpu_node_gpu_allocated", resource=GPU) == 2
        assert ups(page)["kubelet"] == 1
        assert {method for method, _, code in kubelet.calls() if code == "OK"} == {
            "/v1.PodResourcesLister/List", "/v1.PodResourcesLister/GetAllocatableResources", "/v1alpha1.Pods/ListPods"}


def test_an_error_of_grpc_go_is_told_in_its_words_and_passes():
    with running() as (kubelet, exporter):
        exporter.page_when(lambda p: len(infos(p)) == 2, 20, "owners")
        kubelet.refuse("v1.PodResourcesLister.List", 14, "100% not r\u00e9ady")
        wait_until(lambda: "100% not r\u00e9ady" in exporter.log, 20, "the reason is logged")
        assert with_labels(exporter.page(), "1", pod="train-0")  # the last good answer is kept
        kubelet.put("v1.PodResourcesLister.List", answer(gpu_row("train-0", UUID + "6", namespace="team"), plain_pods=4000))
        kubelet.relent("v1.PodResourcesLister.List")
        page = exporter.page_when(lambda p: with_labels(p, "2", pod="train-0"), 30, "the next good answer")
        assert not by_gpu(page)["1"].get("pod")


def test_an_error_of_the_pods_api_is_none_of_the_pages():
    with running() as (kubelet, exporter):
        exporter.page_when(lambda p: len(infos(p)) == 2, 20, "owners")
        kubelet.refuse("v1alpha1.Pods.ListPods", 14, "kubelet is busy")
        exporter.page_when(lambda p: ups(p)["kubelet"] == 0, 30, "it is down")
        assert infos(exporter.page())["train-0"] == (JOB, "Job", "train")
        kubelet.relent("v1alpha1.Pods.ListPods")
        exporter.page_when(lambda p: ups(p)["kubelet"] == 1, 90, "it is up")

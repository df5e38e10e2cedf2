"""The simulated kubelet, asked by grpcio's own client; and the kernel log beside it."""
import os
import re
import time

import grpc
import pytest

import harness  # noqa: F401  (puts sim/ on the path)

import kubelet
import run_node

UUID = "GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3"
V1 = kubelet.messages("v1")
V1ALPHA1 = kubelet.messages("v1alpha1")
EVERYTHING = [("grpc.max_receive_message_length", -1)]


def call(node, method, request=b"", timeout=10, options=EVERYTHING):
    with grpc.insecure_channel(f"unix:{node.socket}", options=options) as channel:
        return channel.unary_unary(method)(request, timeout=timeout)


def status(node, method, **options):
    with pytest.raises(grpc.RpcError) as failed:
        call(node, method, **options)
    return failed.value.code(), failed.value.details()


def list_v1(node, **options):
    return V1["ListPodResourcesResponse"].FromString(call(node, "/v1.PodResourcesLister/List", **options))


def held(answer):
    return [(p.namespace, p.name, c.name, d.resource_name, list(d.device_ids), [n.ID for n in d.topology.nodes])
            for p in answer.pod_resources for c in p.containers for d in c.devices]


def test_the_posts_pods_are_listed_in_v1_and_v1alpha1():
    with run_node.SimNode("post") as node:
        answer = list_v1(node)
        assert [(p.namespace, p.name) for p in answer.pod_resources] == [
            ("kube-system", "gpu-burn-c68d8c774-ltg9s"), ("kube-system", "aws-node-7kxlp"),
            ("gpu-operator", "nvidia-dcgm-exporter-48cwd")]
        assert held(answer) == [("kube-system", "gpu-burn-c68d8c774-ltg9s", "main", "nvidia.com/gpu", [UUID], [0])]
        old = V1ALPHA1["ListPodResourcesResponse"].FromString(call(node, "/v1alpha1.PodResourcesLister/List"))
        assert held(old) == [("kube-system", "gpu-burn-c68d8c774-ltg9s", "main", "nvidia.com/gpu", [UUID], [])]
        assert node.node_name == "nvidia-dcgm-exporter-48cwd"
        assert node.node.calls("kubelet.v1.List") == 1 and node.node.calls("kubelet.v1alpha1.List") == 1


def test_a_device_with_two_numa_nodes_has_two_entries_in_v1_and_devices_share_one_in_v1alpha1():
    text = ("driver: {version: 550.90.07}\nmodels: models.yaml\ngpus:\n"
            "  - {model: a10g, uuid: GPU-a, bus_id: \"00000000:01:00.0\"}\n"
            "  - {model: a10g, uuid: GPU-b, bus_id: \"00000000:02:00.0\"}\n"
            "pods: [{name: p, containers: [{name: c, devices: [{ids: [gpu0, \"gpu1::3\"], numa: [0, 1]}]}]}]\n")
    with run_node.SimNode("numa", text=text) as node:
        assert [row[4:] for row in held(list_v1(node))] == \
            [(["GPU-a"], [0]), (["GPU-a"], [1]), (["GPU-b::3"], [0]), (["GPU-b::3"], [1])]
        old = V1ALPHA1["ListPodResourcesResponse"].FromString(call(node, "/v1alpha1.PodResourcesLister/List"))
        assert [row[4:] for row in held(old)] == [(["GPU-a", "GPU-b::3"], [])]


def test_get_and_allocatable_resources():
    with run_node.SimNode("mig") as node:
        request = V1["GetPodResourcesRequest"](pod_name="notebook-b", pod_namespace="students")
        got = V1["GetPodResourcesResponse"].FromString(
            call(node, "/v1.PodResourcesLister/Get", request.SerializeToString()))
        instances = {(x["gi"], x["ci"]): x["uuid"] for x in node.node.instances()}
        assert got.pod_resources.containers[0].devices[0].device_ids == [instances[3, 0]]
        code, _ = status(node, "/v1.PodResourcesLister/Get", request=b"")
        assert code == grpc.StatusCode.UNKNOWN
        answer = V1["AllocatableResourcesResponse"].FromString(
            call(node, "/v1.PodResourcesLister/GetAllocatableResources"))
        assert [d.device_ids[0] for d in answer.devices] == [*instances.values(), node.node.uuid(1)]


def test_pods_come_and_go():
    with run_node.SimNode("post") as node:
        node.command("pods add second namespace=team container=worker device=gpu0::1 resource=nvidia.com/gpu.shared")
        assert held(list_v1(node))[1] == ("team", "second", "worker", "nvidia.com/gpu.shared", [f"{UUID}::1"], [0])
        node.command("pods end gpu-burn-c68d8c774-ltg9s")
        assert [row[1] for row in held(list_v1(node))] == ["second"]


def test_a_version_that_is_switched_off_is_unimplemented():
    with run_node.SimNode("old-driver") as node:
        assert status(node, "/v1.PodResourcesLister/List")[0] == grpc.StatusCode.UNIMPLEMENTED
        assert status(node, "/v1.PodResourcesLister/NoSuch")[0] == grpc.StatusCode.UNIMPLEMENTED
        assert call(node, "/v1alpha1.PodResourcesLister/List")
        node.set("kubelet.v1", 1)
        assert len(held(list_v1(node))) == 1


def test_the_bucket_holds_ten_calls_of_all_clients():
    with run_node.SimNode("post") as node:
        node.set("kubelet.calls_per_second", "0.01")
        for _ in range(5):
            list_v1(node)
            call(node, "/v1alpha1.PodResourcesLister/List")
        code, details = status(node, "/v1.PodResourcesLister/List")
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED and "rate limit" in details
        assert node.node.calls("kubelet.rejected") == 1


def test_a_limited_kubelet_rejects_from_5_to_20_seconds():
    with run_node.SimNode("kubelet-limited", freeze=4) as node:
        list_v1(node)
        node.freeze(5)
        assert status(node, "/v1.PodResourcesLister/List")[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        node.freeze(20)
        list_v1(node)


def test_an_answer_of_five_mebibytes_is_whole_and_too_large_for_a_default_client():
    with run_node.SimNode("kubelet-big") as node:
        body = call(node, "/v1.PodResourcesLister/List")
        assert 5 << 20 <= len(body) < 6 << 20
        answer = V1["ListPodResourcesResponse"].FromString(body)
        assert [row[1] for row in held(answer) if row[3] == "nvidia.com/gpu"] == ["job-0", "job-1"]
        assert len(answer.pod_resources) == 10
        assert status(node, "/v1.PodResourcesLister/List", options=[])[0] == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_slow_and_a_silent_kubelet():
    with run_node.SimNode("post") as node:
        node.set("kubelet.delay_ms", 200)
        begun = time.monotonic()
        list_v1(node)
        assert time.monotonic() - begun >= 0.2
        node.set("kubelet.silent", 1)
        assert status(node, "/v1.PodResourcesLister/List", timeout=0.5)[0] == grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_restart_takes_the_socket_away_puts_a_new_one_there_and_lists_little_at_first():
    with run_node.SimNode("kubelet-restart", freeze=4) as node:
        assert [row[1] for row in held(list_v1(node))] == ["job-0", "job-1"]
        before = os.stat(node.socket).st_ctime_ns
        node.freeze(6)
        node.wait_until(lambda: not os.path.exists(node.socket))
        node.freeze(9)
        node.wait_until(lambda: os.path.exists(node.socket))
        assert os.stat(node.socket).st_ctime_ns > before
        assert held(list_v1(node)) == []
        node.freeze(12)
        assert [row[1] for row in held(list_v1(node))] == ["job-0", "job-1"]
        assert os.listdir(os.path.dirname(node.socket)) == ["kubelet.sock"]


def test_an_xid_is_a_record_of_the_kernel_log_when_its_time_comes():
    with run_node.SimNode("hang", freeze=14, kubelet=False) as node:
        log = os.open(node.kmsg_path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            node.xid(31, gpu=0, only="nvml")
            node.xid(79, gpu=1)
            first = read_record(log, node)
            node.freeze(15)
            second = read_record(log, node)
        finally:
            os.close(log)
        form = r"3,(\d+),(\d+),-;NVRM: Xid \(PCI:0000:00:1E\): (\d+), pid='<unknown>', name=<unknown>, .+\n"
        a, b = re.fullmatch(form, first), re.fullmatch(form, second)
        assert (a[3], b[3]) == ("79", "119") and int(b[1]) == int(a[1]) + 1 and int(b[2]) > int(a[2])


def read_record(log, node):
    found = []

    def some():
        try:
            found.append(os.read(log, 4096))
        except BlockingIOError:
            return False
        return True
    node.wait_until(some)
    return found[0].decode()

"""The simulated node's pods as procfs, /var/log, kubelet and API server tell of them."""
import json
import os
import urllib.request

import grpc
import pytest

import harness  # noqa: F401  (puts sim/ on the path)

import apiserver
import kubelet
import pods_proto
import procfs
import run_node

from test_sim_kubelet import V1, call, list_v1, status

ID = "0123456789abcdef" * 4
UID = "2e7c9a10-6b4f-4f0e-8a3d-1c5b7d9e0f01"
UID_ = UID.replace("-", "_")
GPU = "GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb924"

NODE = """
node: node-7
driver: {version: 550.90.07}
models: models.yaml
cgroups: %(cgroups)s
gpus: [{model: t4, uuid: GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb924, bus_id: "00000000:00:1E.0"}]
pods:
  - name: web-7d4b9c6f5-x2x4q
    namespace: team
    uid: 2e7c9a10-6b4f-4f0e-8a3d-1c5b7d9e0f01
    owner: {kind: Deployment, name: web}
    labels: {app: web}
    containers:
      - name: main
        id: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
        devices: [{ids: ["gpu0::0"]}]
        processes: [{device: gpu0, pid: 6101, memory: 3000MiB}]
    init_containers:
      - {name: setup, processes: [{device: gpu0, pid: 6100, end: 5s}]}
      - {name: proxy, restartable: true, devices: [{ids: ["gpu0::1"]}]}
  - name: late
    start: 10s
    completes: 17s
    end: 60s
    owner: {kind: Job, name: late}
    containers: [{name: work, devices: [{ids: ["gpu0::2"]}], processes: [{device: gpu0, pid: 6102, name: "a) b"}]}]
  - name: monitor-node-7
    namespace: kube-system
    static: true
    qos: guaranteed
    containers: [{name: monitor, processes: [{device: gpu0, pid: 6103}]}]
processes: [{device: gpu0, pid: 6999, name: nvidia-persistenced-daemon}]
"""


def node_on(cgroups="systemd", freeze=1, **options):
    return run_node.SimNode("pods", text=NODE % {"cgroups": cgroups}, freeze=freeze, **{"kubelet": False, **options})


def read(node, pid, name):
    with open(f"{node.proc_path}/{pid}/{name}", encoding="utf-8") as f:
        return f.read()


def pids(node):
    return sorted(int(p) for p in os.listdir(node.proc_path) if p.isdigit() and int(p) > 2)


@pytest.mark.parametrize("shape, want", [
    ("systemd", f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope"),
    ("cgroupfs", f"0::/kubepods/burstable/pod{UID}/{ID}"),
    ("crio", f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/crio-{ID}.scope"),
    ("docker", f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/docker-{ID}.scope"),
    ("mismatch", f"0::/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}"),
    ("kind", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
             f"kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope"),
    ("inside", f"0::/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope"),
    ("hybrid", "\n".join(f"{line}:/kubepods/burstable/pod{UID}/{ID}"
                         for line in ("12:memory", "11:cpu,cpuacct", "10:pids", "1:name=systemd")) +
     "\n0::/system.slice/containerd.service"),
])
def test_a_process_has_the_cgroup_of_its_container_in_the_shape_the_scenario_chose(shape, want):
    with node_on(shape, proc=True) as node:
        assert read(node, 6101, "cgroup") == want + "\n"


def test_guaranteed_pods_have_no_level_of_their_own():
    assert procfs.cgroup("systemd", "guaranteed", "a-b", ID) == \
        f"0::/kubepods.slice/kubepods-poda_b.slice/cri-containerd-{ID}.scope\n"
    assert procfs.cgroup("cgroupfs", "guaranteed", "a-b", ID) == f"0::/kubepods/poda-b/{ID}\n"
    assert procfs.cgroup("inside", "guaranteed", "a-b", ID) == f"0::/../../../kubepods-poda_b.slice/cri-containerd-{ID}.scope\n"


def test_procfs_is_in_step_with_time_and_with_verbs():
    with node_on(proc=True) as node:
        assert pids(node) == [6100, 6101, 6103, 6999]
        assert read(node, 6999, "cgroup") == "0::/system.slice/nvidia-persistenced-daemon.service\n"
        assert read(node, 6999, "comm") == "nvidia-persiste\n"
        node.freeze(10)
        assert pids(node) == [6101, 6102, 6103, 6999]
        fields = read(node, 6102, "stat")
        assert fields.startswith("6102 (a) b) S 1 ") and len(fields.rsplit(")", 1)[1].split()) == 50
        begun = int(fields.rsplit(")", 1)[1].split()[19])
        node.freeze(17)
        assert pids(node) == [6101, 6103, 6999]
        node.command("process add device=gpu0 pid=6102 pod=web-7d4b9c6f5-x2x4q container=proxy")
        assert int(read(node, 6102, "stat").rsplit(")", 1)[1].split()[19]) != begun
        proxy = next(c["id"] for p in node.node.pods() for c in p["containers"] if c["name"] == "proxy")
        assert f"pod{UID_}.slice/cri-containerd-{proxy}.scope" in read(node, 6102, "cgroup")
        node.command("process end pid=6102")
        node.command("pods end web-7d4b9c6f5-x2x4q")
        assert pids(node) == [6103, 6999]


def test_procfs_follows_a_clock_that_runs():
    with node_on(proc=True) as node:
        node.freeze(9.9)
        node.run()
        node.wait_until(lambda: 6102 in pids(node))


def test_a_static_pod_has_the_hash_in_its_cgroup_and_log_and_another_uid_at_the_api_server():
    with node_on(proc=True, logs=True, api=True) as node:
        pod = node.api.get("Pod", "monitor-node-7", "kube-system")
        config = pod["metadata"]["annotations"]["kubernetes.io/config.hash"]
        assert len(config) == 32 and pod["metadata"]["uid"] != config
        assert pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] == config
        assert f"/kubepods-pod{config}.slice/" in read(node, 6103, "cgroup")
        assert f"kube-system_monitor-node-7_{config}" in os.listdir(f"{node.log_path}/pods")


def test_proc_tells_whose_pid_namespace_it_is():
    with node_on(proc=True) as node:
        assert os.readlink(f"{node.proc_path}/self/ns/pid") == "pid:[4026531836]"
        assert read(node, 2, "comm") == "kthreadd\n" and read(node, 1, "comm") == "systemd\n"
    with node_on(proc="private") as node:
        assert os.readlink(f"{node.proc_path}/self/ns/pid") != "pid:[4026531836]"
        assert sorted(p for p in os.listdir(node.proc_path)) == ["1", "self"]
        assert read(node, 1, "cgroup") == read(node, "self", "cgroup")


def test_names_of_logs_outlive_their_pod_by_half_a_minute():
    with node_on(logs=True) as node:
        assert os.listdir(f"{node.log_path}/pods/team_web-7d4b9c6f5-x2x4q_{UID}/main") == ["0.log"]
        link = f"{node.log_path}/containers/web-7d4b9c6f5-x2x4q_team_main-{ID}.log"
        assert os.path.exists(link)
        node.freeze(20)
        assert len(os.listdir(f"{node.log_path}/pods")) == 3
        node.command("pods end web-7d4b9c6f5-x2x4q")
        node.freeze(49)
        assert os.path.exists(link)
        node.freeze(50)
        assert not os.path.lexists(link)
        assert len(os.listdir(f"{node.log_path}/pods")) == 2


def test_identities_that_nobody_chose_are_the_same_in_each_run_and_new_for_a_pod_that_comes_back():
    seen = []
    for _ in range(2):
        with node_on() as node:
            node.command("pods end late")
            node.command("pods add late id=" + "f" * 64)
            node.command("pods add late")
            seen.append([(p["name"], p["uid"], [c["id"] for c in p["containers"]]) for p in node.node.all_pods()])
    assert seen[0] == seen[1]
    late = [row for row in seen[0] if row[0] == "late"]
    assert len({row[1] for row in late}) == 3 and late[1][2] == ["f" * 64] and len(late[2][2][0]) == 64


# --- the kubelet ---

CLAIMS = """
node: node-7
driver: {version: 570.86.15}
models: models.yaml
gpus: [{model: h100, uuid: GPU-a, bus_id: "00000000:1B:00.0", mig: "1g.10gb"},
       {model: h100, uuid: GPU-b, bus_id: "00000000:43:00.0"}]
claims:
  - {name: two, namespace: team, uid: 0b1c2d3e-1111-4222-8333-444455556666,
     devices: [{device: gpu-1}, {device: gpu-0-mig-1g10gb-19-0}, {driver: other.example, pool: p, device: x, share_id: s1}]}
slices:
  - name: node-7-gpu-a
    devices: [{name: gpu-1, uuid: gpu1}, {name: gpu-0-mig-1g10gb-19-0, type: mig, parent: gpu0, profile: 1g.10gb, uuid: gpu0/gi7}]
  - name: node-7-gpu-b
    devices: [{name: gpu-0-mig-2g20gb-14-2, type: mig, parent: gpu0, profile: 2g.20gb}]
pods:
  - name: trainer
    namespace: team
    claims: {gpus: two}
    containers: [{name: main, claims: [gpus]}, {name: other}]
"""


def test_claims_are_dynamic_resources_and_cdi_names_accumulate_within_a_driver():
    with run_node.SimNode("claims", text=CLAIMS) as node:
        main, other = list_v1(node).pod_resources[0].containers
        assert len(other.dynamic_resources) == 0 and len(main.devices) == 0
        claim, = main.dynamic_resources
        assert (claim.claim_name, claim.claim_namespace) == ("two", "team")
        prefix = "claim=0b1c2d3e-1111-4222-8333-444455556666-"
        gpus = [f"k8s.gpu.nvidia.com/{prefix}gpu-1", f"k8s.gpu.nvidia.com/{prefix}gpu-0-mig-1g10gb-19-0"]
        assert [(r.driver_name, r.pool_name, r.device_name, r.share_id, [d.name for d in r.cdi_devices])
                for r in claim.claim_resources] == [
            ("gpu.nvidia.com", "node-7", "gpu-1", "", gpus[:1]),
            ("gpu.nvidia.com", "node-7", "gpu-0-mig-1g10gb-19-0", "", gpus),
            ("other.example", "p", "x", "s1", [f"k8s.other.example/{prefix}x"])]
        node.set("kubelet.dra", 0)
        assert len(list_v1(node).pod_resources[0].containers[0].dynamic_resources) == 0


def test_what_is_listed_of_a_pod_with_init_containers_and_of_one_that_is_over():
    with node_on(freeze=12, kubelet=True) as node:
        def listed():
            return {p.name: [(c.name, len(c.devices)) for c in p.containers] for p in list_v1(node).pod_resources}
        assert listed() == {"web-7d4b9c6f5-x2x4q": [("proxy", 1), ("main", 1)], "late": [("work", 1)],
                            "monitor-node-7": [("monitor", 0)]}
        node.freeze(17)
        assert "late" not in listed()
        node.set("kubelet.completed", 1)
        assert listed()["late"] == [("work", 0)]
        node.set("kubelet.completed", 2)
        assert listed()["late"] == [("work", 1)]
        node.set("kubelet.short", 1)
        assert list(listed()) == ["monitor-node-7"]


def offered(node):
    answer = V1["AllocatableResourcesResponse"].FromString(call(node, "/v1.PodResourcesLister/GetAllocatableResources"))
    return [(d.resource_name, d.device_ids[0]) for d in answer.devices]


def test_allocatable_are_the_healthy_ids_that_the_plugin_offers():
    text = NODE % {"cgroups": "systemd"}
    text = text.replace("gpus: [{", "gpus: [{replicas: 3, resource: nvidia.com/gpu.shared, ")
    with run_node.SimNode("replicas", text=text) as node:
        assert offered(node) == [("nvidia.com/gpu.shared", f"{GPU}::{i}") for i in range(3)]
        node.set("kubelet.allocatable", 0)
        assert offered(node) == []
        node.set("kubelet.allocatable", 1)
        node.set("gpu0.unhealthy", 1)
        assert offered(node) == []
    with run_node.SimNode("mig") as node:
        assert [r for r, _ in offered(node)] == ["nvidia.com/mig-3g.40gb"] + ["nvidia.com/mig-1c.2g.20gb"] * 2 + \
            ["nvidia.com/mig-1g.10gb"] * 2 + ["nvidia.com/gpu"]


def pods_of(data):
    return [pods_proto.MESSAGES["Pod"].FromString(b) for b in pods_proto.MESSAGES["ListPodsResponse"].FromString(data).pods]


def ask_pods(node, method, request=b""):
    with grpc.insecure_channel(f"unix:{node.pods_api_socket}") as channel:
        return channel.unary_unary(f"/v1alpha1.Pods/{method}")(request, timeout=10)


def test_the_pods_api_is_there_only_where_the_scenario_says_so():
    with node_on(freeze=12, kubelet=True) as node:
        assert not os.path.exists(node.pods_api_socket)
        assert status(node, "/v1alpha1.Pods/ListPods")[0] == grpc.StatusCode.UNIMPLEMENTED
        node.set("kubelet.pods_api", 1)
        node.wait_until(lambda: os.path.exists(node.pods_api_socket))
        web, late, monitor = pods_of(ask_pods(node, "ListPods"))
        meta = web.metadata
        assert (meta.namespace, meta.name, meta.uid) == ("team", "web-7d4b9c6f5-x2x4q", UID)
        assert {e.key: e.value for e in meta.labels} == {"app": "web", "pod-template-hash": "7d4b9c6f5"}
        assert [(o.kind, o.name, o.controller) for o in meta.ownerReferences] == [("ReplicaSet", "web-7d4b9c6f5", True)]
        assert (web.status.phase, web.status.qosClass, web.spec.nodeName) == ("Running", "Burstable", "node-7")
        assert [(c.name, c.containerID) for c in web.status.containerStatuses] == [("main", f"containerd://{ID}")]
        assert [c.name for c in web.status.initContainerStatuses] == ["setup", "proxy"]
        assert [c.restartPolicy for c in web.spec.initContainers] == ["", "Always"]
        assert [(o.kind, o.name) for o in late.metadata.ownerReferences] == [("Job", "late")]
        hashes = {e.value for e in monitor.metadata.annotations if e.key == "kubernetes.io/config.hash"}
        assert hashes == {monitor.metadata.uid}  # the kubelet's own view of a static pod
        got = ask_pods(node, "GetPod", pods_proto.MESSAGES["GetPodRequest"](podUID=UID).SerializeToString())
        assert pods_proto.MESSAGES["GetPodResponse"].FromString(got).pod == web.SerializeToString(deterministic=True)
        with pytest.raises(grpc.RpcError) as failed:
            ask_pods(node, "GetPod", b"")
        assert failed.value.code() == grpc.StatusCode.NOT_FOUND
        node.set("kubelet.pods_api", 0)
        node.wait_until(lambda: not os.path.exists(node.pods_api_socket))


def test_the_pods_api_tells_changes_to_who_watches():
    with node_on(freeze=12, kubelet=True) as node:
        node.set("kubelet.pods_api", 1)
        node.wait_until(lambda: os.path.exists(node.pods_api_socket))
        with grpc.insecure_channel(f"unix:{node.pods_api_socket}") as channel:
            events = channel.unary_stream("/v1alpha1.Pods/WatchPods")(b"", timeout=20)

            def following():
                event = pods_proto.MESSAGES["WatchPodsEvent"].FromString(next(events))
                pod = pods_proto.MESSAGES["Pod"].FromString(event.pod)
                return event.type, pod.metadata.name, pod.status.phase
            assert [following() for _ in range(3)] == [
                (1, "web-7d4b9c6f5-x2x4q", "Running"), (1, "late", "Running"), (1, "monitor-node-7", "Running")]
            node.freeze(17)
            assert following() == (2, "late", "Succeeded")
            node.command("pods end late")
            assert following() == (3, "late", "")


def test_a_pod_that_waits_has_no_container_ids():
    with node_on(kubelet=True, api=True) as node:
        node.command("pods add waiting device=gpu0::3 phase=Pending owner=CronJob/nightly labels=a:b,c:d")
        pod = node.api.get("Pod", "waiting", "default")
        assert "containerID" not in pod["status"]["containerStatuses"][0]
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
        assert pod["metadata"]["ownerReferences"][0]["name"] == "nightly-29412345"
        assert {"a": "b", "c": "d"}.items() <= pod["metadata"]["labels"].items()
        assert [c.name for p in list_v1(node).pod_resources if p.name == "waiting" for c in p.containers] == ["main"]


# --- the API server ---

def get(server, path):
    with urllib.request.urlopen(server.url + path, timeout=10) as answer:
        return json.load(answer)


def test_the_api_server_has_the_nodes_pods_and_they_come_and_go():
    with node_on(api=True) as node:
        def names():
            return sorted(p["metadata"]["name"] for p in get(node.api, "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-7")["items"])
        assert names() == ["monitor-node-7", "web-7d4b9c6f5-x2x4q"]
        node.freeze(12)
        assert names() == ["late", "monitor-node-7", "web-7d4b9c6f5-x2x4q"]
        node.freeze(17)
        assert node.api.get("Pod", "late", "default")["status"]["phase"] == "Succeeded"
        node.command("pods complete web-7d4b9c6f5-x2x4q failed")
        assert node.api.get("Pod", "web-7d4b9c6f5-x2x4q", "team")["status"]["phase"] == "Failed"
        node.freeze(60)
        assert names() == ["monitor-node-7", "web-7d4b9c6f5-x2x4q"]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_slices_are_served_in_each_version_in_its_form(version):
    with run_node.SimNode("claims", text=CLAIMS, kubelet=False, api=True) as node:
        path = f"/apis/resource.k8s.io/{version}/resourceslices?fieldSelector=spec.nodeName%3Dnode-7,spec.driver%3Dgpu.nvidia.com"
        answer = get(node.api, path)
        assert (answer["kind"], answer["apiVersion"]) == ("ResourceSliceList", f"resource.k8s.io/{version}")
        assert [s["spec"]["pool"] for s in answer["items"]] == [{"name": "node-7", "generation": 1, "resourceSliceCount": 2}] * 2
        devices = {d["name"]: (d["basic"] if version == "v1beta1" else d)["attributes"]
                   for s in answer["items"] for d in s["spec"]["devices"]}
        assert devices["gpu-1"]["uuid"] == {"string": "GPU-b"} and devices["gpu-1"]["type"] == {"string": "gpu"}
        static = devices["gpu-0-mig-1g10gb-19-0"]
        assert (static["uuid"]["string"], static["parentUUID"]["string"], static["profile"]["string"]) == \
            (node.node.instances()[0]["uuid"], "GPU-a", "1g.10gb")
        assert "uuid" not in devices["gpu-0-mig-2g20gb-14-2"]
        assert ("basic" in answer["items"][0]["spec"]["devices"][0]) == (version == "v1beta1")
        assert get(node.api, path.replace("node-7", "other"))["items"] == []


def test_a_server_serves_the_versions_of_slices_that_it_has():
    server = apiserver.ApiServer(slice_versions=("v1beta1",))
    try:
        assert [v["version"] for v in get(server, "/apis/resource.k8s.io")["versions"]] == ["v1beta1"]
        assert get(server, "/apis/resource.k8s.io/v1beta1/resourceslices")["items"] == []
        with pytest.raises(urllib.error.HTTPError) as failed:
            get(server, "/apis/resource.k8s.io/v1/resourceslices")
        assert failed.value.code == 404
        server.deny("resourceslices")
        with pytest.raises(urllib.error.HTTPError) as failed:
            get(server, "/apis/resource.k8s.io/v1beta1/resourceslices")
        assert failed.value.code == 403
    finally:
        server.stop()


@pytest.mark.parametrize("text, reason", [
    ("pods: [{name: p, owner: {kind: Job, nam: x}}]", "nam"),
    ("pods: [{name: p, containers: [{name: c, id: abc}]}]", "64 hex digits"),
    ("pods: [{name: p, containers: [{name: c, restartable: true}]}]", "only init containers"),
    ("cgroups: round", "no such shape"),
    ("claims: [{name: c, devices: [{pool: p}]}]", "'device'"),
    ("slices: [{devices: []}]", "'name'"),
])
def test_a_scenario_that_is_wrong_is_refused(text, reason):
    with pytest.raises(RuntimeError, match=reason):
        run_node.SimNode("bad", text="driver: {version: 550.90.07}\n" + text, kubelet=False).start()

"""Discovery in Kubernetes (agent/discover_kube.h) against the simulated API server: changes, joins, scopes, problems."""
import pytest

from kube_harness import CLUSTER, ApiServer, discover

pytestmark = pytest.mark.faults
META = "__meta_kubernetes_"


@pytest.fixture
def server():
    api = ApiServer()
    api.load(CLUSTER)
    yield api
    api.stop()


def pod(name, namespace="ml", ip="10.1.0.9", node="gpu-1", port=9400, **labels):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": node, "containers": [
                {"name": "main", "image": "i", "ports": [{"containerPort": port, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}}


def test_a_pod_comes_changes_and_goes(server, tmp_path):
    with discover(tmp_path, server.url, "pod") as probe:
        probe.wait_ready()
        assert set(probe.groups) == {"pod/ml/six", "pod/ml/trainer-0", "pod/shop/web-1", "pod/shop/web-2"}
        server.put(pod("new", a="1"))
        probe.wait(lambda: "pod/ml/new" in probe.groups, "the new pod")
        assert probe.groups["pod/ml/new"][0][META + "pod_label_a"] == "1"
        server.put(pod("new", a="2"))
        probe.wait(lambda: probe.groups["pod/ml/new"][0][META + "pod_label_a"] == "2", "its change")
        server.delete("Pod", "new", "ml")
        probe.wait(lambda: "pod/ml/new" not in probe.groups, "its end")
        assert probe.told("ready") == [["4"]]


def test_a_change_that_matters_to_no_target_is_not_told(server, tmp_path):
    with discover(tmp_path, server.url, "node") as probe:
        probe.wait_ready()
        before = len(probe.told("group"))
        node = server.get("Node", "gpu-1")
        for second in range(20):
            node["status"]["conditions"][0]["lastHeartbeatTime"] = f"2026-01-02T03:04:{second:02}Z"
            server.put(node)
        node["metadata"]["labels"]["seen"] = "last"
        server.put(node)
        probe.wait(lambda: META + "node_label_seen" in probe.groups["node/gpu-1"][0], "the label")
        assert len(probe.told("group")) == before + 1
        assert probe.look()["events"] == 21


def test_the_agent_on_a_node_asks_for_its_pods_only(server, tmp_path):
    with discover(tmp_path, server.url, "pod", "selectors: [{role: pod, label: app=web}]", node="gpu-2") as probe:
        probe.wait_ready()
        assert set(probe.groups) == {"pod/shop/web-2"}
        lists = server.asked("/pods", fieldSelector="spec.nodeName=gpu-2", labelSelector="app=web")
        assert len(lists) >= 1 and len(server.asked("/pods")) == len(lists)

"""Discovery in Kubernetes (agent/discover_kube.h) against the simulated API server: changes, joins, scopes, problems."""
import threading
import time

import pytest

from harness import SLOW
from kube_harness import CLUSTER, ApiServer, Refusal, account, crowd, crowd_template, discover, make_certificate

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


def test_a_burst_of_changes_is_one_group_at_a_time(server, tmp_path):
    with discover(tmp_path, server.url, "pod") as probe:
        probe.wait_ready()
        begun = time.monotonic()
        for i in range(300):
            server.put(pod("busy", n=str(i)))
        probe.wait(lambda: "pod/ml/busy" in probe.groups and
                   probe.groups["pod/ml/busy"][0][META + "pod_label_n"] == "299", "the last change")
        told = [e for e in probe.told("group") if e[0] == "pod/ml/busy"]
        # One each 100 ms, one at the start.
        assert len(told) <= (time.monotonic() - begun) / 0.1 + 1
        assert probe.look()["events"] == 300


def test_nothing_is_told_before_every_list_is_there(server, tmp_path):
    real = server.serve_list
    allowed = threading.Event()

    def serve(handler, plural, *more):
        if plural == "services" and not allowed.is_set():
            raise Refusal(503, "ServiceUnavailable", "starting")
        real(handler, plural, *more)
    server.serve_list = serve
    with discover(tmp_path, server.url, "endpoints") as probe:
        probe.wait(lambda: probe.problem, "the problem")
        assert probe.problem == f"cannot list services at {server.url}: 503 ServiceUnavailable: starting"
        assert probe.groups == {} and len(probe.told("ready")) == 1, "it has failed once: nobody is to wait"
        allowed.set()
        probe.wait(lambda: "endpoints/shop/web" in probe.groups, "the targets", 60)
        assert probe.problem == "" and len(probe.told("ready")) == 1
        assert all(t[META + "service_name"] == "web" for t in probe.groups["endpoints/shop/web"])


def test_targets_stay_while_the_server_is_away_and_then_are_what_it_says(server, tmp_path):
    with discover(tmp_path, server.url, "pod") as probe:
        probe.wait_ready()
        server.stop()
        before = dict(probe.groups)
        server.delete("Pod", "web-1", "shop")
        server.put(pod("new"))
        server.compact()
        server.start()
        probe.wait(lambda: set(probe.groups) == {"pod/ml/six", "pod/ml/trainer-0", "pod/shop/web-2", "pod/ml/new"},
                   "what is there now", 60)
        # What did not change was not told again.
        assert [e[0] for e in probe.told("group")].count("pod/ml/six") == 1
        assert before["pod/ml/six"] == probe.groups["pod/ml/six"]


def test_namespaces_are_watched_one_by_one(server, tmp_path):
    with discover(tmp_path, server.url, "endpointslice", "namespaces: {names: [ml, shop, ml]}") as probe:
        probe.wait_ready()
        assert set(probe.groups) == {"endpointslice/ml/six-1", "endpointslice/shop/web-abcde"}
        asked = {path for path, _, _ in server.requests}
        assert asked == {f"/{api}/namespaces/{ns}/{kind}" for ns in ("ml", "shop") for api, kind in (
            ("api/v1", "pods"), ("api/v1", "services"), ("apis/discovery.k8s.io/v1", "endpointslices"))}
        assert probe.look()["lists"] == 6


def test_in_a_cluster_the_own_namespace_is_that_of_the_service_account(tmp_path):
    certificate = make_certificate(tmp_path)
    server = ApiServer(certificate=certificate, token="first")
    server.load(CLUSTER)
    env = account(tmp_path, server, namespace="shop", ca=certificate[0])
    root = ["--root", tmp_path]
    with discover(tmp_path, None, "pod", "namespaces: {own_namespace: true, names: [ml]}", env=env, arguments=root) as probe:
        probe.wait_ready()
        assert {s.split("/")[1] for s in probe.groups} == {"ml", "shop"}
    (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/namespace").write_text("")
    assert discover(tmp_path, None, "pod", "namespaces: {own_namespace: true}", env=env, arguments=root).refusal() == (
        "own_namespace: the namespace of the pod's service account cannot be read")
    server.stop()


@pytest.mark.parametrize("role, groups", [
    ("node", {"node/gpu-1": 1}),
    # web-1's port of three, its two others, and the node itself by its kubelet is not known to be there.
    ("endpoints", {"endpoints/shop/web": 3}),
    ("endpointslice", {"endpointslice/shop/web-abcde": 4}),
])
def test_on_a_node_only_its_targets_are_told(server, tmp_path, role, groups):
    with discover(tmp_path, server.url, role, node="gpu-1") as probe:
        probe.wait_ready()
        assert {s: len(t) for s, t in probe.groups.items()} == groups
        for targets in probe.groups.values():
            nodes = {t.get(META + "pod_node_name") or t.get(META + "node_name") for t in targets}
            assert nodes == {"gpu-1"}


@pytest.mark.parametrize("role", ["service", "ingress"])
def test_what_is_on_no_node_is_refused_on_a_node(server, tmp_path, role):
    assert "on no node" in discover(tmp_path, server.url, role, node="gpu-1").refusal()


def test_credentials_of_the_section_are_sent(server, tmp_path):
    (tmp_path / "header").write_text("from a file\n")
    with discover(tmp_path, server.url, "pod", "authorization: {type: Custom, credentials: abc}",
                  f"http_headers: {{X-One: {{values: [a, b]}}, X-Two: {{files: ['{tmp_path}/header']}}}}") as probe:
        probe.wait_ready()
    headers = server.requests[0][2]
    assert headers["Authorization"] == "Custom abc" and headers["X-Two"] == "from a file"
    assert headers["X-One"] in ("a", "b")


def test_a_pod_that_comes_late_is_joined(server, tmp_path):
    with discover(tmp_path, server.url, "endpoints", "attach_metadata: {node: true}") as probe:
        probe.wait_ready()
        late = lambda: [t for t in probe.groups["endpoints/shop/web"] if t["__address__"] == "10.1.7.7:8080"][0]
        assert META + "pod_phase" not in late() and META + "node_name" not in late()
        server.put(pod("not-there", "shop", ip="10.1.7.7", node="gpu-7", port=8080))
        probe.wait(lambda: late().get(META + "pod_phase") == "Running", "the pod's labels")
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-7", "labels": {"x": "y"}}})
        probe.wait(lambda: late().get(META + "node_label_x") == "y", "the node's labels")


# --- Size ---

@pytest.mark.skipif(SLOW > 1, reason="memory is that of the plain build")
def test_what_is_kept_of_a_large_cluster_is_small(tmp_path):
    pods, nodes = 20000, 5000
    server = ApiServer()
    server.fill("nodes", ({"metadata": {"name": f"node-{i:05}", "labels": {"zone": "a", "pool": "p"}}} for i in range(nodes)))
    server.fill("pods", crowd(pods, nodes), crowd_template(0))
    measured = {}
    for name, more in (("pod", ()), ("pod with nodes", ("attach_metadata: {node: true}",))):
        with discover(tmp_path, server.url, "pod", *more, arguments=["--quiet"]) as probe:
            probe.wait_ready(200)
            stats = probe.look()
            assert stats["objects"] == pods + (nodes if more else 0) and stats["counted"] == pods
            measured[name] = {"record_bytes": stats["record_bytes"], "pss_kib": probe.pss_kib()}
    print(measured)
    server.stop()
    assert measured["pod"]["record_bytes"] == 0 and measured["pod"]["pss_kib"] < 32 << 10
    assert measured["pod with nodes"]["record_bytes"] < 400 * pods + 100 * nodes
    assert measured["pod with nodes"]["pss_kib"] < 48 << 10

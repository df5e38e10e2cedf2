# SPDX-License-Identifier: Apache-2.0
"""Pods' labels and UIDs on device series, from an API server: there, changing, gone, refused, down."""
import contextlib
import datetime
import pathlib
import re
import shutil

import pytest

from harness import exporter_at, run_to_end, wait_until
from test_agent_post import in_a_pod, with_mounts
from test_http_server import Authority

from apiserver import ApiServer  # noqa: E402  (sim/ is on the path by harness)

pytestmark = pytest.mark.faults

TEMP = "DCGM_FI_DEV_GPU_TEMP"
UP = "podgpu_exporter_pod_metadata_up"
PODS = "podgpu_exporter_pod_metadata_pods"
DROPPED = "podgpu_exporter_pod_labels_dropped"
LABELS = "--kubernetes-enable-pod-labels"
UID = "--kubernetes-enable-pod-uid"
BURN = ("gpu-burn-c68d8c774-ltg9s", "kube-system")  # holds GPU 0
TRAIN = ("train-resnet-0", "ml-team")  # GPUs 1 and 2
SERVER = ("llm-server-7d9f6c5b8-x2k4q", "serving")  # GPU 3


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo") as n:
        yield n


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    with contextlib.suppress(OSError):
        server.stop()


def kubeconfig(folder, url):
    path = pathlib.Path(folder) / "kubeconfig"
    path.write_text(f"""apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{}}}}]
contexts: [{{name: test, context: {{cluster: c, user: u}}}}]
""")
    return path


def pod(name, namespace, node_name, labels=None, **metadata):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels or {}, **metadata},
            "spec": {"nodeName": node_name, "containers": [{"name": "main", "image": "x"}]},
            "status": {"phase": "Running"}}


@contextlib.contextmanager
def running(node, api, folder, *flags, **options):
    with exporter_at(node, "--kubeconfig", kubeconfig(folder, api.url), *flags, **options) as exporter:
        yield exporter


def by_gpu(page, family=TEMP):
    return {labels["gpu"]: labels for labels, _ in page.samples(family)}


def with_labels(page, gpu, **wanted):
    labels = by_gpu(page).get(gpu)
    return labels is not None and wanted.items() <= labels.items()


def logged_at(exporter, phrase):
    line = next(l for l in exporter.log.splitlines() if phrase in l)
    return datetime.datetime.fromisoformat(re.search(r"time=(\S+)Z", line)[1]).timestamp()


def test_labels_and_uid_stand_on_the_series_of_the_pods_devices_from_the_first_page(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {"app": "gpu-burn", "app.kubernetes.io/name": "burn"}, uid="uid-burn"),
            pod(*TRAIN, node.node_name, {"team": "ml \"a\"\n"}, uid="uid-train"),
            pod("elsewhere", "default", "other-node", {"app": "elsewhere"}))
    with running(node, api, tmp_path, LABELS, UID) as exporter:
        seen = []
        page = exporter.page_when(lambda p: seen.append(p) or with_labels(p, "0", app="gpu-burn"), what="labels")
        # The page waits two seconds for them; on a machine that is slower than that it need not.
        if logged_at(exporter, "pods are known") - logged_at(exporter, "starting podgpu-exporter") < 1.5:
            assert [bool(p.samples(TEMP)) for p in seen[:-1]] == [False] * (len(seen) - 1)
        line = next(l for l in page.families[TEMP] if 'gpu="0"' in l)
        assert line.split('hostname="')[1].split('"', 1)[1].rsplit("}", 1)[0] == (
            ',DCGM_FI_DRIVER_VERSION="535.183.01",app="gpu-burn",app_kubernetes_io_name="burn",container="main",namespace="kube-system",'
            'pod="gpu-burn-c68d8c774-ltg9s",pod_uid="uid-burn"')
        gpus = by_gpu(page)
        for gpu in ("1", "2"):
            assert gpus[gpu]["team"] == 'ml "a"\n' and gpus[gpu]["pod_uid"] == "uid-train"
        assert {"app", "team", "pod_uid"}.isdisjoint(gpus["3"])  # its pod is not at the server
        assert page.value(UP) == 1
        assert page.value(PODS) == 2
        wait_until(lambda: api.asked("/api/v1/pods", watch="1"), 10, "a watch")
        asked = api.asked("/api/v1/pods")
        assert {q.get("fieldSelector") for _, q, _ in asked} == {f"spec.nodeName={node.node_name}"}
        assert [q.get("watch") for _, q, _ in asked] == [None, "1"]  # one list, one watch
        assert "pod labels: watching pods" in exporter.get("/readyz")[2]


def test_labels_change_and_go_with_the_page(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {"stage": "one"}))
    with running(node, api, tmp_path, LABELS) as exporter:
        exporter.page_when(lambda p: with_labels(p, "0", stage="one"), what="first labels")
        api.put(pod(*BURN, node.node_name, {"stage": "two", "extra": "x"}))
        exporter.page_when(lambda p: with_labels(p, "0", stage="two", extra="x"), what="changed labels")
        api.put(pod(*BURN, node.node_name))
        page = exporter.page_when(lambda p: "stage" not in by_gpu(p)["0"], what="no labels")
        assert "extra" not in by_gpu(page)["0"] and by_gpu(page)["0"]["pod"] == BURN[0]
        assert "pod_uid" not in by_gpu(page)["0"]  # not asked for


def test_a_deleted_pod_keeps_its_labels_until_the_kubelet_lets_it_go(api, tmp_path):
    import run_node
    with run_node.SimNode("demo") as node:
        node.command("pods end " + SERVER[0])
        node.command("pods add batch-0 namespace=ml-team container=main resource=nvidia.com/gpu device=gpu3")
        api.put(pod("batch-0", "ml-team", node.node_name, {"run": "7"}))
        with running(node, api, tmp_path, LABELS, UID) as exporter:
            exporter.page_when(lambda p: with_labels(p, "3", pod="batch-0", run="7"), what="labels")
            api.delete("Pod", "batch-0", "ml-team")
            api.put(pod("later", "ml-team", node.node_name, {"run": "8"}))
            page = exporter.page_when(lambda p: p.value(PODS) == 2, what="both told")
            assert with_labels(page, "3", pod="batch-0", run="7")
            # The same name again, as a StatefulSet does.
            api.put(pod("batch-0", "ml-team", node.node_name, {"run": "9"}, uid="second"))
            exporter.page_when(lambda p: with_labels(p, "3", run="9", pod_uid="second"), what="the next one's labels")
            api.delete("Pod", "batch-0", "ml-team")
            node.command("pods end batch-0")
            page = exporter.page_when(lambda p: p.value(PODS) == 1, what="forgotten")
            assert "run" not in by_gpu(page)["3"]


def test_clashes_and_collapses_are_renamed_or_counted(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {"pod": "mine", "a.b": "dot", "a_b": "low", "DCGM_FI_DRIVER_VERSION": "pod's"}))
    counters = tmp_path / "counters.csv"
    counters.write_text(f"{TEMP}, gauge, t\nDCGM_FI_DRIVER_VERSION, label, v\n")
    with running(node, api, tmp_path, LABELS, counters=counters) as exporter:
        page = exporter.page_when(lambda p: with_labels(p, "0", label_pod="mine"), what="labels")
        labels = by_gpu(page)["0"]
        assert labels["pod"] == BURN[0] and labels["a_b"] == "dot"
        assert labels["label_DCGM_FI_DRIVER_VERSION"] == "pod's"
        assert labels["DCGM_FI_DRIVER_VERSION"] == "535.183.01"
        assert page.value(DROPPED, reason="same_name") == 1 and page.value(DROPPED, reason="budget") == 0


def test_past_the_budget_labels_are_left_out_and_counted(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {f"k{n:03}": "v" * 60 for n in range(100)}))
    with running(node, api, tmp_path, LABELS) as exporter:
        page = exporter.page_when(lambda p: with_labels(p, "0", k000="v" * 60), what="labels")
        assert len([k for k in by_gpu(page)["0"] if k.startswith("k0")]) == 64
        assert page.value(DROPPED, reason="budget") == 36


@pytest.mark.parametrize("flags, env, shown", [
    ([], {}, {"app", "tier", "app_kubernetes_io_name"}),
    (["--kubernetes-pod-label-allowlist-regex=^app$,^tier$"], {}, {"app", "tier"}),
    (["--kubernetes-pod-label-allowlist-regex=^app$", "--kubernetes-pod-label-allowlist-regex=ier"], {}, {"app", "tier"}),
    ([], {"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "kubernetes"}, {"app_kubernetes_io_name"}),
])
def test_the_allowlist_looks_for_its_patterns_in_keys(node, api, tmp_path, flags, env, shown):
    api.put(pod(*BURN, node.node_name, {"app": "a", "tier": "t", "app.kubernetes.io/name": "n"}))
    env = {"DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": "true", **env}
    with running(node, api, tmp_path, *flags, env=env) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP) and p.value(UP) == 1, what="labels")
        assert {"app", "tier", "app_kubernetes_io_name"} & by_gpu(page)["0"].keys() == shown


def test_copies_of_a_shared_gpu_have_each_pods_own_labels(api, tmp_path):
    import run_node
    with run_node.SimNode("timeslice") as node, \
            running(node, api, tmp_path, LABELS, UID, "--kubernetes-virtual-gpus") as exporter:
        page = exporter.page_when(lambda p: any(l.get("pod") for l, _ in p.samples(TEMP)), what="copies")
        pods = {(l["pod"], l["namespace"]) for l, _ in page.samples(TEMP) if l.get("pod")}
        assert len(pods) > 1
        api.put(*(pod(name, space, node.node_name, {"who": name}, uid="uid-" + name) for name, space in pods))
        labelled = lambda p: [(l["pod"], l.get("who"), l.get("pod_uid")) for l, _ in p.samples(TEMP) if l.get("pod")]
        exporter.page_when(lambda p: labelled(p) and all(n == w and u == "uid-" + n for n, w, u in labelled(p)),
                           what="labels on each copy")


# --- Without access ---

def test_a_refusal_names_the_missing_rule_and_metrics_go_on(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {"app": "burn"}))
    api.deny("pods")
    with running(node, api, tmp_path, LABELS, UID) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert by_gpu(page)["0"]["pod"] == BURN[0] and {"app", "pod_uid"}.isdisjoint(by_gpu(page)["0"])
        assert page.value(UP) == 0
        warnings = [l for l in exporter.log.splitlines() if "pods cannot be read" in l]
        assert len(warnings) == 1 and "level=WARN" in warnings[0]
        for part in ("403", "ClusterRole", "pods", "get", "list", "watch"):
            assert part in warnings[0]
        assert exporter.get("/readyz")[0] == 200
        # Tried again in two minutes.
        exporter.page_when(lambda p: p.value("podgpu_exporter_pod_metadata_failures_total") == 1, what="one failure")


def test_a_server_that_is_down_at_the_start_is_found_later(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {"app": "burn"}))
    api.stop()
    with running(node, api, tmp_path, LABELS) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert by_gpu(page)["0"]["pod"] == BURN[0] and page.value(UP) == 0
        api.start()
        exporter.page_when(lambda p: with_labels(p, "0", app="burn") and p.value(UP) == 1, 40, "labels")


def test_a_server_that_says_nothing_holds_the_first_page_for_two_seconds_at_most(node, api, tmp_path):
    api.silent = True
    with running(node, api, tmp_path, LABELS) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), 5, "devices")
        assert page.value(UP) == 0
        assert exporter.get("/readyz")[0] == 503
        assert "no answer of the API server yet" in exporter.get("/readyz")[2]


def test_labels_stay_while_the_server_is_down_and_are_made_up_for_after(node, api, tmp_path):
    api.put(pod(*BURN, node.node_name, {"app": "burn"}), pod(*TRAIN, node.node_name, {"app": "train"}))
    with running(node, api, tmp_path, LABELS) as exporter:
        exporter.page_when(lambda p: with_labels(p, "0", app="burn") and with_labels(p, "1", app="train"), what="labels")
        api.stop()
        page = exporter.page_when(lambda p: p.value(UP) == 0, 30, "down")
        assert with_labels(page, "0", app="burn") and with_labels(page, "1", app="train")
        assert "what is known of them stays as it was" in exporter.log
        api.delete("Pod", *TRAIN)
        api.put(pod(*BURN, node.node_name, {"app": "other"}))
        api.start()
        page = exporter.page_when(lambda p: with_labels(p, "0", app="other") and p.value(UP) == 1, 60, "made up")
        assert with_labels(page, "1", app="train")  # the kubelet still lists it


def test_outside_a_cluster_it_says_so_once_and_goes_on(node):
    with exporter_at(node, LABELS, UID) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert page.value(UP) == 0 and by_gpu(page)["0"]["pod"] == BURN[0]
        assert exporter.log.count("there is no access to the API server") == 1
        wait_until(lambda: exporter.get("/readyz")[0] == 200, what="each source has told of itself")


@with_mounts
def test_in_a_pod_the_service_account_is_used(node, tmp_path):
    authority = Authority(tmp_path)
    account = tmp_path / "account"
    account.mkdir()
    shutil.copy(authority.pem, account / "ca.crt")
    (account / "token").write_text("service-account-token\n")
    api = ApiServer(certificate=authority.server(), token="service-account-token")
    api.put(pod(*BURN, node.node_name, {"app": "burn"}, uid="uid-burn"))
    try:
        env = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
        with exporter_at(node, LABELS, UID, env=env, preexec_fn=in_a_pod(account)) as exporter:
            page = exporter.page_when(lambda p: with_labels(p, "0", app="burn", pod_uid="uid-burn"), 20, "labels")
            assert page.value(UP) == 1
            assert "service-account-token" not in exporter.log
    finally:
        api.stop()


def test_without_a_node_name_the_whole_cluster_is_read_with_a_warning(node, api, tmp_path):
    api.put(pod(*BURN, "wherever", {"app": "burn"}))
    with running(node, api, tmp_path, LABELS, env={"NODE_NAME": ""}) as exporter:
        exporter.page_when(lambda p: with_labels(p, "0", app="burn"), what="labels")
        assert exporter.log.count("NODE_NAME is not set") == 1
        assert all("fieldSelector" not in q for _, q, _ in api.asked("/api/v1/pods"))


# --- Flags ---

def test_flags_about_pods_without_kubernetes_have_no_effect_and_say_so(node, api, tmp_path):
    with running(node, api, tmp_path, LABELS, UID, kubernetes=False) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        told = {l["flag"] for l, _ in page.samples("podgpu_exporter_feature_unavailable_info")}
        assert told == {LABELS[2:], UID[2:]}
        assert not page.samples(UP) and not api.requests


@pytest.mark.parametrize("arguments, env, message", [
    (["--kubernetes-pod-label-allowlist-regex=a(b"], {}, "--kubernetes-pod-label-allowlist-regex"),
    (["--kubernetes-pod-label-allowlist-regex=ok,[z-a]"], {}, "'[z-a]'"),
    ([], {"DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": "*"}, "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"),
    (["-k", LABELS, "--kubeconfig=/nonexistent/config"], {}, "--kubeconfig (PODGPU_EXPORTER_KUBECONFIG): cannot read '/nonexistent/config'"),
    (["-k", LABELS], {"NODE_NAME": "a,metadata.name=b"}, "NODE_NAME: expected the name of a Kubernetes node"),
])
def test_a_mistake_is_a_start_error_that_names_its_place(node, arguments, env, message):
    status, log = run_to_end(["-a", "127.0.0.1:0", "-f", node.counters, *arguments], env)
    assert status == 1 and message in log


def maps(pid):
    return pathlib.Path(f"/proc/{pid}/maps").read_text()


def test_libcurl_is_loaded_only_when_pods_are_asked_for(node, api, tmp_path):
    with running(node, api, tmp_path) as exporter:
        exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert "libcurl" not in maps(exporter.pid) and not api.requests
        assert not exporter.page().samples(UP)
    with running(node, api, tmp_path, UID) as exporter:
        wait_until(lambda: "libcurl" in maps(exporter.pid), 10, "libcurl")

# SPDX-License-Identifier: Apache-2.0
"""Who names pods: the kubelet's Pods API, the API server, the names of log files; alone, together, and gone."""
import contextlib
import os
import pathlib

import pytest

from harness import exporter_at, wait_until
from test_pod_labels import by_gpu, kubeconfig, with_labels

import run_node  # noqa: E402  (sim/ is on the path by harness)

UP = "podgpu_exporter_pod_source_up"
INFO = "podgpu_pod_info"
LABELS = "--kubernetes-enable-pod-labels"
UID = "--kubernetes-enable-pod-uid"
WEB = "2e7c9a10-6b4f-4f0e-8a3d-1c5b7d9e0f01"
JOB = "5d1f0c22-0000-4000-8000-00000000000b"

NODE = f"""
node: node-7
driver: {{version: 550.90.07}}
models: models.yaml
gpus:
  - {{model: t4, uuid: GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb924, bus_id: "00000000:00:1E.0"}}
  - {{model: t4, uuid: GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb925, bus_id: "00000000:00:1F.0"}}
  - {{model: t4, uuid: GPU-e3b0c442-98fc-4c14-9afb-f4c8996fb926, bus_id: "00000000:00:20.0"}}
pods:
  - name: web-7d4b9c6f5-x2x4q
    namespace: team
    uid: {WEB}
    owner: {{kind: Deployment, name: web}}
    labels: {{app: web}}
    containers: [{{name: main, devices: [{{ids: [gpu0]}}]}}]
  - name: train-0
    namespace: team
    uid: {JOB}
    owner: {{kind: Job, name: train}}
    containers: [{{name: main, devices: [{{ids: [gpu1]}}]}}]
  - name: monitor-node-7
    namespace: kube-system
    static: true
    containers: [{{name: monitor, devices: [{{ids: [gpu2]}}]}}]
"""


@contextlib.contextmanager
def running(*flags, pods_api=0, logs=False, api=None, folder=None, **options):
    with run_node.SimNode("pods", text=NODE, logs=logs, api=api) as node:
        node.command(f"set kubelet.pods_api={pods_api}")
        wait_until(lambda: os.path.exists(node.pods_api_socket) == bool(pods_api), 10, "the Pods API's socket")
        words = ["--pods-api-socket", node.pods_api_socket, "--pod-log-path", node.log_path or node.directory / "none"]
        if api:
            words += ["--kubeconfig", kubeconfig(folder, node.api.url)]
        with exporter_at(node, *words, *flags, **options) as exporter:
            yield node, exporter


def infos(page):
    return {labels["pod"]: (labels["pod_uid"], labels["owner_kind"], labels["owner_name"])
            for labels, _ in page.samples(INFO)}


def static_hash(node):
    return next(p for p in node.node.pods() if p["name"] == "monitor-node-7")["config_hash"]


def ups(page):
    return {labels["source"]: float(value) for labels, value in page.samples(UP)}


def test_the_kubelets_pods_api_alone_gives_uid_labels_and_owner():
    with running(LABELS, UID, pods_api=1) as (node, exporter):
        page = exporter.page_when(lambda p: with_labels(p, "0", pod_uid=WEB, app="web"), what="labels")
        assert infos(page) == {
            "web-7d4b9c6f5-x2x4q": (WEB, "Deployment", "web"), "train-0": (JOB, "Job", "train"),
            "monitor-node-7": (static_hash(node), "", "")}
        assert ups(page) == {"kubelet": 1, "logs": 0, "api_server": 0}
        assert with_labels(page, "2", pod_uid=static_hash(node))


def test_names_of_logs_alone_give_the_uid():
    with running(UID, logs=True) as (node, exporter):
        page = exporter.page_when(lambda p: with_labels(p, "0", pod_uid=WEB), what="UIDs")
        assert infos(page) == {"web-7d4b9c6f5-x2x4q": (WEB, "", ""), "train-0": (JOB, "", ""),
                               "monitor-node-7": (static_hash(node), "", "")}
        assert ups(page) == {"kubelet": 0, "logs": 1, "api_server": 0}


def test_the_api_server_is_asked_for_owners_by_a_flag_alone(tmp_path):
    with running("--pod-owners", api=True, folder=tmp_path) as (node, exporter):
        page = exporter.page_when(lambda p: len(infos(p)) == 3, what="owners")
        assert infos(page) == {
            "web-7d4b9c6f5-x2x4q": (WEB, "Deployment", "web"), "train-0": (JOB, "Job", "train"),
            "monitor-node-7": (static_hash(node), "", "")}
        assert ups(page) == {"kubelet": 0, "logs": 0, "api_server": 1}
        assert not {"pod_uid", "app"} & by_gpu(page)["0"].keys()  # not asked for


def test_without_any_source_nothing_is_said_and_nothing_logged():
    with running() as (node, exporter):
        page = exporter.page_when(lambda p: by_gpu(p), what="devices")
        assert page.value(UP, source="kubelet") == page.value(UP, source="logs") == 0
        assert not page.samples(INFO)
        assert "level=WARN" not in exporter.log and "Pods API" not in exporter.log


def test_a_static_pod_is_shown_as_the_api_server_has_it_and_found_as_the_kubelet_does(tmp_path):
    with running(UID, pods_api=1, api=True, folder=tmp_path) as (node, exporter):
        mirror = node.api.get("Pod", "monitor-node-7", "kube-system")["metadata"]["uid"]
        page = exporter.page_when(lambda p: with_labels(p, "2", pod_uid=mirror), what="the mirror pod's UID")
        assert infos(page)["monitor-node-7"] == (static_hash(node), "", "")
        assert ups(page) == {"kubelet": 1, "logs": 0, "api_server": 1}


def test_a_pods_api_that_comes_later_is_found_and_one_that_goes_is_made_up_for_by_logs():
    with running(UID, logs=True) as (node, exporter):
        exporter.page_when(lambda p: infos(p).get("train-0") == (JOB, "", ""), what="UIDs")
        node.command("set kubelet.pods_api=1")
        page = exporter.page_when(lambda p: infos(p).get("train-0") == (JOB, "Job", "train"), 30, "owners")
        assert ups(page)["kubelet"] == 1
        node.command("set kubelet.pods_api=0")
        page = exporter.page_when(lambda p: ups(p)["kubelet"] == 0, 30, "it is gone")
        assert infos(page)["train-0"] == (JOB, "Job", "train")  # still trusted for a while


@pytest.mark.parametrize("source", ["logs", "api"])
def test_a_pod_made_again_under_its_name_is_another_one(source, tmp_path):
    with running(UID, logs=source == "logs", api=True if source == "api" else None, folder=tmp_path) as (node, exporter):
        exporter.page_when(lambda p: infos(p).get("train-0", [""])[0] == JOB, what="the first one")
        node.command("pods end train-0")
        node.command("pods add train-0 namespace=team container=main resource=nvidia.com/gpu device=gpu1")
        again = next(p for p in node.node.pods() if p["name"] == "train-0")["uid"]
        assert again != JOB
        page = exporter.page_when(lambda p: infos(p).get("train-0", [""])[0] == again, 20, "the second one")
        assert with_labels(page, "1", pod="train-0", pod_uid=again)


def test_names_of_logs_that_are_none_are_passed_over(tmp_path):
    pods = tmp_path / "log" / "pods"
    for name in (f"team_train-0_{JOB}", "team_web-7d4b9c6f5-x2x4q_not-a-uid", f"a_b_c_{WEB}", f"te\nam_web_{WEB}", "_", "x" * 250,
                 f"team_web-7d4b9c6f5-x2x4q\"_{WEB}", f"TEAM_web_{WEB}"):
        (pods / name).mkdir(parents=True)
    os.mkdir(os.fsencode(pods) + b"/\xff\xfe_x_" + WEB.encode())
    with running("--pod-log-path", pathlib.Path(tmp_path) / "log", UID) as (node, exporter):
        page = exporter.page_when(lambda p: "train-0" in infos(p), what="the one that is one")
        assert infos(page) == {"train-0": (JOB, "", "")}
        (pods / f"team_web-7d4b9c6f5-x2x4q_{WEB}").mkdir()
        exporter.page_when(lambda p: infos(p).get("web-7d4b9c6f5-x2x4q") == (WEB, "", ""), what="a new one")


def test_a_slow_api_server_does_not_hold_the_page_beyond_two_seconds(tmp_path):
    with running(UID, logs=True, api=True, folder=tmp_path) as (node, exporter):
        exporter.page_when(lambda p: by_gpu(p), what="devices")
    with run_node.SimNode("pods", text=NODE, logs=True, api=True) as node:
        node.command("set kubelet.pods_api=0")
        node.api.silent = True
        with exporter_at(node, "--pods-api-socket", node.pods_api_socket, "--pod-log-path", node.log_path, UID,
                         "--kubeconfig", kubeconfig(tmp_path, node.api.url)) as exporter:
            page = exporter.page_when(lambda p: with_labels(p, "0", pod_uid=WEB), 15, "UIDs by the logs")
            assert ups(page)["api_server"] == 0
            node.api.silent = False
            wait_until(lambda: ups(exporter.page())["api_server"] == 1, 90, "the server's")

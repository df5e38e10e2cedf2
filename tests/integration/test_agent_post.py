"""The AWS post through podgpu-agent: its own two files as they are, and the corrected pair of deploy/cloudwatch."""
import ctypes
import json
import shutil
import subprocess

import pytest

from agent_harness import Agent, Target, configuration, run_agent
from aws_stubs import key_text, metadata, serving
from fake_logs import FakeLogs
from harness import BLOG, ROOT, wait_until
from test_aws_lookups import tags_xml
from test_http_server import Authority

from apiserver import ApiServer  # noqa: E402  (sim/ is on the path by harness)


DEPLOY = ROOT / "deploy" / "cloudwatch"
REGION = "us-west-2"
GROUP = "/aws/containerinsights/gpu-cluster/prometheus"
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18


def has_mount_namespaces():
    """Whether we may make one: not as an ordinary user, in most containers, or in a chroot."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter():
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "mount namespace")
    try:
        return subprocess.run(["true"], preexec_fn=enter, check=False).returncode == 0
    except subprocess.SubprocessError:
        return False


with_mounts = pytest.mark.skipif(not has_mount_namespaces(), reason="no mount namespace may be made here")
pytestmark = [pytest.mark.faults, with_mounts]


def in_a_pod(account):
    """What a process does before it runs: its own /run, with a service account where a pod has it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter():
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
                libc.mount(b"tmpfs", b"/run", b"tmpfs", 0, None):
            raise OSError(ctypes.get_errno(), "mount namespace")
        shutil.copytree(account, "/run/secrets/kubernetes.io/serviceaccount")
    return enter


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """(API server over HTTPS, folder of a service account)."""
    folder = tmp_path_factory.mktemp("cluster")
    authority = Authority(folder)
    account = folder / "account"
    account.mkdir()
    shutil.copy(authority.pem, account / "ca.crt")
    (account / "token").write_text("service-account-token\n")
    (account / "namespace").write_text("gpu-metrics")
    server = ApiServer(certificate=authority.server(), token="service-account-token")
    yield server, account
    server.stop()


@pytest.fixture
def instance():
    """(metadata service of an EC2 instance in that region, EC2 API that knows its cluster)."""
    paths = {"/latest/meta-data/placement/region": REGION, "/latest/meta-data/instance-id": "i-0abc"}
    with serving(metadata(paths=paths)) as imds, \
            serving(lambda asked: (200, tags_xml([("kubernetes.io/cluster/gpu-cluster", "owned")]))) as ec2:
        yield imds, ec2


def pod_agent(cluster, instance, folder, *arguments, **env):
    server, account = cluster
    imds, ec2 = instance
    return Agent(["--listen", "127.0.0.1:0", *arguments], {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port),
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url, "AWS_ENDPOINT_URL_EC2": ec2.url, "RUN_IN_CONTAINER": "True",
        "HOME": str(folder), **env}, folder=folder, preexec_fn=in_a_pod(account))


def exporter_pod(name, namespace, node, address, port):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": "u-" + name,
                         "labels": {"app": "nvidia-dcgm-exporter"},
                         "ownerReferences": [{"kind": "DaemonSet", "name": "nvidia-dcgm-exporter", "controller": True}]},
            "spec": {"nodeName": node, "containers": [{"name": "nvidia-dcgm-exporter", "image": "x", "ports": [
                {"name": "metrics", "containerPort": port, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": address, "hostIP": "10.0.0.1",
                       "conditions": [{"type": "Ready", "status": "True"}]}}


def exporter_service(namespace, pod, node, address, port):
    labels = {"app": "nvidia-dcgm-exporter"}
    return [{"apiVersion": "v1", "kind": "Service",
             "metadata": {"name": "nvidia-dcgm-exporter", "namespace": namespace, "labels": labels},
             "spec": {"clusterIP": "10.1.1.1", "type": "ClusterIP", "ports": [{"name": "gpu-metrics", "port": 9400}]}},
            {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
             "metadata": {"name": "nvidia-dcgm-exporter-1", "namespace": namespace,
                          "labels": {**labels, "kubernetes.io/service-name": "nvidia-dcgm-exporter"}},
             "ports": [{"name": "gpu-metrics", "port": port, "protocol": "TCP"}],
             "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "nodeName": node,
                            "targetRef": {"kind": "Pod", "name": pod, "namespace": namespace}}]}]


def test_the_posts_own_files_run_find_their_place_and_keep_no_target(cluster, instance, tmp_path):
    server, _ = cluster
    server.put(exporter_pod("nvidia-dcgm-exporter-48cwd", "gpu-operator", "ip-10-0-0-1", "127.0.0.1", 9400))
    agent = pod_agent(cluster, instance, tmp_path, "--config", BLOG / "cwagentconfig.json", "--prometheus-config",
                      BLOG / "prometheus-cwagent.yaml", "--output", f"file:{tmp_path}/events")
    try:
        wait_until(lambda: "msg=scraping" in agent.log, 20, "it has found its place")
        assert "cluster=gpu-cluster" in agent.log and f"region={REGION}" in agent.log
        wait_until(lambda: agent.get("/readyz")[0] == 200, 20, "discovery is ready")
        # Its keep rule asks for capital letters: every pod is dropped, none is scraped.
        wait_until(lambda: [t["health"] for t in agent.targets()] == ["dropped"], 20, "the pod is dropped")
        [target] = agent.targets()
        assert target["discovered_labels"]["__meta_kubernetes_pod_container_name"] == "nvidia-dcgm-exporter"
        assert agent.page().value("podgpu_agent_targets", state="dropped") == 1
        wait_until(lambda: "no job has a target" in agent.log, 10, "it warns")
    finally:
        status, _ = agent.stop()
    assert status == 0
    assert (tmp_path / "events").read_text() == ""


OWN = {"gpu": "0", "UUID": "GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", "device": "nvidia0", "modelName": "NVIDIA A10G",
       "Hostname": "nvidia-dcgm-exporter-48cwd", "DCGM_FI_DRIVER_VERSION": "470.182.03", "container": "main",
       "namespace": "kube-system", "pod": "gpu-burn-c68d8c774-ltg9s"}
DIMENSIONS = [["ClusterName"], ["ClusterName", "NodeName"], ["ClusterName", "NodeName", "gpu"],
              ["ClusterName", "Namespace"], ["ClusterName", "Namespace", "pod"],
              ["ClusterName", "Namespace", "gpu", "pod"]]
GAUGES = {  # value and unit
    "DCGM_FI_DEV_DEC_UTIL": (0, "Percent"), "DCGM_FI_DEV_ENC_UTIL": (0, "Percent"),
    "DCGM_FI_DEV_FB_FREE": (2230, "Megabytes"), "DCGM_FI_DEV_FB_USED": (20501, "Megabytes"),
    "DCGM_FI_DEV_GPU_TEMP": (65, None), "DCGM_FI_DEV_GPU_UTIL": (100, "Percent"),
    "DCGM_FI_DEV_MEM_CLOCK": (6250, None), "DCGM_FI_DEV_MEM_COPY_UTIL": (38, "Percent"),
    "DCGM_FI_DEV_POWER_USAGE": (299.437, None), "DCGM_FI_DEV_ROW_REMAP_FAILURE": (0, None),
    "DCGM_FI_DEV_SM_CLOCK": (1455, None), "DCGM_FI_DEV_XID_ERRORS": (0, None),
    "DCGM_FI_PROF_DRAM_ACTIVE": (0.315787, None), "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0.808369, None),
    "DCGM_FI_PROF_PCIE_RX_BYTES": (21715174, None), "DCGM_FI_PROF_PCIE_TX_BYTES": (3985328, None),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0, None)}
COUNTERS = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": (1500000, None)}


def expected_event(kind, values, address, timestamp):
    metrics = [{"Name": n, **({"Unit": u} if u else {}), "StorageResolution": 1} for n, (_, u) in sorted(values.items())]
    return {"_aws": {"Timestamp": timestamp, "CloudWatchMetrics": [
                {"Namespace": "ContainerInsights/Prometheus", "Dimensions": DIMENSIONS, "Metrics": metrics}]},
            "Version": "1", "ClusterName": "gpu-cluster", "Service": "nvidia-dcgm-exporter", "NodeName": "ip-10-0-0-1",
            "ExporterNamespace": "gpu-operator", "Namespace": "kube-system", "job": "gpu-pod-metrics",
            "instance": address, "prom_metric_type": kind, **OWN, **{n: v for n, (v, _) in values.items()}}


def test_the_corrected_pair_gives_exactly_these_events_from_the_posts_page(cluster, instance, tmp_path):
    server, _ = cluster
    text = (BLOG / "metrics.txt").read_text()
    scrapes = []

    def page():
        scrapes.append(1)
        return text.replace("15782796862", str(15782796862 + 1500000 * (len(scrapes) - 1)))
    with Target(page) as target, FakeLogs(keys=key_text("IMDS"), region=REGION) as logs:
        host, port = target.address.split(":")
        pod = "nvidia-dcgm-exporter-48cwd"
        server.put(exporter_pod(pod, "gpu-operator", "ip-10-0-0-1", host, int(port)),
                   *exporter_service("gpu-operator", pod, "ip-10-0-0-1", host, int(port)))
        agent = pod_agent(cluster, instance, tmp_path, "--config", DEPLOY / "cwagentconfig.json", "--prometheus-config",
                          DEPLOY / "prometheus.yaml", AWS_ENDPOINT_URL_CLOUDWATCH_LOGS=logs.url)
        try:
            wait_until(lambda: len(logs.messages(GROUP, "gpu-pod-metrics")) >= 3, 60, "two scrapes have arrived")
        finally:
            status, _ = agent.stop()
        assert status == 0, agent.log
        events = [json.loads(m) for m in logs.messages(GROUP, "gpu-pod-metrics")]
    first, rest = events[0], events[1:3]
    assert first == expected_event("gauge", GAUGES, target.address, first["_aws"]["Timestamp"])
    second = rest[0]["_aws"]["Timestamp"]
    assert sorted(rest, key=lambda e: e["prom_metric_type"]) == [
        expected_event("counter", COUNTERS, target.address, second),
        expected_event("gauge", GAUGES, target.address, second)]
    assert 4000 < second - first["_aws"]["Timestamp"] < 12000


def test_without_region_or_cluster_it_ends_with_status_1_and_names_every_place_looked(tmp_path):
    (tmp_path / "prometheus.yaml").write_text("scrape_configs: []\n")
    config = configuration(prometheus_config_path=str(tmp_path / "prometheus.yaml"))
    del config["agent"], config["logs"]["metrics_collected"]["prometheus"]["cluster_name"]
    (tmp_path / "cwagentconfig.json").write_text(json.dumps(config))
    arguments = ["--config", tmp_path / "cwagentconfig.json"]
    env = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path), "RUN_IN_CONTAINER": "True"}
    status, _, log = run_agent(*arguments, env=env)
    assert status == 1 and "AWS region is not known" in log
    for place in ("AWS_REGION", "metadata"):
        assert place in log
    status, _, log = run_agent(*arguments, env={**env, "AWS_REGION": REGION})
    assert status == 1 and "name of the cluster is not known" in log
    for place in ("K8S_CLUSTER_NAME", "instance metadata"):
        assert place in log, log


def test_an_agent_that_writes_to_a_file_asks_nobody_where_it_is(tmp_path):
    (tmp_path / "prometheus.yaml").write_text("scrape_configs: []\n")
    config = configuration(prometheus_config_path=str(tmp_path / "prometheus.yaml"))
    (tmp_path / "cwagentconfig.json").write_text(json.dumps(config))
    with serving(metadata()) as imds:
        status, _, log = run_agent("--config", tmp_path / "cwagentconfig.json", "--output", f"file:{tmp_path}/e", "--once",
                                   env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url})
        assert (status, imds.asked) == (0, []), log

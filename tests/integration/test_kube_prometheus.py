"""Discovery in Kubernetes as Prometheus 3.0.1 itself does it: tests/kube/prometheus-3.0.1.json is what its discovery
packages found in the same cluster with the same sections (tests/kube/jobs.py). Debian's Prometheus 2.42 cannot be asked: it
is built without kubernetes_sd_configs."""
import json
import sys

import pytest

from harness import ROOT
from kube_harness import CLUSTER, ApiServer, Probe

sys.path.insert(0, str(ROOT / "tests" / "kube"))
from jobs import JOBS, canonical, prometheus_yaml  # noqa: E402

EXPECTED = json.loads((ROOT / "tests" / "kube" / "prometheus-3.0.1.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def server():
    api = ApiServer()
    api.load(CLUSTER)
    yield api
    api.stop()


@pytest.mark.parametrize("job", JOBS)
def test_targets_and_their_labels_are_those_of_prometheus(server, tmp_path, job):
    config = prometheus_yaml(tmp_path / "prometheus.yaml", server.url)
    with Probe("discover", config, "--job", job) as probe:
        probe.wait_ready()
        found = canonical(t for group in probe.groups.values() for t in group)
    assert len(EXPECTED[job]) > 0
    assert found == EXPECTED[job]


def test_all_roles_are_compared():
    assert {section[0] for section in JOBS.values()} == {
        f"role: {role}" for role in ("pod", "node", "service", "endpoints", "endpointslice", "ingress")}

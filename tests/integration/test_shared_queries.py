# SPDX-License-Identifier: Apache-2.0
"""docs/shared-gpus.md: its queries in a Prometheus, and its table of methods against pages."""
import re

import pytest

from harness import ROOT, exporter_at, wait_until
from prometheus_server import prometheus

DOCS = (ROOT / "docs" / "shared-gpus.md").read_text()
WINDOW = "10s"


def queries():
    """{what the comment above says: query}, with a window that a test can fill."""
    block = DOCS.split("## Queries")[1].split("```")[1]
    parts = re.split(r"^# (.*)$", block, flags=re.M)[1:]
    return {text: re.sub(r"\[\w+\]", f"[{WINDOW}]", query).strip() for text, query in zip(parts[::2], parts[1::2])}


def flags(node):
    return ["--proc-path", node.proc_path, "--pod-log-path", node.log_path]


def test_the_queries_of_the_docs_tell_what_the_pods_did(tmp_path):
    import run_node
    cores, of_given, joules, nobody = queries().values()
    with run_node.SimNode("timeslice", proc=True, logs=True) as node, exporter_at(node, *flags(node)) as exporter, \
            prometheus(tmp_path, [f"127.0.0.1:{exporter.port}"], "1s") as server:
        def by_pod(query):
            return {r["metric"]["pod"]: float(r["value"][1]) for r in server.query(query)}

        def settled():
            found = by_pod(cores)
            # A window that is full of samples: the even load is what it is.
            return set(found) == {"infer-a", "infer-b", "infer-c", "idle-d"} and abs(found["infer-b"] - 0.2) < 0.03 and found
        found = wait_until(settled, 60, "a window of samples")
        assert found["idle-d"] == 0 and 0.05 < found["infer-a"] < 0.6 and 0 < found["infer-c"] < 0.1
        given = by_pod(of_given)
        assert given["infer-b"] == pytest.approx(0.2 / 0.25, abs=0.2) and given["idle-d"] == 0
        [energy] = server.query(joules)
        assert energy["metric"] == {"namespace": "default"} and 100 < float(energy["value"][1]) < 1000  # a T4: 10 to 70 W
        # Of the device's 0.4 or 0.8 the process of no pod has 0.05.
        assert 0.02 < server.value(nobody) < 0.3


METHODS = {  # scenario: {(gpu, instance): (method, pods with busy time)}
    "timeslice": {("0", None): ("process", {"infer-a", "infer-b", "infer-c", "idle-d"})},
    "mps-hidden": {("0", None): ("held", set())},
    "undeclared": {("0", None): ("process", {"tenant"}), ("1", None): ("process", {"debugger"}), ("2", None): ("none", set())},
    "mig-gpm": {("0", "1"): ("exclusive", {"trainer-0"}), ("0", "3"): ("exclusive", {"notebook-b"}),
                ("0", "7"): ("exclusive", {"notebook-c"}), ("1", "1"): ("exclusive", {"notebook-d"}),
                ("1", "2"): ("exclusive", {"notebook-e"}), ("2", None): ("exclusive", {"batch-7qk2p"})},
}


@pytest.mark.parametrize("scenario", METHODS)
def test_the_methods_are_those_that_the_docs_tell(scenario):
    import run_node
    want = METHODS[scenario]

    def methods(page):
        return {(l["gpu"], l.get("GPU_I_ID")): l["method"] for l, _ in page.samples("podgpu_exporter_attribution_info")}

    def users(page):
        found = {device: set() for device in methods(page)}
        for labels, _ in page.samples("podgpu_container_gpu_busy_seconds_total"):
            found.setdefault((labels["gpu"], labels.get("GPU_I_ID")), set()).add(labels["pod"])
        return found

    with run_node.SimNode(scenario, proc=True, logs=True) as node, exporter_at(node, *flags(node)) as exporter:
        page = exporter.page_when(lambda p: methods(p) == {d: m for d, (m, _) in want.items()} and
                                  users(p) == {d: u for d, (_, u) in want.items()}, 20, str(want))
        for method in set(methods(page).values()):
            assert f"| `{method}` |" in DOCS
        families = {name for name in re.findall(r"^# TYPE (podgpu_container_gpu_\w+) ", page.text, re.M)}
        for name in families:
            short = name.removeprefix("podgpu_container_gpu")
            assert name in DOCS or f"`{short}`" in DOCS, name

"""What is true on the nodes that tests of the ledger run on, to the last digit."""
import pytest

import harness  # noqa: F401  (puts sim/ on the path)

import pods
import run_node
from node import NS

from test_sim_kubelet import list_v1
from test_sim_nvml import On


def busy(node, gpu, start, end, gi=None):
    """Seconds."""
    return node.node.busy_us(gpu, int(start * NS), int(end * NS), **({} if gi is None else {"gi": gi})) / 1e6


def test_wave_a_burn_tests_wave_and_bursts():
    with On("wave", at=600) as (node, reader):
        assert [busy(node, 0, t, t + 40) for t in (0, 7, 33.3)] == [20, 20, 20]
        assert [busy(node, 0, t, t + 20) for t in (0, 20, 30)] == [20, 0, 10]
        assert busy(node, 1, 0, 300) == 60 and busy(node, 1, 0.1, 1) == pytest.approx(0.1)
        _, samples = reader.ask("nvmlDeviceGetSamples(h[1], 1, 0)")  # 20 s of them; 166666666 ns each
        values = [s["sampleValue"]["uiVal"] for s in samples]
        assert sorted(set(values)) == [0, 20, 99] and values.count(99) == values.count(20) == 20  # 99.99 is cut
        assert {r["pid"] for r in reader.ask("nvmlDeviceGetProcessUtilization(h[1], 0)")} == {7102}


def test_shared_8_eight_pods_take_turns_and_their_shares_add_up():
    with run_node.SimNode("shared-8", freeze=600) as node:
        want = {7501: 48, 7502: 12, 7503: 21, 7504: 10, 7505: 4.5, 7506: 15, 7507: 15.6, 7508: 6}  # s of 300
        got = {pid: node.node.process_busy_us(pid, 120 * NS, 420 * NS) / 1e6 for pid in want}
        assert got == pytest.approx(want)
        assert busy(node, 0, 120, 420) == pytest.approx(sum(got.values()), abs=1e-5)
        held = [d.device_ids[0] for p in list_v1(node).pod_resources for c in p.containers for d in c.devices]
        assert held == [f"{node.node.uuid(0)}::{i}" for i in range(8)]
        owners = [pods.pod_object(node.node, p)["metadata"]["ownerReferences"][0] for p in node.node.pods()]
        assert [(o["kind"], o["name"]) for o in owners] == [
            ("ReplicaSet", "infer-7c6d5b4f8"), ("StatefulSet", "chat"), ("ReplicaSet", "embed-6b9f8d7c5"), ("Job", "index"),
            ("Job", "nightly-29412345"), ("DaemonSet", "probe"), ("ReplicaSet", "tune-5f4d3c2b9"), ("Job", "render")]


def test_mps_hidden_shows_its_server_alone():
    with On("mps-hidden", at=60) as (node, reader):
        assert reader.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3(h[0])") == []
        rows = reader.ask("nvmlDeviceGetComputeRunningProcesses_v3(h[0])")
        assert [(r["pid"], r["usedGpuMemory"] >> 20) for r in rows] == [(8100, 10030)]
        assert {r["pid"] for r in reader.ask("nvmlDeviceGetProcessUtilization(h[0], 0)")} == {8100}
        assert reader.ask("nvmlDeviceGetUtilizationRates(h[0]).gpu") == 80


def test_mig_gpm_instances_have_loads_of_their_own():
    with On("mig-gpm", at=600) as (node, reader):
        assert [(x["gpu"], x["gi"], x["profile"], x["profile_id"], x["placement"]) for x in node.node.instances()] == [
            (0, 1, "4g.40gb", 5, 0), (0, 3, "2g.20gb", 14, 4), (0, 7, "1g.10gb", 19, 6),
            (1, 1, "3g.40gb", 9, 0), (1, 2, "3g.40gb", 9, 4)]
        assert [busy(node, 0, 100, 400, gi) for gi in (1, 3, 7)] == [140, 60, 90]  # 7 of 15 half periods
        assert [busy(node, 1, 100, 400, gi) for gi in (1, 2)] == [225, 0]
        assert busy(node, 2, 100, 400) == pytest.approx(300 * (0.7 * 0.9 + 0.3 * 0.1))
        reader.ask_any("keep.update(a=nvmlGpmSampleAlloc(), b=nvmlGpmSampleAlloc())")
        reader.ask_any("globals().update(m=[nvmlDeviceGetMigDeviceHandleByIndex(h[0], i) for i in range(3)])")
        reader.ask("nvmlGpmMigSampleGet(h[0], 7, keep['a'])")
        node.advance(10)
        reader.ask("nvmlGpmMigSampleGet(h[0], 7, keep['b'])")
        value = reader.ask("""(lambda g: (setattr(g, 'version', 1), setattr(g, 'numMetrics', 1),
            setattr(g, 'sample1', keep['a']), setattr(g, 'sample2', keep['b']),
            setattr(g.metrics[0], 'metricId', 1), nvmlGpmMetricsGet(g), g.metrics[0].value)[-1])(c_nvmlGpmMetricsGet_t())""")
        assert value == pytest.approx(30)


def test_mig_a100_has_nothing_that_tells_an_instances_load():
    with On("mig-a100", at=60) as (node, reader):
        assert node.node.dcgm_library == 0
        assert reader.ask("nvmlGpmQueryDeviceSupport(h[0]).isSupportedDevice") == 0
        assert reader.code("nvmlDeviceGetSamples(h[0], 1, 0)") == 3
        assert reader.code("nvmlDeviceGetProcessUtilization(h[0], 0)") == 3
        assert len(reader.ask("nvmlDeviceGetSamples(h[1], 1, 0)")[1]) == 120
        assert busy(node, 0, 0, 70) == pytest.approx(70 * (0.8 * 3 + 0.5 * 2) / 7)
        assert [(x["profile_id"], x["placement"]) for x in node.node.instances()] == [(9, 0), (14, 4), (19, 6)]


def test_dra_devices_are_named_by_minor_profile_and_place():
    with run_node.SimNode("dra", freeze=60) as node:
        n = node.node
        assert [n.minor(gpu) for gpu in range(3)] == [0, 2, 1]
        attributes = {d["name"]: d["attributes"] for s in pods.slice_objects(n) for d in s["spec"]["devices"]}
        assert {name: a["uuid"]["string"] for name, a in attributes.items() if name.startswith("gpu-") and "mig" not in name} \
            == {f"gpu-{n.minor(gpu)}": n.uuid(gpu) for gpu in (1, 2)}
        for x in n.instances():
            name = f"gpu-0-mig-{x['profile'].replace('.', '')}-{x['profile_id']}-{x['placement']}"
            assert attributes[name]["profile"]["string"] == x["profile"]
            assert attributes[name].get("uuid") in (None, {"string": x["uuid"]})
        assert [name for name, a in attributes.items() if "uuid" not in a] == ["gpu-0-mig-2g20gb-14-4", "gpu-0-mig-3g40gb-9-0"]
        claimed = [(p.name, c.name, [r.device_name for d in c.dynamic_resources for r in d.claim_resources])
                   for p in list_v1(node).pod_resources for c in p.containers]
        assert claimed == [("trainer", "worker", ["gpu-2"]), ("trainer", "logger", []),
                           ("notebook-static", "jupyter", ["gpu-0-mig-1g10gb-19-6"]),
                           ("notebook-dynamic", "jupyter", ["gpu-0-mig-2g20gb-14-4"]),
                           ("sharer-a", "main", ["gpu-1"]), ("sharer-b", "main", ["gpu-1"])]


def test_job_7s_is_there_for_seven_seconds():
    with run_node.SimNode("job-7s", freeze=0, proc=True, api=True) as node:
        seen = []
        for second in (19.9, 20, 26.9, 27, 30):
            node.freeze(second)
            seen.append(([p.name for p in list_v1(node).pod_resources], [p["pid"] for p in node.node.processes()]))
        assert seen == [([], []), (["short-x4z8k"], [7301]), (["short-x4z8k"], [7301]), ([], []), ([], [])]
        assert node.api.get("Pod", "short-x4z8k", "batch")["status"]["phase"] == "Succeeded"
        assert busy(node, 0, 0, 60) == 6.3


def test_undeclared_users_are_a_pod_without_devices_and_the_host():
    with run_node.SimNode("undeclared", freeze=60, proc=True) as node:
        assert {p.name: [d.device_ids[0] for c in p.containers for d in c.devices] for p in list_v1(node).pod_resources} == \
            {"tenant": [node.node.uuid(0)], "debugger": []}
        found = {}
        for p in node.node.processes():
            with open(f"{node.proc_path}/{p['pid']}/cgroup", encoding="utf-8") as f:
                found[p["pid"]] = p["gpu"], "kubepods" in f.read()
        assert found == {7401: (0, True), 7402: (1, True), 7490: (0, False), 7491: (2, False)}
        assert [busy(node, gpu, 0, 10) for gpu in range(3)] == pytest.approx([6, 3, 2.5])


def test_node_110_is_full():
    with run_node.SimNode("node-110", freeze=60, proc=True, logs=True) as node:
        n = node.node
        assert (n.gpu_count, len(n.pods()), len(n.processes())) == (8, 110, 200)
        held = {d.device_ids[0] for p in list_v1(node).pod_resources for c in p.containers for d in c.devices}
        assert held == {f"{n.uuid(gpu)}::{r}" for gpu in range(8) for r in range(8)}
        assert [busy(node, gpu, 0, 40) for gpu in range(8)] == pytest.approx([40 * (8 * 0.04 * 1.7 + 0.02)] * 8)

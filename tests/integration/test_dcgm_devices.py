# SPDX-License-Identifier: Apache-2.0
"""podgpu-source dcgm alone, on the simulated node: what it lists, its health verdicts, peers and XIDs."""
import contextlib
import pathlib
import sys
import time

import pytest

from harness import BUILD, SLOW
from source_client import ENTITIES, EVENTS, HEALTH, NONE32, PEERS, STATE, S, Closed, Source

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sim"))
import run_node  # noqa: E402

LIBRARIES = {4: str(BUILD / "sim/dcgm4/libdcgm.so.4"), 3: str(BUILD / "sim/dcgm3/libdcgm.so.3")}
GPU, GPU_I, GPU_CI, SWITCH, LINK, CPU, CORE = range(1, 8)
XID_ERRORS, TEMPERATURE, HEALTH_STATUS, P2P_STATUS = 230, 150, 9003, 9004
QUICK = (S // 10, S // 10, S // 10, S)
WARN, FAIL = 10, 20
PCIE, MEM, THERMAL = 0x1, 0x10, 0x80


@contextlib.contextmanager
def source_on(scenario, *arguments, major=4, engine=True):
    """A node with an engine and a source that connects to it: yields (node, source)."""
    with run_node.SimNode(scenario, kubelet=False) as node:
        if engine:
            arguments = ["--connect", node.start_engine(major=major).address, *arguments]
        with Source("--library", LIBRARIES[major], *arguments, vendor="dcgm",
                    env={"SIM_NODE": str(node.file)}) as source:
            yield node, source


def listed(source, where=lambda entities: True):
    return source.entities(20 * SLOW, where)


def of_kind(entities, kind):
    return [e for e in entities if e.kind == kind]


def watch(source, *fields, periods=QUICK):
    source.watch([TEMPERATURE, *fields], periods)
    source.sample(20 * SLOW)


# --- entities ---

@pytest.mark.parametrize("major", [4, 3])
def test_links_that_are_up_are_listed_below_their_gpu_or_switch(major):
    with source_on("dcgm-fabric", major=major) as (_, source):
        entities = listed(source)
        assert [e.kind for e in entities] == [GPU] * 2 + [SWITCH] * 2 + [LINK] * 9
        assert [(e.id, e.parent, e.index) for e in of_kind(entities, SWITCH)] == [(0, 2, NONE32), (3, 3, NONE32)]
        assert [(entities[e.parent].kind, e.parent, e.id, e.index) for e in of_kind(entities, LINK)] == [
            (GPU, 0, 0, 0), (GPU, 0, 1, 0), (GPU, 0, 3, 0), (GPU, 1, 0, 1), (GPU, 1, 3, 1),
            (SWITCH, 2, 0, NONE32), (SWITCH, 2, 1, NONE32), (SWITCH, 2, 17, NONE32), (SWITCH, 3, 0, NONE32)]


@pytest.mark.parametrize("major", [4, 3])
def test_links_have_values_by_the_ids_that_each_major_gives_them(major):
    with source_on("dcgm-fabric", major=major) as (_, source):
        entities = listed(source)
        source.watch([780], QUICK)
        links = [i for i, e in enumerate(entities) if e.kind == LINK and entities[e.parent].kind == SWITCH]
        sample = source.sample(20 * SLOW, lambda s: all(s.has(780, i) and s.get(780, i) != "no_data" for i in links))
        assert [sample.get(780, i) for i in links] == [1000, 1001, 1017, 3000]


def test_a_link_that_goes_down_is_listed_no_more_and_then_again():
    with source_on("dcgm-fabric") as (node, source):
        assert len(of_kind(listed(source), LINK)) == 9
        node.command("dcgm set gpu0/link1.state=down")
        entities = listed(source, lambda e: len(of_kind(e, LINK)) == 8)
        assert [e.id for e in of_kind(entities, LINK) if e.parent == 0] == [0, 3]
        node.command("dcgm set gpu0/link1.state=up")
        listed(source, lambda e: len(of_kind(e, LINK)) == 9)


@pytest.mark.parametrize("major", [4, 3])
def test_cpus_are_listed_with_their_cores(major):
    with source_on("dcgm-grace", major=major) as (_, source):
        entities = listed(source)
        assert [e.kind for e in entities][-10:] == [CPU] * 2 + [CORE] * 8
        cpus = [i for i, e in enumerate(entities) if e.kind == CPU]
        assert [entities[i].id for i in cpus] == [0, 1]
        assert [(e.id, e.parent) for e in of_kind(entities, CORE)] == [(i, cpus[i // 4]) for i in range(8)]


@pytest.mark.parametrize("major", [4, 3])
def test_mig_instances_are_named_as_nvml_names_them(major):
    """By DCGM alone: what both sources say of an instance is the same."""
    with source_on("dcgm-mig", major=major) as (node, source):
        with Source("--library", node.nvml_library, "--kmsg", "", env={"SIM_NODE": str(node.file)}) as other:
            nvml = [e for e in other.entities(20 * SLOW) if not e.is_gpu]
        entities = listed(source)
        instances = of_kind(entities, GPU_I)
        assert [i.profile for i in instances] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
        key = lambda e: e.gpu_instance_id  # noqa: E731
        for ours, theirs in zip(sorted(instances, key=key), sorted(nvml, key=key), strict=True):
            for name in ("gpu_instance_id", "uuid", "legacy_uuid", "profile", "slices", "total_slices", "name", "bus_id",
                         "minor"):
                assert getattr(ours, name) == getattr(theirs, name), name
            assert ours.uuid.startswith("MIG-")
        assert [(entities[c.parent].profile, c.id) for c in of_kind(entities, GPU_CI)] == [
            ("3g.20gb", 0), ("2g.10gb", 0), ("2g.10gb", 1), ("1g.5gb", 0), ("1g.5gb", 0)]
        assert [(g.mig_enabled, g.total_slices) for g in of_kind(entities, GPU)] == [(1, 7), (0, 0)]


def test_gpus_are_in_the_engines_order_which_is_not_nvmls():
    with source_on("dcgm-mixed") as (node, source):
        entities = of_kind(listed(source), GPU)
        assert [(e.index, e.uuid) for e in entities] == [(0, node.node.uuid(1)), (1, node.node.uuid(0))]
        assert [e.minor for e in entities] == [1, 0]


def test_a_skipped_gpu_is_listed_as_such():
    with source_on("dcgm-fabric", "--skip", "1") as (_, source):
        entities = listed(source)
        assert [e.state for e in of_kind(entities, GPU)] == ["up", "skipped"]
        assert {e.parent for e in of_kind(entities, LINK)} == {0, 2, 3}


def test_a_gpu_that_is_lost_stays_listed_until_it_is_back():
    """DCGM 3 says nothing of a GPU as a whole."""
    with source_on("dcgm-fabric") as (node, source):
        before = listed(source)[1]
        node.command("set gpu1.lost=1")
        entities = listed(source, lambda e: e[1].state == "lost")
        assert (entities[1].uuid, entities[1].name, entities[1].bus_id) == (before.uuid, before.name, before.bus_id)
        assert entities[0].state == "up"
        node.command("set gpu1.lost=0")
        listed(source, lambda e: e[1].state == "up")


def test_another_mig_layout_is_another_list():
    with source_on("dcgm-mig") as (node, source):
        listed(source)
        node.command("mig gpu=0 layout=7g.40gb force")
        entities = listed(source, lambda e: len(of_kind(e, GPU_I)) == 1)
        [instance] = of_kind(entities, GPU_I)
        assert (instance.profile, instance.slices, instance.parent) == ("7g.40gb", 7, 0)
        [nvml] = node.node.instances()
        assert instance.uuid == nvml["uuid"]


def test_a_list_that_does_not_change_is_not_sent_again():
    with source_on("dcgm-fabric") as (node, source):
        listed(source)
        source.watch([TEMPERATURE], QUICK)
        before = node.node.calls("dcgmGetAllDevices")
        deadline = time.monotonic() + 60 * SLOW
        while node.node.calls("dcgmGetAllDevices") < before + 2 and time.monotonic() < deadline:
            source.sample(20 * SLOW)
        assert node.node.calls("dcgmGetAllDevices") >= before + 2
        assert not [f for k, f in source.kept if k == ENTITIES]


# --- health ---

@pytest.mark.parametrize("major", [4, 3])
def test_incidents_become_verdicts_until_they_are_over(major):
    with source_on("dcgm-fabric", major=major) as (node, source):
        listed(source)
        node.command("dcgm health gpu=1 system=THERMAL result=10 code=10")
        node.command("dcgm health gpu=0 system=MEM result=20 code=4")
        watch(source, HEALTH_STATUS)
        _, verdicts = source.next(HEALTH, 20 * SLOW)
        rows = {(v.entity, v.system, v.result, v.code) for v in verdicts}
        assert rows == {(1, THERMAL, WARN, 10), (0, MEM, FAIL, 4)}
        node.command("dcgm health clear")
        source.next(HEALTH, 20 * SLOW, lambda frame: not frame[1])


def test_verdicts_are_of_the_gpus_that_are_asked_for():
    with source_on("dcgm-fabric") as (node, source):
        listed(source)
        for gpu in (0, 1):
            node.command(f"dcgm health gpu={gpu} system=PCIE result=10 code=3")
        source.watch([TEMPERATURE, HEALTH_STATUS], QUICK, gpus=2)
        _, verdicts = source.next(HEALTH, 20 * SLOW)
        assert [(v.entity, v.system) for v in verdicts] == [(1, PCIE)]


# --- peers ---

def test_peers_are_told_with_their_state():
    with source_on("dcgm-fabric") as (node, source):
        listed(source)
        watch(source, P2P_STATUS)
        _, peers = source.next(PEERS, 20 * SLOW)
        assert {(p.entity, p.peer, p.status) for p in peers} == {(0, 1, 0), (1, 0, 0)}
        node.command("dcgm peer gpu0 gpu1 3")
        source.next(PEERS, 20 * SLOW,
                    lambda frame: {(p.entity, p.peer, p.status) for p in frame[1]} == {(0, 1, 3), (1, 0, 0)})


def test_dcgm_3_tells_of_no_peers():
    with source_on("dcgm-fabric", major=3) as (_, source):
        listed(source)
        watch(source, P2P_STATUS)
        for _ in range(5):
            source.sample(20 * SLOW)
        assert not [f for k, f in source.kept if k == PEERS]


# --- XIDs ---

def told(source, count, seconds=20):
    """(entity, xid, GPU instance, how often) of that many events, each EVENTS frame that comes."""
    rows = []
    deadline = time.monotonic() + seconds * SLOW
    while sum(r[3] for r in rows) < count:
        _, events = source.next(EVENTS, max(deadline - time.monotonic(), 0.1))
        assert all(e.origin == "dcgm" for e in events)
        rows += [(e.entity, e.xid, e.gpu_instance_id, e.count) for e in events]
    return rows


def armed(source):
    """XIDs from now on are told."""
    source.watch([TEMPERATURE], QUICK)
    source.next(STATE, 20 * SLOW, lambda state: state.xid_events_armed == 1)


@pytest.mark.parametrize("major", [4, 3])
def test_xids_are_told_once(major):
    with source_on("dcgm-fabric", major=major) as (node, source):
        listed(source)
        armed(source)
        node.command("xid gpu=1 code=79")
        node.command("xid gpu=0 code=48")
        assert sorted(told(source, 2)) == [(0, 48, NONE32, 1), (1, 79, NONE32, 1)]
        node.command("xid gpu=0 code=13")
        assert told(source, 1) == [(0, 13, NONE32, 1)]


def test_xids_of_an_instance_are_of_its_gpu_with_the_instances_number():
    with source_on("dcgm-mig") as (node, source):
        gpu_instances = [e.gpu_instance_id for e in of_kind(listed(source), GPU_I)]
        armed(source)
        node.command(f"xid gpu=0 gi={gpu_instances[1]} ci=1 code=43")
        node.command(f"xid gpu=0 gi={gpu_instances[0]} code=31")
        assert sorted(told(source, 2)) == [(0, 31, gpu_instances[0], 1), (0, 43, gpu_instances[1], 1)]
        node.command("xid gpu=0 code=13")
        assert told(source, 1) == [(0, 13, NONE32, 1)]


def test_xids_from_before_the_watch_are_not_told():
    with source_on("dcgm-fabric") as (node, source):
        listed(source)
        node.command("xid gpu=1 code=79")
        armed(source)
        node.command("xid gpu=1 code=48")
        assert told(source, 1) == [(1, 48, NONE32, 1)]


def test_xids_go_on_behind_an_engine_that_was_started_again():
    with source_on("dcgm-fabric") as (node, source):
        listed(source)
        armed(source)
        node.command("xid gpu=0 code=48")
        assert told(source, 1) == [(0, 48, NONE32, 1)]
        node.restart_engine()
        source.next(STATE, 20 * SLOW, lambda state: state.xid_events_armed == 0)
        source.next(STATE, 30 * SLOW, lambda state: state.xid_events_armed == 1)
        node.command("xid gpu=1 code=79")
        assert told(source, 1) == [(1, 79, NONE32, 1)]


def test_repeats_are_counted():
    with source_on("dcgm-fabric") as (node, source):
        listed(source)
        armed(source)
        for _ in range(50):
            node.command("xid gpu=0 code=31")
        rows = told(source, 50)
        assert {r[:3] for r in rows} == {(0, 31, NONE32)} and sum(r[3] for r in rows) == 50


def test_the_source_ends_with_the_exporter_and_leaves_nothing_in_the_engine():
    with source_on("dcgm-fabric") as (_, source):
        listed(source)
        watch(source, HEALTH_STATUS, P2P_STATUS)
        source.socket.close()
        assert source.wait(20 * SLOW) == 0, source.stderr()
        with pytest.raises((Closed, OSError)):
            source.sample(1)

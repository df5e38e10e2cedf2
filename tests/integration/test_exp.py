# SPDX-License-Identifier: Apache-2.0
"""dcgm-exporter's own counters (DCGM_EXP_*) on a simulated node: XIDs and clock events within a window and since the
start, NVLink peers, health verdicts."""
import contextlib
import os
import signal

import pytest

from harness import exporter_at, exporter_on, wait_until
import run_node

XIDS = "DCGM_EXP_XID_ERRORS_COUNT"
XID_TOTAL = "DCGM_EXP_XID_ERRORS_TOTAL"
CLOCKS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
CLOCK_TOTAL = "DCGM_EXP_CLOCK_EVENTS_TOTAL"
HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
PEERS = "DCGM_EXP_P2P_STATUS"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
UNAVAILABLE = "podgpu_exporter_field_unavailable_info"


@pytest.fixture
def counters(tmp_path):
    path = tmp_path / "exp.csv"
    path.write_text(f"{UTIL}, gauge, u\n{XIDS}, gauge, x\n{XID_TOTAL}, counter, X\n{CLOCKS}, gauge, c\n"
                    f"{CLOCK_TOTAL}, counter, C\n{HEALTH}, gauge, h\n{PEERS}, gauge, p\n")
    return path


def rows(page, family, label):
    """{(gpu, label's value or None): value}, each once."""
    found = [((int(l["gpu"]), l.get(label)), int(v)) for l, v in page.samples(family)]
    assert len(dict(found)) == len(found)
    return dict(found)


def reasons(page, field):
    return {(l["gpu"], l["reason"]) for l, _ in page.samples(UNAVAILABLE) if l["field"] == field}


def test_xids_are_counted_by_code_and_leave_with_the_window(counters):
    with exporter_on("demo", "-x", "4000", kubernetes=False, counters=counters) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        assert rows(page, XIDS, "xid") == {(gpu, None): 0 for gpu in range(4)}
        assert {l["window_size_in_ms"] for l, _ in page.samples(XIDS)} == {"4000"}
        assert not page.samples(XID_TOTAL)
        for gpu, code in ((0, 42), (0, 42), (0, 46), (1, 79)):
            node.xid(code, gpu=gpu)
        want = {(0, "42"): 2, (0, "46"): 1, (1, "79"): 1}
        page = exporter.page_when(lambda p: rows(p, XID_TOTAL, "xid") == want, 10, "totals")
        exporter.page_when(lambda p: rows(p, XIDS, "xid") == {(gpu, None): 0 for gpu in range(4)}, 20, "window is over")
        assert rows(exporter.page(), XID_TOTAL, "xid") == want


def test_a_window_holds_what_came_within_it(counters):
    with exporter_on("demo", kubernetes=False, counters=counters) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for gpu, code in ((0, 42), (0, 42), (0, 46), (1, 42), (1, 46), (1, 46), (1, 46)):
            node.xid(code, gpu=gpu)
        page = exporter.page_when(lambda p: rows(p, XIDS, "xid") == {
            (0, "42"): 2, (0, "46"): 1, (1, "42"): 1, (1, "46"): 3, (2, None): 0, (3, None): 0}, 10, "counts")
        line = page.families[XIDS][2]
        assert [part.split("=")[0] for part in line[line.index("{") + 1:].split(",")] == [
            "gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "window_size_in_ms", "xid"]


def test_clock_events_are_samples_in_the_window_and_how_often_they_came(counters):
    with run_node.SimNode("demo") as node:
        for gpu in range(4):
            node.set(f"gpu{gpu}.clocks_event_reasons", "0")
        with exporter_at(node, "-c", "100", kubernetes=False, counters=counters) as exporter:
            exporter.page_when(lambda p: p.samples(UTIL) and not p.samples(CLOCKS), 10, "no reason is set")
            node.set("gpu1.clocks_event_reasons", "36")  # power_cap and sw_thermal
            page = exporter.page_when(
                lambda p: rows(p, CLOCKS, "clock_event").get((1, "power_cap"), 0) >= 5, 10, "samples are counted")
            counts = rows(page, CLOCKS, "clock_event")
            assert set(counts) == {(1, "power_cap"), (1, "sw_thermal")}
            assert counts[1, "power_cap"] == counts[1, "sw_thermal"]
            assert rows(page, CLOCK_TOTAL, "clock_event") == {(1, "power_cap"): 1, (1, "sw_thermal"): 1}
            node.set("gpu1.clocks_event_reasons", "4")
            before = None

            def stands_still(p):
                nonlocal before
                now = rows(p, CLOCKS, "clock_event")
                still = before is not None and now[1, "sw_thermal"] == before[1, "sw_thermal"] and \
                    now[1, "power_cap"] >= before[1, "power_cap"] + 5
                before = before if before and now[1, "sw_thermal"] == before[1, "sw_thermal"] else now
                return still
            exporter.page_when(stands_still, 15, "sw_thermal is no more")
            node.set("gpu1.clocks_event_reasons", "36")
            exporter.page_when(lambda p: rows(p, CLOCK_TOTAL, "clock_event") == {
                (1, "power_cap"): 1, (1, "sw_thermal"): 2}, 10, "it came again")


def test_counts_outlive_the_helper(counters):
    with exporter_on("demo", kubernetes=False, counters=counters) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.xid(48, gpu=2)
        exporter.page_when(lambda p: rows(p, XIDS, "xid").get((2, "48")) == 1)
        page = exporter.page()
        before = rows(page, CLOCKS, "clock_event")
        pid = exporter.helper_pid()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: exporter.helper_pid() not in (None, pid), 15, "another helper")
        page = exporter.page_when(lambda p: sum(rows(p, CLOCKS, "clock_event").values()) > sum(before.values()), 15,
                                  "counting goes on")
        assert rows(page, XIDS, "xid")[2, "48"] == 1 and rows(page, XID_TOTAL, "xid") == {(2, "48"): 1}
        assert all(v >= before[k] for k, v in rows(page, CLOCKS, "clock_event").items() if k in before)


def test_an_instance_shows_its_own_xids(counters):
    with exporter_on("mig", kubernetes=False, counters=counters) as (node, exporter):
        page = exporter.page_when(lambda p: p.samples(XIDS))
        ids = [l["GPU_I_ID"] for l, _ in page.samples(XIDS) if "GPU_I_ID" in l]
        assert len(ids) == 4
        node.xid(43, gpu=0, gi=int(ids[1]))

        def by_instance(p):
            return {(l["gpu"], l.get("GPU_I_ID"), l.get("xid")): int(v) for l, v in p.samples(XIDS)}
        want = {("0", i, "43" if i == ids[1] else None): int(i == ids[1]) for i in ids} | {("1", None, None): 0}
        exporter.page_when(lambda p: by_instance(p) == want, 10, "one instance has it")
        node.xid(79, gpu=0)
        exporter.page_when(lambda p: all(by_instance(p).get(("0", i, "79")) == 1 for i in ids), 10,
                           "the board's is everyone's")


def test_a_reload_that_brings_a_row_counts_from_then_on(counters):
    text = counters.read_text()
    counters.write_text(f"{UTIL}, gauge, u\n")
    with exporter_on("demo", kubernetes=False, counters=counters) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.xid(13, gpu=3)
        exporter.page_when(lambda p: p.samples("podgpu_gpu_xid_errors_total"))
        counters.write_text(text)
        page = exporter.page_when(lambda p: p.samples(XIDS) and p.samples(CLOCKS), 15, "taken")
        assert not [n for n in page.device_families() if n == "DCGM_FI_DEV_XID_ERRORS"]  # watched, not asked for
        exporter.page_when(lambda p: rows(p, XIDS, "xid").get((3, "13")) == 1, 10, "was counted before")


def test_health_needs_dcgm(counters):
    with exporter_on("demo", "--source", "nvml", kubernetes=False, counters=counters) as (_, exporter):
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        assert not page.samples(HEALTH)
        assert reasons(page, HEALTH) == {(str(gpu), "needs_dcgm") for gpu in range(4)}


def pairs(page):
    return {(int(l["gpu"]), int(l["peer_gpu"])): (l["link_status"], int(v)) for l, v in page.samples(PEERS)}


def test_peers_are_every_ordered_pair(counters):
    with run_node.SimNode("h100x8") as node:
        node.command("dcgm peer gpu2 gpu5 4")
        node.reset_counts()
        with exporter_at(node, kubernetes=False, counters=counters) as exporter:
            page = exporter.page_when(lambda p: p.samples(PEERS), 15, "peers")
            want = {(i, j): ("OK", 0) for i in range(8) for j in range(8) if i != j}
            assert pairs(page) == {**want, (2, 5): ("DisabledByRegKey", 4)}
            assert len(page.samples(PEERS)) == 56
            assert node.counts()["nvmlDeviceGetP2PStatus"][0] == 56
            assert [l["peer_gpu"] for l, _ in page.samples(PEERS) if l["gpu"] == "3"] == list("0124567")


def test_only_chosen_gpus_have_rows_of_peers(counters):
    with exporter_on("h100x8", "-d", "g:1,6", kubernetes=False, counters=counters) as (_, exporter):
        page = exporter.page_when(lambda p: p.samples(PEERS), 15, "peers")
        assert set(pairs(page)) == {(i, j) for i in (1, 6) for j in range(8) if i != j}


def test_gpus_without_links_are_no_peers_and_one_gpu_has_none(counters):
    with exporter_on("demo", kubernetes=False, counters=counters) as (_, exporter):
        page = exporter.page_when(lambda p: p.samples(PEERS), 15, "peers")
        assert set(pairs(page).values()) == {("NotSupported", 5)} and len(pairs(page)) == 12
    with exporter_on("post", kubernetes=False, counters=counters) as (_, exporter):
        page = exporter.page_when(lambda p: PEERS in p.families, 15, "the family alone")
        assert page.families[PEERS] == [f"# HELP {PEERS} p", f"# TYPE {PEERS} gauge"]
        assert not reasons(page, PEERS)


def test_slow_answers_about_peers_hold_up_no_sample(counters):
    with run_node.SimNode("h100x8") as node:
        node.fault("nvmlDeviceGetP2PStatus", "delay=50")
        with exporter_at(node, kubernetes=False, counters=counters) as exporter:
            page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 8, 10, "values before peers")
            assert not page.samples(PEERS)
            assert reasons(page, PEERS) == {(str(gpu), "no_data") for gpu in range(8)}
            exporter.page_when(lambda p: len(p.samples(PEERS)) == 56, 30, "peers at last")


def verdicts(page, gpu=0):
    """[(system, code, value)] in the order of the page."""
    return [(l["health_watch"], l["health_error_code"], int(v)) for l, v in page.samples(HEALTH) if l["gpu"] == str(gpu)]


SYSTEMS = ["PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"]
WELL = [(system, "DCGM_FR_OK", 0) for system in SYSTEMS]


def ill(system, code, value):
    return [(system, code, value) if row[0] == system else row for row in WELL]


def test_health_is_dcgms_verdict(counters):
    with exporter_on("post-dcgm", kubernetes=False, counters=counters) as (node, exporter):
        exporter.page_when(lambda p: verdicts(p) == WELL, 40, "all is well")
        node.command("dcgm health gpu=0 system=THERMAL code=40")
        exporter.page_when(lambda p: verdicts(p) == ill("THERMAL", "DCGM_FR_THERMAL_VIOLATIONS", 20), 40, "too hot")
        node.command("dcgm health clear")
        node.command("dcgm health gpu=0 system=PCIE result=10 code=424242")
        exporter.page_when(lambda p: verdicts(p) == ill("PCIE", "DCGM_FR_UNKNOWN(424242)", 10), 40, "a warning")


def test_health_ends_with_the_engine_and_comes_back_with_it(counters):
    with run_node.SimNode("post-dcgm") as node:
        engine = node.start_engine()
        with exporter_at(node, "-r", engine.address, kubernetes=False, counters=counters) as exporter:
            exporter.page_when(lambda p: verdicts(p) == WELL, 40, "all is well")
            engine.kill()
            page = exporter.page_when(lambda p: not p.samples(HEALTH), 40, "nobody knows")
            assert reasons(page, HEALTH) == {("0", "not_connected")}
            assert page.samples(XIDS)  # NVML's
            node.start_engine(listen=engine.address)
            exporter.page_when(lambda p: verdicts(p) == WELL, 60, "all is well again")


# --- From DCGM alone ---

TWO_GPUS = """\
driver: {version: 570.124.06, cuda: 12080}
models: models.yaml
gpus:
  - {model: h100, uuid: GPU-00000000-0000-0000-0000-000000000000, bus_id: "00000000:1B:00.0"}
  - {model: h100, uuid: GPU-00000000-0000-0000-0000-000000000001, bus_id: "00000000:1C:00.0"}
"""


@contextlib.contextmanager
def dcgm_alone(library, counters, *before):
    """Two linked GPUs that only a running host engine tells of; before: verbs of the node. Yields (node, exporter)."""
    with run_node.SimNode(text=f"{TWO_GPUS}dcgm: {{library: {library}, engine: running}}\n") as node:
        for gpu in (0, 1):
            node.set(f"gpu{gpu}.clocks_event_reasons", "0")
        for verb in before:
            node.command(verb)
        with exporter_at(node, "--source=dcgm", "-r", node.engine.address, "-c", "200", kubernetes=False,
                         counters=counters) as exporter:
            exporter.page_when(lambda p: len(p.samples(UTIL)) == 2 and len(p.samples(XIDS)) == 2, 20, "both GPUs")
            yield node, exporter


def source_of(page, family):
    return {l["source"] for l, _ in page.samples("podgpu_exporter_field_source_info") if l["field"] == family}


@pytest.mark.parametrize("library", [4, 3])
def test_dcgm_alone_counts_xids_and_a_blank_is_none(library, counters):
    with dcgm_alone(library, counters) as (node, exporter):
        for gpu, code in ((0, 42), (0, 42), (0, 46), (1, 42), (1, 46), (1, 46), (1, 46)):
            node.command(f"dcgm xid gpu={gpu} code={code}")
        want = {(0, "42"): 2, (0, "46"): 1, (1, "42"): 1, (1, "46"): 3}
        page = exporter.page_when(lambda p: rows(p, XIDS, "xid") == want, 20, "counts")
        assert rows(page, XID_TOTAL, "xid") == want
        assert source_of(page, XIDS) == source_of(page, XID_TOTAL) == {"dcgm"}
        node.command("dcgm set gpu0.230=blank")
        node.command("dcgm xid gpu=1 code=79")
        page = exporter.page_when(lambda p: (1, "79") in rows(p, XIDS, "xid"), 20, "one more")
        assert rows(page, XIDS, "xid") == {**want, (1, "79"): 1}


@pytest.mark.parametrize("library", [4, 3])
def test_dcgm_alone_counts_clock_events(library, counters):
    with dcgm_alone(library, counters) as (node, exporter):
        page = exporter.page_when(lambda p: not p.samples(CLOCKS), 10, "no reason is set")
        node.set("gpu0.clocks_event_reasons", str(0x24))
        node.set("gpu1.clocks_event_reasons", str(0xc0))
        keys = {(0, "power_cap"), (0, "sw_thermal"), (1, "hw_thermal"), (1, "hw_power_brake")}
        page = exporter.page_when(lambda p: set(rows(p, CLOCKS, "clock_event")) == keys and
                                  min(rows(p, CLOCKS, "clock_event").values()) >= 3, 20, "samples are counted")
        counts = rows(page, CLOCKS, "clock_event")
        assert counts[0, "power_cap"] == counts[0, "sw_thermal"] and counts[1, "hw_thermal"] == counts[1, "hw_power_brake"]
        assert rows(page, CLOCK_TOTAL, "clock_event") == dict.fromkeys(keys, 1)
        assert source_of(page, CLOCKS) == source_of(page, CLOCK_TOTAL) == {"dcgm"}


@pytest.mark.parametrize("library", [4, 3])
def test_dcgm_alone_gives_verdicts_of_both_gpus(library, counters):
    with dcgm_alone(library, counters, "dcgm health gpu=1 system=ALL code=120") as (_, exporter):
        page = exporter.page_when(lambda p: verdicts(p, 0) == WELL and verdicts(p, 1) == ill("ALL", "DCGM_FR_FALLEN_OFF_BUS", 20),
                                  40, "verdicts")
        assert source_of(page, HEALTH) == {"dcgm"}


def test_dcgm_alone_tells_of_peers_from_4_on(counters):
    with dcgm_alone(4, counters, "dcgm peer gpu1 gpu0 1") as (_, exporter):
        page = exporter.page_when(lambda p: pairs(p) == {(0, 1): ("OK", 0), (1, 0): ("ChipsetNotSupported", 1)}, 80, "peers")
        assert source_of(page, PEERS) == {"dcgm"}
    with dcgm_alone(3, counters) as (_, exporter):
        page = exporter.page_when(lambda p: reasons(p, PEERS), 40, "the reason")
        assert reasons(page, PEERS) == {("0", "no_data"), ("1", "no_data")} and not page.samples(PEERS)


@pytest.mark.parametrize("call", ["dcgmGetValuesSince_v2", "dcgmHealthCheck"])
def test_a_call_that_fails_costs_its_own_family_and_no_page(call, counters):
    """Where dcgm-exporter answers 500."""
    with dcgm_alone(4, counters, f"fault {call} return=-3") as (node, exporter):
        wait_until(lambda: node.node.calls(call) > 0, 20, "the call failed")
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 2, 20, "values")
        assert len(page.samples(HEALTH)) == 0 or call != "dcgmHealthCheck"
        node.clear_faults()
        calls = node.node.calls("dcgmGetValuesSince_v2")  # what is there at the first answer is history
        wait_until(lambda: node.node.calls("dcgmGetValuesSince_v2") > calls + 1, 20, "XIDs are looked for")
        node.command("dcgm xid gpu=0 code=79")
        exporter.page_when(lambda p: rows(p, XIDS, "xid").get((0, "79")) == 1 and verdicts(p) == WELL, 60, "all is back")

"""The exporter with two helpers: what DCGM gives beside NVML, on the simulated libdcgm and host engine."""
import os
import pathlib
import signal
import subprocess
import threading

import pytest

from harness import BUILD, SLOW, exporter_at, exporter_on, wait_until
from measure import memory_kib

UP = "podgpu_exporter_source_up"
STATE = "podgpu_exporter_source_state_info"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
PROF = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE",
        "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES"}
BACK_S = 10  # within which DCGM's families are back once an engine answers


def scenario(gpus=("a10g",), library=4, engine="none"):
    """A node of these models; DCGM has profiling values of each."""
    rows = "".join(f'  - {{model: {g}, uuid: GPU-5f0a9c11-3c2b-4b53-9f6e-8d1d0f3b7a{i:02}, '
                   f'bus_id: "00000000:{i + 16:02X}:00.0", '
                   'dcgm: {values: {1001: 0.5, 1004: 0.25, 1005: 0.125, 1009: 1000, 1010: 2000}}}\n'
                   for i, g in enumerate(gpus))
    return ("driver: {version: 550.90.07, cuda: 12040}\nmodels: models.yaml\ngpus:\n" + rows +
            f"dcgm: {{library: {library}, engine: {engine}}}\n")


def prof(page):
    return {f for f in PROF if page.samples(f)}


def has_prof(page):
    return prof(page) == PROF


def with_prof(exporter, seconds=20):
    return exporter.page_when(has_prof, seconds, "the five profiling families")


def sources_of(page, field):
    return {l["source"] for l, _ in page.samples("podgpu_exporter_field_source_info") if l["field"] == field}


def admin(socket_path, path):
    """(status, text) of a control request."""
    done = subprocess.run(["curl", "-s", "-m", str(20 * SLOW), "-X", "POST", "-w", "\n%{http_code}", "--unix-socket",
                           str(socket_path), f"http://x{path}"], capture_output=True, text=True, check=False)
    text, status = done.stdout.rsplit("\n", 1)
    return int(status), text.strip()


@pytest.fixture()
def socket_path(tmp_path):
    return tmp_path / "admin.sock"


def controlled(node, socket_path, *arguments, **words):
    return exporter_at(node, f"--admin-address=unix:{socket_path}", *arguments, **words)


# --- Embedded ---

def test_the_posts_node_gets_its_five_profiling_families_from_an_embedded_engine():
    with exporter_on("post-dcgm") as (_, exporter):
        page = with_prof(exporter)
        assert exporter.helpers().keys() == {"nvml", "dcgm"}
        assert sources_of(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") == {"dcgm"}
        assert sources_of(page, TEMP) == {"nvml"}
        for source in ("nvml", "dcgm"):
            assert page.value(UP, source=source) == 1
            assert page.value(STATE, source=source, state="ready") == 1
            assert page.value("podgpu_exporter_helper_running", source=source) == 1
            assert page.value("podgpu_exporter_last_sample_timestamp_seconds", source=source) > 0
        assert len(page.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 1
        assert 'msg="dcgm host engine is in use" engine=embedded' in exporter.log


def test_a_node_with_gpm_starts_no_dcgm():
    with exporter_on("h100", text=scenario(["h100"])) as (_, exporter):
        page = with_prof(exporter)
        assert exporter.helpers().keys() == {"nvml"}
        assert sources_of(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") == {"nvml_gpm"}
        assert [l["source"] for l, _ in page.samples(UP)] == ["nvml"]


def test_on_a_mixed_node_each_gpu_has_its_source():
    with exporter_on("mixed", text=scenario(["h100", "a10g"])) as (_, exporter):
        page = exporter.page_when(lambda p: all(len(p.samples(f)) == 2 for f in PROF), 20, "both GPUs' profiling")
        assert exporter.helpers().keys() == {"nvml", "dcgm"}
        assert sources_of(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") == {"nvml_gpm", "dcgm"}


def test_source_nvml_never_starts_dcgm():
    with exporter_on("post-dcgm", "--source=nvml") as (_, exporter):
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert exporter.helpers().keys() == {"nvml"} and prof(page) == set()
        reasons = {l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")
                   if l["field"].startswith("DCGM_FI_PROF")}
        assert reasons == {"needs_gpm"}


def test_source_dcgm_asks_dcgm_alone_and_counts_xids_through_it():
    with exporter_on("post-dcgm", "--source=dcgm") as (node, exporter):
        page = exporter.page_when(lambda p: has_prof(p) and p.samples(TEMP), 20, "all from DCGM")
        assert exporter.helpers().keys() == {"dcgm"}
        assert sources_of(page, TEMP) == {"dcgm"}
        assert [l["source"] for l, _ in page.samples(UP)] == ["dcgm"]
        node.xid(43)
        exporter.page_when(lambda p: any(l["xid"] == "43" and v == "1" for l, v in
                                         p.samples("podgpu_gpu_xid_errors_total")), 20, "the XID is counted")
        assert exporter.get("/readyz")[0] == 200


# --- Without DCGM ---

def test_without_the_library_the_reason_is_told_and_nothing_else_suffers():
    with exporter_on("post") as (_, exporter):
        page = exporter.page_when(lambda p: p.samples(TEMP) and p.samples(STATE)[1:], 20, "both sources")
        page = exporter.page_when(lambda p: (p.samples(STATE)[-1][0]["state"]) == "no_library", 20, "no library")
        assert page.value(UP, source="dcgm") == 0 and page.value(UP, source="nvml") == 1
        reasons = {l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")
                   if l["field"].startswith("DCGM_FI_PROF")}
        assert reasons == {"needs_gpm"}
        assert exporter.log.count('level=INFO msg="no dcgm host engine for now"') == 1 and "level=WARN" not in exporter.log
        status, _, text = exporter.get("/readyz")
        assert status == 200 and "[+] source dcgm: " in text


def test_a_library_that_was_asked_for_and_is_not_there_is_warned_of():
    for asked in (["--source=dcgm"], ["-r", "127.0.0.1:1"], ["--dcgm-library=/nonexistent/libdcgm.so.4"]):
        with exporter_on("post", *asked, kubernetes=False) as (_, exporter):
            wait_until(lambda: 'level=WARN msg="no dcgm host engine for now"' in exporter.log, 20, "a warning")


# --- A running engine ---

@pytest.mark.parametrize("major", [4, 3])
def test_a_given_engine_is_used_and_none_is_embedded(major):
    import run_node
    with run_node.SimNode(text=scenario(library=major)) as node:
        engine = node.start_engine()
        with exporter_at(node, "-r", engine.address) as exporter:
            with_prof(exporter)
            assert f"engine={engine.address}" in exporter.log
            words = pathlib.Path(f"/proc/{exporter.helper_pid('dcgm')}/cmdline").read_text().split("\0")
            assert "--embed" not in words and engine.address in words


def test_without_an_address_engines_that_run_are_tried_before_one_is_embedded():
    with exporter_on("post-dcgm") as (node, exporter):
        with_prof(exporter)
        words = pathlib.Path(f"/proc/{exporter.helper_pid('dcgm')}/cmdline").read_text().split("\0")
        connects = [words[i + 1] for i, word in enumerate(words) if word == "--connect"]
        assert connects == ["unix:///tmp/nv-hostengine", "localhost:5555"]
        assert words[words.index("--embed") + 1] == "yes"


@pytest.mark.parametrize("behave", ["close", "garbage", "mute"])
def test_none_is_embedded_beside_somebody_who_listens_and_nvml_goes_on(behave):
    """Whoever listens at the address is taken to have the profiling counters."""
    import run_node
    with run_node.SimNode(text=scenario()) as node:
        engine = node.start_engine(behave=behave)
        with exporter_at(node, "-r", engine.address, "-c", "200") as exporter:
            page = exporter.page_when(lambda p: p.samples(TEMP) and any(
                l["source"] == "dcgm" and l["state"] == "failed" for l, _ in p.samples(STATE)), 20, "told")
            assert prof(page) == set() and page.value(UP, source="nvml") == 1
            reasons = {l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")
                       if l["field"] in PROF}
            assert reasons == {"not_connected"}
            assert node.node.calls("dcgmStartEmbedded_v2") == 0


def test_counters_of_another_owner_are_not_taken():
    """DCGM says so; what is no profiling field is there."""
    text = scenario().replace("engine: none", "engine: none, owner: in_use")
    with exporter_on("in use", "--source=dcgm", "-c", "200", text=text) as (_, exporter):
        def told(page):
            return page.samples(TEMP) and {l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")
                                           if l["field"] in PROF} == {"in_use"}
        assert prof(exporter.page_when(told, 20, "the reason")) == set()
        assert 'msg="profiling fields cannot be had on some GPU"' in exporter.log


@pytest.mark.parametrize("flags, helpers", [((), {"dcgm"}), (("--source=auto",), {"dcgm"}), (("-k",), {"nvml", "dcgm"}),
                                            (("--source=nvml",), {"nvml"})])
def test_outside_kubernetes_another_machines_engine_is_the_only_source(flags, helpers):
    """vsock://2 is the machine below this one: not loopback, and asked without a network."""
    with exporter_on("post-dcgm", "-r", "vsock://2:5555", *flags, kubernetes=False) as (_, exporter):
        page = exporter.page_when(lambda p: {l["source"] for l, _ in p.samples(UP)} == helpers, 20, "the sources")
        wait_until(lambda: exporter.helpers().keys() == helpers, 20, "the helpers")
        assert bool(page.samples(TEMP)) == ("nvml" in helpers) or exporter.page_when(lambda p: p.samples(TEMP), 20, "NVML's")


def test_a_given_unix_socket_is_used(tmp_path):
    import run_node
    with run_node.SimNode(text=scenario()) as node:
        engine = node.start_engine(socket=str(tmp_path / "he.sock"))
        with exporter_at(node, "-r", engine.address, "--source=dcgm") as exporter:
            with_prof(exporter)
            assert exporter.helpers().keys() == {"dcgm"}


def test_an_engine_that_is_killed_and_restarted_costs_only_dcgms_families():
    import run_node
    with run_node.SimNode(text=scenario()) as node:
        engine = node.start_engine()
        with exporter_at(node, "-r", engine.address, "-c", "200") as exporter:
            with_prof(exporter)
            for _ in range(3):
                node.engine.kill()
                page = exporter.page_when(lambda p: prof(p) == set(), BACK_S, "DCGM's families stop")
                assert page.samples(TEMP) and page.value(UP, source="dcgm") == 0
                node.start_engine(listen=engine.address)

                def back(page):
                    assert page.samples(TEMP), "NVML's families are on every page"
                    return has_prof(page)
                page = exporter.page_when(back, BACK_S, "DCGM's families are back")
                assert page.value(UP, source="dcgm") == 1
            page = exporter.page()
            assert page.value("podgpu_exporter_helper_starts_total", source="dcgm") == 1
            assert page.value("podgpu_exporter_errors_total", source="dcgm", code="crashed") == 0
            assert exporter.log.count('msg="dcgm host engine is in use"') >= 2


class Scraper(threading.Thread):
    """Scrapes without a pause until it is stopped; counts the pages and those without NVML's families."""

    def __init__(self, exporter):
        super().__init__(daemon=True)
        self.exporter, self.ending, self.pages, self.bad = exporter, threading.Event(), 0, []

    def run(self):
        while not self.ending.wait(0.02):
            try:
                page = self.exporter.page()
                if not page.samples(TEMP) or page.value(UP, source="nvml") != 1:
                    self.bad.append(page.text[:400])
            except (AssertionError, OSError) as error:
                self.bad.append(repr(error))
            self.pages += 1


def footprint(exporter):
    """(descriptors, KiB) of the exporter and its helpers."""
    pids = [exporter.pid, *exporter.helpers().values()]
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids), sum(memory_kib(pid, "Anonymous") for pid in pids)


@pytest.mark.faults
def test_engines_come_and_go_under_scrapes_and_nothing_leaks():
    """A hundred times under AddressSanitizer: NVML's families are on every page, DCGM's stop and are back."""
    import run_node
    cycles = 100 if BUILD.name == "asan" else 10
    env = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"}  # what is freed is free
    with run_node.SimNode(text=scenario(["a10g"] * 4)) as node:
        address = node.start_engine().address
        with exporter_at(node, "-r", address, "-c", "100", env=env) as exporter:
            with_prof(exporter)
            scraper = Scraper(exporter)
            scraper.start()
            for cycle in range(cycles):
                node.engine.kill()
                exporter.page_when(lambda p: prof(p) == set() and p.value(UP, source="dcgm") == 0, BACK_S, "they stop")
                node.start_engine(listen=address)
                exporter.page_when(has_prof, BACK_S, f"they are back, cycle {cycle}")
                if cycle == cycles // 5:
                    early = footprint(exporter)
            late = footprint(exporter)
            scraper.ending.set()
            scraper.join(20 * SLOW)
            assert scraper.bad == [] and scraper.pages > cycles
            page = exporter.page()
            assert page.value("podgpu_exporter_helper_starts_total", source="dcgm") == 1
            assert late[0] <= early[0] + 4  # connections of scrapes that are under way
            assert late[1] <= early[1] + (1024 if SLOW == 1 else 16384), (early, late)
        assert "Sanitizer" not in exporter.log


def test_dcgms_helper_that_is_killed_is_replaced_and_nvml_goes_on():
    with exporter_on("post-dcgm", "-c", "200") as (_, exporter):
        with_prof(exporter)
        os.kill(exporter.helper_pid("dcgm"), signal.SIGKILL)
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_helper_starts_total", source="dcgm") == 2
                                  and has_prof(p), 20, "replaced")
        assert page.value("podgpu_exporter_errors_total", source="dcgm", code="crashed") == 1
        assert page.value("podgpu_exporter_errors_total", source="nvml", code="crashed") == 0
        assert page.samples(TEMP)


# --- Control ---

def test_pause_and_resume_reach_dcgm(socket_path):
    import run_node
    with run_node.SimNode("post-dcgm") as node, controlled(node, socket_path, "-c", "200") as exporter:
        with_prof(exporter)
        assert admin(socket_path, "/-/pause") == (200, "ok")
        page = exporter.page_when(lambda p: prof(p) == set(), 20, "no profiling while paused")
        assert page.samples(TEMP)
        reasons = {l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")
                   if l["field"] == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
        assert reasons == {"paused"}
        assert admin(socket_path, "/-/resume") == (200, "ok")
        with_prof(exporter)


def test_pause_without_dcgm_is_refused(socket_path):
    import run_node
    with run_node.SimNode(text=scenario(["h100"])) as node, controlled(node, socket_path) as exporter:
        exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert admin(socket_path, "/-/pause") == (409, "DCGM is not in use")


def test_a_helper_that_does_not_answer_holds_nobody_up(socket_path):
    import run_node
    with run_node.SimNode("post-dcgm") as node, controlled(node, socket_path) as exporter:
        with_prof(exporter)
        os.kill(exporter.helper_pid("dcgm"), signal.SIGSTOP)
        try:
            with subprocess.Popen(["curl", "-s", "-m", str(20 * SLOW), "-X", "POST", "--unix-socket", str(socket_path),
                                   "http://x/-/pause"], stdout=subprocess.PIPE, text=True) as client:
                assert exporter.page().samples(TEMP)
                assert exporter.page().samples(TEMP)
                assert client.communicate(timeout=20 * SLOW)[0].strip() == "DCGM did not answer within 5 s"
        finally:
            pid = exporter.helper_pid("dcgm")
            if pid:
                os.kill(pid, signal.SIGCONT)


def test_release_ends_both_helpers_and_attach_starts_both(socket_path):
    import run_node
    with run_node.SimNode("post-dcgm") as node, controlled(node, socket_path, "-c", "200") as exporter:
        with_prof(exporter)
        assert admin(socket_path, "/-/release") == (200, "ok")
        wait_until(lambda: exporter.helpers() == {}, what="both helpers are gone")
        page = exporter.page_when(lambda p: p.device_families() == [], what="no readings")
        for source in ("nvml", "dcgm"):
            assert page.value("podgpu_exporter_helper_released", source=source) == 1
            assert page.value(STATE, source=source, state="released") == 1
        assert admin(socket_path, "/-/pause") == (409, "DCGM is not in use")
        assert admin(socket_path, "/-/release")[0] == 409
        assert admin(socket_path, "/-/attach") == (200, "ok")
        with_prof(exporter)


# --- Readiness, reload ---

def test_readyz_names_both_sources():
    with exporter_on("post-dcgm") as (_, exporter):
        with_prof(exporter)
        status, _, text = exporter.get("/readyz")
        assert status == 200
        assert "[+] source nvml: sampling\n[+] source dcgm: sampling\n" in text


def test_a_reload_starts_and_ends_dcgm(tmp_path):
    counters = tmp_path / "counters.csv"
    plain = f"{TEMP}, gauge, t\n"
    counters.write_text(plain)
    with exporter_on("post-dcgm", counters=str(counters)) as (_, exporter):
        exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert exporter.helpers().keys() == {"nvml"}
        counters.write_text(plain + "".join(f"{f}, gauge, t\n" for f in sorted(PROF)))
        exporter.process.send_signal(signal.SIGHUP)
        with_prof(exporter)
        assert exporter.helpers().keys() == {"nvml", "dcgm"}
        counters.write_text(plain)
        exporter.process.send_signal(signal.SIGHUP)
        exporter.page_when(lambda p: len(p.samples(UP)) == 1, 20, "DCGM is no more in use")
        wait_until(lambda: exporter.helpers().keys() == {"nvml"}, what="its helper is gone")
        assert prof(exporter.page()) == set()


def test_a_dead_engine_does_not_hold_a_reload(tmp_path):
    counters = tmp_path / "counters.csv"
    rows = "".join(f"{f}, gauge, t\n" for f in sorted(PROF))
    counters.write_text(f"{TEMP}, gauge, t\n" + rows)
    with exporter_on("post-dcgm", "-r", "127.0.0.1:1", counters=str(counters)) as (_, exporter):
        exporter.page_when(lambda p: p.value(UP, source="nvml") == 1 and p.samples(TEMP), what="devices")
        counters.write_text("DCGM_FI_DEV_POWER_USAGE, gauge, t\n" + rows)
        exporter.process.send_signal(signal.SIGHUP)
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_POWER_USAGE"), 10, "the new configuration")
        assert not page.samples(TEMP)


# --- What both sources tell ---

def test_an_xid_that_both_sources_hear_of_is_told_and_counted_once(tmp_path):
    rows = tmp_path / "counters.csv"
    rows.write_text("DCGM_FI_DEV_XID_ERRORS, gauge, x\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n"
                    "DCGM_EXP_XID_ERRORS_COUNT, gauge, c\n")
    with exporter_on("post-dcgm", counters=rows) as (node, exporter):
        exporter.page_when(lambda p: p.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), 20, "DCGM")
        node.xid(79)
        exporter.page_when(lambda p: p.value("podgpu_gpu_xid_errors_total", xid="79") == 1, 20, "the XID")
        node.xid(48)  # the engine, asked each second, tells of 79 before it or with it
        exporter.page_when(lambda p: p.value("podgpu_gpu_xid_errors_total", xid="48") == 1, 20, "the second XID")
        starts = exporter.page().value("podgpu_exporter_last_sample_timestamp_seconds", source="dcgm")
        page = exporter.page_when(
            lambda p: p.value("podgpu_exporter_last_sample_timestamp_seconds", source="dcgm") > starts + 3, 20, "DCGM's look")
        assert page.value("podgpu_gpu_xid_errors_total", xid="79") == 1
        assert {l["xid"]: v for l, v in page.samples("DCGM_EXP_XID_ERRORS_COUNT") if v} == {"79": "1", "48": "1"}
        told = [line for line in exporter.log.splitlines() if 'msg="xid error"' in line]
        assert len(told) == 2 and all('from="driver event"' in line for line in told), told
        assert sources_of(page, "DCGM_FI_DEV_XID_ERRORS") == {"nvml_events"}


def test_a_field_that_dcgm_is_about_to_give_is_not_told_missing():
    with exporter_on("post-dcgm") as (_, exporter):
        with_prof(exporter)
        assert not [line for line in exporter.log.splitlines() if "not available here" in line and "PROF" in line]


def test_a_range_that_ends_before_it_begins_is_told():
    with exporter_on("post-dcgm", "-p", "g+i:9-3") as (_, exporter):
        wait_until(lambda: "flag=cpu-devices found=9-3 meant=3-9" in exporter.log, 20, "the warning")


def test_a_refusal_of_profiling_names_what_it_takes():
    import run_node
    with run_node.SimNode("post-dcgm") as node:
        node.set("dcgm.profiling", "-17")
        with exporter_at(node) as exporter:
            wait_until(lambda: "CAP_SYS_ADMIN" in exporter.log, 40, "the remedy")

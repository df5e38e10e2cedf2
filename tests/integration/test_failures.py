"""When things fail: each row of the failure policy, on the real programs."""
import os
import re
import signal
import socket
import threading
import time

import pytest

from harness import ROOT, SLOW, Exporter, exporter_at, exporter_on, run_to_end, wait_until

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"
STOCK = ROOT / "etc" / "default-counters.csv"


def has_devices(page):
    return page.samples(UTIL)


def gpus_with(page, family):
    return sorted(int(labels["gpu"]) for labels, _ in page.samples(family))


def up(page):
    return {int(labels["gpu"]): value for labels, value in page.samples("podgpu_gpu_up") if "GPU_I_ID" not in labels}


def reasons(page):
    return {int(labels["gpu"]): labels["reason"] for labels, _ in page.samples("podgpu_gpu_state_info")}


# --- nothing there ---

def test_without_driver_gpu_or_kubelet_it_starts_says_why_once_and_serves_what_there_is(tmp_path):
    exporter = Exporter(["-a", "127.0.0.1:0", "-f", STOCK, "-k", "--nvml-library", tmp_path / "none.so",
                         "--pod-resources-kubelet-socket", tmp_path / "kubelet.sock", "--kmsg-path", ""])
    try:
        wait_until(lambda: exporter.get("/readyz")[0] == 200, 5, "ready with everything known absent")
        page = exporter.page()
        assert page.device_families() == []
        assert page.value("podgpu_exporter_attribution_up") == 0
        assert page.samples("podgpu_exporter_build_info")
        time.sleep(2.5)
        assert exporter.log.count("no gpu metrics for now") == 1
        status, _, text = exporter.get("/readyz")
        assert "source nvml" in text and "kubelet" in text
    finally:
        assert exporter.stop()[0] == 0


def test_a_kubelet_socket_that_appears_later_is_found():
    with exporter_on("demo", kubelet=False) as (node, exporter):
        exporter.page_when(has_devices)
        node._start_kubelet()
        exporter.page_when(lambda p: any(l.get("pod") for l, _ in p.samples(UTIL)), 15, "pod labels")


# --- GPUs ---

def test_a_lost_gpu_is_down_with_its_evidence_and_the_others_go_on():
    with exporter_on("demo") as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.xid(79, gpu=1)
        node.set("gpu1.lost", 1)
        page = exporter.page_when(lambda p: up(p).get(1) == "0", what="gpu 1 down")
        assert reasons(page)[1] == "lost"
        assert gpus_with(page, UTIL) == [0, 2, 3]
        assert gpus_with(page, "DCGM_FI_DEV_FB_USED") == [0, 2, 3]
        assert page.samples("podgpu_gpu_info")
        uuid = node.node.uuid(1)
        page = exporter.page_when(
            lambda p: any(l["xid"] == "79" and l["UUID"] == uuid and v == "1"
                          for l, v in p.samples("podgpu_gpu_xid_errors_total")), what="XID 79 counted once")
        assert exporter.get("/readyz")[0] == 200
        node.set("gpu1.lost", 0)
        page = exporter.page_when(lambda p: up(p).get(1) == "1" and gpus_with(p, UTIL) == [0, 1, 2, 3], 90,
                                  "gpu 1 is back")
        assert page.value("podgpu_gpu_xid_errors_total", UUID=uuid, xid="79") == 1


def test_who_is_ready_shows_its_devices():
    import run_node
    with run_node.SimNode("demo") as node:
        for _ in range(8):
            with exporter_at(node) as exporter:
                deadline = time.monotonic() + 10 * SLOW
                while exporter.get("/readyz")[0] != 200:
                    assert time.monotonic() < deadline
                assert len(exporter.page().samples(UTIL)) == 4


def test_a_call_that_hangs_costs_one_gpu_and_no_scrape():
    with exporter_on("demo", f"--call-deadline={SLOW}s") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("nvmlDeviceGetUtilizationRates", "hang", gpu=2)
        slowest = 0
        deadline = time.monotonic() + 20 * SLOW
        while True:
            begun = time.monotonic()
            page = exporter.page()
            slowest = max(slowest, time.monotonic() - begun)
            if up(page).get(2) == "0" and gpus_with(page, UTIL) == [0, 1, 3]:
                break
            assert time.monotonic() < deadline, page.text[-3000:]
            time.sleep(0.02)
        assert slowest < 0.5 * SLOW
        assert reasons(page)[2] == "hung"
        assert page.value("podgpu_exporter_errors_total", source="nvml", code="hung") == 1
        uuid = next(l["UUID"] for l, _ in page.samples("podgpu_gpu_up") if l["gpu"] == "2")
        for line in (f'msg="gpu is not available" gpu=2 uuid={uuid} reason=hung',
                     'msg="devices listed" gpus=4 available=3 mig_instances=0'):
            wait_until(lambda: line in exporter.log, 5, line)
        # The helper in use now does not call that GPU, and yet knows it in the kernel's log.
        node.xid(119, gpu=2, only="kmsg")
        exporter.page_when(lambda p: any(l["xid"] == "119" and l["UUID"] == uuid and v == "1"
                                         for l, v in p.samples("podgpu_gpu_xid_errors_total")), what="XID 119")
        wait_until(lambda: f'msg="xid error" gpu=2 uuid={uuid} xid=119 ' in exporter.log, 5, "the XID in the log")


def test_a_hang_of_the_whole_driver_marks_all_gpus_and_everything_still_answers():
    with exporter_on("demo", f"--call-deadline={SLOW}s") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        node.fault("nvmlDeviceGetHandleByIndex_v2", "hang")
        node.fault("nvmlDeviceGetUtilizationRates", "hang")
        page = exporter.page_when(lambda p: set(up(p).values()) == {"0"}, 30, "all down")
        assert set(reasons(page).values()) == {"driver_hung"}
        begun = time.monotonic()
        assert exporter.get("/health")[0] == 200
        assert time.monotonic() - begun < 0.5 * SLOW
        _, took = exporter.stop()
        assert took < 2 * SLOW


def test_sigterm_during_a_hung_call_ends_within_two_seconds():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(has_devices)
        node.fault("nvmlDeviceGetUtilizationRates", "hang", gpu=0)
        time.sleep(1.5)
        helper = exporter.helper_pid()
        _, took = exporter.stop()
        assert took < 2 * SLOW
        wait_until(lambda: not os.path.exists(f"/proc/{helper}"), 5, "the helper is gone too")


def sample_time(page):
    samples = page.samples("podgpu_exporter_last_sample_timestamp_seconds")
    return float(samples[0][1]) if samples else 0


def watch_samples(exporter, seconds):
    """Distinct sample times seen in that long, and how many scrapes were answered."""
    times, scrapes = [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        page = exporter.page()
        scrapes += 1
        if has_devices(page) and (not times or round(sample_time(page), 1) > times[-1]):
            times.append(round(sample_time(page), 1))
        time.sleep(0.02)
    return times, scrapes


def test_killing_the_helper_costs_at_most_one_sample_and_no_scrape():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(has_devices)
        before = exporter.helper_pid()
        killer = threading.Timer(1.5, lambda: os.kill(before, signal.SIGKILL))
        killer.start()
        times, scrapes = watch_samples(exporter, 6)
        killer.join()
        gaps = [b - a for a, b in zip(times, times[1:])]
        assert max(gaps) < 2 * SLOW + 0.5, gaps
        assert scrapes > 20 / SLOW
        after = exporter.helper_pid()
        assert after not in (None, before)
        assert len(exporter.page().samples(UTIL)) == 4


def test_a_crash_inside_the_vendor_library_loses_no_scrape():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(has_devices)
        node.fault("nvmlDeviceGetUtilizationRates", "crash", count=1)
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_errors_total", source="nvml", code="crashed") == 1, what="the crash")
        times, _ = watch_samples(exporter, 4)
        assert len(times) >= 2
        assert len(exporter.page().samples(UTIL)) == 4


def test_release_lets_an_administrator_reset_a_gpu_and_attach_takes_it_up_again(tmp_path):
    admin = tmp_path / "admin.sock"
    with exporter_on("demo", f"--admin-address=unix:{admin}") as (node, exporter):
        exporter.page_when(has_devices)
        with pytest.raises(Exception) as refused:
            node.reset(0)
        assert "in use" in str(refused.value)
        assert post(admin, "/-/release") == 200
        wait_until(lambda: exporter.helper_pid() is None, 5, "no helper")
        node.reset(0)
        page = exporter.page_when(lambda p: set(reasons(p).values()) == {"released"}, what="released")
        assert not page.samples(UTIL)
        assert page.value("podgpu_exporter_source_up", source="nvml") == 0
        assert "source nvml: released on request" in exporter.get("/readyz")[2]
        assert post(admin, "/-/release") == 409
        assert post(admin, "/-/attach") == 200
        assert post(admin, "/-/attach") == 409
        exporter.page_when(lambda p: set(up(p).values()) == {"1"} and p.samples(UTIL), 15, "attached")
        assert post(admin, "/-/pause") == 409


def test_attach_takes_up_a_new_driver_library(tmp_path):
    admin, library = tmp_path / "admin.sock", tmp_path / "libnvidia-ml.so.1"
    import run_node
    with run_node.SimNode("demo") as node:
        library.symlink_to(tmp_path / "not-there-yet.so")
        exporter = Exporter(["-a", "127.0.0.1:0", "-f", node.counters, "--nvml-library", library, "--kmsg-path", "",
                             f"--admin-address=unix:{admin}"], {"SIM_NODE": node.env["SIM_NODE"]})
        try:
            wait_until(lambda: "no gpu metrics for now" in exporter.log, 5, "said why")
            assert post(admin, "/-/release") == 200
            library.unlink()
            library.symlink_to(node.nvml_library)
            assert post(admin, "/-/attach") == 200
            exporter.page_when(has_devices, 10, "the new library answers")
        finally:
            assert exporter.stop()[0] == 0


def post(path, route):
    """Status of a POST over a Unix socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5 * SLOW)
        s.connect(str(path))
        s.sendall(f"POST {route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        data = b""
        while piece := s.recv(4096):
            data += piece
    return int(data.split()[1])


# --- values ---

def test_an_unknown_value_has_no_sample_and_a_reason():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_POWER_USAGE")) == 4)
        node.fault("nvmlDeviceGetPowerUsage", "return=3", gpu=1)
        page = exporter.page_when(lambda p: gpus_with(p, "DCGM_FI_DEV_POWER_USAGE") == [0, 2, 3], what="gone at once")
        missing = [(l["field"], l["reason"], l["gpu"]) for l, _ in
                   page.samples("podgpu_exporter_field_unavailable_info")]
        assert ("DCGM_FI_DEV_POWER_USAGE", "not_supported", "1") in missing


def test_a_driver_of_2020_gives_what_it_has():
    with exporter_on("old-driver") as (node, exporter):
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_FB_USED"))
        assert page.samples("DCGM_FI_DEV_SM_CLOCK") and page.samples("DCGM_FI_DEV_POWER_USAGE")


# --- configuration ---

GOOD = "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).\n"


@pytest.mark.parametrize("text, says", [
    ("DCGM_FI_DEV_GPU_UTILL, gauge, help\n", ["counters.csv:1", "DCGM_FI_DEV_GPU_UTILL", "DCGM_FI_DEV_GPU_UTIL"]),
    (GOOD + "DCGM_FI_DEV_GPU_TEMP, gauge\n", ["counters.csv:2"]),
    (GOOD + "DCGM_FI_DEV_GPU_TEMP, gouge, help\n", ["counters.csv:2", "gouge"]),
    (GOOD + 'DCGM_FI_DEV_GPU_TEMP, "gauge", help\n', ["counters.csv:2"]),
])
def test_a_bad_counters_file_at_start_ends_with_status_1_and_one_clear_line(tmp_path, text, says):
    path = tmp_path / "counters.csv"
    path.write_text(text)
    status, log = run_to_end(["-a", "127.0.0.1:0", "-f", path])
    assert status == 1
    errors = [l for l in log.splitlines() if "level=ERROR" in l]
    assert len(errors) == 1 and all(s in errors[0] for s in says), log


@pytest.mark.parametrize("arguments, says", [
    (["--no-such-flag"], ["no-such-flag"]),
    (["--colectors=x"], ["colectors", "collectors"]),
    (["-d", "x:1"], ["x"]),
    (["-c", "abc"], ["abc"]),
    (["-f", "/nonexistent/counters.csv"], ["/nonexistent/counters.csv"]),
    (["--kubernetes-gpu-id-type=bad"], ["bad", "device-name"]),
    (["--hostname-label=x"], ["hostname-label", "x"]),
    (["-r", "http://gpu-node.example.com"], ["http://gpu-node.example.com", "unix:///PATH"]),
    (["--source=cuda"], ["cuda", "auto, nvml or dcgm"]),
    (["--web-config-file=/nonexistent.yml"], ["/nonexistent.yml"]),
    (["--admin-address=0.0.0.0:9402"], ["0.0.0.0:9402"]),
])
def test_bad_options_end_with_status_1_and_one_clear_line(arguments, says):
    status, log = run_to_end(["-a", "127.0.0.1:0", *([] if "-f" in arguments else ["-f", STOCK]), *arguments])
    assert status == 1
    errors = [l for l in log.splitlines() if "level=ERROR" in l]
    assert len(errors) == 1 and all(s in errors[0] for s in says), log


def test_a_port_in_use_ends_with_status_1_and_names_it():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, log = run_to_end(["-a", address, "-f", STOCK])
    assert status == 1
    assert address in log and "in use" in log.lower()


def test_a_bad_file_at_reload_keeps_the_old_configuration_serving(tmp_path):
    counters = tmp_path / "counters.csv"
    counters.write_text(GOOD)
    with exporter_on("demo", counters=counters) as (node, exporter):
        exporter.page_when(has_devices)
        counters.write_text("nonsense\n")
        exporter.process.send_signal(signal.SIGHUP)
        page = exporter.page_when(
            lambda p: p.value("podgpu_exporter_config_last_reload_success") == 0, what="the gauge")
        assert page.samples(UTIL)
        assert f"{counters}:1" in exporter.log
        counters.write_text(GOOD + "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n")
        exporter.process.send_signal(signal.SIGHUP)
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_GPU_TEMP"), what="the new family")
        assert page.value("podgpu_exporter_config_last_reload_success") == 1


def test_a_configmap_swap_is_taken_up_without_an_empty_page(tmp_path):
    for name, text in (("one", GOOD), ("two", GOOD + "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "counters.csv").write_text(text)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "counters.csv").symlink_to("..data/counters.csv")
    with exporter_on("demo", counters=tmp_path / "counters.csv") as (node, exporter):
        exporter.page_when(has_devices)
        (tmp_path / "..data_tmp").symlink_to("two")
        os.rename(tmp_path / "..data_tmp", tmp_path / "..data")
        deadline = time.monotonic() + 10 * SLOW
        while True:
            page = exporter.page()
            assert page.samples(UTIL), "an empty page in between"
            if page.samples("DCGM_FI_DEV_GPU_TEMP"):
                break
            assert time.monotonic() < deadline, exporter.log
            time.sleep(0.02)


def test_profiling_fields_survive_reloads():
    with exporter_on("h100x8") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 8)
        for _ in range(3):
            exporter.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert len(exporter.page().samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 8
        time.sleep(2.5)
        assert len(exporter.page().samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")) == 8


def test_a_storm_of_sighup_never_empties_the_page(tmp_path):
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for i in range(300):
            exporter.process.send_signal(signal.SIGHUP)
            if i % 10 == 0:
                assert len(exporter.page().samples(UTIL)) == 4
        times, _ = watch_samples(exporter, 4)
        assert len(times) >= 2, "samples go on"
        assert len(exporter.page().samples(UTIL)) == 4


# --- hostile peers and input ---

def test_a_driver_that_speaks_no_utf8_gives_a_valid_page():
    text = (ROOT / "sim" / "scenarios" / "demo.yaml").read_text()
    name = re.search(r"name: \"?(NVIDIA [^\"\n,}]+)", text)[1]
    hostile = re.sub(r"name: \"?" + re.escape(name) + "\"?", 'name: "\\\\xff\\\\x80' + name + '"', text, count=1)
    with exporter_on("demo", text=hostile) as (node, exporter):
        page = exporter.page_when(has_devices)
        names = {labels["modelName"] for labels, _ in page.samples(UTIL)}
        assert any(n.endswith(name) and n != name for n in names), names


def test_dripping_clients_are_shut_out_and_scrapes_go_on():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(has_devices)
        drippers = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(20)]
        begun = time.monotonic()
        try:
            alive = set(drippers)
            while alive and time.monotonic() - begun < 9 * SLOW:
                for s in list(alive):
                    try:
                        s.sendall(b"G")
                        s.settimeout(0.001)
                        if s.recv(1) == b"":
                            alive.discard(s)
                    except (TimeoutError, socket.timeout):
                        pass
                    except OSError:
                        alive.discard(s)
                assert exporter.get("/metrics", timeout=2)[0] == 200
                time.sleep(0.2)
            assert not alive, f"{len(alive)} drippers live on"
            assert time.monotonic() - begun > 4
        finally:
            for s in drippers:
                s.close()


def test_a_thousand_clients_connecting_do_not_keep_a_new_scraper_out():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(has_devices)
        clients = []
        try:
            for _ in range(1000):
                s = socket.socket()
                s.setblocking(False)
                s.connect_ex(("127.0.0.1", exporter.port))
                clients.append(s)
            begun = time.monotonic()
            assert exporter.get("/metrics", timeout=5)[0] == 200
            assert time.monotonic() - begun < 5 * SLOW
        finally:
            for s in clients:
                s.close()
        assert exporter.get("/metrics", timeout=5)[0] == 200


def test_a_hundred_concurrent_scrapes_all_get_the_whole_page():
    with exporter_on("h100x8") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 8)
        results = []

        def scrape():
            page = exporter.page()
            results.append(len(page.samples(UTIL)))
        threads = [threading.Thread(target=scrape) for _ in range(100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert results == [8] * 100

"""Counters files: names, types, labels, the shipped files, and following the file while running."""
import csv
import os
import re
import signal
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import BUILD, ROOT, SLOW, exporter_at, wait_until

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
UTIL_ROW = "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).\n"
TEMP_ROW = "DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).\n"


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo", freeze=5) as n:
        yield n


@pytest.fixture(scope="module")
def h100():
    import run_node
    with run_node.SimNode("h100x8", kubelet=False) as n:
        yield n


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "counters.csv"
    path.write_text(UTIL_ROW)
    return path


def rows_of(name):
    text = (ROOT / "etc" / name).read_text()
    return [[f.strip(" ") for f in row] for row in csv.reader(l for l in text.splitlines() if l and not l.startswith("#"))]


def devices(exporter):
    return exporter.page_when(lambda p: p.samples(UTIL) or p.samples("dcgm_gpu_utilization"), what="devices")


# --- The shipped files ---

@pytest.mark.parametrize("name", ["default-counters.csv", "dcp-metrics-included.csv", "1.x-compatibility-metrics.csv"])
def test_each_shipped_file_gives_its_families_under_its_names_types_and_help(h100, name):
    flags = ["-o"] if name.startswith("1.x") else []
    with exporter_at(h100, *flags, kubernetes=False, counters=ROOT / "etc" / name) as exporter:
        page = exporter.page_when(lambda p: any("gr_engine" in n.lower() for n in p.device_families()), what="all devices")
    rows = rows_of(name)
    wanted = {n: [f"# HELP {n} {text}", f"# TYPE {n} {kind}"] for n, kind, text in rows if kind != "label"}
    missing = {l["field"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")}
    assert set(page.device_families()) <= wanted.keys()
    assert wanted.keys() - set(page.device_families()) <= missing
    assert len(page.device_families()) >= 18
    for family in page.device_families():
        assert page.families[family][:2] == wanted[family]
        assert len(page.samples(family)) == 8
    labels, _ = page.samples(page.device_families()[0])[0]
    assert list(labels)[:5] == ["gpu", "uuid" if flags else "UUID", "pci_bus_id", "device", "modelName"]
    assert ("DCGM_FI_DRIVER_VERSION" in labels) == (not flags)


def test_families_come_by_field_id_and_doubles_with_six_places(h100):
    with exporter_at(h100, kubernetes=False) as exporter:
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_PROF_DRAM_ACTIVE"), what="profiling fields")
    order = [n for n, _, _ in rows_of("default-counters.csv")]
    assert page.device_families() == [n for n in order if n in page.families]
    assert page.order[:len(page.device_families())] == page.device_families()
    for family in page.device_families():
        doubles = family in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                             "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE")
        for _, value in page.samples(family):
            assert re.fullmatch(r"\d+\.\d{6}" if doubles else r"\d+", value), (family, value)


def test_every_commented_row_may_be_taken_in(node, tmp_path):
    text = re.sub(r"^# ?(DCGM_\w+ *,)", r"\1", (ROOT / "etc" / "default-counters.csv").read_text(), flags=re.M)
    path = tmp_path / "all.csv"
    path.write_text(text)
    with exporter_at(node, counters=path) as exporter:
        page = devices(exporter)
    assert page.samples("DCGM_FI_DEV_POWER_VIOLATION") and page.samples("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")
    labels, _ = page.samples(UTIL)[0]
    assert labels["DCGM_FI_DEV_BRAND"] and labels["DCGM_FI_DEV_VBIOS_VERSION"] == "94.02.75.00.01"
    assert labels["DCGM_FI_DEV_SERIAL"] == "1324121068497"
    assert {n for n in page.device_families() if n.startswith("DCGM_EXP_")} >= {
        "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT"}
    missing = {l["field"]: l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")}
    assert missing["DCGM_EXP_GPU_HEALTH_STATUS"] in ("needs_dcgm", "not_connected")  # the latter until it has answered
    list(text_string_to_metric_families(page.text))


# --- Rows ---

def test_names_types_and_help_are_echoed_as_the_file_has_them(node, file):
    file.write_text("# a comment\n\n" + UTIL_ROW +
                    'dcgm_gpu_temp,gauge,"hot, \\ ""very"" hot"\r\n'
                    "DCGM_FI_DEV_SM_CLOCK , counter ,\n"
                    "DCGM_FI_DEV_MEM_CLOCK,untold,x\n".replace("untold", "histogram") +
                    "DCGM_FI_DEV_FB_FREE,summary,y\n")
    with exporter_at(node, counters=file) as exporter:
        page = devices(exporter)
    assert page.families["dcgm_gpu_temp"][:2] == [r'# HELP dcgm_gpu_temp hot, \\ "very" hot',
                                                  "# TYPE dcgm_gpu_temp gauge"]
    assert page.families["DCGM_FI_DEV_SM_CLOCK"][:2] == ["# HELP DCGM_FI_DEV_SM_CLOCK ",
                                                         "# TYPE DCGM_FI_DEV_SM_CLOCK counter"]
    assert page.families["DCGM_FI_DEV_MEM_CLOCK"][1] == "# TYPE DCGM_FI_DEV_MEM_CLOCK histogram"
    assert page.families["DCGM_FI_DEV_FB_FREE"][1] == "# TYPE DCGM_FI_DEV_FB_FREE summary"
    assert page.device_families() == ["DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "dcgm_gpu_temp", UTIL,
                                      "DCGM_FI_DEV_FB_FREE"]


def test_label_rows_are_labels_of_every_sample_by_name_before_the_owner(node, file):
    file.write_text("DCGM_FI_NVML_VERSION,label,n\n" + UTIL_ROW + "DCGM_FI_DEV_SERIAL,label,s\n"
                    "DCGM_FI_DRIVER_VERSION,label,d\nDCGM_FI_DEV_POWER_USAGE,gauge,p\n"
                    "DCGM_FI_PROF_SM_ACTIVE,label,never there on this GPU\n")
    with exporter_at(node, counters=file) as exporter:
        page = devices(exporter)
    assert page.device_families() == ["DCGM_FI_DEV_POWER_USAGE", UTIL]
    for family in page.device_families():
        for labels, _ in page.samples(family):
            assert list(labels) == ["gpu", "UUID", "pci_bus_id", "device", "modelName", "hostname", "DCGM_FI_DEV_SERIAL",
                                    "DCGM_FI_DRIVER_VERSION", "DCGM_FI_NVML_VERSION", "container", "namespace", "pod"]
    assert page.samples(UTIL)[2][0]["DCGM_FI_DEV_SERIAL"] == "1324121068499"


def test_a_field_listed_twice_is_one_family(node, file):
    file.write_text("dcgm_gpu_utilization,gauge,first\n" + UTIL_ROW + "dcgm_gpu_utilization,gauge,third\n")
    with exporter_at(node, counters=file) as exporter:
        page = devices(exporter)
        assert page.device_families() == ["dcgm_gpu_utilization"]
        assert page.families["dcgm_gpu_utilization"][0].endswith(" first")
        assert len(page.samples("dcgm_gpu_utilization")) == 4
        assert page.value("podgpu_exporter_config_duplicate_rows") == 2


def test_text_fields_and_placeholders_make_no_family(node, file):
    file.write_text(UTIL_ROW + "DCGM_FI_DEV_NAME,gauge,text\nDCGM_FI_UNKNOWN,gauge,nothing\n"
                    "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT,gauge,of a switch\nDCGM_FI_DEV_CPU_TEMP_CURRENT,gauge,of a CPU\n")
    with exporter_at(node, counters=file) as exporter:
        page = exporter.page_when(lambda p: p.samples(UTIL) and 'reason="needs_dcgm"' in p.text, what="DCGM is not there")
    assert page.device_families() == [UTIL]
    missing = {l["field"]: l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")}
    assert missing["DCGM_FI_DEV_NAME"] == "not_numeric"
    assert missing["DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT"] == missing["DCGM_FI_DEV_CPU_TEMP_CURRENT"] == "needs_dcgm"


def test_a_file_without_rows_is_a_page_without_device_families(node, file):
    file.write_text("# nothing\n")
    with exporter_at(node, counters=file) as exporter:
        page = exporter.page_when(lambda p: p.samples("podgpu_gpu_up"), what="GPUs")
        assert page.device_families() == []
    with exporter_at(node, "--podgpu-families=none", counters=file) as exporter:
        wait_until(lambda: exporter.get("/readyz")[0] == 200, what="ready")
        status, headers, text = exporter.get("/metrics")
        assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert "podgpu_gpu_" not in text and "podgpu_exporter_build_info" in text


SLOW_ROW = "DCGM_FI_DEV_ECC_CURRENT,gauge,"


def test_fields_that_are_sampled_rarely_are_on_the_first_page_and_after_a_reload(node, file):
    file.write_text(SLOW_ROW + "before\n")
    with exporter_at(node, "-c", "30000", counters=file, kubernetes=False) as exporter:
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_ECC_CURRENT"), 3, "the first page")
        assert page.value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml") > time.time() - 10 * SLOW
        file.write_text(SLOW_ROW + "after\n")
        exporter.page_when(lambda p: "# HELP DCGM_FI_DEV_ECC_CURRENT after" in p.text, 3, "the new page")


def test_a_reload_to_and_from_an_empty_file_is_taken_at_once(node, file):
    with exporter_at(node, counters=file) as exporter:
        devices(exporter)
        file.write_text("# none\n")
        exporter.page_when(lambda p: not p.device_families(), 2, "no families")
        assert exporter.get("/readyz")[0] == 200
        file.write_text(TEMP_ROW)
        exporter.page_when(lambda p: len(p.samples(TEMP)) == 4, 2, "the new family")


# --- The file changes ---

def write_over(path, text):
    path.write_text(text)


def rename_over(path, text):
    (path.parent / "new").write_text(text)
    os.rename(path.parent / "new", path)


def remove_and_write(path, text):
    path.unlink()
    time.sleep(0.5)
    path.write_text(text)


@pytest.mark.parametrize("change", [write_over, rename_over, remove_and_write])
def test_a_changed_file_is_taken_up_without_a_signal_and_without_an_empty_page(node, file, change):
    with exporter_at(node, counters=file) as exporter:
        devices(exporter)
        change(file, UTIL_ROW + TEMP_ROW)
        deadline = time.monotonic() + 10 * SLOW
        while not (page := exporter.page()).samples(TEMP):
            assert len(page.samples(UTIL)) == 4
            assert time.monotonic() < deadline, exporter.log
            time.sleep(0.02)
        assert exporter.log.count('msg="configuration in force"') == 1
        assert page.value("podgpu_exporter_config_last_reload_success") == 1


def test_a_file_that_is_gone_changes_nothing(node, file):
    with exporter_at(node, counters=file) as exporter:
        devices(exporter)
        file.unlink()
        time.sleep(1)
        assert len(exporter.page().samples(UTIL)) == 4
        exporter.process.send_signal(signal.SIGHUP)
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_config_last_reload_success") == 0, what="told")
        assert len(page.samples(UTIL)) == 4
        assert str(file) in exporter.log


def test_a_row_that_goes_takes_its_family_along(node, file):
    file.write_text(UTIL_ROW + TEMP_ROW + "DCGM_FI_DRIVER_VERSION,label,d\n")
    with exporter_at(node, counters=file) as exporter:
        assert devices(exporter).samples(TEMP)
        file.write_text(UTIL_ROW)
        page = exporter.page_when(lambda p: not p.samples(TEMP), what="the family is gone")
        assert TEMP not in page.text
        assert "DCGM_FI_DRIVER_VERSION" not in page.samples(UTIL)[0][0]


def resources(pid):
    status = open(f"/proc/{pid}/status").read()
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
            "rss": int(re.search(r"VmRSS:\s+(\d+)", status)[1])}


def test_reload_after_reload_serves_parseable_pages_and_leaks_nothing(node, file):
    stock = (ROOT / "etc" / "default-counters.csv").read_text()
    file.write_text(stock)
    with exporter_at(node, counters=file) as exporter:
        devices(exporter)
        for turn in range(12):
            before = exporter.log.count('msg="configuration in force"')
            families = list(text_string_to_metric_families(exporter.page().text))
            assert len([f for f in families if f.name.startswith("DCGM_")]) >= 17
            rename_over(file, f"{stock}# {turn}\n")
            exporter.process.send_signal(signal.SIGHUP)
            wait_until(lambda: exporter.log.count('msg="configuration in force"') > before, 5, "the reload is done")
            if turn == 1:
                early = resources(exporter.pid)
        late = resources(exporter.pid)
        assert (late["descriptors"], late["threads"]) == (early["descriptors"], early["threads"])
        if BUILD.name not in ("asan", "tsan"):
            assert late["rss"] - early["rss"] < 256
        helper = exporter.helper_pid()
        assert exporter.page().value("podgpu_exporter_helper_starts_total", source="nvml") == 1
        assert exporter.stop()[1] < 2 * SLOW
        wait_until(lambda: not os.path.exists(f"/proc/{helper}"), 5, "the helper is gone")

"""nvidia-ml-py, which knows NVIDIA's ABI and nothing of ours, reads the library double and must get the truth."""
import json
import pathlib
import subprocess
import sys
import time

import pytest

from harness import BUILD, ROOT

import run_node
from node import NS

WORKER = pathlib.Path(__file__).with_name("nvml_worker.py")
VENV = ROOT / "build" / "venv" / "bin" / "python"
ALL_ONES = 0xFFFFFFFF


class Reader:
    """A process with nvidia-ml-py on the node."""

    def __init__(self, node, init=True):
        python = VENV if VENV.exists() else sys.executable
        self.process = subprocess.Popen([python, WORKER], env=node.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.node = node
        if init:
            assert self.ask("nvmlInit()") is None
            self.ask_any("globals().update(h=[nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())])")

    def ask_any(self, expression):
        self.process.stdin.write(" ".join(expression.split()) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, expression):
        answer = self.ask_any(expression)
        assert "value" in answer, (expression, answer)
        return answer["value"]

    def code(self, expression):
        """The nvmlReturn_t of a call that must fail."""
        answer = self.ask_any(expression)
        assert "code" in answer, (expression, answer)
        return answer["code"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


READ = set()  # symbols whose answers some test looked at


class On:
    """A node with its clock held and a reader on it."""

    def __init__(self, scenario, at=123.456, only_codes=False, **options):
        self.sim = run_node.SimNode(scenario, kubelet=False, freeze=at, **options)
        self.only_codes = only_codes

    def __enter__(self):
        node = self.sim.start()
        self.reader = Reader(node)
        return node, self.reader

    def __exit__(self, *_):
        if not self.only_codes:
            READ.update(self.sim.counts())
        self.reader.close()
        self.sim.stop()


# --- one signal, one call ---

CLOCKS = ["graphics_clock_mhz", "sm_clock_mhz", "memory_clock_mhz", "video_clock_mhz"]
MAX_CLOCKS = ["max_" + name for name in CLOCKS]
THRESHOLDS = ["shutdown_temperature_c", "slowdown_temperature_c", "max_memory_temperature_c", "max_temperature_c"]
POLICIES = {0: "violation_power_ns", 1: "violation_thermal_ns", 2: "violation_sync_boost_ns",
            3: "violation_board_limit_ns", 4: "violation_low_utilization_ns", 5: "violation_reliability_ns",
            10: "violation_app_clocks_ns", 11: "violation_base_clocks_ns"}

# (expression with {h}, signal)
SIGNALS = [
    *((f"nvmlDeviceGetClockInfo({{h}}, {i})", name) for i, name in enumerate(CLOCKS)),
    *((f"nvmlDeviceGetClock({{h}}, {i}, 0)", name) for i, name in enumerate(CLOCKS)),
    *((f"nvmlDeviceGetMaxClockInfo({{h}}, {i})", name) for i, name in enumerate(MAX_CLOCKS)),
    ("nvmlDeviceGetApplicationsClock({h}, 1)", "app_sm_clock_mhz"),
    ("nvmlDeviceGetDefaultApplicationsClock({h}, 2)", "app_memory_clock_mhz"),
    ("nvmlDeviceGetTemperature({h}, 0)", "temperature_c"),
    ("nvmlDeviceGetTemperatureV({h}, 0)", "temperature_c"),
    ("nvmlDeviceGetMarginTemperature({h})", "margin_temperature_c"),
    *((f"nvmlDeviceGetTemperatureThreshold({{h}}, {i})", name) for i, name in enumerate(THRESHOLDS)),
    ("nvmlDeviceGetPowerUsage({h})", "power_mw"),
    ("nvmlDeviceGetTotalEnergyConsumption({h})", "energy_mj"),
    ("nvmlDeviceGetPowerManagementLimit({h})", "power_limit_mw"),
    ("nvmlDeviceGetPowerManagementDefaultLimit({h})", "default_power_limit_mw"),
    ("nvmlDeviceGetEnforcedPowerLimit({h})", "enforced_power_limit_mw"),
    ("nvmlDeviceGetPowerManagementLimitConstraints({h})[0]", "min_power_limit_mw"),
    ("nvmlDeviceGetPowerManagementLimitConstraints({h})[1]", "max_power_limit_mw"),
    ("nvmlDeviceGetUtilizationRates({h}).gpu", "gpu_percent"),
    ("nvmlDeviceGetUtilizationRates({h}).memory", "memory_percent"),
    ("nvmlDeviceGetEncoderUtilization({h})[0]", "encoder_percent"),
    ("nvmlDeviceGetDecoderUtilization({h})[0]", "decoder_percent"),
    ("nvmlDeviceGetJpgUtilization({h})[0]", "jpeg_percent"),
    ("nvmlDeviceGetOfaUtilization({h})[0]", "ofa_percent"),
    ("nvmlDeviceGetPerformanceState({h})", "pstate"),
    ("nvmlDeviceGetPowerState({h})", "pstate"),
    ("nvmlDeviceGetCurrentClocksEventReasons({h})", "clocks_event_reasons"),
    ("nvmlDeviceGetCurrentClocksThrottleReasons({h})", "clocks_event_reasons"),
    ("nvmlDeviceGetBAR1MemoryInfo({h}).bar1Total", "bar1_total_bytes"),
    ("nvmlDeviceGetBAR1MemoryInfo({h}).bar1Used", "bar1_used_bytes"),
    ("nvmlDeviceGetPcieReplayCounter({h})", "pcie_replays"),
    ("nvmlDeviceGetCurrPcieLinkGeneration({h})", "pcie_generation"),
    ("nvmlDeviceGetCurrPcieLinkWidth({h})", "pcie_width"),
    ("nvmlDeviceGetMaxPcieLinkGeneration({h})", "max_pcie_generation"),
    ("nvmlDeviceGetGpuMaxPcieLinkGeneration({h})", "max_pcie_generation"),
    ("nvmlDeviceGetMaxPcieLinkWidth({h})", "max_pcie_width"),
    ("nvmlDeviceGetEccMode({h})[0]", "ecc_mode"),
    ("nvmlDeviceGetEccMode({h})[1]", "ecc_pending"),
    ("nvmlDeviceGetTotalEccErrors({h}, 0, 0)", "ecc_sbe_volatile"),
    ("nvmlDeviceGetTotalEccErrors({h}, 1, 0)", "ecc_dbe_volatile"),
    ("nvmlDeviceGetTotalEccErrors({h}, 0, 1)", "ecc_sbe_aggregate"),
    ("nvmlDeviceGetTotalEccErrors({h}, 1, 1)", "ecc_dbe_aggregate"),
    ("nvmlDeviceGetMemoryErrorCounter({h}, 1, 1, 2)", "ecc_dbe_aggregate"),
    ("nvmlDeviceGetRetiredPagesPendingStatus({h})", "retired_pending"),
    ("len(nvmlDeviceGetRetiredPages({h}, 0))", "retired_sbe_pages"),
    ("len(nvmlDeviceGetRetiredPages_v2({h}, 1))", "retired_dbe_pages"),
    ("nvmlDeviceGetRemappedRows({h})[0]", "remapped_correctable_rows"),
    ("nvmlDeviceGetRemappedRows({h})[1]", "remapped_uncorrectable_rows"),
    ("nvmlDeviceGetRemappedRows({h})[2]", "remap_pending"),
    ("nvmlDeviceGetRemappedRows({h})[3]", "remap_failure"),
    ("nvmlDeviceGetRowRemapperHistogram({h}).max", "remap_banks_max"),
    ("nvmlDeviceGetRowRemapperHistogram({h}).none", "remap_banks_none"),
    *((f"nvmlDeviceGetViolationStatus({{h}}, {i}).violationTime", name) for i, name in POLICIES.items()),
    ("nvmlDeviceGetFanSpeed({h})", "fan_percent"),
    ("nvmlDeviceGetFanSpeed_v2({h}, 0)", "fan_percent"),
    ("nvmlDeviceGetFanSpeedRPM({h})", "fan_rpm"),
    ("nvmlDeviceGetPersistenceMode({h})", "persistence_mode"),
    ("nvmlDeviceGetComputeMode({h})", "compute_mode"),
    ("nvmlDeviceGetVirtualizationMode({h})", "virtualization_mode"),
    ("nvmlDeviceGetRepairStatus({h})[0]", "repair_pending"),
    ("nvmlDeviceGetNvLinkVersion({h}, 3)", "nvlink_version"),
    ("nvmlDeviceGetNvLinkErrorCounter({h}, 0, 0)", "nvlink_replay_errors"),
    ("nvmlDeviceGetNvLinkErrorCounter({h}, 0, 1)", "nvlink_recovery_errors"),
    ("nvmlDeviceGetNvLinkErrorCounter({h}, 0, 2)", "nvlink_crc_flit_errors"),
    ("nvmlDeviceGetNvLinkErrorCounter({h}, 0, 3)", "nvlink_crc_data_errors"),
]

# Values that no scenario has by itself, all different, so that two calls can't be mixed up.
RICH = {
    "fan_percent": "43", "fan_rpm": "3211", "ecc_sbe_volatile": "11", "ecc_dbe_volatile": "12", "ecc_sbe_aggregate": "13",
    "ecc_dbe_aggregate": "14", "retired_sbe_pages": "5", "retired_dbe_pages": "6", "retired_pending": "1",
    "remapped_correctable_rows": "21", "remapped_uncorrectable_rows": "22", "remap_pending": "1", "remap_failure": "1",
    "pcie_replays": "31", "clocks_event_reasons": "4", "pstate": "2", "nvlink_replay_errors": "41",
    "nvlink_recovery_errors": "42", "nvlink_crc_flit_errors": "43", "nvlink_crc_data_errors": "44",
    "repair_pending": "1", "encoder_percent": "17*load", "ofa_percent": "9*load", "violation_thermal_ns": "55000000000",
    "violation_board_limit_ns": "77", "remap_banks_none": "3", "compute_mode": "3", "pcie_correctable_errors": "19",
    "slowdown_hw_thermal_ns": "271828182845", "recovery_action": "2", "sram_threshold_exceeded": "1",
}
RICH_TEXT = f"""
node: rich
driver: {{version: 610.10, cuda: 13030}}
models: models.yaml
gpus:
  - model: h100
    uuid: GPU-00000000-1111-2222-3333-444444444444
    bus_id: "00000001:AB:00.0"
    serial: "0001"
    fans: 2
    load: "square:on=1s,off=370ms,high=0.83,low=0.11"
    signals: {{{", ".join(f"{k}: {v}" for k, v in RICH.items())}}}
"""


@pytest.fixture(scope="module")
def rich(every_exported_function_was_read):
    with On("rich", text=RICH_TEXT) as both:
        yield both


@pytest.mark.parametrize("at", [0, 0.95, 1.2, 77.77, 100000.123])
def test_every_signal_reads_as_its_truth(rich, at):
    node, reader = rich
    node.freeze(at)
    for expression, signal in SIGNALS:
        want = node.node.truth(0, signal)
        assert want is not None, signal
        assert reader.ask(expression.format(h="h[0]")) == want, (expression, signal)


@pytest.mark.parametrize("scenario", ["post", "timeslice", "h100x8"])
def test_what_a_board_lacks_is_refused_with_its_code(scenario):
    with On(scenario) as (node, reader):
        newer = 0
        for expression, signal in SIGNALS:
            want, code = node.node.truth(0, signal), node.node.truth_code(0, signal)
            answer = reader.ask_any(expression.format(h="h[0]"))
            if answer.get("code") == 13 and "FanSpeed" not in expression:
                newer += 1
            elif "FanSpeed" in expression or ("NvLink" in expression and scenario != "h100x8"):
                assert answer in ({"code": 3}, {"code": 13})
            elif code == 0:
                assert answer == {"value": want}, (expression, signal)
            else:
                assert answer == {"code": code}, (expression, signal)
        assert newer == {"post": 7, "timeslice": 3, "h100x8": 1}[scenario]


# --- structs and lists ---

def test_who_the_gpu_is(rich):
    node, reader = rich
    ask = reader.ask
    assert ask("nvmlSystemGetDriverVersion()") == "610.10"
    assert ask("nvmlSystemGetNVMLVersion()") == "12.610.10"
    assert ask("nvmlSystemGetCudaDriverVersion()") == ask("nvmlSystemGetCudaDriverVersion_v2()") == 13030
    assert ask("nvmlSystemGetDriverBranch().branch") == "r610_00"
    assert ask("nvmlDeviceGetCount()") == 1
    assert ask("nvmlDeviceGetUUID(h[0])") == node.node.uuid(0) == "GPU-00000000-1111-2222-3333-444444444444"
    assert ask("nvmlDeviceGetName(h[0])") == "NVIDIA H100 80GB HBM3"
    assert ask("nvmlDeviceGetSerial(h[0])") == "0001"
    assert ask("nvmlDeviceGetBoardPartNumber(h[0])") == "692-2G520-0200-000"
    assert ask("nvmlDeviceGetVbiosVersion(h[0])") == "96.00.89.00.01"
    assert ask("nvmlDeviceGetInforomImageVersion(h[0])") == "G520.0200.00.05"
    assert ask("nvmlDeviceGetInforomVersion(h[0], 0)") == "2.1"
    assert ask("nvmlDeviceGetInforomVersion(h[0], 1)") == "7.16"
    assert ask("nvmlDeviceValidateInforom(h[0])") is None
    assert [ask(f"nvmlDeviceGet{what}(h[0])") for what in
            ("Index", "MinorNumber", "ModuleId", "Brand", "Architecture", "NumFans", "NumaNodeId", "MultiGpuBoard",
             "DisplayMode", "DisplayActive", "NumGpuCores", "MemoryBusWidth", "BoardId")] == \
        [0, 0, 1, 14, 9, 2, 0, 0, 0, 0, 132 * 128, 384, 0xAB00]
    assert ask("nvmlDeviceGetCudaComputeCapability(h[0])") == [9, 0]
    assert ask("nvmlDeviceGetCpuAffinity(h[0], 2)") == [0xFFFF, 0]
    pci = ask("nvmlDeviceGetPciInfo(h[0])")
    assert pci == {"busIdLegacy": "0001:AB:00.0", "busId": "00000001:AB:00.0", "domain": 1, "bus": 0xAB, "device": 0,
                   "pciDeviceId": 0x233010DE, "pciSubSystemId": 381227230}
    more = ask("(lambda i: (nvmlDeviceGetPciInfoExt(h[0], c.byref(i)), i)[1])(nvmlPciInfoExt_v1_t(version=nvmlPciInfoExt_v1))")
    assert (more["domain"], more["bus"], more["busId"], more["baseClass"]) == (1, 0xAB, "00000001:AB:00.0", 3)
    assert ask("nvmlErrorString(15)") == "GPU is lost"
    assert ask("nvmlDeviceGetSupportedClocksEventReasons(h[0])") == 0x1FF
    assert ask("nvmlDeviceGetSupportedClocksThrottleReasons(h[0])") == 0x1FF
    assert ask("nvmlDeviceGetPowerManagementMode(h[0])") == 1


@pytest.mark.parametrize("call", [
    "nvmlDeviceGetHandleByUUID('GPU-00000000-1111-2222-3333-444444444444')",
    "nvmlDeviceGetHandleByUUIDV(b'GPU-00000000-1111-2222-3333-444444444444', 1)",
    "nvmlDeviceGetHandleByPciBusId('00000001:ab:00.0')", "nvmlDeviceGetHandleByPciBusId('0001:AB:00.0')",
    "nvmlDeviceGetHandleBySerial('0001')",
])
def test_every_way_to_a_gpu_gives_the_same_handle(rich, call):
    assert rich[1].ask(f"c.cast({call}, c.c_void_p).value == c.cast(h[0], c.c_void_p).value")


def test_memory_in_both_generations():
    with On("h100x8") as (node, reader):
        total, reserved, used, free = node.node.memory(0)
        assert reserved > 0 and used == (70000 + 4) << 20
        v1 = reader.ask("nvmlDeviceGetMemoryInfo(h[0])")
        assert v1 == {"total": total, "free": free, "used": used + reserved}
        v2 = reader.ask("nvmlDeviceGetMemoryInfo(h[0], nvmlMemory_v2)")
        assert v2 == {"version": 0x2000028, "total": total, "reserved": reserved, "free": free, "used": used}


def test_process_lists_in_all_generations():
    with On("timeslice") as (node, reader):
        want = {p["pid"]: p["memory_bytes"] for p in node.node.processes() if p["type"] == 1}
        assert sorted(want) == [6101, 6102, 6103]
        for version in ("_v2", "_v3"):
            rows = reader.ask(f"nvmlDeviceGetComputeRunningProcesses{version}(h[0])")
            assert {r["pid"]: r["usedGpuMemory"] for r in rows} == want
            assert {(r["gpuInstanceId"], r["computeInstanceId"]) for r in rows} == {(ALL_ONES, ALL_ONES)}
        for version in ("_v2", "_v3"):
            rows = reader.ask(f"nvmlDeviceGetGraphicsRunningProcesses{version}(h[0])")
            assert [(r["pid"], r["usedGpuMemory"]) for r in rows] == [(6999, 100 << 20)]
        assert reader.ask("nvmlDeviceGetMPSComputeRunningProcesses_v2(h[0])") == []
        assert reader.ask("nvmlDeviceGetMPSComputeRunningProcesses(h[0])") == []
        rows = reader.ask("nvmlDeviceGetRunningProcessDetailList(h[0], nvmlProcessDetailList_v1, 0)")
        assert {r["pid"]: r["usedGpuMemory"] for r in rows} == want
        assert reader.ask("nvmlSystemGetProcessName(6999)") == "Xorg"
        # 16-byte rows of the first generation
        reader.ask("globals().update(Row=type('Row', (c.Structure,), {'_fields_': [('pid', c.c_uint), "
                   "('usedGpuMemory', c.c_ulonglong)]}))")
        for kind, pids in (("Compute", sorted(want)), ("Graphics", [6999]), ("MPSCompute", [])):
            code, rows = reader.ask(
                f"(lambda n, rows: [raw('nvmlDeviceGet{kind}RunningProcesses', h[0], c.byref(n), rows), "
                "rows[:n.value]])(c.c_uint(9), (Row * 9)())")
            assert code == 0 and sorted(r["pid"] for r in rows) == pids


def test_clients_of_mps_have_a_list_of_their_own():
    with On("mps") as (node, reader):
        assert [p["pid"] for p in reader.ask("nvmlDeviceGetComputeRunningProcesses_v3(h[0])")] == [8100]
        rows = reader.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3(h[0])")
        assert {r["pid"]: r["usedGpuMemory"] >> 20 for r in rows} == {8101: 6000, 8102: 4000}
        assert reader.ask("nvmlDeviceGetUtilizationRates(h[0]).gpu") == 80
        rows = reader.ask("nvmlDeviceGetProcessUtilization(h[0], 0)")
        assert sorted({(r["pid"], r["smUtil"]) for r in rows}) == [(8101, 60), (8102, 50)]


def test_where_mps_hides_its_clients_its_server_stands_for_them():
    with On("mps", at=10) as (node, reader):
        node.set("driver.mps_hidden", 1)
        assert reader.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3(h[0])") == []
        rows = reader.ask("nvmlDeviceGetComputeRunningProcesses_v3(h[0])")
        assert [(r["pid"], r["usedGpuMemory"] >> 20) for r in rows] == [(8100, 10030)]
        rows = reader.ask("nvmlDeviceGetProcessUtilization(h[0], 0)")
        assert len(rows) == 30 and {(r["pid"], r["smUtil"]) for r in rows} == {(8100, 100)}  # 0.6 and 0.5 at a time


def test_the_clock_runs_at_the_rate_it_was_given():
    with run_node.SimNode("demo", rate=100, kubelet=False) as node:
        real, scenario = time.monotonic(), node.node.now()
        node.wait_until(lambda: node.node.now() - scenario > 20 * NS)
        assert (node.node.now() - scenario) / NS == pytest.approx(100 * (time.monotonic() - real), rel=0.3)


def test_a_short_list_gets_the_size_it_needs():
    with On("timeslice") as (_, reader):
        for symbol, have in (("nvmlDeviceGetComputeRunningProcesses_v3", 3), ("nvmlDeviceGetGraphicsRunningProcesses_v3", 1)):
            assert reader.ask(f"(lambda n: [raw('{symbol}', h[0], c.byref(n), None), n.value])(c.c_uint(0))") == [7, have]
        assert reader.ask("(lambda n, b: [raw('nvmlDeviceGetComputeRunningProcesses_v3', h[0], c.byref(n), b), n.value])"
                          "(c.c_uint(2), (c_nvmlProcessInfo_v3_t * 2)())") == [7, 3]


def test_a_process_has_a_share_of_each_window_since_the_last_seen_one():
    with On("timeslice", at=25.5) as (node, reader):
        processes = [6101, 6102, 6103, 6999]

        def share(pid, end):
            return node.node.process_busy_us(pid, (end - 1) * NS, end * NS) // 10000
        assert [share(pid, 25) for pid in processes] == [50, 20, 2, 5]
        rows = reader.ask("nvmlDeviceGetProcessUtilization(h[0], 0)")
        stamp = rows[-1]["timeStamp"]
        ends = {stamp - back * 1000000: 25 - back for back in range(5)}
        assert [r["timeStamp"] for r in rows] == sorted(r["timeStamp"] for r in rows)
        assert {(r["pid"], ends[r["timeStamp"]], r["smUtil"]) for r in rows} == \
            {(pid, end, share(pid, end)) for pid in processes for end in range(21, 26)}
        assert {r["pid"]: r["decUtil"] for r in rows[-4:]} == {6101: 10, 6102: 4, 6103: 0, 6999: 1}
        assert reader.code(f"nvmlDeviceGetProcessUtilization(h[0], {stamp})") == 6
        node.advance(2)
        rows = reader.ask(f"nvmlDeviceGetProcessUtilization(h[0], {stamp})")
        assert [r["timeStamp"] - stamp for r in rows] == [1000000] * 4 + [2000000] * 4
    with On("h100x8", at=10) as (_, reader):
        rows = reader.ask("nvmlDeviceGetProcessesUtilizationInfo(h[4], 0)")
        assert [(r["pid"], r["smUtil"], r["memUtil"], r["jpgUtil"]) for r in rows] == [(4204, 25, 13, 0)] * 50


def test_who_was_idle_has_no_share_and_nobody_is_not_found():
    with On("timeslice", at=25.5) as (node, reader):
        for pid in (6102, 6103, 6999):
            node.set(f"process.{pid}.load", 0)
        node.advance(10)
        assert {r["pid"] for r in reader.ask("nvmlDeviceGetProcessUtilization(h[0], 0)")} == {6101}
        node.set("process.6101.load", "0.009")  # cut to 0
        node.advance(10)
        assert reader.code("nvmlDeviceGetProcessUtilization(h[0], 0)") == 6


def test_shares_come_late_or_not_at_all_when_the_scenario_says_so():
    with On("timeslice", at=25.5) as (node, reader):
        def newest():
            return reader.ask("nvmlDeviceGetProcessUtilization(h[0], 0)")[-1]["timeStamp"]
        punctual = newest()
        node.set("driver.process_lag_ms", 500)
        assert newest() == punctual
        node.set("driver.process_lag_ms", 501)
        assert newest() == punctual - 1000000
        node.set("driver.process_utilization", 0)
        assert reader.code("nvmlDeviceGetProcessUtilization(h[0], 0)") == 6
        node.set("driver.process_utilization", "error4")
        assert reader.code("nvmlDeviceGetProcessUtilization(h[0], 0)") == 4


def test_who_is_in_another_pid_namespace_sees_no_process():
    with On("timeslice") as (node, reader):
        node.set("driver.pids_hidden", 1)
        assert reader.ask("nvmlDeviceGetComputeRunningProcesses_v3(h[0])") == []
        assert reader.ask("nvmlDeviceGetGraphicsRunningProcesses_v3(h[0])") == []
        assert reader.code("nvmlDeviceGetProcessUtilization(h[0], 0)") == 6
        assert reader.ask("nvmlDeviceGetMemoryInfo(h[0]).used") > 6000 << 20


def test_samples_come_late_and_every_kth_is_lost_when_the_scenario_says_so():
    with On("timeslice", at=200.25) as (node, reader):
        def stamps():
            return [s["timeStamp"] // 1000000 for s in reader.ask("nvmlDeviceGetSamples(h[0], 1, 0)")[1]]
        whole = stamps()
        node.set("gpu0.samples_lag_ms", 1250)
        assert stamps() == [s - 1 for s in whole]
        node.set("gpu0.samples_lag_ms", 1251)
        assert stamps() == [s - 2 for s in whole]
        node.set("gpu0.samples_lag_ms", 0)
        node.set("gpu0.samples_lost", 4)  # 200, 196, ...
        assert stamps() == [s for s in whole if (whole[-1] - s) % 4 != 0] and len(stamps()) == 90


def test_the_drivers_samples_are_the_means_of_its_windows():
    with On("timeslice", at=200.25) as (node, reader):
        kind, samples = reader.ask("nvmlDeviceGetSamples(h[0], 1, 0)")
        assert kind == 1 and len(samples) == 120
        stamps = [s["timeStamp"] for s in samples]
        assert [b - a for a, b in zip(stamps, stamps[1:])] == [1000000] * 119
        for back, sample in enumerate(reversed(samples)):
            end = (200 - back) * NS
            assert sample["sampleValue"]["uiVal"] == int(node.node.mean(0, "gpu_percent", end - NS, end) + 1e-9)
        assert samples[-1]["sampleValue"]["uiVal"] == reader.ask("nvmlDeviceGetUtilizationRates(h[0]).gpu")
        _, newer = reader.ask(f"nvmlDeviceGetSamples(h[0], 0, {stamps[-3]})")
        assert [s["timeStamp"] for s in newer] == stamps[-2:]
        assert reader.code(f"nvmlDeviceGetSamples(h[0], 1, {stamps[-1]})") == 6
        assert reader.code("nvmlDeviceGetSamples(h[0], 7, 0)") == 3
        assert reader.code("nvmlDeviceGetSamples(h[0], 10, 0)") == 2


def test_pcie_throughput_is_the_growth_in_20_ms(rich):
    node, reader = rich
    node.freeze(50.5)
    t = int(50.5 * NS)
    for counter, signal in ((0, "pcie_tx_bytes"), (1, "pcie_rx_bytes")):
        want = node.node.mean(0, signal, t - 20_000_000, t) / 1000
        assert reader.ask(f"nvmlDeviceGetPcieThroughput(h[0], {counter})") == pytest.approx(want, abs=1)


def test_remapped_rows_of_the_second_form_and_sram_status(rich):
    ask = rich[1].ask
    rows = ask("(lambda i: (nvmlDeviceGetRemappedRows_v2(h[0], c.byref(i)), i)[1])(c_nvmlRemappedRowsInfo_v2_t())")
    assert (rows["corrActiveRemaps"], rows["uncActiveRemaps"], rows["bPending"], rows["bfailureOccurred"]) == (21, 22, 1, 1)
    status = ask("(lambda i: (nvmlDeviceGetSramEccErrorStatus(h[0], c.byref(i)), i)[1])(c_nvmlEccSramErrorStatus_v1_t())")
    assert status["bThresholdExceeded"] == 1
    assert ask("nvmlDeviceGetMemoryErrorCounter(h[0], 1, 1, 3)") == 0


def test_licensable_features():
    with On("post") as (node, reader):
        answer = reader.ask("nvmlDeviceGetGridLicensableFeatures_v4(h[0])")
        assert (answer["isGridLicenseSupported"], answer["licensableFeaturesCount"]) == (0, 0)
        node.set("gpu0.vgpu_license_supported", 1)
        node.set("gpu0.vgpu_license_state", 1)
        node.advance(1)
        answer = reader.ask("nvmlDeviceGetGridLicensableFeatures(h[0])")
        assert (answer["isGridLicenseSupported"], answer["licensableFeaturesCount"]) == (1, 1)
        feature = answer["gridLicensableFeatures"][0]
        assert (feature["featureCode"], feature["featureState"], feature["featureEnabled"]) == (1, 1, 1)
        # the third form has no expiry: 280 bytes a feature
        assert reader.ask("(lambda b: [raw('nvmlDeviceGetGridLicensableFeatures_v3', h[0], b), "
                          "int.from_bytes(b[:4], 'little'), int.from_bytes(b[4:8], 'little'), "
                          "int.from_bytes(b[8:12], 'little'), set(b[812:]) == {7}])"
                          "((c.c_ubyte * 900)(*[7] * 900))") == [0, 1, 1, 1, True]


# --- field values ---

FIELDS = {1: "ecc_mode", 2: "ecc_pending", 3: "ecc_sbe_volatile", 4: "ecc_dbe_volatile", 5: "ecc_sbe_aggregate",
          6: "ecc_dbe_aggregate", 29: "retired_sbe_pages", 30: "retired_dbe_pages", 31: "retired_pending",
          38: "nvlink_crc_flit_errors", 45: "nvlink_crc_data_errors", 52: "nvlink_replay_errors",
          59: "nvlink_recovery_errors", 74: "violation_power_ns", 75: "violation_thermal_ns",
          77: "violation_board_limit_ns", 82: "memory_temperature_c", 83: "energy_mj", 90: "nvlink_speed_mbps",
          94: "pcie_replays", 142: "remapped_correctable_rows", 143: "remapped_uncorrectable_rows",
          144: "remap_pending", 145: "remap_failure", 173: "pcie_correctable_errors", 185: "power_mw",
          187: "min_power_limit_mw", 188: "max_power_limit_mw", 189: "default_power_limit_mw",
          190: "enforced_power_limit_mw", 191: "energy_mj", 192: "power_limit_mw", 193: "shutdown_tlimit_c",
          194: "slowdown_tlimit_c", 196: "max_tlimit_c", 197: "pcie_tx_bytes", 198: "pcie_rx_bytes",
          230: "recovery_action", 270: "slowdown_hw_thermal_ns"}
MEMBER = {1: "uiVal", 3: "ullVal", 5: "siVal"}


def test_field_values_read_as_their_truth(rich):
    node, reader = rich
    node.freeze(33.3)
    rows = reader.ask(f"nvmlDeviceGetFieldValues(h[0], {list(FIELDS)})")
    wall = node.node.now() // 1000
    for row in rows:
        assert row["nvmlReturn"] == 0, row["fieldId"]
        assert row["value"][MEMBER[row["valueType"]]] == node.node.truth(0, FIELDS[row["fieldId"]]), row["fieldId"]
    assert len({row["timestamp"] for row in rows}) == 1 and rows[0]["timestamp"] > wall


def test_a_links_share_and_the_aggregate(rich):
    node, reader = rich
    node.freeze(33.3)
    for field, signal in ((138, "nvlink_tx_kib"), (139, "nvlink_rx_kib")):
        want = node.node.truth(0, signal)
        rows = reader.ask(f"nvmlDeviceGetFieldValues(h[0], [({field}, 0xffffffff)] + [({field}, l) for l in range(18)])")
        values = [row["value"]["ullVal"] for row in rows]
        assert values[0] == want == sum(values[1:])
        assert reader.ask(f"nvmlDeviceGetFieldValues(h[0], [({field}, 18)])[0].nvmlReturn") == 2
    assert reader.ask("nvmlDeviceGetFieldValues(h[0], [91])[0].value.uiVal") == 18
    node.set("gpu0.nvlink_links_down", 2)
    states = reader.ask("[v.value.uiVal for v in nvmlDeviceGetFieldValues(h[0], [(165, l) for l in range(18)])]")
    assert states == [0, 0] + [1] * 16
    assert [reader.ask(f"nvmlDeviceGetNvLinkState(h[0], {l})") for l in (0, 1, 2, 17)] == [0, 0, 1, 1]
    node.set("gpu0.nvlink_links_down", 0)


def test_instant_power_and_scopes(rich):
    node, reader = rich
    node.freeze(1.1)  # off, while the mean of the last second is mostly on
    instant, average = reader.ask("[v.value.uiVal for v in nvmlDeviceGetFieldValues(h[0], [(186, 0), (185, 0)])]")
    assert instant == 71250 + int(618750 * 0.11) and average == node.node.truth(0, "power_mw") > 2 * instant
    assert reader.ask("[v.nvmlReturn for v in nvmlDeviceGetFieldValues(h[0], [(186, 1), (185, 1), (185, 7)])]") == [3, 3, 2]


def test_a_field_newer_than_the_driver_is_refused_left_alone_or_fails_the_call():
    ask_three = ("(lambda v: [raw('nvmlDeviceGetFieldValues', h[0], 2, v), v[0].nvmlReturn, v[0].value.uiVal, "
                 "v[1].nvmlReturn, v[1].valueType])((c_nvmlFieldValue_t * 2)(*[c_nvmlFieldValue_t(fieldId=f, "
                 "nvmlReturn=77, valueType=55) for f in (94, 186)]))")
    with On("post") as (node, reader):
        assert reader.ask(ask_three) == [0, 0, 0, 3, 55]
        node.set("driver.unknown_fields", 1)
        assert reader.ask(ask_three) == [0, 0, 0, 77, 55]
        node.set("driver.unknown_fields", 2)
        assert reader.ask(ask_three) == [2, 77, 0, 77, 55]


def test_the_posts_fields():
    with On("post") as (_, reader):
        rows = reader.ask("nvmlDeviceGetFieldValues(h[0], [82, (138, 0xffffffff), (139, 0xffffffff), 142, 143, 145, 83])")
        assert [(r["nvmlReturn"], r["value"]["ullVal"]) for r in rows] == \
            [(3, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 15782796862)]


# --- NVLink, fabric ---

def test_links_and_fabric(rich):
    ask = rich[1].ask
    assert ask("nvmlDeviceGetNvLinkRemoteDeviceType(h[0], 1)") == 2
    assert ask("nvmlDeviceGetNvLinkRemotePciInfo(h[0], 1)")["busId"] == "00000000:06:00.0"
    assert ask("nvmlDeviceGetNvLinkCapability(h[0], 0, 0)") == 1
    fabric = ask("(lambda i: (nvmlDeviceGetGpuFabricInfoV(h[0], c.byref(i)), i)[1])(c_nvmlGpuFabricInfoV_t())")
    assert (fabric["state"], fabric["cliqueId"], fabric["status"]) == (3, 1, 0)
    fabric = ask("(lambda i: (nvmlDeviceGetGpuFabricInfo(h[0], c.byref(i)), i)[1])(c_nvmlGpuFabricInfo_t())")
    assert (fabric["state"], fabric["cliqueId"]) == (3, 1)
    assert rich[1].code("nvmlDeviceGetNvLinkState(h[0], 18)") == 2


# --- GPM ---

GPM = {1: None, 2: "gpm_sm_percent", 3: "gpm_sm_occupancy_percent", 4: "gpm_integer_percent", 5: "gpm_tensor_percent",
       6: "gpm_dfma_percent", 7: "gpm_hmma_percent", 8: "gpm_dmma_percent", 9: "gpm_imma_percent",
       10: "gpm_dram_percent", 11: "gpm_fp64_percent", 12: "gpm_fp32_percent", 13: "gpm_fp16_percent",
       20: "pcie_tx_bytes", 21: "pcie_rx_bytes", 30: "decoder_percent", 40: "jpeg_percent", 50: "ofa_percent",
       60: "nvlink_rx_kib", 61: "nvlink_tx_kib"}
GPM_SCALE = {20: 1 << 20, 21: 1 << 20, 60: 1 << 10, 61: 1 << 10}


def gpm_define(reader):
    reader.ask("exec(\"def gpm(a, b, ids):\\n g = c_nvmlGpmMetricsGet_t()\\n g.version = 1\\n g.numMetrics = len(ids)\\n"
               " g.sample1 = a\\n g.sample2 = b\\n for i, m in enumerate(ids): g.metrics[i].metricId = m\\n"
               " nvmlGpmMetricsGet(g)\\n return [[g.metrics[i].nvmlReturn, g.metrics[i].value] for i in range(len(ids))]"
               "\", globals())")
    reader.ask("keep.update(a=nvmlGpmSampleAlloc(), b=nvmlGpmSampleAlloc())")


def test_gpm_metrics_are_exact_means_between_two_samples(rich):
    node, reader = rich
    gpm_define(reader)
    assert reader.ask("nvmlGpmQueryDeviceSupport(h[0]).isSupportedDevice") == 1
    assert reader.ask("nvmlGpmQueryIfStreamingEnabled(h[0])") == 0
    for start, end in ((10, 10.1), (10.05, 11.3), (20, 50)):
        node.freeze(start)
        reader.ask("nvmlGpmSampleGet(h[0], keep['a'])")
        node.freeze(end)
        reader.ask("nvmlGpmSampleGet(h[0], keep['b'])")
        rows = reader.ask(f"gpm(keep['a'], keep['b'], {list(GPM)})")
        a, b = int(start * NS), int(end * NS)
        for (metric, signal), (code, value) in zip(GPM.items(), rows):
            want = node.node.busy_us(0, a, b) * 1e5 / (b - a) if signal is None else \
                node.node.mean(0, signal, a, b) / GPM_SCALE.get(metric, 1)
            assert code == 0 and value == pytest.approx(want, rel=1e-6), metric
    assert reader.code("gpm(keep['b'], keep['a'], [1])") == 21
    assert reader.ask("gpm(keep['a'], keep['b'], [1, 100, 0, 9999])")[1:] == [[3, None], [2, None], [2, None]]
    reader.ask("[nvmlGpmSampleFree(keep.pop(k)) for k in ('a', 'b')]")


def test_gpm_of_instances_and_boards_without_it():
    with On("mig", at=10) as (node, reader):
        gpm_define(reader)
        reader.ask("nvmlGpmMigSampleGet(h[0], 3, keep['a'])")
        node.freeze(25)
        reader.ask("nvmlGpmMigSampleGet(h[0], 3, keep['b'])")
        (busy_code, busy), (sm_code, sm), (pcie_code, _) = reader.ask("gpm(keep['a'], keep['b'], [1, 2, 20])")
        assert (busy_code, sm_code, pcie_code) == (0, 0, 3)
        assert busy == pytest.approx(100 * 0.5 * 5 / 15) == node.node.busy_us(0, 10 * NS, 25 * NS, gi=3) / 150000
        assert sm == pytest.approx(node.node.mean(0, "gpm_sm_percent", 10 * NS, 25 * NS, gi=3))
        assert reader.code("nvmlGpmMigSampleGet(h[0], 99, keep['a'])") == 2
        assert reader.code("nvmlGpmMigSampleGet(h[1], 3, keep['a'])") == 3
        reader.ask("nvmlGpmSampleGet(nvmlDeviceGetMigDeviceHandleByIndex(h[0], 0), keep['a'])")
    with On("timeslice") as (_, reader):
        gpm_define(reader)
        assert reader.ask("nvmlGpmQueryDeviceSupport(h[0]).isSupportedDevice") == 0
        assert reader.code("nvmlGpmSampleGet(h[0], keep['a'])") == 3
    with On("post") as (_, reader):
        assert reader.code("nvmlGpmQueryDeviceSupport(h[0])") == 13


# --- MIG ---

def test_the_walk_over_mig_devices():
    with On("mig") as (node, reader):
        ask = reader.ask
        assert ask("nvmlDeviceGetMigMode(h[0])") == [1, 1] and ask("nvmlDeviceGetMigMode(h[1])") == [0, 0]
        assert ask("nvmlDeviceGetMaxMigDeviceCount(h[0])") == 7
        want = node.node.instances()
        assert [(x["gi"], x["ci"], x["profile"]) for x in want] == \
            [(1, 0, "3g.40gb"), (3, 0, "2g.20gb"), (3, 1, "2g.20gb"), (7, 0, "1g.10gb"), (8, 0, "1g.10gb")]
        ask("globals().update(m=[nvmlDeviceGetMigDeviceHandleByIndex(h[0], i) for i in range(5)])")
        assert [reader.code(f"nvmlDeviceGetMigDeviceHandleByIndex(h[0], {i})") for i in (5, 6, 7)] == [6, 6, 2]
        for i, x in enumerate(want):
            d = f"m[{i}]"
            assert ask(f"nvmlDeviceIsMigDeviceHandle({d})") == 1
            assert ask(f"nvmlDeviceGetGpuInstanceId({d})") == x["gi"]
            assert ask(f"nvmlDeviceGetComputeInstanceId({d})") == x["ci"]
            assert ask(f"nvmlDeviceGetUUID({d})") == x["uuid"]
            assert ask(f"nvmlDeviceGetIndex({d})") == i
            total, reserved, used, free = node.node.memory(0, instance=x["index"])
            assert ask(f"nvmlDeviceGetMemoryInfo({d})") == {"total": total, "free": free, "used": used}
            attributes = ask(f"nvmlDeviceGetAttributes_v2({d})")
            assert attributes["gpuInstanceSliceCount"] == x["slices"]
            assert attributes["memorySizeMB"] == x["memory_bytes"] >> 20
            assert ask(f"c.cast(nvmlDeviceGetDeviceHandleFromMigDeviceHandle({d}), c.c_void_p).value == "
                       "c.cast(h[0], c.c_void_p).value")
            assert ask(f"c.cast(nvmlDeviceGetHandleByUUID({x['uuid']!r}), c.c_void_p).value == "
                       f"c.cast({d}, c.c_void_p).value")
        assert ask("nvmlDeviceGetName(m[0])") == "NVIDIA H100 80GB HBM3 MIG 3g.40gb"
        assert ask("nvmlDeviceGetName(m[1])") == "NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb"
        rows = ask("nvmlDeviceGetComputeRunningProcesses_v3(m[1])")
        assert [(r["pid"], r["gpuInstanceId"], r["computeInstanceId"]) for r in rows] == [(5102, 3, 0)]
        rows = ask("nvmlDeviceGetComputeRunningProcesses_v3(h[0])")
        assert sorted((r["pid"], r["gpuInstanceId"]) for r in rows) == [(5101, 1), (5102, 3), (5103, 7)]
        gi = ask("nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(h[0], 3))")
        assert (gi["id"], gi["profileId"], gi["placement"]) == (3, 14, {"start": 4, "size": 2})
        profile = ask("nvmlDeviceGetGpuInstanceProfileInfo(h[0], 2)")
        assert (profile["sliceCount"], profile["name"], profile["memorySizeMB"]) == (3, "MIG 3g.40gb", 40960)
        profile = ask("nvmlDeviceGetGpuInstanceProfileInfo(h[0], 4, version=1)")
        assert (profile["sliceCount"], profile["instanceCount"]) == (7, 1)
        assert reader.code("nvmlDeviceGetGpuInstanceProfileInfo(h[0], 13)") == 2
        # 24 bytes before the second form
        assert ask("(lambda b: [raw('nvmlDeviceGetAttributes', m[0], b), int.from_bytes(b[:4], 'little'), "
                   "set(b[24:]) == {7}])((c.c_ubyte * 40)(*[7] * 40))") == [0, 54, True]


@pytest.mark.parametrize("call", ["nvmlDeviceGetUtilizationRates({h})", "nvmlDeviceGetDecoderUtilization({h})",
                                  "nvmlDeviceGetProcessUtilization({h}, 0)", "nvmlDeviceGetRemappedRows({h})",
                                  "nvmlDeviceGetSamples({h}, 1, 0)"])
def test_what_has_no_meaning_under_mig_is_refused(call):
    with On("mig") as (_, reader):
        assert reader.code(call.format(h="h[0]")) == 3
        assert reader.code(call.format(h="nvmlDeviceGetMigDeviceHandleByIndex(h[0], 0)")) in (2, 3)
        reader.ask(call.format(h="h[1]"))


A30 = """driver: {version: 550.90.07}
models: models.yaml
gpus: [{model: h100, uuid: GPU-a, bus_id: "00000000:01:00.0", total_slices: 4, mig_slots: 4, mig: "%s",
        signals: {memory_total_bytes: 24576MiB}}]
"""


@pytest.mark.parametrize("layout, want", [
    ("7g.80gb", [(0, 0, 8)]),
    ("3g.40gb,3g.40gb", [(9, 0, 4), (9, 4, 4)]),
    ("4g.40gb,2g.20gb,1g.10gb", [(5, 0, 4), (14, 4, 2), (19, 6, 1)]),
    ("1g.10gb+me,1g.20gb,1g.10gb,2g.20gb", [(20, 0, 1), (15, 2, 2), (19, 1, 1), (14, 4, 2)]),
    ("3g.40gb@4,1g.12gb@2#21", [(9, 4, 4), (21, 2, 1)]),
])
def test_instances_have_the_profile_ids_and_places_of_drivers(layout, want):
    with On("mig") as (node, reader):
        node.command(f"mig gpu=0 layout={layout}")
        infos = reader.ask(f"""[nvmlGpuInstanceGetInfo(nvmlDeviceGetGpuInstanceById(h[0], i))
                               for i in {[x["gi"] for x in node.node.instances()]}]""")
        got = [(i["profileId"], i["placement"]["start"], i["placement"]["size"]) for i in infos]
        assert got == want
        assert [(x["profile_id"], x["placement"]) for x in node.node.instances()] == [w[:2] for w in want]


def test_a_gpu_of_four_slices_numbers_its_profiles_otherwise():
    with On("a30", text=A30 % "2g.12gb,1g.6gb,1g.6gb") as (node, _):
        assert [(x["profile_id"], x["placement"]) for x in node.node.instances()] == [(5, 0), (14, 2), (14, 3)]


def test_gpu_instances_may_be_kept_from_who_has_no_rights():
    with On("mig") as (node, reader):
        node.fault("nvmlDeviceGetGpuInstanceById", "return=4")
        assert reader.code("nvmlDeviceGetGpuInstanceById(h[0], 3)") == 4


def test_a_handle_of_an_old_layout_is_not_found_and_the_new_one_is_there():
    with On("mig") as (node, reader):
        reader.ask("globals().update(m=[nvmlDeviceGetMigDeviceHandleByIndex(h[0], 0)])")
        old = reader.ask("nvmlDeviceGetUUID(m[0])")
        node.command("mig gpu=0 layout=7g.80gb")
        assert reader.code("nvmlDeviceGetUUID(m[0])") == 6
        assert reader.ask("nvmlDeviceGetUUID(nvmlDeviceGetMigDeviceHandleByIndex(h[0], 0))") != old
        assert reader.code("nvmlDeviceGetMigDeviceHandleByIndex(h[0], 1)") == 6
        with pytest.raises(Exception) as refused:
            node.command("mig gpu=0 layout=off")
        assert "in use" in str(refused.value)


# --- events ---

def test_events_are_per_set_in_order_and_only_after_registration():
    with On("mig") as (node, reader):
        node.xid(13)
        node.advance(1)
        reader.ask("keep.update(s=nvmlEventSetCreate(), t=nvmlEventSetCreate())")
        assert reader.ask("nvmlDeviceGetSupportedEventTypes(h[0])") & 0x108 == 0x108
        assert reader.code("nvmlDeviceRegisterEvents(h[0], 0x8 | 0x4000, keep['s'])") == 3
        reader.ask("nvmlDeviceRegisterEvents(h[0], 8, keep['s'])")
        reader.ask("nvmlDeviceRegisterEvents(h[0], 8 | 0x100, keep['t'])")
        assert reader.code("nvmlEventSetWait_v2(keep['s'], 0)") == 10
        node.advance(1)
        node.xid(31, gi=3, ci=0)
        node.xid(45, gpu=1)
        node.xid(63, only="kmsg")
        node.advance(1)
        node.command("mig gpu=0 layout=7g.80gb")
        node.xid(48)
        event = reader.ask("nvmlEventSetWait_v2(keep['s'], 1000)")
        assert (event["eventType"], event["eventData"], event["gpuInstanceId"], event["computeInstanceId"]) == (8, 31, 3, 0)
        event = reader.ask("nvmlEventSetWait_v2(keep['s'], 1000)")
        assert (event["eventData"], event["gpuInstanceId"]) == (48, ALL_ONES)
        assert reader.code("nvmlEventSetWait_v2(keep['s'], 20)") == 10
        assert [reader.ask("nvmlEventSetWait_v2(keep['t'], 0)")["eventType"] for _ in range(3)] == [8, 0x100, 8]
        node.xid(94)
        # the first form: 24 bytes
        assert reader.ask("(lambda b: [raw('nvmlEventSetWait', keep['t'], b, 0), int.from_bytes(b[16:24], 'little'), "
                          "set(b[24:]) == {7}])((c.c_ubyte * 32)(*[7] * 32))") == [0, 94, True]
        reader.ask("nvmlEventSetFree(keep.pop('s'))")
        assert reader.ask("raw('nvmlEventSetFree', None)") == 2


def test_an_event_ends_the_wait():
    with run_node.SimNode("lost", kubelet=False) as node:
        reader = Reader(node)
        try:
            reader.ask("keep.update(s=nvmlEventSetCreate())")
            reader.ask("[nvmlDeviceRegisterEvents(x, 8, keep['s']) for x in h]")
            # the scenario's own XID at 5 s, then the loss
            assert reader.ask("nvmlEventSetWait_v2(keep['s'], 20000)")["eventData"] == 79
            assert 5 * NS <= node.node.now() < 15 * NS
            assert reader.code("nvmlEventSetWait_v2(keep['s'], 20000)") == 15
        finally:
            reader.close()


# --- states of the driver and of GPUs ---

def test_a_lost_gpu_comes_back():
    with On("lost", at=6) as (node, reader):
        assert reader.code("nvmlDeviceGetHandleByIndex(1)") == 15
        node.freeze(11)
        assert reader.ask("nvmlDeviceGetPowerUsage(nvmlDeviceGetHandleByIndex(1))") > 0


def test_where_the_scenario_says_so_a_lost_gpu_is_lost_until_the_library_is_opened_again():
    text = run_node.scenario_path("lost").read_text().replace("cuda: 12020", "cuda: 12020, reinit_after_loss: 1")
    with On("lost", at=4, text=text) as (node, reader):
        assert reader.ask("nvmlDeviceGetPowerUsage(h[1])") > 0
        node.freeze(6)
        assert reader.code("nvmlDeviceGetPowerUsage(h[1])") == reader.code("nvmlDeviceGetUUID(h[1])") == 15
        assert reader.code("nvmlDeviceGetHandleByIndex(1)") == 15
        assert reader.ask("nvmlDeviceGetCount()") == 2
        assert reader.ask("nvmlDeviceGetPowerUsage(h[0])") > 0
        node.freeze(11)
        assert reader.code("nvmlDeviceGetPowerUsage(h[1])") == 15
        reader.ask("nvmlShutdown()")
        assert reader.code("nvmlDeviceGetCount()") == 1
        reader.ask("nvmlInit()")
        assert reader.ask("nvmlDeviceGetPowerUsage(nvmlDeviceGetHandleByIndex(1))") > 0


def test_other_states_give_their_codes():
    with On("lost", at=1) as (node, reader):
        node.set("gpu0.no_permission", 1)
        assert reader.code("nvmlDeviceGetHandleByIndex(0)") == 4
        node.set("gpu1.reset_required", 1)
        assert reader.code("nvmlDeviceGetTemperature(h[1], 0)") == 16
        reader.ask("nvmlShutdown()")
        for code in (9, 18, 12, 999):
            node.set("driver.init_return", code)
            assert reader.code("nvmlInit()") == code
        node.set("driver.init_return", 0)
        reader.ask("nvmlInit()")


def test_init_counts_its_references():
    with On("post") as (_, reader):
        reader.ask("nvmlInitWithFlags(0)")
        reader.ask("nvmlShutdown()")
        assert reader.ask("nvmlDeviceGetCount()") == 1
        reader.ask("nvmlShutdown()")
        assert reader.code("nvmlShutdown()") == 1


def test_without_a_node_there_is_no_driver(tmp_path):
    with run_node.SimNode("post", kubelet=False) as node:
        reader = Reader(node, init=False)
        try:
            for path in ("", str(tmp_path / "none"), "/etc/passwd"):
                reader.ask(f"__import__('os').environ.update(SIM_NODE={path!r})")
                assert reader.code("nvmlInit()") == 9
        finally:
            reader.close()


def test_a_reset_waits_for_the_last_handle():
    with On("lost", at=1) as (node, reader):
        with pytest.raises(Exception) as refused:
            node.reset(0)
        assert "in use" in str(refused.value)
        reader.ask("nvmlShutdown()")
        node.reset(0)


def test_a_name_may_be_any_bytes():
    with On("bad-text") as (node, reader):
        name = reader.ask("(lambda b: (raw('nvmlDeviceGetName', h[0], b, 96), b.value)[1])(c.create_string_buffer(96))")
        assert name.encode("latin-1") == b"NVIDIA \xff\xfeA10G" == node.node.gpu_text(0, "name")
        assert reader.ask("nvmlDeviceGetSerial(h[0])") == '13"24\n\\7'


# --- arguments ---

@pytest.mark.parametrize("call, code", [
    ("raw('nvmlDeviceGetPowerUsage', h[0], None)", 2),
    ("raw('nvmlDeviceGetPowerUsage', None, c.byref(c.c_uint()))", 2),
    ("raw('nvmlDeviceGetCount_v2', None)", 2),
    ("raw('nvmlDeviceGetHandleByIndex_v2', 99, c.byref(c_nvmlDevice_t()))", 2),
    ("raw('nvmlDeviceGetUUID', h[0], c.create_string_buffer(40), 40)", 7),
    ("raw('nvmlDeviceGetUUID', h[0], c.create_string_buffer(41), 41)", 0),
    ("raw('nvmlDeviceGetName', h[0], None, 96)", 2),
    ("raw('nvmlDeviceGetClockInfo', h[0], 4, c.byref(c.c_uint()))", 2),
    ("raw('nvmlDeviceGetTemperature', h[0], 1, c.byref(c.c_uint()))", 2),
    ("raw('nvmlDeviceGetTemperatureThreshold', h[0], 8, c.byref(c.c_uint()))", 2),
    ("raw('nvmlDeviceGetTotalEccErrors', h[0], 2, 0, c.byref(c.c_ulonglong()))", 2),
    ("raw('nvmlDeviceGetFieldValues', h[0], 0, (c_nvmlFieldValue_t * 1)())", 2),
    ("raw('nvmlDeviceGetFieldValues', h[0], 1, None)", 2),
    ("raw('nvmlDeviceGetMemoryInfo_v2', h[0], c.byref(c_nvmlMemory_v2_t(version=0x1000028)))", 25),
    ("raw('nvmlDeviceGetGpuFabricInfoV', h[0], c.byref((lambda i: (setattr(i, \"version\", 0x9000024), i)[1])(c_nvmlGpuFabricInfoV_t())))", 25),
    ("raw('nvmlDeviceGetFanSpeed_v2', h[0], 2, c.byref(c.c_uint()))", 2),
    ("raw('nvmlDeviceGetViolationStatus', h[0], 6, c.byref(c_nvmlViolationTime_t()))", 2),
    ("raw('nvmlDeviceGetHandleByUUID', c.c_char_p(b'GPU-none'), c.byref(c_nvmlDevice_t()))", 6),
    ("raw('nvmlGpmMetricsGet', None)", 2),
    ("raw('nvmlGpmSampleFree', None)", 2),
    ("raw('nvmlEventSetWait_v2', None, c.byref(c_nvmlEventData_t()), 0)", 2),
])
def test_bad_arguments_get_the_drivers_codes(rich, call, code):
    assert rich[1].ask(call) == code


# --- faults, counts ---

def test_faults_hit_their_call_their_gpu_and_their_count():
    with On("lost", at=1) as (node, reader):
        node.fault("nvmlDeviceGetPowerUsage", "return=999", gpu=1, count=2)
        assert [reader.ask_any(f"nvmlDeviceGetPowerUsage(h[{g}])").get("code") for g in (0, 1, 1, 1)] == \
            [None, 999, 999, None]
        node.fault("*", "return=19", gpu=0)
        assert reader.code("nvmlDeviceGetUUID(h[0])") == 19
        node.clear_faults()
        reader.ask("nvmlDeviceGetUUID(h[0])")
        node.fault("nvmlDeviceGetUUID", "delay=150")
        took = reader.ask("(lambda t: (t(), nvmlDeviceGetUUID(h[0]), t()))(__import__('time').monotonic)")
        assert took[2] - took[0] >= 0.15
        calls, total = node.counts()["nvmlDeviceGetUUID"]
        assert calls == 3 and total >= 150_000_000


def test_every_call_counts_once():
    with On("lost", at=1) as (node, reader):
        node.reset_counts()
        reader.ask("[nvmlDeviceGetPowerUsage(x) for x in h * 5]")
        reader.code("nvmlDeviceGetNvLinkState(h[0], 0)")
        assert {k: v[0] for k, v in node.counts().items()} == {"nvmlDeviceGetPowerUsage": 10, "nvmlDeviceGetNvLinkState": 1}


def test_a_hung_call_ignores_signals_goes_on_when_cleared_and_dies_by_kill():
    with On("lost", at=1) as (node, reader):
        node.fault("nvmlDeviceGetPowerUsage", "hang", gpu=0)
        reader.process.stdin.write("nvmlDeviceGetPowerUsage(h[0])\n")
        reader.process.stdin.flush()
        node.wait_until(lambda: node.node.calls("nvmlDeviceGetPowerUsage") == 1)
        reader.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            reader.process.wait(0.5)
        reader.process.kill()
        assert reader.process.wait(10) == -9
        second = Reader(node)
        try:
            second.process.stdin.write("nvmlDeviceGetPowerUsage(h[0])\n")
            second.process.stdin.flush()
            node.wait_until(lambda: node.node.calls("nvmlDeviceGetPowerUsage") == 2)
            node.clear_faults()
            assert json.loads(second.process.stdout.readline())["value"] > 0
        finally:
            second.close()


def test_a_crash_is_a_real_one():
    with On("lost", at=1) as (node, reader):
        node.command("crash nvmlDeviceGetPowerUsage")
        reader.process.stdin.write("nvmlDeviceGetPowerUsage(h[0])\n")
        reader.process.stdin.flush()
        assert reader.process.wait(10) == -11


# --- what the library exports ---

def exported(path):
    rows = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {line.split()[2] for line in rows.splitlines() if " T " in line}


def known_symbols():
    rows = (ROOT / "data" / "nvml-symbols.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0]: line.split("\t")[2] for line in rows}


def test_the_library_exports_only_the_drivers_names_and_the_old_one_only_those_of_2020():
    known = known_symbols()
    new, old = (exported(BUILD / "sim" / where / "libnvidia-ml.so.1") for where in (".", "old"))
    assert len(new) > 140 and new <= known.keys()
    assert old == {name for name in new if known[name] == "<=450"}


def test_the_soname_is_the_vendors():
    for where in (".", "old"):
        text = subprocess.run(["readelf", "-d", BUILD / "sim" / where / "libnvidia-ml.so.1"], capture_output=True,
                              text=True, check=True).stdout
        assert "soname: [libnvidia-ml.so.1]" in text


def test_a_driver_of_2020_lacks_what_came_later():
    with On("old-driver") as (node, reader):
        assert node.nvml_library.endswith("sim/old/libnvidia-ml.so.1")
        assert reader.ask("nvmlSystemGetDriverVersion()") == "450.80.02"
        for call in ("nvmlDeviceGetMemoryInfo(h[0], nvmlMemory_v2)", "nvmlDeviceGetComputeRunningProcesses_v2(h[0])",
                     "nvmlGpmQueryDeviceSupport(h[0])"):
            assert reader.code(call) == 13
        assert reader.ask("hasattr(pynvml.nvmlLib, 'nvmlDeviceGetMemoryInfo_v2')") is False
        total, reserved, used, free = node.node.memory(0)
        assert reader.ask("nvmlDeviceGetMemoryInfo(h[0])") == {"total": total, "free": free, "used": used + reserved}
        assert node.node.calls("nvmlDeviceGetMemoryInfo") == 1


def test_symbols_newer_than_the_scenarios_driver_answer_13():
    known = {name: int("".join(filter(str.isdigit, branch.replace("13.3-branch", "610"))))
             for name, branch in known_symbols().items()}
    newer = sorted(name for name in exported(BUILD / "sim" / "libnvidia-ml.so.1") if known[name] > 470)
    assert len(newer) > 25
    with On("post", only_codes=True) as (_, reader):
        for name in newer:
            assert reader.ask(f"raw({name!r}, h[0], None, None, None)") == 13, name


def test_gpus_with_links_reach_each_other():
    def status(reader, a, b, caps=2):
        return reader.ask(f"[raw('nvmlDeviceGetP2PStatus', h[{a}], h[{b}], {caps}, c.byref(keep.setdefault('s', c.c_int()))), "
                          f"keep['s'].value]")

    with On("h100x8") as (node, reader):
        assert status(reader, 0, 7) == [0, 0]
        node.command("dcgm peer gpu0 gpu7 3")
        assert [status(reader, 0, 7), status(reader, 7, 0), status(reader, 0, 7, 0)] == [[0, 3], [0, 0], [0, 0]]
        assert status(reader, 1, 1)[0] == 2 and status(reader, 0, 1, 99)[0] == 2
    with On("demo") as (_, reader):
        assert status(reader, 0, 1) == [0, 5]


def test_the_oldest_generations_work_too():
    with On("post") as (_, reader):
        assert reader.ask("(lambda n: [raw('nvmlDeviceGetCount', c.byref(n)), n.value])(c.c_uint())") == [0, 1]
        for symbol, argument in (("ByIndex", "0"), ("ByPciBusId", "c.c_char_p(b'00000000:00:1E.0')")):
            assert reader.ask(f"(lambda d: [raw('nvmlDeviceGetHandle{symbol}', {argument}, c.byref(d)), "
                              "c.cast(d, c.c_void_p).value == c.cast(h[0], c.c_void_p).value])(c_nvmlDevice_t())") == [0, True]
        # 16-byte bus ids: 52 bytes in the second form, 32 in the first
        for symbol, size in (("nvmlDeviceGetPciInfo_v2", 52), ("nvmlDeviceGetPciInfo", 32)):
            assert reader.ask(f"(lambda b: [raw('{symbol}', h[0], b), bytes(b[:12]).decode(), b[24], "
                              f"set(b[{size}:]) == {{7}}])((c.c_ubyte * 80)(*[7] * 80))") == [0, "0000:00:1E.0", 0x1E, True]
        assert reader.ask("[raw('nvmlInit'), raw('nvmlInit_v2'), raw('nvmlShutdown'), raw('nvmlShutdown')]") == [0] * 4


@pytest.fixture(scope="module", autouse=True)
def every_exported_function_was_read(request):
    yield
    ran = {item.originalname for item in request.session.items if item.path == request.path}
    if ran >= {name for name in globals() if name.startswith("test_")}:  # not when only some were asked for
        assert exported(BUILD / "sim" / "libnvidia-ml.so.1") - READ == {"nvmlErrorString"}

"""Holds the exporter against the real driver; script/gpu-check starts it. Status 1 when a family disagrees, or
when a kind of podgpu-burn's load isn't seen as it was made."""
import ctypes
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from harness import BUILD, Exporter  # noqa: E402
import gpu_check_burn  # noqa: E402

# family: (nvidia-smi query, tolerance as a share of the value, tolerance absolute)
COMPARED = {
    "DCGM_FI_DEV_SM_CLOCK": ("clocks.sm", 0.1, 30),
    "DCGM_FI_DEV_MEM_CLOCK": ("clocks.mem", 0, 0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature.gpu", 0, 2),
    "DCGM_FI_DEV_MEMORY_TEMP": ("temperature.memory", 0, 2),
    "DCGM_FI_DEV_POWER_USAGE": ("power.draw", 0.1, 5),
    "DCGM_FI_DEV_GPU_UTIL": ("utilization.gpu", 0, 15),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("utilization.memory", 0, 15),
    "DCGM_FI_DEV_FB_USED": ("memory.used", 0, 2),
    "DCGM_FI_DEV_FB_FREE": ("memory.free", 0, 2),
    "DCGM_FI_DEV_FB_RESERVED": ("memory.reserved", 0, 2),
    "DCGM_FI_DEV_FB_TOTAL": ("memory.total", 0, 1),
    "DCGM_FI_DEV_PSTATE": ("pstate", 0, 1),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power.limit", 0, 1),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("enforced.power.limit", 0, 1),
    "DCGM_FI_DEV_PCIE_LINK_GEN": ("pcie.link.gen.current", 0, 0),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": ("pcie.link.width.current", 0, 0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc.errors.uncorrected.volatile.total", 0, 0),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc.errors.corrected.volatile.total", 0, 0),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("remapped_rows.failure", 0, 0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows.uncorrectable", 0, 0),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("remapped_rows.correctable", 0, 0),
}
PROFILING = ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
             "DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES",
             "DCGM_FI_PROF_PCIE_RX_BYTES"]

# A kernel that multiplies and adds in registers, `rounds` times: any GPU since Maxwell assembles it.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [rounds];
    mov.f32 %f1, 0f3F800000;
again:
    fma.rn.f32 %f1, %f1, 0f3F800001, 0f33D6BF95;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra again;
    cvta.to.global.u64 %rd2, %rd1;
    st.global.f32 [%rd2], %f1;
    ret;
}
\0"""


def number(text):
    text = text.strip().lower()
    if text in ("no", "yes"):
        return float(text == "yes")
    try:
        return float(text.lstrip("p"))
    except ValueError:
        return None


def nvidia_smi(queries):
    """{uuid: {query: value or None}}; queries that this driver does not know are left out."""
    known = []
    for query in queries:
        if subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], capture_output=True).returncode == 0:
            known.append(query)
    def ask():
        text = subprocess.run(["nvidia-smi", "--query-gpu=uuid," + ",".join(known), "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=True).stdout
        rows = {}
        for line in text.strip().splitlines():
            uuid, *values = [v.strip() for v in line.split(",")]
            rows[uuid] = {q: number(v) for q, v in zip(known, values)}
        return rows
    return ask


def counters_file():
    path = BUILD / "gpu-check-counters.csv"
    names = [*COMPARED, *PROFILING, *gpu_check_burn.FAMILIES, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_XID_ERRORS"]
    path.write_text("".join(f"{n}, gauge, checked\n" for n in dict.fromkeys(names)))
    return path


def compare(exporter, ask):
    """Prints a line a family and GPU; returns how many disagree. The page is read before and after nvidia-smi: what
    moves meanwhile is compared with the nearer of the two."""
    before = exporter.page()
    truth = ask()
    time.sleep(1.2)
    after = exporter.page()
    wrong = 0
    for family, (query, share, absolute) in COMPARED.items():
        for uuid, row in truth.items():
            ours = [float(v) for page in (before, after) for l, v in page.samples(family) if l["UUID"] == uuid]
            theirs = row.get(query)
            if theirs is None or not ours:
                state = "both absent" if theirs is None and not ours else "only one has it"
                print(f"  {family:42} {uuid}: {state} (ours {ours[:1]}, nvidia-smi {theirs})")
                continue
            off = min(abs(o - theirs) for o in ours)
            good = off <= max(absolute, share * abs(theirs))
            wrong += not good
            print(f"  {family:42} {uuid}: ours {ours[-1]:g}, nvidia-smi {theirs:g}{'' if good else '   DISAGREES'}")
    return wrong


def time_calls():
    """p50 and p99 of the driver calls that a sample makes."""
    try:
        import pynvml
    except ImportError:
        print("  nvidia-ml-py is not here, calls are not timed")
        return
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    calls = {
        "GetUtilizationRates": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "GetMemoryInfo_v2": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        "GetClockInfo": lambda: pynvml.nvmlDeviceGetClockInfo(handle, 1),
        "GetTemperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, 0),
        "GetPowerUsage": lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        "GetPcieReplayCounter": lambda: pynvml.nvmlDeviceGetPcieReplayCounter(handle),
        "GetEncoderUtilization": lambda: pynvml.nvmlDeviceGetEncoderUtilization(handle),
        "GetFieldValues (8 ids)": lambda: pynvml.nvmlDeviceGetFieldValues(handle, [82, 83, 138, 139, 142, 143, 145, 230]),
    }
    for name, call in calls.items():
        times = []
        try:
            for _ in range(300):
                begun = time.perf_counter()
                call()
                times.append((time.perf_counter() - begun) * 1e6)
        except pynvml.NVMLError as error:
            print(f"  {name:26} {error}")
            continue
        times.sort()
        print(f"  {name:26} p50 {times[150]:8.1f} us   p99 {times[297]:8.1f} us")
    pynvml.nvmlShutdown()


class Load:
    """One small kernel after the other on GPU 0, through the CUDA driver API."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.kernel, self.memory = ctypes.c_void_p(), ctypes.c_uint64()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"spin"))
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(self.memory), 4096))

    @staticmethod
    def check(status):
        if status:
            raise RuntimeError(f"CUDA driver error {status}")

    def rounds_per_second(self, seconds):
        out, rounds = ctypes.c_uint64(self.memory.value), ctypes.c_uint32(20000)
        arguments = (ctypes.c_void_p * 2)(ctypes.cast(ctypes.byref(out), ctypes.c_void_p),
                                          ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p))
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            for _ in range(50):
                self.check(self.cuda.cuLaunchKernel(self.kernel, 264, 1, 1, 256, 1, 1, 0, None, arguments, None))
            self.check(self.cuda.cuCtxSynchronize())
            done += 50
        return done / (time.perf_counter() - begun)


def slow_down(arguments):
    """The load's speed with and without the exporter, in turn."""
    load = Load()
    load.rounds_per_second(2)
    ratios = []
    for _ in range(5):
        without = load.rounds_per_second(4)
        exporter = Exporter(arguments)
        try:
            exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_GPU_UTIL"), 20)
            ratios.append(load.rounds_per_second(4) / without)
        finally:
            exporter.stop()
    loss = (1 - statistics.median(ratios)) * 100
    print(f"  median loss {loss:.2f} % over {len(ratios)} pairs (goal < 0.5 %); pairs: "
          + " ".join(f"{(1 - r) * 100:.2f}" for r in ratios))


def burn_in_each_kind(arguments):
    """How many kinds of podgpu-burn's load the exporter doesn't show as they were made."""
    exporter = Exporter(["-c", "1000", *arguments])
    try:
        page = exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_GPU_UTIL"), 60, "first sample")
        uuids = list(dict.fromkeys(labels["UUID"] for labels, _ in page.samples("DCGM_FI_DEV_FB_TOTAL")))
        return gpu_check_burn.check(BUILD / "podgpu-burn", exporter.page, uuids)
    finally:
        exporter.stop()


def main():
    arguments = ["-a", "127.0.0.1:0", "-f", counters_file(), *sys.argv[1:]]
    exporter = Exporter(arguments)
    try:
        exporter.page_when(lambda p: p.samples("DCGM_FI_DEV_GPU_TEMP"), 60, "first sample")
        time.sleep(2)
        print("families beside nvidia-smi of the same second:")
        wrong = compare(exporter, nvidia_smi([q for q, _, _ in COMPARED.values()]))
        page = exporter.page()
        print("profiling through GPM:", ", ".join(f for f in PROFILING if page.samples(f)) or "none")
        for labels, _ in page.samples("podgpu_exporter_field_unavailable_info"):
            print(f"  unavailable: {labels['field']} on GPU {labels.get('gpu')}: {labels['reason']}")
    finally:
        exporter.stop()
    print("driver calls:")
    time_calls()
    print("what the exporter costs a compute load:")
    try:
        slow_down(arguments)
    except (OSError, RuntimeError) as error:
        print(f"  not measured: {error}")
    print("podgpu-burn, 5 s on and 5 s off: means of each phase:")
    failed = burn_in_each_kind(arguments)
    print(f"{wrong} disagreements, {failed} kinds of load not shown as they were made")
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())

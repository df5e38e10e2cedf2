"""Holds what the exporter shows of podgpu-burn's load against the shape that was asked for; gpu_check.py runs it."""
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
from datetime import datetime

UTIL = "DCGM_FI_DEV_GPU_UTIL"
TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"
# Shown beside these, not judged: how much of it a load can reach depends on the GPU.
SHOWN = ["DCGM_FI_PROF_PIPE_FP32_ACTIVE", "DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_PCIE_RX_BYTES",
         "DCGM_FI_PROF_PCIE_TX_BYTES"]
FAMILIES = [UTIL, TENSOR, DRAM, *SHOWN]

ARITHMETIC = ["fp32", "fp64", "int32"]
TENSOR_KINDS = ["fp16", "bf16", "tf32"]
COPIES = ["pcie-h2d", "pcie-d2h", "pcie-both", "peer"]  # by copy engines: GPU_UTIL counts kernels alone
KINDS = [*ARITHMETIC, *TENSOR_KINDS, "dram", *COPIES]

ON_LEAST, OFF_MOST = 95, 5
MOVED_LEAST = {TENSOR: 0.2, DRAM: 0.4}
LEFT_ALONE_MOST = {TENSOR: 0.05, DRAM: 0.2}  # copies move some memory too, most of it where memory is slow
MOVES = {**{kind: TENSOR for kind in TENSOR_KINDS}, "dram": DRAM}

ON_S, CYCLES = 5.0, 2
SETTLE_S = 2.5  # after an edge: the driver's window, and two collections of a second
EDGE_S = 0.2    # before one: burn's start is known this well
SAMPLE_S = 0.25


def phase_at(at, start):
    """"on" or "off" where a sample of that moment is of one phase alone, else None."""
    elapsed = at - start
    if not 0 <= elapsed < 2 * ON_S * CYCLES:
        return None
    half, inside = divmod(elapsed, ON_S)
    if not SETTLE_S <= inside < ON_S - EDGE_S:
        return None
    return "off" if int(half) % 2 else "on"


def means(samples, start):
    """{phase: {family: mean}} of samples (time, {family: value}); a family without samples is not there."""
    found = {"on": {}, "off": {}}
    for at, values in samples:
        phase = phase_at(at, start)
        for family, value in values.items() if phase else ():
            found[phase].setdefault(family, []).append(value)
    return {phase: {f: statistics.fmean(v) for f, v in values.items()} for phase, values in found.items()}


def judge(kind, mean):
    """What is wrong with the means of a kind, as texts. Families that nobody gives are not judged, GPU_UTIL is."""
    wrong = []
    on, off = mean["on"], mean["off"]
    if UTIL not in on or UTIL not in off:
        return ["no GPU_UTIL in a phase"]
    if kind not in COPIES and on[UTIL] < ON_LEAST:
        wrong.append(f"GPU_UTIL {on[UTIL]:.1f} in the on phase, at least {ON_LEAST} wanted")
    if off[UTIL] > OFF_MOST:
        wrong.append(f"GPU_UTIL {off[UTIL]:.1f} in the off phase, at most {OFF_MOST} wanted")
    for family in (TENSOR, DRAM):
        if family not in on:
            continue
        name, value = family.removeprefix("DCGM_FI_PROF_"), on[family]
        if MOVES.get(kind) == family and value < MOVED_LEAST[family]:
            wrong.append(f"{name} {value:.3f}, at least {MOVED_LEAST[family]} wanted")
        if MOVES.get(kind) != family and value > LEFT_ALONE_MOST[family]:
            wrong.append(f"{name} {value:.3f}, at most {LEFT_ALONE_MOST[family]} wanted")
    return wrong


def sample_of(page, uuid):
    values = {}
    for family in FAMILIES:
        for labels, value in page.samples(family):
            if labels.get("UUID") == uuid and not labels.get("GPU_I_ID"):
                values[family] = float(value)
    return values


def start_of(record):
    """Wall time of the first period; None where it never began."""
    row = next((row for row in map(json.loads, record.splitlines()) if row["elapsed_seconds"] > 0), None)
    return row and datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp() - row["elapsed_seconds"]


class Run:
    """podgpu-burn in one kind, and the pages of its time: status, error (its last line), start, samples."""

    def __init__(self, program, read, kind, uuids, env=None, extra=()):
        self.samples = []
        with tempfile.TemporaryDirectory(prefix="podgpu-burn-") as folder:
            out, log = pathlib.Path(folder, "out"), pathlib.Path(folder, "log")
            with open(out, "wb") as out_file, open(log, "wb") as log_file:
                burn = subprocess.Popen([program, "--json", f"--kind={kind}", f"--gpus={','.join(uuids)}", f"--on={ON_S}",
                                         f"--off={ON_S}", f"--cycles={CYCLES}", *extra], env=env, stdout=out_file,
                                        stderr=log_file)
                try:
                    self._watch(burn, read, uuids[0], time.monotonic() + 2 * ON_S * CYCLES + 120)
                finally:
                    if burn.poll() is None:
                        burn.kill()
                    self.status = burn.wait()
            errors = [line for line in log.read_text(errors="replace").splitlines() if "level=ERROR" in line]
            self.error = errors[-1] if errors else ""
            self.start = start_of(out.read_text())

    def _watch(self, burn, read, uuid, deadline):
        while burn.poll() is None and time.monotonic() < deadline:
            self.samples.append((time.time(), sample_of(read(), uuid)))
            time.sleep(SAMPLE_S)

    def impossible(self):
        """This GPU or its driver has no such thing: the kind is left out, nothing is wrong."""
        return self.status == 3 and any(t in self.error for t in (" needs ", "cannot reach each other's memory"))


def line(kind, mean, verdict):
    def cell(phase, family, form):
        value = mean[phase].get(family)
        return "-" if value is None else format(value, form)
    cells = [cell("on", UTIL, ".1f"), cell("off", UTIL, ".1f"), cell("on", TENSOR, ".3f"), cell("on", DRAM, ".3f"),
             cell("on", SHOWN[0], ".3f"), cell("on", SHOWN[1], ".3f"), cell("on", SHOWN[2], ".3g"), cell("on", SHOWN[3], ".3g")]
    return f"  {kind:10}" + "".join(f"{c:>10}" for c in cells) + f"  {verdict}"


def heading():
    names = ["util on", "util off", "tensor", "dram", "fp32", "fp64", "pcie rx", "pcie tx"]
    return f"  {'kind':10}" + "".join(f"{n:>10}" for n in names)


def check(program, read, uuids, **options):
    """Runs the kinds one after the other on the first GPU (peer: the first two) and prints a line for each; read()
    gives the exporter's page; options: of Run. Returns how many are not as they should be."""
    nothing = {"on": {}, "off": {}}
    failures = 0
    print(heading(), flush=True)
    for kind in KINDS:
        if kind == "peer" and len(uuids) < 2:
            print(line(kind, nothing, "left out: one GPU"), flush=True)
            continue
        run = Run(program, read, kind, uuids[:2] if kind == "peer" else uuids[:1], **options)
        if run.impossible():
            print(line(kind, nothing, f"left out: {run.error}"), flush=True)
            continue
        if run.status or run.start is None:
            mean, wrong = nothing, [f"status {run.status}: {run.error}"]
        else:
            mean = means(run.samples, run.start)
            wrong = judge(kind, mean)
        failures += bool(wrong)
        print(line(kind, mean, "WRONG: " + "; ".join(wrong) if wrong else "good"), flush=True)
    return failures

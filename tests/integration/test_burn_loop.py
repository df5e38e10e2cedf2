"""podgpu-burn on the simulated node beside the exporter: what burn says it did is what the exporter's pages show."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from harness import BUILD, SLOW, exporter_on, wait_until

UTIL = "DCGM_FI_DEV_GPU_UTIL"
USED = "DCGM_FI_DEV_FB_USED"
SAMPLE_S = 0.1
WINDOW_S = 1 / 6  # what the driver's utilisation is a mean of
CONTEXT_MIB = 256


@contextlib.contextmanager
def burning(node, tmp_path, *arguments):
    """podgpu-burn on the node: yields (Popen, a function that gives its records so far)."""
    out, log = tmp_path / "burn.json", tmp_path / "burn.log"
    env = {k: v for k, v in node.env.items() if not k.startswith("PODGPU_BURN_")}
    with open(out, "wb") as out_file, open(log, "wb") as log_file:
        burn = subprocess.Popen([BUILD / "podgpu-burn", "--json", *map(str, arguments)], env=env, stdout=out_file,
                                stderr=log_file)
    try:
        yield burn, lambda: [json.loads(line) for line in out.read_text().splitlines()]
    finally:
        if burn.poll() is None:
            burn.kill()
        burn.wait()


class Sampler:
    """Reads a page each SAMPLE_S in a thread of its own: rows of (seconds, value)."""

    def __init__(self, exporter, family, **labels):
        self.rows = []
        self.read = lambda: exporter.page().value(family, **labels)
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.rows.append((time.monotonic(), self.read()))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join(30)

    def _run(self):
        due = time.monotonic()
        while not self.ending.is_set():
            due += SAMPLE_S
            self.ending.wait(max(0, due - time.monotonic()))
            self.rows.append((time.monotonic(), self.read()))

    def integral(self):
        """Seconds of full load: each value holds until the next."""
        return sum(value / 100 * (later[0] - at) for (at, value), later in zip(self.rows, self.rows[1:]))

    def widest(self):
        return max(later[0] - at for (at, _), later in zip(self.rows, self.rows[1:]))


def quick(tmp_path):
    counters = tmp_path / "counters.csv"
    counters.write_text(f"{UTIL}, gauge, Utilization.\n{USED}, gauge, Used.\n")
    return ["-c", "100"], counters


def utilisation(page, gpu):
    """None on a page from before the first collection."""
    values = [float(value) for labels, value in page.samples(UTIL) if labels["gpu"] == str(gpu)]
    return values[0] if values else None


def settle(exporter, gpu=0):
    """The first page that shows an idle GPU."""
    return exporter.page_when(lambda page: utilisation(page, gpu) == 0, 20, "an idle GPU")


def page_at_work(exporter, gpu=0):
    return exporter.page_when(lambda page: (utilisation(page, gpu) or 0) >= 95, 20, "full load")


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_over_ten_cycles_the_exporters_integral_is_burns_record(tmp_path, kind):
    flags, counters = quick(tmp_path)
    cycles, on = (10, 2) if kind == "fp32" else (4, 1)
    with exporter_on("burn", *flags, counters=counters) as (node, exporter):
        settle(exporter)
        begun = node.node.now()
        with Sampler(exporter, UTIL, gpu="0") as sampler, \
                burning(node, tmp_path, "--gpus=0", f"--kind={kind}", f"--on={on}s", f"--off={on}s",
                        f"--cycles={cycles}", "--memory=1GiB") as (burn, records):
            assert burn.wait(120 * SLOW) == 0
            time.sleep(2 * WINDOW_S + SAMPLE_S)  # the last windows of the last edge
            settle(exporter)
        record = records()[-1]
        said, truth = record["busy_seconds"], node.node.busy_us(0, begun, node.node.now()) / 1e6
        assert record["mismatches"] == 0 and record["rounds"] >= cycles
        assert truth == pytest.approx(said, rel=0.01)
        assert said == pytest.approx(cycles * on, rel=0.05 * SLOW)
        edge = max(SAMPLE_S, WINDOW_S)
        assert sampler.integral() == pytest.approx(said, abs=0.01 * said + 2 * cycles * edge)
        # Edges up and down make up for each other, so that much less than a sample an edge is left.
        if sampler.widest() < 2 * SAMPLE_S:
            assert sampler.integral() == pytest.approx(said, rel=0.03)


@pytest.mark.parametrize("shape, seconds, full", [
    (["--shape=sine:period=2s"], 4, 2),
    (["--shape=ramp:period=1s,low=0.5"], 3, 2.25),
    (["--shape=steps:every=500ms,levels=0/0.5/1"], 3, 1.5),
    (["--shape=square:on=1s,off=1s,high=80%,low=20%", "--util=50%"], 4, 1),
    (["--shape=random:every=250ms,seed=7", "--util=80%"], 3, None),
    (["--util=40%"], 3, 1.2),
])
def test_every_shape_is_what_the_gpu_was_given(tmp_path, shape, seconds, full):
    import run_node
    with run_node.SimNode("burn", kubelet=False) as node:
        begun = node.node.now()
        with burning(node, tmp_path, "--gpus=0", "--memory=256MiB", f"--duration={seconds}s", *shape) as (burn, records):
            assert burn.wait(60 * SLOW) == 0
            [end] = [r for r in records() if r["phase"] == "end"]
        if full:
            assert end["scheduled_seconds"] == pytest.approx(full, abs=1e-5)
        assert 0 < end["scheduled_seconds"] < 0.8 * seconds
        # Where this machine was late the work is still made, but for what would be more than 20 ms after its time.
        assert end["busy_seconds"] == pytest.approx(end["scheduled_seconds"], rel=0.1 * SLOW)
        given = node.node.busy_us(0, begun, node.node.now()) / 1e6
        assert given == pytest.approx(end["busy_seconds"], rel=0.01, abs=0.01 * SLOW)


def test_utilisation_is_full_in_the_on_phase_and_none_in_the_off_phase(tmp_path):
    """Between edges, a window and a collection away from them; the other GPU stays idle."""
    flags, counters = quick(tmp_path)
    with exporter_on("burn", *flags, counters=counters) as (node, exporter):
        with burning(node, tmp_path, "--gpus=0", "--on=3s", "--off=3s", "--memory=1GiB") as (_, records):
            wait_until(lambda: any(r["phase"] == "on" for r in records()), 20, "the on phase")
            page = page_at_work(exporter)
            assert page.value(UTIL, gpu="1") == 0
            wait_until(lambda: records()[-1]["phase"] == "off", 20, "the off phase")
            page = settle(exporter)
            assert page.value(USED, gpu="0") == pytest.approx(CONTEXT_MIB, abs=4)  # its memory is given back


def test_memory_on_the_page_is_what_burn_took(tmp_path):
    flags, counters = quick(tmp_path)
    with exporter_on("burn", *flags, counters=counters) as (node, exporter):
        idle = settle(exporter, 1).value(USED, gpu="1")
        with burning(node, tmp_path, "--gpus=1", "--memory=5GiB") as (burn, records):
            wait_until(records, 20, "a record")
            page = page_at_work(exporter, 1)
            assert page.value(USED, gpu="1") - idle == pytest.approx(5120 + CONTEXT_MIB, abs=4)
            assert records()[-1]["memory_bytes"] == 5 << 30
            burn.send_signal(signal.SIGTERM)
            assert burn.wait(10 * SLOW) == 0
        exporter.page_when(lambda p: p.value(USED, gpu="1") == idle and p.value(UTIL, gpu="1") == 0, 20, "an idle GPU")


def test_two_processes_share_a_gpu_and_their_times_sum_up_to_its_own(tmp_path):
    flags, counters = quick(tmp_path)
    with exporter_on("burn", *flags, counters=counters) as (node, exporter):
        begun = node.node.now()
        with burning(node, tmp_path, "--gpus=0", "--procs=2", "--duration=4s", "--memory=2GiB") as (burn, records):
            wait_until(lambda: len(records()) >= 2, 20, "records")
            page = page_at_work(exporter)
            assert page.value(USED, gpu="0") == pytest.approx(2 * (2048 + CONTEXT_MIB), abs=8)
            pids = sorted(p["pid"] for p in node.node.processes() if p["gpu"] == 0)
            assert pids == sorted({r["pid"] for r in records()}) and len(pids) == 2
            assert burn.wait(60 * SLOW) == 0
        now = node.node.now()
        each = [node.node.process_busy_us(pid, begun, now) for pid in pids]
        assert min(each) > 0.2 * sum(each)
        assert sum(each) == pytest.approx(node.node.busy_us(0, begun, now), abs=10)
        assert sum(each) / 1e6 == pytest.approx(4, rel=0.1 * SLOW)


@pytest.mark.faults
def test_a_killed_burn_leaves_neither_load_nor_memory(tmp_path):
    flags, counters = quick(tmp_path)
    with exporter_on("burn", *flags, counters=counters) as (node, exporter):
        with burning(node, tmp_path, "--gpus=0", "--memory=1GiB") as (burn, records):
            wait_until(records, 20, "a record")
            page_at_work(exporter)
            workers = children(burn.pid)
            burn.kill()
            burn.wait()
            page = settle(exporter)
            assert page.value(USED, gpu="0") == 0
            assert node.node.processes() == []
            wait_until(lambda: not any(os.path.exists(f"/proc/{w}/fd") and os.listdir(f"/proc/{w}/fd") for w in workers),
                       20, "the workers end with it")


def test_what_is_booked_is_the_gpus_time_though_burn_is_held_up_between_calls(tmp_path):
    import run_node
    with run_node.SimNode("burn", kubelet=False) as node:
        begun = node.node.now()
        with burning(node, tmp_path, "--gpus=0", "--util=50", "--duration=4", "--memory=64MiB") as (burn, records):
            wait_until(records, 20, "a record")
            node.command("fault cuLaunchKernel delay=200 count=8")  # as a CPU limit would, before the work is queued
            assert burn.wait(60 * SLOW) == 0
        assert node.node.busy_us(0, begun, node.node.now()) / 1e6 == pytest.approx(records()[-1]["busy_seconds"], rel=0.05)


# --- errors of the driver, and burn's status for each ---

@pytest.mark.faults
@pytest.mark.parametrize("change,arguments,status,says", [
    ("set gpu0.cuda_mismatches=3", ["--gpus=0", "--duration=1s"], 1, "wrong results"),
    ("set driver.cuda_return=100", [], 2, ""),
    ("set driver.cuda_return=803", [], 3, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    ("fault cuMemAlloc_v2 return=2", ["--gpus=0"], 3, ""),
    ("fault cuLaunchKernel return=719 count=1", ["--gpus=0"], 3, "CUDA_ERROR_LAUNCH_FAILED"),
    ("fault cuEventSynchronize return=214 count=1", ["--gpus=0"], 3, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    ("clock", ["--gpus=7"], 2, ""),
    ("clock", ["--gpus=0", "--memory=100GiB"], 3, "not enough GPU memory"),
    ("clock", ["--gpus=0", "--provoke-xid"], 3, "illegal"),
])
def test_what_goes_wrong_has_its_status_and_its_line(tmp_path, change, arguments, status, says):
    import run_node
    with run_node.SimNode("burn", kubelet=False) as node:
        node.command(change)
        with burning(node, tmp_path, *arguments) as (burn, records):
            assert burn.wait(30 * SLOW) == status
        log = (tmp_path / "burn.log").read_text()
        assert says in log
        # One for each process that failed, and one where none could be started.
        failed = [r for r in records() if r["phase"] == "end" and r["result"]]
        assert log.count("level=ERROR") == max(1, len(failed)), log
        if "--provoke-xid" in arguments:
            assert [(e.data, e.gpu) for e in node.node.events()] == [(31, 0)]


@pytest.mark.faults
def test_a_driver_too_old_for_a_kind_is_told(tmp_path):
    text = pathlib.Path(BUILD.parent if BUILD.name == "build" else BUILD.parent.parent, "sim", "scenarios",
                        "burn.yaml").read_text().replace("cuda: 12020", "cuda: 9000")
    import run_node
    with run_node.SimNode(text=text, kubelet=False) as node:
        with burning(node, tmp_path, "--gpus=0", "--kind=bf16") as (burn, _):
            assert burn.wait(30 * SLOW) == 3
        [line] = [line for line in (tmp_path / "burn.log").read_text().splitlines() if "level=ERROR" in line]
        assert "the driver is too old: it supports CUDA 9.0, bf16 needs 11.0" in line

"""podgpu-burn around its load: schedule, record, exit statuses, signals. The load is tests/tools/scripted_load.c."""
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import time
import urllib.request

import pytest

from harness import BUILD, SLOW, Page, wait_until

pytestmark = pytest.mark.faults
PROGRAM = BUILD / "tests" / "tools" / "burn-scripted"
# What SIGTERM may take (the issue: a second), and a loaded machine.
PROMPT_S = 1 + 2 * SLOW


def environment(load=None, gpus=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PODGPU_BURN_", "SCRIPTED_"))}
    return {**env, **({"SCRIPTED_LOAD": load} if load else {}), **({"SCRIPTED_GPUS": str(gpus)} if gpus is not None else {})}


def run(*arguments, load=None, gpus=None, seconds=30):
    """To its end: (status, stdout, stderr)."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], env=environment(load, gpus), capture_output=True, text=True,
                          timeout=seconds * SLOW)
    return done.returncode, done.stdout, done.stderr


def children(pid):
    return [int(c) for c in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    """Ended, though perhaps not reaped by whoever became its parent."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def burning(tmp_path, *arguments, load=None, gpus=None, processes=2, stdout=None, **popen):
    """The program once all its processes are there: yields (Popen, their pids, log path)."""
    log = tmp_path / "log"
    with open(log, "wb") as log_file, open(tmp_path / "out", "wb") as out:
        program = subprocess.Popen([PROGRAM, *map(str, arguments)], env=environment(load, gpus),
                                   stdout=stdout or out, stderr=log_file, **popen)
    try:
        wait_until(lambda: "load starts" in log.read_text() and len(children(program.pid)) == processes, 10, "children")
        yield program, children(program.pid), log
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()


def ended_promptly(program, signo=signal.SIGTERM):
    """Status after that signal; it took no longer than it may."""
    begun = time.monotonic()
    program.send_signal(signo)
    status = program.wait(10 * SLOW)
    assert time.monotonic() - begun < PROMPT_S
    return status


def lines_of(text, gpu=0, process=0):
    rows = [json.loads(line) for line in text.splitlines()]
    return [row for row in rows if (row["gpu"], row["process"]) == (gpu, process)]


# Shapes, and their integral over [0, t) in seconds of full load, by another program than the one under test.
def square(on, off, high=1.0, low=0.0):
    def integral(t):
        whole, rest = divmod(t, on + off)
        return whole * (on * high + off * low) + min(rest, on) * high + max(rest - on, 0) * low
    return integral


def ramp(period):
    def integral(t):
        whole, rest = divmod(t, period)
        return whole * period / 2 + rest * rest / (2 * period)
    return integral


SHAPES = [
    (["--on", "0.7", "--off", "0.5", "--cycles", "3"], square(0.7, 0.5), 3.6),
    (["--shape", "square:on=500ms,off=1s,high=80%,low=0.2", "--duration", "3"], square(0.5, 1, 0.8, 0.2), 3),
    (["--shape", "ramp:period=2s", "--cycles", "2"], ramp(2), 4),
    (["--on", "1", "--off", "1", "--util", "25", "--duration", "3"], square(1, 1, 0.25), 3),
    (["--duration", "2", "--cycles", "0"], lambda t: t, 2),
]


@pytest.mark.parametrize("arguments, integral, length", SHAPES)
def test_the_record_is_the_integral_of_the_shape_at_each_moment(arguments, integral, length):
    status, out, _ = run("--json", *arguments)
    assert status == 0
    rows = lines_of(out)
    assert len(rows) >= 2
    for row in rows:
        at = min(row["elapsed_seconds"], length)
        assert row["scheduled_seconds"] == pytest.approx(integral(at), abs=2e-6)
        assert row["busy_seconds"] <= row["scheduled_seconds"] + 1e-6
    assert rows[-1]["phase"] == "end"
    assert rows[-1]["busy_seconds"] == pytest.approx(integral(length), abs=2e-6)
    assert rows[-1]["elapsed_seconds"] >= length


def test_lines_come_at_whole_seconds_of_the_schedule_for_each_gpu_and_process():
    status, out, _ = run("--json", "--procs", 2, "--duration", 3)
    assert status == 0
    for gpu in 0, 1:
        for process in 0, 1:
            rows = lines_of(out, gpu, process)
            assert [row["UUID"][-1] for row in rows] == [str(gpu)] * len(rows)
            seconds = [int(row["elapsed_seconds"]) for row in rows if row["phase"] != "end"]
            assert seconds == sorted(set(seconds)) and seconds[0] >= 1
            assert [row["phase"] for row in rows].count("end") == 1
    assert len({json.loads(line)["pid"] for line in out.splitlines()}) == 4


def test_aligned_periods_begin_at_multiples_of_wall_time():
    status, out, _ = run("--json", "--on", 1, "--off", 0.5, "--cycles", 2, "--align")
    assert status == 0
    from datetime import datetime
    # The clock of the line is read a little after that of the schedule.
    late = [(datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp() - row["elapsed_seconds"] + 0.002) % 1.5
            for row in lines_of(out)]
    assert min(late) < 0.1


STATUSES = [
    (["1"], None, None, 0, ""),
    (["1"], "mismatch", None, 1, 'msg="wrong results" gpu=1 .*mismatches=7'),
    (["1"], "no-memory", None, 3, 'gpu=1 process=0 error="8192 MiB wanted, 512 MiB free"'),
    (["1"], "crash", None, 3, 'gpu=1 .*error="its process ended with signal 9"'),
    (["1"], "no-driver", None, 3, "libcuda.so.1 is not there"),
    (["-i", "2", "1"], None, None, 2, "there is no GPU '2': the driver shows 2"),
    (["--gpus", "GPU-77", "--duration", "1"], None, None, 2, "there is no GPU 'GPU-77'"),
    (["1"], None, 0, 2, "the driver shows no GPU"),
]


@pytest.mark.parametrize("arguments, load, gpus, status, says", STATUSES)
def test_the_exit_status_is_the_worst_of_all_processes_and_one_line_says_why(arguments, load, gpus, status, says):
    found, _, log = run(*arguments, load=load, gpus=gpus)
    errors = [line for line in log.splitlines() if "level=ERROR" in line]
    assert found == status, log
    assert len(errors) == (1 if status else 0), log
    assert re.search(says, log), log


def test_gpu_burns_last_words_tell_good_from_faulty():
    status, out, _ = run("1", load="mismatch", gpus=3)
    assert status == 1
    assert out.endswith("Tested 3 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n\tGPU 2: OK\n")


def test_a_gpu_is_chosen_by_index_or_uuid():
    for word in "1", "GPU-00000000-0000-0000-0000-000000000001":
        status, out, log = run("--gpus", word, "--duration", 1)
        assert (status, "GPU 1: OK" in out, "GPU 0" in out) == (0, True, False), log


def test_the_list_names_each_gpu_and_ends():
    status, out, _ = run("-l")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["0:", "1:"]


@pytest.mark.parametrize("arguments, says", [
    (["--kind=fp23"], "did you mean 'fp32'"),
    (["--shape=squar"], "did you mean 'square'"),
    (["--shape=square:on=1s"], "needs off"),
    (["--durration=5"], "did you mean '--duration'"),
    (["--memory=lots"], "--memory: expected an amount"),
    (["sixty"], "'sixty': expected a flag or a TIME"),
    (["--listen=nowhere", "--duration=1"], "nowhere"),
])
def test_a_bad_word_is_one_line_and_a_status_of_its_own(arguments, says):
    status, out, log = run(*arguments)
    assert (status, out, log.count("level=ERROR")) == (64, "", 1)
    assert says in log


def test_help_names_every_flag_and_version_is_told():
    status, out, log = run("--help")
    assert (status, log) == (0, "")
    for flag in ("kind", "shape", "on", "off", "cycles", "duration", "util", "align", "memory", "hold", "gpus", "procs",
                 "json", "listen", "cuda-library", "provoke-xid", "m", "d", "tc", "i", "c", "stts"):
        assert re.search(rf"^  --{flag}\b", out, re.M), flag
    assert "--list, -l" in out
    assert run("--version")[1].startswith("podgpu-burn version ")


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_end_it_is_gone_within_a_second_with_all_its_processes(tmp_path, signo):
    with burning(tmp_path, "--procs", 3, gpus=2, processes=6) as (program, pids, _):
        assert ended_promptly(program, signo) == 0
        assert all(gone(pid) for pid in pids)


def test_control_c_reaches_the_whole_group_and_ends_it_in_order(tmp_path):
    with burning(tmp_path, start_new_session=True) as (program, pids, log):
        os.killpg(program.pid, signal.SIGINT)
        assert program.wait(10 * SLOW) == 0
        assert "ERROR" not in log.read_text()
        assert all(gone(pid) for pid in pids)


def test_a_process_that_hangs_in_the_driver_is_killed_within_the_second(tmp_path):
    with burning(tmp_path, load="hang") as (program, pids, log):
        assert ended_promptly(program) == 3
        assert "did not stop and was killed" in log.read_text()
        wait_until(lambda: all(gone(pid) for pid in pids), 5, "children end")


def test_a_killed_parent_takes_its_processes_along(tmp_path):
    with burning(tmp_path) as (program, pids, _):
        program.kill()
        program.wait()
        wait_until(lambda: all(gone(pid) for pid in pids), 5, "children end")


def test_it_ends_when_asked_while_the_driver_does_not_answer(tmp_path):
    with open(tmp_path / "log", "wb") as log:
        program = subprocess.Popen([PROGRAM, "20"], env=environment("hang-list"), stdout=log, stderr=log)
    wait_until(lambda: children(program.pid), 10, "the process that asks")
    asking = children(program.pid)
    assert ended_promptly(program) == 0
    wait_until(lambda: all(gone(pid) for pid in asking), 5, "the process that asks ends")


def test_a_reader_of_stdout_that_sleeps_holds_up_nothing(tmp_path):
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "wb", 0) as pipe:
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        with burning(tmp_path, "--duration", 2, stdout=pipe) as (program, _, log):
            assert program.wait(10 * SLOW) == 0, log.read_text()


def test_a_stdout_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path):
    with open("/dev/full", "wb", 0) as full, burning(tmp_path, "--duration", 3, stdout=full) as (program, _, log):
        assert program.wait(10 * SLOW) == 0
        assert log.read_text().count("level=WARN") == log.read_text().count("cannot write to stdout") == 1


@pytest.mark.parametrize("descriptors", range(5, 14))
def test_few_descriptors_are_enough_or_one_line(descriptors):
    done = subprocess.run([PROGRAM, "--listen", "127.0.0.1:0", "--gpus", "0", "1"], env=environment(), capture_output=True, text=True,
                          timeout=30 * SLOW, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors,) * 2))
    assert done.returncode in (0, 3, 64), done.stderr
    assert done.stderr.count("level=ERROR") == (1 if done.returncode else 0), done.stderr


def test_sigterm_ends_it_though_its_parent_had_it_blocked(tmp_path):
    with burning(tmp_path, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])) as (program, pids, _):
        assert ended_promptly(program) == 0
        assert all(gone(pid) for pid in pids)


def test_no_process_is_left_of_one_that_ends_while_it_asks_the_driver(tmp_path):
    for _ in range(5):
        with open(tmp_path / "log", "wb") as log:
            program = subprocess.Popen([PROGRAM, "20"], env=environment("hang-list"), stdout=log, stderr=log)
        wait_until(lambda: children(program.pid), 10, "the process that asks")
        asking = children(program.pid)
        assert ended_promptly(program) == 0
        assert all(gone(pid) for pid in asking)


def test_what_is_wanted_is_the_schedules_though_a_process_stands_still(tmp_path):
    with burning(tmp_path, "--json", "--on", 1.5, "--off", 1, gpus=1, processes=1) as (program, pids, _):
        rows = lambda: lines_of((tmp_path / "out").read_text())  # noqa: E731
        wait_until(lambda: rows(), 10, "a line")
        os.kill(pids[0], signal.SIGSTOP)
        wait_until(lambda: len(rows()) >= 5, 20, "lines")
        for row in rows():
            on = row["elapsed_seconds"] % 2.5 < 1.5
            assert (row["phase"], row["duty_ratio"]) == (("on", 1) if on else ("off", 0)), row
        assert ended_promptly(program) == 3
        assert all(gone(pid) for pid in pids)


def listening_port(log):
    return int(wait_until(lambda: re.search(r"msg=listening.* port=(\d+)", log.read_text()), 10, "listens")[1])


def test_metrics_are_the_record_and_promtool_accepts_them(tmp_path):
    with burning(tmp_path, "--kind", "tf32", "--on", 3600, "--off", 1, "--util", "50%", "--listen", "127.0.0.1:0",
                 "--procs", 2, processes=4) as (program, _, log):
        url = f"http://127.0.0.1:{listening_port(log)}"

        def page():
            with urllib.request.urlopen(f"{url}/metrics", timeout=10 * SLOW) as answer:
                return Page(answer.read().decode())

        def running():
            found = page()
            return found if found.value("podgpu_burn_running", gpu="1", process="1") == 1 else None
        first = wait_until(running, 10, "load runs")
        later = wait_until(lambda: (p := page()).value("podgpu_burn_busy_seconds_total", gpu="0", process="0") > 0.2 and p,
                           10, "load is booked")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/", timeout=10 * SLOW)
        assert ended_promptly(program) == 0
    judged = subprocess.run(["promtool", "check", "metrics"], input=later.text, text=True, capture_output=True)
    assert (judged.returncode, judged.stderr) == (0, "")
    assert later.order == first.order == [
        "podgpu_burn_info", "podgpu_burn_running", "podgpu_burn_phase", "podgpu_burn_duty_ratio",
        "podgpu_burn_scheduled_seconds_total", "podgpu_burn_busy_seconds_total", "podgpu_burn_operations_total",
        "podgpu_burn_rounds_total", "podgpu_burn_mismatches_total", "podgpu_burn_memory_bytes"]
    one = {"gpu": "0", "process": "1", "UUID": "GPU-00000000-0000-0000-0000-000000000000"}
    assert later.value("podgpu_burn_info", kind="tf32", model='Scripted "X1"', **one) == 1
    assert later.value("podgpu_burn_phase", **one) == 1
    assert later.value("podgpu_burn_duty_ratio", **one) == 0.5
    assert later.value("podgpu_burn_memory_bytes", **one) == 1 << 30
    assert later.value("podgpu_burn_busy_seconds_total", **one) <= later.value("podgpu_burn_scheduled_seconds_total", **one) + 1e-6
    assert later.value("podgpu_burn_operations_total", **one) == pytest.approx(
        later.value("podgpu_burn_busy_seconds_total", **one) * 1e13, rel=1e-1)

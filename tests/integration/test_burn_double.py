"""podgpu-burn as it is shipped, on the double of NVIDIA's libcuda: what it says is what the double was given to do."""
import json
import re
import signal
import subprocess
import time

import pytest

from harness import BUILD, SLOW, Page, wait_until

pytestmark = pytest.mark.faults
PROGRAM = BUILD / "podgpu-burn"
UUIDS = ["GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", "GPU-0b1f3a52-9d0e-4c4f-8f3a-64c1d2a7e501"]
KINDS = ["fp32", "fp64", "fp16", "bf16", "tf32", "int32", "dram", "pcie-h2d", "pcie-d2h", "pcie-both"]


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("burn", kubelet=False) as simulated:
        yield simulated


def run(node, *arguments, seconds=30, **env):
    """To its end: (status, stdout, stderr)."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], env={**node.env, **env}, capture_output=True, text=True,
                          timeout=seconds * SLOW)
    return done.returncode, done.stdout, done.stderr


def rows_of(text, gpu):
    return [row for row in map(json.loads, text.splitlines()) if row["gpu"] == gpu]


@pytest.mark.smoke
def test_the_list_is_what_the_driver_shows(node):
    status, out, _ = run(node, "-l")
    assert status == 0
    assert out.splitlines() == [f"{i}: NVIDIA A10G {UUIDS[i]} 22731 MiB" for i in (0, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_makes_right_results_on_every_gpu(node, kind):
    status, out, log = run(node, "--kind", kind, "--memory", "256MiB", "--duration", 2, "--json")
    assert status == 0, log
    for gpu in 0, 1:
        last = rows_of(out, gpu)[-1]
        assert (last["phase"], last["result"], last["error"], last["kind"]) == ("end", 0, "", kind)
        assert last["mismatches"] == 0 and last["rounds"] > 0 and last["operations"] > 0


def test_the_driver_is_found_by_its_bare_name_too(node, tmp_path):
    (tmp_path / "libcuda.so").symlink_to(BUILD / "sim" / "libcuda.so.1")
    status, out, log = run(node, "-l", LD_LIBRARY_PATH=str(tmp_path))
    assert (status, len(out.splitlines())) == (0, 2), log


def test_gpus_that_reach_each_other_copy_to_one_another():
    import run_node
    with run_node.SimNode("h100x8", kubelet=False) as simulated:
        status, out, log = run(simulated, "--kind", "peer", "--gpus", "0,1", "--memory", "256MiB", "--duration", 2, "--json")
        assert status == 0, log
        for gpu in 0, 1:
            last = rows_of(out, gpu)[-1]
            assert last["mismatches"] == 0 and last["rounds"] > 0 and last["operations"] > 0


@pytest.mark.smoke
def test_the_square_on_record_is_the_one_asked_for(node):
    status, out, log = run(node, "--on", 1, "--off", 1, "--cycles", 2, "--memory", "256MiB", "--json")
    assert status == 0, log
    for gpu in 0, 1:
        rows = rows_of(out, gpu)
        for row in rows:
            whole, rest = divmod(min(row["elapsed_seconds"], 4), 2)
            assert row["scheduled_seconds"] == pytest.approx(whole + min(rest, 1), abs=2e-6)
            # Work in one piece of at most 50 ms may be booked before or after its time.
            assert row["busy_seconds"] <= row["scheduled_seconds"] + 0.05
        assert rows[-1]["busy_seconds"] > 1  # of 2; less than all where this machine did not come to it
        assert rows[-1]["UUID"] == UUIDS[gpu]
        assert rows[-1]["memory_bytes"] == 0


def test_held_memory_is_what_was_asked_for(node):
    status, out, log = run(node, "--on", 1, "--off", 2, "--cycles", 1, "--mem", "512MiB", "--hold", "--gpus", 1, "--json")
    assert status == 0, log
    off = [row for row in rows_of(out, 1) if row["phase"] == "off"]
    assert [row["memory_bytes"] for row in off] == [512 << 20] * len(off)
    assert rows_of(out, 0) == []


@pytest.mark.smoke
@pytest.mark.parametrize("arguments, env, status, says", [
    (["--memory", "900GiB", "--duration", "1", "-i", "0"], {}, 3, "921600 MiB"),
    (["-i", "2", "1"], {}, 2, "there is no GPU '2': the driver shows 2"),
    (["--gpus", "GPU-0", "--duration", "1"], {}, 2, "there is no GPU 'GPU-0'"),
    (["--cuda-library", "/nowhere/libcuda.so.1", "1"], {}, 3, "/nowhere/libcuda.so.1"),
    (["--kind", "peer", "--duration", "1", "--gpus", "0"], {}, 3, "cannot reach each other's memory"),
    (["--cuda-library", __file__, "1"], {}, 3, "invalid ELF header"),
    (["1"], {"LD_LIBRARY_PATH": ""}, 3, "libcuda.so.1 not found"),
    (["--kind", "tensor"], {}, 64, "unknown kind 'tensor'"),
    (["--shape", "triangle:period=5s"], {}, 64, "unknown shape 'triangle'"),
    (["--shape", "sine:length=5s"], {}, 64, "length"),
    (["--gpu", "0"], {}, 64, "did you mean '--gpus'"),
    (["--memory", "8GB"], {}, 64, "expected an amount such as 8GiB"),
    (["--cycles", "3"], {}, 64, "constant load has no periods"),
    (["--listen", "127.0.0.1:99999"], {}, 64, "127.0.0.1:99999"),
])
def test_what_cannot_be_done_is_one_line_and_its_status(node, arguments, env, status, says):
    found, _, log = run(node, *arguments, **env)
    errors = [line for line in log.splitlines() if "level=ERROR" in line]
    assert (found, len(errors)) == (status, 1), log
    assert says in errors[0]


@pytest.mark.smoke
@pytest.mark.parametrize("arguments, gpus, kind", [
    (["-d", "-m", "10%", "2"], [0, 1], "fp64"),
    (["2", "-tc", "-m", "512", "-i", "1"], [1], "fp16"),
    (["-i0", "-m5%", "-stts", "30", "-c", "compare.ptx", "2"], [0], "fp32"),
])
def test_gpu_burns_own_command_lines_end_in_its_own_words(node, arguments, gpus, kind):
    begun = time.monotonic()
    status, out, log = run(node, *arguments)
    assert status == 0, log
    assert time.monotonic() - begun < 20 * SLOW  # without the half minute of -stts
    assert out.endswith(f"Tested {len(gpus)} GPUs:\n" + "".join(f"\tGPU {i}: OK\n" for i in gpus))
    assert re.search(rf"\bkind={kind}\b", log)


def test_sigterm_ends_it_within_a_second_and_its_metrics_were_the_record(node, tmp_path):
    import urllib.request
    log = tmp_path / "log"
    with open(log, "wb") as log_file:
        program = subprocess.Popen([PROGRAM, "--listen", "127.0.0.1:0", "--procs", "2", "--memory", "256MiB"], env=node.env,
                                   stdout=log_file, stderr=log_file)
    try:
        port = int(wait_until(lambda: re.search(r"msg=listening.* port=(\d+)", log.read_text()), 10, "listens")[1])

        def busy():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10 * SLOW) as answer:
                page = Page(answer.read().decode())
            samples = page.samples("podgpu_burn_busy_seconds_total")
            assert [labels["UUID"] for labels, _ in samples] == [UUIDS[0]] * 2 + [UUIDS[1]] * 2
            return all(float(value) > 0.1 for _, value in samples) and page
        page = wait_until(busy, 20, "all processes work")
        assert page.value("podgpu_burn_duty_ratio", gpu="0", process="1") == 1
        begun = time.monotonic()
        program.send_signal(signal.SIGTERM)
        assert program.wait(10 * SLOW) == 0, log.read_text()
        assert time.monotonic() - begun < 1 + 2 * SLOW
        assert node.node.processes() == []  # no context, so no kernel
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()
    judged = subprocess.run(["promtool", "check", "metrics"], input=page.text, text=True, capture_output=True)
    assert (judged.returncode, judged.stderr) == (0, "")

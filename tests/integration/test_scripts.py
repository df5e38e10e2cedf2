# SPDX-License-Identifier: Apache-2.0
"""The scripts people start: the demo, the check on a real GPU, the tally of script/test."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from harness import BUILD, ROOT, SLOW, wait_until

SCRIPT = ROOT / "script"
ENV = dict(os.environ, PODGPU_BUILD=str(BUILD))


def script(name, *arguments, seconds=60, **more):
    return subprocess.run([SCRIPT / name, *map(str, arguments)], capture_output=True, text=True, env=ENV,
                          stdin=subprocess.DEVNULL, timeout=seconds * SLOW, check=False, **more)


def children(pid):
    """All processes below one, as pids."""
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children(child)]
    return found


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def demo(tmp_path, *arguments):
    """A demo that runs: yields (process, its output so far, its URL)."""
    out = tmp_path / "demo.out"

    def as_from_a_terminal():
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(out, "w") as stdout:
        process = subprocess.Popen([SCRIPT / "demo", "--port", "0", *arguments], env=ENV, stdin=subprocess.DEVNULL,
                                   stdout=stdout, stderr=subprocess.STDOUT, preexec_fn=as_from_a_terminal)
    try:
        def told():
            assert process.poll() is None, out.read_text()
            return re.search(r"^  metrics +(http://127\.0\.0\.1:\d+)/metrics\n(?:.*\n)*  (Ctrl-C ends it|It ends by)",
                             out.read_text(), re.M)
        yield process, out, wait_until(told, 30, "the demo tells where to look")[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# --- script/demo ---

@pytest.mark.smoke
def test_the_demo_tells_where_to_look_shows_its_gpus_and_ends_with_status_0():
    done = script("demo", "--port", 0, "--seconds", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^podgpu-exporter runs on the simulated node 'demo':$", done.stdout, re.M)
    assert re.search(r"^  metrics    http://127\.0\.0\.1:\d+/metrics$", done.stdout, re.M)
    assert re.search(r"^    GPU 0 .* kube-system/gpu-burn-[a-z0-9-]+/main .* MiB, \d+ W, \d+ % busy$", done.stdout, re.M)
    assert len(re.findall(r"^    GPU \d ", done.stdout, re.M)) == 4
    assert "It ends by itself in 1 s." in done.stdout


def test_the_demo_of_a_shared_gpu_shows_what_each_pod_used_of_it():
    done = script("demo", "--scenario", "timeslice", "--port", 0, "--seconds", 0, "--cloudwatch", seconds=90)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = re.findall(r"^    GPU 0 +default/([\w-]+)/main +25\.0% of it, busy (\d+\.\d{3}) s so far$", done.stdout, re.M)
    assert [pod for pod, _ in shown] == ["idle-d", "infer-a", "infer-b", "infer-c"]
    assert float(shown[0][1]) == 0 and sum(float(seconds) for _, seconds in shown) > 0
    assert re.search(r"curl -s http://127\.0\.0\.1:\d+/metrics \| grep \^podgpu_container_gpu_busy_seconds_total$", done.stdout, re.M)
    told = done.stdout.split("of each pod on a shared GPU")[1]
    events = [json.loads(line) for line in re.findall(r"^    (\{.*\})$", told, re.M)]
    assert sorted(e["pod"] for e in events) == ["idle-d", "infer-a", "infer-b", "infer-c"]
    assert all(e["podgpu_container_gpu_busy_seconds_total"] >= 0 for e in events)


def test_the_demo_counts_devices_that_it_has_no_numbers_of(tmp_path):
    rows = tmp_path / "counters.csv"
    rows.write_text("DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, s\n")
    with demo(tmp_path, "--scenario", "dcgm-fabric", "--", "-f", str(rows)) as (_, out, _):
        text = out.read_text()
        assert "no device" not in text and re.search(r"^    GPU +2 on the page$", text, re.M)


def test_its_page_is_there_and_ctrl_c_ends_all_of_it(tmp_path):
    with demo(tmp_path, "--scenario", "post") as (process, out, url):
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            assert "DCGM_FI_DEV_GPU_UTIL{" in answer.read().decode()
        below = children(process.pid)
        assert len(below) >= 3  # the exporter, its helper, the kubelet
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(10 * SLOW) == 0, out.read_text()
        wait_until(lambda: not any(map(is_running, below)), 5, "nothing is left")
        assert "Traceback" not in out.read_text()


def test_the_demo_tells_its_own_port_beside_an_admin_address(tmp_path):
    with demo(tmp_path, "--", f"--admin-address=unix:{tmp_path}/admin.sock", "--log-format", "json") as (_, _, url):
        assert url.startswith("http://127.0.0.1:") and not url.endswith(":0")


def test_sigterm_to_the_demo_alone_ends_all_of_it(tmp_path):
    with demo(tmp_path) as (process, out, _):
        below = children(process.pid)
        process.terminate()
        assert process.wait(10 * SLOW) == 0, out.read_text()
        wait_until(lambda: not any(map(is_running, below)), 5, "nothing is left")


def test_an_unknown_scenario_is_named_beside_the_known_ones():
    done = script("demo", "--scenario", "nope")
    assert done.returncode == 2
    assert "script/demo: error: no scenario 'nope'; there are: " in done.stderr
    assert {"demo", "h100x8", "mig", "post", "timeslice"} <= set(re.findall(r"[\w-]+", done.stderr.split("there are:")[1]))


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = script("demo", "--port", port, "--seconds", 1)
    assert done.returncode == 1
    assert f"cannot listen on '127.0.0.1:{port}': Address already in use" in done.stderr
    assert "demo: podgpu-exporter ended with status 1" in done.stdout


def test_arguments_behind_two_dashes_go_to_the_exporter(tmp_path):
    with demo(tmp_path, "--", "--podgpu-families", "none") as (_, _, url):
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            page = answer.read().decode()
    assert "DCGM_FI_DEV_GPU_UTIL{" in page and "podgpu_gpu_up" not in page


def test_the_demo_on_the_posts_node_with_dcgm_shows_the_posts_page_whole(tmp_path):
    def lines(text):
        return {re.sub(r',(pci_bus_id|err_code|err_msg)="[^"]*"', "", line) for line in text.splitlines()
                if line.startswith("DCGM_FI_")}

    def page():
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            return lines(answer.read().decode())

    want = lines((ROOT / "tests" / "blog" / "metrics.txt").read_text())
    assert len(want) == 23
    with demo(tmp_path, "--scenario", "post-dcgm", "--", "--hostname-label=Hostname") as (_, _, url):
        wait_until(lambda: len(page()) >= len(want), 30, "profiling values")
        assert page() == want


@pytest.mark.parametrize("scenario", sorted(p.stem for p in (ROOT / "sim" / "scenarios").glob("*.yaml")
                                            if p.stem != "models"))
def test_each_scenario_can_be_shown(scenario):
    done = script("demo", "--scenario", scenario, "--port", 0, "--seconds", 0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"^    GPU \d", done.stdout, re.M)


# --- script/gpu-check ---

def test_without_a_gpu_the_check_says_so_with_status_0(tmp_path):
    """nvidia-smi is not there, or there and without a GPU."""
    path = tmp_path / "bin"
    path.mkdir()
    for name in ("env", "bash", "dirname"):
        (path / name).symlink_to(shutil.which(name))
    for smi in (None, "#!/bin/bash\necho 'NVIDIA-SMI has failed'\nexit 9\n"):
        if smi:
            (path / "nvidia-smi").write_text(smi)
            (path / "nvidia-smi").chmod(0o755)
        done = subprocess.run([SCRIPT / "gpu-check"], capture_output=True, text=True, env={"PATH": str(path)}, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "gpu-check: no NVIDIA GPU here, nothing checked (skipped)\n"


def test_the_demo_with_cloudwatch_shows_an_event_that_arrived(tmp_path):
    done = script("demo", "--port", "0", "--seconds", "3", "--cloudwatch", seconds=90)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.split("One event, as CloudWatch Logs has it:\n    ")[1].splitlines()[0]
    event = json.loads(shown)
    [directive] = event["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "ContainerInsights/Prometheus"
    assert "DCGM_FI_DEV_GPU_UTIL" in {m["Name"] for m in directive["Metrics"]} and event["ClusterName"] == "demo"
    assert event["pod"] and event["namespace"] == event["Namespace"]


# --- script/test ---

def test_an_unknown_lane_or_build_is_refused_before_anything_is_done():
    for name, word in (("test", "nope"), ("build", "--nope")):
        done = script(name, word)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith(f"script/{name}: no lane 'nope'" if name == "test" else "usage: script/build")


JUNIT = '<testsuites><testsuite tests="9" failures="{f}" errors="{e}" skipped="2"></testsuite></testsuites>'
AGAIN = '<testsuites><testsuite tests="{n}" failures="{f}" errors="0" skipped="0"></testsuite></testsuites>'
MESON = '{{"name": "a", "result": "OK"}}\n{{"name": "b", "result": "SKIP"}}\n{{"name": "c", "result": "{r}"}}\n'


@pytest.mark.parametrize("stages,says,status", [
    ([("build", 0, "-"), ("units", 0, MESON.format(r="OK")), ("programs", 0, JUNIT.format(f=0, e=0))],
     "10 passed, 0 failed, 3 skipped", 0),
    ([("units", 1, MESON.format(r="FAIL"))], "1 passed, 1 failed, 1 skipped", 1),
    ([("units", 1, MESON.format(r="TIMEOUT"))], "1 passed, 1 failed, 1 skipped", 1),
    ([("programs", 1, JUNIT.format(f=2, e=1))], "4 passed, 3 failed, 2 skipped", 1),
    ([("programs", 3, JUNIT.format(f=0, e=0))], "7 passed, 1 failed, 2 skipped", 1),
    ([("build", 1, "-")], "0 passed, 1 failed, 0 skipped", 1),
    ([("build", 0, "-"), ("programs", 124, "")], "1 passed, 1 failed, 0 skipped", 1),
    ([("build", 0, "-"), ("programs", 0, None)], "1 passed, 1 failed, 0 skipped", 1),
    ([], "0 passed, 0 failed, 0 skipped", 1),
    # What was run again alone: passed there counts, failed there stays a failure.
    ([("programs", 1, JUNIT.format(f=2, e=0)), ("plain again", 0, AGAIN.format(n=2, f=0))],
     "7 passed, 0 failed, 2 skipped", 0),
    ([("programs", 1, JUNIT.format(f=2, e=0)), ("plain again", 1, AGAIN.format(n=2, f=1))],
     "6 passed, 1 failed, 2 skipped", 1),
    ([("programs", 1, JUNIT.format(f=2, e=0)), ("plain again", 124, "")], "5 passed, 2 failed, 2 skipped", 1),
])
def test_the_tally_counts_what_failed_and_what_could_not_run(tmp_path, stages, says, status):
    lines = []
    for i, (name, code, result) in enumerate(stages):
        path = tmp_path / f"{i}{'.json' if name == 'units' else '.xml'}"
        if result not in ("-", None):
            path.write_text(result)
        lines.append(f"{name}\t{code}\t{'-' if result == '-' else path}\n")
    (tmp_path / "stages.tsv").write_text("".join(lines))
    done = subprocess.run([sys.executable, SCRIPT / "tally.py", tmp_path / "stages.tsv"], capture_output=True, text=True,
                          check=False)
    assert (done.stdout, done.stderr, done.returncode) == (says + "\n", "", status)


def test_what_failed_is_named_so_that_it_can_be_run_again(tmp_path):
    test = tmp_path / "tests" / "test_x.py"
    test.parent.mkdir()
    test.write_text("import pytest\nclass TestA:\n    @pytest.mark.parametrize('p', ['a b', 'c::d'])\n"
                    "    def test_in(self, p): assert p != 'a b'\ndef test_f(): assert False\ndef test_g(): pass\n")
    def run(*args):
        return subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1",
                               f"--junitxml={tmp_path}/r.xml", *args], cwd=tmp_path, capture_output=True, check=False)
    def failed():
        return subprocess.run([sys.executable, SCRIPT / "tally.py", "--failed", tmp_path / "r.xml"], capture_output=True,
                              text=True, check=True).stdout.splitlines()
    run("tests")
    names = failed()
    assert names == ["tests/test_x.py::TestA::test_in[a b]", "tests/test_x.py::test_f"]
    run(*names)
    assert failed() == names
    run("tests/test_x.py::test_g")
    assert failed() == []


# --- All of them ---

def test_every_script_is_executable_and_parses():
    for path in SCRIPT.iterdir():
        first = path.read_text().split("\n", 1)[0] if path.is_file() else ""
        if first.startswith("#!"):
            assert os.access(path, os.X_OK), path
        if "bash" in first:
            assert subprocess.run(["bash", "-n", path], check=False).returncode == 0, path
        assert "python3" not in first or first == "#!/usr/bin/python3", path
    assert subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=False).returncode == 0

# SPDX-License-Identifier: Apache-2.0
"""podgpu-exporter --doctor: each fault of a node has its line and its status, and a healthy node has none."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import time

import pytest

from harness import BUILD, ROOT, SLOW, exporter_at
from test_pod_labels import kubeconfig

from apiserver import ApiServer  # noqa: E402  (sim/ is on the path by harness)

pytestmark = pytest.mark.faults

CHECKS = ["counters", "flags", "driver", "device files", "gpu 0", "gpus", "profiling", "dcgm", "xid events", "kernel log",
          "kubelet", "device ids", "own pod", "pods api", "pod logs", "api pods", "api slices", "node name", "process ids",
          "cgroups", "web config", "address", "admin address"]
POD_UID = "0c6a4e6e-8f6e-4f7e-9d0b-1f2e3d4c5b6a"


def fake_proc(folder):
    """A node's /proc: the kernel's own process, and one of a pod."""
    proc = pathlib.Path(folder) / "proc"
    cgroups = {1: "0::/init.scope", 2: "0::/",
               4711: f"0::/kubepods.slice/kubepods-pod{POD_UID.replace('-', '_')}.slice/cri-containerd-{'a' * 64}.scope"}
    for pid, cgroup in cgroups.items():
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(cgroup + "\n")
        name = "kthreadd" if pid == 2 else "python"
        (proc / str(pid) / "comm").write_text(name + "\n")
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 " + " ".join(["0"] * 17) + f" {pid}00 0 0\n")
    return proc


@pytest.fixture(scope="module")
def healthy():
    import run_node
    with run_node.SimNode("post-dcgm") as n:
        yield n


@pytest.fixture(scope="module")
def plain():
    """A node whose counters NVML gives alone: no DCGM is needed."""
    import run_node
    with run_node.SimNode("post") as n:
        yield n


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log" / "pods").mkdir(parents=True)
    fake_proc(tmp_path)
    (tmp_path / "counters.csv").write_text("DCGM_FI_DEV_GPU_TEMP, gauge, t\n")
    return tmp_path


def doctor(node, folder, *flags, env=None, launcher=(), words=None, seconds=20):
    """(status, {check: object}, names in order)"""
    base = ["--doctor", "--log-format=json", "-k", "-a", "127.0.0.1:0", "-f", folder / "counters.csv", "--nvml-library",
            node.nvml_library, "--kmsg-path", node.kmsg_path, "--pod-resources-kubelet-socket", node.socket,
            "--proc-path", folder / "proc", "--pod-log-path", folder / "log", "--pods-api-socket", folder / "pods-api.sock"]
    full = {k: v for k, v in os.environ.items() if not k.startswith(("DCGM_", "NVIDIA_", "NODE_NAME", "KUBE", "POD_"))}
    full.update({"SIM_NODE": node.env["SIM_NODE"], "NODE_NAME": node.node_name}, **(env or {}))
    begun = time.monotonic()
    run = subprocess.run([*launcher, BUILD / "podgpu-exporter", *map(str, words or [*base, *flags])], env=full,
                         stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLOW)
    assert time.monotonic() - begun < seconds * SLOW, "it must end within 20 s whatever hangs"
    rows = [json.loads(line) for line in run.stdout.decode().splitlines()]
    assert rows, run.stderr.decode()
    for row in rows:
        assert set(row) == ({"level", "check", "detail"} | (set() if row["level"] == "ok" else {"costs", "mend"})), row
        assert all(row.values()), row
    assert run.returncode == int(any(row["level"] == "FAIL" for row in rows))
    return run.returncode, {row["check"]: row for row in rows}, [row["check"] for row in rows]


def faults(rows):
    return {name: row["level"] for name, row in rows.items() if row["level"] != "ok"}


# --- Nothing is wrong ---

def test_a_healthy_node_has_no_fault_and_status_0(plain, folder):
    status, rows, order = doctor(plain, folder)
    assert (status, faults(rows)) == (0, {}), rows
    assert order == CHECKS
    assert rows["gpu 0"]["detail"].startswith("NVIDIA A10G, GPU-")
    assert plain.nvml_library in rows["driver"]["detail"]
    assert "1 device ids of GPUs" in rows["kubelet"]["detail"]
    assert rows["cgroups"]["detail"] == "1 of 3 processes belong to pods"


def test_all_that_dcgm_gives_is_there(healthy, folder):
    shutil.copy(healthy.counters, folder / "counters.csv")
    status, rows, order = doctor(healthy, folder, env={"LD_LIBRARY_PATH": healthy.env["LD_LIBRARY_PATH"]})
    assert (status, faults(rows), order) == (0, {}, CHECKS), rows
    assert "DCGM 4.6.1, engine embedded" in rows["dcgm"]["detail"]


def test_lines_are_text_by_default(plain, folder):
    run = subprocess.run([BUILD / "podgpu-exporter", "--doctor", "-a", "127.0.0.1:0", "-f", folder / "counters.csv",
                          "--nvml-library", plain.nvml_library, "--kmsg-path", plain.kmsg_path],
                         env={**os.environ, "SIM_NODE": plain.env["SIM_NODE"]}, capture_output=True, text=True, timeout=60 * SLOW)
    lines = run.stdout.splitlines()
    assert (run.returncode, run.stderr) == (0, "")
    assert [line[6:].split("  ")[0] for line in lines] == CHECKS
    assert lines[10] == "ok    kubelet             not asked for: without --kubernetes"


# --- One fault each ---

def test_counters_with_a_mistake(plain, folder):
    (folder / "counters.csv").write_text("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_GPU_TEMPO, gauge, t\n")
    status, rows, _ = doctor(plain, folder)
    assert status == 1 and rows["counters"]["level"] == "FAIL"
    assert "counters.csv:2:1" in rows["counters"]["detail"] and "DCGM_FI_DEV_GPU_TEMP" in rows["counters"]["detail"]


def test_no_driver_library(plain, folder):
    status, rows, _ = doctor(plain, folder, "--nvml-library", folder / "nothing.so.1")
    assert status == 1 and rows["driver"]["level"] == rows["gpus"]["level"] == "FAIL"
    assert "no_library" in rows["driver"]["detail"] and "runtimeClassName: nvidia" in rows["driver"]["mend"]


@pytest.mark.parametrize("code, state", [(12, "no_library"), (9, "no_driver"), (4, "no_permission"), (18, "mismatch"), (999, "failed")])
def test_what_the_library_says_at_its_start(folder, code, state):
    import run_node
    with run_node.SimNode("post") as node:
        node.node.command(f"set driver.init_return={code}")
        status, rows, _ = doctor(node, folder)
    assert status == 1 and rows["driver"]["level"] == "FAIL", rows
    assert rows["driver"]["detail"].startswith(state), rows["driver"]


def test_a_gpu_that_hangs(folder):
    import run_node
    with run_node.SimNode("demo") as node:
        node.node.command("fault nvmlDeviceGetTemperature hang gpu=1")
        status, rows, _ = doctor(node, folder)
        node.node.command("fault clear")
    assert status == 1
    assert [name for name, row in rows.items() if row["level"] == "FAIL"] == ["gpu 1"], faults(rows)
    assert "nvmlDeviceGetTemperature" in rows["gpu 1"]["detail"] and "hung" in rows["gpu 1"]["detail"]


def test_a_driver_that_hangs_as_a_whole(folder):
    import run_node
    with run_node.SimNode("post") as node:
        node.node.command("fault * hang")
        status, rows, _ = doctor(node, folder)
        node.node.command("fault clear")
    assert status == 1 and "does not answer: hung in nvml" in rows["driver"]["detail"], rows["driver"]


def test_a_gpu_that_is_not_there(plain, folder):
    status, rows, _ = doctor(plain, folder, "-d", "g:5")
    assert status == 1 and rows["gpus"]["level"] == "FAIL" and "5" in rows["gpus"]["detail"]


def test_profiling_without_dcgm(plain, folder):
    (folder / "counters.csv").write_text("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, t\n")
    (folder / "proc" / "driver" / "nvidia").mkdir(parents=True)
    (folder / "proc" / "driver" / "nvidia" / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    status, rows, _ = doctor(plain, folder)
    assert status == 1 and rows["profiling"]["level"] == rows["dcgm"]["level"] == "FAIL"
    assert "no_library" in rows["dcgm"]["detail"]
    assert rows["profiling"]["detail"].endswith("the driver's admin-only switch: on")


def test_no_kernel_log(plain, folder):
    status, rows, _ = doctor(plain, folder, "--kmsg-path", folder / "nothing")
    assert (status, faults(rows)) == (0, {"kernel log": "warn"})


def test_no_kubelet_socket(plain, folder):
    status, rows, _ = doctor(plain, folder, "--pod-resources-kubelet-socket", folder / "nothing.sock")
    assert status == 1 and rows["kubelet"]["level"] == "FAIL" and "the directory, not the socket" in rows["kubelet"]["mend"]


@pytest.mark.skipif(os.geteuid() != 0, reason="lowers its own rights")
def test_a_kubelet_socket_that_is_not_ours(plain, folder):
    """Another user may not connect, and is told to be root."""
    path = folder / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen()
        os.chmod(path, 0o600)
        for parent in [*folder.parents][:3]:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
        folder.chmod(0o755)
        status, rows, _ = doctor(plain, folder, "--pod-resources-kubelet-socket", path,
                                 launcher=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
    assert status == 1 and "ermission denied" in rows["kubelet"]["detail"], rows["kubelet"]
    assert rows["kubelet"]["mend"].startswith("runAsUser: 0")


def test_a_kubelet_that_is_silent(plain, folder):
    path = folder / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))
        s.listen()
        status, rows, _ = doctor(plain, folder, "--pod-resources-kubelet-socket", path)
    assert status == 1 and rows["kubelet"]["level"] == "FAIL"
    assert "why the kubelet does not answer" in rows["kubelet"]["mend"], rows["kubelet"]


def test_ids_that_name_no_device(folder):
    import run_node
    with run_node.SimNode("post") as node:
        node.node.command("pods add stray namespace=default container=main resource=nvidia.com/gpu device=GPU-00000000-1111-2222-3333-444444444444")
        status, rows, _ = doctor(node, folder)
    assert status == 1 and rows["device ids"]["level"] == "FAIL" and rows["device ids"]["detail"].startswith("1 of 2")


def test_our_own_pod_holds_a_gpu(plain, folder):
    pod, namespace = next((p["name"], p["namespace"]) for p in plain.node.pods()
                          if any(d for c in p["containers"] for d in c["devices"]))
    status, rows, _ = doctor(plain, folder, env={"POD_NAME": pod, "POD_NAMESPACE": namespace})
    assert (status, faults(rows)) == (0, {"own pod": "warn"}), rows["own pod"]


def test_processes_of_this_container_alone(plain, folder):
    shutil.rmtree(folder / "proc" / "2")
    status, rows, _ = doctor(plain, folder, "--proc-path", folder / "nothing")
    assert (status, faults(rows)) == (0, {"process ids": "warn"})
    assert rows["process ids"]["mend"] == "hostPID: true"


def test_no_cgroup_of_a_pod(plain, folder):
    shutil.rmtree(folder / "proc" / "4711")
    status, rows, _ = doctor(plain, folder)
    assert (status, faults(rows)) == (0, {"cgroups": "warn"})


def test_no_names_of_pods(plain, folder):
    status, rows, _ = doctor(plain, folder, "--pod-log-path", folder / "nothing")
    assert (status, faults(rows)) == (0, {"pod logs": "warn"})


def test_a_kubelet_whose_calls_are_used_up(folder):
    import run_node
    with run_node.SimNode("post") as node:
        node.node.command("set kubelet.rate_limited=1")
        status, rows, _ = doctor(node, folder)
    assert (status, faults(rows)) == (1, {"kubelet": "FAIL"}), rows["kubelet"]
    assert rows["kubelet"]["mend"].startswith("let other clients ask less often")


def test_profiling_for_administrators_alone(folder):
    import run_node
    (folder / "counters.csv").write_text("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, t\n")
    with run_node.SimNode("h100x8") as node:
        status, rows, _ = doctor(node, folder)
        assert (status, rows["profiling"]["level"]) == (0, "ok"), rows["profiling"]
        node.node.command("fault nvmlGpmSampleGet return=4")
        status, rows, _ = doctor(node, folder)
    assert (status, rows["profiling"]["level"]) == (1, "FAIL"), rows["profiling"]
    assert "no_permission" in rows["profiling"]["detail"] and "SYS_ADMIN" in rows["profiling"]["mend"]


def test_the_kubelets_pods_api_is_asked(plain, folder):
    import run_node
    with run_node.SimNode("timeslice") as node:
        node.node.command("set kubelet.pods_api=1")
        node.wait_until(lambda: os.path.exists(node.pods_api_socket))
        status, rows, _ = doctor(node, folder, "--pods-api-socket", node.pods_api_socket, "--pod-log-path", folder / "nothing")
        assert (status, faults(rows)) == (0, {}), rows
        assert rows["pods api"]["detail"] == f"{node.pods_api_socket} answers: 4 pods"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(folder / "silent.sock"))
        s.listen()
        status, rows, _ = doctor(plain, folder, "--pods-api-socket", folder / "silent.sock")
    assert (status, faults(rows)) == (0, {"pods api": "warn"}), rows["pods api"]


# --- The API server ---

@pytest.fixture
def api():
    server = ApiServer()
    yield server
    with contextlib.suppress(OSError):
        server.stop()


def test_the_api_server_gives_and_refuses_pods(plain, folder, api):
    flags = ("--kubernetes-enable-pod-labels", "--kubeconfig", kubeconfig(folder, api.url))
    status, rows, _ = doctor(plain, folder, *flags)
    assert (status, rows["api pods"]["level"]) == (0, "ok"), rows["api pods"]
    api.deny("pods", "list")
    status, rows, _ = doctor(plain, folder, *flags)
    assert (status, faults(rows)) == (1, {"api pods": "FAIL"})
    assert "403" in rows["api pods"]["detail"] or "forbidden" in rows["api pods"]["detail"].lower()
    assert "deploy/pod-labels.yaml" in rows["api pods"]["mend"]


def test_labels_are_asked_for_outside_a_cluster(plain, folder):
    status, rows, _ = doctor(plain, folder, "--kubernetes-enable-pod-uid", env={"NODE_NAME": ""})
    assert (status, faults(rows)) == (1, {"api pods": "FAIL", "node name": "FAIL"})


@pytest.mark.parametrize("versions", [("v1", "v1beta2", "v1beta1"), ("v1beta1",)])
def test_slices_are_asked_for_in_the_version_that_the_server_has(plain, folder, versions):
    server = ApiServer(slice_versions=versions)
    try:
        flags = ("--kubernetes-enable-dra", "--kubeconfig", kubeconfig(folder, server.url))
        status, rows, _ = doctor(plain, folder, *flags)
        assert (status, faults(rows)) == (0, {}), rows
        assert rows["api slices"]["detail"] == f"resource.k8s.io/{versions[0]} can be listed and watched"
        server.deny("resourceslices", "list")
        status, rows, _ = doctor(plain, folder, *flags)
        # Names of devices do without.
        assert (status, faults(rows)) == (0, {"api slices": "warn"}), rows["api slices"]
        assert "deploy/dra.yaml" in rows["api slices"]["mend"]
    finally:
        server.stop()


def test_claims_without_a_node_name_and_with_a_broken_kubeconfig(plain, folder):
    status, rows, _ = doctor(plain, folder, "--kubernetes-enable-dra", env={"NODE_NAME": ""})
    assert (status, faults(rows)) == (0, {"api slices": "warn"})
    assert "NODE_NAME" in rows["api slices"]["detail"]
    (folder / "kubeconfig").write_text("clusters: 7\n")
    status, rows, _ = doctor(plain, folder, "--kubernetes-enable-dra", "--kubernetes-enable-pod-uid", "--kubeconfig", folder / "kubeconfig")
    assert (status, faults(rows)) == (1, {"api pods": "FAIL", "api slices": "FAIL"})


# --- The docs ---

def test_the_docs_name_each_check_in_the_order_of_the_report(plain, folder):
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    table = text.split("| check | what is looked at |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert named == ["gpu N" if name == "gpu 0" else name for name in CHECKS]


def literals(code):
    return re.findall(r'"((?:[^"\\]|\\.)*)"', re.sub(r'"\s*\n?\s*"', "", code))


def words_of(code, expression):
    """The texts that an argument may be: literals, or those of a constant or function that it names."""
    found = literals(expression)
    for name in re.findall(r"\b[a-z_]+\b", re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)):
        constant = re.search(r"static const char " + name + r'\[\] =\s*("(?:[^"\\]|\\.)*")', code)
        function = re.search(r"^static const char \*" + name + r"\([^)]*\)\n\{(.*?)^\}", code, re.S | re.M)
        if constant or function:
            found += literals((constant or function)[1])
    return found


def faults_of_the_sources():
    """{(level, costs, mend)} of each fault that the doctor may tell."""
    found = set()
    for part in ("", "_gpu", "_kube", "_node"):
        code = (ROOT / "src" / "exporter" / f"doctor{part}.c").read_text()
        plain = re.sub(r"//[^\n]*", "", re.sub(r'"\s*\n\s*"', "", code))
        for level, rest in re.findall(r"\bDOCTOR_(FAIL|WARN),(.*?)\}", plain, re.S):
            # The costs end with the first comma outside a text.
            costs, mends = re.match(r'\s*("(?:[^"\\]|\\.)*"|\w+)\s*,(.*)', rest, re.S).groups()
            for cost in words_of(plain, costs):
                found |= {("FAIL" if level == "FAIL" else "warn", cost, mend) for mend in words_of(plain, mends)}
    return found


def test_the_docs_have_each_fault_that_it_can_tell_with_what_it_costs_and_how_to_mend_it():
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    table = text.split("| level | it costs | how to mend it |")[1].split("\n\n")[0]
    documented = {tuple(cell.strip() for cell in row.strip("| ").split(" | ")) for row in table.splitlines()[2:]}
    assert len(documented) > 35
    assert documented == faults_of_the_sources()


# --- HTTP ---

def test_a_port_that_is_taken(plain, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        s.listen()
        status, rows, _ = doctor(plain, folder, "-a", f"127.0.0.2:{s.getsockname()[1]}")
    taken = rows["address"]
    assert (status, taken["level"]) == (1, "FAIL"), taken


def test_the_port_of_the_exporter_that_runs_here(plain, folder):
    with exporter_at(plain) as exporter:
        status, rows, _ = doctor(plain, folder, "-a", f"127.0.0.1:{exporter.port}")
    assert (status, faults(rows)) == (0, {})
    assert f"process {exporter.pid}" in rows["address"]["detail"]


def test_a_web_config_with_a_mistake(plain, folder):
    (folder / "web.yaml").write_text("tls_server_config: {cert_file: nothing.pem}\n")
    status, rows, _ = doctor(plain, folder, "--web-config-file", folder / "web.yaml")
    assert (status, faults(rows)) == (1, {"web config": "FAIL"})


def test_an_admin_address_for_everybody(plain, folder):
    status, rows, _ = doctor(plain, folder, "--admin-address", "0.0.0.0:0")
    assert (status, faults(rows)) == (1, {"admin address": "FAIL"})


def test_a_flag_without_effect(plain, folder):
    status, rows, _ = doctor(plain, folder, "--container-labels")
    assert (status, faults(rows)) == (0, {"flags": "warn"})
    assert "--container-labels" in rows["flags"]["detail"]

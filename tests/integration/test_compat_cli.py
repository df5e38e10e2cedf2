"""The command line, the environment, logs and exit statuses of podgpu-exporter, as dcgm-exporter's users know them."""
import json
import re
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

from harness import BUILD, ROOT, SLOW, Exporter, exporter_at, run_to_end, wait_until

PROGRAM = str(BUILD / "podgpu-exporter")
STOCK = ROOT / "etc" / "default-counters.csv"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
# dcgm-exporter's flags (4.8.4) with their variables; the values differ from the defaults.
FLAGS = {
    "collectors": ("DCGM_EXPORTER_COLLECTORS", str(STOCK)),
    "address": ("DCGM_EXPORTER_LISTEN", "127.0.0.1:0"),
    "collect-interval": ("DCGM_EXPORTER_INTERVAL", "500"),
    "kubernetes": ("DCGM_EXPORTER_KUBERNETES", "true"),
    "use-old-namespace": ("DCGM_EXPORTER_USE_OLD_NAMESPACE", "true"),
    "cpu-devices": ("DCGM_EXPORTER_CPU_DEVICES_STR", "g"),
    "configmap-data": ("DCGM_EXPORTER_CONFIGMAP_DATA", "gpu:counters"),
    "remote-hostengine-info": ("DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555"),
    "kubernetes-enable-pod-labels": ("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", "true"),
    "kubernetes-enable-pod-uid": ("DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", "true"),
    "kubernetes-gpu-id-type": ("DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "device-name"),
    "kubernetes-pod-label-allowlist-regex": ("DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", "^app$,^tier$"),
    "devices": ("DCGM_EXPORTER_DEVICES_STR", "g"),
    "no-hostname": ("DCGM_EXPORTER_NO_HOSTNAME", "true"),
    "switch-devices": ("DCGM_EXPORTER_OTHER_DEVICES_STR", "g"),
    "fake-gpus": ("DCGM_EXPORTER_USE_FAKE_GPUS", "true"),
    "web-read-timeout": ("DCGM_EXPORTER_WEB_READ_TIMEOUT", "5s"),
    "web-write-timeout": ("DCGM_EXPORTER_WEB_WRITE_TIMEOUT", "5s"),
    "max-concurrent-scrapes": ("DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", "4"),
    "enable-exporter-metrics": ("DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", "true"),
    "watch-max-keep-age": ("DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", "5m"),
    "watch-max-keep-samples": ("DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", "10"),
    "xid-count-window-size": ("DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "60000"),
    "replace-blanks-in-model-name": ("DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME", "true"),
    "debug": ("DCGM_EXPORTER_DEBUG", "true"),
    "clock-events-count-window-size": ("DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE", "60000"),
    "enable-dcgm-log": ("DCGM_EXPORTER_ENABLE_DCGM_LOG", "true"),
    "dcgm-log-level": ("DCGM_EXPORTER_DCGM_LOG_LEVEL", "WARN"),
    "log-format": ("DCGM_EXPORTER_LOG_FORMAT", "text"),
    "hpc-job-mapping-dir": ("DCGM_HPC_JOB_MAPPING_DIR", "/nonexistent/jobs"),
    "nvidia-resource-names": ("NVIDIA_RESOURCE_NAMES", "nvidia.com/a100,nvidia.com/gpu.shared"),
    "kubernetes-virtual-gpus": ("KUBERNETES_VIRTUAL_GPUS", "true"),
    "dump-enabled": ("DCGM_EXPORTER_DUMP_ENABLED", "true"),
    "dump-directory": ("DCGM_EXPORTER_DUMP_DIRECTORY", "/nonexistent/dumps"),
    "dump-retention": ("DCGM_EXPORTER_DUMP_RETENTION", "48"),
    "dump-compression": ("DCGM_EXPORTER_DUMP_COMPRESSION", "false"),
    "kubernetes-enable-dra": ("KUBERNETES_ENABLE_DRA", "true"),
    "disable-startup-validate": ("DISABLE_STARTUP_VALIDATE", "true"),
    "enable-gpu-bind-unbind-watch": ("DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", "true"),
    "gpu-bind-unbind-poll-interval": ("DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL", "2s"),
    "enable-pprof": ("DCGM_EXPORTER_ENABLE_PPROF", "true"),
    "container-labels": ("DCGM_EXPORTER_CONTAINER_LABELS", "true"),
    "container-runtime-socket": ("DCGM_CONTAINER_RUNTIME_SOCKET", "/run/containerd/containerd.sock"),
}
# Of these what has no effect in this build; each must be told.
INERT = {"configmap-data", "fake-gpus",
         "web-read-timeout", "web-write-timeout", "max-concurrent-scrapes", "watch-max-keep-age",
         "watch-max-keep-samples", "dump-enabled", "dump-directory",
         "dump-retention", "dump-compression", "enable-gpu-bind-unbind-watch",
         "gpu-bind-unbind-poll-interval", "enable-pprof", "container-labels", "container-runtime-socket"}


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo") as n:
        yield n


def nothing(tmp_path):
    """Flags of an exporter that finds neither driver nor kubelet."""
    return ["--nvml-library", tmp_path / "none.so", "--kmsg-path", "", "--pod-resources-kubelet-socket",
            tmp_path / "none.sock"]


def ran(*arguments, env=None):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=20 * SLOW, env=env)


# --- Help, version ---

@pytest.mark.parametrize("word", ["--help", "-help", "-h", "--h", "help", "h"])
def test_help_is_on_stdout_with_status_0_and_has_every_flag(word):
    done = ran(word)
    assert (done.returncode, done.stderr) == (0, "")
    for flag, (variable, _) in FLAGS.items():
        assert re.search(rf"^  --{flag}\b", done.stdout, re.M), flag
        assert f"Variable: {variable}." in re.sub(r"\s+", " ", done.stdout), variable


@pytest.mark.parametrize("word", ["--version", "-v"])
def test_version_is_one_line_on_stdout_with_status_0(word):
    done = ran(word)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"podgpu-exporter version \d+\.\d+\.\d+\S*\n", done.stdout)


# --- Every flag ---

def check_all_flags(exporter):
    page = exporter.page_when(lambda p: p.samples(UTIL), what="devices")
    labels, _ = page.samples(UTIL)[1]  # the copy of the first GPU's holder, after the GPU's own
    assert {"uuid", "pod_name", "pod_namespace", "container_name"} <= labels.keys()
    # Of all other families a held GPU has copies alone, the first sample is one.
    for family in set(page.device_families()) - {UTIL, "DCGM_FI_DEV_FB_USED"}:
        first, _ = page.samples(family)[0]
        assert "pod_name" in first, family
    for family in (UTIL, "DCGM_FI_DEV_FB_USED"):
        first, _ = page.samples(family)[0]
        assert "pod_name" not in first, family
    assert "hostname" not in labels and labels["modelName"] == "NVIDIA-A10G"
    assert page.samples("process_cpu_seconds_total")
    told = {l["flag"] for l, _ in page.samples("podgpu_exporter_feature_unavailable_info")}
    assert told == INERT
    for flag in INERT:
        assert len(re.findall(rf'level=WARN msg="flag is accepted but has no effect" flag={flag}$', exporter.log, re.M)) == 1


def test_every_flag_of_dcgm_exporter_is_taken_on_the_command_line(node):
    words = [f"--{flag}={value}" for flag, (_, value) in FLAGS.items()]
    run = Exporter([*words, "--nvml-library", node.nvml_library, "--kmsg-path", "",
                    f"--pod-resources-kubelet-socket={node.socket}"], {"SIM_NODE": node.env["SIM_NODE"]})
    try:
        check_all_flags(run)
    finally:
        assert run.stop()[0] == 0


def test_every_variable_of_dcgm_exporter_is_taken(node):
    env = {variable: value for variable, value in FLAGS.values()}
    env |= {"DCGM_POD_RESOURCES_KUBELET_SOCKET": node.socket, "SIM_NODE": node.env["SIM_NODE"]}
    run = Exporter(["--nvml-library", node.nvml_library, "--kmsg-path", ""], env)
    try:
        check_all_flags(run)
    finally:
        assert run.stop()[0] == 0


# --- Precedence and spelling ---

def hostname_of(exporter):
    page = exporter.page_when(lambda p: p.samples(UTIL), what="devices")
    return page.samples(UTIL)[0][0].get("hostname")


@pytest.mark.parametrize("arguments, env, has_label", [
    ([], {}, True),
    ([], {"DCGM_EXPORTER_NO_HOSTNAME": "true"}, False),
    ([], {"DCGM_EXPORTER_NO_HOSTNAME": "T"}, False),
    ([], {"DCGM_EXPORTER_NO_HOSTNAME": ""}, True),
    (["-n"], {"DCGM_EXPORTER_NO_HOSTNAME": "false"}, False),
    (["--n=true"], {}, False),
    (["-no-hostname=0"], {"DCGM_EXPORTER_NO_HOSTNAME": "1"}, True),
    (["--no-hostname=TRUE"], {"DCGM_EXPORTER_NO_HOSTNAME": "nonsense"}, False),
])
def test_the_command_line_beats_the_environment_beats_the_default(node, arguments, env, has_label):
    with exporter_at(node, *arguments, env=env) as exporter:
        assert hostname_of(exporter) == (node.node_name if has_label else None)


def test_what_follows_a_word_that_is_no_flag_is_ignored_and_told(node):
    with exporter_at(node, "-n", "true", "-d", "g:7", "--no-such-flag") as exporter:
        assert hostname_of(exporter) is None
        assert len(exporter.page().samples(UTIL)) == 4
        assert re.search(r"level=WARN .*ignored.* first=true$", exporter.log, re.M)


@pytest.mark.parametrize("env, says", [
    ({"DCGM_EXPORTER_INTERVAL": "soon"}, ["DCGM_EXPORTER_INTERVAL", "collect-interval", "soon"]),
    ({"DCGM_EXPORTER_KUBERNETES": "yes"}, ["DCGM_EXPORTER_KUBERNETES", "kubernetes", "yes"]),
    ({"DCGM_EXPORTER_LOG_FORMAT": "xml"}, ["DCGM_EXPORTER_LOG_FORMAT", "xml", "text or json"]),
    ({"DCGM_EXPORTER_DCGM_LOG_LEVEL": "warn"}, ["DCGM_EXPORTER_DCGM_LOG_LEVEL", "warn"]),
    ({"DCGM_EXPORTER_DEVICES_STR": "g:0:1"}, ["DCGM_EXPORTER_DEVICES_STR", "g:0:1"]),
    ({"DCGM_EXPORTER_OTHER_DEVICES_STR": "f:0"}, ["DCGM_EXPORTER_OTHER_DEVICES_STR", "f:0"]),
    ({"DCGM_EXPORTER_CPU_DEVICES_STR": "g:x"}, ["DCGM_EXPORTER_CPU_DEVICES_STR", "'x'"]),
    ({"DCGM_EXPORTER_COLLECTORS": ""}, ["DCGM_EXPORTER_COLLECTORS", "''"]),
    ({"DCGM_EXPORTER_LISTEN": "9400"}, ["9400"]),
    ({"DCGM_REMOTE_HOSTENGINE_INFO": "http://10.0.0.9"}, ["http://10.0.0.9"]),
])
def test_a_bad_variable_ends_with_status_1_and_one_line_that_names_it(env, says):
    defaults = {"DCGM_EXPORTER_COLLECTORS": str(STOCK), "DCGM_EXPORTER_LISTEN": "127.0.0.1:0"}
    status, log = run_to_end([], {**defaults, **env})
    assert status == 1
    errors = [line for line in log.splitlines() if "level=ERROR" in line]
    assert len(errors) == 1 and all(word in errors[0] for word in says), log


def test_two_spellings_of_one_flag_are_an_error():
    status, log = run_to_end(["-f", STOCK, "--collectors", STOCK])
    assert status == 1 and "--collectors and -f are the same flag" in log


def test_an_empty_number_leaves_the_default_and_an_empty_engine_is_this_machine(node):
    env = {"DCGM_EXPORTER_INTERVAL": "", "DCGM_REMOTE_HOSTENGINE_INFO": ""}
    with exporter_at(node, env=env, kubernetes=False) as exporter:
        assert hostname_of(exporter) == node.node_name
        first = exporter.page().value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml")
        exporter.page_when(lambda p: p.value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml") > first, 3, "next sample")


# --- The interval ---

def test_an_interval_that_is_set_is_honoured(node):
    def calls():
        return node.node.calls("nvmlDeviceGetUtilizationRates")
    with exporter_at(node, env={"DCGM_EXPORTER_INTERVAL": "30000"}) as exporter:
        exporter.page_when(lambda p: p.samples(UTIL), what="devices")
        before = calls()
        time.sleep(2.5)
        assert calls() - before <= 4  # samples stand at multiples of the period: one may fall into any moment
    with exporter_at(node, "-c", "0xC8") as exporter:
        exporter.page_when(lambda p: p.samples(UTIL), what="devices")
        before, begun = calls(), time.monotonic()
        wait_until(lambda: calls() >= before + 4 * 8, 10, "eight samples of four GPUs")
        assert 8 * 0.2 - 0.25 < time.monotonic() - begun < (8 * 0.2 + 1) * SLOW
    with exporter_at(node, "-c", "5") as exporter:
        exporter.page_when(lambda p: p.samples(UTIL), what="devices")
        assert re.search("level=WARN .*100 ms is used", exporter.log)


# --- Addresses ---

@pytest.mark.parametrize("address, at", [
    ("127.0.0.1:0", "127.0.0.1"), ("localhost:0", "127.0.0.1"), ("[::1]:0", "[::1]"), (":0", "127.0.0.1")])
def test_it_listens_where_it_is_told(tmp_path, address, at):
    exporter = Exporter(["-f", STOCK, *nothing(tmp_path)], {"DCGM_EXPORTER_LISTEN": address})
    try:
        with urllib.request.urlopen(f"http://{at}:{exporter.port}/health", timeout=5) as answer:
            assert answer.status == 200
        if address == "127.0.0.1:0":
            with pytest.raises(OSError):
                socket.create_connection(("::1", exporter.port), 5)
    finally:
        assert exporter.stop()[0] == 0


@pytest.mark.parametrize("address", ["", "9400", "localhost", "host:99999", "[::1:9400", "no-such-host.invalid:0",
                                     "vsock://:9400"])
def test_a_bad_address_ends_with_status_1_and_is_named(tmp_path, address):
    status, log = run_to_end(["-a", address, "-f", STOCK, *nothing(tmp_path)])
    assert status == 1
    assert f"'{address}'" in log or address in log


# --- Logs ---

def test_text_logs_are_those_of_dcgm_exporter_in_local_time(tmp_path):
    exporter = Exporter(["-a", "127.0.0.1:0", "-f", STOCK, *nothing(tmp_path)], {"TZ": "XYZ-05:30"})
    exporter.port
    assert exporter.stop()[0] == 0
    lines = exporter.log.splitlines()
    assert len(lines) > 3
    for line in lines:
        assert re.match(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+05:30 level=(INFO|WARN) msg=\S", line), line


def test_json_logs_are_one_object_a_line(tmp_path):
    exporter = Exporter(["-a", "127.0.0.1:0", "-f", STOCK, "--log-format=json", *nothing(tmp_path)])
    wait_until(lambda: '"listening"' in exporter.log, what="listening")
    assert exporter.stop()[0] == 0
    lines = [json.loads(line) for line in exporter.log.splitlines()]
    assert all({"time", "level", "msg"} <= line.keys() for line in lines)
    assert {"starting podgpu-exporter", "listening", "shutdown complete"} <= {line["msg"] for line in lines}


def test_logs_are_on_stderr_alone(tmp_path):
    process = subprocess.Popen([PROGRAM, "-a", "127.0.0.1:0", "-f", str(STOCK), "--debug", *map(str, nothing(tmp_path))],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "msg=listening" not in (line := process.stderr.readline()):
        assert line.startswith("time=")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10 * SLOW)
    assert (process.returncode, out) == (0, "") and "shutdown complete" in err


# --- The end ---

@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_each_ending_signal_ends_with_status_0(node, signo):
    with exporter_at(node) as exporter:
        exporter.page_when(lambda p: p.samples(UTIL), what="devices")
        status, took = exporter.stop(signo)
        assert status == 0 and took < 2 * SLOW
        assert 'msg="received signal"' in exporter.log and 'msg="shutdown complete"' in exporter.log
        assert "level=ERROR" not in exporter.log

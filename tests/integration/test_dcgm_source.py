# SPDX-License-Identifier: Apache-2.0
"""podgpu-source dcgm alone, on the simulated node's libdcgm and host engine: how it finds, loses and keeps an engine."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from harness import BUILD, SLOW, wait_until
from source_client import HELLO, PAUSE, PROGRAM, PROTOCOL, RESUME, S, STATE, Source

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sim"))
import run_node  # noqa: E402

LIBRARIES = {4: str(BUILD / "sim/dcgm4/libdcgm.so.4"), 3: str(BUILD / "sim/dcgm3/libdcgm.so.3")}
VERSIONS = {4: "4.", 3: "3."}
TEMPERATURE, POWER, GR_ACTIVE = 150, 155, 1001
FIELDS = [TEMPERATURE, POWER, GR_ACTIVE]
QUICK = (S // 10, S // 10, S // 10, S)

pytestmark = pytest.mark.faults


@contextlib.contextmanager
def node_of_the_post():
    with run_node.SimNode("post-dcgm", kubelet=False) as node:
        yield node


def start(node, *arguments, library=LIBRARIES[4], env=None):
    chosen = ["--library", library] if library else []
    return Source(*chosen, *arguments, vendor="dcgm", env={"SIM_NODE": str(node.file), **(env or {})})


@contextlib.contextmanager
def source_on(*arguments, major=4, env=None, engine=True, **words):
    """A node with an engine and a source that connects to it: yields (node, source)."""
    with node_of_the_post() as node:
        if engine:
            arguments = ["--connect", node.start_engine(major=major, **words).address, *arguments]
        with start(node, *arguments, library=LIBRARIES[major], env=env) as source:
            yield node, source


def ready(source, seconds=10):
    return source.state("ready", seconds * SLOW)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def sample_with(source, field, seconds=15):
    """A sample in which the first GPU has a value of the field."""
    return source.sample(seconds * SLOW, lambda s: s.has(field) and isinstance(s.get(field), (int, float)))


def descriptors(source):
    return sorted(os.listdir(f"/proc/{source.process.pid}/fd"))


def resident_kib(source):
    for line in pathlib.Path(f"/proc/{source.process.pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def end(source):
    """As the exporter ends it: the socket is closed."""
    source.socket.close()
    assert source.wait(10 * SLOW) == 0, source.stderr()


# --- what it says ---

@pytest.mark.smoke
@pytest.mark.parametrize("major", [4, 3])
def test_it_says_hello_state_and_entities_before_it_is_asked(major):
    with source_on(major=major) as (node, source):
        assert source.next(HELLO) == (PROTOCOL, 2, source.process.pid, 0)
        state = source.next(STATE)
        assert (state.code, state.text, state.vendor_code) == ("ready", "", 0)
        assert state.library_version.startswith(VERSIONS[major]) and state.library_path == LIBRARIES[major]
        assert state.driver_version == "470.182.03"
        assert state.engine == node.engine.address
        assert (state.paused, state.profiling_code) == (0, 0)
        [gpu] = source.entities()
        assert (gpu.kind, gpu.state, gpu.index, gpu.parent) == (1, "up", 0, 0)
        assert (gpu.uuid, gpu.name, gpu.bus_id) == (node.node.uuid(0), "NVIDIA A10G", "00000000:00:1E.0")


@pytest.mark.smoke
@pytest.mark.parametrize("major", [4, 3])
def test_the_posts_node_has_the_posts_profiling_numbers(major):
    with source_on(major=major) as (_, source):
        ready(source)
        source.watch([1001, 1004, 1005, 1009, 1010], QUICK)
        sample = sample_with(source, 1001)
        assert [sample.get(f) for f in (1001, 1004, 1005, 1009, 1010)] == [0.808369, 0, 0.315787, 3985328, 21715174]


# --- the library ---

def test_libdcgm_4_is_taken_before_3(tmp_path):
    """Where the loader looks: what stands in LD_LIBRARY_PATH here stands in ld.so.cache on a node."""
    for majors, want in (((4, 3), 4), ((3,), 3)):
        folder = tmp_path / f"only{majors}"
        folder.mkdir()
        for major in majors:
            (folder / f"libdcgm.so.{major}").symlink_to(LIBRARIES[major])
        with node_of_the_post() as node, start(node, "--embed", "yes", library=None,
                                               env={"LD_LIBRARY_PATH": str(folder)}) as source:
            assert ready(source).library_version.startswith(VERSIONS[want])


def test_no_library_is_said_and_no_reason_to_end(tmp_path):
    with node_of_the_post() as node, start(node, "--embed", "yes", library=None,
                                           env={"LD_LIBRARY_PATH": str(tmp_path)}) as source:
        state = source.state("no_library", 10 * SLOW)
        assert "libdcgm.so.4 not found" in state.text and state.engine == ""
        turns = source.turns()
        wait_until(lambda: source.turns() > turns + 1, what="turns of the loop")
        assert source.control(PAUSE, 10 * SLOW).code == -2**31
        end(source)


@pytest.mark.parametrize("library, text", [
    ("/nonexistent/libdcgm.so.4", "does not exist"),
    (str(BUILD / "sim/libnvidia-ml.so.1"), "it has no dcgmInit"),
])
def test_a_library_that_is_none_is_said(library, text):
    with node_of_the_post() as node, start(node, library=library) as source:
        state = source.next(STATE, 10 * SLOW)
        assert state.code in ("no_library", "failed") and text in state.text


def test_a_library_of_another_architecture_is_said(tmp_path):
    raw = bytearray(pathlib.Path(LIBRARIES[4]).read_bytes())
    machine = int.from_bytes(raw[18:20], "little")
    raw[18:20] = (183 if machine == 62 else 62).to_bytes(2, "little")  # EM_AARCH64, EM_X86_64
    (tmp_path / "libdcgm.so.4").write_bytes(raw)
    with node_of_the_post() as node, start(node, library=str(tmp_path / "libdcgm.so.4")) as source:
        state = source.state("failed", 10 * SLOW)
        assert state.text.startswith(f"cannot load '{tmp_path}/libdcgm.so.4'") and "architecture" in state.text


# --- finding an engine ---

@pytest.mark.parametrize("major", [4, 3])
@pytest.mark.parametrize("form", ["{host}:{port}", "tcp://{host}:{port}", "localhost:{port}"])
def test_each_tcp_form_of_an_address_connects(major, form):
    with node_of_the_post() as node:
        host, port = node.start_engine(major=major).address.split(":")
        address = form.format(host=host, port=port)
        with start(node, "--connect", address, library=LIBRARIES[major]) as source:
            assert ready(source).engine == address.replace("localhost", "127.0.0.1")


@pytest.mark.parametrize("major", [4, 3])
@pytest.mark.parametrize("form", ["unix://{}", "{}"])
def test_each_unix_form_of_an_address_connects(tmp_path, major, form):
    path = tmp_path / "he"
    with node_of_the_post() as node:
        node.start_engine(major=major, socket=str(path))
        with start(node, "--connect", form.format(path), library=LIBRARIES[major]) as source:
            assert ready(source).engine == f"unix://{path}"


def test_what_is_no_address_is_told():
    with node_of_the_post() as node, start(node, "--connect", "http://gpu:5555") as source:
        assert source.state("failed", 10 * SLOW).text == "http://gpu:5555: tcp://, unix:// and vsock:// are known"


def test_the_first_engine_that_runs_is_taken(tmp_path):
    with node_of_the_post() as node:
        address = node.start_engine(major=4).address
        with start(node, "--connect", f"unix://{tmp_path}/none", "--connect", address, "--embed", "yes") as source:
            assert ready(source).engine == address


@pytest.mark.parametrize("major", [4, 3])
def test_one_is_embedded_where_nobody_listens(tmp_path, major):
    with node_of_the_post() as node, start(node, "--connect", f"unix://{tmp_path}/none", "--connect",
                                           f"127.0.0.1:{free_port()}", "--embed", "yes",
                                           library=LIBRARIES[major]) as source:
        assert ready(source).engine == "embedded"
        score = pathlib.Path(f"/proc/{source.process.pid}/oom_score_adj").read_text(encoding="ascii")
        assert int(score) == 1000
        source.watch(FIELDS, QUICK)
        assert sample_with(source, GR_ACTIVE).get(GR_ACTIVE) == 0.808369
        assert node.node.calls("dcgmStopEmbedded") == 0
        end(source)
        assert node.node.calls("dcgmStopEmbedded") == 1
        assert node.node.calls("dcgmConnect_v2") == 0


def test_none_is_embedded_without_leave(tmp_path):
    with node_of_the_post() as node, start(node, "--connect", f"unix://{tmp_path}/none") as source:
        state = source.state("failed", 10 * SLOW)
        assert state.text == f"unix://{tmp_path}/none: nobody listens" and state.vendor_code == -21
        assert node.node.calls("dcgmStartEmbedded_v2") == 0


@pytest.mark.parametrize("behave", ["close", "garbage", "mute"])
def test_none_is_embedded_beside_somebody_who_listens(behave):
    with source_on("--embed", "yes", behave=behave) as (node, source):
        state = source.state("failed", 15 * SLOW)
        assert state.text.startswith(node.engine.address) and state.vendor_code < 0
        wait_until(lambda: node.node.calls("dcgmConnect_v2") >= 2, 20, "another try")
        assert node.node.calls("dcgmStartEmbedded_v2") == 0


@pytest.mark.parametrize("ours, theirs", [(4, 3), (3, 4)])
def test_an_engine_of_the_other_major_is_refused(ours, theirs):
    with node_of_the_post() as node:
        address = node.start_engine(major=theirs).address
        with start(node, "--connect", address, "--embed", "yes", library=LIBRARIES[ours]) as source:
            state = source.state("mismatch", 10 * SLOW)
            assert state.vendor_code == -12 and state.text.startswith(address)
            assert node.node.calls("dcgmStartEmbedded_v2") == 0


def test_an_engine_that_comes_late_is_found():
    port = free_port()
    with node_of_the_post() as node, start(node, "--connect", f"127.0.0.1:{port}") as source:
        source.state("failed", 10 * SLOW)
        node.start_engine(major=4, listen=f"127.0.0.1:{port}")
        ready(source, 15)


# --- losing one ---

def test_a_lost_engine_is_told_and_found_again(tmp_path):
    path = str(tmp_path / "he")
    with node_of_the_post() as node:
        engine = node.start_engine(major=4, socket=path)
        with start(node, "--connect", path) as source:
            ready(source)
            source.watch(FIELDS, QUICK)
            sample_with(source, POWER)
            engine.kill()
            state = source.state("failed", 10 * SLOW)
            assert (state.vendor_code, state.engine) == (-21, "")
            source.kept.clear()
            node.start_engine(major=4, socket=path)
            began = time.monotonic()
            ready(source, 15)
            sample_with(source, POWER)
            assert sample_with(source, GR_ACTIVE).get(GR_ACTIVE) == 0.808369
            assert time.monotonic() - began < 10 * SLOW


def test_a_connection_dropped_in_mid_read_gives_no_half_sample(tmp_path):
    with source_on() as (node, source):
        ready(source)
        source.watch(FIELDS, QUICK)
        sample_with(source, POWER)
        node.command("fault dcgmGetLatestValues_v2 drop count=1")
        source.state("failed", 10 * SLOW)
        ready(source, 15)
        sample = sample_with(source, POWER)
        assert {r.field for r in sample.records if r.status == "ok"} >= {TEMPERATURE, POWER}


@pytest.mark.parametrize("code", [-16, -5])
def test_an_engine_that_forgot_its_watches_gets_them_again(code):
    with source_on() as (node, source):
        ready(source)
        source.watch(FIELDS, QUICK)
        sample_with(source, POWER)
        created = node.node.calls("dcgmGroupCreate")
        node.fault("dcgmGetLatestValues_v2", f"return={code}", count=1)
        wait_until(lambda: node.node.calls("dcgmGroupCreate") > created, 15, "groups made anew")
        source.kept.clear()
        sample_with(source, POWER)
        assert not [frame for kind, frame in source.kept if kind == STATE and frame.code != "ready"]


def test_an_engine_that_fails_again_and_again_is_opened_anew():
    with source_on() as (node, source):
        ready(source)
        source.watch(FIELDS, QUICK)
        sample_with(source, POWER)
        node.fault("dcgmGetLatestValues_v2", "return=-3")
        assert source.state("failed", 20 * SLOW).vendor_code == -3
        node.clear_faults()
        ready(source, 15)
        sample_with(source, POWER)


@pytest.mark.parametrize("call", ["dcgmInit", "dcgmHostengineVersionInfo", "dcgmWatchFields", "dcgmUpdateAllFields",
                                  "dcgmGroupCreate", "dcgmFieldGroupCreate", "dcgmGetEntityGroupEntities"])
@pytest.mark.parametrize("code", [-3, -6, -17])
def test_what_fails_when_all_starts_costs_seconds(call, code):
    with node_of_the_post() as node:
        address = node.start_engine(major=4).address
        before = node.node.calls(call)
        node.fault(call, f"return={code}")
        with start(node, "--connect", address) as source:
            source.watch(FIELDS, QUICK)
            wait_until(lambda: node.node.calls(call) > before, 15, "the call that fails")
            node.clear_faults()
            source.sample(12 * SLOW, lambda s: s.has(GR_ACTIVE) and s.get(GR_ACTIVE) == 0.808369)


def test_a_hundred_engines_come_and_go_and_nothing_leaks(tmp_path):
    """Descriptors, groups and memory are after a hundred engines what they were after ten."""
    path = str(tmp_path / "he")
    with node_of_the_post() as node:
        with start(node, "--connect", path) as source:
            source.watch(FIELDS, QUICK)
            for cycle in range(100):
                engine = node.start_engine(major=4, socket=path)
                ready(source, 20)
                sample_with(source, POWER, 20)
                if cycle == 9:
                    early = (descriptors(source), resident_kib(source))
                if cycle == 99:
                    late = (descriptors(source), resident_kib(source))
                engine.kill()
                source.state("failed", 20 * SLOW)
                source.kept.clear()
            assert late[0] == early[0]
            assert late[1] < early[1] + (4096 if SLOW == 1 else 65536)
            node.start_engine(major=4, socket=path)
            ready(source, 20)
            sample_with(source, POWER, 20)
            end(source)
        assert "ERROR: LeakSanitizer" not in source.stderr()
        created, gone = node.node.calls("dcgmGroupCreate"), node.node.calls("dcgmGroupDestroy")
        assert created >= 101 and gone <= created


def test_what_was_made_in_an_engine_is_gone_at_the_end():
    with source_on() as (node, source):
        ready(source)
        source.watch([*FIELDS, 230], QUICK)
        sample_with(source, POWER)
        end(source)
        for make, undo in (("dcgmGroupCreate", "dcgmGroupDestroy"), ("dcgmFieldGroupCreate", "dcgmFieldGroupDestroy"),
                           ("dcgmConnect_v2", "dcgmDisconnect"), ("dcgmInit", "dcgmShutdown")):
            assert node.node.calls(make) == node.node.calls(undo) > 0, make


# --- a call that hangs ---

@pytest.mark.parametrize("call", ["dcgmConnect_v2", "dcgmGetAllDevices", "dcgmGetLatestValues_v2"])
def test_a_call_that_hangs_stands_on_the_call_page(call):
    with node_of_the_post() as node:
        address = node.start_engine(major=4).address
        node.fault(call, "hang")
        with start(node, "--connect", address) as source:
            source.watch(FIELDS, QUICK)
            entered, _, name = wait_until(
                lambda: (page := source.call_in_flight())[0] and page[2] == call and page, 15, "the call on the page")
            turns = source.turns()
            time.sleep(1.2)
            assert (entered, name) == (source.call_in_flight()[0], call)
            assert source.turns() == turns
            node.clear_faults()
            ready(source, 15)
            sample_with(source, POWER)


def test_a_call_to_avoid_is_not_made():
    with source_on("--avoid", "dcgmHostengineVersionInfo", "--avoid", "dcgmGetGpuInstanceHierarchy@3") as (node, source):
        ready(source)
        assert node.node.calls("dcgmHostengineVersionInfo") == 0


# --- profiling ---

@pytest.mark.parametrize("major", [4, 3])
def test_profiling_is_paused_and_resumed(major):
    with source_on(major=major) as (node, source):
        ready(source)
        source.watch(FIELDS, QUICK)
        sample_with(source, GR_ACTIVE)
        done = source.control(PAUSE, 10 * SLOW)
        assert (done.code, done.text) == (0, "")
        assert node.command("dcgm pause").strip() == "1"
        source.next(STATE, 10 * SLOW, lambda s: s.paused == 1)
        source.sample(10 * SLOW, lambda s: s.has(GR_ACTIVE) and s.get(GR_ACTIVE) == "paused")
        assert sample_with(source, POWER).get(POWER) == 299.437
        assert source.control(RESUME, 10 * SLOW).code == 0
        assert node.command("dcgm pause").strip() == "0"
        source.next(STATE, 10 * SLOW, lambda s: s.paused == 0)
        assert sample_with(source, GR_ACTIVE).get(GR_ACTIVE) == 0.808369


def test_a_pause_that_is_refused_says_why():
    with source_on() as (node, source):
        ready(source)
        node.fault("dcgmProfPause", "return=-33", count=1)
        done = source.control(PAUSE, 10 * SLOW)
        assert (done.code, done.text) == (-33, "a module of DCGM is not loaded")
        assert not [frame for kind, frame in source.kept if kind == STATE and frame.paused]


def test_a_resume_while_the_engine_is_away_counts(tmp_path):
    path = str(tmp_path / "he")
    with node_of_the_post() as node:
        node.start_engine(major=4, socket=path)
        with start(node, "--connect", path) as source:
            ready(source)
            source.watch(FIELDS, QUICK)
            sample_with(source, GR_ACTIVE)
            assert source.control(PAUSE, 10 * SLOW).code == 0
            node.engine.kill()
            source.state("failed", 20 * SLOW)
            done = source.control(RESUME, 10 * SLOW)
            assert (done.code, done.text) == (0, "")
            resumed = node.node.calls("dcgmProfResume")
            node.start_engine(major=4, socket=path)
            source.next(STATE, 20 * SLOW, lambda s: s.code == "ready" and s.paused == 0)
            source.sample(20 * SLOW, lambda s: s.has(GR_ACTIVE) and s.get(GR_ACTIVE) == 0.808369)
            assert node.node.calls("dcgmProfResume") == resumed + 1  # it may be the one that was paused


def test_without_an_engine_nothing_is_paused(tmp_path):
    with node_of_the_post() as node, start(node, "--connect", f"{tmp_path}/none") as source:
        source.state("failed", 10 * SLOW)
        done = source.control(PAUSE, 10 * SLOW)
        assert (done.code, done.text) == (-2**31, "no host engine is connected")


def test_a_pause_outlives_the_engine_and_not_the_helper(tmp_path):
    path = str(tmp_path / "he")
    with node_of_the_post() as node:
        engine = node.start_engine(major=4, socket=path)
        with start(node, "--connect", path) as source:
            ready(source)
            assert source.control(PAUSE, 10 * SLOW).code == 0
            engine.kill()
            paused = node.node.calls("dcgmProfPause")
            node.start_engine(major=4, socket=path)
            wait_until(lambda: node.node.calls("dcgmProfPause") > paused, 20, "a pause of the new engine")
            assert source.next(STATE, 15 * SLOW, lambda s: s.code == "ready" and s.paused).engine == f"unix://{path}"
            end(source)
        assert node.command("dcgm pause").strip() == "0"


# --- the log of DCGM ---

FAKE = BUILD / "tests/unit/source/libfakedcgm4.so"


def test_dcgms_log_becomes_lines_of_ours_and_the_rest_is_passed_on():
    """What DCGM writes in one call is more than a pipe holds, and what it writes is read to the end."""
    with Source("--library", FAKE, "--dcgm-log", "WARN", "--log-format", "json", "--connect", "/nonexistent",
                vendor="dcgm") as source:
        source.state("failed", 10 * SLOW)
        end(source)
        lines = source.stderr().splitlines()
    [told] = [json.loads(line) for line in lines if "Linux 4.15" in line]
    assert (told["level"], told["msg"], told["dcgm_level"]) == ("INFO", "dcgm log", "INFO")
    assert told["text"] == "Linux 4.15.0-180-generic at WARN"
    assert "hello from dcgm" in lines and "2024-02-07 18:01:05.641" in lines
    assert [line for line in lines if line.startswith("last line without an end")]
    assert sum(len(line) for line in lines if set(line) == {"x"}) == 10000
    assert not [line for line in lines if "detail 7 of" in line]


def test_details_of_dcgms_log_are_lines_of_debug_level():
    with Source("--library", FAKE, "--dcgm-log", "DEBUG", "--log-level", "debug", "--connect", "/nonexistent",
                vendor="dcgm") as source:
        source.state("failed", 10 * SLOW)
        end(source)
        lines = source.stderr().splitlines()
    [told] = [line for line in lines if "detail 1999 of" in line]
    assert 'level=DEBUG msg="dcgm log" dcgm_level=DEBUG text="detail 1999 of' in told


def test_without_the_option_nothing_of_dcgms_log_is_asked_for():
    with Source("--library", FAKE, "--connect", "/nonexistent", vendor="dcgm") as source:
        source.state("failed", 10 * SLOW)
        end(source)
        assert "dcgm log" not in source.stderr() and "hello" not in source.stderr()


# --- the command line ---

@pytest.mark.parametrize("arguments, text", [
    (["amd"], "unknown source 'amd'"),
    (["dcgm", "--embed"], "no value for '--embed'"),
    (["dcgm", "--embed", "maybe"], "neither yes nor no: 'maybe'"),
    (["dcgm", "--dcgm-log", "info"], "no log level of DCGM: 'info'"),
    (["dcgm", "--kmsg", "/dev/kmsg"], "unknown option '--kmsg'"),
    (["dcgm", *["--connect", "a"] * 9], "too many addresses: 'a'"),
    (["dcgm", "--skip", "64"], "not the index of a GPU: '64'"),
    (["nvml", "--embed", "yes"], "unknown option '--embed'"),
    (["dcgm"], "descriptor is not a socket: '3'"),
])
def test_a_wrong_command_line_is_refused(arguments, text):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=20, check=False,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and text in done.stderr


def test_it_ends_with_the_exporter():
    with source_on() as (_, source):
        ready(source)
        end(source)


def test_it_ends_by_no_signal_that_is_the_exporters():
    with source_on() as (_, source):
        ready(source)
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            source.process.send_signal(signo)
        source.watch(FIELDS, QUICK)
        turns = source.turns()
        wait_until(lambda: source.turns() > turns, what="turns of the loop")
        assert source.process.poll() is None

"""The libdcgm double of both majors, its host engine and its scenarios, read by offsets from NVIDIA's headers."""
import json
import pathlib
import subprocess
import sys
import time

import pytest

from harness import BUILD, ROOT

import run_node

WORKER = pathlib.Path(__file__).with_name("dcgm_worker.py")
SANITIZED = BUILD.name in ("asan", "tsan")
pytestmark = pytest.mark.skipif(SANITIZED, reason="Python has no sanitizer")
MAJORS = (4, 3)
GPU, SWITCH, GPU_I, GPU_CI, LINK, CPU, CORE = 1, 3, 4, 5, 6, 7, 8
NOT_CONFIGURED, VER_MISMATCH, NO_DATA, NOT_WATCHED, GONE = -5, -12, -14, -16, -21


class Client:
    """A process with libdcgm on the node."""

    def __init__(self, node, major=None):
        self.process = subprocess.Popen([sys.executable, WORKER, str(major or node.node.dcgm_library)], env=node.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.node = node

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()

    def __call__(self, expression):
        self.process.stdin.write(" ".join(expression.split()) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "value" in answer, (expression, answer)
        return answer["value"]

    def watch(self, pairs, ids, period_us=20000):
        """Watches entities as group g and field group f."""
        assert self(f"group('g', *{pairs})") == [0] * (1 + len(pairs))
        assert self(f"fields('f', *{list(ids)})") == 0
        assert self(f"watch(period_us={period_us})") == 0

    def values(self):
        """{(entity, id, field): value} once everything is sampled."""
        code, rows, *_ = self("sampled()")
        assert code == 0
        return {tuple(int(n) for n in key.split("/")): row[3] for key, row in rows.items()}


class On:
    """A node with an embedded engine in a client."""

    def __init__(self, scenario, mode=1, **options):
        self.node = run_node.SimNode(scenario, kubelet=False, **options)
        self.mode = mode

    def __enter__(self):
        self.node.start()
        try:
            self.client = Client(self.node)
            assert self.client("init()") == [0, 0]
            assert self.client(f"start({self.mode})")[0] == 0
        except BaseException:
            self.node.stop()
            raise
        return self.node, self.client

    def __exit__(self, *_):
        self.client.__exit__()
        self.node.stop()


def scenario(major):
    return {3: "dcgm3", 4: "dcgm-fabric"}[major]


# --- version words ---

VERSIONED = [("start(1, version={})", 1, (4, 3)), ("connect('127.0.0.1:1', version={})", 2, (4, 3)),
             ("connect3('tcp://127.0.0.1:1', version={})", 1, (4,)), ("version({})[0]", 2, (4, 3)),
             ("attributes(0, {})[0]", 3, (4, 3)), ("hierarchy({})[0]", 2, (4, 3)), ("links({})[0]", 3, (3,)),
             ("links({})[0]", 5, (4,)), ("peers({})[0]", 1, (4,)), ("cpus({})[0]", 1, (4, 3)), ("cpus2({})[0]", 2, (4,)),
             ("health_set(word={})", 2, (4, 3)), ("health(word={})[0]", 4, (3,)), ("health(word={})[0]", 5, (4,)),
             ("metric_groups(0, {})[0]", 3, (4, 3))]


@pytest.mark.parametrize("major", MAJORS)
def test_a_wrong_version_word_is_refused_and_the_right_one_is_not(major):
    with On(scenario(major)) as (_, ask):
        ask("group('g', (1, 0))")
        for expression, right, majors in VERSIONED:
            if major not in majors:
                continue
            for word in (0, right - 1, right + 1):
                answer = ask(expression.format(word))
                assert (answer[0] if isinstance(answer, list) else answer) == VER_MISMATCH, (expression, word)
            answer = ask(expression.format(right))
            assert (answer[0] if isinstance(answer, list) else answer) == (GONE if "127.0.0.1" in expression else 0)


def test_the_library_is_held_to_the_headers_at_compile_time(tmp_path):
    script, header, facts = ROOT / "sim/dcgm/make_abi_check.py", ROOT / "sim/dcgm/abi.h", ROOT / "data/dcgm-abi.tsv"
    for major, release in ((3, "dcgm3.3.9"), (4, "dcgm4.6.1")):
        for wrong in (False, True):
            rows = facts.read_text(encoding="utf-8")
            if wrong:
                rows = rows.replace(f"{release}\tmember\tdcgmFieldValue_v1\tts\t8\t16",
                                    f"{release}\tmember\tdcgmFieldValue_v1\tts\t8\t12")
            (tmp_path / "facts.tsv").write_text(rows, encoding="utf-8")
            source = tmp_path / "check.c"
            subprocess.run([sys.executable, script, tmp_path / "facts.tsv", header, release, source], check=True)
            made = subprocess.run(["cc", "-fsyntax-only", f"-DDCGM_MAJOR={major}", f"-I{header.parent}", source],
                                  capture_output=True, text=True, check=False)
            assert (made.returncode != 0) == wrong, made.stderr
            assert not wrong or "dcgmFieldValue_v1.ts" in made.stderr


def test_functions_that_came_with_4_are_only_there():
    new = ["dcgmConnect_v3", "dcgmGetGpuStatus", "dcgmGetCpuHierarchy_v2", "dcgmGetNvLinkP2PStatus"]
    old = ["dcgmGetLatestValues_v2", "dcgmStartEmbedded", "dcgmGetCpuHierarchy", "DcgmFieldGetById"]
    for major in MAJORS:
        with On(scenario(major)) as (_, ask):
            assert [ask(f"has({name!r})") for name in new] == [major == 4] * 4
            assert [ask(f"has({name!r})") for name in old] == [True] * 4


@pytest.mark.parametrize("major", MAJORS)
def test_fields_have_the_headers_type_and_level_and_those_of_later_releases_are_unknown(major):
    with On(scenario(major)) as (_, ask):
        assert ask("meta(155)") == [155, "d", "power_usage", 1]
        assert ask("meta(1)")[1:2] == ["s"] and ask("meta(1001)")[3] == GPU_CI and ask("meta(1005)")[3] == GPU_I
        assert ask("meta(60000)") is None
        assert (ask("meta(1525)") is None) == (major == 3)  # came with 4.6
        assert ask("meta(780)")[3] == LINK and ask("meta(701)")[3] == SWITCH and ask("meta(1100)")[3] == CORE


# --- engines and connections ---

def test_nobody_listening_is_a_connection_that_is_not_valid():
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        engine = node.start_engine()
        engine.kill()
        assert ask(f"connect({engine.address!r})") == GONE
        assert ask("connect('/nonexistent/socket', unix=1)") == GONE
        assert ask(f"connect3('tcp://{engine.address}')") == GONE


def test_an_engine_is_reached_by_every_form_of_address():
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        tcp, path = node.start_engine().address, str(node.directory / "engine.sock")
        assert node.start_engine(socket=path).address == f"unix://{path}"
        for expression in (f"connect({tcp!r})", f"connect({path!r}, unix=1)", f"connect3('tcp://{tcp}')",
                           f"connect3('unix://{path}')"):
            assert ask(expression) == 0, expression
            assert ask("version()") == [0, "version:4.6.1;arch:x86_64;buildtype:Release;branch:podgpu-sim;"]
            assert ask("devices()") == [0, [0, 1]]
            assert ask("disconnect()") == 0
            assert ask("devices()")[0] == GONE
        assert ask("connect3('ftp://127.0.0.1:1')") == -1
        assert ask("connect3('vsock://1:5555', timeout_ms=300)") == GONE  # nobody there
        assert ask("connect3('vsock://here')") == GONE


@pytest.mark.parametrize("behave", ["garbage", "close"])
def test_a_peer_that_is_no_engine_shows_at_the_first_call(behave):
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        engine = node.start_engine(behave=behave)
        assert ask(f"connect({engine.address!r})") == 0
        assert ask("version()")[0] == GONE


def test_a_silent_peer_ends_the_connect_at_its_timeout_and_a_slow_one_is_waited_for():
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        assert ask(f"connect({node.start_engine(behave='mute').address!r}, timeout_ms=200)") == GONE
        node.set("dcgm.slow_connect", 600)
        slow = node.start_engine()
        assert ask(f"connect({slow.address!r}, timeout_ms=100)") == GONE
        before = time.monotonic()
        assert ask(f"connect({slow.address!r}, timeout_ms=20000)") == 0
        assert time.monotonic() - before >= 0.6
        assert ask("devices()")[0] == 0


def test_an_engine_of_another_major_refuses_each_call():
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        assert ask(f"connect({node.start_engine(major=3).address!r})") == 0
        assert ask("devices()")[0] == VER_MISMATCH


def test_a_killed_engine_is_noticed_at_the_next_call_and_a_new_one_knows_nothing():
    with run_node.SimNode("dcgm3", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        address = node.engine.address
        assert ask(f"connect({address!r})") == 0
        ask.watch([(GPU, 0)], [100, 155])
        assert ask.values()[GPU, 0, 100] == 1485
        for _ in range(3):
            node.restart_engine()
            for expression in ("latest()[0]", "devices()[0]", "update()", "group('h')[0]", "version()[0]"):
                assert ask(expression) == GONE, expression
            assert ask(f"connect({address!r})") == 0
            assert ask("latest()[0]") == NOT_CONFIGURED  # the groups went with the engine
            ask.watch([(GPU, 0)], [100, 155])
            assert ask.values()[GPU, 0, 100] == 1485
        assert node.engine.address == address


def test_embedding_fails_as_the_scenario_says_and_a_second_start_gives_no_handle():
    with run_node.SimNode("post-dcgm", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        node.set("dcgm.embedded", -7)
        assert ask("start()") == [-7, 0]
        node.set("dcgm.embedded", 0)
        assert ask("start(3)") == [-1, 0]
        assert ask("start()") == [0, 0x7fffffff]
        assert ask("start()") == [0, 0]
        assert ask("LIB.dcgmStopEmbedded(handle())") == 0
        assert ask("devices()")[0] == GONE


def test_nothing_works_before_the_library_is_initialised():
    with run_node.SimNode("post-dcgm", kubelet=False) as node, Client(node) as ask:
        assert ask("start()")[0] == -10
        assert ask("connect('127.0.0.1:1')") == -10
        assert ask("meta(100)") is None


# --- groups ---

@pytest.mark.parametrize("major", MAJORS)
def test_groups_have_unique_names_a_limit_of_64_and_entities_that_exist(major):
    with On(scenario(major)) as (_, ask):
        assert ask("[group(f'a{i}')[0] for i in range(65)]") == [0] * 64 + [-24]
        assert ask("group('a3')[0]") == -26
        assert ask("destroy('a3')") == 0 and ask("destroy('a3')") == NOT_CONFIGURED
        assert ask("group('a3', (1, 0), (1, 0), (1, 7), (4, 0), (3, 9))") == [0, 0, -1, -1, -1, -1]
        assert ask("group('')[0]") == -1
        assert ask("[fields(f'b{i}', 100) for i in range(65)]") == [0] * 64 + [-24]
        assert ask("fields('b3', 100)") == -26
        assert ask("destroy_fields('b3')") == 0 and ask("destroy_fields('b3')") == NO_DATA
        assert ask("fields('b3', *[100] * 129)") == -1 and ask("fields('b3')") == -1
        assert ask("fields('b3', 100, 60000)") == -13
        assert ask("fields('b3', *range(100, 103), *[150] * 125)") == 0


def test_an_empty_group_and_senseless_periods_are_not_watched():
    with On("post-dcgm") as (_, ask):
        assert ask("group('g')") == [0] and ask("fields('f', 100)") == 0
        assert ask("watch()") == -35
        ask("LIB.dcgmGroupAddEntity(handle(), HANDLE(keep['g']), 1, 0)")
        assert ask("watch(period_us=0)") == -1 and ask("watch(age=-1.0)") == -1
        assert ask("unwatch()") == NOT_WATCHED
        assert ask("watch()") == 0 and ask("watch(period_us=50000)") == 0 and ask("unwatch()") == 0
        assert ask("latest()[1]['1/0/100'][1]") == NOT_WATCHED


def test_a_field_that_two_watches_want_stays_until_the_second_ends():
    with On("post-dcgm") as (_, ask):
        ask.watch([(GPU, 0)], [100, 150])
        ask("fields('f2', 150, 155)")
        assert ask("watch(f='f2')") == 0
        assert ask("update()") == 0
        assert ask("unwatch()") == 0
        assert {k: v[1] for k, v in ask("latest()[1]").items()} == {"1/0/100": NOT_WATCHED, "1/0/150": 0}
        assert ask("destroy_fields('f2')") == 0
        assert ask("latest()[1]['1/0/150'][1]") == NOT_WATCHED


# --- samples ---

def test_values_come_with_the_first_update_and_profiling_with_the_second_sample():
    ids = [100, 1001]
    with On("post-dcgm", mode=2) as (_, ask):
        ask("group('g', (1, 0))")
        ask(f"fields('f', *{ids})")
        assert [row[1] for row in ask("latest()[1]").values()] == [NOT_WATCHED, NOT_WATCHED]
        assert ask("watch(period_us=1000)") == 0
        ask("time.sleep(0.02)")  # a manual engine samples by itself never
        assert [row[1] for row in ask("latest()[1]").values()] == [NO_DATA, NO_DATA]
        assert ask("update()") == 0
        rows = ask("latest()[1]")
        assert rows["1/0/100"][1:2] == [0] and rows["1/0/100"][3] == 1455 and rows["1/0/1001"][1] == NO_DATA
        ask("time.sleep(0.002)")
        assert ask("update()") == 0
        assert ask("latest()[1]")["1/0/1001"][3] == 0.808369


def test_an_automatic_engine_samples_by_itself():
    with On("post-dcgm") as (_, ask):
        ask.watch([(GPU, 0)], [100, 1001], period_us=3_600_000_000)
        assert [row[1] for row in ask("latest()[1]").values()] == [NO_DATA, NO_DATA]
        assert ask("watch(period_us=20000)") == 0
        assert ask.values() == {(GPU, 0, 100): 1455, (GPU, 0, 1001): 0.808369}


def test_the_values_are_as_old_as_the_last_sample():
    with On("post-dcgm", mode=2) as (node, ask):
        ask.watch([(GPU, 0)], [150])
        ask("update()")
        first = ask("latest()[1]")["1/0/150"]
        node.set("gpu0.temperature_c", 71)
        assert ask("latest()[1]")["1/0/150"] == first
        assert ask("wait_latest(lambda rows: LIB.dcgmUpdateAllFields(handle(), 1) == 0 and "
                   "rows['1/0/150'][3] == 71)[1]")["1/0/150"][2] > first[2]


@pytest.mark.parametrize("major", MAJORS)
def test_a_record_without_a_value_looks_as_in_its_major(major):
    with On(scenario(major)) as (node, ask):
        ask.watch([(GPU, 0)], [50, 100, 155], period_us=3_600_000_000)
        rows = ask("latest()[1]")
        if major == 3:
            assert set(map(tuple, rows.values())) == {("i", NO_DATA, 0, 0)}
        else:
            assert rows == {"1/0/50": ["s", NO_DATA, 0, "blank"], "1/0/100": ["i", NO_DATA, 0, "blank"],
                            "1/0/155": ["d", NO_DATA, 0, "blank"]}


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize("word", ["blank", "not_found", "not_supported", "no_permission"])
def test_blanks_of_every_kind_stand_in_every_type(major, word):
    with On(scenario(major), mode=2) as (node, ask):
        node.command(f"dcgm set gpu0.50={word} gpu0.100={word} gpu0.155={word}")
        ask.watch([(GPU, 0)], [50, 100, 155])
        ask("update()")
        rows = ask("latest()[1]")
        assert {k: (v[0], v[1], v[3]) for k, v in rows.items()} == {
            "1/0/50": ("s", 0, word), "1/0/100": ("i", 0, word), "1/0/155": ("d", 0, word)}
        assert all(row[2] > 0 for row in rows.values())


def test_a_value_can_be_nan_have_a_status_and_come_back_to_the_truth():
    with On("post-dcgm", mode=2, freeze=5) as (node, ask):
        ask.watch([(GPU, 0)], [100, 155])
        ask("update()")
        node.command("dcgm set gpu0.155=nan gpu0.100=status -14")
        rows = ask("latest()[1]")
        assert rows["1/0/155"][3] == "nan" and rows["1/0/100"] == ["i", -14, 0, "blank"]
        node.command("dcgm set gpu0.155=auto gpu0.100=-3")
        rows = ask("latest()[1]")
        assert rows["1/0/155"][3] == 299.437 and rows["1/0/100"][3] == -3


def test_what_nvml_cannot_say_is_blank_by_its_reason():
    text = """
driver: {version: 535.183.01}
models: models.yaml
gpus: [{model: t4, uuid: GPU-d41d8cd9-8f00-4b20-a980-0998ecf84000, bus_id: "00000000:00:1E.0", load: 0.5,
        signals: {fan_percent: error 4, pstate: error 6, temperature_c: error 999, sm_clock_mhz: unsupported}}]
dcgm: {library: 4}
"""
    with On("x", text=text) as (node, ask):
        ask.watch([(GPU, 0)], [100, 140, 150, 190, 191, 1001])
        assert list(ask.values().values()) == ["not_supported", "not_supported", "blank", "not_found", "no_permission",
                                               "not_supported"]  # 1001: no signal of it
        node.set("gpu0.lost", 1)
        ask("fields('f2', 54, 101)")
        ask("watch(f='f2', period_us=1000)")
        assert [row[3] for row in ask("sampled(f='f2')[1]").values()] == ["GPU-d41d8cd9-8f00-4b20-a980-0998ecf84000", "blank"]
        assert ask("status(0)") == [0, 4]


# --- reading ---

def test_the_posts_node_has_the_posts_values():
    expected = {1: "470.182.03", 50: "NVIDIA A10G", 54: "GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", 100: 1455, 101: 6250,
                140: "not_supported", 150: 65, 155: 299.437, 156: 15782796862, 202: 0, 203: 100, 204: 38, 206: 0, 207: 0,
                251: 2230, 252: 20501, 253: "not_supported", 449: 0, 526: 0, 393: 0, 394: 0, 395: 0, 1001: 0.808369,
                1004: 0.0, 1005: 0.315787, 1009: 3985328, 1010: 21715174, 160: 300.0, 2: "11.470.182.03",
                57: "00000000:00:1E.0", 63: 8 << 16 | 6, 112: 4, 250: 22731}
    with On("post-dcgm") as (_, ask):
        ask.watch([(GPU, 0)], expected)
        assert {field: value for (_, _, field), value in ask.values().items()} == expected
        assert ask("attributes(0)") == [0, {
            "uuid": expected[54], "name": "NVIDIA A10G", "bus_id": "00000000:00:1E.0", "serial": "1324121068497",
            "driver": "470.182.03", "limit": 300, "fb": 22731, "mig": 0x7ffffff0}]


def test_the_posts_node_differs_from_post_in_dcgm_alone():
    post, dcgm = ((ROOT / "sim/scenarios" / f"{name}.yaml").read_text() for name in ("post", "post-dcgm"))
    ours = [line for line in dcgm.splitlines() if not line.startswith("#")]
    for line in ("    dcgm:", "      values: {1001: 0.808369, 1004: 0, 1005: 0.315787, 1009: 3985328, 1010: 21715174}",
                 "dcgm: {library: 4, engine: none}"):
        ours.remove(line)
    assert ours == [line for line in post.splitlines() if not line.startswith("#")]
    csv = [(ROOT / "sim/scenarios" / name / "counters.csv").read_text() for name in ("post", "post-dcgm")]
    assert csv[0] == csv[1]


def test_a_read_calls_back_with_some_values_of_one_entity_and_takes_its_memory_back():
    ids = list(range(100, 103)) + [150, 155, 156, 202, 203, 204, 206, 207, 230, 251, 252, 253, 393, 394, 395]
    with On("dcgm-fabric") as (_, ask):
        ask.watch([(GPU, 0), (GPU, 1)], ids)
        code, rows, sizes, overwritten = ask("latest()")
        assert code == 0 and len(rows) == 2 * len(ids) and sum(sizes) == len(rows)
        assert sizes == [1, 2, 3, 4, 5, 3, 7, 1, 2, 3, 4, 1]
        assert overwritten[:5] == [True] * 5  # a kept pointer shows other values
        assert len(ask("latest(stop_after=3)[1]")) == 6


@pytest.mark.parametrize("engine", [True, False])
def test_a_connection_can_die_in_the_middle_of_a_read(engine):
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node, Client(node) as ask:
        ask("init()")
        again = f"connect({node.start_engine().address!r})" if engine else "start()[0]"
        assert ask(again) == 0
        ask.watch([(GPU, 0)], [100, 101, 150, 155, 203])
        assert len(ask.values()) == 5
        node.fault("dcgmGetLatestValues_v2", "drop")
        code, rows, *_ = ask("latest()")
        assert code == GONE and len(rows) == 1
        assert ask("latest()[0]") == GONE and ask("devices()[0]") == GONE
        ask("disconnect() if %d else LIB.dcgmStopEmbedded(handle())" % engine)
        assert ask(again) == 0 and ask("devices()[0]") == 0
        node.fault("dcgmGetAllDevices", "drop")
        assert ask("devices()[0]") == GONE and ask("version()[0]") == GONE


def test_an_array_of_records_is_entities_times_fields():
    with On("dcgm-fabric") as (_, ask):
        ask.watch([(GPU, 0), (GPU, 1)], [52, 155])
        ask("sampled()")
        code, rows = ask("array([(1, 1), (1, 0)], [52, 155, 100])")
        assert code == 0 and [row[1:4] for row in rows] == [[52, "i", 0], [155, "d", 0], [100, "i", NOT_WATCHED]] * 2
        assert [rows[0][5], rows[3][5]] == [1, 0]
        assert {row[0] for row in rows} == {4128 | 2 << 24}
        live = ask("array([(1, 1)], [52, 100, 1001], 1)")[1]
        assert [row[3] for row in live] == [0, 0, NOT_WATCHED] and live[1][5] > 0
        assert ask("array([(1, 0)] * 1025, [100])[0]") == -1


# --- XIDs, health, profiling ---

def test_an_xid_is_seen_from_the_watch_on_and_told_once_by_since():
    with On("dcgm-fabric") as (node, ask):
        node.xid(13)
        ask.watch([(GPU, 0), (GPU, 1)], [230], period_us=1000)
        assert ask("wait_latest(lambda rows: True)[1]['1/0/230'][1]") == NO_DATA
        node.xid(79)
        node.command("dcgm xid gpu=0 code=48")
        assert ask("wait_latest(lambda rows: rows['1/0/230'][1] == 0)[1]['1/0/230'][3]") == 48
        assert ask("latest()[1]['1/1/230'][1]") == NO_DATA
        code, rows, after = ask("since(0)")
        assert code == 0 and [row[3] for row in rows["1/0/230"]] == [79, 48] and list(rows) == ["1/0/230"]
        assert after == rows["1/0/230"][1][2] + 1
        assert ask(f"since({after})") == [0, {}, after]
        node.xid(94, gpu=1)
        assert [row[3] for row in ask(f"since({after})")[1]["1/1/230"]] == [94]


def test_since_tells_each_sample_of_other_fields():
    with On("dcgm-fabric") as (_, ask):
        ask.watch([(GPU, 0)], [100], period_us=20000)
        assert ask("wait_latest(lambda rows: len(since(0)[1].get('1/0/100', [])) >= 4)[0]") == 0
        stamps = [row[2] for row in ask("since(0)")[1]["1/0/100"]]
        assert all(abs(b - a - 20000) <= 2 for a, b in zip(stamps, stamps[1:]))


@pytest.mark.parametrize("major", MAJORS)
def test_health_tells_the_incidents_of_watched_systems_and_entities(major):
    with On(scenario(major)) as (node, ask):
        ask("group('g', (1, 0))")
        node.command("dcgm health gpu=0 system=THERMAL result=20 code=40 text=too-hot")
        assert ask("health()") == [0, 0, []]  # nothing is watched yet
        assert ask("health_set()") == 0
        assert ask("health()") == [0, 20, [[1, 0, 0x80, 20, 40, "too-hot"]]]
        node.command("dcgm health gpu=0 system=MEM result=10 code=9")
        node.command("dcgm health gpu=1 system=PCIE")
        assert [row[2] for row in ask("health()")[2]] == [0x80, 0x10]
        assert ask("health_set(systems=0x10)") == 0
        assert ask("health()") == [0, 10, [[1, 0, 0x10, 10, 9, "simulated incident"]]]
        node.command("dcgm health clear")
        assert ask("health()") == [0, 0, []]


def test_profiling_can_be_paused_and_be_in_another_owners_hands():
    with On("post-dcgm") as (node, ask):
        ask.watch([(GPU, 0)], [100, 1001])
        assert ask.values()[GPU, 0, 1001] == 0.808369
        assert node.command("dcgm pause") == "0\n"
        assert ask("LIB.dcgmProfPause(handle())") == 0 and node.command("dcgm pause") == "1\n"
        assert ask.values() == {(GPU, 0, 100): 1455, (GPU, 0, 1001): "blank"}
        assert ask("LIB.dcgmProfResume(handle())") == 0
        assert ask.values()[GPU, 0, 1001] == 0.808369
        assert ask("unwatch()") == 0
        node.set("dcgm.profiling", -34)
        assert ask("watch()") == -34 and ask("latest()[1]['1/0/100'][1]") == NOT_WATCHED
        ask("fields('f2', 100)")
        assert ask("watch(f='f2')") == 0
        node.set("dcgm.profiling", -36)
        assert ask("metric_groups(0)[0]") == -36 and ask("watch()") == -36


def test_metric_groups_and_ids_are_of_each_gpu():
    with On("dcgm-mixed", freeze=100) as (node, ask):
        t4, h100 = (node.node.uuid(gpu) for gpu in (0, 1))
        assert [ask(f"attributes({i})")[1]["uuid"] for i in (0, 1)] == [h100, t4]
        assert ask("metric_groups(1)") == [0, [[1, 1, [1002, 1003, 1004, 1007]], [1, 2, [1008]], [2, 0, [1005]],
                                              [3, 0, [1009, 1010]], [4, 0, [1001]]]]
        assert ask("metric_groups(0)") == [0, [[1, 0, list(range(1001, 1017))]]]
        assert ask("metric_groups(2)[0]") == -1
        ask.watch([(GPU, 0), (GPU, 1)], [52, 54, 1001, 1002, 1009], period_us=1000)
        values = ask.values()
        assert [values[GPU, i, 52] for i in (0, 1)] == [1, 0]
        assert [values[GPU, i, 54] for i in (0, 1)] == [h100, t4]
        assert [values[GPU, i, 1001] for i in (0, 1)] == pytest.approx([0.25, 0.5])
        assert [values[GPU, i, 1002] for i in (0, 1)] == pytest.approx([0.94 * 0.25, 0.8 * 0.5])
        assert values[GPU, 1, 1009] == pytest.approx(1000000, abs=1)
        # 1006 is not among the T4's metrics; the H100's GPM knows no 1096.
        assert ask("[group('t4', (1, 1)), group('h100', (1, 0)), fields('fp64', 1006), fields('cycles', 1096)]")[2:] == [0, 0]
        assert ask("watch('t4', 'fp64')") == -36 and ask("watch('g', 'fp64')") == -36 and ask("watch('h100', 'fp64')") == 0
        assert ask("watch('h100', 'cycles', 1000)") == 0
        assert ask("sampled('h100', 'cycles')[1]['1/0/1096'][3]") == "not_supported"


# --- entities ---

def test_mig_instances_are_entities_with_values_of_their_own():
    with On("dcgm-mig") as (node, ask):
        uuid = node.node.uuid(0)
        code, rows = ask("hierarchy()")
        assert code == 0
        assert rows == [[GPU_I, 0, GPU, 0, uuid, 0, 1, 0, 3], [GPU_CI, 0, GPU_I, 0, uuid, 0, 1, 0, 3],
                        [GPU_I, 1, GPU, 0, uuid, 0, 3, 0, 2], [GPU_CI, 1, GPU_I, 1, uuid, 0, 3, 0, 1],
                        [GPU_CI, 2, GPU_I, 1, uuid, 0, 3, 1, 1], [GPU_I, 2, GPU, 0, uuid, 0, 7, 0, 1],
                        [GPU_CI, 3, GPU_I, 2, uuid, 0, 7, 0, 1], [GPU_I, 3, GPU, 0, uuid, 0, 8, 0, 1],
                        [GPU_CI, 4, GPU_I, 3, uuid, 0, 8, 0, 1]]
        assert ask("entities(4)") == [0, [0, 1, 2, 3]] and ask("entities(5)") == [0, [0, 1, 2, 3, 4]]
        node.command("dcgm set gpu0/gi7.1005=0.625 gpu0/gi3/ci1.1001=0.0625")
        ask.watch([(GPU, 0), (GPU, 1), *((GPU_I, i) for i in range(4)), (GPU_CI, 1), (GPU_CI, 2)],
                  [50, 54, 150, 203, 250, 252, 1001, 1002, 1005])
        values = ask.values()
        assert [values[GPU_I, i, 50] for i in range(4)] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
        assert values[GPU_CI, 1, 50] == "1c.2g.10gb"
        assert values[GPU_I, 2, 54] == node.node.instances()[3]["uuid"]
        assert {values[GPU_I, i, 150] for i in range(4)} == {values[GPU, 0, 150]}  # the board's
        assert values[GPU, 0, 203] == "not_supported" and values[GPU, 1, 203] == 90
        assert values[GPU_I, 0, 250] == 20480 and values[GPU_I, 0, 252] == pytest.approx(15000, abs=100)
        assert values[GPU_I, 0, 1001] == pytest.approx(3 / 7) and values[GPU_I, 0, 1002] == pytest.approx(0.94)
        assert values[GPU_I, 2, 1005] == 0.625 and values[GPU_CI, 2, 1001] == 0.0625
        assert values[GPU_I, 0, 1005] == pytest.approx(0.46) and values[GPU_I, 3, 1005] == 0
        assert values[GPU, 1, 1001] == pytest.approx(0.9)
        node.command("mig gpu=0 layout=7g.40gb")
        assert [row[:2] + row[6:7] for row in ask("hierarchy()")[1]] == [[GPU_I, 0, 0], [GPU_CI, 0, 0]]
        assert ask("latest()[1]['4/3/1001'][1]") == NO_DATA


def link(owner, ident, index):
    return owner | index << 8 | ident << 24


def test_switches_and_links_have_states_and_values():
    with On("dcgm-fabric") as (node, ask):
        assert ask("entities(3)") == [0, [0, 3]] and ask("entities(1)") == [0, [0, 1]]
        assert ask("entities(3, 1)") == [-31, 2]
        up = [link(GPU, 0, 0), link(GPU, 0, 1), link(GPU, 0, 3), link(GPU, 1, 0), link(GPU, 1, 3), link(SWITCH, 0, 0),
              link(SWITCH, 0, 1), link(SWITCH, 0, 17), link(SWITCH, 3, 0)]
        assert ask("entities(6)") == [0, up]
        code, gpus, switches = ask("links()")
        assert code == 0 and len(gpus["0"]) == 36 and len(switches["3"]) == 256
        assert gpus["0"][:5] == [3, 3, 2, 3, 0] and gpus["1"][:5] == [3, 1, 2, 3, 0]
        assert switches["0"][:18] == [3, 3, 2] + [0] * 14 + [3] and switches["3"][:5] == [3, 1, 2, 0, 0]
        ask.watch([(SWITCH, 0), (SWITCH, 3)], [701, 857, 858, 150])
        values = ask.values()
        assert [values[SWITCH, i, 858] for i in (0, 3)] == [41, 44] and values[SWITCH, 3, 857] == 11012
        assert values[SWITCH, 0, 150] == "not_supported"
        ask(f"group('l', *[(6, i) for i in {up}])")
        ask("fields('lf', 780, 1525)")
        ask("watch('l', 'lf', 1000)")
        rows = ask("sampled('l', 'lf')[1]")
        assert rows[f"6/{link(GPU, 1, 3)}/1525"][3] == 113 and rows[f"6/{link(SWITCH, 0, 17)}/780"][3] == 1017
        node.command("dcgm set switch0/link2.state=up gpu0/link0.state=disabled switch0.701=0.5 gpu0/link3.1525=7")
        assert ask("links()")[1]["0"][0] == 1 and ask("entities(6)")[1].count(link(SWITCH, 0, 2)) == 1
        key = f"6/{link(GPU, 0, 3)}/1525"
        assert ask(f"wait_latest(lambda rows: rows[{key!r}][3] == 7, g='l', f='lf')[1]")[key][3] == 7


def test_links_are_told_in_the_old_struct_by_3():
    with On("dcgm3") as (_, ask):
        code, gpus, switches = ask("links()")
        assert code == 0 and switches == {} and gpus == {"0": [0] * 18, "1": [0] * 18}


def test_gpus_with_links_are_peers():
    with On("dcgm-fabric") as (node, ask):
        assert ask("peers()") == [0, [[0, 6, 0], [1, 0, 6]]]
        node.command("dcgm peer gpu0 gpu1 3")
        assert ask("peers()") == [0, [[0, 6, 3], [1, 0, 6]]]
    with On("dcgm-mixed") as (_, ask):
        assert ask("peers()") == [0, [[0, 6, 5], [1, 5, 6]]]


def test_grace_cpus_and_cores_have_values():
    with On("dcgm-grace") as (node, ask):
        assert ask("entities(7)") == [0, [0, 1]] and ask("entities(8)") == [0, list(range(8))]
        assert ask("cpus()") == [0, [[0, 0x0f], [1, 0xf0]]]
        assert ask("cpus2()") == [0, [[0, 0x0f, "0x000000017820B1C8"], [1, 0xf0, "0x000000017820B1C9"]]]
        node.command("dcgm set cpu1/core6.1100=0.03125 cpu0.1110=48.5")
        ask.watch([(CPU, 0), (CPU, 1), (CORE, 3), (CORE, 6)], [1100, 1110, 1120, 1141])
        values = ask.values()
        assert values[CPU, 0, 1110] == 48.5 and values[CPU, 1, 1141] == "Grace A02" and values[CORE, 3, 1100] == 0.5
        assert values[CORE, 6, 1100] == 0.03125 and values[CORE, 6, 1120] == 3393000
        assert values[CORE, 6, 1110] == "not_supported"


def test_links_throughput_is_in_units_of_1000_kib_a_second():
    with On("dcgm-fabric", mode=2, freeze=10) as (node, ask):
        node.run()
        ask.watch([(GPU, 0)], [449, 843, 897], period_us=100000)
        ask("update()")
        assert [row[3] for row in ask("latest()[1]").values()] == [0, 0, 0]
        ask("time.sleep(0.12)")
        ask("update()")
        values = [row[3] for row in ask("latest()[1]").values()]
        assert values == pytest.approx([0.75 * 350000, 0.75 * 180000, 0.75 * 170000], abs=2)
        node.freeze(20)
        assert [row[3] for row in ask("latest()[1]").values()] == pytest.approx(values, abs=2)


# --- faults and counts ---

def test_calls_are_counted_and_meet_faults():
    with On("post-dcgm") as (node, ask):
        node.reset_counts()
        ask.watch([(GPU, 0)], [100, 150])
        for _ in range(3):
            ask("latest()")
        counts = {name: calls for name, (calls, _) in node.counts().items()}
        assert counts == {"dcgmGroupCreate": 1, "dcgmGroupAddEntity": 1, "dcgmFieldGroupCreate": 1, "dcgmWatchFields": 1,
                          "dcgmGetLatestValues_v2": 3}
        node.fault("dcgmGetAllDevices", "return=-57", count=1)
        assert ask("devices()[0]") == -57 and ask("devices()[0]") == 0
        node.fault("dcgmGetAllDevices", "delay=200", count=1)
        before = time.monotonic()
        assert ask("devices()[0]") == 0 and time.monotonic() - before >= 0.2
        node.fault("dcgmInit", "crash")
        ask.process.stdin.write("init()\n")
        ask.process.stdin.flush()
        assert ask.process.wait(20) == -11


def test_a_fault_can_be_of_one_gpu_told_by_nvmls_index():
    with On("dcgm-mixed") as (node, ask):
        for symbol, expression in (("dcgmGetDeviceAttributes", "attributes({})[0]"), ("dcgmGetGpuStatus", "status({})[0]"),
                                   ("dcgmProfGetSupportedMetricGroups", "metric_groups({})[0]")):
            node.fault(symbol, "return=-18", gpu=0)
            assert [ask(expression.format(i)) for i in (0, 1)] == [0, -18], symbol


def test_a_call_that_hangs_holds_up_no_other():
    with On("post-dcgm") as (node, ask):
        ask("[globals().update(threading=__import__('threading')), None][1]")
        node.fault("dcgmGetAllDevices", "hang")
        ask("[keep.update(t=threading.Thread(target=devices, daemon=True)), keep['t'].start(), None][2]")
        node.wait_until(lambda: node.node.calls("dcgmGetAllDevices") == 1)
        assert ask("attributes(0)[0]") == 0
        assert ask("keep['t'].is_alive()") is True
        node.clear_faults("dcgmGetAllDevices")
        assert ask("[keep['t'].join(20), keep['t'].is_alive()][1]") is False


@pytest.mark.parametrize("line, complaint", [
    ("dcgm set gpu0.x=1", "expected ENTITY.FIELD_ID"), ("dcgm set fan0.1=1", "expected gpuN"),
    ("dcgm set gpu0.100", "expected NAME=VALUE"), ("dcgm set gpu0/link77.state=up", "no such link"),
    ("dcgm set gpu0.100=status", "expected 'status CODE'"), ("dcgm", "dcgm set"), ("dcgm health gpu=0", "dcgm health"),
    ("dcgm health gpu=0 system=COFFEE", "no health system"), ("dcgm peer gpu0 gpu9 1", "no such GPU")])
def test_a_wrong_verb_is_refused_with_a_reason(line, complaint):
    with run_node.SimNode("dcgm-fabric", kubelet=False) as node:
        with pytest.raises(Exception, match=complaint):
            node.command(line)


@pytest.mark.parametrize("section, complaint", [
    ("{library: 5}", "library: 4 or 3"), ("{engine: maybe}", "none or running"), ("{gpu_order: [0]}", "each GPU once"),
    ("{gpu_order: [0, 0]}", "each GPU once"), ("{switches: [{values: {1: 1}}]}", "id"),
    ("{switches: [{id: 0, links: [{index: 1, state: sideways}]}]}", "expected up"),
    ("{cpus: [{id: 0, cores: 3-1}]}", "expected cores"), ("{owner: me}", "in_use"), ("{colour: red}", "colour")])
def test_a_wrong_dcgm_section_is_refused_with_a_reason(section, complaint):
    text = f"""
driver: {{version: 535.183.01}}
models: models.yaml
gpus: [{{model: t4, uuid: GPU-a, bus_id: "00000000:00:1E.0"}}, {{model: t4, uuid: GPU-b, bus_id: "00000000:00:1F.0"}}]
dcgm: {section}
"""
    with pytest.raises(RuntimeError, match=complaint):
        with run_node.SimNode(text=text, kubelet=False):
            pass


def test_nodes_without_dcgm_have_no_libdcgm_on_their_path():
    for name, major in (("post", 0), ("post-dcgm", 4), ("dcgm3", 3)):
        with run_node.SimNode(name, kubelet=False) as node:
            assert node.node.dcgm_library == major
            folders = node.env["LD_LIBRARY_PATH"].split(":")
            assert [f for f in folders if "dcgm" in f] == ([str(BUILD / "sim" / f"dcgm{major}")] if major else [])
            assert (node.engine is not None) == (name == "dcgm3")

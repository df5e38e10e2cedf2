"""Where the CloudWatch agent's configuration is looked for, and what counts as JSON in it, beside Python's own reader.
The program under test is the agent's reader in a small driver (tests/tools/cwagent_config_probe.c)."""
import json
import os
import subprocess

import pytest

from agent_harness import (KEYS, Agent, Target, agent_at, configuration, declaration, events_when, scrape_job,
                           write_files)
from harness import BLOG, BUILD, ROOT, SLOW, wait_until

pytestmark = pytest.mark.faults
PROBE = BUILD / "tests" / "tools" / "cwagent_config_probe"
CONTAINER = "etc/cwagentconfig"
HOST = "opt/aws/amazon-cloudwatch-agent/etc"
HOST_FILE = f"{HOST}/amazon-cloudwatch-agent.json"
HOST_DIRECTORY = f"{HOST}/amazon-cloudwatch-agent.d"


class Answer:
    def __init__(self, run):
        self.status = run.returncode
        lines = run.stdout.splitlines()
        self.warnings = json.loads(lines[-1])
        self.watched = json.loads(lines[-2])
        self.errors = lines[:-2] if self.status else []
        self.config = None if self.status else json.loads(lines[0])
        self.declarations = [] if self.status else [json.loads(line) for line in lines[1:-2]]


def load(*arguments, **environment):
    run = subprocess.run([PROBE, "load", *map(str, arguments)], capture_output=True, text=True, env=environment,
                         timeout=30 * SLOW, check=False)
    assert not run.stderr, run.stderr
    return Answer(run)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def region(name):
    return {"agent": {"region": name}}


def prometheus(**keys):
    return {"logs": {"metrics_collected": {"prometheus": keys}}}


# --- Places ---

def test_the_post_s_file_is_read_by_its_path():
    answer = load(BLOG / "cwagentconfig.json")
    assert answer.status == 0 and answer.warnings == []
    assert answer.config["prometheus_path"] == "/etc/prometheusconfig/prometheus.yaml"
    assert answer.config["metric_namespace"] == "CWAgent/Prometheus"
    given = json.loads((BLOG / "cwagentconfig.json").read_text(encoding="utf-8"))
    given = given["logs"]["metrics_collected"]["prometheus"]["emf_processor"]["metric_declaration"][0]
    assert answer.declarations == [{
        "file": str(BLOG / "cwagentconfig.json"), "line": 8, "source_labels": given["source_labels"],
        "matcher": given["label_matcher"], "selectors": given["metric_selectors"],
        "dimensions": [sorted(given["dimensions"][0])]}]
    assert answer.watched == [str(BLOG / "cwagentconfig.json")]


def test_a_place_goes_before_the_next(tmp_path):
    environment = {"CW_CONFIG_CONTENT": json.dumps(region("variable"))}
    answer = load("--root", tmp_path, **environment)
    assert answer.config["region"] == "variable"
    write(tmp_path / HOST_DIRECTORY / "file_x", region("host"))
    answer = load("--root", tmp_path, **environment)
    assert answer.config["region"] == "host"
    write(tmp_path / HOST_FILE, {"agent": {"debug": True}})
    answer = load("--root", tmp_path, **environment)
    assert answer.config["region"] == "host" and answer.config["debug"]
    assert str(tmp_path / HOST_FILE) in answer.watched and str(tmp_path / HOST_DIRECTORY) in answer.watched
    write(tmp_path / CONTAINER / "config", region("container"))
    answer = load("--root", tmp_path, **environment)
    assert answer.config["region"] == "container" and not answer.config["debug"]
    assert answer.watched == [str(tmp_path / CONTAINER), str(tmp_path / CONTAINER / "config")]
    given = write(tmp_path / "given.json", region("given"))
    answer = load("--root", tmp_path, given, **environment)
    assert answer.config["region"] == "given"


def test_a_directory_without_json_is_passed_over(tmp_path):
    write(tmp_path / CONTAINER / "prometheus.yaml", "scrape_configs: []")
    write(tmp_path / HOST_FILE, region("host"))
    answer = load("--root", tmp_path)
    assert answer.config["region"] == "host"
    assert answer.config["prometheus_path"] is None


def test_nothing_anywhere_names_every_place(tmp_path):
    answer = load("--root", tmp_path, CW_CONFIG_CONTENT="")
    assert answer.status == 3
    assert answer.errors == [
        f"no configuration in {tmp_path}/{CONTAINER}, {tmp_path}/{HOST_FILE}, {tmp_path}/{HOST_DIRECTORY} or the "
        "environment variable CW_CONFIG_CONTENT"]
    assert answer.watched == [str(tmp_path / p) for p in (CONTAINER, HOST_FILE, HOST_DIRECTORY)]


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", ".hidden", "a.tmp"])
def test_names_that_are_not_json_are_passed_over(tmp_path, name):
    write(tmp_path / name, "{")
    assert load(tmp_path).errors == [f"{tmp_path}: no JSON file in it"]
    write(tmp_path / "plain", region("a"))
    assert load(tmp_path).config["region"] == "a"


def test_a_path_that_is_not_there(tmp_path):
    answer = load(tmp_path / "x")
    assert answer.status == 3 and answer.errors == [f"{tmp_path}/x: No such file or directory"]


def test_content_of_a_variable_is_named_by_it(tmp_path):
    answer = load("--root", tmp_path, CW_CONFIG_CONTENT='{"logs": {"x": 1}}')
    assert answer.status == 1
    assert answer.errors == ["CW_CONFIG_CONTENT:1:16: /logs/x: unknown key",
                             "CW_CONFIG_CONTENT:1:10: /logs: expected metrics_collected or logs_collected in it"]


def test_files_are_read_in_order_of_their_paths(tmp_path):
    for name in ("b", "a", "sub/a", "c"):
        write(tmp_path / name, region(name.replace("/", "-")))
    answer = load(tmp_path)
    assert answer.errors == [f"{tmp_path}/{name}:1:22: /agent/region: differs from the value at {tmp_path}/a:1:22"
                             for name in ("b", "c", "sub/a")]


def test_a_mounted_configmap_is_read_once(tmp_path):
    mount = tmp_path / CONTAINER
    write(mount / "..2026_01_01" / "cwagentconfig.json", prometheus(cluster_name="one"))
    write(mount / "..2026_01_01" / "prometheus.yaml", "scrape_configs: []")
    write(mount / "..2026_01_01" / "sub" / "more.json", region("r"))
    (mount / "..data").symlink_to("..2026_01_01")
    for name in ("cwagentconfig.json", "prometheus.yaml", "sub"):
        (mount / name).symlink_to(f"..data/{name}")
    answer = load("--root", tmp_path, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert answer.status == 0, answer.errors
    assert answer.config["cluster_name"] == "one" and answer.config["region"] == "r"
    assert answer.config["prometheus_path"] == f"{tmp_path}/{CONTAINER}/prometheus.yaml"
    assert answer.config["metric_namespace"] == "ContainerInsights/Prometheus"
    assert sorted(answer.watched) == [str(mount / p) for p in ("", "cwagentconfig.json", "sub", "sub/more.json")]
    # As the kubelet swaps it.
    write(mount / "..2026_01_02" / "cwagentconfig.json", prometheus(cluster_name="two"))
    write(mount / "..2026_01_02" / "sub" / "more.json", region("r"))
    (mount / "..new").symlink_to("..2026_01_02")
    os.replace(mount / "..new", mount / "..data")
    (mount / "prometheus.yaml").unlink()
    assert load("--root", tmp_path).config["cluster_name"] == "two"


def test_links_that_lead_nowhere_or_in_circles_are_told(tmp_path):
    (tmp_path / "x").symlink_to("nowhere")
    assert load(tmp_path).errors == [f"{tmp_path}/x: No such file or directory"]
    (tmp_path / "x").unlink()
    (tmp_path / "x").symlink_to(".")
    answer = load(tmp_path)
    assert answer.status == 1 and answer.errors == [f"{tmp_path}/x/x/x/x/x: directories nested too deeply"]


def test_as_many_files_as_are_allowed_and_no_more(tmp_path):
    for i in range(64):
        write(tmp_path / f"{i:02}", region("a"))
    assert load(tmp_path).status == 0
    write(tmp_path / "64", region("a"))
    answer = load(tmp_path)
    assert answer.status == 1 and len(answer.errors) == 1 and answer.errors[0].endswith(": more than 64 files")


def test_what_is_no_file_is_passed_over_and_large_ones_are_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    path = write(tmp_path / "a", region("a") | {"x": "y" * ((1 << 20) - 60)})
    assert load(tmp_path).config["region"] == "a"
    write(path, region("a") | {"x": "y" * (1 << 20)})
    assert load(tmp_path).errors == [f"{path}: larger than 1 MiB"]
    assert load(tmp_path / "fifo").status == 1


def test_after_a_refused_file_its_place_is_still_watched(tmp_path):
    path = write(tmp_path / CONTAINER / "a.json", "{")
    answer = load("--root", tmp_path)
    assert answer.status == 1
    assert answer.watched == [str(tmp_path / CONTAINER), str(path)]


def test_a_file_of_a_directory_is_taken_again_once_it_is_mended_in_place(tmp_path):
    folder = tmp_path / "configuration"
    folder.mkdir()
    job = [scrape_job("127.0.0.1:1", name="one")]
    path = write_files(folder, configuration(declaration(["^m$"], [["job"]])), job)
    good = path.read_text(encoding="utf-8")
    agent = Agent(["--config", folder, "--listen", "127.0.0.1:0", "--output", f"file:{tmp_path}/events"], KEYS,
                  folder=tmp_path)
    try:
        agent.page_when(lambda p: p.value("podgpu_agent_config_last_reload_successful") == 1)
        for round_ in (1, 2):
            path.write_text(good[:-20], encoding="utf-8")
            wait_until(lambda n=round_: agent.page().value("podgpu_agent_config_reload_failures_total") == n, 20,
                       "it is refused")
            path.write_text(good, encoding="utf-8")
            wait_until(lambda: agent.page().value("podgpu_agent_config_last_reload_successful") == 1, 20, "it is taken")
    finally:
        status, _ = agent.stop(seconds=20)
    assert status == 0, agent.log[-2000:]


# --- The environment ---

def test_the_text_of_prometheus_yaml_may_be_a_variable(tmp_path):
    path = write(tmp_path / "a", prometheus(prometheus_config_path="env:PROMETHEUS_CONFIG_CONTENT"))
    answer = load(path, PROMETHEUS_CONFIG_CONTENT="scrape_configs: []\n")
    assert answer.config["prometheus_text"] == "scrape_configs: []\n" and answer.config["prometheus_path"] is None
    assert load(path).errors == [
        f"{path}:1:74: /logs/metrics_collected/prometheus/prometheus_config_path: the environment variable "
        "'PROMETHEUS_CONFIG_CONTENT' is not set"]


@pytest.mark.parametrize("environment, container, namespace", [
    ({}, False, "CWAgent/Prometheus"),
    ({"RUN_IN_CONTAINER": "True"}, True, "ContainerInsights/Prometheus"),
    ({"RUN_IN_CONTAINER": "1"}, False, "CWAgent/Prometheus"),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True, "ContainerInsights/Prometheus"),
    ({"ECS_CONTAINER_METADATA_URI_V4": "http://x"}, True, "ECS/ContainerInsights/Prometheus"),
])
def test_a_container_is_told_by_the_environment(tmp_path, environment, container, namespace):
    answer = load(write(tmp_path / "a", "{}"), **environment)
    assert answer.config["in_container"] == container
    assert answer.config["add_host"] != container
    assert answer.config["metric_namespace"] == namespace


def test_the_cluster_may_be_named_by_the_section_of_kubernetes_alone(tmp_path):
    config = configuration(declaration(["^m$"], [["ClusterName"]]), cluster_name="")
    config["logs"]["metrics_collected"]["kubernetes"] = {"cluster_name": "theirs"}
    events = tmp_path / "events.json"
    with Target("# TYPE m gauge\nm 1\n") as target:
        write_files(tmp_path, config, [scrape_job(target.address, interval="300ms")])
        with agent_at(tmp_path, "--output", f"file:{events}", env={"RUN_IN_CONTAINER": "True"}):
            found = events_when(events, lambda e: len(e) >= 1)
    assert found[0]["ClusterName"] == "theirs"


def test_compat_has_the_agent_s_defaults(tmp_path):
    path = write(tmp_path / "a", "{}")
    ours, agents = load(path).config, load("--compat", path).config
    assert not ours["log_unmatched"] and ours["retention_days"] == 30
    assert agents["log_unmatched"] and agents["retention_days"] == 0


# --- What is JSON ---

ODD = [
    b"{}", b" \t\r\n{ }\n", b"[]", b"", b" ", b"nul", b"null", b"true", b"5", b'"x"', b"{", b"}", b"{}{}", b"{},",
    b'{"a":1,}', b"{,}", b'{"a"}', b'{"a":}', b'{"a" 1}', b"{a:1}", b"{'a':1}", b'{"a":1 "b":2}', b"[1,]", b"[,1]",
    b'{"a":01}', b'{"a":-0}', b'{"a":-}', b'{"a":+1}', b'{"a":1.}', b'{"a":.5}', b'{"a":1e5}', b'{"a":1E+5}',
    b'{"a":1e}', b'{"a":0x1}', b'{"a":1_0}', b'{"a":TRUE}', b'{"a":tru}',
    b'{"a":"\\u0041"}', b'{"a":"\\u00g1"}', b'{"a":"\\x41"}', b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\/"}',
    b'{"a":"\t"}', b'{"a":"\n"}', b'{"a":"\\n"}', b'{"a":"x', b'{"a":"\\"}', b'{"a":"\x7f"}', b'{"\xc3\xa9":1}',
    b"// x\n{}", b"/* */{}", b"# x\n{}", b'{"a":1e400}', b'{"a":[[[[[]]]]]}', b'{"a":{"b":{"a":1}}}',
    b'{"a":123456789012345678901234567890}', b'{"":1}', b'{"a":""}', b"{\x0b}", b"{\xc2\xa0}", b"{} \x00",
]
# Python takes these; RFC 8259 leaves them open or forbids them, and the agent's Go reader refuses most.
REFUSED = [b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b'{"a":"\\ud83d"}', b'{"a":"\\u0000"}',
           b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":1e400}', b"5", b"null", b"true", b'"x"', b"[]"]


def python_accepts(text):
    try:
        json.loads(text.decode("utf-8"))
    except ValueError:
        return False
    return True


def test_json_is_what_python_takes_for_it_but_for_a_few(tmp_path):
    texts = ODD + REFUSED
    paths = [tmp_path / f"{i}.json" for i in range(len(texts))]
    for path, text in zip(paths, texts):
        path.write_bytes(text)
    run = subprocess.run([PROBE, "check", *paths], capture_output=True, text=True, timeout=60 * SLOW, check=True)
    answers = run.stdout.splitlines()
    assert len(answers) == len(texts)
    for path, text, answer in zip(paths, texts, answers):
        expected = python_accepts(text) and text not in REFUSED
        assert (answer == "good") == expected, (text, answer)
        assert answer == "good" or answer.startswith(f"{path}:"), (text, answer)


def test_a_document_cut_anywhere_is_refused_with_its_place(tmp_path):
    whole = (BLOG / "cwagentconfig.json").read_bytes().rstrip()
    paths = []
    for end in range(0, len(whole), 7):
        paths.append(tmp_path / f"{end}.json")
        paths[-1].write_bytes(whole[:end])
    run = subprocess.run([PROBE, "check", *paths], capture_output=True, text=True, timeout=60 * SLOW, check=True)
    for path, answer in zip(paths, run.stdout.splitlines(), strict=True):
        assert answer.startswith(f"{path}:") and ": /: not JSON: " in answer


# --- Documentation ---

def test_the_documentation_has_every_key_as_it_is_read():
    run = subprocess.run([ROOT / "script" / "make-agent-docs", "--check"], capture_output=True, text=True,
                         env={**os.environ, "PODGPU_BUILD": str(BUILD)}, timeout=60 * SLOW, check=False)
    assert run.returncode == 0, run.stderr

"""podgpu-agent from its command line: flags, --check, --lint, configurations that are wrong or missing."""
import json

import pytest

from agent_harness import CLUSTER, configuration, declaration, run_agent, scrape_job, write_files
from harness import BLOG, ROOT

pytestmark = pytest.mark.faults

GOOD = configuration(declaration(["^m$"], [["job"]]))


def check(folder, *more, env=None):
    return run_agent("--config", folder / "cwagentconfig.json", "--check", *more, env=env)


@pytest.mark.smoke
def test_help_names_every_flag_and_version_the_program():
    status, out, _ = run_agent("--help")
    assert status == 0
    for flag in ("config", "prometheus-config", "output", "once", "check", "lint", "estimate", "compat", "listen"):
        assert f"--{flag}" in out
    assert run_agent("--version")[:2] == (0, f"podgpu-agent version {(ROOT / 'VERSION').read_text().strip()}\n")


@pytest.mark.parametrize("arguments, says", [
    (["--outptu=stdout"], "--output"),
    (["--output=nowhere"], "--output (PODGPU_AGENT_OUTPUT)"),
    (["--output=stdout,stdout,stdout,stdout,stdout"], "expected 4 at most"),
    (["--compat=other"], "expected cwagent, found 'other'"),
    (["--log-format=xml"], "expected text or json, found 'xml'"),
    (["--once", "--check"], "expected one of them at most"),
    (["run"], "'run': expected a flag"),
])
def test_a_wrong_flag_ends_with_status_1_and_says_what_was_expected(arguments, says):
    status, out, log = run_agent(*arguments)
    assert (status, out) == (1, "")
    assert says in log.replace('\\"', '"'), log


def test_no_configuration_is_an_error_that_names_every_place_looked(tmp_path):
    status, _, log = run_agent("--output", "stdout")
    assert status == 1
    for place in ("/etc/cwagentconfig", "/opt/aws/amazon-cloudwatch-agent/etc", "CW_CONFIG_CONTENT"):
        assert place in log
    status, _, log = run_agent("--config", tmp_path / "none.json")
    assert status == 1 and f"{tmp_path}/none.json" in log


def test_check_accepts_what_is_good_and_reads_nothing_else(tmp_path):
    write_files(tmp_path, GOOD, [scrape_job("127.0.0.1:1")])
    assert check(tmp_path) == (0, "the configuration is good\n", "")


@pytest.mark.parametrize("compat, disabled, processor, podgpu, says", [
    ((), False, None, None, "there is no emf_processor"),
    ((), False, {}, None, "emf_processor has no metric_declaration"),
    ((), False, {}, {"unmatched": "log"}, None),
    ((), True, None, None, None),
    (("--compat=cwagent",), False, None, None, None),
])
def test_a_configuration_that_sends_nothing_is_warned_of(tmp_path, compat, disabled, processor, podgpu, says):
    config = configuration(podgpu=podgpu)
    prometheus = config["logs"]["metrics_collected"]["prometheus"]
    del prometheus["emf_processor"]
    if processor is not None:
        prometheus["emf_processor"] = processor
    if disabled:
        prometheus["disable_metric_extraction"] = True
    write_files(tmp_path, config, [scrape_job("127.0.0.1:1")])
    warning = (f"{tmp_path}/cwagentconfig.json: /logs/metrics_collected/prometheus: {says} and podgpu.unmatched is "
               '"drop": no sample is sent\n') if says else ""
    assert check(tmp_path, *compat) == (0, warning + "the configuration is good\n", "")


def test_histograms_without_aggregate_are_a_problem_with_its_place(tmp_path):
    write_files(tmp_path, configuration(declaration(["."], [["job"]]), podgpu={"histograms": "values"}),
                [scrape_job("127.0.0.1:1")])
    status, out, _ = check(tmp_path)
    assert status == 1
    assert '/podgpu: histograms "values" need aggregate, a whole number of minutes' in out


def test_check_tells_every_problem_of_both_files_at_once(tmp_path):
    config = configuration(declaration(["["], [["job"]]), label_sep=1)
    config["logs"]["force_flush_interval"] = 0
    write_files(tmp_path, config, [scrape_job("127.0.0.1:1"), "- job_name: app\n  scrape_intervall: 5s\n"])
    status, out, _ = check(tmp_path)
    assert status == 1
    for where, what in (("cwagentconfig.json:", "label_sep"), ("cwagentconfig.json:", "force_flush_interval"),
                        ("cwagentconfig.json:", "metric_selectors"),
                        ("prometheus.yaml:7:13:", "app"), ("prometheus.yaml:8:3:", "scrape_intervall")):
        assert any(line.startswith(f"{tmp_path}/{where}") and what in line for line in out.splitlines()), out


def test_check_tells_problems_of_prometheus_yaml_with_their_place(tmp_path):
    write_files(tmp_path, GOOD, [scrape_job("127.0.0.1:1"), "- job_name: app\n  scrape_intervall: 5s\n"])
    status, out, _ = check(tmp_path)
    assert status == 1
    assert sorted(line.split(" ")[0] for line in out.splitlines()) == [f"{tmp_path}/prometheus.yaml:{at}:"
                                                                       for at in ("7:13", "8:3")], out
    assert "scrape_intervall" in out and "app" in out


def test_a_wrong_configuration_does_not_start(tmp_path):
    write_files(tmp_path, "{", [])
    status, _, log = run_agent("--config", tmp_path / "cwagentconfig.json", "--output", "stdout")
    assert status == 1 and f"{tmp_path}/cwagentconfig.json:1:" in log


def test_a_node_scope_without_the_nodes_name_is_an_error(tmp_path):
    write_files(tmp_path, dict(GOOD, podgpu={"scope": "node"}), [scrape_job("127.0.0.1:1")])
    status, out, _ = check(tmp_path)
    assert status == 1 and "NODE_NAME" in out
    assert check(tmp_path, env={"NODE_NAME": "n1"})[0] == 0
    assert check(tmp_path, env={"K8S_NODE_NAME": "n1"})[0] == 0


def test_both_files_may_come_from_the_environment(tmp_path):
    config = configuration(declaration(["^m$"], [["job"]]), prometheus_config_path="env:PROMETHEUS_CONFIG_CONTENT")
    env = {"CW_CONFIG_CONTENT": json.dumps(config), "PROMETHEUS_CONFIG_CONTENT": "scrape_configs:\n" + scrape_job("a:1")}
    assert run_agent("--check", env=env) == (0, "the configuration is good\n", "")
    status, out, _ = run_agent("--check", env={**env, "PROMETHEUS_CONFIG_CONTENT": "scrape_configs: 5"})
    assert status == 1 and "PROMETHEUS_CONFIG_CONTENT:1:" in out


def test_an_endpoint_that_is_none_ends_the_start_and_is_named(tmp_path):
    write_files(tmp_path, GOOD, [scrape_job("127.0.0.1:1")])
    status, _, log = run_agent("--config", tmp_path / "cwagentconfig.json", "--listen", "",
                               env={"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": "ftp://logs"})
    assert status == 1 and "ftp://logs" in log


# --- lint ---

def lint(config, prometheus, **more):
    return run_agent("--config", config, "--prometheus-config", prometheus, "--lint", **more)


def test_lint_names_the_five_faults_of_the_posts_configuration_with_line_and_mend():
    config, prometheus = BLOG / "cwagentconfig.json", BLOG / "prometheus-cwagent.yaml"
    status, out, _ = lint(config, prometheus)
    lines = prometheus.read_text().splitlines()
    def line_of(text):
        return 1 + next(i for i, line in enumerate(lines) if text in line)
    expected = [
        (prometheus, line_of("metrics_path"), "not /api/v1/metrics/prometheus", "mend: metrics_path: /metrics"),
        (prometheus, line_of("'^DCGM.*$'"), "capital letters", "mend: '.*(dcgm|podgpu)-exporter|exporter'"),
        (prometheus, line_of("(?::d+)?"), "a backslash got lost", "mend: write '([^:]+)(?::\\d+)?'"),
        (prometheus, line_of("[__meta_kubernetes_pod]"), "the label __meta_kubernetes_pod, it is always empty",
         "mend: remove the rule"),
        (config, 9, "matches on the label Service, and no rule of a job about GPUs sets it",
         "mend: in relabel_configs add a rule with target_label: Service"),
    ]
    found = out.splitlines()
    assert status == 1 and len(found) == len(expected), out
    for line, (path, number, what, mend) in zip(found, expected):
        assert line.startswith(f"{path}:{number}: "), (line, number)
        assert what in line and mend in line, line


def test_lint_has_nothing_to_say_about_the_corrected_pair():
    deploy = ROOT / "deploy" / "cloudwatch"
    assert lint(deploy / "cwagentconfig.json", deploy / "prometheus.yaml") == (0, "nothing to say\n", "")


@pytest.mark.parametrize("job, says", [
    ("- job_name: a\n", "has no discovery"),
    ("- job_name: a\n  kubernetes_sd_configs: [{role: pod}]\n  relabel_configs:\n"
     "  - {source_labels: [__meta_kubernetes_pod_nam], target_label: x}\n", "write __meta_kubernetes_pod_name"),
    ("- job_name: a\n  kubernetes_sd_configs: [{role: node}]\n  relabel_configs:\n"
     "  - {source_labels: [__meta_kubernetes_pod_name], target_label: x}\n", "__meta_kubernetes_pod_name"),
    ("- job_name: a\n  kubernetes_sd_configs: [{role: pod}]\n  relabel_configs:\n"
     "  - {source_labels: [__address__], regex: '(.+):(d+)', target_label: x}\n", "(.+):(\\d+)"),
])
def test_lint_finds_these_kinds(tmp_path, job, says):
    write_files(tmp_path, GOOD, [job])
    status, out, _ = lint(tmp_path / "cwagentconfig.json", tmp_path / "prometheus.yaml")
    assert status == 1 and len(out.splitlines()) == 1 and says in out and "mend: " in out, out


@pytest.mark.parametrize("job", [
    "- job_name: a\n  kubernetes_sd_configs: [{role: endpoints}]\n  relabel_configs:\n"
    "  - {source_labels: [__meta_kubernetes_service_annotation_prometheus_io_scrape], regex: 'true', action: keep}\n"
    "  - {source_labels: [__meta_kubernetes_pod_container_name], regex: '(?i)DCGM.*|X', action: keep}\n",
    "- job_name: a\n  file_sd_configs: [{files: [x.json]}]\n  relabel_configs:\n"
    "  - {source_labels: [__meta_kubernetes_whatever], target_label: x}\n",
    "- job_name: a\n  kubernetes_sd_configs: [{role: pod, attach_metadata: {node: true}}]\n  relabel_configs:\n"
    "  - {source_labels: [__meta_kubernetes_node_label_zone], regex: '[A-Z]*\\d+(?:abcd+)?', target_label: x}\n",
])
def test_lint_finds_nothing_in_what_may_match(tmp_path, job):
    write_files(tmp_path, GOOD, [job])
    assert lint(tmp_path / "cwagentconfig.json", tmp_path / "prometheus.yaml")[:2] == (0, "nothing to say\n")


ONE, OTHER = scrape_job("127.0.0.1:1", name="one"), scrape_job("127.0.0.1:1", name="other")
RENAMES = "  relabel_configs:\n  - {source_labels: [__address__], target_label: job}\n"


@pytest.mark.parametrize("matcher, jobs, good", [
    ("^two$", [ONE, OTHER], False),
    ("^One$", [ONE], False),
    ("^(one|two)$", [OTHER, ONE], True),
    ("the", [ONE, OTHER], True),
    ("^two$", [ONE, OTHER + RENAMES], True),
    ("^two$", [ONE + "    labels: {job: two}\n"], True),
    ("^two$", [ONE + "  honor_labels: true\n"], True),
    ("^two$", ["- job_name: one\n  file_sd_configs: [{files: [x.json]}]\n"], True),
])
def test_lint_finds_a_declaration_about_a_job_that_is_not_there(tmp_path, matcher, jobs, good):
    write_files(tmp_path, configuration(declaration(["^m$"], [["job"]], matcher=matcher)), jobs)
    status, out, _ = lint(tmp_path / "cwagentconfig.json", tmp_path / "prometheus.yaml")
    if good:
        assert (status, out) == (0, "nothing to say\n")
    else:
        assert status == 1 and len(out.splitlines()) == 1, out
        assert out.startswith(f"{tmp_path}/cwagentconfig.json:")
        assert f"'{matcher}' finds nothing in the name of any job; mend: '^one$'" in out

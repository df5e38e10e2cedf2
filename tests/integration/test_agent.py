"""podgpu-agent as a whole: pages in, events out, its own pages, reload, an orderly end."""
import itertools
import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from agent_harness import (CLUSTER, GROUP, REGION, Target, agent_at, configuration, declaration, events_when, now_ms,
                           read_events, run_agent, scrape_job, write_files)
from fake_logs import FakeLogs
from harness import BLOG, ROOT, wait_until

pytestmark = pytest.mark.faults

GAUGE = "# TYPE temp gauge\ntemp{{gpu=\"0\"}} {}\n"
COUNTER = "# TYPE done counter\ndone{{gpu=\"0\"}} {}\n"
RULES = declaration(["^(temp|done)$"], [["ClusterName", "gpu"]])


@pytest.fixture
def target():
    with Target(GAUGE.format(42)) as target:
        yield target


def once(folder, *arguments, **more):
    return run_agent("--config", folder / "cwagentconfig.json", "--output", "stdout", "--once", *arguments, **more)


@pytest.mark.smoke
def test_once_scrapes_every_target_ships_and_ends(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address)])
    before = now_ms()
    status, out, _ = once(tmp_path)
    assert status == 0
    [line] = out.splitlines()
    event = json.loads(line)
    stamp = event["_aws"]["Timestamp"]
    assert before <= stamp <= now_ms()
    assert event == {
        "_aws": {"Timestamp": stamp, "CloudWatchMetrics": [{
            "Namespace": "CWAgent/Prometheus", "Dimensions": [["ClusterName", "gpu"]],
            "Metrics": [{"Name": "temp", "StorageResolution": 1}]}]},
        "Version": "1", "ClusterName": CLUSTER, "gpu": "0", "instance": target.address, "job": "app",
        "prom_metric_type": "gauge", "temp": 42}


def test_once_with_a_target_that_is_down_ends_with_status_1_and_ships_the_others(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address), scrape_job("127.0.0.1:9", name="gone")])
    status, out, log = once(tmp_path)
    assert status == 1 and "targets are down" in log
    assert [json.loads(line)["temp"] for line in out.splitlines()] == [42]


def test_in_a_container_the_namespace_is_container_insights(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address)])
    _, out, _ = once(tmp_path, env={"RUN_IN_CONTAINER": "True"})
    assert json.loads(out)["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "ContainerInsights/Prometheus"


@pytest.mark.parametrize("compat", [(), ("--compat=cwagent",)])
def test_a_labelkeep_loses_no_target_and_a_job_name_is_no_template(tmp_path, target, compat):
    """What the CloudWatch agent keeps of a target among its labels is not there for rules to remove or expand."""
    rules = declaration(["^temp$"], [["site"], ["job"]], label="prom_metric_type", matcher="^gauge$")
    keeps = "    labels: {site: x}\n  relabel_configs:\n  - {action: labelkeep, regex: 'site|__.*'}\n"
    write_files(tmp_path, configuration(rules), [scrape_job(target.address, name="a", more=keeps),
                                                 scrape_job(target.address, name="'b$1c'")])
    status, out, _ = once(tmp_path, *compat)
    assert status == 0
    kept, named = sorted(map(json.loads, out.splitlines()), key=lambda e: "job" in e)
    own = {"ClusterName": CLUSTER, "gpu": "0", "instance": target.address, "prom_metric_type": "gauge", "temp": 42}
    assert own.items() <= kept.items() and (kept["site"], kept["JobName"]) == ("x", "default")
    assert own.items() <= named.items() and named["job"] == "b$1c" and "JobName" not in named


def test_compat_gives_the_agents_own_form(tmp_path, target):
    write_files(tmp_path, configuration(RULES, units={"temp": "None"}), [scrape_job(target.address)])
    status, out, _ = once(tmp_path, "--compat=cwagent")
    stamp = json.loads(out)["Timestamp"]
    assert (status, out) == (0, (
        '{"CloudWatchMetrics":[{"Namespace":"CWAgent/Prometheus","Dimensions":[["ClusterName","gpu"]],"Metrics":['
        '{"Name":"temp","Unit":"None","StorageResolution":60}]}],"ClusterName":"demo","Timestamp":"' + stamp + '",'
        f'"Version":"0","gpu":"0","instance":"{target.address}","job":"app","prom_metric_type":"gauge","temp":42}}\n'))


def test_counters_become_what_was_added_since_the_scrape_before(tmp_path, target):
    values = iter([10, 15, 15, 4, 9])
    last = [0]

    def page():
        last[0] = next(values, last[0])
        return COUNTER.format(last[0])
    target.text = page
    events = tmp_path / "events.json"
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="200ms")])
    with agent_at(tmp_path, "--output", f"file:{events}"):
        events_when(events, lambda e: len(e) >= 4)
    assert [e["done"] for e in read_events(events)][:4] == [5, 0, 4, 5]


# --- CloudWatch ---

@pytest.mark.parametrize("arguments, kubernetes, env, named", [
    ((), "theirs", {"K8S_CLUSTER_NAME": "environment"}, CLUSTER),
    (("--compat=cwagent",), "theirs", {"K8S_CLUSTER_NAME": "environment"}, "theirs"),
    (("--compat=cwagent",), None, {"K8S_CLUSTER_NAME": "environment"}, "environment"),
    (("--compat=cwagent",), None, {}, CLUSTER),
])
def test_the_default_group_names_the_cluster_of_its_section_or_with_compat_of_another(
        tmp_path, target, arguments, kubernetes, env, named):
    with FakeLogs(region=REGION) as logs:
        config = configuration(RULES, endpoint=logs.url, podgpu={"spool": {"directory": ""}})
        if kubernetes:
            config["logs"]["metrics_collected"]["kubernetes"] = {"cluster_name": kubernetes}
        write_files(tmp_path, config, [scrape_job(target.address)])
        status, _, log = run_agent("--config", tmp_path / "cwagentconfig.json", "--once", *arguments, env=env)
        assert status == 0, log
        [event] = logs.messages(f"/aws/containerinsights/{named}/prometheus", "app")
    assert json.loads(event)["ClusterName"] == CLUSTER


@pytest.mark.parametrize("debug, env", [(False, {}), (True, {}), (False, {"CWAGENT_LOG_LEVEL": "DEBUG"}), (False, {"DEBUG": "1"})])
def test_debug_is_asked_for_as_of_the_agent(tmp_path, target, debug, env):
    with FakeLogs(region=REGION) as logs:
        config = configuration(RULES, endpoint=logs.url, podgpu={"spool": {"directory": ""}})
        if debug:
            config["agent"]["debug"] = True
        write_files(tmp_path, config, [scrape_job(target.address)])
        status, _, log = run_agent("--config", tmp_path / "cwagentconfig.json", "--once", env=env)
    assert status == 0, log
    assert ("log stream created" in log) == bool(debug or env)


def test_events_reach_cloudwatch_logs_signed_and_in_their_group_and_stream(tmp_path, target):
    with FakeLogs(region=REGION) as logs:
        write_files(tmp_path, configuration(RULES, endpoint=logs.url,
                                            podgpu={"spool": {"directory": str(tmp_path / "spool")}}),
                    [scrape_job(target.address, interval="200ms")])
        with agent_at(tmp_path) as agent:
            wait_until(lambda: len(logs.messages(GROUP, "app")) >= 3, 20, "three events are there")
            page = agent.page()
        stored = logs.messages(GROUP, "app")
        assert {json.loads(m)["temp"] for m in stored} == {42}
        assert page.value("podgpu_agent_delivered_events_total") >= 3
        # An orderly end delivers what was made.
        assert len(stored) >= page.value("podgpu_agent_events_total")
        assert [r.body for r in logs.seen("PutRetentionPolicy")] == [{"logGroupName": GROUP, "retentionInDays": 30}]
        assert not [r for r in logs.requests if r.error and r.error != "ResourceNotFoundException"]


def test_the_posts_page_reaches_moto_and_is_read_back_by_the_aws_cli(tmp_path):
    from moto.server import ThreadedMotoServer
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    try:
        with Target((BLOG / "metrics.txt").read_text()) as target:
            config = json.loads((ROOT / "deploy" / "cloudwatch" / "cwagentconfig.json").read_text())
            config["logs"]["endpoint_override"] = url
            config["agent"] = {"region": REGION}
            prometheus = config["logs"]["metrics_collected"]["prometheus"]
            prometheus.update(cluster_name=CLUSTER, prometheus_config_path=str(tmp_path / "prometheus.yaml"))
            config["podgpu"] = {"spool": {"directory": str(tmp_path / "spool")}}
            more = ("    labels: {Service: nvidia-dcgm-exporter, NodeName: n1}\n  honor_labels: true\n"
                    "  metric_relabel_configs:\n  - {source_labels: [namespace], target_label: Namespace}\n")
            write_files(tmp_path, config, [scrape_job(target.address, name="gpu-pod-metrics", interval="5s", more=more)])
            status, _, log = run_agent("--config", tmp_path / "cwagentconfig.json", "--once")
            assert status == 0, log
        env = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        told = subprocess.run(["/usr/bin/aws", "--endpoint-url", url, "--region", REGION, "--output", "json", "logs",
                               "get-log-events", "--log-group-name", GROUP, "--log-stream-name", "gpu-pod-metrics"],
                              capture_output=True, text=True, check=True, env=env, timeout=120)
        [event] = [json.loads(e["message"]) for e in json.loads(told.stdout)["events"]]
    finally:
        server.stop()
    own = {"gpu": "0", "UUID": "GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", "device": "nvidia0",
           "modelName": "NVIDIA A10G", "Hostname": "nvidia-dcgm-exporter-48cwd", "DCGM_FI_DRIVER_VERSION": "470.182.03",
           "container": "main", "namespace": "kube-system", "pod": "gpu-burn-c68d8c774-ltg9s"}
    target_labels = {"Service": "nvidia-dcgm-exporter", "NodeName": "n1", "Namespace": "kube-system",
                     "ClusterName": CLUSTER, "job": "gpu-pod-metrics", "instance": target.address,
                     "prom_metric_type": "gauge"}
    values = {"DCGM_FI_DEV_GPU_UTIL": 100, "DCGM_FI_DEV_MEM_COPY_UTIL": 38, "DCGM_FI_DEV_ENC_UTIL": 0,
              "DCGM_FI_DEV_DEC_UTIL": 0, "DCGM_FI_DEV_GPU_TEMP": 65, "DCGM_FI_DEV_POWER_USAGE": 299.437,
              "DCGM_FI_DEV_SM_CLOCK": 1455, "DCGM_FI_DEV_MEM_CLOCK": 6250}
    assert {k: event[k] for k in own | target_labels | values} == own | target_labels | values
    [directive] = event["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "CWAgent/Prometheus"
    assert sorted(map(tuple, directive["Dimensions"])) == sorted([
        ("ClusterName",), ("ClusterName", "NodeName"), ("ClusterName", "NodeName", "gpu"), ("ClusterName", "Namespace"),
        ("ClusterName", "Namespace", "pod"), ("ClusterName", "Namespace", "gpu", "pod")])
    units = {m["Name"]: m.get("Unit") for m in directive["Metrics"]}
    assert units["DCGM_FI_DEV_GPU_UTIL"] == "Percent" and units["DCGM_FI_DEV_FB_USED"] == "Megabytes"
    assert units["DCGM_FI_DEV_GPU_TEMP"] is None
    assert {m["StorageResolution"] for m in directive["Metrics"]} == {1}
    # Every gauge of the page that the declaration selects, and no other metric.
    selected = re.compile("|".join(config["logs"]["metrics_collected"]["prometheus"]["emf_processor"]
                                   ["metric_declaration"][0]["metric_selectors"]))
    types = dict(re.findall(r"# TYPE (\S+) (\S+)", (BLOG / "metrics.txt").read_text()))
    assert set(units) == {n for n, t in types.items() if t == "gauge" and selected.search(n)}
    assert {k for k in event if k.startswith("DCGM_FI_") and k != "DCGM_FI_DRIVER_VERSION"} == set(units)


# --- What it shows ---

def test_targets_tells_state_error_and_samples_and_hides_secrets(tmp_path, target):
    jobs = [scrape_job(target.address),
            scrape_job("127.0.0.1:9", name="gone", more="  params: {token: [hushhush]}\n"),
            scrape_job(target.address, name="wrong", more="  metrics_path: /other\n")]
    write_files(tmp_path, configuration(RULES), jobs)
    with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
        def all_asked():
            targets = {t["job"]: t for t in agent.targets()}
            return targets if all(t["health"] != "unknown" for t in targets.values()) else None
        targets = wait_until(all_asked, 20, "all were asked")
        _, _, html = agent.get("/targets", {"Accept": "text/html,application/xhtml+xml"})
        ready = agent.get("/readyz")
        live = agent.get("/livez")
    assert {j: t["health"] for j, t in targets.items()} == {"app": "up", "gone": "down", "wrong": "down"}
    assert targets["app"]["samples_scraped"] == 1 and targets["app"]["last_error"] == ""
    assert targets["app"]["labels"] == {"instance": target.address, "job": "app"}
    assert targets["gone"]["last_error"] != "" and "404" in targets["wrong"]["last_error"]
    assert "hushhush" not in json.dumps(targets) + html
    assert html.startswith("<!DOCTYPE html>") and "404" in html
    assert (ready[0], live[0]) == (200, 200) and ready[2].endswith("ready\n")


def test_its_own_metrics_are_well_formed_and_add_up(tmp_path):
    text = GAUGE.format(1) + 'temp{gpu="1"} NaN\n' + COUNTER.format(5) + "raw 7\n"
    with Target(text) as target:
        write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="200ms")])
        with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
            page = agent.page_when(lambda p: p.value("podgpu_agent_scrapes_total") >= 5, 20, "five scrapes")
    judged = subprocess.run(["promtool", "check", "metrics"], input=page.text, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    dropped = {labels["reason"]: float(v) for labels, v in page.samples("podgpu_agent_emf_dropped_samples_total")}
    assert dropped["not_finite"] > 0 and dropped["type"] > 0 and dropped["first_of_counter"] == 1
    assert page.value("podgpu_agent_emf_samples_total") == \
        page.value("podgpu_agent_emf_event_samples_total") + sum(dropped.values())
    assert page.value("podgpu_agent_targets", state="up") == 1


# What of struct emf_stats stands where on the page.
EMF_STATS = {
    "samples": "samples_total", "events": "events_total", "event_samples": "event_samples_total",
    "waiting": "waiting_samples", "metrics_split": "splits_total", "renamed": "renamed_total",
    "bad_dimensions": "bad_dimension_sets_total", "dropped_type": "type", "dropped_not_finite": "not_finite",
    "dropped_first": "first_of_counter", "dropped_repeated": "repeated_timestamp", "dropped_duplicate": "duplicate",
    "dropped_unmatched": "no_declaration", "dropped_old": "timestamp", "dropped_large": "too_large",
    "dropped_value": "value_range", "dropped_empty": "empty_histogram", "dropped_memory": "no_memory"}
HISTOGRAM = ('# TYPE wait histogram\nwait_bucket{{le="1"}} {0}\nwait_bucket{{le="+Inf"}} {0}\n'
             'wait_sum {0}\nwait_count {0}\n')


def test_with_aggregation_samples_are_in_events_dropped_or_waiting_and_every_count_is_shown(tmp_path):
    declared = re.search(r"^struct emf_stats \{\n(.*?)^\};", (ROOT / "src/agent/sinks/emf.h").read_text(), re.M | re.S)[1]
    members = set(re.findall(r"uint64_t (\w+)", declared))
    assert members == {*EMF_STATS, "custom_metrics"}
    scrapes = itertools.count()
    with Target() as target:
        target.text = lambda: GAUGE.format(1) + 'temp{gpu="1"} NaN\nraw 7\n' + HISTOGRAM.format(next(scrapes))
        write_files(tmp_path, configuration(declaration(["^(temp|wait)$"], [["ClusterName"]]),
                                            podgpu={"aggregate": "1h", "histograms": "values"}),
                    [scrape_job(target.address, interval="200ms")])
        with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
            page = agent.page_when(lambda p: p.value("podgpu_agent_scrapes_total") >= 5, 20, "five scrapes")
    dropped = {labels["reason"]: float(v) for labels, v in page.samples("podgpu_agent_emf_dropped_samples_total")}
    assert set(dropped) == {EMF_STATS[m] for m in members if m.startswith("dropped_")}
    values = {m: page.value(f"podgpu_agent_emf_{EMF_STATS[m]}") for m in members
              if m != "custom_metrics" and not m.startswith("dropped_")}
    assert values["samples"] == values["event_samples"] + values["waiting"] + sum(dropped.values())
    assert values["waiting"] > 0 and dropped["first_of_counter"] == 4 and dropped["not_finite"] > 0
    assert page.value("podgpu_agent_custom_metrics") == 2
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    waits = [event["wait"] for event in events if "wait" in event]  # of the hour that was not over, at the end
    assert sum(wait["Count"] for wait in waits) >= 2
    for wait in waits:
        n = wait["Count"]
        assert wait == {"Values": [0.5], "Counts": [n], "Max": 0.5, "Min": 0.5, "Count": n, "Sum": n}


def test_the_host_label_is_the_machines_name_or_the_one_given(tmp_path, target):
    config = configuration(RULES)
    for agent, host in (({"omit_hostname": False}, socket.gethostname()),
                        ({"omit_hostname": False, "hostname": "given"}, "given"), ({"omit_hostname": True}, None)):
        config["agent"] = {"region": "us-west-2", **agent}
        write_files(tmp_path, config, [scrape_job(target.address)])
        status, out, _ = once(tmp_path)
        assert status == 0
        assert [json.loads(line).get("host") for line in out.splitlines()] == [host]


def test_estimate_tells_custom_metrics_and_log_and_sends_nothing(tmp_path, target):
    target.text = GAUGE.format(1) + COUNTER.format(2)
    with FakeLogs(region=REGION) as logs:
        write_files(tmp_path, configuration(RULES, endpoint=logs.url), [scrape_job(target.address, interval="60s")])
        status, out, _ = run_agent("--config", tmp_path / "cwagentconfig.json", "--estimate")
        assert logs.requests == []
    assert status == 0
    assert re.search(r"^targets up: +1 of 1$", out, re.M)
    assert re.search(r"^custom metrics: +2$", out, re.M), out
    gigabytes = float(re.search(r"^log in 30 days: +([0-9.]+) GB$", out, re.M)[1])
    # Two events of some 350 bytes a minute.
    assert 43200 * 2 * 250 / 1e9 < gigabytes < 43200 * 2 * 500 / 1e9


def test_a_line_of_the_start_tells_custom_metrics_and_log(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="1s")])
    with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
        wait_until(lambda: "what this configuration makes" in agent.log, 60, "the line is there")
        [line] = [line for line in agent.log.splitlines() if "what this configuration makes" in line]
    assert "custom_metrics=1" in line
    # One event of some 350 bytes a second; how many a loaded machine made of it is not judged.
    assert 0 < float(re.search(r'log_gb_in_30_days="?([0-9.]+)', line)[1]) < 30 * 86400 * 500 / 1e9


@pytest.mark.parametrize("aggregate, events, least, most", [("0s", 12 * 43200, 250, 400), ("1m", 43200, 300, 500)])
def test_an_estimate_counts_windows_once_and_their_values_each(tmp_path, target, aggregate, events, least, most):
    write_files(tmp_path, configuration(RULES, podgpu={"aggregate": aggregate}), [scrape_job(target.address, interval="5s")])
    status, out, _ = run_agent("--config", tmp_path / "cwagentconfig.json", "--estimate")
    assert status == 0
    assert re.search(r"^custom metrics: +1$", out, re.M), out
    gigabytes = float(re.search(r"^log in 30 days: +([0-9.]+) GB$", out, re.M)[1])
    assert events * least / 1e9 < gigabytes < events * most / 1e9, out


# --- Reload ---

def reloads(agent):
    page = agent.page()
    return page.value("podgpu_agent_config_reloads_total"), page.value("podgpu_agent_config_reload_failures_total")


@pytest.mark.parametrize("how", ["file", "signal"])
def test_a_new_configuration_is_taken_and_counters_go_on(tmp_path, target, how):
    count = [0]

    def page():
        count[0] += 1
        return COUNTER.format(100 + count[0])
    target.text = page
    events = tmp_path / "events.json"
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="300ms")])
    with agent_at(tmp_path, "--output", f"file:{events}") as agent:
        events_when(events, lambda e: len(e) >= 2)
        changed = declaration(["^done$"], [["job"]])
        write_files(tmp_path, configuration(changed), [scrape_job(target.address, interval="300ms",
                                                                  more="    labels: {site: x}\n")])
        if how == "signal":
            agent.process.send_signal(signal.SIGHUP)
        events_when(events, lambda e: sum("site" in x for x in e) >= 2)
        assert reloads(agent)[1] == 0
    found = read_events(events)
    # Nothing is counted twice, nothing is left out: the page counts its own scrapes.
    assert sum(e["done"] for e in found) == len(found) and {e["done"] for e in found} <= {1, 2}
    assert {str(e["_aws"]["CloudWatchMetrics"][0]["Dimensions"]) for e in found if "site" in e} == {"[['job']]"}


def test_a_wrong_configuration_is_refused_and_its_repair_taken(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="300ms")])
    with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
        agent.page_when(lambda p: p.value("podgpu_agent_scrapes_total") >= 1)
        (tmp_path / "prometheus.yaml").write_text("scrape_configs: [{job_nam: x}]\n")
        wait_until(lambda: reloads(agent)[1] == 1, 20, "it is refused")
        assert agent.page().value("podgpu_agent_config_last_reload_successful") == 0
        before = agent.page().value("podgpu_agent_scrapes_total")
        agent.page_when(lambda p: p.value("podgpu_agent_scrapes_total") > before)
        assert "job_nam" in agent.log
        write_files(tmp_path, configuration(RULES), [scrape_job(target.address, name="new", interval="300ms")])
        wait_until(lambda: [t["job"] for t in agent.targets()] == ["new"], 20, "the repair is taken")
        assert agent.page().value("podgpu_agent_config_last_reload_successful") == 1


def test_files_of_jobs_are_watched_new_ones_too(tmp_path, target):
    folder = tmp_path / "jobs"
    folder.mkdir()

    def write(file, text):
        (folder / file).write_text("scrape_configs:\n" + text)
    write_files(tmp_path, configuration(RULES), [])
    (tmp_path / "prometheus.yaml").write_text(f"scrape_config_files: ['{folder}/*.yaml']\n")
    write("a.yaml", scrape_job(target.address, name="one", interval="300ms"))
    with agent_at(tmp_path, "--output", f"file:{tmp_path}/events") as agent:
        def jobs_are(*names):
            wait_until(lambda: sorted(t["job"] for t in agent.targets()) == list(names), 20, f"{names} are there")
        jobs_are("one")
        write("a.yaml", scrape_job(target.address, name="two", interval="300ms"))
        jobs_are("two")
        write("b.yaml", scrape_job(target.address, name="three", interval="300ms"))
        jobs_are("three", "two")
        write("b.yaml", "- job_nam: x\n")
        wait_until(lambda: reloads(agent)[1] >= 1, 20, "it is refused")
        write("b.yaml", scrape_job(target.address, name="four", interval="300ms"))
        jobs_are("four", "two")


def test_another_output_or_spool_is_told_to_need_a_restart(tmp_path, target):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    jobs = [scrape_job(target.address, interval="300ms")]
    write_files(tmp_path, configuration(RULES, podgpu={"output": f"file:{first}"}), jobs)
    with agent_at(tmp_path) as agent:
        events_when(first, lambda e: len(e) >= 1)
        write_files(tmp_path, configuration(RULES, podgpu={"output": f"file:{second}", "spool": {"max_size": "1MiB"}}), jobs)
        wait_until(lambda: "another output needs a restart" in agent.log and "another spool needs a restart" in agent.log,
                   20, "both are told")
        before = len(read_events(first))
        events_when(first, lambda e: len(e) > before)
    assert not second.exists()


# --- Other outputs ---

def test_a_file_that_was_renamed_is_begun_anew_at_a_hangup(tmp_path, target):
    events, old = tmp_path / "events.json", tmp_path / "events.1"
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="200ms")])
    with agent_at(tmp_path, "--output", f"file:{events}") as agent:
        events_when(events, lambda e: len(e) >= 1)
        events.rename(old)
        agent.process.send_signal(signal.SIGHUP)
        events_when(events, lambda e: len(e) >= 1)
        made = agent.page().value("podgpu_agent_emf_events_total")
    assert len(read_events(old)) + len(read_events(events)) >= made


def test_the_configuration_may_name_several_outputs_and_the_flag_goes_before_it(tmp_path, target):
    first, second, third = (tmp_path / name for name in ("first.json", "second.json", "third.json"))
    write_files(tmp_path, configuration(RULES, podgpu={"output": [f"file:{first}", f"file:{second}"]}),
                [scrape_job(target.address)])
    config = ("--config", tmp_path / "cwagentconfig.json", "--once")
    assert run_agent(*config)[0] == 0
    assert [e["temp"] for e in read_events(first)] == [42]
    assert read_events(first) == read_events(second)
    assert run_agent(*config, "--output", f"file:{third}")[0] == 0
    assert [len(read_events(path)) for path in (first, second, third)] == [1, 1, 1]


def test_lines_over_tcp_are_whole_also_after_a_broken_connection(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="200ms")])
    lines, ended = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def serve():
            first = True
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                connection.settimeout(0.2)
                data = b""
                while not ended.is_set() and not (first and data.count(b"\n") >= 2):
                    try:
                        piece = connection.recv(65536)
                    except TimeoutError:
                        continue
                    if not piece:
                        break
                    data += piece
                connection.close()
                first = False
                lines.extend(data[:data.rfind(b"\n") + 1].splitlines())
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with agent_at(tmp_path, "--output", f"tcp:127.0.0.1:{server.getsockname()[1]}") as agent:
                agent.page_when(lambda p: p.value("podgpu_agent_emf_events_total") >= 8, 20, "eight events")
                assert agent.page().value("podgpu_agent_output_lost_events_total") == 0
        finally:
            time.sleep(0.3)
            ended.set()
            thread.join()
    assert len(lines) >= 4
    assert {json.loads(line)["temp"] for line in lines} == {42}


def test_standard_output_that_nobody_reads_ends_it(tmp_path, target):
    write_files(tmp_path, configuration(RULES), [scrape_job(target.address, interval="200ms")])
    with agent_at(tmp_path, "--output", "stdout", ends=1, stdout=subprocess.PIPE) as agent:
        assert json.loads(agent.process.stdout.readline())["temp"] == 42
        agent.process.stdout.close()
        wait_until(lambda: agent.process.poll() is not None, 20, "it ends")
        assert "nobody reads" in agent.log

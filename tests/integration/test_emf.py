"""Pages become events that CloudWatch takes: held to the specification of its Embedded Metric Format as a JSON schema
(tests/data/emf-schema.json), to the rules that a schema cannot say, and to the exact events of the AWS post's page. The
program under test is a driver around the agent's series and its EMF sink (tests/tools/emf_probe.c)."""
import json
import random
import re
import subprocess

import jsonschema
import pytest

from harness import BLOG, BUILD, ROOT

PROBE = BUILD / "tests" / "tools" / "emf_probe"
DATA = ROOT / "tests" / "data"
SCHEMA = jsonschema.Draft7Validator(json.loads((DATA / "emf-schema.json").read_text()))
START = 1767323040000  # the probe's first scrape

pytestmark = pytest.mark.faults


def probe(cwagent, prometheus, job, pages, *labels, compat=False):
    """Events as (log group, stream, timestamp, samples, text), and the probe's last line."""
    out = subprocess.run([PROBE, *(["--compat"] if compat else []), cwagent, prometheus, job, "demo", *labels],
                         input=b"".join(p.encode() + b"\0" for p in pages), check=True, capture_output=True, timeout=60).stdout
    *events, last = [json.loads(line) for line in out.decode().split("\n") if line]
    return events, last


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), f"a member twice: {[k for k, _ in pairs]}"
    return dict(pairs)


def check_event(line):
    """What the specification says; returns the event."""
    assert len(line["text"].encode()) <= 262144 - 26
    event = json.loads(line["text"], object_pairs_hook=unique)
    SCHEMA.validate(event)
    assert event["_aws"]["Timestamp"] == line["timestamp"]
    assert re.fullmatch(r"[A-Za-z0-9_/.#-]{1,512}", line["group"])
    assert re.fullmatch(r"[^:*]{1,512}", line["stream"])
    names = [m["Name"] for d in event["_aws"]["CloudWatchMetrics"] for m in d["Metrics"]]
    assert len(names) <= 100 and len(set(names)) == len(names)
    for name in names:
        assert isinstance(event[name], (int, float, list)), name
    for directive in event["_aws"]["CloudWatchMetrics"]:
        for dimension in (d for s in directive["Dimensions"] for d in s):
            assert isinstance(event[dimension], str) and 1 <= len(event[dimension]) <= 1024, dimension
    return event


@pytest.fixture
def configured(tmp_path):
    """Takes declarations, other keys and pages; gives the probe's answer."""
    def run(declarations, pages, *labels, interval="60s", **podgpu):
        section = {"cluster_name": "demo", "emf_processor": {"metric_declaration": declarations}}
        (tmp_path / "cw.json").write_text(json.dumps(
            {"logs": {"metrics_collected": {"prometheus": section}}, "podgpu": podgpu}))
        (tmp_path / "p.yaml").write_text(
            f"scrape_configs: [{{job_name: j, honor_labels: true, scrape_interval: {interval}, scrape_timeout: 1s}}]")
        return probe(tmp_path / "cw.json", tmp_path / "p.yaml", "j", pages, "job=j", *labels)
    return run


def declaration(dimensions, selector=".", matcher=".*"):
    return {"source_labels": ["job"], "label_matcher": matcher, "metric_selectors": [selector], "dimensions": dimensions}


# --- The post's page ---

def post_pages():
    page = (BLOG / "metrics.txt").read_text()
    assert page.count(" 15782796862\n") == 1
    return [page, page.replace(" 15782796862\n", " 15782801862\n")]


def post(**options):
    return probe(DATA / "post-cwagentconfig.json", DATA / "post-prometheus.yaml", "kubernetes-pod-dcgm-exporter",
                 post_pages(), "instance=10.0.0.9:9400", "job=kubernetes-pod-dcgm-exporter", **options)


def test_the_posts_page_becomes_these_events():
    events, _ = post()
    assert [e["text"] for e in events] == (DATA / "post-events.jsonl").read_text().splitlines()
    assert [(e["group"], e["stream"], e["timestamp"], e["samples"]) for e in events] == [
        ("/aws/containerinsights/demo/prometheus", "kubernetes-pod-dcgm-exporter", START, 14),
        ("/aws/containerinsights/demo/prometheus", "kubernetes-pod-dcgm-exporter", START + 60000, 14),
        ("/aws/containerinsights/demo/prometheus", "kubernetes-pod-dcgm-exporter", START + 60000, 1)]


def test_the_posts_events_hold_the_pages_numbers():
    """Read a second time, by other code."""
    numbers = {}
    for line in post_pages()[0].splitlines():
        if not line.startswith("#"):
            numbers[line.split("{")[0]] = float(line.split()[-1])
    section = json.loads((DATA / "post-cwagentconfig.json").read_text())["logs"]["metrics_collected"]["prometheus"]
    wanted = [s[1:-1] for s in section["emf_processor"]["metric_declaration"][0]["metric_selectors"]]
    events, last = post()
    first, second, energy = map(check_event, events)
    for event in first, second:
        assert {n: v for n, v in event.items() if isinstance(v, (int, float))} == {n: numbers[n] for n in wanted}
        assert [event[l] for l in ("pod", "namespace", "container", "gpu", "Hostname", "ClusterName", "prom_metric_type")] == [
            "gpu-burn-c68d8c774-ltg9s", "kube-system", "main", "0", "nvidia-dcgm-exporter-48cwd", "demo", "gauge"]
    assert energy["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == 5000 and energy["prom_metric_type"] == "counter"
    # 14 gauges in three dimension sets, energy in one.
    assert last == {"samples": 46, "event_samples": 29, "custom_metrics": 43}


def test_with_compat_the_rest_of_the_posts_page_is_there_too():
    events, _ = post(compat=True)
    assert [e["samples"] for e in events] == [18, 18, 5]
    for e in events:
        event = json.loads(e["text"], object_pairs_hook=unique)
        assert event["Version"] == "0" and event["Timestamp"] == str(e["timestamp"]) and "_aws" not in event


# --- The specification ---

def test_300_metrics_of_one_label_set_become_three_good_events(configured):
    page = "".join(f"# TYPE m{i:03} gauge\nm{i:03}{{gpu=\"0\"}} {i}.5\n" for i in range(300))
    lines, last = configured([declaration([["ClusterName", "gpu"]])], [page])
    events = [check_event(line) for line in lines]
    assert [len(e["_aws"]["CloudWatchMetrics"][0]["Metrics"]) for e in events] == [100, 100, 100]
    merged = {n: v for e in events for n, v in e.items() if isinstance(v, float)}
    assert merged == {f"m{i:03}": i + 0.5 for i in range(300)}
    assert last["custom_metrics"] == 300


def test_windows_are_good_events_of_100_values_at_most(configured):
    pages = [f"# TYPE g gauge\ng {i}\n" for i in range(200)]
    lines, _ = configured([declaration([["ClusterName"]])], pages, interval="1s", aggregate="5m")
    # The first scrape is a minute before the end of its window.
    assert [check_event(line)["g"] for line in lines] == [list(range(60)), list(range(60, 160)), list(range(160, 200))]


HOSTILE = ["", "a", "Version", "_aws", "Timestamp", "CloudWatchMetrics", "x" * 1024, "é" * 1025, "<&>\"\\\u2028\x01",
           ":a*b", "\U0001f600", "NaN", "1e999", "job", "m0"]


def hostile_page(rng):
    """Labels and names that mean something elsewhere, values at every edge."""
    quote = lambda v: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    names = ["m0", "m1", "Version", "Timestamp", "_aws", "CloudWatchMetrics", "job", "instance", "value", "ClusterName", "le"]
    lines = []
    for name in rng.sample(names, 6):
        lines.append(f"# TYPE {name} {rng.choice(['gauge', 'counter', 'summary', 'untyped', 'histogram'])}")
        for _ in range(rng.randrange(1, 6)):
            labels = ",".join(f'{l}="{quote(rng.choice(HOSTILE))}"' for l in rng.sample(names, rng.randrange(4)))
            value = rng.choice(["0", "1", "-1", "2.5e-7", "1e21", "1e108", "1e109", "-1e300", "NaN", "+Inf", "123456789.125"])
            lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def test_whatever_a_page_holds_its_events_are_good(configured):
    rng = random.Random(7)
    dimensions = [["Version"], ["job", "m0"], ["_aws", "Timestamp"], ["ClusterName", "instance"], [], ["le", "value"]]
    total = 0
    for _ in range(60):
        pages = [hostile_page(rng) for _ in range(4)]
        labels = [f"{n}={v}" for n, v in (("Version", "2"), ("m0", "x"), ("job", "a:b*c")) if rng.random() < 0.5]
        lines, last = configured([declaration(rng.sample(dimensions, 3)), declaration([["job"]], "^m")], pages, *labels)
        for line in lines:
            check_event(line)
        assert sum(line["samples"] for line in lines) == last["event_samples"] <= last["samples"]
        total += len(lines)
    assert total > 200


def test_the_schema_refuses_what_the_specification_forbids():
    good = {"_aws": {"Timestamp": 1, "CloudWatchMetrics": [
        {"Namespace": "n", "Dimensions": [["a"]], "Metrics": [{"Name": "m", "Unit": "Count", "StorageResolution": 60}]}]},
        "a": "b", "m": 1}
    directive = good["_aws"]["CloudWatchMetrics"][0]
    SCHEMA.validate(good)
    bad = [
        {**good, "m": {"x": 1}}, {**good, "m": [1] * 101}, {**good, "m": 1e109}, {"a": "b", "m": 1},
        *[{**good, "_aws": {"Timestamp": 1, "CloudWatchMetrics": [{**directive, **change}]}} for change in (
            {"Namespace": ""}, {"Namespace": "AWS/x"}, {"Dimensions": []}, {"Dimensions": [[str(i) for i in range(31)]]},
            {"Dimensions": [[":a"]]}, {"Metrics": [{"Name": f"m{i}"} for i in range(101)]},
            {"Metrics": [{"Name": "m", "Unit": ""}]}, {"Metrics": [{"Name": "m", "StorageResolution": 15}]}, {"Other": 1})],
        {**good, "_aws": {"Timestamp": "1", "CloudWatchMetrics": [directive]}},
    ]
    for event in bad:
        assert not SCHEMA.is_valid(event), event

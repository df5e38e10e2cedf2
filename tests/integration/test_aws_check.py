# SPDX-License-Identifier: Apache-2.0
"""script/aws-check against a CloudWatch Logs of ours, with an `aws` in PATH that extracts metrics from what arrived
there, as CloudWatch's documentation has it, or wrongly."""
import contextlib
import http.server
import json
import os
import subprocess
import threading
import urllib.parse

import pytest

from fake_logs import KEYS, FakeLogs
from harness import BUILD, ROOT, SLOW

GROUP = "/podgpu/aws-check"
STUB = """#!/usr/bin/python3
import json, sys, urllib.parse, urllib.request
url = "{}?" + urllib.parse.urlencode({{"a": json.dumps(sys.argv[1:])}})
status, out, err = json.load(urllib.request.urlopen(url, timeout=60))
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(status)
"""
FORMS = ("a plain gauge", "StorageResolution 1", "arrays of values", "a histogram's distribution")


def option(arguments, name):
    return arguments[arguments.index(name) + 1]


class Aws:
    """What `aws` does. extract: a metric's values as CloudWatch would see them; may be replaced."""

    def __init__(self, logs):
        self.logs, self.calls, self.refused = logs, [], {}
        self.extract = lambda name, value: value

    def answer(self, arguments):
        arguments = arguments[2:] if arguments[:2] == ["--output", "json"] else arguments
        region, arguments = (arguments[1], arguments[2:]) if arguments[0] == "--region" else (None, arguments)
        self.calls.append((region, arguments))
        what = arguments[1]
        if what in self.refused:
            return 254, "", self.refused[what]
        if what == "get-caller-identity":
            return 0, '{"Account": "123456789012"}', ""
        if what == "export-credentials":
            return 0, json.dumps({"Version": 1, "AccessKeyId": KEYS[0], "SecretAccessKey": KEYS[1]}), ""
        if what == "describe-log-groups":
            return 0, json.dumps({"logGroups": [{"logGroupName": name} for name in self.logs.groups]}), ""
        if what == "delete-log-group":
            del self.logs.groups[option(arguments, "--log-group-name")]
            return 0, "", ""
        assert what == "get-metric-statistics", arguments
        return 0, json.dumps({"Datapoints": self.statistics(arguments)}), ""

    def statistics(self, arguments):
        name, period = option(arguments, "--metric-name"), int(option(arguments, "--period"))
        assert option(arguments, "--namespace") == "podgpu/aws-check"
        run = option(arguments, "--dimensions").removeprefix("Name=run,Value=")
        points = {}
        for message in self.logs.messages(GROUP, "aws-check"):
            event = json.loads(message)
            if name not in event or event["run"] != run:
                continue
            [directive] = event["_aws"]["CloudWatchMetrics"]
            assert directive["Dimensions"] == [["run"]]
            resolution = directive["Metrics"][0]["StorageResolution"]
            value = self.extract(name, event[name])
            at = event["_aws"]["Timestamp"] // 1000 // max(period, resolution)
            if value is not None:
                points.setdefault(at, []).append(value)
        return [self.point(values) for _, values in sorted(points.items())]

    @staticmethod
    def point(values):
        count = total = 0
        low, high = [], []
        for v in values:
            if isinstance(v, dict):
                assert sum(v["Counts"]) == v["Count"] and len(v["Counts"]) == len(v["Values"]) <= 100
                count, total = count + v["Count"], total + v["Sum"]
                low, high = [*low, v["Min"]], [*high, v["Max"]]
            else:
                many = v if isinstance(v, list) else [v]
                count, total = count + len(many), total + sum(many)
                low, high = low + many, high + many
        return {"SampleCount": count, "Sum": total, "Minimum": min(low), "Maximum": max(high)}


@contextlib.contextmanager
def served(aws):
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            body = json.dumps(aws.answer(json.loads(query["a"][0]))).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def cloud(tmp_path):
    """(aws, check): the second runs the script."""
    with FakeLogs() as logs:
        aws = Aws(logs)
        with served(aws) as url:
            (tmp_path / "bin").mkdir()
            stub = tmp_path / "bin" / "aws"
            stub.write_text(STUB.format(url))
            stub.chmod(0o755)
            kept = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
            env = {**kept, "PATH": f"{stub.parent}:{os.environ['PATH']}", "PODGPU_BUILD": str(BUILD),
                   "TMPDIR": str(tmp_path), "AWS_REGION": logs.region}

            def check(*arguments):
                done = subprocess.run([ROOT / "script" / "aws-check", "--logs-endpoint", logs.url, *arguments], env=env,
                                      capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                                      timeout=200 * SLOW)
                return done.returncode, done.stdout, done.stderr
            yield aws, check


def names(aws):
    return [arguments[1] for _, arguments in aws.calls]


def test_without_yes_nothing_is_done_and_the_costs_are_told(cloud):
    aws, check = cloud
    status, out, err = check()
    assert status == 1 and out == "" and aws.calls == [] and aws.logs.requests == []
    assert err.endswith("nothing is sent without --yes\n")
    assert "0.30 USD" in err and "4 custom metrics" in err


def test_each_form_that_is_extracted_is_told_and_the_log_group_is_deleted(cloud):
    aws, check = cloud
    status, out, err = check("--yes")
    assert (status, err) == (0, ""), out
    for form in FORMS:
        assert f"\nok: {form}: " in out
    assert "account 123456789012, region us-west-2" in out
    assert out.endswith("the log group /podgpu/aws-check is deleted\nevery form is extracted as expected\n")
    assert KEYS[1] not in out
    assert aws.logs.groups == {} and names(aws)[-1] == "delete-log-group"
    assert {region for region, arguments in aws.calls if arguments[0] != "configure"} == {"us-west-2"}
    assert [r.body["retentionInDays"] for r in aws.logs.seen("PutRetentionPolicy")] == [1]


def test_what_is_not_extracted_or_not_as_expected_is_named_with_what_was_expected(cloud):
    aws, check = cloud

    def extract(name, value):
        if name == "check_array":
            return value[0]
        return None if name == "check_histogram" else value
    aws.extract = extract
    status, out, _ = check("--yes", "--seconds", "0")
    assert status == 1
    assert "\nok: a plain gauge: 1 datapoints, count 1, sum 1, minimum 1, maximum 1\n" in out
    assert "\nok: StorageResolution 1: " in out
    assert "\nFAILED: arrays of values: not as expected: found " in out
    assert "\nFAILED: a histogram's distribution: not extracted: found nothing; expected " in out
    assert out.endswith("aws-check: CloudWatch has not extracted every form\n")
    assert aws.logs.groups == {}


def test_a_log_group_that_is_there_is_left_alone(cloud):
    aws, check = cloud
    aws.logs.add_stream(GROUP)
    status, _, err = check("--yes")
    assert status == 1 and "is there already" in err
    assert GROUP in aws.logs.groups and "delete-log-group" not in names(aws)


def test_what_the_aws_cli_refuses_is_told_and_cleaned_up(cloud):
    aws, check = cloud
    aws.refused = {"get-metric-statistics": "An error occurred (AccessDenied) when calling GetMetricStatistics"}
    status, _, err = check("--yes")
    assert status == 1
    assert err == ("aws-check: aws cloudwatch get-metric-statistics: An error occurred (AccessDenied) when calling "
                   "GetMetricStatistics\n")
    assert aws.logs.groups == {}

"""CloudWatch Logs alone (tests/tools/aws_logs_probe.c) against a fake one that fails in every way, and against moto's."""
import contextlib
import datetime
import json
import os
import queue
import re
import ssl
import subprocess
import sys
import threading
import time

import pytest

from fake_logs import KEYS, FakeLogs
from harness import BUILD, ROOT, SLOW, wait_until

pytestmark = pytest.mark.faults
PROBE = BUILD / "tests" / "tools" / "aws_logs_probe"
# What proxies and AWS settings of the machine would change.
ENV = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("AWS_")}
VERSION = (ROOT / "VERSION").read_text().strip()


def now_ms():
    return int(time.time() * 1000)


def batch(*messages, group="g", stream="s", at=None):
    at = now_ms() if at is None else at
    return {"group": group, "stream": stream, "events": [[at + i, m] for i, m in enumerate(messages)]}


class Probe:
    """A running probe: batches in, what became of them out."""

    def __init__(self, url, *args, env=None):
        self.process = subprocess.Popen([PROBE, "--endpoint", url, *map(str, args)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**ENV, **(env or {})})
        self.lines, self.log = queue.Queue(), []
        self.threads = [threading.Thread(target=self.read), threading.Thread(target=self.read_log)]
        for thread in self.threads:
            thread.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def read_log(self):
        self.log.extend(self.process.stderr)

    def send(self, *batches):
        self.process.stdin.write("".join(json.dumps(b) + "\n" for b in batches))
        self.process.stdin.flush()

    def next(self):
        """What is told next; None at the end."""
        return self.lines.get(timeout=60 * SLOW)

    def put(self, *args, **kwargs):
        """One batch, and what became of it."""
        self.send(batch(*args, **kwargs))
        return self.next()

    def end(self):
        """The counts."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        told = [line for line in iter(self.next, None)]
        assert self.process.wait(60 * SLOW) == 0, "".join(self.log)
        return told[-1]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        if exc[0]:
            self.process.kill()
        try:
            self.process.wait(60 * SLOW)
        finally:
            for thread in self.threads:
                thread.join()
        assert exc[0] or self.process.returncode == 0, "".join(self.log)


def put(url, *batches, args=(), env=None):
    """What became of each batch, in order, and the counts."""
    with Probe(url, *args, env=env) as probe:
        probe.send(*batches)
        told = sorted((probe.next() for _ in batches), key=lambda t: t["batch"])
        return told, probe.end()


def put_one(url, *messages, args=(), env=None, **kwargs):
    told, stats = put(url, batch(*(messages or ("m",)), **kwargs), args=args, env=env)
    return told[0], stats


@pytest.fixture
def logs():
    with FakeLogs() as server:
        yield server


@pytest.fixture
def ready(logs):
    """The same with the stream that batches go to by default."""
    logs.add_stream("g", "s")
    return logs


def delivered(told, old=0, new=0):
    assert (told["outcome"], told["old"], told["new"], told["error"]) == ("delivered", old, new, ""), told


# --- Delivery ---


def test_a_batch_is_delivered_and_its_group_and_stream_are_made(logs):
    told, stats = put_one(logs.url, '{"a":"<ü>\\n"}', "second", group="/aws/x", stream="dcgm")
    assert told == {"batch": 0, "outcome": "delivered", "old": 0, "new": 0, "retry_after": 0, "error": ""}
    assert logs.operations() == ["PutLogEvents", "CreateLogStream", "CreateLogGroup", "CreateLogStream", "PutLogEvents"]
    assert logs.messages("/aws/x", "dcgm") == ['{"a":"<ü>\\n"}', "second"]
    assert logs.groups["/aws/x"]["retention"] is None
    offset = stats.pop("clock_offset_s")
    assert stats == {"requests": 5, "failures": 0, "groups_created": 1, "streams_created": 1, "throttled": 0,
                     "expired": 0}
    assert abs(offset) <= 1


@pytest.mark.parametrize("sends", [False, True])
def test_an_answer_with_and_without_a_sequence_token_is_a_delivery(ready, sends):
    ready.sends_sequence_tokens = sends
    told, _ = put_one(ready.url, "a", "b")
    delivered(told)
    assert ready.operations() == ["PutLogEvents"]
    assert ready.messages("g", "s") == ["a", "b"]


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"rejectedLogEventsInfo":7}', b'{"new":[{"thing":1}],"rejectedEntityInfo":{}}',
                                    b'{"twice":1,"twice":2}'])
def test_any_json_object_with_200_is_a_delivery(ready, answer):
    ready.answer_after_storing("PutLogEvents", answer)
    delivered(put_one(ready.url)[0])
    assert ready.messages("g", "s") == ["m"]


def test_the_largest_batches_are_delivered(ready):
    at = now_ms()
    sizes = {"many": [f"{i:04d}" for i in range(10000)],
             "quotes": ['"' * (262144 - 26)] * 4,
             "controls": ["\x01" * (262144 - 26)] * 4,  # six bytes for each
             "plain": ["é" * ((262144 - 26) // 2)] * 4}
    for messages in sizes.values():
        told, _ = put(ready.url, {"group": "g", "stream": "s", "events": [[at, m] for m in messages]})
        delivered(told[0])
        assert ready.batches[-1][2] == [(at, m) for m in messages]


def test_the_largest_batch_is_delivered_to_one_who_does_not_read_gzip(ready):
    ready.reads_gzip = False
    at = now_ms()
    messages = ["<" * (262144 - 26)] * 4
    told, _ = put(ready.url, {"group": "g", "stream": "s", "events": [[at, m] for m in messages]})
    delivered(told[0])
    assert ready.messages("g", "s") == messages and len(ready.requests[-1].raw) > 6 * 1048000


def test_a_batch_may_span_a_day(ready):
    at = now_ms() - 86400000
    told, _ = put(ready.url, {"group": "g", "stream": "s", "events": [[at, "a"], [at + 86400000, "b"]]})
    delivered(told[0])
    assert ready.events("g", "s") == [(at, "a"), (at + 86400000, "b")]


def test_bodies_over_a_kibibyte_are_compressed(ready):
    delivered(put_one(ready.url, "x" * 800)[0])
    delivered(put_one(ready.url, "x" * 2000)[0])
    small, large = ready.seen("PutLogEvents")
    assert not small.is_gzip and large.is_gzip and len(large.raw) < 200
    assert ready.messages("g", "s") == ["x" * 800, "x" * 2000]


def test_who_does_not_read_gzip_gets_plain_bodies_from_then_on(ready):
    ready.reads_gzip = False
    with Probe(ready.url) as probe:
        for i in range(3):
            delivered(probe.put(f"{i}" * 2000))
        assert [r.is_gzip for r in ready.seen("PutLogEvents")] == [True, False, False, False]
        assert ready.messages("g", "s") == ["0" * 2000, "1" * 2000, "2" * 2000]


def test_connections_are_kept_and_few(ready):
    with Probe(ready.url, "--one-by-one") as probe:
        probe.send(*[batch(f"{i}") for i in range(10)])
        for _ in range(10):
            delivered(probe.next())
    assert ready.connections == 1
    assert ready.messages("g", "s") == [f"{i}" for i in range(10)]
    gate = ready.hold("PutLogEvents", times=40)
    with Probe(ready.url) as probe:
        probe.send(*[batch(f"{i}") for i in range(40)])
        wait_until(lambda: len(ready.seen("PutLogEvents")) == 18, what="as many requests as connections")
        gate.set()
        for _ in range(40):
            delivered(probe.next())
        assert probe.end()["requests"] == 40
    assert ready.connections == 9
    assert sorted(ready.messages("g", "s")[10:], key=int) == [f"{i}" for i in range(40)]


@pytest.mark.parametrize("group,insights", [("/aws/containerinsights/demo/prometheus", True), ("/aws/ecs/x", False)])
def test_the_user_agent_names_the_program(logs, group, insights):
    logs.add_stream(group, "s")
    delivered(put_one(logs.url, group=group)[0])
    assert logs.requests[0].headers["user-agent"] == f"podgpu-agent/{VERSION}" + " (ContainerInsights)" * insights


# --- Errors: (code, HTTP status) -> outcome of two events, outcome of one ---

ERRORS = [
    ("ThrottlingException", 400, "throttled", "throttled"),
    ("TooManyRequestsException", 429, "throttled", "throttled"),
    ("ServiceUnavailableException", 500, "retry", "retry"),
    ("ServiceUnavailableException", 503, "retry", "retry"),
    ("InternalFailure", 500, "retry", "retry"),
    ("OperationAbortedException", 400, "retry", "retry"),
    ("LimitExceededException", 400, "retry", "retry"),
    ("InvalidSequenceTokenException", 400, "retry", "retry"),
    ("SomethingNewException", 400, "retry", "retry"),
    ("DataAlreadyAcceptedException", 400, "delivered", "delivered"),
    ("InvalidParameterException", 400, "split", "refused"),
    ("SerializationException", 400, "split", "refused"),
    ("RequestEntityTooLargeException", 413, "split", "refused"),
]


@pytest.mark.parametrize("code,status,two,one", ERRORS)
@pytest.mark.parametrize("as_header", [False, True])
def test_errors_have_their_outcomes(ready, code, status, two, one, as_header):
    ready.fail("PutLogEvents", code, "Rate exceeded\nand more", status, times=2, as_header=as_header)
    text = f"PutLogEvents: {code}: Rate exceeded (HTTP {status})" if one != "delivered" else ""
    with Probe(ready.url) as probe:
        for messages, outcome in ((("a", "b"), two), (("c",), one)):
            told = probe.put(*messages)
            assert (told["outcome"], told["error"]) == (outcome, text)
        stats = probe.end()
    assert (stats["requests"], stats["failures"]) == (2, 0 if one == "delivered" else 2)
    assert stats["throttled"] == (2 if one == "throttled" else 0)


@pytest.mark.parametrize("status,two,one", [(413, "split", "refused"), (429, "throttled", "throttled"), (503, "retry", "retry"),
                                            (404, "retry", "retry"), (400, "retry", "retry"), (200, "retry", "retry")])
def test_a_page_of_html_is_judged_by_its_status(ready, status, two, one):
    ready.answer("PutLogEvents", status, b"<html><body>InvalidParameterException</body></html>",
                 {"Content-Type": "text/html"}, times=2)
    with Probe(ready.url) as probe:
        for messages, outcome in ((("a", "b"), two), (("c",), one)):
            told = probe.put(*messages)
            assert (told["outcome"], told["error"]) == (
                outcome, f"PutLogEvents: not an answer of CloudWatch Logs (HTTP {status})")


def test_throttling_ends(ready):
    ready.fail("PutLogEvents", "ThrottlingException", "Rate exceeded", times=3, headers={"Retry-After": "7"})
    with Probe(ready.url) as probe:
        for _ in range(3):
            told = probe.put("m")
            assert (told["outcome"], told["retry_after"]) == ("throttled", 7)
        told = probe.put("m")
        delivered(told)
        assert told["retry_after"] == 0
        assert probe.end()["throttled"] == 3
    assert ready.messages("g", "s") == ["m"]


# --- Events that are thrown away ---


@pytest.mark.parametrize("info,old,new", [
    ({"tooOldLogEventEndIndex": 3}, 3, 0), ({"expiredLogEventEndIndex": 2}, 2, 0), ({"tooNewLogEventStartIndex": 7}, 0, 3),
    ({"tooOldLogEventEndIndex": 1, "expiredLogEventEndIndex": 4, "tooNewLogEventStartIndex": 9}, 4, 1),
    ({"tooOldLogEventEndIndex": 10}, 10, 0), ({"tooNewLogEventStartIndex": 0}, 0, 10),
])
def test_rejected_events_are_counted_by_their_indices(ready, info, old, new):
    ready.answer("PutLogEvents", 200, json.dumps({"rejectedLogEventsInfo": info}).encode())
    delivered(put_one(ready.url, *"abcdefghij")[0], old, new)


def test_old_and_new_events_of_a_batch_are_left_out_and_the_others_kept(ready):
    day, hour = 86400000, 3600000
    told, _ = put(ready.url, batch(*"ab", at=now_ms() - 14 * day - hour), batch("c", at=now_ms()),
                  {"group": "g", "stream": "s", "events": [[now_ms(), "d"], [now_ms() + 3 * hour, "e"]]},
                  args=("--one-by-one",))
    delivered(told[0], old=2)
    delivered(told[1])
    delivered(told[2], new=1)
    assert ready.messages("g", "s") == ["c", "d"]


# --- Groups and streams ---


def test_a_group_made_here_gets_its_retention_before_the_stream(logs):
    delivered(put_one(logs.url, args=("--retention", 30))[0])
    assert logs.operations() == ["PutLogEvents", "CreateLogStream", "CreateLogGroup", "PutRetentionPolicy",
                                 "CreateLogStream", "PutLogEvents"]
    assert logs.groups["g"]["retention"] == 30


def test_a_group_that_exists_keeps_its_retention(logs):
    logs.add_stream("g", retention=7)
    _, stats = put_one(logs.url, args=("--retention", 30))
    assert logs.operations() == ["PutLogEvents", "CreateLogStream", "PutLogEvents"]
    assert (stats["groups_created"], stats["streams_created"]) == (0, 1)
    # Made by another between our two requests.
    logs.fail("CreateLogStream", "ResourceNotFoundException")
    _, stats = put_one(logs.url, stream="t", args=("--retention", 30))
    assert logs.operations()[3:] == ["PutLogEvents", "CreateLogStream", "CreateLogGroup", "CreateLogStream", "PutLogEvents"]
    assert (stats["groups_created"], stats["streams_created"], stats["failures"]) == (0, 1, 0)
    assert logs.groups["g"]["retention"] == 7 and logs.messages("g", "t") == ["m"]


def test_a_stream_made_by_another_meanwhile_is_used(ready):
    ready.fail("PutLogEvents", "ResourceNotFoundException")
    told, stats = put_one(ready.url)
    delivered(told)
    assert ready.operations() == ["PutLogEvents", "CreateLogStream", "PutLogEvents"]
    assert (stats["streams_created"], stats["failures"]) == (0, 0)


def test_many_who_need_the_same_make_it_once(logs):
    gate = logs.hold("CreateLogStream")
    logs.add_stream("other", "s")
    with Probe(logs.url) as probe:
        probe.send(*[batch(f"{i}") for i in range(20)])
        wait_until(lambda: sum(r.is_answered for r in logs.seen("PutLogEvents")) == 20, what="each batch found no stream")
        delivered(probe.put("x", group="other"))  # so all of those answers were read, too
        gate.set()
        for _ in range(20):
            delivered(probe.next())
        stats = probe.end()
    assert logs.operations().count("CreateLogGroup") == 1
    assert logs.operations().count("CreateLogStream") == 2
    assert (stats["groups_created"], stats["streams_created"]) == (1, 1)
    assert sorted(logs.messages("g", "s"), key=int) == [f"{i}" for i in range(20)]


def test_many_streams_of_a_new_group_make_the_group_once(logs):
    gate = logs.hold("CreateLogGroup")
    with Probe(logs.url, "--retention", 1) as probe:
        probe.send(*[batch("m", stream=f"s{i}") for i in range(20)])
        wait_until(lambda: sum(r.is_answered for r in logs.seen("CreateLogStream")) == 20, what="each found no group")
        gate.set()
        for _ in range(20):
            delivered(probe.next())
        stats = probe.end()
    assert logs.operations().count("CreateLogGroup") == logs.operations().count("PutRetentionPolicy") == 1
    assert (stats["groups_created"], stats["streams_created"]) == (1, 20)
    assert {name: events[0][1] for name, events in logs.groups["g"]["streams"].items()} == {f"s{i}": "m" for i in range(20)}


@pytest.mark.parametrize("operation,code,outcome", [
    ("CreateLogGroup", "LimitExceededException", "retry"), ("CreateLogGroup", "OperationAbortedException", "retry"),
    ("CreateLogGroup", "ThrottlingException", "throttled"), ("CreateLogStream", "ThrottlingException", "throttled"),
    ("CreateLogStream", "ServiceUnavailableException", "retry"), ("CreateLogStream", "InvalidParameterException", "refused"),
    ("CreateLogGroup", "InvalidParameterException", "refused"), ("CreateLogGroup", "AccessDeniedException", "credentials"),
])
def test_what_cannot_be_made_decides_the_outcome_of_the_batch(logs, operation, code, outcome):
    logs.fail(operation, code, "because", times=2)
    keys = ("--next-keys", ":".join(KEYS[:2]))  # fetched anew, they are the same
    told, _ = put_one(logs.url, "a", "b", args=keys)
    assert (told["outcome"], told["error"]) == (outcome, f"{operation}: {code}: because (HTTP 400)")
    logs.faults.clear()
    delivered(put_one(logs.url, args=keys)[0])


def test_a_stream_that_is_never_found_is_no_endless_loop(ready):
    ready.fail("PutLogEvents", "ResourceNotFoundException", "The specified log stream does not exist.", times=99)
    told, _ = put_one(ready.url)
    assert told["outcome"] == "retry" and told["error"].startswith("PutLogEvents: ResourceNotFoundException: The spec")
    assert ready.operations() == ["PutLogEvents", "CreateLogStream"] * 2 + ["PutLogEvents"]
    ready.faults.clear()
    ready.fail("CreateLogStream", "ResourceNotFoundException", times=99)
    told, _ = put_one(ready.url, stream="t")
    assert told["outcome"] == "retry" and told["error"].startswith("CreateLogStream: ResourceNotFoundException")
    assert ready.operations()[5:] == ["PutLogEvents"] + ["CreateLogStream", "CreateLogGroup"] * 2 + ["CreateLogStream"]


def test_a_retention_that_fails_at_first_is_set_later_and_nobody_waits(logs):
    logs.fail("PutRetentionPolicy", "OperationAbortedException", times=2)
    with Probe(logs.url, "--retention", 30) as probe:
        delivered(probe.put("m"))
        assert logs.groups["g"]["retention"] is None
        wait_until(lambda: logs.groups["g"]["retention"] == 30, 20, "the retention")
        probe.end()
        assert not any("for ever" in line for line in probe.log)
    assert logs.operations().count("PutRetentionPolicy") == 3


def test_a_retention_that_is_refused_is_told_and_nobody_waits(logs):
    logs.fail("PutRetentionPolicy", "InvalidParameterException", "days", times=1)
    with Probe(logs.url, "--retention", 31) as probe:
        delivered(probe.put("m"))
        probe.end()
    warned = [line for line in probe.log if "level=WARN" in line]
    assert len(warned) == 1 and 'msg="log group keeps its events for ever" group=g' in warned[0]
    assert "PutRetentionPolicy: InvalidParameterException: days (HTTP 400)" in warned[0]
    assert logs.operations().count("PutRetentionPolicy") == 1


@pytest.mark.parametrize("names,text", [
    ({"group": ""}, "log group name has 0 characters, not 1 to 512"),
    ({"group": "a b"}, "log group name 'a b' has other characters than letters, digits and _ / . # -"),
    ({"group": "g" * 513}, "log group name has 513 characters, not 1 to 512"),
    ({"stream": ""}, "log stream name has 0 characters, not 1 to 512"),
    ({"stream": "a:b"}, "log stream name 'a:b' has ':' or '*' in it"),
    ({"stream": "ü" * 513}, "log stream name has 513 characters, not 1 to 512"),
])
def test_names_that_are_not_allowed_are_refused_without_a_request(logs, names, text):
    told, stats = put_one(logs.url, "a", "b", **names)
    assert (told["outcome"], told["error"]) == ("refused", f"PutLogEvents: {text}")
    assert logs.requests == [] and stats["requests"] == 0


def test_the_longest_names_are_used(logs):
    delivered(put_one(logs.url, group="aZ9_/.#-" * 64, stream="ü" * 512)[0])
    assert logs.messages("aZ9_/.#-" * 64, "ü" * 512) == ["m"]


# --- Keys ---


@pytest.mark.parametrize("args", [("--renew-ms", 0), ("--renew-ms", 300), ("--renew-ms", 300, "--quiet-renewal")])
@pytest.mark.parametrize("how", ["expired", "unknown"])
def test_refused_keys_are_fetched_anew_and_the_batch_sent_again(ready, args, how):
    if how == "expired":
        ready.expired.add("AKIDEXAMPLE")
    ready.keys = {"AKIDSECOND": ("other", "token/+=")}
    told, stats = put_one(ready.url, "a", "b", args=("--next-keys", "AKIDSECOND:other:token/+=", *args))
    delivered(told)
    assert [r.error for r in ready.requests] == [
        "ExpiredTokenException" if how == "expired" else "UnrecognizedClientException", None]
    assert ready.messages("g", "s") == ["a", "b"]
    assert (stats["expired"], stats["failures"]) == (1, 1)


def test_keys_that_many_need_are_fetched_once(ready):
    ready.expired.add("AKIDEXAMPLE")
    ready.keys = {"AKIDSECOND": ("other", None)}
    told, stats = put(ready.url, *[batch(f"{i}") for i in range(30)],
                      args=("--next-keys", "AKIDSECOND:other", "--renew-ms", 100))
    for t in told:
        delivered(t)
    assert stats["expired"] == 1
    assert sorted(ready.messages("g", "s"), key=int) == [f"{i}" for i in range(30)]


@pytest.mark.parametrize("args", [(), ("--next-keys", "AKIDEXAMPLE:a/secret+key"), ("--next-keys", "AKIDWRONG:x")])
def test_keys_that_stay_refused_are_told(ready, args):
    ready.keys = {"AKIDTHIRD": ("x", None)}
    told, stats = put_one(ready.url, args=args)
    assert (told["outcome"], told["error"]) == (
        "credentials", "PutLogEvents: UnrecognizedClientException: The security token included in the request is invalid."
                       " (HTTP 400)")
    assert stats["expired"] == 1 and len(ready.requests) == (2 if "AKIDWRONG:x" in args else 1)
    assert ready.messages("g", "s") == []


def test_a_right_that_is_missing_is_told(ready):
    ready.fail("PutLogEvents", "AccessDeniedException", "User: arn:aws:sts::1:x is not authorized", times=2)
    told, _ = put_one(ready.url, args=("--next-keys", "AKIDEXAMPLE:a/secret+key"))
    assert (told["outcome"], told["error"]) == (
        "credentials", "PutLogEvents: AccessDeniedException: User: arn:aws:sts::1:x is not authorized (HTTP 400)")


def test_a_wrong_signature_is_told_in_one_line_without_what_was_signed(ready):
    ready.keys = {"AKIDEXAMPLE": ("another secret", "the/token")}
    told, stats = put_one(ready.url, args=("--keys", "AKIDEXAMPLE:a/secret+key:the/token"))
    assert (told["outcome"], told["error"]) == (
        "credentials", "PutLogEvents: InvalidSignatureException: The request signature we calculated does not match the"
                       " signature you provided. (HTTP 400)")
    assert stats["expired"] == 1


def test_without_keys_nothing_is_sent(ready):
    told, stats = put_one(ready.url, args=("--no-keys",))
    assert (told["outcome"], told["error"]) == ("credentials", "PutLogEvents: no credentials: looked nowhere")
    told, stats = put_one(ready.url, args=("--first-ms", 3600000, "--deadline", 1))
    assert (told["outcome"], told["error"]) == ("credentials", "PutLogEvents: no credentials came in time")
    assert ready.requests == [] and stats["requests"] == 0


def test_keys_that_come_late_are_waited_for(ready):
    told, _ = put(ready.url, *[batch(f"{i}") for i in range(20)], args=("--first-ms", 300))
    for t in told:
        delivered(t)
    assert len(ready.requests) == 20


def test_the_real_chain_brings_the_keys(ready):
    told, _ = put_one(ready.url, args=("--real-keys",),
                      env={"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]})
    delivered(told)


def test_keys_that_were_changed_in_their_file_are_used_after_a_refusal(ready, tmp_path):
    def write(access, secret):
        path.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")
    path = tmp_path / "credentials"
    write("AKIDOLD", "x")
    env = {"AWS_SHARED_CREDENTIALS_FILE": str(path), "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
    ready.expired.add("AKIDOLD")
    with Probe(ready.url, "--real-keys", env=env) as probe:
        first = probe.put("m")
        assert first["outcome"] == "credentials" and "ExpiredTokenException" in first["error"]
        write(*KEYS[:2])
        wait_until(lambda: probe.put("m")["outcome"] == "delivered", 60, "the keys are read anew")
    assert ready.messages("g", "s") == ["m"]


# --- The clock ---


@pytest.mark.parametrize("offset_s", [3600, -3600, 400, -400])
def test_a_wrong_clock_is_set_by_the_service(ready, offset_s):
    ready.clock_offset_s = offset_s
    with Probe(ready.url) as probe:
        delivered(probe.put("a"))
        assert [r.error for r in ready.requests] == ["InvalidSignatureException", None]
        delivered(probe.put("b"))
        assert len(ready.requests) == 3
        ready.clock_offset_s = 0  # the machine's clock was set
        delivered(probe.put("c"))
        assert [r.error for r in ready.requests[3:]] == ["InvalidSignatureException", None]
        stats = probe.end()
    assert abs(stats["clock_offset_s"]) <= 1 and stats["expired"] == 0
    assert ready.messages("g", "s") == ["a", "b", "c"]


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"])
def test_a_clock_that_is_off_by_seconds_is_set_where_the_service_says_so(ready, code):
    ready.clock_offset_s = 100
    ready.fail("PutLogEvents", code, status=403)
    told, stats = put_one(ready.url)
    delivered(told)
    first, second = (datetime.datetime.strptime(r.headers["x-amz-date"], "%Y%m%dT%H%M%SZ") for r in ready.requests)
    assert 95 <= (second - first).total_seconds() <= 100 + 60 * SLOW
    assert abs(stats["clock_offset_s"] - 100) <= 1 and stats["expired"] == 0


def test_a_clock_that_does_not_help_is_tried_once(ready):
    ready.clock_offset_s = 7200
    ready.fail("PutLogEvents", "RequestTimeTooSkewed", "no", status=403, times=9)
    told, _ = put_one(ready.url, args=("--next-keys", "AKIDEXAMPLE:a/secret+key"))
    assert (told["outcome"], told["error"]) == ("credentials", "PutLogEvents: RequestTimeTooSkewed: no (HTTP 403)")
    assert len(ready.requests) == 2


def test_the_signature_is_the_published_one():
    """The date is set by the service's, the host by a proxy's: so all that is signed is fixed."""
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc).timestamp()
    group = "/aws/containerinsights/demo/prometheus"
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    for _ in range(10):
        with FakeLogs(keys=("AKIDEXAMPLE", secret, "SESSIONTOKEN")) as logs:
            logs.now = lambda: moment
            logs.add_stream(group, "dcgm")
            told, _ = put_one("http://logs.us-west-2.amazonaws.com", "{}", group=group, stream="dcgm", at=1767323045000,
                              args=("--keys", f"AKIDEXAMPLE:{secret}:SESSIONTOKEN"), env={"http_proxy": logs.url})
            delivered(told)
            request = logs.requests[-1]
        if request.headers["x-amz-date"] == "20260102T030405Z":  # else a second went by in between
            break
    assert request.raw == (b'{"logEvents":[{"message":"{}","timestamp":1767323045000}],'
                           b'"logGroupName":"/aws/containerinsights/demo/prometheus","logStreamName":"dcgm"}')
    assert request.authorization == {
        "Credential": "AKIDEXAMPLE/20260102/us-west-2/logs/aws4_request",
        "SignedHeaders": "content-type;host;x-amz-date;x-amz-security-token;x-amz-target;x-amzn-logs-format",
        "Signature": "2ab91e6d7e93558d2b8f31f04073dd4d0afd0d901ebed607e600ae4200046ca3"}


# --- The network ---


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_a_slow_answer_ends_at_the_deadline(ready, fault):
    getattr(ready, fault)("PutLogEvents")
    with Probe(ready.url, "--deadline", 1) as probe:
        told = probe.put("m")
        assert (told["outcome"], told["error"]) == ("retry", "PutLogEvents: no whole answer within 1000 ms")
        delivered(probe.put("m"))


def test_a_reset_after_the_whole_request_leaves_the_batch_to_the_caller(ready):
    ready.reset("PutLogEvents")
    told, stats = put_one(ready.url)
    assert told["outcome"] == "retry" and told["error"].startswith("PutLogEvents: ")
    assert ready.messages("g", "s") == ["m"] and stats["failures"] == 1  # it has it, and nobody can know


def test_a_reset_of_a_kept_connection_is_tried_on_a_new_one(ready):
    with Probe(ready.url) as probe:
        delivered(probe.put("a"))
        ready.reset("PutLogEvents")
        delivered(probe.put("b"))
    assert ready.messages("g", "s") == ["a", "b", "b"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(ready, status):
    with FakeLogs() as elsewhere:
        elsewhere.add_stream("g", "s")
        ready.answer("PutLogEvents", status, b"", {"Location": elsewhere.url + "/"})
        told, _ = put_one(ready.url)
        assert (told["outcome"], told["error"]) == (
            "retry", f"PutLogEvents: not an answer of CloudWatch Logs (HTTP {status})")
        assert elsewhere.requests == []


@pytest.mark.parametrize("status", [200, 400])
def test_a_huge_answer_is_cut_off(ready, status):
    ready.answer("PutLogEvents", status, b'{"a":"' + b"x" * (8 << 20) + b'"}')
    told, _ = put_one(ready.url)
    assert (told["outcome"], told["error"]) == ("retry", "PutLogEvents: answer over its limit")


def test_nobody_listens(ready):
    told, stats = put_one("http://127.0.0.1:1")
    assert told["outcome"] == "retry" and "127.0.0.1 port 1" in told["error"]
    assert (stats["requests"], stats["failures"]) == (1, 1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "other"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                        "2", "-subj", "/CN=private", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"],
                       check=True, capture_output=True)
    return folder


def test_a_private_authority_is_trusted_when_aws_ca_bundle_names_it(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with FakeLogs(context=context) as logs:
        logs.add_stream("g", "s")
        told, _ = put(logs.url, batch("a"), batch("b"), args=("--one-by-one",),
                      env={"AWS_CA_BUNDLE": str(certificates / "server.pem")})
        for t in told:
            delivered(t)
        assert logs.messages("g", "s") == ["a", "b"] and logs.connections == 1
        # Without a scheme it is https.
        delivered(put_one(logs.url.removeprefix("https://"), env={"AWS_CA_BUNDLE": str(certificates / "server.pem")})[0])
        for env in ({}, {"AWS_CA_BUNDLE": str(certificates / "other.pem")}, {"AWS_CA_BUNDLE": str(certificates / "none")}):
            told, _ = put_one(logs.url, env=env)
            assert told["outcome"] == "retry" and re.search("certificate", told["error"]), told
        assert len(logs.requests) == 3


def test_proxies_are_those_of_the_environment(ready):
    url = "http://logs.example.invalid:8080"
    delivered(put_one(url, env={"HTTP_PROXY": ready.url})[0])
    delivered(put_one(url, env={"http_proxy": ready.url, "NO_PROXY": "other.invalid"})[0])
    assert [r.path for r in ready.requests] == [url + "/"] * 2
    for no_proxy in (".example.invalid", "*"):
        told, _ = put_one(url, env={"http_proxy": ready.url, "NO_PROXY": no_proxy})
        assert told["outcome"] == "retry" and "logs.example.invalid" in told["error"]
    assert len(ready.requests) == 2


@pytest.mark.parametrize("args,env,host", [
    ((), {}, "logs.us-west-2.amazonaws.com:443"),
    (("--region", "cn-north-1"), {}, "logs.cn-north-1.amazonaws.com.cn:443"),
    (("--dualstack",), {}, "logs.us-west-2.api.aws:443"),
    ((), {"AWS_USE_FIPS_ENDPOINT": "true"}, "logs-fips.us-west-2.amazonaws.com:443"),
    ((), {"AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": "https://logs.example.invalid:8443/"}, "logs.example.invalid:8443"),
])
def test_without_an_override_the_region_and_the_environment_say_where(args, env, host):
    with FakeLogs() as proxy:
        told, _ = put_one("", args=args, env={"HTTPS_PROXY": proxy.url, **env})
        assert told["outcome"] == "retry" and proxy.tunnels == [host]


@pytest.mark.parametrize("url,text", [
    ("http://127.0.0.1:1/prefix", "endpoint 'http://127.0.0.1:1/prefix' has more than a scheme, a host and a port"),
    ("ftp://127.0.0.1", "endpoint 'ftp://127.0.0.1' is neither http nor https"),
])
def test_an_endpoint_that_is_none_is_refused(url, text):
    ran = subprocess.run([PROBE, "--endpoint", url], input="", capture_output=True, text=True, env=ENV, timeout=60)
    assert (ran.returncode, ran.stderr) == (6, text + "\n")


# --- Ends ---


def test_batches_are_cancelled_wherever_they_are(logs):
    for operation, count in (("PutLogEvents", 8), ("CreateLogStream", 1), ("CreateLogGroup", 1), ("PutRetentionPolicy", 1)):
        gate = logs.hold(operation, times=count)
        with Probe(logs.url, "--retention", 1) as probe:
            probe.send(*[batch("m", group=operation) for _ in range(20)])
            wait_until(lambda: not logs.faults, what=f"{operation} is under way")
            probe.send({"cancel": True})
            assert probe.next() == {"cancelled": True}
            gate.set()
            logs.add_stream("other", "s")
            delivered(probe.put("n", group="other"))
            probe.end()
    with Probe(logs.url, "--first-ms", 3600000) as probe:  # waiting for keys
        probe.send(batch("m"), {"cancel": True})
        assert probe.next() == {"cancelled": True}
        probe.end()


def test_everything_may_end_inside_the_first_answer(logs):
    gate = logs.hold("CreateLogGroup")
    logs.add_stream("there", "s")
    with Probe(logs.url, "--free-all") as probe:
        probe.send(*[batch("m", stream=f"{i}") for i in range(12)])
        wait_until(lambda: sum(r.is_answered for r in logs.seen("CreateLogStream")) == 12, what="all wait for the group")
        probe.send(batch("m", group="there"))
        delivered(probe.next())
        assert probe.next()["requests"] == 12 + 12 + 1 + 1
        assert probe.next() is None
        gate.set()
    assert probe.process.returncode == 0


def test_calls_outlive_what_they_were_made_with(ready):
    gate = ready.hold("PutLogEvents", times=8)
    with Probe(ready.url) as probe:
        probe.send(*[batch(f"{i}") for i in range(12)])
        wait_until(lambda: not ready.faults, what="all connections are in use")
        probe.send({"leave": True})
        assert probe.next() == {"left": True}
        gate.set()
        told = [probe.next() for _ in range(12)]
        assert [t["outcome"] for t in told].count("delivered") == 8
        assert {t["error"] for t in told if t["outcome"] == "retry"} == {
            "PutLogEvents: given up for another configuration"}
        assert probe.next() is None
    assert probe.process.returncode == 0
    assert len(ready.messages("g", "s")) == 8


# --- Another's service ---


@pytest.fixture(scope="module")
def moto(tmp_path_factory):
    """Moto's server; its URL."""
    log = tmp_path_factory.mktemp("moto") / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p",
                                    "0"], stdout=out, stderr=out, env=ENV)
    try:
        yield wait_until(lambda: process.poll() is None and re.search(r"http://127\.0\.0\.1:\d+", log.read_text()),
                         60, "moto's server")[0]
    finally:
        process.terminate()
        process.wait(20)


def test_moto_has_what_was_put(moto):
    import boto3
    group, at = "/aws/containerinsights/demo/prometheus", now_ms()
    messages = ['{"_aws":{"Timestamp":%d},"gpu":"0","x":1.5e-7,"t":"<&>ü\u2028"}' % at, "y" * 5000]
    told, stats = put(moto, batch(*messages, group=group, stream="dcgm", at=at),
                      batch("later", group=group, stream="dcgm", at=at + 5), args=("--one-by-one", "--retention", 14))
    for t in told:
        delivered(t)
    assert (stats["groups_created"], stats["streams_created"], stats["failures"]) == (1, 1, 0)
    client = boto3.client("logs", region_name="us-west-2", endpoint_url=moto, aws_access_key_id="x",
                          aws_secret_access_key="x")
    assert [(g["logGroupName"], g["retentionInDays"]) for g in client.describe_log_groups()["logGroups"]] == [(group, 14)]
    events = client.get_log_events(logGroupName=group, logStreamName="dcgm", startFromHead=True)["events"]
    assert [(e["timestamp"], e["message"]) for e in events] == [(at, messages[0]), (at + 1, messages[1]), (at + 5, "later")]


@pytest.mark.skipif(not os.path.exists("/usr/bin/aws"), reason="awscli is not installed")
def test_aws_cli_reads_what_was_put(moto, tmp_path):
    told, _ = put(moto, batch("one", "two", group="cli", stream="a/b"))
    delivered(told[0])
    env = {**ENV, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "HOME": str(tmp_path),
           "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": ""}
    said = subprocess.run(["/usr/bin/aws", "--endpoint-url", moto, "--region", "us-west-2", "--output", "json", "logs",
                           "get-log-events", "--log-group-name", "cli", "--log-stream-name", "a/b"],
                          capture_output=True, text=True, env=env, timeout=60 * SLOW)
    assert said.returncode == 0, said.stderr
    assert [e["message"] for e in json.loads(said.stdout)["events"]] == ["one", "two"]

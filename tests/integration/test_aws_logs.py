"""CloudWatch Logs alone (tests/tools/aws_logs_probe.c) against a fake one that fails in every way, and against moto's."""
import json
import os
import subprocess
import time

import pytest

from fake_logs import FakeLogs
from harness import BUILD, SLOW

pytestmark = pytest.mark.faults
PROBE = BUILD / "tests" / "tools" / "aws_logs_probe"
# What proxies and AWS settings of the machine would change.
ENV = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("AWS_")}


def now_ms():
    return int(time.time() * 1000)


def batch(*messages, group="g", stream="s", at=None):
    at = now_ms() if at is None else at
    return {"group": group, "stream": stream, "events": [[at + i, m] for i, m in enumerate(messages)]}


def put(url, *batches, args=(), env=None, code=0):
    """What became of each batch, in order of their end, and the counts."""
    lines = "".join(json.dumps(b) + "\n" for b in batches)
    ran = subprocess.run([PROBE, "--endpoint", url, *args], input=lines, capture_output=True, text=True,
                         timeout=60 * SLOW, env={**ENV, **(env or {})})
    assert ran.returncode == code, ran.stderr
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    return told[:-1], told[-1]


@pytest.fixture
def logs():
    with FakeLogs() as server:
        yield server


def test_a_batch_is_delivered_and_its_group_and_stream_are_made(logs):
    told, stats = put(logs.url, batch('{"a":"<ü>\\n"}', "second", group="/aws/x", stream="dcgm"))
    assert told == [{"batch": 0, "outcome": "delivered", "old": 0, "new": 0, "retry_after": 0, "error": ""}]
    assert logs.operations() == ["PutLogEvents", "CreateLogStream", "CreateLogGroup", "CreateLogStream", "PutLogEvents"]
    assert logs.messages("/aws/x", "dcgm") == ['{"a":"<ü>\\n"}', "second"]
    assert logs.groups["/aws/x"]["retention"] is None
    assert stats == {"requests": 5, "failures": 0, "groups_created": 1, "streams_created": 1, "throttled": 0,
                     "clock_offset_s": stats["clock_offset_s"], "expired": 0}
    assert abs(stats["clock_offset_s"]) <= 1

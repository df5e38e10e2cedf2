"""The delivery with its spool (tests/tools/delivery_probe.c) on a real disk, against a log service that fails: kills at
any moment, a full disk, outages, throttling, a slow service."""
import collections
import json
import queue
import random
import resource
import signal
import subprocess
import threading
import time

import pytest

from fake_logs import FakeLogs
from harness import BUILD, SLOW, wait_until

pytestmark = pytest.mark.faults
PROBE = BUILD / "tests" / "tools" / "delivery_probe"
GROUP = "/podgpu/test"
MEMORY_AT_MOST = 16 << 20


class Probe:
    """A running probe: commands in, lines out."""

    def __init__(self, logs, spool, prefix="p", file_bytes=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
        self.prefix = prefix
        self.process = subprocess.Popen([PROBE, logs.url, spool, prefix], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        preexec_fn=limit if file_bytes else None)
        self.lines, self.log, self.spooled = queue.Queue(), [], 0
        self.threads = [threading.Thread(target=self.read), threading.Thread(target=self.read_log)]
        for thread in self.threads:
            thread.start()

    def read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # a kill may cut the last one
                said = json.loads(line)
                self.spooled = said.get("spooled", self.spooled)
                if "spooled" not in said:
                    self.lines.put(said)
        self.lines.put(None)

    def read_log(self):
        self.log.extend(self.process.stderr)

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def next(self):
        return self.lines.get(timeout=60 * SLOW)

    def ready(self):
        assert self.next() == {"ready": True}, "".join(self.log)
        return self

    def stats(self):
        self.say("stats")
        return self.next()

    def stats_when(self, is_so):
        found = {}

        def look():
            found.update(self.stats())
            return is_so(found)
        wait_until(look, 60 * SLOW)
        return found

    def drain(self):
        self.say(f"drain {int(60000 * SLOW)}")
        assert self.next() == {"drained": True}
        return self.stats()

    def wait(self):
        status = self.process.wait(60 * SLOW)
        for thread in self.threads:
            thread.join()
        self.process.stdin.close()
        return status

    def end(self):
        self.say("end")
        assert self.wait() == 0, "".join(self.log)

    def kill(self):
        self.process.kill()
        assert self.wait() == -signal.SIGKILL

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.wait()


@pytest.fixture
def logs():
    with FakeLogs() as fake:
        yield fake


def delivered(logs):
    """How often each id was taken."""
    with logs.lock:
        return collections.Counter(json.loads(m)["id"] for _, _, events in logs.batches for _, m in events)


def check_accounts(stats):
    assert stats["events"] + stats["recovered"] == stats["delivered"] + stats["lost"] + stats["waiting"]


@pytest.mark.threads
def test_events_are_delivered_and_the_spool_is_empty_afterwards(logs, tmp_path):
    with Probe(logs, tmp_path / "spool").ready() as probe:
        probe.say("add a 100 200")
        probe.say("add b 3 100000")
        stats = probe.drain()
        assert (stats["delivered"], stats["lost"], stats["waiting"], stats["duplicates"]) == (103, 0, 0, 0)
        assert not stats["unclean"] and not stats["memory"]
        probe.end()
    assert sorted(f.name for f in (tmp_path / "spool").iterdir()) == ["lock"]
    assert delivered(logs) == {f"p-{i}": 1 for i in range(103)}
    assert len(logs.messages(GROUP, "a")) == 100


def test_nothing_that_was_spooled_is_lost_over_kills(logs, tmp_path):
    rounds, streams = 30, 5
    chance = random.Random(4711)
    promised = {}
    for i in range(rounds):
        with Probe(logs, tmp_path / "spool", f"r{i}").ready() as probe:
            probe.say(f"load {streams}")
            if chance.random() < 0.3:
                logs.fail("PutLogEvents", "ServiceUnavailableException", status=503, times=3)
            goal = chance.randrange(1, 150)
            wait_until(lambda: probe.spooled >= goal, 60 * SLOW)
            time.sleep(chance.random() * 0.05)
            probe.kill()
            promised[f"r{i}"] = probe.spooled
    with Probe(logs, tmp_path / "spool", "last").ready() as probe:
        stats = probe.drain()
        check_accounts(stats)
        assert (stats["lost"], stats["waiting"], stats["unclean"]) == (0, 0, True)
        probe.end()
    seen = delivered(logs)
    assert [key for prefix, count in promised.items() for key in (f"{prefix}-{k}" for k in range(count))
            if key not in seen] == []
    # Sent again: at each kill at most the one batch that a stream had in flight.
    with logs.lock:
        sent = collections.Counter((stream, json.dumps(events)) for _, stream, events in logs.batches)
    again = collections.Counter()
    for (stream, _), times in sent.items():
        again[stream] += times - 1
    assert len(again) == streams
    assert all(times <= rounds for times in again.values()), again
    assert max(seen.values()) <= rounds
    # No event came in two batches: a duplicate is a whole batch, as it was.
    assert sum(seen.values()) - len(seen) == sum((times - 1) * len(json.loads(events))
                                                 for (_, events), times in sent.items())


def test_an_outage_is_bridged_and_nothing_is_lost(logs, tmp_path):
    logs.fail("", "ServiceUnavailableException", status=503, times=1000)
    with Probe(logs, tmp_path / "spool").ready() as probe:
        for i in range(20):
            probe.say(f"add s{i % 4} 50 300")
            wait_until(lambda: probe.spooled == 50 * (i + 1), 60 * SLOW)
        assert probe.stats()["delivered"] == 0
        probe.kill()
    with Probe(logs, tmp_path / "spool", "q").ready() as probe:
        probe.say("add s0 50 300")
        probe.stats_when(lambda s: s["recovered"] == 1000 and s["retries"] > 4)
        with logs.lock:
            logs.faults.clear()
        stats = probe.drain()
        assert (stats["recovered"], stats["delivered"], stats["lost"]) == (1000, 1050, 0)
        probe.end()
    assert delivered(logs) == {**{f"p-{i}": 1 for i in range(1000)}, **{f"q-{i}": 1 for i in range(50)}}


def test_an_answer_that_is_lost_is_counted_as_duplicates(logs, tmp_path):
    logs.add_stream(GROUP, "a")
    logs.reset("PutLogEvents", stores=True, times=2)
    with Probe(logs, tmp_path / "spool").ready() as probe:
        probe.say("add a 10 100")
        stats = probe.drain()
        assert (stats["delivered"], stats["duplicates"], stats["retries"]) == (10, 20, 2)
        probe.end()
    assert set(delivered(logs).values()) == {3}


def test_a_throttled_service_gets_everything_in_the_end(logs, tmp_path):
    for stream in range(10):
        logs.add_stream(GROUP, f"s{stream}")
    logs.fail("PutLogEvents", "ThrottlingException", "Rate exceeded", times=6)
    with Probe(logs, tmp_path / "spool").ready() as probe:
        for stream in range(10):
            probe.say(f"add s{stream} 10 100")
        stats = probe.drain()
        assert (stats["delivered"], stats["lost"], stats["duplicates"]) == (100, 0, 0)
        probe.end()
    assert set(delivered(logs).values()) == {1}


def test_a_slow_service_is_not_asked_for_more_than_it_can_do(logs, tmp_path):
    busy, most, per_stream = collections.Counter(), [0], [0]
    lock = threading.Lock()

    def slowly(handler, request):
        stream = request.body["logStreamName"]
        with lock:
            busy[stream] += 1
            most[0] = max(most[0], sum(busy.values()))
            per_stream[0] = max(per_stream[0], busy[stream])
        time.sleep(0.1)
        with lock:
            busy[stream] -= 1
        handler.answer(*logs.serve(request))
    for stream in range(20):
        logs.add_stream(GROUP, f"s{stream}")
    logs.inject("PutLogEvents", slowly, times=10000)
    with Probe(logs, tmp_path / "spool").ready() as probe:
        probe.say("load 20")
        wait_until(lambda: probe.spooled >= 500, 60 * SLOW)
        probe.say("load 0")
        stats = probe.drain()
        check_accounts(stats)
        assert (stats["lost"], stats["waiting"], stats["duplicates"]) == (0, 0, 0)
        probe.end()
    assert most[0] <= 8 and per_stream[0] == 1
    seen = delivered(logs)
    assert len(seen) == stats["delivered"] and set(seen.values()) == {1}


def test_a_full_disk_is_told_once_and_batches_go_through_memory(logs, tmp_path):
    logs.fail("", "ServiceUnavailableException", status=503, times=100000)
    with Probe(logs, tmp_path / "spool", file_bytes=100_000).ready() as probe:
        for _ in range(4):
            probe.say("add a 1 40000")
            probe.say("add b 1 40000")
        stats = probe.stats_when(lambda s: s["failures"] >= 2)
        assert stats["memory"] and stats["waiting"] == 8 and stats["lost"] == 0
        # Room again: what is in memory is written.
        resource.prlimit(probe.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(lambda: probe.spooled == 8, 120 * SLOW)
        assert not probe.stats()["memory"]
        probe.kill()
    told = [line for line in probe.log if "spool cannot be written" in line]
    assert len(told) == 1 and "File too large" in told[0]
    with logs.lock:
        logs.faults.clear()
    with Probe(logs, tmp_path / "spool", "q").ready() as probe:
        stats = probe.drain()
        assert (stats["recovered"], stats["delivered"]) == (8, 8)
        probe.end()
    assert set(delivered(logs)) == {f"p-{i}" for i in range(8)}


def test_a_disk_that_stays_full_costs_nothing_while_the_service_answers(logs, tmp_path):
    with Probe(logs, tmp_path / "spool", file_bytes=1).ready() as probe:
        probe.say("add a 20 40000")
        stats = probe.stats_when(lambda s: s["delivered"] == 20)
        assert stats["memory"] and stats["lost"] == 0
        probe.end()
    assert delivered(logs) == {f"p-{i}": 1 for i in range(20)}


def test_the_ring_in_memory_drops_the_oldest(logs, tmp_path):
    """A file in the place of the directory: nothing can be written there, by whatever user."""
    (tmp_path / "spool").write_text("")
    logs.fail("", "ServiceUnavailableException", status=503, times=100000)
    count = MEMORY_AT_MOST // 200_000 + 20
    with Probe(logs, tmp_path / "spool").ready() as probe:
        for _ in range(count):
            probe.say("add a 1 200000")
        stats = probe.stats_when(lambda s: s["events"] == count and s["lost"] > 0)
        check_accounts(stats)
        assert stats["memory"] and 16 <= stats["lost"] <= 30
        with logs.lock:
            logs.faults.clear()
        stats = probe.drain()
        check_accounts(stats)
        probe.end()
    assert any("no spool on disk" in line for line in probe.log)
    assert f"p-{count - 1}" in delivered(logs) and len(delivered(logs)) == stats["delivered"]


def test_two_processes_do_not_share_a_spool(logs, tmp_path):
    with Probe(logs, tmp_path / "spool").ready():
        with Probe(logs, tmp_path / "spool") as other:
            assert other.wait() == 1
        assert "another process has it" in "".join(other.log)


@pytest.mark.threads
def test_the_end_does_not_wait_for_the_network(logs, tmp_path):
    logs.add_stream(GROUP, "a")
    logs.hang("PutLogEvents", times=10)
    with Probe(logs, tmp_path / "spool").ready() as probe:
        probe.say("add a 10 100")
        wait_until(lambda: logs.seen("PutLogEvents"), 60 * SLOW)
        probe.say("add a 10 100")
        began = time.monotonic()
        probe.end()
        assert time.monotonic() - began < 30 * SLOW
    with logs.lock:
        logs.faults.clear()
    with Probe(logs, tmp_path / "spool", "q").ready() as probe:
        stats = probe.drain()
        assert (stats["recovered"], stats["delivered"], stats["unclean"]) == (20, 20, False)
        probe.end()

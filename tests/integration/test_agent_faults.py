# SPDX-License-Identifier: Apache-2.0
"""podgpu-agent as a whole while everything around it fails: kills, disks, CloudWatch away, slow, mad, credentials, nodes,
hangups. Pages count their own scrapes, so the truth is known: what was delivered, and how often, is compared with it."""
import collections
import contextlib
import ctypes
import json
import os
import pathlib
import random
import signal
import struct
import threading
import time

import pytest

from agent_harness import (GROUP, REGION, Agent, Target, agent_at, configuration, declaration, scrape_job, write_files)
from fake_logs import KEYS, FakeLogs, Refused, error_answer
from harness import SLOW, exporter_on, wait_until
from test_agent_post import CLONE_NEWNS, MS_PRIVATE, MS_REC, exporter_pod, with_mounts

from apiserver import ApiServer  # noqa: E402  (sim/ is on the path by harness)

pytestmark = pytest.mark.faults

RULES = declaration(["^(seq|done)$"], [["ClusterName", "page"]])
INTERVAL_MS = 200 * SLOW
MS_RDONLY = 1


class Counted(Target):
    """A page with a gauge and a counter that are the number of its scrapes. pad: a long label. up: else 500."""

    def __init__(self, name, pad=0):
        super().__init__(self.page)
        self.name, self.count, self.lock = name, 0, threading.Lock()
        self.labels = f'{{page="{name}"' + (f',pad="{"x" * pad}"' if pad else "") + "}"

    def page(self):
        with self.lock:
            self.count += self.status == 200
            n = self.count
        return f"# TYPE seq gauge\nseq{self.labels} {n}\n# TYPE done counter\ndone{self.labels} {n}\n"


@pytest.fixture
def pages():
    """Makes pages that count their scrapes."""
    with contextlib.ExitStack() as stack:
        yield lambda count, **more: [stack.enter_context(Counted(f"p{i}", **more)) for i in range(count)]


def jobs_of(pages, per_job=2, **more):
    """A job, and so a log stream, for so many pages each."""
    more = {"interval": f"{INTERVAL_MS}ms", **more}
    return [scrape_job(*[p.address for p in pages[i:i + per_job]], name=f"job{i // per_job}", **more)
            for i in range(0, len(pages), per_job)]


def prepare(folder, logs, pages, **podgpu):
    write_files(folder, configuration(RULES, endpoint=logs.url,
                                      podgpu={"spool": {"directory": str(folder / "spool")}, **podgpu}), jobs_of(pages))


def started(folder, **more):
    """The agent, its log begun anew."""
    (folder / f"{Agent.NAME}.log").unlink(missing_ok=True)
    return agent_at(folder, **more)


class Delivered:
    """What the service has taken, by page: seqs {seq: (times, timestamp)}, deltas {timestamp: value}."""

    def __init__(self, logs):
        with logs.lock:
            batches = list(logs.batches)
        self.seqs = collections.defaultdict(collections.Counter)
        self.at = collections.defaultdict(dict)
        self.deltas = collections.defaultdict(dict)
        self.times = collections.Counter()  # of every event
        self.batches = collections.Counter()  # (stream, text): times
        for _, stream, events in batches:
            self.batches[stream, json.dumps(events)] += 1
            for stamp, message in events:
                self.times[message] += 1
                event = json.loads(message)
                assert event["_aws"]["Timestamp"] == stamp
                if "seq" in event:
                    self.seqs[event["page"]][event["seq"]] += 1
                    self.at[event["page"]][event["seq"]] = stamp
                if "done" in event:
                    self.deltas[event["page"]][stamp] = event["done"]

    @property
    def again(self):
        return sum(self.times.values()) - len(self.times)

    def repeats(self):
        """How often a batch came again, by stream."""
        repeats = collections.Counter()
        for (stream, _), times in self.batches.items():
            repeats[stream] += times - 1
        return repeats


def check_life(found, page, first, last, failures=0, tail=None):
    """Scrapes first..last of one process are there but the last tail and those that failed; the counter's deltas add up
    to the scrapes between them."""
    there = sorted(s for s in found.seqs[page.name] if first <= s <= last)
    if tail is not None:
        assert there and there[-1] >= last - tail, (page.name, first, last, there)
    if not there:
        return
    holes = set(range(first, there[-1] + 1)) - set(there)
    assert len(holes) <= failures, (page.name, sorted(holes), first, last)
    stamps = {found.at[page.name][s]: s for s in there}
    deltas = {t: v for t, v in found.deltas[page.name].items() if min(stamps) <= t <= max(stamps)}
    assert set(deltas) <= set(stamps)
    # The first scrape's counter has none before it to be compared with.
    assert len(deltas) >= len(there) - 1 - failures
    if deltas:
        assert sum(deltas.values()) == stamps[max(deltas)] - there[0]


def failures_of(page):
    return int(page.value("podgpu_agent_scrape_failures_total"))


def lost_of(page):
    return {labels["reason"]: int(v) for labels, v in page.samples("podgpu_agent_lost_events_total") if v != "0"}


def check_accounts(page):
    value = page.value
    assert value("podgpu_agent_events_total") + value("podgpu_agent_recovered_events_total") == \
        value("podgpu_agent_delivered_events_total") + sum(lost_of(page).values()) + \
        value("podgpu_agent_waiting_events")


def caught_up(page):
    """Nothing waits that an earlier process left."""
    oldest = page.samples("podgpu_agent_spool_oldest_timestamp_seconds")
    return page.value("podgpu_agent_delivered_events_total") > 0 and \
        (not oldest or float(oldest[0][1]) >= page.value("podgpu_agent_start_time_seconds"))


# --- Kills ---

def spooled_events(folder):
    """Messages of the records that wait in a spool (src/agent/spool_record.h)."""
    found = set()
    for path in sorted(folder.glob("*.spool")):
        data, at = path.read_bytes(), 0
        while at + 88 <= len(data) and data[at:at + 4] == b"PGSR":
            done = data[at + 8:at + 16] != bytes(8)
            length, count = struct.unpack_from("<II", data, at + 24)
            names = sum(struct.unpack_from("<HH", data, at + 56))
            end, place = at + 88 + length, at + 88 + names
            if end > len(data):
                break  # cut off by the kill
            for _ in range(count):
                size, = struct.unpack_from("<I", data, place + 12)
                if not done:
                    found.add(data[place + 16:place + 16 + size].decode())
                place += 16 + size
            assert place == end
            at = end
    return found


def test_kills_cost_nothing_that_was_spooled_and_are_told(tmp_path, pages):
    targets, kills = pages(8), 8 if SLOW == 1 else 3
    chance = random.Random(4711)
    lives, spooled = [], set()
    with FakeLogs(region=REGION) as logs:
        prepare(tmp_path, logs, targets)
        for life in range(kills):
            before = [t.count for t in targets]
            if chance.random() < 0.5:
                logs.fail("PutLogEvents", "ServiceUnavailableException", status=503, times=chance.randrange(1, 8))
            with started(tmp_path, ends=-signal.SIGKILL) as agent:
                goal = chance.randrange(40, 160)
                page = agent.page_when(lambda p: p.value("podgpu_agent_emf_events_total") >= goal, 60, "events")
                assert page.value("podgpu_agent_previous_end_unclean") == (life > 0)
                assert lost_of(page) == {}
                check_accounts(page)
                time.sleep(chance.random() * 0.5)
                page = agent.page()
                agent.process.kill()
                agent.process.wait()
                assert agent.log.count("did not end in order") == (life > 0)
            # A scrape that was under way is counted by its page, and in no event.
            lives.append((before, [t.count for t in targets], failures_of(page)))
            spooled |= spooled_events(tmp_path / "spool")
        with logs.lock:
            logs.faults.clear()
        before = [t.count for t in targets]
        with started(tmp_path) as agent:
            page = agent.page_when(lambda p: caught_up(p) and p.value("podgpu_agent_emf_events_total") > 40, 60)
            assert page.value("podgpu_agent_previous_end_unclean") == 1
            check_accounts(page)
        found = Delivered(logs)
        assert spooled_events(tmp_path / "spool") == set()
    assert not (tmp_path / "spool" / "unclean").exists()
    assert [m for m in spooled if m not in found.times] == []
    for begun, ended, failures in lives:
        for i, target in enumerate(targets):
            check_life(found, target, begun[i] + 1, ended[i], failures)
    for i, target in enumerate(targets):
        check_life(found, target, before[i] + 1, target.count, failures_of(page), tail=1)
    # Whole batches, one of each stream for each kill.
    assert all(times <= kills for times in found.repeats().values()), found.repeats()
    assert found.again == sum((times - 1) * len(json.loads(text)) for (_, text), times in found.batches.items())


# --- Disks ---

def with_disk(folder, size=None, flags=0):
    """What the agent does before it runs: a small disk of its own in the place of the spool."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir(exist_ok=True)

    def enter():
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or \
                libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", flags, f"size={size}".encode() if size else None):
            raise OSError(ctypes.get_errno(), "mount namespace")
    return enter


@with_mounts
def test_a_full_disk_is_told_and_costs_nothing(tmp_path, pages):
    targets = pages(6, pad=1500)
    with FakeLogs(region=REGION) as logs:
        logs.fail("", "ServiceUnavailableException", status=503, times=1_000_000)
        prepare(tmp_path, logs, targets)
        with started(tmp_path, preexec_fn=with_disk(tmp_path / "spool", "256k")) as agent:
            page = agent.page_when(lambda p: p.value("podgpu_agent_spool_in_memory") == 1 and
                                   p.value("podgpu_agent_spool_bytes") > 400_000, 60, "the disk is full")
            check_accounts(page)
            assert page.value("podgpu_agent_delivered_events_total") == 0
            with logs.lock:
                logs.faults.clear()
            agent.page_when(lambda p: p.value("podgpu_agent_spool_in_memory") == 0 and
                            p.value("podgpu_agent_spool_bytes") < 200_000, 90, "the disk has room again")
            page = agent.page()
            check_accounts(page)
            assert lost_of(page) == {}
            log = agent.log
        found = Delivered(logs)
    assert log.count("spool cannot be written") == 1 and "No space left" in log and log.count("spool can be written") == 1
    for target in targets:
        check_life(found, target, 1, target.count, failures_of(page), tail=1)
    assert found.again == 0


@with_mounts
def test_a_spool_that_cannot_be_written_is_told_and_costs_nothing(tmp_path, pages):
    targets = pages(4)
    with FakeLogs(region=REGION) as logs:
        prepare(tmp_path, logs, targets)
        with started(tmp_path, preexec_fn=with_disk(tmp_path / "spool", flags=MS_RDONLY)) as agent:
            page = agent.page_when(lambda p: p.value("podgpu_agent_delivered_events_total") > 20, 60)
            assert page.value("podgpu_agent_spool_in_memory") == 1
            assert "no spool on disk" in agent.log and "Read-only" in agent.log
            check_accounts(page)
        found = Delivered(logs)
    for target in targets:
        check_life(found, target, 1, target.count, failures_of(page), tail=1)
    assert found.again == 0


# --- CloudWatch ---

def test_a_mad_service_gets_everything_and_what_came_twice_is_counted(tmp_path, pages):
    """Throttling, 5xx, resets before and after the request was taken, slow answers, a clock half an hour off, and keys that
    expire and are renewed in the shared file."""
    targets = pages(8)
    keys = tmp_path / "credentials"
    keys.write_text(f"[default]\naws_access_key_id = {KEYS[0]}\naws_secret_access_key = {KEYS[1]}\n")
    chance, calm = random.Random(99), threading.Event()
    met = collections.Counter()

    def answer(handler, request):
        with logs.lock:
            logs.inject("", answer)  # for the next one
            dice = 1 if calm.is_set() else chance.random()
        if dice < 0.08:
            met["throttled"] += 1
            handler.answer(*error_answer(Refused("ThrottlingException", "Rate exceeded")))
        elif dice < 0.2:
            met["5xx"] += 1
            handler.answer(*error_answer(Refused("ServiceUnavailableException", status=chance.choice([500, 502, 503]))))
        elif dice < 0.35:
            logs.serve(request)
            met["taken and reset"] += request.operation == "PutLogEvents" and not request.error
            handler.reset()
        elif dice < 0.45:
            met["reset"] += 1
            handler.reset()
        else:
            if dice < 0.55:
                met["slow"] += 1
                logs.stopping.wait(0.5)
            handler.answer(*logs.serve(request))
    with FakeLogs(region=REGION, clock_offset_s=1800) as logs:
        logs.inject("", answer)
        prepare(tmp_path, logs, targets)
        env = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": str(keys)}
        with started(tmp_path, env=env) as agent:
            wait_until(lambda: len(met) == 5 and min(met.values()) > 2, 90, "all faults")
            with logs.lock:
                logs.keys["AKIDSECOND"] = ("another/secret", None)
                logs.expired.add(KEYS[0])
            wait_until(lambda: "no good credentials" in agent.log, 60, "the keys are refused")
            keys.write_text("[default]\naws_access_key_id = AKIDSECOND\naws_secret_access_key = another/secret\n")
            wait_until(lambda: "credentials are good again" in agent.log, 90, "the new keys are found")
            calm.set()
            delivered = agent.page().value("podgpu_agent_delivered_events_total")
            page = agent.page_when(lambda p: p.value("podgpu_agent_spool_batches") <= len(targets) and
                                   p.value("podgpu_agent_delivered_events_total") > delivered, 120, "it has caught up")
            check_accounts(page)
            assert lost_of(page) == {}
            assert 1700 < page.value("podgpu_agent_clock_offset_seconds") < 1900
        found = Delivered(logs)
    for target in targets:
        check_life(found, target, 1, target.count, failures_of(page), tail=1)
    assert 0 < found.again <= page.value("podgpu_agent_duplicate_events_total"), met


# --- The end ---

def test_an_end_in_the_middle_of_it_all_is_in_time_and_the_next_start_delivers_the_rest(tmp_path, pages):
    targets = pages(6)
    with FakeLogs(region=REGION) as logs:
        prepare(tmp_path, logs, targets)
        with started(tmp_path) as agent:
            agent.page_when(lambda p: p.value("podgpu_agent_delivered_events_total") > 10, 60)
            chance = random.Random(3)
            for _ in range(200):
                kind = chance.choice(["hang", "fail", "throttle", "reset"])
                if kind == "hang":
                    logs.hang("PutLogEvents")
                elif kind == "reset":
                    logs.reset("PutLogEvents", stores=False)
                elif kind == "fail":
                    logs.fail("PutLogEvents", "InternalFailure", status=500)
                else:
                    logs.fail("PutLogEvents", "ThrottlingException", "Rate exceeded")
            page = agent.page_when(lambda p: p.value("podgpu_agent_spool_batches") >= 6, 60, "batches wait")
            failures = failures_of(page)
            _, seconds = agent.stop(seconds=20)
            # Ten seconds for the network, and what this machine takes to write and to end.
            assert seconds < 10 + 4 * SLOW, agent.log
        ends = [t.count for t in targets]
        waiting = spooled_events(tmp_path / "spool")
        assert waiting and not (tmp_path / "spool" / "unclean").exists()
        assert "in memory alone are lost" not in agent.log
        with logs.lock:
            logs.faults.clear()
        with started(tmp_path) as agent:
            page = agent.page_when(lambda p: p.value("podgpu_agent_recovered_events_total") >= len(waiting) and
                                   caught_up(p), 60, "all is delivered")
            assert page.value("podgpu_agent_recovered_events_total") == len(waiting)
            assert page.value("podgpu_agent_previous_end_unclean") == 0
            assert lost_of(page) == {}
        found = Delivered(logs)
    assert [m for m in waiting if m not in found.times] == []
    for end, target in zip(ends, targets):
        check_life(found, target, 1, end, failures + 1, tail=1)


# --- Hangups ---

def test_hangups_and_new_configurations_in_a_storm_neither_stop_nor_repeat_anything(tmp_path, pages):
    """A service that takes half a second for each answer, hangups and rewritten files ten times a second, and pages that
    come and go."""
    targets, ended = pages(6), threading.Event()
    chance = random.Random(5)

    def slowly(handler, request):
        logs.inject("PutLogEvents", slowly)
        logs.stopping.wait(0.5)
        handler.answer(*logs.serve(request))
    with FakeLogs(region=REGION) as logs:
        logs.inject("PutLogEvents", slowly)
        prepare(tmp_path, logs, targets)
        podgpu = {"spool": {"directory": str(tmp_path / "spool")}}
        with started(tmp_path) as agent:
            agent.page_when(lambda p: p.value("podgpu_agent_scrapes_total") >= 6, 60)

            def storm():
                other = declaration(["^(seq|done)$"], [["job"], ["page"]])
                for i in range(100_000):
                    if i % 3 == 0:
                        config = configuration(other if i % 2 else RULES, endpoint=logs.url, podgpu=podgpu)
                        write_files(tmp_path, config, jobs_of(targets, more=f"    labels: {{site: s{i % 2}}}\n"))
                    agent.process.send_signal(signal.SIGHUP)
                    if i % 7 == 0:
                        chance.choice(targets).status = chance.choice([200, 500])
                    if ended.wait(0.1 * SLOW):
                        return
            thread = threading.Thread(target=storm)
            thread.start()
            try:
                before = agent.page()
                wanted = 60 if SLOW == 1 else 20
                page = agent.page_when(
                    lambda p: p.value("podgpu_agent_config_reloads_total") >= wanted and
                    p.value("podgpu_agent_delivered_events_total") >
                    before.value("podgpu_agent_delivered_events_total") + 100, 60, "events are delivered in the storm")
                assert page.value("podgpu_agent_scrapes_total") > before.value("podgpu_agent_scrapes_total")
            finally:
                ended.set()
                thread.join()
            for target in targets:
                target.status = 200
            seen = [len(Delivered(logs).seqs[t.name]) for t in targets]
            wait_until(lambda: all(len(Delivered(logs).seqs[t.name]) > n + 2 for t, n in zip(targets, seen)), 60,
                       "every page is delivered after the storm")
            page = agent.page()
            check_accounts(page)
            assert lost_of(page) == {}
        found = Delivered(logs)
    assert found.again == 0 and page.value("podgpu_agent_duplicate_events_total") == 0
    for target in targets:
        there = found.seqs[target.name]
        # A scrape under way when its target was replaced is counted by its page, and in no event.
        missing = set(range(1, target.count + 1)) - set(there)
        assert len(missing) <= page.value("podgpu_agent_config_reloads_total"), (target.name, missing)
        assert sum(found.deltas[target.name].values()) <= target.count


# --- Hours ---

FAKETIME = pathlib.Path(f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1")
SPEED = 120  # so many seconds in one


class FastLogs(FakeLogs):
    """A service in whose world time goes faster; tells when each batch arrived."""

    def __init__(self, **more):
        self.began, self.arrivals = time.time(), []
        super().__init__(**more)

    def now(self):
        return self.began + (time.time() - self.began) * SPEED

    def put(self, request):
        answer = super().put(request)
        self.arrivals.append((self.now(), request.body["logStreamName"],
                              [e["timestamp"] for e in request.body["logEvents"]]))
        return answer


@pytest.mark.skipif(SLOW > 1, reason="the scaled clock is for the plain build")
@pytest.mark.skipif(not FAKETIME.exists(), reason="needs the package faketime")
def test_an_hour_without_cloudwatch_costs_nothing_and_live_events_go_first_afterwards(tmp_path, pages):
    targets = pages(6)
    with FastLogs(region=REGION) as logs:
        config = configuration(RULES, endpoint=logs.url, podgpu={"spool": {"directory": str(tmp_path / "spool")}})
        config["logs"]["force_flush_interval"] = 60
        write_files(tmp_path, config, jobs_of(targets, interval="60s"))
        env = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"+0 x{SPEED}"}
        with started(tmp_path, env=env, ends=None) as agent:
            agent.page_when(lambda p: p.value("podgpu_agent_delivered_events_total") >= 20, 60)
            logs.fail("", "ServiceUnavailableException", status=503, times=1_000_000)
            begun = logs.now()
            time.sleep(3600 / SPEED)
            page = agent.page_when(lambda p: p.value("podgpu_agent_spool_batches") >= 3 * 30, 60, "half an hour waits")
            check_accounts(page)
            assert page.value("podgpu_agent_spool_in_memory") == 0
            assert page.value("podgpu_agent_spool_oldest_timestamp_seconds") < begun + 600
            # Each stream asks once a minute at last.
            asked = len(logs.requests)
            assert asked < 3 * (3600 / 30 + 30)
            counts, ended = [t.count for t in targets], logs.now()

            def slowly(handler, request):
                logs.inject("", slowly)
                logs.stopping.wait(0.05)  # six seconds: the hour takes a few minutes
                handler.answer(*logs.serve(request))
            with logs.lock:
                logs.faults.clear()
                logs.inject("", slowly)
            page = agent.page_when(lambda p: p.value("podgpu_agent_spool_batches") <= 6 and
                                   p.value("podgpu_agent_spool_oldest_timestamp_seconds") > ended, 60, "it has caught up")
            check_accounts(page)
            assert lost_of(page) == {}
            again = page.value("podgpu_agent_duplicate_events_total")
        found, arrivals = Delivered(logs), logs.arrivals
    for i, target in enumerate(targets):
        check_life(found, target, 1, counts[i], failures_of(page), tail=0)
    assert found.again <= again
    for stream in ("job0", "job1", "job2"):
        after = list(dict.fromkeys(stamps[0] for at, name, stamps in arrivals if name == stream and at > ended))
        # The newest that waited may count as live, too.
        old = [stamp for stamp in after if stamp <= (ended - 180) * 1000]
        live = [stamp for stamp in after if stamp > ended * 1000]
        # Live ones are not kept behind the hour; both go oldest first, as far as a scrape that takes its time allows.
        assert len(old) >= 30 and after.index(live[0]) < after.index(old[-1]), after
        assert all(a < b + 60_000 for stamps in (old, live) for a, b in zip(stamps, stamps[1:]))


# --- Nodes ---

NODES = ("n1", "n2", "n3")
KUBERNETES = """- job_name: gpu-pod-metrics
  scrape_interval: 1s
  scrape_timeout: 1s
  honor_labels: true
  kubernetes_sd_configs:
  - {role: pod, api_server: "%s"}
  relabel_configs:
  - {source_labels: [__meta_kubernetes_pod_label_app], regex: nvidia-dcgm-exporter, action: keep}
  - {source_labels: [__meta_kubernetes_pod_node_name], target_label: NodeName}
"""


def test_an_agent_on_each_node_scrapes_its_own_exporter_and_together_they_tell_everything_once(tmp_path):
    rules = declaration(["^DCGM_FI_DEV_(GPU_UTIL|GPU_TEMP|TOTAL_ENERGY_CONSUMPTION)$"],
                        [["ClusterName", "NodeName", "gpu"]], label="NodeName")
    api = ApiServer()
    with contextlib.ExitStack() as stack:
        stack.callback(api.stop)
        logs = stack.enter_context(FakeLogs(region=REGION))
        exporters = {}
        for node in NODES:
            _, exporters[node] = stack.enter_context(exporter_on("post", env={"NODE_NAME": node}))
            api.put(exporter_pod(f"exporter-{node}", "gpu", node, "127.0.0.1", exporters[node].port))
            (tmp_path / node).mkdir()
            write_files(tmp_path / node, configuration(rules, endpoint=logs.url, podgpu={
                "scope": "node", "spool": {"directory": str(tmp_path / node / "spool")}}), [KUBERNETES % api.url])
        addresses = {f"127.0.0.1:{exporter.port}": node for node, exporter in exporters.items()}

        def begin(node):
            return started(tmp_path / node, env={"NODE_NAME": node})
        made = collections.Counter()

        agents = {node: stack.enter_context(begin(node)) for node in NODES}
        for node, agent in agents.items():
            agent.page_when(lambda p: p.value("podgpu_agent_delivered_events_total") >= 4, 60)
            assert [(t["labels"]["NodeName"], t["health"]) for t in agent.targets()] == [(node, "up")]
        # Watches break and start from a version that is gone; a node's agent is replaced; events go on.
        api.compact()
        api.drop()
        agents["n2"].stop(seconds=20)
        agents["n2"] = stack.enter_context(begin("n2"))
        for agent in agents.values():
            before = agent.page().value("podgpu_agent_delivered_events_total")
            agent.page_when(lambda p: p.value("podgpu_agent_delivered_events_total") >= before + 6, 60)
            page = agent.page()
            assert page.value("podgpu_agent_targets", state="up") == 1
            check_accounts(page)
            assert lost_of(page) == {} and page.value("podgpu_agent_duplicate_events_total") == 0
        for node, agent in agents.items():
            page = agent.page()
            made[node] = page.value("podgpu_agent_scrapes_total") - page.value("podgpu_agent_scrape_failures_total")
            agent.stop(seconds=20)
        events = [json.loads(m) for m in logs.messages(GROUP, "gpu-pod-metrics")]
    gauges = collections.Counter()
    seen = collections.Counter()
    for event in events:
        node = event["NodeName"]
        assert addresses[event["instance"]] == node == event["hostname"]
        gauges[node] += "DCGM_FI_DEV_GPU_TEMP" in event
        for name in event:
            if name.startswith("DCGM_FI_DEV_"):
                seen[name, event["instance"], event["gpu"], event["_aws"]["Timestamp"]] += 1
    assert set(gauges) == set(NODES)
    assert max(seen.values()) == 1
    assert all(gauges[node] >= made[node] for node in NODES), (gauges, made)

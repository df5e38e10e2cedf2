"""The kubelet client against a real gRPC server and against peers that break the protocol, and the poller's rules over
time. The program under test is the exporter's own poller in a small driver (tests/tools/pod_resources_probe.c)."""
import errno
import os
import shutil
import socket
import threading
import time

import grpc
import pytest
from hyperframe import frame as h2frame

from harness import SLOW
from kubelet_peers import (ALLOCATABLE, PROBE, V1, V1ALPHA1, GrpcKubelet, Probe, RawKubelet, allocatable_answer, answer,
                           big_answer, claim_answer, gpu_row, socket_folder)

pytestmark = pytest.mark.faults

A = "GPU-b8ea3855-276c-c9cb-b366-c6fa655957c5"
B = "GPU-11111111-2222-3333-4444-555555555555"
ONE = answer(gpu_row("one", A))


@pytest.fixture
def path():
    with socket_folder() as folder:
        yield folder / "kubelet.sock"


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- A real server ---

def test_an_answer_of_a_real_server_becomes_rows(path):
    data = answer(gpu_row("trainer", A), gpu_row("trainer", B), gpu_row("trainer", "0000:1b:00.0", resource="x/nic"),
                  gpu_row("web", "MIG-x::3", container="side", namespace="prod"), plain_pods=250, numa_nodes=(0, 1))
    with GrpcKubelet(path, lambda *_: data) as kubelet, Probe(path) as probe:
        assert probe.rows() == [gpu_row("trainer", A), gpu_row("trainer", B),
                                gpu_row("trainer", "0000:1b:00.0", resource="x/nic"),
                                gpu_row("web", "MIG-x::3", container="side", namespace="prod")]
        assert probe.of("list")[0][2] == (4, 252, 0)
        poll = probe.poll(3)
        assert (poll.result, poll.status, poll.failures, poll.seen, poll.text) == (0, 0, 0, 1, "")
        assert len(probe.of("list")) == 1
        assert kubelet.calls[0][1] == V1
        assert kubelet.metadata["user-agent"].startswith("podgpu/")


def test_only_wanted_resources_are_kept(path):
    data = answer(gpu_row("a", A), gpu_row("a", "nic0", resource="x/nic"))
    with GrpcKubelet(path, lambda *_: data), Probe(path, resource="nvidia.com/") as probe:
        assert probe.rows() == [gpu_row("a", A)]


def test_an_empty_answer_is_an_empty_list(path):
    with GrpcKubelet(path, lambda *_: b""), Probe(path) as probe:
        assert probe.rows() == []
        assert probe.of("list")[0][2] == (0, 0, 0)


@pytest.mark.parametrize("megabytes", [5, 16])
def test_a_big_answer_costs_little_memory(path, megabytes):
    """It is decoded as it arrives: a 5 MB answer costs less than 3 MiB."""
    answers = [ONE]
    with GrpcKubelet(path, lambda *_: answers[0]), Probe(path, resource="nvidia.com/") as probe:
        assert probe.rows() == [gpu_row("one", A)]
        before = probe.peak_kib()
        answers[0] = big_answer(megabytes)
        assert len(answers[0]) >= megabytes * 1000 * 1000
        assert probe.rows(1, 30) == []
        assert probe.of("list")[1][2] == (0, 8, 0)
        assert all(p.result == 0 for p in probe.polls)
        if SLOW == 1:
            most_kib = {5: 3 * 1024, 16: 9 * 1024}[megabytes]
            assert probe.peak_kib() - before < most_kib


def test_a_node_full_of_units_is_listed_up_to_the_cap(path):
    with GrpcKubelet(path, lambda *_: big_answer(5)), Probe(path) as probe:
        probe.rows(0, 30)
        rows, pods, skipped = probe.of("list")[0][2]
        assert (rows, pods, skipped) == (65536, 8, 8 * 8928 - 65536)


def test_a_call_has_a_deadline_and_the_server_hears_of_it(path):
    cancelled = threading.Event()

    def slow(_, context):
        context.add_callback(cancelled.set)
        cancelled.wait(20)
        return ONE

    with GrpcKubelet(path, slow), Probe(path, deadline=300) as probe:
        poll = probe.poll()
        # The server is told the deadline and may be the first to say that it has passed.
        assert (poll.result, poll.status) in ((-errno.ETIMEDOUT, 0), (-errno.EREMOTEIO, 4))
        assert 290_000 <= poll.us < 2_000_000 * SLOW
        assert cancelled.wait(10)


@pytest.mark.parametrize("code, number", [(grpc.StatusCode.UNKNOWN, 2), (grpc.StatusCode.INTERNAL, 13),
                                          (grpc.StatusCode.UNAVAILABLE, 14)])
def test_an_error_of_the_server_is_told_in_its_words(path, code, number):
    def refuse(_, context):
        context.abort(code, "100% n\u00f6t ready\nyet")

    with GrpcKubelet(path, refuse), Probe(path) as probe:
        poll = probe.poll()
        assert (poll.result, poll.status) == (-errno.EREMOTEIO, number)
        assert poll.text == "100% n\u00f6t ready yet"
        assert not probe.of("list")


def test_many_polls_leave_nothing_open(path):
    with GrpcKubelet(path, lambda *_: ONE), Probe(path, interval=1) as probe:
        probe.poll(5)
        before = probe.open_files()
        probe.poll(200, 30)
        assert probe.open_files() <= before + 1


# --- The wire ---

def test_the_request_has_all_headers_and_wide_windows(path):
    def script(stream):
        stream.begin()
        stream.reply(ONE)
        stream.wait_for_end()

    with RawKubelet(path, script) as peer, Probe(path, deadline=4000) as probe:
        assert probe.rows() == [gpu_row("one", A)]
        stream = peer.streams[0]
        headers = stream.request_headers
        assert headers[:7] == [(":method", "POST"), (":scheme", "http"), (":path", V1), (":authority", "localhost"),
                               ("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "4000m")]
        assert stream.request_body == b"\0\0\0\0\0"
        settings = stream.settings
        assert settings[h2frame.SettingsFrame.ENABLE_PUSH] == 0
        assert settings[h2frame.SettingsFrame.INITIAL_WINDOW_SIZE] >= 64 << 20
        updates = [f for f in stream.frames if isinstance(f, h2frame.WindowUpdateFrame) and f.stream_id == 0]
        assert updates[0].window_increment >= (64 << 20) - 65535


def one_byte_at_a_time(stream):
    stream.begin()
    for frame in (stream.head(), *stream.data(stream.message(ONE)), stream.trailers()):
        for byte in frame.serialize():
            stream.socket.sendall(bytes([byte]))
    stream.wait_for_end()


def one_byte_per_frame(stream):
    stream.begin()
    stream.send(stream.head(), *stream.data(stream.message(ONE), size=1), *stream.data(b""), stream.trailers())
    stream.wait_for_end()


def padded(stream):
    stream.begin()
    frames = [stream.head(), *stream.data(stream.message(ONE), size=7), stream.trailers()]
    for i, frame in enumerate(frames):
        frame.flags.add("PADDED")
        frame.pad_length = i * 37 % 256
    stream.send(*frames)
    stream.wait_for_end()


def prioritised(stream):
    stream.begin()
    head = stream.head(depends_on=0, stream_weight=200)
    head.flags.add("PRIORITY")
    stream.send(head, h2frame.PriorityFrame(1, depends_on=0, stream_weight=5),
                *stream.data(stream.message(ONE)), stream.trailers())
    stream.wait_for_end()


def split_in_continuations(frame, pieces):
    block = frame.data
    step = max(1, len(block) // pieces)
    parts = [block[i:i + step] for i in range(0, len(block), step)]
    frame.data = parts[0]
    frame.flags.discard("END_HEADERS")
    rest = [h2frame.ContinuationFrame(1, data=part) for part in parts[1:]]
    rest[-1].flags.add("END_HEADERS")
    return [frame, *rest]


def continued(stream):
    stream.begin()
    stream.send(*split_in_continuations(stream.head(), 4), *stream.data(stream.message(ONE)),
                *split_in_continuations(stream.trailers("0", "x" * 500), 6))
    stream.wait_for_end()


def informational_first(stream):
    stream.begin()
    stream.send(stream.headers((":status", "103"), ("link", "x")), stream.head(), *stream.data(stream.message(ONE)),
                stream.trailers())
    stream.wait_for_end()


def odd_frames_between(stream):
    stream.begin({h2frame.SettingsFrame.MAX_FRAME_SIZE: 16384, h2frame.SettingsFrame.INITIAL_WINDOW_SIZE: 70000})
    unknown = b"\x00\x00\x04\xfa\x00\x00\x00\x00\x00junk"
    for frame in (stream.head(), *stream.data(stream.message(ONE), size=5), stream.trailers()):
        stream.socket.sendall(unknown)
        stream.send(h2frame.SettingsFrame(0), h2frame.WindowUpdateFrame(0, window_increment=1),
                    h2frame.WindowUpdateFrame(1, window_increment=1), frame)
    stream.wait_for_end()


def unknown_headers(stream):
    stream.begin()
    stream.send(stream.headers((":status", "200"), ("content-type", "application/grpc+proto"), ("server", "x"),
                               ("x-long", "y" * 3000)),
                *stream.data(stream.message(ONE)),
                stream.headers(("x-a", "b"), ("grpc-status", "0"), ("grpc-status-details-bin", "AAAA"), end=True))
    stream.wait_for_end()


def reset_after_trailers(stream):
    stream.begin()
    stream.send(stream.head(), *stream.data(stream.message(ONE)), stream.trailers(),
                h2frame.RstStreamFrame(1, error_code=0))


def goaway_around_the_answer(stream):
    stream.begin()
    stream.send(h2frame.GoAwayFrame(0, last_stream_id=2 ** 31 - 1), stream.head(),
                h2frame.GoAwayFrame(0, last_stream_id=1), *stream.data(stream.message(ONE)), stream.trailers(),
                h2frame.GoAwayFrame(0, last_stream_id=1))


def answer_and_close(stream):
    stream.begin()
    stream.reply(ONE)


@pytest.mark.parametrize("script", [
    one_byte_at_a_time, one_byte_per_frame, padded, prioritised, continued, informational_first, odd_frames_between,
    unknown_headers, reset_after_trailers, goaway_around_the_answer, answer_and_close])
def test_an_unusual_but_legal_answer_is_understood(path, script):
    with RawKubelet(path, script), Probe(path) as probe:
        assert probe.rows() == [gpu_row("one", A)]
        assert probe.poll(1).failures == 0


def test_a_flood_of_pings_is_answered_and_does_no_harm(path):
    count = 20000

    def script(stream):
        stream.begin()
        reader = threading.Thread(target=stream.wait_for_end)
        reader.start()
        pings = b"".join(h2frame.PingFrame(0, i.to_bytes(8, "big")).serialize() for i in range(count))
        stream.socket.sendall(pings)
        stream.reply(ONE)
        reader.join()

    with RawKubelet(path, script) as peer, Probe(path, interval=5000) as probe:
        assert probe.rows(0, 20) == [gpu_row("one", A)]
    pongs = [f for f in peer.streams[0].frames if isinstance(f, h2frame.PingFrame)]
    # What came in one read with the end of the answer needs none any more: at most 16 KiB of 17 bytes each.
    assert count - 964 <= len(pongs) <= count and all("ACK" in f.flags for f in pongs)


def test_a_peer_that_pings_and_reads_nothing_holds_up_itself(path):
    def script(stream):
        stream.begin()
        ping = h2frame.PingFrame(0, b"pingpong").serialize() * 1000
        while True:
            stream.socket.sendall(ping)

    with RawKubelet(path, script), Probe(path, interval=5000, deadline=1000) as probe:
        poll = probe.poll(0, 20)
        assert poll.result == -errno.ETIMEDOUT
        if SLOW == 1:
            assert probe.peak_kib() < 16 * 1024
            assert cpu_seconds(probe.process.pid) < 0.5


def sends(*make):
    """A script that begins well, sends frames made by these functions and keeps the connection open."""
    def script(stream):
        stream.begin()
        for f in make:
            frames = f(stream)
            stream.send(*(frames if isinstance(frames, list) else [frames]))
        stream.wait_for_end()
    return script


def closes_after(*make):
    def script(stream):
        stream.begin()
        for f in make:
            frames = f(stream)
            stream.send(*(frames if isinstance(frames, list) else [frames]))
    return script


def head(s):
    return s.head()


def whole(s):
    return s.data(s.message(ONE))


def http_only(status):
    return lambda s: s.headers((":status", str(status)), ("content-type", "text/html"), end=True)


def closed_mid_frame(stream):
    stream.begin()
    stream.send(stream.head())
    stream.socket.sendall(stream.data(stream.message(ONE))[0].serialize()[:30])


def not_http2(stream):
    stream.receive_exactly(24)
    stream.socket.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    stream.wait_for_end()


def noise(stream):
    stream.socket.sendall(bytes(range(256)) * 64)
    stream.wait_for_end()


def oversized_frame(stream):
    stream.begin()
    stream.send(stream.head(), h2frame.DataFrame(1, b"\0" * 16385))
    stream.wait_for_end()


def endless_headers(stream):
    stream.begin()
    block = stream.encoder.encode([(":status", "200"), ("content-type", "application/grpc")])
    stream.send(h2frame.HeadersFrame(1, data=block))
    for i in range(100):
        part = stream.encoder.encode([(f"x-{i}", "v" * 8000)], huffman=False)
        stream.send(h2frame.ContinuationFrame(1, data=part[:16384]))
    stream.wait_for_end()


def rst(code):
    return lambda s: h2frame.RstStreamFrame(1, error_code=code)


FAULTS = {
    # name: (script, result, grpc status, text)
    "closed at once": (lambda s: None, -errno.ECONNRESET, 0, "closed before"),
    "closed after the request": (closes_after(), -errno.ECONNRESET, 0, "closed before"),
    "closed after the head": (closes_after(head), -errno.ECONNRESET, 0, "closed before"),
    "closed mid-frame": (closed_mid_frame, -errno.ECONNRESET, 0, "closed before"),
    "closed before the trailers": (closes_after(head, whole), -errno.ECONNRESET, 0, "closed before"),
    "trailers only": (sends(lambda s: s.trailers_only("13", "no%20luck")), -errno.EREMOTEIO, 13, "no luck"),
    "trailers only, OK": (sends(lambda s: s.trailers_only("0")), -errno.EPROTO, 0, "without a message"),
    "status after data": (sends(head, whole, lambda s: s.trailers("2", "late")), -errno.EREMOTEIO, 2, "late"),
    "status no number": (sends(lambda s: s.trailers_only("what")), -errno.EREMOTEIO, 2, ""),
    "no grpc-status": (sends(head, lambda s: s.data(s.message(ONE), end=True)), -errno.EPROTO, 0, "without grpc-status"),
    "no message": (sends(head, lambda s: s.trailers()), -errno.EPROTO, 0, "without a message"),
    "message cut": (sends(head, lambda s: s.data(s.message(ONE)[:-1]), lambda s: s.trailers()), -errno.EPROTO, 0,
                    "cut short"),
    "two messages": (sends(head, lambda s: s.data(s.message(ONE) * 2)), -errno.EPROTO, 0, "more than one message"),
    "compressed": (sends(head, lambda s: s.data(s.message(ONE, 1))), -errno.EPROTO, 0, "compressed"),
    "too large": (sends(head, lambda s: s.data(b"\0\x04\0\0\x01")), -errno.EFBIG, 0, "ceiling"),
    "malformed": (sends(head, lambda s: s.data(s.message(b"\x0a\x02\x0a\x05"))), -errno.EBADMSG, 0, "malformed"),
    "cut protobuf": (sends(head, lambda s: s.data(s.message(ONE[:-1])), lambda s: s.trailers()), -errno.EBADMSG, 0,
                     "malformed"),
    "a pod too large": (sends(head, lambda s: s.data(s.message(b"\x0a\x81\x80\x80\x02" + b"\0" * 9))), -errno.EFBIG, 0,
                        "pod of the answer is too large"),
    "HTTP 400": (sends(http_only(400)), -errno.EREMOTEIO, 13, "HTTP status 400"),
    "HTTP 404": (sends(lambda s: s.headers((":status", "404"))), -errno.EREMOTEIO, 12, "HTTP status 404"),
    "HTTP 503": (sends(http_only(503)), -errno.EREMOTEIO, 14, "HTTP status 503"),
    "HTTP 415": (sends(http_only(415)), -errno.EREMOTEIO, 2, "HTTP status 415"),
    "HTML": (sends(http_only(200)), -errno.EPROTO, 0, "content type"),
    "HTML with body": (sends(lambda s: s.headers((":status", "200"), ("content-type", "text/html"))), -errno.EPROTO, 0,
                       "content type"),
    "no :status": (sends(lambda s: s.headers(("content-type", "application/grpc"))), -errno.EPROTO, 0, "HTTP/2"),
    "data before the head": (sends(whole), -errno.EPROTO, 0, ""),
    "RST REFUSED_STREAM": (sends(rst(7)), -errno.EREMOTEIO, 14, "REFUSED_STREAM"),
    "RST CANCEL": (sends(head, rst(8)), -errno.EREMOTEIO, 1, "CANCEL"),
    "RST ENHANCE_YOUR_CALM": (sends(rst(11)), -errno.EREMOTEIO, 8, "ENHANCE_YOUR_CALM"),
    "RST INTERNAL_ERROR": (sends(head, whole, rst(2)), -errno.EREMOTEIO, 13, "INTERNAL_ERROR"),
    "GOAWAY before": (sends(lambda s: h2frame.GoAwayFrame(0, last_stream_id=0, error_code=11)), -errno.EREMOTEIO, 14,
                      "goes away: ENHANCE_YOUR_CALM"),
    "GOAWAY after the head": (sends(head, lambda s: h2frame.GoAwayFrame(0, last_stream_id=0)), -errno.EREMOTEIO, 14,
                              "goes away: NO_ERROR"),
    "GOAWAY and close": (closes_after(lambda s: h2frame.GoAwayFrame(0, last_stream_id=1)), -errno.ECONNRESET, 0,
                         "closed before"),
    "HTTP/1.1": (not_http2, -errno.EPROTO, 0, ""),
    "noise": (noise, -errno.EPROTO, 0, ""),
    "oversized frame": (oversized_frame, -errno.EPROTO, 0, ""),
    "many CONTINUATIONs": (sends(lambda s: split_in_continuations(s.head(), 30)), -errno.EPROTO, 0, ""),
    "endless headers": (endless_headers, -errno.EPROTO, 0, ""),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_answer_is_a_failure_with_a_reason(path, name):
    script, result, status, text = FAULTS[name]
    # HTTP 404 stands for UNIMPLEMENTED, which sends the client to the older API once.
    with RawKubelet(path, script), Probe(path, deadline=20000) as probe:
        poll = probe.poll()
        assert (poll.result, poll.status) == (result, status), poll
        assert text in poll.text
        assert poll.text or status
        assert not probe.of("list")


def test_silence_ends_at_the_deadline_with_a_cancel(path):
    def script(stream):
        stream.begin()
        stream.wait_for_end()

    with RawKubelet(path, script) as peer, Probe(path, deadline=300) as probe:
        poll = probe.poll()
        assert (poll.result, poll.text) == (-errno.ETIMEDOUT, "no answer before the deadline")
        assert 290_000 <= poll.us < 2_000_000 * SLOW
    resets = [f for f in peer.streams[0].frames if isinstance(f, h2frame.RstStreamFrame)]
    assert [f.error_code for f in resets] == [8]


def test_a_peer_that_sends_for_ever_ends_at_the_deadline(path):
    def script(stream):
        stream.begin()
        stream.send(stream.head(), h2frame.DataFrame(1, b"\0\0\xff\xff\xff"))
        while True:
            stream.socket.sendall(h2frame.PingFrame(0, b"pingpong").serialize())
            time.sleep(0.01)

    with RawKubelet(path, script), Probe(path, deadline=300) as probe:
        assert probe.poll().result == -errno.ETIMEDOUT


# --- The socket ---

def test_a_full_backlog_is_waited_for(path):
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as filler:
        listener.bind(str(path))
        listener.listen(0)
        filler.connect(str(path))
        with Probe(path, deadline=300) as probe:
            poll = probe.poll()
            assert (poll.result, poll.text) == (-errno.ETIMEDOUT, "the server accepts no connection")


def test_room_in_the_backlog_is_taken(path):
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as filler:
        listener.bind(str(path))
        listener.listen(0)
        filler.connect(str(path))
        with Probe(path, deadline=20000) as probe:
            time.sleep(0.05)  # most likely the first try has failed by now; either way the call must succeed
            first, _ = listener.accept()
            second, _ = listener.accept()
            with first, second:
                from kubelet_peers import Stream
                stream = Stream(second)
                stream.begin()
                stream.reply(ONE)
                assert probe.rows() == [gpu_row("one", A)]
                assert probe.poll().failures == 0


def test_a_missing_socket_is_looked_for_in_silence(path):
    with Probe(path) as probe:
        assert probe.poll(2).result == -errno.ENOENT
        assert probe.poll(2).seen == 0
        with GrpcKubelet(path, lambda *_: ONE):
            assert probe.rows() == [gpu_row("one", A)]
            assert probe.polls[-1].seen == 1 or probe.poll(len(probe.polls)).seen == 1
        probe.wait(lambda p: "msg=\"kubelet answers\"" in p.log, what="log line")
        assert probe.log.count("kubelet socket is not there") == 1
        assert "WARN" not in probe.log and "ERROR" not in probe.log


def test_nobody_listening_is_explained_once(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Probe(path) as probe:
        assert probe.poll(2).result == -errno.ECONNREFUSED
        assert probe.polls[-1].seen == 1
        probe.wait(lambda p: "mount its directory" in p.log, what="log line")
        assert probe.log.count("mount its directory") == 1


def test_a_path_too_long_is_said_so(path):
    folder = path.parent / ("d" * 100)
    folder.mkdir()
    with GrpcKubelet(path, lambda *_: ONE):
        os.symlink(path, folder / "kubelet.sock")
        with Probe(folder / "kubelet.sock") as probe:
            assert probe.poll().result == -errno.ENAMETOOLONG


@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0 to become another user")
def test_a_refused_permission_is_explained_once_and_not_retried_hotly(path):
    program = path.parent / "probe"
    shutil.copy(PROBE, program)
    path.parent.chmod(0o755)
    with GrpcKubelet(path, lambda *_: ONE):
        path.chmod(0o755)
        with Probe(path, program=program, user=65534, group=65534, interval=10) as probe:
            assert probe.poll().result == -errno.EACCES
            probe.wait(lambda p: "only uid 0 may connect" in p.log, what="hint")
            time.sleep(1)
            assert len(probe.polls) == 1
            probe.wait(lambda p: "kubelet cannot be asked" in p.log, what="log line")
            assert probe.log.count("kubelet cannot be asked") == 1


# --- Rules over time ---

def test_only_another_set_is_a_change(path):
    one, two = gpu_row("one", A), gpu_row("two", B)
    answers = [answer(one, two)]
    with GrpcKubelet(path, lambda *_: answers[0]), Probe(path, interval=20) as probe:
        assert probe.rows() == [one, two]
        answers[0] = answer(two, one, plain_pods=3)  # the kubelet lists in any order
        seen = len(probe.polls)
        probe.poll(seen + 3)
        assert len(probe.of("list")) == 1
        answers[0] = answer(two)
        assert probe.rows(1) == [two]
        answers[0] = answer(gpu_row("a-late", A), two)
        assert probe.rows(2) == [two, gpu_row("a-late", A)]  # in the order in which they were first seen
        answers[0] = b""
        assert probe.rows(3) == []


def test_an_old_kubelet_is_asked_by_the_older_api_until_it_restarts(path):
    with GrpcKubelet(path, lambda *_: ONE, methods=(V1ALPHA1,)) as kubelet, Probe(path, interval=30) as probe:
        assert probe.rows() == [gpu_row("one", A)]
        assert probe.poll(3).failures == 0
        assert [m for _, m in kubelet.calls[:4]] == [V1, V1ALPHA1, V1ALPHA1, V1ALPHA1]
        kubelet.methods = (V1,)
        kubelet.calls.clear()
        kubelet.restart()
        probe.wait(lambda p: any(m == V1 for _, m in kubelet.calls), what="v1 again")
        at = next(i for i, (_, m) in enumerate(kubelet.calls) if m == V1)
        probe.wait(lambda p: len(kubelet.calls) > at + 2)
        assert {m for _, m in kubelet.calls[at:]} - {ALLOCATABLE} == {V1}


def test_a_kubelet_without_either_api_is_a_failure(path):
    with GrpcKubelet(path, lambda *_: ONE, methods=()) as kubelet, Probe(path, interval=30) as probe:
        poll = probe.poll(1)
        assert (poll.result, poll.status, poll.failures) == (-errno.EREMOTEIO, 12, 2)
        assert [m for _, m in kubelet.calls[:3]] == [V1, V1ALPHA1, V1ALPHA1]


def test_a_rate_limit_is_waited_out_twice_and_the_list_is_kept(path):
    limited = threading.Event()

    def serve(_, context):
        if limited.is_set():
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return ONE

    with GrpcKubelet(path, serve) as kubelet, Probe(path, interval=3000) as probe:
        assert probe.rows() == [gpu_row("one", A)]
        limited.set()
        kubelet.calls.clear()
        probe.command("kick")
        poll = probe.poll(3, 15)
        assert (poll.result, poll.status, poll.rate_limited) == (-errno.EREMOTEIO, 8, 3)
        times = [t for t, method in kubelet.calls if method == V1]
        for gap in (times[1] - times[0], times[2] - times[1]):
            assert 0.09 <= gap <= 0.5 + 1.0 * SLOW
        assert len(times) == 3
        limited.clear()
        assert probe.poll(4, 15).result == 0
        lists = [t for t, method in kubelet.calls if method == V1]
        assert lists[3] - times[2] > 2.5  # after two tries it waits for its time
        assert len(probe.of("list")) == 1 and not probe.of("none")
        assert "WARN" not in probe.log


def test_failures_back_off(path):
    def serve(_, context):
        context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")

    with GrpcKubelet(path, serve) as kubelet, Probe(path, interval=10) as probe:
        probe.poll(3)
        times = [t for t, _ in kubelet.calls]
        for i, least in enumerate((0.2, 0.4, 0.8)):
            assert least * 0.95 <= times[i + 1] - times[i] <= least * 1.25 + 0.5 * SLOW
        probe.wait(lambda p: "shutting down" in p.log, what="log line")
        assert probe.log.count("kubelet cannot be asked") == 1


def test_a_list_is_kept_over_failures_until_it_is_too_old(path):
    failing = threading.Event()

    def serve(_, context):
        if failing.is_set():
            context.abort(grpc.StatusCode.INTERNAL, "broken")
        return ONE

    with GrpcKubelet(path, serve), Probe(path, interval=50, max_age=1500) as probe:
        assert probe.rows() == [gpu_row("one", A)]
        failing.set()
        failed = probe.wait(lambda p: next((q for q in p.polls if q.result), None), what="failure")
        assert not probe.of("none")
        begun = time.monotonic()
        probe.wait(lambda p: p.of("none"), what="none")
        assert 1.0 <= time.monotonic() - failed.at <= 3 * SLOW, begun
        probe.wait(lambda p: "too old" in p.log, what="log line")
        assert probe.log.count("too old") == 1
        seen = len(probe.polls)
        probe.poll(seen + 3)
        assert len(probe.of("none")) == 1
        failing.clear()
        assert probe.rows(1) == [gpu_row("one", A)]


def test_after_a_restart_vanished_rows_stay_for_a_grace_period(path):
    rows = [gpu_row("job", A), gpu_row("web", B), gpu_row("old", "GPU-x")]
    answers = [answer(*rows)]
    with GrpcKubelet(path, lambda *_: answers[0]) as kubelet, Probe(path, interval=50, grace=1500) as probe:
        assert probe.rows() == sorted(rows)
        kubelet.stop()
        answers[0] = answer(gpu_row("web", B), gpu_row("new", "GPU-x"))  # job's pod is not known yet; old is replaced
        begun = time.monotonic()
        kubelet.start()
        assert probe.rows(1) == [gpu_row("job", A), gpu_row("web", B), gpu_row("new", "GPU-x")]
        assert probe.rows(2) == [gpu_row("web", B), gpu_row("new", "GPU-x")]
        assert time.monotonic() - begun >= 1.4
        assert probe.polls[-1].shorts >= 2
        probe.wait(lambda p: "kubelet has restarted" in p.log, what="log line")


def test_the_grace_period_lasts_two_good_polls_at_least(path):
    answers = [answer(gpu_row("job", A))]
    with GrpcKubelet(path, lambda *_: answers[0]) as kubelet, Probe(path, interval=400, grace=1) as probe:
        assert probe.rows() == [gpu_row("job", A)]
        answers[0] = b""
        kubelet.restart()
        assert probe.rows(1) == []
        good = [q for q in probe.polls if q.result == 0]
        assert good[-1].shorts == 2 or probe.poll(len(probe.polls)).shorts == 2


def test_without_a_restart_rows_go_at_once(path):
    answers = [answer(gpu_row("job", A))]
    with GrpcKubelet(path, lambda *_: answers[0]), Probe(path) as probe:
        assert probe.rows() == [gpu_row("job", A)]
        answers[0] = b""
        assert probe.rows(1) == []
        assert probe.poll(len(probe.polls)).shorts == 0


def test_devices_of_claims_are_rows_of_their_own(path):
    uid = "6d1f0d2c-4f0e-4d53-9b1c-0a4b7a8a2f01"
    message = claim_answer(("p", "main", "two", ["gpu-0", "gpu-1-mig-1g12gb-19-4"]), ("p", "side", "two", ["gpu-0"]))
    def row(container, device):
        return ("default", "p", container, "", device, "default", "two", uid, "gpu.nvidia.com", "node-1", "")
    with GrpcKubelet(path, lambda *_: message), Probe(path) as probe:
        assert probe.rows() == [row("main", "gpu-0"), row("main", "gpu-1-mig-1g12gb-19-4"), row("side", "gpu-0")]


def test_what_is_offered_outlives_a_restarts_empty_answer_and_no_more(path):
    offers = [("nvidia.com/gpu", f"{A}::0"), ("nvidia.com/gpu", f"{A}::1"), ("example.com/nic", "eth0")]
    told = [allocatable_answer(*offers)]
    def reply(method, _):
        return told[0] if method == ALLOCATABLE else ONE
    with GrpcKubelet(path, reply, methods=(V1, ALLOCATABLE)) as kubelet, \
            Probe(path, grace=1, resource="nvidia.com/") as probe:
        def offered(count):
            return probe.wait(lambda p: p.of("offered")[count - 1:count], what=f"offer {count}")[0][1]
        def restart():
            """Ends when the new kubelet was asked and its answer has had its effect."""
            kubelet.calls.clear()
            kubelet.restart()
            probe.wait(lambda p: ALLOCATABLE in [m for _, m in kubelet.calls], what="the new kubelet is asked")
            probe.poll(len(probe.polls) + 1)
        assert offered(1) == [f"{A}::0", f"{A}::1"]
        told[0] = allocatable_answer(offers[1])  # one is unhealthy: told at once
        restart()
        assert offered(2) == [f"{A}::1"]
        told[0] = allocatable_answer(offers[2])  # the plugin is not there yet
        restart()
        assert len(probe.of("offered")) == 2
        restart()  # and not within the grace period
        assert offered(3) == []


def test_a_kubelet_that_cannot_tell_what_is_offered_is_asked_once(path):
    with GrpcKubelet(path, lambda *_: ONE, methods=(V1,)) as kubelet, Probe(path, interval=30) as probe:
        probe.poll(4)
        assert [m for _, m in kubelet.calls].count(ALLOCATABLE) == 1
        assert not probe.of("offered") and not probe.log.count("allocated")


def test_a_kick_asks_at_once_but_not_twice(path):
    with GrpcKubelet(path, lambda *_: ONE) as kubelet, Probe(path, interval=60000) as probe:
        probe.rows()
        time.sleep(0.25)
        for _ in range(5):
            probe.command("kick")
            time.sleep(0.01)
        probe.poll(1)
        time.sleep(0.1)
        assert [method for _, method in kubelet.calls if method != ALLOCATABLE] == [V1, V1]

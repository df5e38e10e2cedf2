"""Who guesses passwords, and what becomes of the web configuration file while it is written or replaced."""
import base64
import concurrent.futures
import contextlib
import os
import socket
import time

import pytest

from harness import SLOW, wait_until
from test_http_server import Probe, bcrypt, is_closed, login, read_reply  # noqa: F401

pytestmark = pytest.mark.faults


@contextlib.contextmanager
def probe_with(path, text):
    path.write_text(text)
    probe = Probe("--web-config", str(path))
    try:
        yield probe
    finally:
        probe.stop()


def users(cost=4, extra=""):
    return f"http_server_config: {{headers: {{X-Frame-Options: deny}}}}\n{extra}basic_auth_users:\n  alice: {bcrypt('sesame', cost)}\n"


def ask_from(probe, source, user, password, path="/echo", seconds=60, headers=""):
    """(status, seconds) of a request from that address of the loopback network."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", probe.port), seconds * SLOW, source_address=(source, 0)) as s:
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {token}\r\n{headers}\r\n".encode())
        return read_reply(s).code, time.monotonic() - begun


# --- Guessing ---

COST = 11 if SLOW == 1 else 9


def test_a_scraper_gets_in_for_the_first_time_beside_a_flood_from_elsewhere(tmp_path):
    with probe_with(tmp_path / "web.yml", users(COST)) as probe, concurrent.futures.ThreadPoolExecutor(60) as pool:
        flood = [pool.submit(ask_from, probe, f"127.0.0.{2 + i % 3}", "alice", f"wrong {i}") for i in range(60)]
        wait_until(lambda: sum(f.done() for f in flood) > 40, 20, "the queue is full")
        code, seconds = ask_from(probe, "127.0.0.9", "alice", "sesame")
        assert code == 200
        assert seconds < 3 * SLOW
        assert {f.result()[0] for f in flood} == {401, 503}


def test_cached_scrapes_and_compression_do_not_wait_for_two_hundred_guesses(tmp_path):
    with probe_with(tmp_path / "web.yml", users(COST)) as probe, concurrent.futures.ThreadPoolExecutor(200) as pool:
        assert login(probe, "alice", "sesame").code == 200
        flood = [pool.submit(ask_from, probe, f"127.0.0.{2 + i % 8}", "alice", f"wrong {i}") for i in range(200)]
        slowest = 0
        for i in range(20):
            size = 1200000 + i  # each is compressed anew, on the pool
            code, seconds = ask_from(probe, "127.0.0.1", "alice", "sesame", f"/bytes/{size}", headers="Accept-Encoding: gzip\r\n")
            assert code == 200
            slowest = max(slowest, seconds)
        assert not all(f.done() for f in flood), "it went on beside it"
        assert slowest < 1 * SLOW
        codes = [f.result()[0] for f in flood]
        assert codes.count(503) > 100 and set(codes) == {401, 503}


def test_every_name_and_password_is_compared_and_none_is_logged(tmp_path):
    with probe_with(tmp_path / "web.yml", users(4)) as probe:
        for user, password in (("alice" * 100, "x"), ("a:b", "c"), ("", ":"), ("alice\n", "sesame"), ("alice", "sesame\n"),
                               ("al\xffice", "sesame"), ("alice", "s" * 700), ("%61lice", "sesame"), ("ALICE", "sesame")):
            assert ask_from(probe, "127.0.0.1", user, password)[0] == 401
        assert "sesame" not in probe.log() and "alice" not in probe.log()


# --- The file ---

def ask(probe):
    try:
        return probe.get("/echo").code
    except (OSError, AssertionError):
        return None


def open_answers(probe, seconds):
    end = time.monotonic() + seconds
    answers = []
    while time.monotonic() < end:
        answers.append(ask(probe))
        time.sleep(0.02)
    assert len(answers) > 1  # a busy machine asks less often
    return answers.count(200)


def in_force(probe):
    with contextlib.suppress(OSError, AssertionError):
        return login(probe, "alice", "sesame").code == 200


def test_a_file_that_is_written_in_place_never_opens_the_door(tmp_path):
    path, text = tmp_path / "web.yml", users()
    with probe_with(path, text) as probe:
        for cut in (0, text.index("basic"), text.index("  alice")):
            with open(path, "w") as f:
                f.write(text[:cut])
                f.flush()
                assert open_answers(probe, 2.2) == 0, cut
                f.write(text[cut:])
            assert open_answers(probe, 0.2) == 0
        wait_until(lambda: in_force(probe), what="as before")


ODD = {
    "gone": lambda p: None,
    "directory": lambda p: p.mkdir(),
    "fifo": os.mkfifo,
    "endless": lambda p: p.symlink_to("/dev/zero"),
    "null": lambda p: p.symlink_to("/dev/null"),
    "circle": lambda p: p.symlink_to("web.yml"),
    "random": lambda p: p.write_bytes(os.urandom(500)),
    "huge": lambda p: p.write_text("a: b\n" * 300000),
    "empty": lambda p: p.touch(),
    "unreadable": lambda p: p.symlink_to("/proc/self/mem"),
}


def test_what_stands_in_its_place_never_opens_the_door_and_is_told_once(tmp_path):
    with contextlib.ExitStack() as stack:
        probes = {}
        for kind in ODD:
            path = tmp_path / kind / "web.yml"
            path.parent.mkdir()
            probes[kind] = stack.enter_context(probe_with(path, users()))
            path.unlink()
            ODD[kind](path)
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            assert {ask(probe) for probe in probes.values()} == {401}
            time.sleep(0.05)
        for kind, probe in probes.items():
            assert probe.log().count("the old one stays") == 1, (kind, probe.log())
            path = tmp_path / kind / "web.yml"
            if path.is_dir():
                path.rmdir()
            elif os.path.lexists(path):
                path.unlink()
            path.write_text(users().replace("alice", "bob"))  # with the text that alice had
        for kind, probe in probes.items():
            wait_until(lambda: ask_from(probe, "127.0.0.1", "bob", "sesame")[0] == 200, 10, f"the repair of {kind}")


def test_a_file_that_says_so_for_a_while_does_open_the_door(tmp_path):
    path = tmp_path / "web.yml"
    with probe_with(path, users()) as probe:
        path.write_text("# nothing is asked for any more\n")
        begun = time.monotonic()
        wait_until(lambda: ask(probe) == 200, 15, "open")
        assert time.monotonic() - begun > 4
        assert probe.log().count("asks clients for less") == 1

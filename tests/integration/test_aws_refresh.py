"""AWS credentials over time (tests/tools/aws_probe.c): fetched anew before they expire, kept while that fails, gone when
they expired. Their lives are some seconds here; a short life is refreshed at a half to two thirds of it."""
import threading

import pytest

from aws_stubs import form, irsa, key_json, pod_identity, probe, serving, sts_error, sts_xml

pytestmark = pytest.mark.faults


def watch(env, lines, *args):
    """As many changes of what there is; each comes within a minute, whatever the machine does besides."""
    found = probe(env, "credentials", "--watch-ms", 60000, "--lines", lines, *args)[0]
    assert len(found) == lines, found
    return found


def test_keys_are_fetched_anew_before_they_expire(tmp_path):
    count = iter(range(100))
    with serving(lambda asked: (200, sts_xml(f"N{next(count)}", expires_s=6))) as server:
        lines = watch(irsa(tmp_path, server), 3)
        assert [line["access_key"] for line in lines] == ["AKN0", "AKN1", "AKN2"]
        assert len(server.asked) == 3
        assert all(b["at_ms"] - a["at_ms"] >= 2000 for a, b in zip(lines, lines[1:]))  # not all the time


def test_good_keys_stay_while_a_refresh_fails_and_end_when_they_expire(tmp_path):
    step, lock = [0], threading.Lock()

    def answer(asked):
        with lock:
            step[0] += 1
            if step[0] == 1:
                return 200, sts_xml("FIRST", expires_s=5)
            if step[0] < 5:
                return 403, sts_error("AccessDenied", "not now")
            return 200, sts_xml("SECOND", expires_s=3600)
    with serving(answer) as server:
        lines = watch(irsa(tmp_path, server), 3)
        results = [line["result"] for line in lines]
        assert results == ["ok", "failed", "ok"], lines
        assert lines[1]["at_ms"] - lines[0]["at_ms"] >= 3500
        assert "AccessDenied" in lines[1]["error"] and lines[2]["access_key"] == "AKSECOND"


def test_a_token_file_is_read_anew_for_each_request(tmp_path):
    count = iter(range(100))
    with serving(lambda asked: (200, sts_xml(f"N{next(count)}", expires_s=5))) as server:
        env = irsa(tmp_path, server)
        original = server.answer

        def answer(asked):
            (tmp_path / "token").write_text(f"token-{len(server.asked)}")
            return original(asked)
        server.answer = answer
        watch(env, 3)
        tokens = [form(asked)["WebIdentityToken"] for asked in server.asked]
        assert len(tokens) == 3 and tokens[1:] == [f"token-{i}" for i in range(1, len(tokens))]


def test_container_tokens_rotate(tmp_path):
    count = iter(range(100))
    with serving(lambda asked: (200, key_json(f"N{next(count)}", expires_s=5))) as server:
        env = pod_identity(tmp_path, server)
        original = server.answer

        def answer(asked):
            (tmp_path / "pod-token").write_text(f"token-{len(server.asked)}")
            return original(asked)
        server.answer = answer
        watch(env, 3)
        tokens = [asked.headers["authorization"] for asked in server.asked]
        assert len(tokens) == 3 and tokens[1:] == [f"token-{i}" for i in range(1, len(tokens))]


def test_keys_that_a_service_refused_are_fetched_anew_but_not_all_the_time(tmp_path):
    count = iter(range(100))
    with serving(lambda asked: (200, sts_xml(f"N{next(count)}"))) as server:
        lines = watch(irsa(tmp_path, server), 2, "--expire-every-ms", 100)
        assert [line["access_key"] for line in lines] == ["AKN0", "AKN1"] and len(server.asked) == 2
        assert lines[1]["at_ms"] - lines[0]["at_ms"] >= 9000


def test_a_service_that_comes_up_late_is_found(tmp_path):
    with serving(lambda asked: (503, "not yet")) as server:
        def answer(asked):
            return (503, "not yet") if len(server.asked) < 6 else (200, key_json("POD"))
        server.answer = answer
        lines = watch(pod_identity(tmp_path, server), 2)
        assert [line["result"] for line in lines] == ["failed", "ok"]

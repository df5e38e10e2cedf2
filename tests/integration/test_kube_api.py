"""The Kubernetes API client (kube/api.h) against the simulated API server: access, lists in pages, watches, and what goes
wrong with them."""
import base64
import json
import re
import time

import pytest

from harness import SLOW
from kube_harness import ApiServer, Probe, account, crowd, crowd_template, make_certificate

pytestmark = pytest.mark.faults
# Waits short enough for a test, long enough to be seen.
QUICK = ("--backoff-least-ms", 20, "--backoff-most-ms", 200)


def pods(count, namespace="a", first=0):
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}", "namespace": namespace},
             "spec": {"nodeName": f"n{i % 3}"}, "status": {}} for i in range(first, first + count)]


@pytest.fixture
def server():
    api = ApiServer()
    yield api
    api.stop()


def watch(server, *more, resource="pods"):
    return Probe("watch", resource, "--server", server.url, *QUICK, *more)


# --- Lists ---

def test_a_list_is_asked_for_in_pages(server):
    server.put(*pods(23))
    with watch(server, "--page", 5) as probe:
        probe.wait_ready()
        assert len(probe.objects) == 23
        pages = server.asked("/pods", limit="5")
        assert [("continue" in q, q.get("resourceVersion")) for _, q, _ in pages] == [(False, "0")] + [(True, None)] * 4
        stats = probe.look()
        assert (stats["lists"], stats["pages"], stats["objects"]) == (1, 5, 23)


def test_an_answer_from_the_cache_may_be_whole_whatever_the_limit():
    server = ApiServer(watch_cache=True)
    server.put(*pods(40))
    with watch(server, "--page", 5) as probe:
        probe.wait_ready()
        assert len(probe.objects) == 40 and probe.look()["pages"] == 1
    server.stop()


def test_an_empty_list_is_a_list(server):
    with watch(server) as probe:
        probe.wait_ready()
        assert probe.objects == {}
        server.put(*pods(1))
        probe.wait(lambda: "a/p0" in probe.objects, "the first pod")


def test_an_expired_continue_token_begins_the_list_anew(server):
    server.put(*pods(12))
    real = server.serve_list
    calls = []

    def expire_once(*arguments):
        calls.append(1)
        if len(calls) == 2:
            server.expire_tokens()
        return real(*arguments)
    server.serve_list = expire_once
    with watch(server, "--page", 5) as probe:
        probe.wait_ready()
        assert len(probe.objects) == 12 and len(probe.told("ready")) == 1
        assert probe.problem == ""
        # 1 page, 1 refusal, then 3 pages that are not from the cache.
        assert [q.get("resourceVersion") for _, q, _ in server.asked("/pods", limit="5")] == ["0", None, None, None, None]


def test_selectors_are_given_to_the_server(server):
    server.put(*pods(9))
    with watch(server, "--namespace", "a", "--field", "spec.nodeName=n1,metadata.name!=p4", "--label", "!x,y notin (z)") as probe:
        probe.wait_ready()
        assert set(probe.objects) == {"a/p1", "a/p7"}
        probe.wait(lambda: server.asked("/api/v1/namespaces/a/pods", watch="1", labelSelector="!x,y notin (z)",
                                        fieldSelector="spec.nodeName=n1,metadata.name!=p4"), "the watch")


def test_objects_that_leave_the_selector_are_deleted(server):
    server.put(*pods(3))
    with watch(server, "--field", "spec.nodeName=n1") as probe:
        probe.wait_ready()
        moved = server.get("Pod", "p1", "a")
        moved["spec"]["nodeName"] = "n2"
        server.put(moved)
        probe.wait(lambda: probe.objects == {}, "the deletion")


# --- Watches ---

def test_changes_come_in_their_order(server):
    server.put(*pods(1))
    with watch(server) as probe:
        probe.wait_ready()
        for i in range(50):
            server.put(*pods(1, first=i % 5))
        server.delete("Pod", "p3", "a")
        probe.wait(lambda: probe.told("deleted") == [["a/p3"]], "the deletion")
        versions = [int(e[1]) for e in probe.told("object")]
        assert versions == sorted(versions) and len(versions) == 51


def test_a_watch_that_ends_goes_on_from_its_version(server):
    server.put(*pods(2))
    with watch(server, "--watch-ms", 1000) as probe:
        probe.wait_ready()
        server.put(*pods(1, first=5))
        probe.wait(lambda: probe.look()["watches"] >= 3, "a third watch")
        server.put(*pods(1, first=6))
        probe.wait(lambda: "a/p6" in probe.objects, "a change after it")
        assert probe.look()["lists"] == 1 and probe.problem == ""
        assert len(probe.told("object")) == 4  # none twice


def test_bookmarks_carry_the_watch_over_a_compaction(server):
    server.put(*pods(1))
    with watch(server, "--watch-ms", 1000) as probe:
        probe.wait_ready()
        probe.wait(lambda: server.asked("/pods", watch="1", allowWatchBookmarks="true"), "a watch")
        server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})  # the version goes on elsewhere
        server.bookmark()
        probe.wait(lambda: probe.look()["events"] == 1, "the bookmark")
        server.compact()
        watches = probe.look()["watches"]
        probe.wait(lambda: probe.look()["watches"] > watches, "the next watch")
        server.put(*pods(1, first=1))
        probe.wait(lambda: "a/p1" in probe.objects, "a change")
        assert probe.look()["lists"] == 1


@pytest.mark.parametrize("how", ["status", "event"])
def test_versions_that_are_gone_bring_a_new_list_and_what_was_deleted_meanwhile(server, how):
    server.put(*pods(6))
    with watch(server, "--watch-ms", 1000, "--page", 4) as probe:
        probe.wait_ready()
        probe.wait(lambda: server.asked("/pods", watch="1"), "a watch")
        if how == "status":
            server.stop()
        server.delete("Pod", "p2", "a")
        server.put(*pods(1, first=8))
        server.compact()
        if how == "status":
            server.start()
        else:
            server.tell_gone()
        probe.wait(lambda: probe.ready == 2, "a second list")
        assert set(probe.objects) == {"a/p0", "a/p1", "a/p3", "a/p4", "a/p5", "a/p8"}
        assert probe.told("deleted") == [["a/p2"]]
        assert server.asked("/pods", limit="4")[2][1].get("resourceVersion") is None, "that list is not from the cache"


def test_versions_that_are_always_gone_are_no_flood_of_lists(server):
    server.put(*pods(1))
    real = server.serve_watch
    server.serve_watch = lambda handler, plural, select, query: real(handler, plural, select, {**query, "resourceVersion": "1"})
    server.compacted = 5
    with watch(server, "--backoff-most-ms", 400) as probe:
        probe.wait(lambda: probe.ready >= 5, "five lists")
        begun = time.monotonic()
        lists = probe.ready
        time.sleep(2)
        # At most one each 400 ms, and some slack for what was on its way.
        assert probe.ready - lists <= (time.monotonic() - begun) / 0.4 + 2


def test_a_connection_that_breaks_is_no_news(server):
    server.put(*pods(3))
    with watch(server) as probe:
        probe.wait_ready()
        for i in range(3):
            watches = probe.wait(lambda: probe.look()["watches"] > i and len(server.sockets) > 0, "a watch")
            server.drop()
            server.put(*pods(1, first=10 + i))
            probe.wait(lambda i=i: f"a/p{10 + i}" in probe.objects, "a change after it")
        assert watches and probe.look()["lists"] == 1 and probe.problem == ""


def test_a_server_that_is_away_is_told_and_what_happened_meanwhile_comes(server):
    server.put(*pods(3))
    with watch(server) as probe:
        probe.wait_ready()
        probe.wait(lambda: server.asked("/pods", watch="1"), "a watch")
        server.stop()
        probe.wait(lambda: probe.problem, "a problem")
        assert probe.problem.startswith(f"cannot watch pods at {server.url}: ")
        assert len(probe.objects) == 3
        server.delete("Pod", "p1", "a")
        server.put(*pods(1, first=7))
        server.start()
        probe.wait(lambda: set(probe.objects) == {"a/p0", "a/p2", "a/p7"}, "what happened meanwhile")
        probe.wait(lambda: probe.problem == "", "the problem's end")
        assert probe.look()["lists"] == 1


def test_a_server_that_is_not_there_yet_is_waited_for(server):
    server.put(*pods(1))
    server.stop()
    with watch(server) as probe:
        probe.wait(lambda: probe.problem.startswith(f"cannot list pods at {server.url}: "), "the problem")
        server.start()
        probe.wait_ready()
        assert probe.problem == "" and "a/p0" in probe.objects


def test_a_silent_watch_is_begun_anew(server):
    server.put(*pods(1))
    with watch(server, "--silence-ms", 300) as probe:
        probe.wait_ready()
        probe.wait(lambda: probe.look()["watches"] >= 5, "a fifth watch")
        server.put(*pods(1, first=2))
        probe.wait(lambda: "a/p2" in probe.objects, "a change")
        # After each two of them a list, which has to be answered.
        assert 2 <= probe.look()["lists"] <= probe.stats["watches"] // 2 + 1 and probe.problem == ""


def test_a_server_that_falls_silent_is_told(server):
    server.put(*pods(1))
    with watch(server, "--silence-ms", 300) as probe:
        probe.wait_ready()
        server.silent = True
        probe.wait(lambda: probe.problem == f"cannot list pods at {server.url}: no answer", "the problem")
        server.silent = False
        server.put(*pods(1, first=2))
        probe.wait(lambda: "a/p2" in probe.objects and probe.problem == "", "a change, and the problem's end")


def test_a_silent_list_is_given_up(server):
    server.silent = True
    with watch(server, "--silence-ms", 300) as probe:
        probe.wait(lambda: probe.problem == f"cannot list pods at {server.url}: no answer", "the problem")
        server.silent = False
        probe.wait_ready()


# --- Refusals ---

def test_what_rule_is_missing_is_told(server):
    server.deny("pods")
    with watch(server) as probe:
        probe.wait(lambda: probe.problem, "the problem")
        assert probe.problem == (
            f'cannot list pods at {server.url}: 403 Forbidden: pods is forbidden: User '
            '"system:serviceaccount:monitoring:podgpu-agent" cannot list resource "pods" in API group "" at the cluster '
            'scope; it needs a ClusterRole with apiGroups [""], resources ["pods"], verbs ["get", "list", "watch"]')
        server.allow()
        probe.wait_ready()
        assert probe.problem == ""


def test_what_rule_is_missing_in_a_namespace_is_told(server):
    server.deny("endpointslices", "watch")
    with watch(server, "--namespace", "shop", resource="endpointslices") as probe:
        probe.wait(lambda: probe.problem, "the problem")
        assert probe.problem.startswith(f"cannot watch endpointslices in namespace shop at {server.url}: 403 Forbidden: ")
        assert probe.problem.endswith('; it needs a Role with apiGroups ["discovery.k8s.io"], resources ["endpointslices"], '
                                      'verbs ["get", "list", "watch"]')


def test_a_server_that_is_busy_says_when_to_come_again(server):
    server.put(*pods(1))
    server.fail(429, "TooManyRequests", Retry_After="1")
    begun = time.monotonic()
    with watch(server) as probe:
        probe.wait_ready()
        assert time.monotonic() - begun >= 1
        assert [q.get("limit") for _, q, _ in server.requests[:2]] == ["500", "500"]


def test_refusals_of_all_kinds_end_with_the_list(server):
    server.put(*pods(1))
    for code in (500, 503, 504, 404, 410, 400):
        server.fail(code, "Some", "reason")
    with watch(server) as probe:
        probe.wait_ready()
        problems = [p[0] for p in probe.told("problem")]
        assert f"cannot list pods at {server.url}: 503 Some: reason" in problems and problems[-1] == ""


@pytest.mark.parametrize("body, words", [
    (b"<html>busy</html>", "the answer is not a list of objects in JSON"),
    (b'{"kind":"PodList","items":[{"metadata":{"name":"x"}}', "the answer is not a list of objects in JSON"),
    (b'{"kind":"Pod","metadata":{"name":"x"}}', "the answer is not a list of objects in JSON"),
    (b'[{"metadata":{}}]', "the answer is not a list of objects in JSON"),
    (b"", "the answer is not a list of objects in JSON"),
])
def test_an_answer_that_is_no_list_is_told_and_asked_for_again(server, body, words):
    server.put(*pods(1))
    real = server.serve_list
    answers = [body, body]

    def serve(handler, *arguments):
        if answers:
            handler.send_json(200, answers.pop())
        else:
            real(handler, *arguments)
    server.serve_list = serve
    with watch(server) as probe:
        probe.wait_ready()
        assert [f"cannot list pods at {server.url}: {words}"] in probe.told("problem")
        assert probe.objects == {"a/p0": "1001"}


def test_events_that_cannot_be_read_are_left_out(server):
    server.put(*pods(1))
    with watch(server) as probe:
        probe.wait_ready()
        probe.wait(lambda: server.asked("/pods", watch="1"), "a watch")
        bad = [b'{"type":"ADDED","object":{"metadata":{}}}', b'{"type":"ADDED","object":{"metadata":{"name":"a\\u0000b"}}}',
               b'{"type":"ADDED"}', b'{"type":"NEWS","object":{"metadata":{"name":"x"}}}', b'{"type":1}',
               b'{"type":"ADDED","object":{"metadata":{"name":"big"},"x":"' + b"x" * (5 << 20) + b'"}}']
        for line in bad:
            server.send_raw(line + b"\n")
        server.put(*pods(1, first=1))
        probe.wait(lambda: "a/p1" in probe.objects, "the event after them")
        probe.wait(lambda: probe.look()["skipped"] == len(bad), "all of them")
        assert set(probe.objects) == {"a/p0", "a/p1"}
        assert probe.stats["watches"] == 1


def test_a_stream_that_is_not_json_is_begun_anew(server):
    server.put(*pods(1))
    with watch(server) as probe:
        probe.wait_ready()
        probe.wait(lambda: server.asked("/pods", watch="1"), "a watch")
        server.send_raw(b"}} what\n")
        server.drop()
        server.put(*pods(1, first=1))
        probe.wait(lambda: "a/p1" in probe.objects, "a change after it")


# --- Access ---

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(certificate):
    api = ApiServer(certificate=certificate, token="first")
    api.put(*pods(2))
    yield api
    api.stop()


def test_a_pod_asks_with_its_service_account_and_the_token_may_be_replaced(secure, certificate, tmp_path):
    env = account(tmp_path, secure, ca=certificate[0])
    with Probe("watch", "pods", "--root", tmp_path, "--watch-ms", 1000, *QUICK, env=env) as probe:
        probe.wait_ready()
        assert probe.told("server") == [[secure.url, "monitoring"]]
        account(tmp_path, secure, token="second", ca=certificate[0])
        secure.token = "second"
        secure.put(*pods(1, first=5))
        watches = probe.look()["watches"]
        probe.wait(lambda: probe.look()["watches"] > watches + 1, "watches with the new token")
        secure.put(*pods(1, first=6))
        probe.wait(lambda: {"a/p5", "a/p6"} <= set(probe.objects), "both changes")
        assert probe.problem == "" and probe.look()["lists"] == 1


def test_a_token_that_is_refused_is_told_until_there_is_another(secure, certificate, tmp_path):
    env = account(tmp_path, secure, token="wrong", ca=certificate[0])
    with Probe("watch", "pods", "--root", tmp_path, *QUICK, env=env) as probe:
        probe.wait(lambda: probe.problem, "the problem")
        assert probe.problem == (f"cannot list pods at {secure.url}: 401 Unauthorized: Unauthorized; the credentials were "
                                 "read anew and refused again")
        assert len(secure.requests) >= 2
        account(tmp_path, secure, ca=certificate[0])
        probe.wait_ready()


def test_a_certificate_that_is_not_trusted_is_refused(secure, tmp_path):
    env = account(tmp_path, secure)
    (tmp_path / "var/run/secrets/kubernetes.io/serviceaccount/ca.crt").write_text("")
    with Probe("watch", "pods", "--root", tmp_path, *QUICK, env=env) as probe:
        probe.wait(lambda: probe.problem.startswith(f"cannot list pods at {secure.url}: "), "the problem")
        assert secure.requests == []


@pytest.mark.parametrize("env, words", [
    ({}, "not in a cluster (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set): give an api_server or a "
         "kubeconfig_file"),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "x"}, "KUBERNETES_SERVICE_PORT is 'x', not a port"),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
     "no service account: cannot read '{root}/var/run/secrets/kubernetes.io/serviceaccount/token': No such file or directory"),
])
def test_what_a_cluster_lacks_is_told(tmp_path, env, words):
    assert Probe("watch", "pods", "--root", tmp_path, env=env).refusal() == words.format(root=tmp_path)


def kubeconfig(path, server, cluster="", user="", context=""):
    path.write_text(f"""
apiVersion: v1
kind: Config
current-context: here
contexts:
- {{name: elsewhere, context: {{cluster: nowhere}}}}
- {{name: here, context: {{cluster: c, user: u, {context}}}}}
clusters: [{{name: c, cluster: {{server: "{server.url}/", {cluster}}}}}]
users: [{{name: u, user: {{{user}}}}}]
""", encoding="utf-8")
    return path


def b64(path):
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("how", ["files", "data", "insecure", "name"])
def test_a_kubeconfig_leads_to_its_server(secure, certificate, tmp_path, how):
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.pem").write_bytes(certificate[0].read_bytes())
    cluster, user = {
        "files": ("certificate-authority: ca.pem", "tokenFile: token"),
        "data": (f"certificate-authority-data: {b64(certificate[0])}", "token: first"),
        "insecure": ("insecure-skip-tls-verify: true", "token: first"),
        "name": ("certificate-authority: ca.pem, tls-server-name: kubernetes.default", "token: first"),
    }[how]
    config = kubeconfig(tmp_path / "config", secure, cluster, user, "namespace: mine")
    with Probe("watch", "pods", "--kubeconfig", config, *QUICK) as probe:
        probe.wait_ready()
        assert len(probe.objects) == 2
        assert probe.told("server") == [[secure.url, "mine"]]


def test_a_kubeconfig_with_a_password(server, tmp_path):
    server.put(*pods(1))
    config = kubeconfig(tmp_path / "config", server, user="username: me, password: 'se:cret'")
    with Probe("watch", "pods", "--kubeconfig", config, *QUICK) as probe:
        probe.wait_ready()
    assert server.requests[0][2]["Authorization"] == "Basic " + base64.b64encode(b"me:se:cret").decode()


@pytest.mark.parametrize("user, words", [
    ("exec: {command: aws}", "credential plug-ins (exec) are not supported; give the user a token or tokenFile"),
    ("auth-provider: {name: gcp}", "auth-provider plug-ins are not supported; give the user a token or tokenFile"),
    ("as: someone", "impersonation (as) is not supported"),
    ("client-key-data: '!'", "not base64: 'client-key-data'"),
])
def test_what_a_kubeconfig_asks_for_and_is_not_supported_is_named(server, tmp_path, user, words):
    config = kubeconfig(tmp_path / "config", server, user=user)
    assert re.fullmatch(re.escape(f"{config}:9:") + "[0-9]+: " + re.escape(words),
                        Probe("watch", "pods", "--kubeconfig", config).refusal())


# --- Size ---

@pytest.mark.skipif(SLOW > 1, reason="memory is that of the plain build")
def test_memory_does_not_grow_with_a_cluster_but_for_its_names():
    count = 20000
    server = ApiServer()
    server.fill("pods", crowd(count, 5000), crowd_template(3200))
    sent = sum(len(o.text) for o in server.objects["pods"].values())
    assert sent > 60 << 20
    for server.watch_cache in (False, True):  # in pages, and whole
        with watch(server, "--quiet") as probe:
            probe.wait_ready(120)
            assert probe.look()["objects"] == count and probe.stats["pages"] == (1 if server.watch_cache else 40)
            kib = probe.pss_kib()
            print(json.dumps({"sent_mib": sent >> 20, "pss_kib": kib, "whole": server.watch_cache}))
            assert kib < 16 << 10
    server.stop()


def test_a_flood_of_events_is_read(server):
    count = 200 if SLOW > 1 else 2000
    server.put(*pods(10))
    with watch(server, "--quiet") as probe:
        probe.wait_ready()
        for _ in range(10):
            server.put(*pods(count // 10 * 10 // 10, first=0))
        server.put(*pods(1, first=50000))
        total = count // 10 * 10 + 1
        probe.wait(lambda: probe.look()["events"] == total, "all events", 60)
        assert probe.look()["skipped"] == 0 and probe.stats["failures"] == 0

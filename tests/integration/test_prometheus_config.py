"""prometheus.yaml and relabelling beside Debian's Prometheus 2.42: what promtool accepts or refuses, and what a running
Prometheus makes of the same jobs. The program under test is the agent's reader in a small driver
(tests/tools/prometheus_config_probe.c)."""
import json
import re
import socket
import subprocess
import urllib.request

import pytest

from harness import BUILD, SLOW, wait_until

PROBE = BUILD / "tests" / "tools" / "prometheus_config_probe"


def job(text=""):
    return f"scrape_configs: [{{job_name: a, {text}}}]"


def rule(text):
    return job(f"relabel_configs: [{{{text}}}]")


# An existing file, since promtool looks.
FILE = "/etc/hostname"

GOOD = [
    "", "{}", "null", "# x", "global:", "scrape_configs:", "scrape_configs: []", "global: {scrape_interval: 5s}",
    "global: {scrape_interval: 0s, scrape_timeout: 0}", "global: {external_labels: {a: , b: 5}}",
    "global: {evaluation_interval: 1m, query_log_file: x}", "rule_files: []", "alerting: {}", "remote_read: []",
    "remote_write: [{url: 'http://x'}]", "storage: {}", "tracing: ",
    "scrape_configs: [{job_name: 5}]", "scrape_configs: [{job_name: a}, {job_name: b}]",
    "scrape_configs: [&b {job_name: a, honor_labels: true}, {<<: *b, job_name: b}]",
    job("scrape_interval: 5s"), job("scrape_interval: 0"), job("scrape_interval: 1h30m15s500ms"),
    job("scrape_interval: 5s, scrape_timeout: 5s"), job("scrape_interval: , scrape_timeout: "),
    *[job(f"body_size_limit: {s}") for s in ("10MB", "10MiB", "1.5MB", "1MB512KB", "0", "10B", "1EB", "")],
    *[job(f"sample_limit: {s}") for s in ("0", "5", "0x10", "010", "1_000", "1e3", "")],
    *[job(f"honor_labels: {s}") for s in ("true", "no", "On", "y", "N", "FALSE", "")],
    job("metrics_path: 5, scheme: https"), job("params: {a: [b, 1], c: }"), job("params: "),
    job("static_configs: "), job("static_configs: [{targets: [a, 'b:1', 5, '[::1]:80']}]"),
    job("static_configs: [{targets: [x], labels: {__a: 5, b: , C9: d}}]"), job("static_configs: [{}]"),
    job("static_configs: [{targets: }]"), job("static_configs: [{labels: {a: b}}]"),
    job("file_sd_configs: [{files: ['x*.json', 'y.YML', '/a/b/*.yaml', 'a*b*.yml']}]"),
    job("file_sd_configs: [{files: [x.json], refresh_interval: 30s}]"),
    job("http_sd_configs: [{url: 'http://x/y'}, {url: 'https://[::1]:8080', refresh_interval: 5s}]"),
    job("http_sd_configs: [{url: 'http://x', basic_auth: {username: a}, follow_redirects: false}]"),
    job("dns_sd_configs: [{names: [x], type: A, port: 80}]"),
    job("basic_auth: {username: a, password: b}"), job("basic_auth: {}"), job("basic_auth: "),
    job(f"basic_auth: {{username: a, password_file: {FILE}}}"),
    job("authorization: {type: Token, credentials: x}"), job("authorization: {}"), job("bearer_token: x"),
    job(f"bearer_token_file: {FILE}"), job(f"authorization: {{credentials_file: {FILE}}}"),
    job("oauth2: {client_id: x, client_secret: y, token_url: 'http://x', scopes: [a], endpoint_params: {b: c}}"),
    job(f"tls_config: {{ca_file: {FILE}, cert_file: {FILE}, key_file: {FILE}}}"),
    job("tls_config: {min_version: TLS12, max_version: TLS13, insecure_skip_verify: true, server_name: x}"),
    job("tls_config: "), job("proxy_url: 'http://x:1'"), job("proxy_url: ''"),
    job("proxy_url: 'http://x', proxy_connect_header: {a: [b]}"),
    job("enable_http2: false, follow_redirects: false"),
    job("relabel_configs: "), job("relabel_configs: [], metric_relabel_configs: []"),
    rule("target_label: a"), rule("target_label: a, regex: "), rule("target_label: a, separator: , replacement: "),
    rule("target_label: a, source_labels: "), rule("target_label: a, replacement: 5"),
    rule("target_label: '${1}', regex: 'f(.*)'"), rule("target_label: 'x_$1_y'"), rule("action: REPLACE, target_label: a"),
    rule("action: hashmod, modulus: 8, target_label: a"), rule("action: hashmod, modulus: 0x10, target_label: a"),
    rule("action: lowercase, target_label: a"), rule("action: uppercase, target_label: a, replacement: $1"),
    rule("action: keepequal, target_label: a, source_labels: [b]"), rule("action: keepequal, target_label: a, separator: ;"),
    rule("action: dropequal, target_label: a, replacement: $1, modulus: 0"),
    rule("action: labelmap"), rule("action: labelmap, regex: a(.*), replacement: b_$1"), rule("action: labeldrop, regex: x"),
    rule("action: labelkeep"), rule("action: labeldrop, target_label: '', source_labels: "),
    rule("action: keep"), rule("action: drop, source_labels: [a, b]"), rule("action: keep, target_label: a, modulus: 3"),
    *[rule(f"action: drop, regex: '{x}'") for x in (
        "(?i)a", "\\d+[[:alpha:]]", "(?P<n>x)", "(?P<n>x)(?P<n>y)", "a{1000}", "[^]a]", "\\pL", "\\Qx(\\E", "a|b|", "()", "^$", "x*?", "\\x{10FFFF}",
        "(?s-i:a)", "\\bx\\B", "a)|(b", "[[:^digit:]]", "\\z", "(?U)a+")],
]

BAD = [
    "a", "- a", "x: 1", "scrape_configs: {a: b}", "scrape_configs: [[a]]", "scrape_configs: [a]", "scrape_configs: [null]",
    "scrape_configs: [{}]", "scrape_configs: [{job_name: }]", "scrape_configs: [{job_name: ''}]",
    "scrape_configs: [{job_name: [a]}]", "scrape_configs: [{job_name: a}, {job_name: a}]",
    "scrape_configs: [{job_name: a, job_name: b}]", "global: {}\nglobal: {}", "global: 5", "a: b: c", "global: [",
    "global: {scrape_interval: 5s, scrape_timeout: 10s}", "global: {scrape_interval: x}", "global: {external_labels: [x]}",
    "global: {scrape_interval: 5s}\n" + job("scrape_timeout: 10s"),
    *[job(f"scrape_interval: '{s}'") for s in ("60", "1m1h", " 1m", "", "1.5s", "-1s", "1s1s", "1us", "1ms1s", "99999999999y")],
    job("scrape_interval: 5s, scrape_timeout: 10s"),
    *[job(f"body_size_limit: {s}") for s in ("10", "10K", "10Ki", "10kb", "''", "x", "KB")],
    *[job(f"sample_limit: {s}") for s in ("-1", "x", "'5'", "[1]")],
    *[job(f"honor_labels: {s}") for s in ("maybe", "'true'", "1", "[x]")],
    job("params: {a: b}"), job("params: [a]"), job("metrics_path: [a]"), job("scrape_intervall: 5s"),
    job("static_configs: {targets: []}"), job("static_configs: [null]"), job("static_configs: [{targets: a}]"),
    job("static_configs: [{target: [a]}]"), job("static_configs: [{targets: ['http://x']}]"),
    job("static_configs: [{targets: [x], labels: {'': c}}]"), job("static_configs: [{targets: [x], labels: [a]}]"),
    job("file_sd_configs: [{}]"), job("file_sd_configs: [{files: []}]"), job("file_sd_configs: [{files: [x.txt]}]"),
    job("file_sd_configs: [{files: ['*/x.json']}]"), job("file_sd_configs: [null]"),
    job("http_sd_configs: [{}]"), job("http_sd_configs: [{url: x}]"), job("http_sd_configs: [{url: 'ftp://x'}]"),
    job("http_sd_configs: [{url: 'http:///y'}]"), job("http_sd_configs: [{url: 'http://x', refresh_interval: x}]"),
    job("basic_auth: {username: a, password: b, password_file: c}"), job("basic_auth: {user: a}"),
    job("basic_auth: {}, bearer_token: x"), job("basic_auth: {}, authorization: {}"), job("basic_auth: x"),
    job("authorization: {type: ' basic '}"), job("authorization: {credentials: x, credentials_file: y}"),
    job("authorization: {}, bearer_token: y"), job("bearer_token: x, bearer_token_file: y"),
    job("oauth2: {}"), job("oauth2: {client_id: x, token_url: z, client_secret: a, client_secret_file: b}"),
    job("oauth2: {client_id: x, client_secret: y, token_url: 'http://x'}, basic_auth: {}"),
    job(f"tls_config: {{cert_file: {FILE}}}"), job(f"tls_config: {{key_file: {FILE}}}"),
    job("tls_config: {max_version: TLS14}"), job("tls_config: {ca_fil: x}"),
    job("proxy_connect_header: {a: [b]}"),
    job("relabel_configs: {a: b}"), job("relabel_configs: [null]"), job("relabel_configs: [a]"), rule(""),
    rule("target_label: ''"), rule("target: a"), rule("action: kep"), rule("action: ''"), rule("action: "),
    rule("action: hashmod, target_label: a"), rule("action: hashmod, modulus: 5"),
    rule("action: hashmod, modulus: '5', target_label: a"), rule("action: hashmod, modulus: -1, target_label: a"),
    rule("action: lowercase"), rule("action: lowercase, target_label: a, replacement: b"), rule("action: keepequal"),
    rule("action: keepequal, target_label: a, regex: (.*)"), rule("action: dropequal, target_label: a, separator: ','"),
    rule("action: labelmap, replacement: ''"), rule("action: labeldrop, source_labels: [a]"),
    rule("action: labeldrop, source_labels: []"), rule("action: labelkeep, replacement: x"),
    rule("action: labelkeep, target_label: a"), rule("target_label: a, source_labels: b"),
    rule("target_label: a, source_labels: ['']"), rule("target_label: [a]"), rule("target_label: a, regex: [x]"),
    *[rule(f"action: drop, regex: '{x}'") for x in (
        "(", ")", "[a", "*", "a**", "a{1001}", "[z-a]", "\\", "(?=x)", "(?<!x)y", "(a)\\1", "a++", "(?P<>x)", "\\C", "\\Z", "(?z)", "\\8", "[[:x:]]", "\\pX")],
]

# Where we part from Prometheus 2.42, and why.
STRICTER = {  # it accepts, we refuse
    job("sample_limit: 1.5"): "a limit is a whole number",
    job("body_size_limit: -10KB"): "so is a size",
    rule("action: hashmod, modulus: 1.5, target_label: a"): "and a modulus",
    job("file_sd_configs: [{files: [x.json], refresh_interval: 0s}]"): "Prometheus then ends in a panic",
    job("http_sd_configs: [{url: 'http://x', bearer_token: a, bearer_token_file: b}]"): "Prometheus 3.0 refuses it, too",
    job("tls_config: {min_version: TLS13, max_version: TLS12}"): "such a client can talk to nobody",
}
MILDER = {  # it refuses, we accept: Prometheus 3.0
    rule("target_label: a.b"): "any UTF-8 is a label name",
    rule("target_label: a, source_labels: [a.b]"): "any UTF-8 is a label name",
    rule("action: labelmap, replacement: a.$1"): "any UTF-8 is a label name",
    "global: {external_labels: {a.b: c}}": "any UTF-8 is a label name",
    job("static_configs: [{targets: [x], labels: {a-b: c}}]"): "any UTF-8 is a label name",
    rule("target_label: a, regex: '(?<n>x)'"): "Go 1.22 knows this form of a group",
    job("scrape_protocols: [PrometheusText0.0.4]"): "new",
    job("keep_dropped_targets: 5"): "new",
    job("tls_config: {ca: x}"): "new",
    job("proxy_url: http://x, no_proxy: y"): "new",
    job("http_headers: {X: {values: [a]}}"): "new",
    "scrape_config_files: []": "new",
    job("kubernetes_sd_configs: [{role: pod}]"): "Debian builds it without Kubernetes",
}


def write_all(folder, texts):
    paths = []
    for i, text in enumerate(texts):
        paths.append(folder / f"{i}.yml")
        paths[-1].write_text(text + "\n")
    return paths


def promtool_accepts(paths):
    """One bool a file."""
    done = subprocess.run(["promtool", "check", "config", *map(str, paths)], capture_output=True, text=True,
                          timeout=60 * SLOW)
    parts = re.split(r"^Checking (.*)$", done.stdout + "\n" + done.stderr, flags=re.M)
    verdicts = {path: "SUCCESS" in text for path, text in zip(parts[1::2], parts[2::2])}
    return [verdicts[str(path)] for path in paths]


def probe_accepts(path):
    done = subprocess.run([PROBE, "check", path], capture_output=True, text=True, timeout=20 * SLOW)
    assert done.stderr == "" and done.returncode in (0, 1)
    lines = done.stdout.splitlines()
    assert bool(lines) == bool(done.returncode)
    for line in lines:
        assert re.match(re.escape(str(path)) + r":\d+:\d+: .", line), line
    return done.returncode == 0


@pytest.mark.parametrize("texts, theirs, ours", [
    (GOOD, True, True), (BAD, False, False), (list(STRICTER), True, False), (list(MILDER), False, True),
], ids=["good", "bad", "stricter", "milder"])
def test_promtool_and_we_agree(tmp_path, texts, theirs, ours):
    paths = write_all(tmp_path, texts)
    wrong = [text for text, accepted in zip(texts, promtool_accepts(paths)) if accepted != theirs]
    assert wrong == [], "promtool's verdict"
    wrong = [text for text, path in zip(texts, paths) if probe_accepts(path) != ours]
    assert wrong == [], "ours"


# --- A running Prometheus ---

# name: (labels of targets, rules). The addresses are h0:1, h1:1, ...; no such host exists.
RELABELLING = {
    "replace": ([{"a": "foo", "b": "bar", "c": "baz"}],
                "[{source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: 'b${1}${2}m'},"
                " {source_labels: [c, a], regex: '(b).*b(.*)ba(.*)', target_label: d, replacement: $1$2$2$3}]"),
    "keep-drop": ([{"a": "foo"}, {"a": "bar"}, {}, {"a": "foobar"}],
                  "[{source_labels: [a], regex: 'foo|bar', action: keep}, {source_labels: [a], regex: b.*, action: drop}]"),
    "anchors": ([{"a": "foo"}, {"a": "o"}], "[{source_labels: [a], regex: f|o, action: drop}]"),
    "expansion": ([{"a": "ac"}], "[" + ",".join(
        f"{{source_labels: [a], regex: '(a)(b)?(?P<nm>c)', target_label: r{i}, replacement: '<{t}>'}}"
        for i, t in enumerate(["$1", "${1}x", "$1x", "$2", "$nm", "${nm}_", "$$1", "$", "$ 1", "${1", "$9", "$1_$3", "${}",
                               "$-", "$0", "$01", "$$$1", "${1}${3}", "$é", "é$1"])) + "]"),
    "twin-groups": ([{"a": "b"}, {"a": "a"}, {"a": "ab"}, {"a": ""}],
                    "[{source_labels: [a], regex: '(?P<n>a)?(?P<n>b)?', target_label: c, replacement: '<${n}>'}]"),
    "hashmod": ([{"a": v} for v in ("", "baz", "10.0.0.1:9400", "x y", "é")] + [{"a": "a", "b": "b"}],
                "[{source_labels: [a, b], action: hashmod, modulus: 1000, target_label: h},"
                " {source_labels: [__address__], action: hashmod, modulus: 3, target_label: shard}]"),
    "labelmap": ([{"b1": "x", "b2": "y", "__meta_p_app": "z"}],
                 "[{action: labelmap, regex: (b.*), replacement: 'm_${1}'}, {action: labelmap, regex: __meta_p_(.+)},"
                 " {action: labelmap, regex: m_(.*), replacement: n_$1}]"),
    "labeldrop": ([{"a": "1", "b": "2", "bb": "3"}], "[{action: labeldrop, regex: b+}]"),
    "labelkeep": ([{"a": "1", "b": "2"}], "[{action: labelkeep, regex: '__.*|job|b'}]"),
    "case": ([{"a": "bAr123Foo"}, {"a": "Äß ΣΑΣ ŉ İı ſ K ǅ Ⱥ ꭰ 𐐀 日本"}],
             "[{source_labels: [a], action: lowercase, target_label: l}, {source_labels: [a], action: uppercase, target_label: u}]"),
    "equal": ([{"p": "1", "q": "1"}, {"p": "1", "q": "2"}, {"p": "1"}, {}],
              "[{source_labels: [p], action: keepequal, target_label: q}]"),
    "unequal": ([{"p": "1", "q": "1"}, {"p": "1", "q": "2"}, {"p": "1"}, {}],
                "[{source_labels: [p], action: dropequal, target_label: q}]"),
    "empty": ([{"a": "x", "d": "old"}], "[{source_labels: [a], regex: (y*)x, target_label: d},"
              " {source_labels: [nothing], target_label: e, replacement: const}, {source_labels: [a], regex: no, target_label: a}]"),
    "target-names": ([{"a": "some-name-value"}, {"a": "some--value"}],
                     "[{source_labels: [a], regex: 'some-([^-]*)-([^,]+)', target_label: '${1}', replacement: '${2}'}]"),
    "separator": ([{"a": "1", "b": "2"}], "[{source_labels: [a, x, b], separator: '<>', target_label: c},"
                  " {source_labels: [a, b], separator: , target_label: d}]"),
    # A dot that takes a line end came with Prometheus 3.
    "multiline": ([{"a": "line1\nline2"}],
                  "[{source_labels: [a], regex: '(?m)^line1\\n^(line2)$', target_label: d},"
                  " {source_labels: [a], regex: 'line1(?s:.)line2', target_label: e, replacement: x$1}]"),
    "address": ([{}], "[{source_labels: [__address__], regex: '([^:]+)(?::d+)?', replacement: '${1}:9400', target_label: x},"
                " {source_labels: [__address__], regex: '([^:]+)(?::\\d+)?', replacement: '${1}:9400', target_label: __address__},"
                " {target_label: __metrics_path__, replacement: /other}]"),
    "again": ([{"port": "foo", "other": "9091"}],
              "[{action: labeldrop, regex: ^port$}, {source_labels: [other], regex: (.+), replacement: metrics, target_label: port},"
              " {source_labels: [port], regex: ^metrics$, action: keep}]"),
}

TIMES = """
  - {job_name: times-1, scrape_interval: 15s, metrics_path: /x, scheme: https, params: {a: [b, c], d: [e]}, static_configs: [{targets: ['h0:1']}]}
  - {job_name: times-2, scrape_interval: 1m30s, scrape_timeout: 20s, static_configs: [{targets: ['h0:1']}]}
  - {job_name: times-3, scrape_interval: 5s, static_configs: [{targets: ['h0:1']}]}
  - {job_name: times-4, static_configs: [{targets: ['h0:1']}]}
  - {job_name: times-5, scrape_interval: 1d, scrape_timeout: 1h30m, static_configs: [{targets: ['h0:1']}]}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """(path of the configuration, what /api/v1/targets says of it)."""
    folder = tmp_path_factory.mktemp("prometheus")
    text = "global: {scrape_interval: 50s, scrape_timeout: 7s}\nscrape_configs:\n"
    for name, (targets, rules) in RELABELLING.items():
        text += f"  - job_name: {name}\n    relabel_configs: {rules}\n    static_configs:\n"
        for i, labels in enumerate(targets):
            text += f"    - {{targets: ['h{i}:1'], labels: {json.dumps(labels, ensure_ascii=False)}}}\n"
    config = folder / "prometheus.yml"
    config.write_text(text + TIMES.lstrip("\n"))
    port = free_port()
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    want = sum(len(targets) for targets, _ in RELABELLING.values()) + TIMES.count("job_name")

    def targets():
        assert process.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as answer:
                data = json.load(answer)["data"]
        except OSError:
            return None
        return data if len(data["activeTargets"]) + len(data["droppedTargets"]) == want else None

    try:
        yield config, wait_until(targets, 30, "Prometheus has made all targets")
    finally:
        process.terminate()
        process.wait(20 * SLOW)


def probe(mode, config, text=None):
    done = subprocess.run([PROBE, mode, config], input=text, capture_output=True, text=True, check=True,
                          timeout=20 * SLOW)
    return json.loads(done.stdout)


def shown(labels):
    """Labels as the API shows them: none of __*, and an instance."""
    visible = {k: v for k, v in labels.items() if not k.startswith("__")}
    return {"instance": labels["__address__"], **visible}


def in_order(labels):
    return sorted(labels, key=lambda one: json.dumps(one, sort_keys=True))


@pytest.mark.parametrize("name", RELABELLING)
def test_relabelling_gives_the_labels_that_prometheus_gives(prometheus, name):
    config, data = prometheus
    targets, _ = RELABELLING[name]
    common = {"job": name, **probe("jobs", config)[name]}
    found = [{**common, **{k: v for k, v in labels.items() if v}, "__address__": f"h{i}:1"}
             for i, labels in enumerate(targets)]
    ours = [shown(labels) for labels in probe("relabel", config, json.dumps([[name, f] for f in found])) if labels]
    theirs = [t["labels"] for t in data["activeTargets"] if t["scrapePool"] == name]
    assert in_order(ours) == in_order(theirs)


def milliseconds(text):
    units = {"y": 31536000000, "w": 604800000, "d": 86400000, "h": 3600000, "m": 60000, "s": 1000, "ms": 1}
    return sum(int(n) * units[u] for n, u in re.findall(r"(\d+)(ms|[ywdhms])", text))


def test_jobs_start_targets_with_the_labels_that_prometheus_does(prometheus):
    config, data = prometheus
    ours = {name: labels for name, labels in probe("jobs", config).items() if name.startswith("times")}
    theirs = {}
    for target in data["activeTargets"]:
        if target["scrapePool"].startswith("times"):
            labels = {k: v for k, v in target["discoveredLabels"].items() if k.startswith("__") and k != "__address__"}
            for key in ("__scrape_interval__", "__scrape_timeout__"):
                labels[key] = f"{milliseconds(labels[key])}ms"
            theirs[target["scrapePool"]] = labels
    assert len(ours) == 5 and ours == theirs

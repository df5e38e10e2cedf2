"""The reader of pages beside Prometheus' Python client, which gives the same samples of good pages and refuses the same bad
ones, and beside Debian's Prometheus 2.42, which accepts and refuses the same pages to the byte. The program under test is a small driver around the reader (tests/tools/parse_probe.c)."""
import contextlib
import http.server
import json
import math
import socket
import subprocess
import threading
import urllib.request

import pytest

from harness import BUILD, ROOT, SLOW, wait_until

PROBE = BUILD / "tests" / "tools" / "parse_probe"

PROMETHEUS_GOOD = [
    "", "\n", "a 1", "a 1\n", "a{} 1\n", "a 1 1000\n", "a{b=\"c\"} 1\n", "a{b=\"c\",d=\"e\",} 1\n", " a 1 \n",
    "a { b = \"c\" , d = \"e\" } 1 5\n", "a\t1\n", "a{b=\"c\"}\t1\n", "a{b=\"\"} 1\n",
    "a{b=\"}, {=#\"} 1\n", "a{b=\"\\\\\\n\\\"\"} 1\n", "a{b=\"\\\\\\\\n\"} 1\n", "a{b=\"x\\ty\"} 1\n",
    "a{b=\"caf\u00e9 \u20ac \U0001f600\"} 1\n", "a NaN\na +Inf\na -Inf\na Inf\n", "a 1e3\na 1E-3\na +1\na -1.5\na .5\na 5.\n",
    "a 0.1\na 5e-324\na 1.7976931348623157e308\na 123456789012345678\na 2.2250738585072011e-308\na 1e23\n",
    "# comment\n#\n# HELP\na 1\n", "# HELP a x \\n y\n# TYPE a gauge\na 1\n", "# TYPE a_total counter\na_total 1\n",
    "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_bucket{le=\"+Inf\"} 2\na_sum 3\na_count 2\nb 1\n",
    "# TYPE a summary\na{quantile=\"0.5\"} NaN\na_sum 0\na_count 0\n", "# TYPE a untyped\na 1\n",
    "{\"a b\"} 1\n", "{\"a.b\",c=\"d\"} 2\n", "a{\"b.c\"=\"d\"} 1\n", ":a:b_9 1\n",
]
PROMETHEUS_BAD = [
    "a\n", "a b\n", "a{b=c} 1\n", "a{b=\"c} 1\n", "a{b} 1\n", "a{1b=\"c\"} 1\n", "9a 1\n", "a.b 1\n", "a 1_0\n", "a 1 b\n",
    "a{b=\"c\",,} 1\n", "{} 1\n", "a 0x10\n", "a{\"b\"} 1\n", "a{b=\"c\"x} 1\n", "a 1e\n", "# TYPE a bogus\na 1\n",
]
OPENMETRICS_GOOD = [
    "# EOF\n", "a 1\n# EOF\n", "# TYPE a counter\n# HELP a x\na_total 1\na_created 2\n# EOF\n",
    "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1 1.5\n# EOF\n", "a{b=\"c\",d=\"e\"} 1 -1\n# EOF\n",
    "# TYPE a info\na_info{b=\"c\"} 1\n# EOF\n", "# TYPE a stateset\na{a=\"x\"} 1\na{a=\"y\"} 0\n# EOF\n",
    "# TYPE a unknown\na 1\n# EOF\n", "# TYPE a counter\na_total{b=\"\\\"\\\\\\n\"} 1 2 # {id=\"x y\"} 0.5 1.25\n# EOF\n",
    "# TYPE a histogram\na_bucket{le=\"1.0\"} 1 # {} 0.5\na_bucket{le=\"+Inf\"} 2\na_sum 3\na_count 2\n# EOF\n",
    "# TYPE a gaugehistogram\na_bucket{le=\"1.0\"} 1\na_bucket{le=\"+Inf\"} 2\na_gsum 3\na_gcount 2\n# EOF\n",
    "# TYPE a summary\na{quantile=\"0.5\"} 1\na_sum 0\na_count 0\n# EOF\n", "# TYPE \"a b\" gauge\n{\"a b\",c=\"d\"} 1\n# EOF\n",
    "# TYPE a gauge\na NaN\n# EOF\n",
]
OPENMETRICS_BAD = [
    "", "a 1\n", "# EOF\na 1\n", "# EOF\n\n", "\n# EOF\n", "a  1\n# EOF\n", " a 1\n# EOF\n", "a 1 \n# EOF\n", "a\t1\n# EOF\n",
    "a{b=\"c\" d=\"e\"} 1\n# EOF\n", "# TYPE a untyped\n# EOF\n", "# HELP a\n# EOF\n",
    "# UNIT a b\n# EOF\n", "a 1 NaN\n# EOF\n", "a b\n# EOF\n", "a{b=c} 1\n# EOF\n",
    "# TYPE a counter\na_total 1 # {b=\"c\"}\n# EOF\n", "# TYPE a counter\na_total 1 # {} x\n# EOF\n",
]


def ours(form, pages):
    joined = b"".join(p.encode() + b"\0" for p in pages)
    out = subprocess.run([PROBE, form], input=joined, check=True, capture_output=True).stdout
    return [json.loads(line) for line in out.decode().splitlines()]


def theirs(form, page):
    if form == "prometheus":
        from prometheus_client.parser import text_string_to_metric_families
    else:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
    samples = []
    for family in text_string_to_metric_families(page):
        for s in family.samples:
            stamp = None if s.timestamp is None else math.floor(float(s.timestamp) * 1000 + 0.5)
            samples.append([s.name, s.labels, float(s.value), stamp, family.type])
    return samples


def same_number(text, value):
    ours_value = float(text)
    return math.isnan(value) if math.isnan(ours_value) else ours_value == value


@pytest.mark.parametrize("form, pages", [("prometheus", PROMETHEUS_GOOD), ("openmetrics", OPENMETRICS_GOOD)])
def test_good_pages_give_the_samples_the_python_client_gives(form, pages):
    for page, samples in zip(pages, ours(form, pages), strict=True):
        expected = theirs(form, page)
        assert not isinstance(samples, str), (page, samples)
        assert len(samples) == len(expected), page
        for got, want in zip(samples, expected):
            assert got[:2] == want[:2] and got[3:] == want[3:] and same_number(got[2], want[2]), (page, got, want)


@pytest.mark.parametrize("form, pages", [("prometheus", PROMETHEUS_BAD), ("openmetrics", OPENMETRICS_BAD)])
def test_bad_pages_are_refused_by_both(form, pages):
    for page, got in zip(pages, ours(form, pages), strict=True):
        assert isinstance(got, str), (page, got)
        with pytest.raises((ValueError, KeyError, IndexError)):
            theirs(form, page)
            pytest.fail(f"the client takes {page!r}, we say {got}")


def test_the_posts_page_is_read_alike():
    page = (ROOT / "tests" / "blog" / "metrics.txt").read_text()
    (samples,) = ours("prometheus", [page])
    expected = theirs("prometheus", page)
    assert len(samples) == 23
    for got, want in zip(samples, expected, strict=True):
        name = got[0] if got[0].endswith("_total") or want[4] != "counter" else got[0] + "_total"
        assert [name, got[1], got[4]] == [want[0], want[1], want[4]]
        assert same_number(got[2], want[2])


# What the Python client is too lax or too strict about; Prometheus judges it.
PROMETHEUS_MORE = [
    "a{b=\"c\"}1\n", "a{b=\"c\" d=\"e\"} 1\n", "a{b=\"c\"d=\"e\"} 1\n", "a{b=\"x\ny\"} 1\n", "a{,} 1\n", "a{b=\"c\",,} 1\n",
    "a 1 -5\n", "a 1 1.5\n", "a 1 2 3\n", "a 1 9223372036854775808\n", "a 1\r\n", "\r\n", "# x\r\na 1\n", "a NaN\r\n",
    "# TYPE a gauge\r\na 1\n", "a 1e400\n", "a 1e-400\n", "a +NaN\n", "a -nan\n", "a +infinity\n", "a INF\n", "a -\n", "a 0x1p3\n",
    "a{b=\"c\\\n\"} 1\n", "a{b=\"\\q\"} 1\n", "a{b=\"c\"", "a{b=\"c", "a{b:c=\"d\"} 1\n", "# TYPE a\na 1\n", "# TYPE a info\na 1\n",
    "# TYPE a unknown\na 1\n", "# TYPE 1 gauge\na 1\n", "# HELP\na 1\n", "# HELP a\na 1\n", "# HELP 1 x\na 1\n", "# HELPX 1\na 1\n",
    "#HELP 1\na 1\n", "#\tTYPE\ta\tgauge\na 1\n", "# TYPE a counter\na 1\n# TYPE a gauge\n", "\t\na 1\n", "{} 1\n", "{b=\"c\"} 1\n",
]
OPENMETRICS_MORE = [
    "# EOF", "# EOF ", "# EOF\r\n", "a 1", "a 1 1e3\n# EOF\n", "a 1 1e300x\n# EOF\n", "a {b=\"c\"} 1\n# EOF\n", "a{b=\"c\"}1\n# EOF\n",
    "a{b=\"c\" } 1\n# EOF\n", "a{ b=\"c\"} 1\n# EOF\n", "a{b=\"c\",} 1\n# EOF\n", "a{b=\"c\nd\"} 1\n# EOF\n", "# comment\n# EOF\n",
    "#a\n# EOF\n", "# TYPE a  gauge\na 1\n# EOF\n", "# TYPE a gauge", "# HELP a \na 1\n# EOF\n", "# UNIT a \na 1\n# EOF\n",
    "# UNIT seconds seconds\na 1\n# EOF\n", "a 1 # {} 1 2 3\n# EOF\n", "a_total 1 # {} 1 2\n# EOF\n", "a 1 #{} 1\n# EOF\n",
    "a 1 1 # {b=\"c\",} 1\n# EOF\n", "a 1\n# TYPE a gauge\na{b=\"c\"} 2\n# EOF\n", "a 1\r\n# EOF\n", "a 1 +Inf\n# EOF\n",
]
# Taken by us and not by Prometheus 2.42: leading blanks, as the format's text says; the last comma, as Prometheus 3;
# exemplars wherever they stand, since they are passed over.
LENIENT = {" a 1 \n", "a{b=\"c\",} 1\n# EOF\n", "a 1 1 # {b=\"c\",} 1\n# EOF\n"}
CONTENT_TYPES = {"prometheus": "text/plain; version=0.0.4", "openmetrics": "application/openmetrics-text; version=1.0.0"}


def judged_pages():
    pages = [("prometheus", p) for p in PROMETHEUS_GOOD + PROMETHEUS_BAD + PROMETHEUS_MORE]
    pages += [("openmetrics", p) for p in OPENMETRICS_GOOD + OPENMETRICS_BAD + OPENMETRICS_MORE]
    # Quoted names came with Prometheus 3.
    return [(f, p) for f, p in pages if not any(q in p for q in ('{"', '"a b"')) and p not in LENIENT]


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        form, page = judged_pages()[int(self.path.rsplit("/", 1)[1])]
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPES[form])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """What Prometheus made of each page: its target's health and last error."""
    folder = tmp_path_factory.mktemp("prometheus")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    count, port = len(judged_pages()), free_port()
    groups = [{"targets": [f"127.0.0.1:{server.server_port}"],
               "labels": {"page": str(i), "__metrics_path__": f"/page/{i}"}} for i in range(count)]
    config = {"global": {"scrape_interval": "5s"}, "scrape_configs": [{"job_name": "pages", "static_configs": groups}]}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def outcomes():
        assert process.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as answer:
                targets = json.load(answer)["data"]["activeTargets"]
        except OSError:
            return None
        done = {int(t["labels"]["page"]): (t["health"], t["lastError"]) for t in targets if t["health"] != "unknown"}
        return done if len(done) == count else None

    try:
        yield wait_until(outcomes, 60, "Prometheus has scraped all pages")
    finally:
        process.terminate()
        process.wait(20 * SLOW)
        server.shutdown()
        server.server_close()


def test_prometheus_takes_and_refuses_the_same_pages(scraped):
    differences = []
    for i, (form, page) in enumerate(judged_pages()):
        (got,) = ours(form, [page])
        health, error = scraped[i]
        if isinstance(got, str) != (health == "down"):
            differences.append((form, page, got, health, error))
    assert not differences

"""A Prometheus that scrapes what a test runs."""
import contextlib
import json
import socket
import subprocess
import urllib.parse
import urllib.request

from harness import SLOW, wait_until


class Prometheus:
    def __init__(self, port):
        self.port = port

    def answers(self):
        with contextlib.suppress(OSError):
            return self.query("vector(1)")
        return None

    def query(self, expression, at=None):
        parameters = urllib.parse.urlencode({"query": expression, **({"time": f"{at:.3f}"} if at else {})})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{parameters}", timeout=5 * SLOW) as answer:
            return json.load(answer)["data"]["result"]

    def value(self, expression, at=None):
        """Of the one series that it gives."""
        [series] = self.query(expression, at)
        return float(series["value"][1])

    def points(self, selector, window):
        """[(time, value)] of the one series, as they were scraped."""
        [series] = self.query(f"{selector}[{window}]")
        return [(float(at), float(value)) for at, value in series["values"]]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def prometheus(folder, addresses, interval, honor_labels=True, labels=""):
    """One that scrapes these each interval, with their labels as they are; labels: the target's own, as YAML."""
    port = free_port()
    targets = ", ".join(f'"{a}"' for a in addresses)
    (folder / "prometheus.yml").write_text(f"""
global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}
scrape_configs:
  - job_name: gpu-metrics
    honor_labels: {str(honor_labels).lower()}
    static_configs: [{{targets: [{targets}], labels: {{{labels}}}}}]
""")
    with open(folder / "prometheus.log", "wb") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        server = Prometheus(port)
        try:
            wait_until(server.answers, 20, "Prometheus answers")
            yield server
        finally:
            process.terminate()
            process.wait(20)

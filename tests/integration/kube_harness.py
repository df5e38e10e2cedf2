"""The Kubernetes client's probe (tests/tools/kube_probe.c) and the simulated API server, for the tests of both."""
import json
import os
import signal
import subprocess
import threading

from harness import BUILD, ROOT, SLOW, wait_until

from apiserver import ApiServer, Refusal  # noqa: F401  (sim/ is on the path by harness)

PROBE = BUILD / "tests" / "tools" / "kube_probe"
CLUSTER = ROOT / "tests" / "kube" / "cluster.yaml"
# What a proxy variable of the machine, or being in a cluster, would change.
ENV = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and not k.startswith("KUBERNETES_")}


class Probe:
    """A running probe; what it told so far is in events (lists of fields), and as a state."""

    def __init__(self, *arguments, env=None):
        self.events = []
        self.objects, self.groups = {}, {}
        self.problem, self.stats, self.ready = "", None, 0
        self.process = subprocess.Popen([PROBE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**ENV, **(env or {})})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            what, *fields = line.decode().rstrip("\n").split("\t")
            if what == "object":
                self.objects[fields[0]] = fields[1]
            elif what == "deleted":
                self.objects.pop(fields[0], None)
            elif what == "group":
                fields[1] = json.loads(fields[1])
                self.groups[fields[0]] = fields[1]
            elif what == "gone":
                self.groups.pop(fields[0], None)
            elif what == "problem":
                self.problem = fields[0]
            elif what == "stats":
                self.stats = json.loads(fields[0])
            elif what == "ready":
                self.ready += 1
            self.events.append([what, *fields])

    def told(self, what):
        return [e[1:] for e in list(self.events) if e[0] == what]

    def refusal(self):
        """The reason why it did not start."""
        assert self.process.wait(20 * SLOW) == 3
        self.close()
        return self.told("refused")[0][0]

    def look(self):
        """Its statistics now."""
        before = len(self.told("stats"))
        self.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(self.told("stats")) > before, 20, "statistics")
        return self.stats

    def pss_kib(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup", encoding="ascii") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))

    def wait(self, condition, what, seconds=20):
        return wait_until(condition, seconds, f"{what}; told last: {self.events[-5:]}")

    def wait_ready(self, seconds=20):
        return self.wait(lambda: self.ready, "ready", seconds)

    def close(self):
        """Ends it in good order: status 0 and, of a sanitizer, no complaint."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(20 * SLOW)
        self.reader.join(20)
        errors = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return status, errors

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        status, errors = self.close()
        if kind is None:
            assert status == 0, errors


def prometheus_yaml(path, server, role, *more):
    """A configuration with one job and one section; more: lines of the section."""
    path.write_text("\n".join([
        "global: {scrape_interval: 1h, scrape_timeout: 1s}", "scrape_configs:", "- job_name: kube",
        "  kubernetes_sd_configs:", f"  - role: {role}", *([f"    api_server: {server}"] if server else []),
        *["    " + line for line in more], ""]), encoding="utf-8")
    return path


def discover(tmp_path, server, role, *more, node=None, env=None, arguments=()):
    config = prometheus_yaml(tmp_path / "prometheus.yaml", server, role, *more)
    return Probe("discover", config, *(["--node", node] if node else []), *arguments, env=env)


def crowd(count, nodes):
    """Pods as far as selectors see them."""
    for i in range(count):
        yield {"metadata": {"name": f"workload-{i % 400}-{i:06}", "namespace": f"team-{i % 40}"},
               "spec": {"nodeName": f"node-{i % nodes:05}"},
               "status": {"podIP": f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}"}}


def crowd_template(extra):
    """JSON of such a pod; extra: characters of what the kubelet and others write there and nobody here needs."""
    return json.dumps({
        "metadata": {"name": "%(name)s", "namespace": "%(namespace)s", "resourceVersion": "%(version)s",
                     "labels": {"app": "%(name)s", "version": "1", "tier": "backend"},
                     "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:{k}": {"f:v": {}} for k in range(extra // 20)}}]},
        "spec": {"nodeName": "%(node)s", "containers": [
            {"name": "main", "image": "registry.example.org/w:1",
             "ports": [{"name": "metrics", "containerPort": 9400, "protocol": "TCP"}]}]},
        "status": {"phase": "Running", "podIP": "%(ip)s", "conditions": [{"type": "Ready", "status": "True"}]}})


def account(root, server, namespace="monitoring", token="first", ca=None):
    """A pod's service account under root; the environment of such a pod."""
    folder = root / "var/run/secrets/kubernetes.io/serviceaccount"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text(token + "\n")
    (folder / "namespace").write_text(namespace)
    if ca:
        (folder / "ca.crt").write_bytes(ca.read_bytes())
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}


def make_certificate(folder):
    """Of the simulated server: (certificate, key)."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=kubernetes",
                    "-addext", "subjectAltName=IP:127.0.0.1,DNS:kubernetes.default"], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"

# SPDX-License-Identifier: Apache-2.0
"""The CloudWatch half of the demo: podgpu-agent scrapes the demo's exporter and ships to a CloudWatch Logs of its own
(moto's server, on a loopback port) and to a file."""
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import run_node

DEPLOY = run_node.HERE.parent / "deploy" / "cloudwatch"
CLUSTER = "demo"
GROUP = f"/aws/containerinsights/{CLUSTER}/prometheus"
FIRST_EVENT_SECONDS = 30
END_SECONDS = 15


class CloudWatchLogs:
    """moto's server in this process."""

    def __init__(self):
        from moto.server import ThreadedMotoServer
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        self.url = "http://{}:{}".format(*self.server.get_host_and_port())

    def events(self):
        import boto3
        logs = boto3.client("logs", region_name="us-east-1", endpoint_url=self.url, aws_access_key_id="demo",
                            aws_secret_access_key="demo")
        try:
            return [json.loads(e["message"]) for e in logs.filter_log_events(logGroupName=GROUP)["events"]]
        except logs.exceptions.ResourceNotFoundException:
            return []

    def stop(self):
        self.server.stop()


def write_configuration(directory, target, endpoint):
    """deploy/cloudwatch's declarations, for one target that is known instead of a cluster's."""
    agent = json.loads((DEPLOY / "cwagentconfig.json").read_text())
    agent["logs"]["endpoint_override"] = endpoint
    agent["logs"]["force_flush_interval"] = 1
    prometheus = agent["logs"]["metrics_collected"]["prometheus"]
    prometheus["cluster_name"] = CLUSTER
    prometheus["prometheus_config_path"] = str(directory / "prometheus.yaml")
    agent["podgpu"] = {"spool": {"directory": str(directory / "spool")}}
    (directory / "cwagentconfig.json").write_text(json.dumps(agent, indent=2))
    (directory / "prometheus.yaml").write_text(f"""\
scrape_configs:
- job_name: gpu-pod-metrics
  scrape_interval: 2s
  scrape_timeout: 1s
  honor_labels: true
  static_configs:
  - targets: ['{target}']
    labels:
      Service: podgpu-exporter
      NodeName: demo-node
  metric_relabel_configs:
  - source_labels: [namespace]
    target_label: Namespace
""")


class Agent:
    """podgpu-agent in its own directory. Its log goes on to our stderr, and tells the port."""

    def __init__(self, directory, target):
        self.logs = CloudWatchLogs()
        self.file = pathlib.Path(directory) / "events.json"
        write_configuration(pathlib.Path(directory), target, self.logs.url)
        command = [str(run_node.BUILD / "podgpu-agent"), "--config", str(pathlib.Path(directory) / "cwagentconfig.json"),
                   "--output", f"cloudwatch,file:{self.file}", "--listen", "127.0.0.1:0"]
        environment = {k: v for k, v in os.environ.items() if not k.upper().endswith("_PROXY") and k[:4] != "AWS_"}
        environment.update(AWS_ACCESS_KEY_ID="demo", AWS_SECRET_ACCESS_KEY="demo", AWS_REGION="us-east-1",
                           RUN_IN_CONTAINER="True")
        self.port = 0
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
        self.reader = threading.Thread(target=self._relay, daemon=True)
        self.reader.start()

    def _relay(self):
        for line in self.process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            found = re.search(r"msg=listening .*?port=(\d+)", line)
            if found:
                self.port = int(found[1])

    def first_event(self):
        """One event that CloudWatch Logs has, about a GPU's use where there is one; None after a while."""
        deadline = time.monotonic() + FIRST_EVENT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            events = self.logs.events()
            if events:
                return next((e for e in events if "DCGM_FI_DEV_GPU_UTIL" in e), events[0])
            time.sleep(0.2)
        return None

    def shares(self):
        """{pod: the latest event about its share of a GPU}, of scenarios in which several share one."""
        latest = {}
        for event in self.logs.events():
            if "podgpu_container_gpu_busy_seconds_total" in event:
                latest[event["namespace"], event["pod"], event["container"], event["gpu"]] = event
        return latest

    def wait_shares(self):
        """Counters are there from the second scrape on."""
        deadline = time.monotonic() + FIRST_EVENT_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None and not self.shares():
            time.sleep(0.2)
        return self.shares()

    def tell_shares(self):
        print("  And of each pod on a shared GPU, what it used since the scrape before:")
        for event in self.wait_shares().values():
            print("    " + json.dumps(event))
        sys.stdout.flush()

    def tell(self):
        event = self.first_event()
        print("\npodgpu-agent ships its metrics:")
        print(f"  targets    http://127.0.0.1:{self.port}/targets")
        print(f"  metrics    http://127.0.0.1:{self.port}/metrics")
        print(f"  events     {self.file} and log group {GROUP} of a CloudWatch Logs at {self.logs.url} (moto)")
        print("  One event, as CloudWatch Logs has it:")
        print("    no event" if event is None else "    " + json.dumps(event), flush=True)
        return event is not None

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(END_SECONDS)
        self.logs.stop()
        return self.process.returncode

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The discovery sections that are compared with Prometheus' own, as one prometheus.yaml.

usage: jobs.py ORACLE > prometheus-3.0.1.json

Runs the program of tests/kube/oracle (Go; `go mod tidy && go build` there) on them, with cluster.yaml in the simulated API
server: what Prometheus 3.0.1 itself discovers. Only needed when one of these files changes.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
JOBS = {
    "pod": ["role: pod"],
    "pod-nodes": ["role: pod", "attach_metadata: {node: true}"],
    "pod-namespace": ["role: pod", "namespaces: {names: [shop]}"],
    "pod-selected": ["role: pod", "selectors: [{role: pod, label: 'app in (web, api)', field: spec.nodeName=gpu-1}]"],
    "node": ["role: node"],
    "node-selected": ["role: node", "selectors: [{role: node, label: nvidia.com/gpu.product}]"],
    "service": ["role: service"],
    "endpoints": ["role: endpoints"],
    "endpoints-nodes": ["role: endpoints", "attach_metadata: {node: true}"],
    "endpoints-selected": ["role: endpoints", "selectors: [{role: pod, field: spec.nodeName=gpu-1}]"],
    "endpointslice": ["role: endpointslice"],
    "endpointslice-nodes": ["role: endpointslice", "attach_metadata: {node: true}"],
    "ingress": ["role: ingress"],
}


def prometheus_yaml(path, server):
    lines = ["global: {scrape_interval: 1h}", "scrape_configs:"]
    for job, section in JOBS.items():
        lines += [f"- job_name: {job}", "  kubernetes_sd_configs:", f"  - api_server: {server}",
                  *("    " + line for line in section)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def canonical(targets):
    return sorted(targets, key=lambda t: json.dumps(t, sort_keys=True))


def main():
    sys.path.insert(0, str(HERE.parent.parent / "sim"))
    from apiserver import ApiServer
    server = ApiServer()
    server.load(HERE / "cluster.yaml")
    with tempfile.TemporaryDirectory() as folder:
        config = prometheus_yaml(pathlib.Path(folder, "prometheus.yaml"), server.url)
        found = json.loads(subprocess.run([sys.argv[1], config, "15"], check=True, stdout=subprocess.PIPE).stdout)
    json.dump({job: canonical(found.get(job, [])) for job in JOBS}, sys.stdout, indent=1, sort_keys=True, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()

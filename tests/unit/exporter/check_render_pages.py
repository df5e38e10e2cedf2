#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lets others judge pages: promtool (lints and parser) and Prometheus' Python client (both formats' parsers).

check_render_pages.py RENDER_PAGES SOURCE_ROOT. Exit status 77 (skipped) when neither judge is there.
"""
import glob
import re
import shutil
import subprocess
import sys

# dcgm-exporter's names and types are what they are; promtool would have named them otherwise.
DCGM_LINTS = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter metrics should have \"_total\" suffix",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter metrics should have \"_total\" suffix",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not include type 'counter'",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS counter metrics should have \"_total\" suffix",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter metrics should have \"_total\" suffix",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter metrics should have \"_total\" suffix",
}
# modelName is dcgm-exporter's label; podgpu_gpu_info takes it over for joins.
MODEL_NAME_LINT = r"(DCGM_\w+|podgpu_gpu_info) label names should be written in 'snake_case' not 'camelCase'"
SCENARIOS = ["rich", "mig-once", "virtual", "old", "labels", "parts", "dcgm"]
PARTS = {"nvswitch", "nvlink", "cpu", "cpucore"}  # labels that only the last two have


def page(program, form, scenario):
    return subprocess.run([program, form, scenario], check=True, capture_output=True).stdout


def promtool(text):
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    complaints = []
    for line in (result.stdout + result.stderr).decode().splitlines():
        known = line in DCGM_LINTS or re.fullmatch(MODEL_NAME_LINT, line)
        if not known:
            complaints.append(line)
    return complaints


def samples(families):
    seen = {}
    for family in families:
        for sample in family.samples:
            # The client gives DCGM's counters the suffix that they lack.
            name = sample.name.removesuffix("_total") if sample.name.startswith("DCGM_") else sample.name
            key = (name, tuple(sorted(sample.labels.items())))
            assert key not in seen, f"twice: {key}"
            seen[key] = sample.value
    return seen


def check_awkward_owner(classic):
    awkward = [key for key in classic if dict(key[1]).get("pod", dict(key[1]).get("pod_name")) == "back\\slash"]
    assert awkward, "the awkwardly named owner is missing"
    labels = dict(awkward[0][1])
    assert labels.get("container", labels.get("container_name")) == "new\nline \ufffd", labels


def client(program, scenario):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
    from prometheus_client.parser import text_string_to_metric_families as families
    classic = samples(families(page(program, "prometheus", scenario).decode()))
    assert len(classic) > 150, len(classic)
    if scenario != "dcgm":  # which has no owners
        check_awkward_owner(classic)
    names = {name for key in classic for name, _ in key[1]}
    assert PARTS & names == (PARTS if scenario in ("parts", "dcgm") else set()), names
    opened = samples(open_families(page(program, "openmetrics", scenario).decode()))
    assert opened == classic, sorted(set(opened.items()) ^ set(classic.items()))[:4]
    return len(classic)


def main():
    program, root = sys.argv[1:]
    judges = 0
    for path in glob.glob(f"{root}/build/venv/lib/python*/site-packages"):
        sys.path.append(path)
    try:
        import prometheus_client  # noqa: F401
        for scenario in SCENARIOS:
            print(f"client, {scenario}: {client(program, scenario)} samples")
        judges += 1
    except ImportError:
        print("no prometheus_client: not parsed")
    if shutil.which("promtool"):
        judges += 1
        for scenario in SCENARIOS:
            complaints = promtool(page(program, "prometheus", scenario))
            assert not complaints, f"{scenario}: promtool says:\n" + "\n".join(complaints)
        print("promtool: nothing but the known lints")
        broken = promtool(b"# TYPE a counter\na{ 1\n")
        assert broken, "promtool let a broken page pass"
    return 0 if judges else 77


sys.exit(main())

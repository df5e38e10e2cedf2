"""script/gpu-check's judgement of podgpu-burn's load: on the simulated node, and on numbers as GPUs give them."""
import re
import subprocess
import sys

import pytest

from harness import BUILD, ROOT, exporter_on

sys.path.insert(0, str(ROOT / "script"))
import gpu_check  # noqa: E402
import gpu_check_burn as check  # noqa: E402

UTIL, TENSOR, DRAM = check.UTIL, check.TENSOR, check.DRAM
UUIDS = ["GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", "GPU-0b1f3a52-9d0e-4c4f-8f3a-64c1d2a7e501"]
FIRST = {"gpu": "0", "UUID": UUIDS[0]}


def means(on=100.0, off=0.0, tensor=None, dram=None):
    given = {UTIL: on, TENSOR: tensor, DRAM: dram}
    return {"on": {f: v for f, v in given.items() if v is not None}, "off": {UTIL: off}}


# --- the judgement ---

@pytest.mark.parametrize("kind, mean", [
    ("fp32", means(99.5, 0.4)),
    ("fp64", means(95, 5, tensor=0.0, dram=0.01)),
    ("int32", means(tensor=0.05, dram=0.2)),
    ("bf16", means(tensor=0.62, dram=0.02)),
    ("fp16", means(tensor=0.2, dram=0.2)),
    ("tf32", means(tensor=0.55)),
    ("dram", means(tensor=0.0, dram=0.91)),
    ("pcie-h2d", means(on=0, tensor=0.0, dram=0.08)),
    ("peer", means(on=37)),
])
def test_means_as_they_should_be_are_good(kind, mean):
    assert check.judge(kind, mean) == []


@pytest.mark.parametrize("kind, mean, wrong", [
    ("fp32", means(on=94.9), ["GPU_UTIL 94.9 in the on phase, at least 95 wanted"]),
    ("dram", means(off=5.1, dram=0.9), ["GPU_UTIL 5.1 in the off phase, at most 5 wanted"]),
    ("pcie-both", means(on=0, off=50), ["GPU_UTIL 50.0 in the off phase, at most 5 wanted"]),
    ("bf16", means(tensor=0.01, dram=0.01), ["PIPE_TENSOR_ACTIVE 0.010, at least 0.2 wanted"]),
    ("dram", means(tensor=0.0, dram=0.3), ["DRAM_ACTIVE 0.300, at least 0.4 wanted"]),
    ("dram", means(tensor=0.3, dram=0.9), ["PIPE_TENSOR_ACTIVE 0.300, at most 0.05 wanted"]),
    ("tf32", means(tensor=0.6, dram=0.5), ["DRAM_ACTIVE 0.500, at most 0.2 wanted"]),
    ("fp32", means(tensor=0.06, dram=0.21), ["PIPE_TENSOR_ACTIVE 0.060, at most 0.05 wanted",
                                             "DRAM_ACTIVE 0.210, at most 0.2 wanted"]),
    ("int32", {"on": {}, "off": {UTIL: 0}}, ["no GPU_UTIL in a phase"]),
    ("int32", {"on": {UTIL: 100}, "off": {}}, ["no GPU_UTIL in a phase"]),
])
def test_each_mean_that_is_not_is_named(kind, mean, wrong):
    assert check.judge(kind, mean) == wrong


def test_every_kind_that_burn_has_is_checked():
    told = subprocess.run([BUILD / "podgpu-burn", "--kind=?"], capture_output=True, text=True, timeout=30).stderr
    names = re.search(r"expected ([^\"]*)", told)[1].replace(" or ", ", ").rstrip("'\n").split(", ")
    assert sorted(names) == sorted(check.KINDS)


@pytest.mark.parametrize("elapsed, phase", [
    (-0.1, None), (0, None), (2.4, None), (2.6, "on"), (4.7, "on"), (4.9, None), (5.1, None), (7.4, None), (7.6, "off"),
    (9.7, "off"), (9.9, None), (12.6, "on"), (17.6, "off"), (19.9, None), (22.6, None),
])
def test_samples_count_where_they_are_of_one_phase_alone(elapsed, phase):
    assert check.phase_at(1000 + elapsed, 1000) == phase


def test_means_are_of_each_phase_and_family():
    rows = [(2.6, {UTIL: 90, TENSOR: 0.5}), (3, {UTIL: 100}), (5.5, {UTIL: 77}), (8, {UTIL: 2}), (13, {UTIL: 98, TENSOR: 0.7})]
    got = check.means([(1000 + at, values) for at, values in rows], 1000)
    assert got == {"on": {UTIL: 96, TENSOR: pytest.approx(0.6)}, "off": {UTIL: 2}}


# --- the whole, on the double of libcuda, which is a full GPU in every kind ---

@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(check, "ON_S", 1.6)
    monkeypatch.setattr(check, "SETTLE_S", 0.6)
    monkeypatch.setattr(check, "ON_LEAST", 60)  # this machine may have other work than the load's
    monkeypatch.setattr(check, "OFF_MOST", 30)
    return monkeypatch


def rows_of(text):
    """{kind: (cells, verdict)} of the table."""
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["kind", "util", "on"]
    return {line.split()[0]: (line.split()[1:9], line[92:].strip()) for line in lines[1:]}


def checked(node, exporter, quick, capsys, kinds, read=None, uuids=UUIDS):
    quick.setattr(check, "KINDS", kinds)
    capsys.readouterr()
    failures = check.check(BUILD / "podgpu-burn", read or exporter.page, uuids, env=node.env, extra=["--memory=256MiB"])
    return failures, rows_of(capsys.readouterr().out)


def test_what_is_made_is_seen_and_what_is_not_as_it_should_be_is_counted(quick, capsys):
    with exporter_on("burn", "-c", "100") as (node, exporter):
        exporter.page_when(lambda page: page.samples(UTIL), 20, "a page")
        failures, rows = checked(node, exporter, quick, capsys, ["fp32", "pcie-h2d", "peer"])
        assert (failures, rows["fp32"][1], rows["pcie-h2d"][1]) == (0, "good", "good")
        assert rows["fp32"][0][2:] == ["-"] * 6  # no profiling fields on these
        assert rows["peer"][1].startswith("left out: ") and "cannot reach each other's memory" in rows["peer"][1]
        # Alone, nobody to copy to; the first GPU's load on the other's page; a GPU that computes wrong.
        assert checked(node, exporter, quick, capsys, ["peer"], uuids=UUIDS[:1])[1]["peer"][1] == "left out: one GPU"

        class Idle:
            def samples(self, family):
                return [(FIRST, "3")] if family == UTIL else [(FIRST, "0.01")] if family == TENSOR else []
        failures, rows = checked(node, exporter, quick, capsys, ["bf16"], read=Idle)
        assert (failures, rows["bf16"][0][:4]) == (1, ["3.0", "3.0", "0.010", "-"])
        assert rows["bf16"][1] == ("WRONG: GPU_UTIL 3.0 in the on phase, at least 60 wanted; "
                                   "PIPE_TENSOR_ACTIVE 0.010, at least 0.2 wanted")
        node.command("set gpu0.cuda_mismatches=3")
        failures, rows = checked(node, exporter, quick, capsys, ["fp32"])
        assert failures == 1 and rows["fp32"][1].startswith("WRONG: status 1: ") and "wrong results" in rows["fp32"][1]


def test_kinds_that_a_driver_has_not_are_left_out(quick, capsys):
    text = (ROOT / "sim" / "scenarios" / "burn.yaml").read_text().replace("cuda: 12020", "cuda: 9000")
    with exporter_on("burn", "-c", "100", text=text) as (node, exporter):
        exporter.page_when(lambda page: page.samples(UTIL), 20, "a page")
        failures, rows = checked(node, exporter, quick, capsys, ["bf16"])
        assert failures == 0 and re.search("left out: .*needs 11.0", rows["bf16"][1])


def test_the_check_as_a_whole_has_status_1_when_a_kind_is_not_as_it_should_be(quick, capsys):
    """Without nvidia-smi's half, which needs one."""
    import run_node
    quick.setattr(check, "KINDS", ["int32"])
    quick.setattr(gpu_check, "nvidia_smi", lambda queries: dict)
    quick.setattr(gpu_check, "time_calls", lambda: None)
    quick.setattr(gpu_check, "slow_down", lambda arguments: None)
    with run_node.SimNode("burn", kubelet=False) as node:
        for name, value in node.env.items():
            quick.setenv(name, value)
        quick.setattr(sys, "argv", ["gpu_check.py", "--nvml-library", node.nvml_library, "-c", "100"])
        assert gpu_check.main() == 0
        node.command("set gpu0.cuda_mismatches=3")
        assert gpu_check.main() == 1
    first, second = capsys.readouterr().out.split("podgpu-burn, 5 s on and 5 s off: means of each phase:\n")[1:]
    assert re.search(r"^  int32 .* good$", first, re.M)
    assert "\n0 disagreements, 0 kinds of load not shown as they were made\n" in first
    assert re.search(r"^  int32 .* WRONG: status 1: ", second, re.M)
    assert second.endswith("\n0 disagreements, 1 kinds of load not shown as they were made\n")

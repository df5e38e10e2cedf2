"""Whatever the driver and the kubelet say, the page is one that scrapers read, without a series twice and bounded."""
import contextlib
import subprocess
import time

import pytest

from harness import ROOT, SLOW, Page, exporter_on
from kubelet_peers import GrpcKubelet, answer, gpu_row, socket_folder

pytestmark = pytest.mark.faults

UTIL = "DCGM_FI_DEV_GPU_UTIL"
DEMO = (ROOT / "sim" / "scenarios" / "demo.yaml").read_text()
UUIDS = ["GPU-ff76466b-22fc-f7a9-abe2-ce3ac453b8b3", "GPU-0b1f3a52-9d0e-4c4f-8f3a-64c1d2a7e501",
         "GPU-5f0a9c11-3c2b-4b53-9f6e-8d1d0f3b7a02", "GPU-c7d2e8f0-61a4-4e0d-a3bb-2f9e5c80d403"]
EVERY_BYTE = "".join(chr(c) for c in [*range(1, 0x80), 0x85, 0x2028, 0x2029, 0xfeff, 0xfffd, 0x1f600])


def judged(page):
    """The samples of a page as prometheus_client reads them; fails when it or promtool can't, or a series stands twice."""
    from prometheus_client.parser import text_string_to_metric_families
    samples = [s for f in text_string_to_metric_families(page.text) for s in f.samples]
    keys = {(s.name, tuple(sorted(s.labels.items()))) for s in samples}
    assert len(keys) == len(samples) > 30
    done = subprocess.run(["promtool", "check", "metrics"], input=page.text, text=True, capture_output=True, check=False)
    assert "error while linting" not in done.stderr and "error while parsing" not in done.stderr, done.stderr[-500:]
    assert done.returncode in (0, 3)  # 3: opinions about names
    return samples


@contextlib.contextmanager
def exporter_with(rows, *arguments):
    """The demo node with a kubelet that lists these rows."""
    with socket_folder() as folder, GrpcKubelet(folder / "kubelet.sock", lambda *_: answer(*rows)):
        with exporter_on("demo", "--pod-resources-kubelet-socket", folder / "kubelet.sock", *arguments,
                         kubelet=False) as (node, exporter):
            yield exporter


def test_names_of_any_bytes_stand_on_the_page_as_they_are():
    names = [EVERY_BYTE, EVERY_BYTE[::-1] + "\\", '"\\\n', "x" * 5000]
    rows = [(n[:250], n, n[::-1], "nvidia.com/gpu", uuid) for n, uuid in zip(names, UUIDS)]
    with exporter_with(rows) as exporter:
        page = exporter.page_when(lambda p: sum("pod" in l for l, _ in p.samples(UTIL)) == 4)
        pods = {s.labels["gpu"]: s.labels["pod"] for s in judged(page) if s.name == UTIL}
        assert pods == {str(i): n for i, n in enumerate(names)}


def test_ids_of_any_form_own_nothing():
    ids = ["::", "", " ", "nvidia99999999999999999", "nvidia-1", "nvidia0/gi99999999999999", "MIG-", "x" * 2000, UUIDS[0] + "x",
           UUIDS[0][:-1], "GPU-" + "f" * 900]
    with exporter_with([gpu_row(f"p{i}", d) for i, d in enumerate(ids)] + [gpu_row("good", UUIDS[3])]) as exporter:
        page = exporter.page_when(lambda p: any(l.get("pod") == "good" for l, _ in p.samples(UTIL)))
        assert {s.labels.get("pod") for s in judged(page) if s.name == UTIL} == {None, "good"}
        assert page.value("podgpu_exporter_attribution_unknown_ids") >= 5


@pytest.mark.parametrize("arguments", [[], ["--kubernetes-virtual-gpus"]])
def test_ten_thousand_holders_of_one_gpu_are_cut_and_counted(arguments):
    rows = [gpu_row(f"pod-{i}", f"{UUIDS[0]}::{i}") for i in range(10000)]
    with exporter_with(rows, *arguments) as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_attribution_rows") == 10000, 20)
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) >= (4 if not arguments else 1000), 10)
        judged(page)
        cut = page.value("podgpu_exporter_series_dropped", reason="holders")
        if arguments:
            assert len(page.samples(UTIL)) == 1024 + 3 and cut == 10000 - 1023  # one is the GPU's own
        else:
            assert len(page.samples(UTIL)) == 4 and cut == 0
        begun = time.monotonic()
        exporter.page()
        assert time.monotonic() - begun < 1 * SLOW


def test_a_page_too_large_with_its_owners_goes_on_without_them_and_says_so():
    rows = [("n" * 20000, f"p{i}" + "x" * 20000, "c" * 20000, "nvidia.com/gpu", f"{UUIDS[i % 4]}::{i}") for i in range(250)]
    with exporter_with(rows, "--kubernetes-virtual-gpus") as exporter:
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_page_without_owners") == 1, 20)
        judged(page)
        assert len(page.samples(UTIL)) == 4
        first = page.value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml")
        exporter.page_when(lambda p: p.value("podgpu_exporter_last_sample_timestamp_seconds", source="nvml") > first, 5, "it goes on")
        assert exporter.log.count("page is too large") == 1


def replaced(**texts):
    text = DEMO
    for old, new in texts.values():
        assert old in text
        text = text.replace(old, new)
    return text


def escaped(text):
    return "'" + "".join(f"\\x{b:02x}" for b in text) + "'"


def test_two_gpus_of_one_uuid_are_two_gpus():
    with exporter_on("demo", text=replaced(uuid=(UUIDS[1], UUIDS[0]))) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        judged(page)
        # The kubelet names one of them: nobody knows which.
        assert [l.get("pod") for l, _ in page.samples(UTIL)][:2] in (["gpu-burn-c68d8c774-ltg9s", None], [None, None])


def test_a_driver_that_says_any_bytes_gives_a_page_all_the_same():
    every = bytes([*range(1, 32), 34, 92, 127, 128, 255])
    text = replaced(name=("name: NVIDIA A10G", f"name: {escaped(every)}"),
                    uuid=(f"uuid: {UUIDS[0]}", f"uuid: {escaped(b'GPU-' + every)}"),
                    serial=('serial: "1324121068497"', f"serial: {escaped(every)}"))
    counters = "DCGM_FI_DEV_GPU_UTIL, gauge, x\nDCGM_FI_DEV_SERIAL, label, y\nDCGM_FI_DEV_NAME, label, z\nDCGM_FI_DEV_UUID, label, u\n"
    with socket_folder() as folder:
        (folder / "c.csv").write_text(counters)
        with exporter_on("demo", text=text, counters=folder / "c.csv") as (node, exporter):
            page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
            samples = [s for s in judged(page) if s.name == UTIL]
            assert samples[0].labels["modelName"].startswith("\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e")
            assert samples[0].labels["UUID"].startswith("GPU-\x01")
            assert samples[0].labels["modelName"].isprintable() is False


@pytest.mark.parametrize("scenario, kind", [("mig", "label"), ("h100x8", "gauge"), ("h100x8", "histogram"), ("mig", "summary")])
def test_every_field_at_once(tmp_path, scenario, kind):
    names = [line.split("\t")[1] for line in (ROOT / "data" / "dcgm-fields.tsv").read_text().splitlines()[1:]]
    path = tmp_path / "counters.csv"
    path.write_text("".join(f"{n}, {kind}, h\n" for n in names if n.startswith("DCGM_FI")))
    with exporter_on(scenario, counters=path) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.text) > 100000, 20)
        judged(page)


def test_a_flood_of_different_xids_is_bounded():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        lines = exporter.log.count("\n")
        for i in range(600):
            node.write_kmsg(f"NVRM: Xid (PCI:0000:00:1b): {1000 + i}, pid='<unknown>', name=<unknown>, x")
            if i % 50 == 49:
                time.sleep(0.05)
        page = exporter.page_when(lambda p: len(p.samples("podgpu_gpu_xid_errors_total")) > 200, 15, "XIDs are told")
        time.sleep(0.5)
        page = exporter.page()
        judged(page)
        assert len(page.samples("podgpu_gpu_xid_errors_total")) <= 4 * 256 + 200
        assert exporter.log.count("\n") - lines < 250


@pytest.mark.parametrize("name", ['a"b\nc\\d', "x" * 255, "\u00e9\u2028", "a\x01b"])
def test_a_node_of_any_name_has_a_page(name):
    with exporter_on("demo", "--hostname-label=both", env={"NODE_NAME": name}) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        assert {(s.labels["hostname"], s.labels["Hostname"]) for s in judged(page) if s.name == UTIL} == {(name, name)}

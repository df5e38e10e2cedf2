# SPDX-License-Identifier: Apache-2.0
"""Whole pages of nodes with DCGM: each kind of entity with dcgm-exporter's labels, whichever source tells of it."""
import re
import subprocess

import pytest

from harness import ROOT, exporter_at, wait_until
import run_node  # noqa: E402, on the path by harness

SCENARIOS = ROOT / "sim" / "scenarios"
SOURCES = "podgpu_exporter_field_source_info"
SLOWEST = 60  # seconds; a slow field's first value comes within 30


def node_text(name, library=4):
    text = (SCENARIOS / f"{name}.yaml").read_text(encoding="utf-8")
    return re.sub(r"library: \d", f"library: {library}", text)


def node(name, library=4, **words):
    return run_node.SimNode(text=node_text(name, library), **words)


def labels(**pairs):
    return "{" + ",".join(f'{k}="{v}"' for k, v in pairs.items() if v is not None) + "}"


def family(name, kind, rows):
    """The lines of a family whose help is its type."""
    return "\n".join([f"# HELP {name} {kind}", f"# TYPE {name} {kind}", *(f"{name}{l} {v}" for l, v in rows)]) + "\n"


def counters_file(folder, *names):
    """NAME for a gauge, NAME=counter or NAME=label."""
    rows = [name.partition("=")[::2] for name in names]
    (folder / "counters.csv").write_text("".join(f"{n}, {kind or 'gauge'}, {kind or 'gauge'}\n" for n, kind in rows))
    return folder / "counters.csv"


def device_text(page):
    return "".join("\n".join(page.families[f]) + "\n" for f in page.device_families())


def expect(exporter, want, seconds=SLOWEST):
    """The page's device families are these to the byte, and promtool finds no error in the whole."""
    last = [None]

    def same():
        last[0] = exporter.page()
        return device_text(last[0]) == want
    try:
        wait_until(same, seconds, "the whole page")
    except AssertionError:
        assert device_text(last[0]) == want, exporter.log[-3000:]
        raise
    done = subprocess.run(["promtool", "check", "metrics"], input=last[0].text, text=True, capture_output=True, check=False)
    assert "error while linting" not in done.stderr
    return last[0]


def sources(page, field):
    return {l["source"] for l, _ in page.samples(SOURCES) if l["field"] == field}


# --- NVSwitches and links ---

FABRIC_OWNER = {"container": "worker", "namespace": "research", "pod": "pretrain-0"}
FABRIC_END = {"hostname": "fabric-0", "DCGM_FI_DRIVER_VERSION": "570.124.06"}
H100 = "NVIDIA H100 80GB HBM3"
FABRIC_COUNTERS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVSWITCH_VOLTAGE_MVOLT", "DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX=counter",
                   "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", "DCGM_FI_DEV_NVLINK_GET_STATE",
                   "DCGM_FI_DEV_NVLINK_THROUGHPUT_PER_LINK", "DCGM_FI_DRIVER_VERSION=label")


def fabric_gpu(i):
    return {"gpu": i, "uuid": f"GPU-5c0e2a71-7d1f-4b52-9c3e-0a4f6d8b1e0{i}", "bus": f"00000000:{('1B', '43')[i]}:00.0"}


def gpu_row(g, model, end, owner, **instance):
    return labels(gpu=g["gpu"], UUID=g["uuid"], pci_bus_id=g["bus"], device=f"nvidia{g['gpu']}", modelName=model, **instance,
                  **end, **owner)


def fabric_gpu_link(i, ordinal):
    g = fabric_gpu(i)
    return labels(nvlink=ordinal, gpu=i, gpu_uuid=g["uuid"], pci_bus_id=g["bus"], device=f"nvidia{i}", model_name=H100,
                  **FABRIC_END, **FABRIC_OWNER)


def fabric_switch(number):
    return labels(nvswitch=f"nvswitch{number}", **FABRIC_END)


def fabric_switch_link(number, index):
    return labels(nvlink=index, nvswitch=f"nvswitch{number}", **FABRIC_END)


# Of each device the links that are up; those of a GPU are counted from 1, the ones that are down included.
GPU_LINKS = [(0, 1), (0, 2), (0, 4), (1, 1), (1, 4)]
SWITCH_LINKS = [(0, 0), (0, 1), (0, 17), (3, 0)]


def fabric_page(gpus=(0, 1), switches=(0, 3), switch_links=True, links_of=(0, 1), per_link=True):
    """per_link: DCGM has the fields of single links of GPUs, which came with its 4.5 and 4.6."""
    parts = []
    gauge = lambda name, rows: parts.append(family(name, "gauge", rows) if rows else "")
    gauge("DCGM_FI_DEV_GPU_TEMP", [(gpu_row(fabric_gpu(i), H100, FABRIC_END, FABRIC_OWNER), 60 + i) for i in gpus])
    gauge("DCGM_FI_DEV_NVSWITCH_VOLTAGE_MVOLT", [(fabric_switch(s), 700 + s) for s in switches])
    tx = {(0, 0): 1000, (0, 1): 1001, (0, 17): 1017, (3, 0): 3000}
    shown = [(s, l) for s, l in SWITCH_LINKS if s in switches and switch_links]
    if shown:
        parts.append(family("DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX", "counter",
                            [(fabric_switch_link(s, l), tx[s, l]) for s, l in shown]))
    gauge("DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", [(fabric_switch(s), 41 + s) for s in switches])
    of_gpus = [(i, n) for i, n in GPU_LINKS if i in links_of and per_link]
    gauge("DCGM_FI_DEV_NVLINK_GET_STATE", [(fabric_gpu_link(i, n), 1) for i, n in of_gpus])
    gauge("DCGM_FI_DEV_NVLINK_THROUGHPUT_PER_LINK", [(fabric_gpu_link(i, n), 500 + 10 * i + n - 1) for i, n in of_gpus])
    return "".join(parts)


def set_fabric(n):
    for i in (0, 1):
        n.set(f"gpu{i}.temperature_c", str(60 + i))


@pytest.mark.parametrize("source, library", [("auto", 4), ("dcgm", 4), ("auto", 3)])
def test_switches_and_links_have_their_labels(source, library, tmp_path):
    with node("dcgm-fabric", library) as n:
        set_fabric(n)
        with exporter_at(n, f"--source={source}", "-c", "200", counters=counters_file(tmp_path, *FABRIC_COUNTERS)) as exporter:
            page = expect(exporter, fabric_page(per_link=library == 4))
            assert sources(page, "DCGM_FI_DEV_GPU_TEMP") == {"dcgm" if source == "dcgm" else "nvml"}
            assert sources(page, "DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX") == {"dcgm"}


@pytest.mark.parametrize("flags, page, missing", [
    (("-s", "g"), {"switch_links": False}, ""),
    (("-s", "g:3"), {"switches": (3,), "switch_links": False}, ""),
    (("-s", "g:3+i"), {"switches": (3,)}, ""),
    (("-s", "i:1"), {"switches": ()}, "couldn't find requested NvLink '1'"),
    (("-s", "g:0,7"), {"switches": ()}, "couldn't find requested NvSwitch ID '7'"),
    (("-d", "g:1"), {"gpus": (1,), "links_of": (1,)}, ""),
    (("-d", "i"), {"gpus": (), "links_of": ()}, ""),
    (("-d", "g:5", "-s", "g:0"), {"gpus": (), "links_of": (), "switches": (0,), "switch_links": False},
     "couldn't find requested GPU ID '5'"),
])
def test_flags_choose_switches_links_and_gpus(flags, page, missing, tmp_path):
    with node("dcgm-fabric") as n:
        set_fabric(n)
        with exporter_at(n, *flags, "-c", "200", counters=counters_file(tmp_path, *FABRIC_COUNTERS)) as exporter:
            got = expect(exporter, fabric_page(**page))
            assert got.value("podgpu_exporter_device_selection_ok") == (0 if missing else 1)
            assert missing in exporter.log and ("couldn't find" in exporter.log) == bool(missing)


# --- Grace CPUs and cores ---

GRACE_COUNTERS = ("DCGM_FI_DEV_CPU_UTIL_TOTAL", "DCGM_FI_DEV_CPU_TEMP_CURRENT", "DCGM_FI_DEV_CPU_CLOCK_CURRENT",
                  "DCGM_FI_DEV_CPU_POWER_LIMIT", "DCGM_FI_DEV_CPU_VENDOR=label", "DCGM_FI_DRIVER_VERSION=label")
GRACE_END = {"DCGM_FI_DRIVER_VERSION": "570.124.06"}


def grace_cpu(i):
    return labels(cpu=i, hostname="grace-0", DCGM_FI_DEV_CPU_VENDOR="NVIDIA", **GRACE_END)


def grace_core(i):
    return labels(cpucore=i, cpu=i // 4, hostname="grace-0", **GRACE_END)


def grace_page(cpus=(0, 1), cores=range(8)):
    own = lambda name, values: [(grace_cpu(i), values[i]) for i in cpus]
    each = lambda values: [(grace_core(i), values[i // 4]) for i in cores]
    return "".join(family(name, "gauge", rows) if rows else "" for name, rows in (
        ("DCGM_FI_DEV_CPU_UTIL_TOTAL", own("", ("0.250000", "0.750000")) + each(("0.500000", "0.875000"))),
        ("DCGM_FI_DEV_CPU_TEMP_CURRENT", own("", ("47.500000", "51.250000"))),
        ("DCGM_FI_DEV_CPU_CLOCK_CURRENT", own("", (3402000, 3393000)) + each((3402000, 3393000))),
        ("DCGM_FI_DEV_CPU_POWER_LIMIT", own("", ("500.000000", "500.000000")))))


@pytest.mark.parametrize("flags, page, missing", [
    ((), {}, ""),
    (("--source=dcgm",), {}, ""),
    (("-p", "g"), {"cores": ()}, ""),
    (("-p", "g:1"), {"cpus": (1,), "cores": ()}, ""),
    (("-p", "g:1+i:5-6"), {"cpus": (1,), "cores": (5, 6)}, ""),
    (("-p", "g:2"), {"cpus": (), "cores": ()}, "couldn't find requested CPU ID '2'"),
    (("-p", "g+i:9"), {"cores": ()}, "couldn't find requested CPU core '9'"),
])
def test_cpus_and_cores_have_their_labels_and_are_chosen(flags, page, missing, tmp_path):
    with node("dcgm-grace") as n:
        with exporter_at(n, *flags, "-c", "200", counters=counters_file(tmp_path, *GRACE_COUNTERS)) as exporter:
            expect(exporter, grace_page(**page))
            assert missing in exporter.log and ("couldn't find" in exporter.log) == bool(missing)


# --- GPU instances ---

MIG_COUNTERS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DRIVER_VERSION=label")
MIG_GPUS = [{"gpu": 0, "uuid": "GPU-3f5a8c17-6e2b-4d90-a7c4-1b9d0e4f6a00", "bus": "00000000:07:00.0"},
            {"gpu": 1, "uuid": "GPU-3f5a8c17-6e2b-4d90-a7c4-1b9d0e4f6a01", "bus": "00000000:0F:00.0"}]
A100 = "NVIDIA A100-SXM4-40GB"


def student(name):
    return {"container": "jupyter", "namespace": "students", "pod": name}


# (GPU, profile, number of the instance, who holds it, memory in use, GR_ENGINE_ACTIVE as a share of the GPU)
MIG_ROWS = [
    (0, "3g.20gb", 1, student("notebook-a"), 15000, "0.428571"),
    (0, "2g.10gb", 3, student("notebook-b"), 4000, "0.142857"),
    (0, "1g.5gb", 7, student("notebook-c"), 3000, "0.035714"),
    (0, "1g.5gb", 8, {}, 0, "0.000000"),
    (1, None, None, {"container": "worker", "namespace": "research", "pod": "batch-0"}, 20004, "0.900000"),
]


def mig_page(rows=MIG_ROWS):
    row = lambda r: gpu_row(MIG_GPUS[r[0]], A100, {"hostname": "a100-0", "DCGM_FI_DRIVER_VERSION": "535.183.01"}, r[3],
                            GPU_I_PROFILE=r[1], GPU_I_ID=r[2])
    return (family("DCGM_FI_DEV_GPU_TEMP", "gauge", [(row(r), 50 + r[0]) for r in rows]) +
            family("DCGM_FI_DEV_FB_USED", "gauge", [(row(r), r[4]) for r in rows]) +
            family("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", [(row(r), r[5]) for r in rows]))


def set_mig(n):
    for i in (0, 1):
        n.set(f"gpu{i}.temperature_c", str(50 + i))


@pytest.mark.parametrize("source, library", [("auto", 4), ("dcgm", 4), ("dcgm", 3)])
def test_instances_and_their_owners_are_the_same_from_either_source(source, library, tmp_path):
    """The kubelet names instances by MIG UUIDs, which DCGM alone has to lead to its entities, too."""
    with node("dcgm-mig", library) as n:
        set_mig(n)
        with exporter_at(n, f"--source={source}", "-c", "200", counters=counters_file(tmp_path, *MIG_COUNTERS)) as exporter:
            page = expect(exporter, mig_page())
            assert sources(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE") == {"dcgm"}
            assert sources(page, "DCGM_FI_DEV_FB_USED") == {"dcgm" if source == "dcgm" else "nvml"}


def test_dcgm_alone_chooses_instances_by_dcgms_ids(tmp_path):
    with node("dcgm-mig") as n:
        set_mig(n)
        counters = counters_file(tmp_path, *MIG_COUNTERS)
        with exporter_at(n, "--source=dcgm", "-d", "i:1-2", "-c", "200", counters=counters) as exporter:
            expect(exporter, mig_page(MIG_ROWS[1:3]))
        with exporter_at(n, "--source=dcgm", "-d", "g:1+i:0", "-c", "200", counters=counters) as exporter:
            expect(exporter, mig_page([MIG_ROWS[4], MIG_ROWS[0]]))
        with exporter_at(n, "--source=dcgm", "-d", "i:10", "-c", "200", counters=counters) as exporter:
            wait_until(lambda: "couldn't find requested GPU instance ID '10'" in exporter.log, 20, "logged")
            assert device_text(exporter.page()) == ""


# --- DCGM 3 ---

DCGM3_COUNTERS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                  "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES",
                  "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_DRIVER_VERSION=label")


@pytest.mark.parametrize("source", ["auto", "dcgm"])
def test_dcgm_3_gives_the_profiling_families_and_a_blank_of_0_is_no_value(source, tmp_path):
    """A record without a value is an integer 0 with a status in DCGM 3: MEMORY_TEMP, which an A10G has not."""
    def row(i, **more):
        g = {"gpu": i, "uuid": f"GPU-0d2c4b6a-8e7f-4190-a2b3-c4d5e6f7080{i}", "bus": f"00000000:00:1{'EF'[i]}.0"}
        return gpu_row(g, "NVIDIA A10G", {"hostname": "dcgm3-0", "DCGM_FI_DRIVER_VERSION": "525.147.05"}, more)
    both = lambda name, values, **more: family(name, "gauge", [(row(i, **more), v) for i, v in enumerate(values)])
    want = (both("DCGM_FI_DEV_GPU_TEMP", (70, 71)) +
            both("DCGM_FI_DEV_XID_ERRORS", (0, 0), err_code="0", err_msg="No Error") +
            both("DCGM_FI_PROF_GR_ENGINE_ACTIVE", ("0.750000", "0.375000")) +
            both("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", ("0.125000", "0.000000")) +
            both("DCGM_FI_PROF_DRAM_ACTIVE", ("0.500000", "0.250000")) +
            both("DCGM_FI_PROF_PCIE_TX_BYTES", (1000000, 1500000)) +
            both("DCGM_FI_PROF_PCIE_RX_BYTES", (2000000, 2500000)))
    with node("dcgm3", 3) as n:
        for i in (0, 1):
            n.set(f"gpu{i}.temperature_c", str(70 + i))
        with exporter_at(n, f"--source={source}", "-r", n.engine.address, "-c", "200",
                         counters=counters_file(tmp_path, *DCGM3_COUNTERS)) as exporter:
            page = expect(exporter, want)
            assert sources(page, "DCGM_FI_PROF_DRAM_ACTIVE") == {"dcgm"}
            missing = {l["reason"] for l, _ in page.samples("podgpu_exporter_field_unavailable_info")
                       if l["field"] == "DCGM_FI_DEV_MEMORY_TEMP"}
            assert missing == {"not_supported"}


# --- Joined by UUID ---

def test_gpus_are_joined_by_uuid_where_dcgm_counts_them_the_other_way_round(tmp_path):
    """The T4 is NVML's GPU 0 and DCGM's 1; its profiling values are its own, and the H100's come from NVML."""
    with node("dcgm-mixed") as n:
        n.command("dcgm set gpu0.1001=0.125")
        n.command("dcgm set gpu1.1001=0.875")  # nobody asks DCGM for it
        n.set("gpu0.temperature_c", "40")
        n.set("gpu1.temperature_c", "50")
        t4, h100 = (f"GPU-6a1b0c2d-3e4f-4a5b-8c6d-7e8f9a0b1c0{i}" for i in (0, 1))
        values = lambda p, f: {(l["gpu"], l["UUID"], l["pci_bus_id"]): v for l, v in p.samples(f)}
        prof, temp = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_TEMP"
        counters = counters_file(tmp_path, temp, prof)
        with exporter_at(n, "-c", "200", counters=counters) as exporter:
            page = exporter.page_when(lambda p: len(p.samples(prof)) == 2, 20, "both GPUs' profiling")
            assert values(page, prof) == {("0", t4, "00000000:00:1E.0"): "0.125000", ("1", h100, "00000000:1B:00.0"): "0.250000"}
            assert values(page, temp) == {("0", t4, "00000000:00:1E.0"): "40", ("1", h100, "00000000:1B:00.0"): "50"}
            assert sources(page, prof) == {"dcgm", "nvml_gpm"} and sources(page, temp) == {"nvml"}
        with exporter_at(n, "--source=dcgm", "-c", "200", counters=counters) as exporter:
            page = exporter.page_when(lambda p: len(p.samples(prof)) == 2 and len(p.samples(temp)) == 2, 20, "both GPUs")
            assert values(page, prof) == {("0", h100, "00000000:1B:00.0"): "0.875000", ("1", t4, "00000000:00:1E.0"): "0.125000"}
            assert values(page, temp) == {("0", h100, "00000000:1B:00.0"): "50", ("1", t4, "00000000:00:1E.0"): "40"}


# --- Every field ---

@pytest.mark.parametrize("library", [4, 3])
@pytest.mark.parametrize("scenario", ["dcgm-fabric", "dcgm-grace"])
def test_a_page_of_all_fields_is_one_that_scrapers_take(scenario, library, tmp_path):
    from prometheus_client.parser import text_string_to_metric_families
    table = [line.split("\t") for line in (ROOT / "data" / "dcgm-fields.tsv").read_text().splitlines()[1:]]
    assert len(table) == 657
    names = {int(row[0]): next(n for n in [row[1], *row[2].split(",")] if n.startswith("DCGM_")) for row in table}
    assert len(set(names.values())) == 657
    counters = tmp_path / "all.csv"
    counters.write_text("".join(f"{name}, gauge, {number}\n" for number, name in names.items()))
    with node(scenario, library) as n:
        with exporter_at(n, "--source=dcgm", "-c", "500", counters=counters) as exporter:
            slowest = {"dcgm-fabric": "DCGM_FI_DEV_NVSWITCH_TEMP_CELSIUS", "dcgm-grace": "DCGM_FI_DEV_CPU_POWER_LIMIT_WATTS"}
            page = exporter.page_when(lambda p: p.samples(slowest[scenario]) and
                                      p.samples("DCGM_FI_DEV_GPU_TEMP_CELSIUS"), SLOWEST, "values of both")
    done = subprocess.run(["promtool", "check", "metrics"], input=page.text, text=True, capture_output=True, check=False)
    assert "error while linting" not in done.stderr
    series = [(s.name, tuple(sorted(s.labels.items()))) for f in text_string_to_metric_families(page.text) for s in f.samples]
    assert len(series) == len(set(series))
    assert len(page.device_families()) > 60

"""The YAML configuration file, version 1 and 2: what it says, what flags override, and following it while running."""
import time

import pytest

from harness import SLOW, Exporter, run_to_end, wait_until

pytestmark = pytest.mark.faults

UTIL, TEMP, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"
FIELDS = """
metrics:
  enableExporterMetrics: true
  fields:
  - {name: DCGM_FI_DEV_GPU_UTIL, prometheusType: gauge, help: "How busy, in %."}
  - {name: DCGM_FI_DEV_POWER_USAGE, prometheusType: gauge, help: Watts}
  - {name: DCGM_FI_DRIVER_VERSION, prometheusType: label, help: Driver}
"""


@pytest.fixture(scope="module")
def node():
    import run_node
    with run_node.SimNode("demo", kubelet=False) as n:
        yield n


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.yaml"


def exporter_with(node, file, *flags, env=None):
    """Without -f, so that the file's metrics count."""
    return Exporter(["-a", "127.0.0.1:0", "--nvml-library", node.nvml_library, "--kmsg-path", "", "--config-file", file,
                     *flags], {"SIM_NODE": node.env["SIM_NODE"], **(env or {})})


class running:
    def __init__(self, *arguments, **keywords):
        self.exporter = exporter_with(*arguments, **keywords)

    def __enter__(self):
        return self.exporter

    def __exit__(self, *_):
        assert self.exporter.stop()[0] == 0


def calls(node, symbol):
    return node.node.calls(symbol)


@pytest.mark.parametrize("text", ids=["v1", "v2"], argvalues=["version: 1" + FIELDS + "collection: {interval: 200ms}\n",
                                  "version: 2" + FIELDS + "collections:\n- {name: all, every: 200ms, metrics: {include: ['*']}}\n"])
def test_fields_labels_period_and_process_metrics_come_from_the_file(node, file, text):
    file.write_text(text)
    with running(node, file) as exporter:
        page = exporter.page_when(lambda p: p.samples(POWER), what="devices")
        assert page.device_families() == [POWER, UTIL]
        assert page.families[UTIL][0] == f"# HELP {UTIL} How busy, in %."
        assert page.samples(UTIL)[0][0]["DCGM_FI_DRIVER_VERSION"] == "535.183.01"
        assert page.samples("process_resident_memory_bytes")
        before, begun = calls(node, "nvmlDeviceGetUtilizationRates"), time.monotonic()
        wait_until(lambda: calls(node, "nvmlDeviceGetUtilizationRates") >= before + 4 * 5, 10, "five samples")
        assert time.monotonic() - begun < 3 * SLOW


def test_the_counters_file_may_be_named_there_and_v1_groups_have_their_own_periods(node, file):
    (file.parent / "counters.csv").write_text(f"{UTIL},gauge,u\n{TEMP},gauge,t\nDCGM_FI_DEV_ECC_CURRENT,gauge,e\n")
    file.write_text(f"version: 1\nmetrics: {{file: {file.parent}/counters.csv}}\ncollection:\n  interval: 60s\n  watchGroups:\n"
                    "  - {name: ecc, interval: 300ms, fields: [DCGM_FI_DEV_ECC_*]}\n")
    with running(node, file) as exporter:
        page = exporter.page_when(lambda p: len(p.device_families()) == 3, what="devices")
        assert page.device_families() == [TEMP, UTIL, "DCGM_FI_DEV_ECC_CURRENT"]
        ecc = lambda: [v for s, v in node.counts().items() if "FieldValues" in s or "Ecc" in s]
        util = calls(node, "nvmlDeviceGetUtilizationRates")
        first = sum(c for c, _ in ecc())
        wait_until(lambda: sum(c for c, _ in ecc()) >= first + 4 * 4, 10, "ECC is asked for often")
        assert calls(node, "nvmlDeviceGetUtilizationRates") <= util + 4


@pytest.mark.parametrize("flags, env", [(["-c", "200"], {}), ([], {"DCGM_EXPORTER_INTERVAL": "200"})])
def test_flags_and_variables_override_the_file(node, file, flags, env):
    counters = file.parent / "flag.csv"
    counters.write_text(f"{TEMP},gauge,t\n{UTIL},gauge,u\n")
    file.write_text("version: 1" + FIELDS + "collection: {interval: 60s}\n")
    with running(node, file, "-f", counters, "--enable-exporter-metrics=false", *flags, env=env) as exporter:
        page = exporter.page_when(lambda p: p.samples(TEMP), what="devices")
        assert page.device_families() == [TEMP, UTIL]
        assert not page.samples("process_resident_memory_bytes")
        before = calls(node, "nvmlDeviceGetUtilizationRates")
        wait_until(lambda: calls(node, "nvmlDeviceGetUtilizationRates") >= before + 4 * 5, 5, "five samples")


def test_the_file_is_followed_without_an_empty_page_and_a_mistake_keeps_the_old_one(node, file):
    file.write_text("version: 2" + FIELDS)
    with running(node, file) as exporter:
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4, what="devices")
        file.write_text("version: 2" + FIELDS.replace("POWER_USAGE", "GPU_TEMP").replace("Watts", "Degrees"))
        def check(page):
            assert len(page.samples(UTIL)) == 4
            return page.samples(TEMP)
        page = exporter.page_when(check, 10, "the new field")
        assert not page.samples(POWER)
        file.write_text("version: 2" + FIELDS.replace("prometheusType", "prometeusType"))
        page = exporter.page_when(lambda p: p.value("podgpu_exporter_config_last_reload_success") == 0, 10, "told")
        assert len(page.samples(TEMP)) == 4
        assert f"{file}:5:" in exporter.log and "prometheusType" in exporter.log
        file.write_text("version: 2" + FIELDS)
        page = exporter.page_when(lambda p: p.samples(POWER), 10, "well again")
        assert page.value("podgpu_exporter_config_last_reload_success") == 1


@pytest.mark.parametrize("text, says", [
    ("version: 3\n", ["config.yaml:1:10", "3"]),
    ("version: 2\nmetrcs: {}\n", ["config.yaml:2:1", "metrcs", "metrics"]),
    ("version: 1\ncollection: {interval: soon}\n", ["config.yaml:2:", "soon"]),
    ("version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMPP, prometheusType: gauge, help: h}\n",
     ["config.yaml:4:", "DCGM_FI_DEV_GPU_TEMPP", "DCGM_FI_DEV_GPU_TEMP"]),
    ("version: 2\nmetrics: {file: nowhere.csv}\n", ["nowhere.csv"]),
    ("version: [\n", ["config.yaml:"]),
])
def test_a_bad_file_at_start_ends_with_status_1_and_is_placed(file, text, says):
    file.write_text(text)
    status, log = run_to_end(["-a", "127.0.0.1:0", "--config-file", file])
    assert status == 1
    errors = [l for l in log.splitlines() if "level=ERROR" in l]
    assert len(errors) == 1 and all(word in errors[0] for word in says), log


def test_a_missing_file_ends_with_status_1_and_is_named(tmp_path):
    status, log = run_to_end(["-a", "127.0.0.1:0"], {"DCGM_EXPORTER_CONFIG_FILE": str(tmp_path / "none.yaml")})
    assert status == 1 and "none.yaml" in log

"""Counters and configuration files as an unlucky administrator leaves them, at start and at a reload."""
import os
import re
import shutil
import signal
import time

import pytest

from harness import ROOT, SLOW, exporter_on, run_to_end, wait_until

pytestmark = pytest.mark.faults

STOCK = ROOT / "etc" / "default-counters.csv"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
ROW = "DCGM_FI_DEV_GPU_UTIL, gauge, x\n"


def gpus(exporter):
    return len(exporter.page().samples(UTIL))


def reload_ok(exporter):
    return exporter.page().value("podgpu_exporter_config_last_reload_success") == 1


def replace(path, make):
    """What stands there goes, make(path) comes."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif os.path.lexists(path):
        path.unlink()
    make(path)


ODD = {
    "directory": (lambda p: p.mkdir(), "Is a directory"),
    "fifo": (os.mkfifo, "not a file"),
    "endless": (lambda p: p.symlink_to("/dev/zero"), "larger than 1048576 bytes"),
    "circle": (lambda p: p.symlink_to(p.name), "Too many levels of symbolic links"),
    "nothing": (lambda p: None, "No such file or directory"),
    "random bytes": (lambda p: p.write_bytes(bytes(range(256)) * 8), "counters.csv:1:1: "),
    "a NUL": (lambda p: p.write_bytes(b"DCGM_FI_DEV_GPU_UTIL, gauge, a\0b\n"), "counters.csv:1:"),
    "no UTF-8": (lambda p: p.write_bytes(b"DCGM_FI_DEV_GPU_UTIL, gauge, \xff\xfe\n"), "the help is not UTF-8"),
    "over 1 MiB": (lambda p: p.write_text("# comment\n" * 110000), "larger than 1048576 bytes"),
    "a line too long": (lambda p: p.write_text(f'DCGM_FI_DEV_GPU_UTIL, gauge, {"x" * 5000}\n'), "more than 4096 bytes"),
    "an open quote": (lambda p: p.write_text('DCGM_FI_DEV_GPU_UTIL, gauge,"x\n' + ROW * 10), "counters.csv:1:"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_counters_file_at_start_is_one_clear_line(tmp_path, name):
    path = tmp_path / "counters.csv"
    ODD[name][0](path)
    status, output = run_to_end(["-a", "127.0.0.1:0", "-f", path])
    assert status == 1
    errors = [line for line in output.splitlines() if "level=ERROR" in line]
    assert len(errors) == 1 and ODD[name][1] in errors[0] and str(path) in errors[0], output


def test_what_becomes_of_the_counters_file_is_told_once_and_changes_nothing(tmp_path):
    path = tmp_path / "counters.csv"
    shutil.copy(STOCK, path)
    with exporter_on("demo", counters=path) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        for name, (make, says) in ODD.items():
            replace(path, make)
            before = exporter.log.count("configuration not taken")
            wait_until(lambda: says in exporter.log[-3000:], 10, f"{name} is told")
            wait_until(lambda: not reload_ok(exporter), 5, f"{name} is on the page")
            assert gpus(exporter) == 4
            assert exporter.log.count("configuration not taken") <= before + 1, name
        replace(path, lambda p: shutil.copy(STOCK, p))
        wait_until(lambda: reload_ok(exporter), 10, "the repair is seen")
        assert gpus(exporter) == 4


def test_a_file_that_is_being_written_never_empties_the_page(tmp_path):
    path = tmp_path / "counters.csv"
    path.write_text(ROW)
    with exporter_on("demo", counters=path) as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        with open(path, "w") as f:  # truncated, then nothing for longer than any debounce
            f.flush()
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                assert gpus(exporter) == 4
                time.sleep(0.05)
            f.write(ROW + "DCGM_FI_DEV_FB_USED, gauge, y\n")
        exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_FB_USED")) == 4, 10, "the whole file")
        assert "the file is empty" in exporter.log


def test_the_repair_of_a_file_that_a_refused_configuration_named_is_seen(tmp_path):
    first, second, config = tmp_path / "first.csv", tmp_path / "second.csv", tmp_path / "config.yaml"
    first.write_text(ROW)
    second.write_text("nonsense\n")
    config.write_text(f"version: 1\nmetrics: {{file: {first}}}\n")
    import run_node
    from harness import Exporter
    with run_node.SimNode("demo") as node:
        exporter = Exporter(["-a", "127.0.0.1:0", "--config-file", config, "--nvml-library", node.nvml_library,
                             "--kmsg-path="], {"SIM_NODE": node.env["SIM_NODE"]})
        try:
            exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
            config.write_text(f"version: 1\nmetrics: {{file: {second}}}\n")
            wait_until(lambda: f"{second}:1:1" in exporter.log, 10, "the mistake is told")
            second.write_text("DCGM_FI_DEV_FB_USED, gauge, y\n")
            exporter.page_when(lambda p: len(p.samples("DCGM_FI_DEV_FB_USED")) == 4, 10, "the repair")
        finally:
            assert exporter.stop()[0] == 0


def test_signals_in_a_row_cost_the_driver_nothing_and_fill_no_disk():
    with exporter_on("demo") as (node, exporter):
        exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        call = "nvmlDeviceGetUtilizationRates"
        before, lines = node.counts()[call][0], exporter.log.count("\n")
        begun = time.monotonic()
        sent = 0
        while time.monotonic() - begun < 3:
            exporter.process.send_signal(signal.SIGHUP)
            sent += 1
            time.sleep(0.002)
        asked = node.counts()[call][0] - before
        assert sent > 300 / SLOW
        assert asked <= 4 * (3 + 2) * SLOW, f"{asked} calls in {time.monotonic() - begun} s"
        assert exporter.log.count("\n") - lines < 250
        exporter.page_when(lambda p: p.value("podgpu_exporter_config_reloads_total") > 100, 5, "they were looked at")


def test_five_thousand_rows_under_all_names_of_their_fields(tmp_path):
    names = [line.split("\t") for line in (ROOT / "data" / "dcgm-fields.tsv").read_text().splitlines()[1:]]
    rows = [f"{n}, gauge, h\n" for row in names for n in (row[1], row[2], row[13]) if re.fullmatch(r"(DCGM_FI|dcgm_)\w+", n)]
    path = tmp_path / "counters.csv"
    path.write_text("".join(rows * 6))
    assert len(rows) * 6 > 5000 and path.stat().st_size < 1 << 20
    with exporter_on("h100x8", counters=path) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples("podgpu_gpu_up")) == 8 and len(p.text) > 100000, 20)
        lines = [line.rsplit(" ", 1)[0] for line in page.text.split("\n") if line and line[0] != "#"]
        assert len(lines) == len(set(lines)) > 1000


YAML = {
    "deep": ("version: 1\nmetrics: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    "laughs": ("a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)), "too many values"),
    "nul": ("version: 1\0\n", "config.yaml:1:"),
    "tab": ("version: 1\nmetrics:\n\tfile: x\n", "config.yaml:3:"),
    "two documents": ("version: 1\n---\nversion: 1\n", "a second document"),
    "twice": ("version: 1\nversion: 2\n", "stands here twice"),
    "a list": ("- version: 1\n", "config.yaml:1:1"),
    "over 1 MiB": ("# x\n" * 300000, "larger than 1048576 bytes"),
    "not a number": ("version: 99999999999999999999\n", "config.yaml:1:10"),
}


@pytest.mark.parametrize("name", YAML)
def test_an_odd_yaml_file_is_one_clear_line(tmp_path, name):
    text, says = YAML[name]
    path = tmp_path / "config.yaml"
    path.write_text(text)
    begun = time.monotonic()
    status, output = run_to_end(["-a", "127.0.0.1:0", "-f", STOCK, "--config-file", path])
    errors = [line for line in output.splitlines() if "level=ERROR" in line]
    assert status == 1 and len(errors) == 1 and says in errors[0], output
    assert time.monotonic() - begun < 3 * SLOW


UNUSUAL = {
    "byte order mark": b"\xef\xbb\xbf" + ROW.encode(),
    "carriage returns": ROW.replace("\n", "\r\n").encode(),
    "no last newline": ROW.strip().encode(),
    "help with everything": b'DCGM_FI_DEV_GPU_UTIL, gauge,"a ""q"" \\ \\n\nnext # line, \xc3\xa9"\n',
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_counters_file_is_understood(tmp_path, name):
    path = tmp_path / "counters.csv"
    path.write_bytes(UNUSUAL[name])
    with exporter_on("demo", counters=path) as (node, exporter):
        page = exporter.page_when(lambda p: len(p.samples(UTIL)) == 4)
        assert page.families[UTIL][1] == f"# TYPE {UTIL} gauge"

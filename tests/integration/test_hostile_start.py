"""Started by someone careless: descriptors, /proc, the log's reader, paths that lead to odd things."""
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from harness import BUILD, ROOT, SLOW, Exporter, wait_until

pytestmark = pytest.mark.faults

PROGRAM = str(BUILD / "podgpu-exporter")
STOCK = str(ROOT / "etc" / "default-counters.csv")
ALONE = ["-f", STOCK, "--nvml-library", "/nonexistent/libnvidia-ml.so.1", "--kmsg-path="]


def ask(path, what="/metrics", seconds=5):
    """(status, body) of a request over a unix socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(seconds * SLOW)
        s.connect(str(path))
        s.sendall(f"GET {what} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        data = b""
        while piece := s.recv(1 << 16):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def answers(path, what="/metrics"):
    try:
        return ask(path, what)[0] == 200
    except OSError:
        return False


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("closed", ["2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_do_no_harm(tmp_path, closed):
    address = tmp_path / "s"
    command = f'exec "$0" "$@" {closed}'
    process = subprocess.Popen(["bash", "-c", command, PROGRAM, "-a", f"unix:{address}", *ALONE],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(address, "/readyz"), 10, "ready, so the helper speaks")
        for fd in (0, 1, 2):
            assert not os.readlink(f"/proc/{process.pid}/fd/{fd}").startswith(("socket:", "anon_inode:", "pipe:[0"))
    finally:
        process.terminate()
        assert process.wait(10 * SLOW) == 0


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_that_cannot_be_written_is_an_error(flag):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, flag], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "cannot write to stdout" in done.stderr


def test_a_log_that_nobody_reads_holds_nothing_up(tmp_path):
    address, counters = tmp_path / "s", tmp_path / "counters.csv"
    counters.write_text("nonsense\n")
    reader, writer = os.pipe()
    process = subprocess.Popen([PROGRAM, "-a", f"unix:{address}", *ALONE], stderr=writer)
    os.close(writer)
    try:
        wait_until(lambda: answers(address), 10, "first page")
        for _ in range(1000):  # two lines each, 100 KB: more than a pipe takes
            process.send_signal(signal.SIGHUP)
            time.sleep(0.0005)
        begun = time.monotonic()
        assert ask(address)[0] == 200
        assert time.monotonic() - begun < 2 * SLOW
    finally:
        process.terminate()
        status = process.wait(5 * SLOW)
        os.close(reader)
    assert status == 0


def test_a_log_whose_reader_went_away_ends_nothing(tmp_path):
    address = tmp_path / "s"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.Popen([PROGRAM, "-a", f"unix:{address}", *ALONE], stderr=writer)
    os.close(writer)
    try:
        wait_until(lambda: answers(address), 10, "first page")
    finally:
        process.terminate()
        assert process.wait(10 * SLOW) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace")
def test_it_finds_its_helper_without_proc(tmp_path):
    address = tmp_path / "s"
    process = subprocess.Popen(["unshare", "-m", "bash", "-c", 'umount -l /proc && exec "$0" "$@"', PROGRAM, "-a",
                                f"unix:{address}", *ALONE], stderr=subprocess.PIPE, text=True)
    try:
        if process.poll() is None:
            wait_until(lambda: process.poll() is not None or answers(address), 10, "first page")
        said = process.stderr.read() if process.poll() is not None else ""
        if said.startswith(("unshare: ", "umount: ")):
            pytest.skip("no mount namespaces here")
        assert process.poll() is None, said
    finally:
        process.terminate()
        process.wait(10 * SLOW)


@pytest.mark.parametrize("log", ["directory", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/null", "file", "loop"])
def test_a_kernel_log_that_is_none_costs_nothing(tmp_path, log):
    path = log if log.startswith("/") else tmp_path / log
    if log == "directory":
        path.mkdir()
    elif log == "file":
        path.write_bytes(b"3,1,1,-;NVRM: Xid (PCI:0000:00:1b): 79\n" * 1000)
    elif log == "loop":
        path.symlink_to("loop")
    exporter = Exporter(["-a", "127.0.0.1:0", *ALONE[:-1], "--kmsg-path", path])
    try:
        wait_until(lambda: exporter.get("/readyz")[0] == 200, 10, "ready")
        helper = exporter.helper_pid()
        before = cpu_seconds(helper)
        time.sleep(0.5)
        assert cpu_seconds(helper) - before < 0.1 * SLOW
        assert exporter.log.count("kernel log") == (0 if log == "file" else 1)
    finally:
        assert exporter.stop()[0] == 0


def test_a_library_whose_loading_hangs_is_told_and_everything_answers(tmp_path):
    library = tmp_path / "libnvidia-ml.so.1"
    os.mkfifo(library)  # opening it waits for ever, as a file on a server that is gone
    exporter = Exporter(["-a", "127.0.0.1:0", "-f", STOCK, "--nvml-library", library, "--kmsg-path=", f"--call-deadline={SLOW}s"])
    try:
        exporter.page_when(lambda p: p.value("podgpu_exporter_errors_total", source="nvml", code="hung") >= 1, 10, "it counts as hung")
        assert "call=dlopen" in exporter.log
        assert exporter.get("/livez")[0] == 200
        assert exporter.get("/readyz")[0] == 503
    finally:
        status, seconds = exporter.stop()
    assert status == 0 and seconds < 2 * SLOW


@pytest.mark.parametrize("rubbish", [b"x" * 70000, b"\xff\n\x01%s%n", b"", b"-9223372036854775809"], ids=["long", "bytes", "empty", "number"])
def test_rubbish_in_any_flag_or_variable_ends_in_one_readable_line_or_does_nothing(rubbish):
    text = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    flags, variables = re.findall(r"^  (--[\w-]+)", text, re.M), re.findall(r"Variable:\s+(\w+)\.", text)
    assert len(flags) > 60 and len(variables) > 55
    # What survives the command line ends at this file.
    end = ["--config-file=/nonexistent/config.yaml"]
    for name in flags + variables:
        is_flag = name.startswith("--")
        arguments = [name.encode() + b"=" + rubbish] if is_flag else []
        done = subprocess.run([PROGRAM, *arguments, *([] if name == "--config-file" else end)], capture_output=True, check=False,
                              env=None if is_flag else {name: rubbish}, timeout=20 * SLOW)
        assert done.returncode == (0 if done.stdout else 1), (name, done)
        errors = [line for line in done.stderr.split(b"\n") if b"ERROR" in line]
        assert done.stdout or len(errors) == 1, (name, done)
        assert all(len(line) < 4096 and not re.search(rb"[\x00-\x1f]", line) for line in done.stderr.split(b"\n")), (name, done)

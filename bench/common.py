# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: the table, CPU time of processes, the yardstick server."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "integration"), str(ROOT / "sim")]
from harness import BUILD  # noqa: E402


def row(what, measured, target="-"):
    print(f"| {what} | {measured} | {target} |", flush=True)


def cpu_us(pid):
    """Run time of the main thread as the scheduler counts it."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


def process_cpu_us(pid):
    """Of all threads that it has now."""
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            total += cpu_us(f"{pid}/task/{t}")
    return total


@contextlib.contextmanager
def bare_server(body, *certificate):
    """(port, pid) of libmicrohttpd serving one body on all addresses; certificate: files of certificate and key for TLS."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        server = subprocess.Popen([BUILD / "bench" / "bare_server", file.name, *certificate],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield int(server.stdout.readline()), server.pid
        finally:
            server.stdin.close()
            server.wait(10)

# SPDX-License-Identifier: Apache-2.0
"""What tests of memory and the benchmarks measure with: memory of processes, scrapes, bench_soak, a wide counters file."""
import os
import pathlib
import re
import socket
import subprocess

from harness import BUILD, ROOT

STOCK = ROOT / "etc" / "default-counters.csv"


def memory_kib(pid, what):
    """what: Pss; Rss; Anonymous, which other processes don't move."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(rf"^{what}:\s+(\d+)", text, re.M)[1])


def pss_kib(pid):
    return memory_kib(pid, "Pss")


class Client:
    """A scraper that keeps its connection."""

    def __init__(self, port, gzip=False):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        extra = b"Accept-Encoding: gzip\r\n" if gzip else b""
        self.request = b"GET /metrics HTTP/1.1\r\nHost: client\r\n" + extra + b"\r\n"

    def _receive(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the exporter closed the connection")
        return data

    def scrape(self):
        """Returns the size of the body."""
        self.socket.sendall(self.request)
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, body = data.split(b"\r\n\r\n", 1)
        size = int(re.search(rb"Content-Length: (\d+)", head)[1])
        left = size - len(body)
        while left > 0:
            left -= len(self._receive())
        return size

    def close(self):
        self.socket.close()


def a10g_node(gpus=8):
    """A node of GPUs whose profiling fields only DCGM has; no engine runs."""
    rows = "".join(f'  - {{model: a10g, uuid: GPU-5f0a9c11-3c2b-4b53-9f6e-8d1d0f3b7a{i:02}, bus_id: "00000000:{i + 16:02X}:00.0", '
                   'dcgm: {values: {1001: 0.5, 1004: 0.25, 1005: 0.125, 1009: 1000, 1010: 2000}}}\n' for i in range(gpus))
    return ("driver: {version: 550.90.07, cuda: 12040}\nmodels: models.yaml\ngpus:\n" + rows +
            "dcgm: {library: 4, engine: none}\n")


def has_profiling(page, gpus=8):
    """Of every GPU, the families of the stock counters that DCGM gives there."""
    return all(len(page.samples(f)) == gpus for f in ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PCIE_RX_BYTES"))


def wide_counters(path, count=120):
    """Writes a counters file of fields that NVML can give on a Hopper MIG node."""
    table = lambda name: [line.split("\t") for line in (ROOT / "data" / name).read_text().splitlines()[1:]]
    origins = {c[0] for c in table("field-origins.tsv") if c[1] in ("call", "field_value", "gpm")}
    fields = [c for c in table("dcgm-fields.tsv") if c[0] in origins and c[4] in ("i64", "double") and c[6].startswith("GPU")]
    lines = [f"{c[1]}, gauge, Field {c[0]}\n" for c in fields if c[1].startswith("DCGM_FI_")][:count]
    assert len(lines) == count
    pathlib.Path(path).write_text("".join(lines))
    return path


def soak(samples, gpus, instances, counters, *flags, exact=False):
    """What bench_soak prints: ({name: number}, [(sample, bytes of heap)]). exact: without the allocator's caches, which
    fill up slowly and count as in use; slower."""
    env = dict(os.environ, GLIBC_TUNABLES="glibc.malloc.tcache_count=0") if exact else None
    command = [BUILD / "bench" / "bench_soak", str(samples), str(gpus), str(instances), "-k", "-f", counters, *flags]
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    heap = [(int(s), int(h)) for s, h in re.findall(r"^sample=(\d+) heap=(\d+)$", text, re.M)]
    return {k: int(v) for k, v in re.findall(r"^(\w+)=(\d+)$", text, re.M)}, heap


def ledger_soak(samples, counters, exact=False):
    """The same of bench_ledger."""
    env = dict(os.environ, GLIBC_TUNABLES="glibc.malloc.tcache_count=0") if exact else None
    command = [BUILD / "bench" / "bench_ledger", str(samples), "-k", "-f", counters]
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    heap = [(int(s), int(h)) for s, h in re.findall(r"^sample=(\d+) heap=(\d+)$", text, re.M)]
    return {k: int(v) for k, v in re.findall(r"^(\w+)=(\d+)$", text, re.M)}, heap

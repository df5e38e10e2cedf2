# SPDX-License-Identifier: Apache-2.0
"""The exporter's end of a podgpu-source process, spoken from Python with struct alone: src/gpu/frame.h is the contract."""
import ctypes
import dataclasses
import mmap
import os
import pathlib
import signal
import socket
import struct
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PODGPU_BUILD", ROOT / "build"))
PROGRAM = BUILD / "podgpu-source"

PROTOCOL = 3
HELLO, STATE, ENTITIES, SAMPLE, EVENTS, WATCH, HEALTH, PEERS, CONTROL, CONTROL_DONE, USAGE = range(1, 12)
PAUSE, RESUME = 1, 2
FAST, MEDIUM, SLOW, STATIC = range(4)
S = 1_000_000_000
STATES = ["ready", "no_library", "no_driver", "no_permission", "mismatch", "failed"]
STATUSES = ["ok", "no_data", "not_supported", "no_symbol", "no_permission", "needs_dcgm", "needs_gpm", "lost",
            "vendor_error", "invalid", "avoided", "not_connected", "in_use", "paused"]
ENTITY_STATES = ["up", "lost", "reset_required", "no_permission", "skipped", "failed"]
NONE32 = 0xFFFFFFFF


def text(raw):
    assert b"\0" in raw
    return raw.split(b"\0", 1)[0].decode()


@dataclasses.dataclass
class State:
    code: str
    vendor_code: int
    xid_events_armed: int
    kmsg_armed: int
    text: str
    driver_version: str
    library_version: str
    library_path: str
    paused: int = 0
    profiling_code: int = 0
    engine: str = ""


@dataclasses.dataclass
class Entity:
    kind: int
    state: str
    mig_enabled: int
    gpm: int
    index: int
    parent: int
    minor: int
    gpu_instance_id: int
    instance_entity_id: int
    id: int
    profile_id: int
    placement: int
    slices: int
    total_slices: int
    uuid: str
    legacy_uuid: str
    name: str
    bus_id: str
    profile: str

    @property
    def is_gpu(self):
        return self.kind == 1


@dataclasses.dataclass
class Record:
    entity: int
    field: int
    status: str
    value: object
    taken_ns: int


@dataclasses.dataclass
class Sample:
    generation: int
    watch_id: int
    classes: int
    vendor_calls: int
    started_ns: int
    ended_ns: int
    records: list

    def get(self, field, entity=0):
        """The last record of the field: its value, or its status when there is none. KeyError: no record."""
        for r in reversed(self.records):
            if r.field == field and r.entity == entity:
                return r.value if r.status == "ok" else r.status
        raise KeyError((field, entity))

    def has(self, field, entity=0):
        return any(r.field == field and r.entity == entity for r in self.records)


@dataclasses.dataclass
class Event:
    entity: int
    origin: str
    xid: int
    gpu_instance_id: int
    repeats: int
    taken_ns: int
    wall_ns: int
    text: str

    @property
    def count(self):
        return self.repeats + 1


def parse(kind, body):
    if kind == HELLO:
        return struct.unpack("=IIiI", body)
    if kind == STATE:
        code, vendor, xid, kmsg, a, b, c, d, paused, profiling, engine = struct.unpack("=IiII256s80s80s256sIi128s", body)
        return State(STATES[code], vendor, xid, kmsg, text(a), text(b), text(c), text(d),
                     paused, profiling, text(engine))
    if kind == ENTITIES:
        return parse_entities(body)
    if kind == SAMPLE:
        return parse_sample(body)
    if kind == EVENTS:
        generation, count = struct.unpack_from("=II", body)
        events = []
        for row in struct.iter_unpack("=IIIIIIQQ160s", body[8:]):
            events.append(Event(row[0], ["", "nvml", "kmsg", "dcgm"][row[1]], *row[2:5], *row[6:8], text(row[8])))
        assert len(events) == count
        return generation, events
    if kind == HEALTH:
        return parse_table(body, "=IIII", lambda row: Verdict(*row))
    if kind == PEERS:
        return parse_table(body, "=IIII", lambda row: Peer(*row[:3]))
    if kind == USAGE:
        return parse_usage(body)
    if kind == CONTROL_DONE:
        number, code, why = struct.unpack("=Ii120s", body)
        return ControlDone(number, code, text(why))
    raise AssertionError(f"frame type {kind}")


ENTITY = struct.Struct("=BBBBIIIIIIIIII96s96s96s32s32s")


def parse_entities(body):
    generation, count = struct.unpack_from("=II", body)
    entities = []
    for row in ENTITY.iter_unpack(body[8:]):
        strings = [text(s) for s in row[14:]]
        entities.append(Entity(row[0], ENTITY_STATES[row[1]], *row[2:14], *strings))
    assert len(entities) == count
    return generation, entities


def parse_sample(body):
    head = struct.Struct("=IIIIIIQQ")
    generation, watch_id, classes, count, string_bytes, calls, started, ended = head.unpack_from(body)
    records, strings = [], body[head.size + 24 * count:]
    assert len(strings) == string_bytes
    for at in range(head.size, head.size + 24 * count, 24):
        entity, field, status, kind, taken = struct.unpack_from("=IHBBQ", body, at)
        value = None
        if kind == 1:
            value = struct.unpack_from("=q", body, at + 16)[0]
        elif kind == 2:
            value = struct.unpack_from("=d", body, at + 16)[0]
        elif kind == 3:
            place = struct.unpack_from("=Q", body, at + 16)[0]
            value = strings[place >> 32:(place >> 32) + (place & NONE32)].decode()
        elif STATUSES[status] == "vendor_error":
            value = struct.unpack_from("=q", body, at + 16)[0]
        assert (STATUSES[status] == "ok") == (kind != 0)
        records.append(Record(entity, field, STATUSES[status], value, taken))
    return Sample(generation, watch_id, classes, calls, started, ended, records)


@dataclasses.dataclass
class Verdict:
    entity: int
    system: int
    result: int
    code: int


@dataclasses.dataclass
class Peer:
    entity: int
    peer: int
    status: int


def parse_table(body, layout, make):
    """HEALTH and PEERS: (generation, rows)."""
    generation, count, _taken = struct.unpack_from("=IIQ", body)
    rows = [make(row) for row in struct.iter_unpack(layout, body[16:])]
    assert len(rows) == count
    return generation, rows


BUSY, SHARES, PROCESSES, ENERGY, MEMORY, GAP = (1 << bit for bit in range(6))
COMPUTE, GRAPHICS, MPS = 1, 2, 4


@dataclasses.dataclass
class UsageDevice:
    entity: int
    flags: int
    taken_ns: int
    energy_mj: int
    memory_used: int
    memory_total: int
    busy_to_ns: int
    shares_to_ns: int
    spans: list = dataclasses.field(default_factory=list)      # (from_ns, to_ns, ppm, filled)
    shares: list = dataclasses.field(default_factory=list)     # (from_ns, to_ns, pid, ppm)
    processes: dict = dataclasses.field(default_factory=dict)  # pid: (kinds, memory, None: not known)


@dataclasses.dataclass
class Usage:
    generation: int
    vendor_calls: int
    started_ns: int
    ended_ns: int
    devices: dict  # by entity


def parse_usage(body):
    head = struct.Struct("=6I2Q")
    generation, count, spans, shares, processes, calls, started, ended = head.unpack_from(body)
    layouts = [struct.Struct(x) for x in ("=II6Q4I", "=QQII", "=QQII", "=IIQ")]
    rows, at = [], head.size
    for layout, n in zip(layouts, (count, spans, shares, processes)):
        rows.append(list(layout.iter_unpack(body[at:at + n * layout.size])))
        at += n * layout.size
    assert at == len(body)
    usage = Usage(generation, calls, started, ended, {})
    spans, shares, processes = map(iter, rows[1:])
    for row in rows[0]:
        device = UsageDevice(*row[:8])
        device.spans = [next(spans) for _ in range(row[8])]
        device.shares = [next(shares) for _ in range(row[9])]
        for pid, kinds, memory in (next(processes) for _ in range(row[10])):
            assert pid not in device.processes
            device.processes[pid] = (kinds, None if memory == 2**64 - 1 else memory)
        usage.devices[device.entity] = device
    return usage


@dataclasses.dataclass
class ControlDone:
    number: int
    code: int
    text: str


class Closed(Exception):
    pass


class Source:
    """A running podgpu-source. Frames of kinds that were not waited for are kept for later."""

    def __init__(self, *arguments, env=None, program=PROGRAM, receive_buffer=None, vendor="nvml"):
        ours, theirs = socket.socketpair()
        if receive_buffer:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_buffer)
        page = os.memfd_create("calls", 0)
        os.ftruncate(page, 4096)
        self.page = mmap.mmap(page, 4096)
        self.socket = ours
        self.kept = []
        self.bytes = b""
        self.watches = self.controls = 0
        self.log = os.memfd_create("log", 0)
        pairs = {theirs.fileno(): 3, page: 4}
        self.process = subprocess.Popen(
            [str(program), vendor, *map(str, arguments)], env={**os.environ, **(env or {})}, stderr=self.log,
            close_fds=False, preexec_fn=lambda: place_descriptors(pairs))
        theirs.close()
        os.close(page)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stderr(self):
        os.lseek(self.log, 0, os.SEEK_SET)
        return os.read(self.log, 1 << 20).decode()

    def watch(self, fields, periods=(S, 10 * S, 30 * S, 600 * S), gpus=2**64 - 1, usage=0):
        self.watches += 1
        ids = sorted(set(fields))
        body = struct.pack("=II6Q", self.watches, len(ids), *periods, gpus, usage) + struct.pack(f"={len(ids)}H", *ids)
        self.socket.sendall(struct.pack("=IHH", len(body), WATCH, PROTOCOL) + body)

    def control(self, command, timeout=10):
        """PAUSE or RESUME: its answer."""
        self.controls += 1
        self.socket.sendall(struct.pack("=IHHII", 8, CONTROL, PROTOCOL, command, self.controls))
        return self.next(CONTROL_DONE, timeout, lambda done: done.number == self.controls)

    def read_frame(self, deadline):
        while True:
            if len(self.bytes) >= 8:
                size, kind, protocol = struct.unpack_from("=IHH", self.bytes)
                assert protocol == PROTOCOL and size <= 4 << 20
                if len(self.bytes) >= 8 + size:
                    body, self.bytes = self.bytes[8:8 + size], self.bytes[8 + size:]
                    return kind, parse(kind, body)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no frame; kept {[k for k, _ in self.kept]}; log: {self.stderr()}")
            self.socket.settimeout(left)
            try:
                more = self.socket.recv(1 << 16)
            except socket.timeout:
                continue
            if not more:
                raise Closed(self.stderr())
            self.bytes += more

    def next(self, kind, timeout=10, where=lambda frame: True):
        """The next frame of the kind that satisfies `where`; others of that kind are dropped, other kinds kept."""
        deadline = time.monotonic() + timeout
        while True:
            for i, (k, frame) in enumerate(self.kept):
                if k == kind:
                    del self.kept[i]
                    if where(frame):
                        return frame
                    break
            else:
                k, frame = self.read_frame(deadline)
                if k == kind and where(frame):
                    return frame
                if k != kind:
                    self.kept.append((k, frame))

    def state(self, code, timeout=10):
        return self.next(STATE, timeout, lambda s: s.code == code)

    def entities(self, timeout=10, where=lambda e: True):
        return self.next(ENTITIES, timeout, lambda frame: where(frame[1]))[1]

    def sample(self, timeout=10, where=lambda s: True):
        return self.next(SAMPLE, timeout, where)

    def usage(self, timeout=10, where=lambda u: True):
        return self.next(USAGE, timeout, where)

    def events(self, timeout=10):
        return self.next(EVENTS, timeout)[1]

    def call_in_flight(self):
        """(entered_ns, GPU index, function) of the shared page; entered_ns 0: none."""
        entered, index, _calls, name = struct.unpack_from("=QII64s", self.page)
        return entered, index, text(name)

    def calls(self):
        return struct.unpack_from("=QII", self.page)[2]

    def kmsg_seq(self):
        """Number of the kernel's record up to which all is told."""
        return struct.unpack_from("=Q", self.page, 80)[0]

    def turns(self):
        return struct.unpack_from("=I", self.page, 88)[0]

    def wait(self, timeout=10):
        return self.process.wait(timeout)


def place_descriptors(pairs):
    """In the child: descriptor k becomes pairs[k], and only those and the standard ones stay."""
    high = {os.dup(k) if k < 10 else k: v for k, v in pairs.items()}
    moved = {}
    for k, v in high.items():
        moved[os.dup2(k, 100 + v)] = v
    for k, v in moved.items():
        os.dup2(k, v)
    os.closerange(5, 256)

# SPDX-License-Identifier: Apache-2.0
"""The simulated node from Python: libsimnode.so by ctypes. Nothing of the truth is computed here."""
import ctypes
import json
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

BUILD = Path(os.environ.get("PODGPU_BUILD", Path(__file__).resolve().parent.parent / "build"))
NONE = 0xFFFFFFFF
NODE = 16  # as a GPU: the node's own signals
NS = 1_000_000_000


class Event(ctypes.Structure):
    _fields_ = [("at_ns", c_int64), ("type", c_uint64), ("data", c_uint64), ("gpu", c_uint32), ("gi", c_uint32),
                ("ci", c_uint32), ("flags", c_uint32)]


EVENT_NVML = 1
EVENT_KMSG = 2


class Instance(ctypes.Structure):
    _fields_ = [("gpu", c_uint32), ("gi", c_uint32), ("ci", c_uint32), ("slot", c_uint32), ("gi_slices", c_uint32),
                ("ci_slices", c_uint32), ("profile", c_uint32), ("uuid", c_uint32), ("profile_id", c_uint32),
                ("placement", c_uint32), ("placement_size", c_uint32), ("multiprocessors", c_uint32), ("engines", c_uint32),
                ("reserved", c_uint32), ("memory_bytes", c_int64), ("from_ns", c_int64), ("until_ns", c_int64)]


class Process(ctypes.Structure):
    _fields_ = [("gpu", c_uint32), ("instance", c_uint32), ("pid", c_uint32), ("type", c_uint32),
                ("memory_bytes", c_int64), ("start_ns", c_int64), ("end_ns", c_int64), ("name", c_uint32),
                ("load", c_uint32), ("pod", c_uint32), ("next_on_gpu", c_uint32), ("work", c_uint32),
                ("container", c_uint32), ("busy_ns", c_int64)]


class NodeError(Exception):
    """A verb was refused; errno is positive."""

    def __init__(self, code, text):
        super().__init__(text)
        self.errno = code


def _library():
    lib = ctypes.CDLL(str(BUILD / "sim" / "libsimnode.so"), use_errno=True)
    session = c_void_p
    for name, result, arguments in [
        ("sim_session_open", session, [c_char_p]),
        ("sim_session_close", None, [session]),
        ("sim_session_run", c_int, [session, c_char_p, c_int64, c_char_p, c_size_t, POINTER(c_size_t)]),
        ("sim_field_index", c_int, [c_char_p]),
        ("sim_field_name", c_char_p, [c_int]),
        ("sim_now_ns", c_int64, [session]),
        ("sim_get_truth", c_int, [session, c_uint32, c_int, c_int64, POINTER(c_int64)]),
        ("sim_get_truth_double", c_int, [session, c_uint32, c_int, c_int64, POINTER(c_double)]),
        ("sim_get_mean", c_double, [session, c_uint32, c_uint32, c_int, c_int64, c_int64]),
        ("sim_get_load", c_double, [session, c_uint32, c_uint32, c_int64]),
        ("sim_get_busy_us", c_int64, [session, c_uint32, c_uint32, c_int64, c_int64]),
        ("sim_get_process_busy_us", c_int64, [session, c_uint32, c_int64, c_int64]),
        ("sim_get_memory", c_int, [session, c_uint32, c_uint32, c_int64, POINTER(c_int64 * 4)]),
        ("sim_gpu_count", c_uint32, [session]),
        ("sim_gpu_text", c_char_p, [session, c_uint32, c_char_p]),
        ("sim_get_calls", c_uint64, [session, c_char_p]),
        ("sim_count_call", None, [session, c_char_p, c_uint64]),
        ("sim_get_event", c_int, [session, c_uint32, POINTER(Event)]),
        ("sim_get_instance", c_int, [session, c_uint32, POINTER(Instance)]),
        ("sim_get_process", c_int, [session, c_uint32, POINTER(Process)]),
        ("sim_get_string", c_char_p, [session, c_uint32]),
        ("sim_driver_version", c_char_p, [session]),
        ("sim_node_name", c_char_p, [session]),
        ("sim_cgroups", c_char_p, [session]),
        ("sim_node_extra", c_char_p, [session]),
        ("sim_generation", c_uint32, [session]),
        ("sim_wall", c_int64, [session, c_int64]),
        ("sim_gpu_number", c_uint32, [session, c_uint32, c_char_p]),
        ("sim_uses_old_library", c_int, [session]),
        ("sim_dcgm_library", c_uint32, [session]),
        ("sim_dcgm_engine_runs", c_int, [session]),
    ]:
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


class Node:
    """A mapped node. Times are nanoseconds of scenario time; gpu is an index, NODE for the node's own signals."""

    def __init__(self, path):
        self.path = str(path)
        self._lib = _library()
        self._session = self._lib.sim_session_open(self.path.encode())
        if not self._session:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), self.path)

    def close(self):
        if self._session:
            self._lib.sim_session_close(self._session)
            self._session = None

    # --- verbs ---

    def command(self, line, at_ns=-1):
        """Runs one verb (see README.md) from now on, or from at_ns; returns its answer."""
        room = 1 << 16
        while True:
            out = ctypes.create_string_buffer(room)
            needed = c_size_t()
            code = self._lib.sim_session_run(self._session, line.encode(), at_ns, out, room, byref(needed))
            text = out.value.decode(errors="replace")
            if code < 0:
                raise NodeError(-code, text)
            if needed.value < room:
                return text
            room = needed.value + 1  # only answers that change nothing are that long

    def pods(self, t=None):
        """The pods listed at t (now): a list of dicts."""
        return json.loads(self.command("pods list", -1 if t is None else t))["pods"]

    def all_pods(self):
        """Those that are over or yet to come, too; phases are of now."""
        return json.loads(self.command("pods list all"))["pods"]

    def counts(self):
        """{symbol: (calls, total ns)} of every call made so far."""
        rows = (line.split() for line in self.command("counts").splitlines())
        return {name: (int(calls), int(total)) for name, calls, total in rows}

    def calls(self, symbol):
        return self._lib.sim_get_calls(self._session, symbol.encode())

    def count_call(self, symbol, took_ns=0):
        self._lib.sim_count_call(self._session, symbol.encode(), took_ns)

    # --- the truth ---

    def now(self):
        return self._lib.sim_now_ns(self._session)

    def field(self, name):
        index = self._lib.sim_field_index(name.encode())
        if index < 0:
            raise KeyError(name)
        return index

    def field_names(self):
        names, index = [], 0
        while (name := self._lib.sim_field_name(index)) is not None:
            names.append(name.decode())
            index += 1
        return names

    def truth(self, gpu, name, t=None):
        """What the driver reports at t: a whole number, or None with the code in truth_code()."""
        value = c_int64()
        code = self._lib.sim_get_truth(self._session, gpu, self.field(name), self.now() if t is None else t, byref(value))
        return value.value if code == 0 else None

    def truth_code(self, gpu, name, t=None):
        value = c_int64()
        return self._lib.sim_get_truth(self._session, gpu, self.field(name), self.now() if t is None else t, byref(value))

    def truth_double(self, gpu, name, t=None):
        value = c_double()
        code = self._lib.sim_get_truth_double(self._session, gpu, self.field(name), self.now() if t is None else t,
                                              byref(value))
        return value.value if code == 0 else None

    def node_truth(self, name, t=None):
        return self.truth(NODE, name, t)

    def mean(self, gpu, name, start, end, gi=NONE):
        """Mean of a gauge, or growth per second of a counter; NaN where there is none."""
        return self._lib.sim_get_mean(self._session, gpu, gi, self.field(name), start, end)

    def load(self, gpu, t=None, gi=NONE):
        return self._lib.sim_get_load(self._session, gpu, gi, self.now() if t is None else t)

    def busy_us(self, gpu, start, end, gi=NONE):
        return self._lib.sim_get_busy_us(self._session, gpu, gi, start, end)

    def process_busy_us(self, pid, start, end):
        return self._lib.sim_get_process_busy_us(self._session, pid, start, end)

    def memory(self, gpu, t=None, instance=NONE):
        """(total, reserved, used, free) in bytes; used without reserved."""
        out = (c_int64 * 4)()
        code = self._lib.sim_get_memory(self._session, gpu, instance, self.now() if t is None else t, byref(out))
        return tuple(out) if code == 0 else None

    # --- what is there ---

    @property
    def gpu_count(self):
        return self._lib.sim_gpu_count(self._session)

    @property
    def driver_version(self):
        return self._lib.sim_driver_version(self._session).decode()

    @property
    def name(self):
        return self._lib.sim_node_name(self._session).decode()

    @property
    def cgroups(self):
        """The shape of the pods' cgroups (procfs.py)."""
        return self._lib.sim_cgroups(self._session).decode()

    @property
    def extra(self):
        """Claims and slices as the scenario has them; their leaves are texts."""
        return json.loads(self._lib.sim_node_extra(self._session) or b"{}")

    @property
    def generation(self):
        """Grows with each change; what begins and ends at its time changes without."""
        return self._lib.sim_generation(self._session)

    def wall_us(self, t=None):
        """Microseconds since 1970 at t (now), as the driver stamps its samples."""
        return self._lib.sim_wall(self._session, self.now() if t is None else t)

    def minor(self, gpu):
        return self._lib.sim_gpu_number(self._session, gpu, b"minor")

    def replicas(self, gpu):
        """How many the device plugin offers of the GPU, 0: itself."""
        return self._lib.sim_gpu_number(self._session, gpu, b"replicas")

    @property
    def old_library(self):
        return bool(self._lib.sim_uses_old_library(self._session))

    @property
    def dcgm_library(self):
        """Major of the libdcgm on the node, 0: none."""
        return self._lib.sim_dcgm_library(self._session)

    @property
    def dcgm_engine_runs(self):
        """Whether the scenario has a host engine from the start."""
        return bool(self._lib.sim_dcgm_engine_runs(self._session))

    def gpu_text(self, gpu, what):
        """uuid, name, bus_id or serial, as bytes: a driver's text may not be UTF-8."""
        return self._lib.sim_gpu_text(self._session, gpu, what.encode())

    def uuid(self, gpu):
        return self.gpu_text(gpu, "uuid").decode()

    def string(self, at):
        return self._lib.sim_get_string(self._session, at).decode(errors="replace")

    def _rows(self, function, kind):
        index = 0
        while True:
            row = kind()
            if function(self._session, index, byref(row)) != 0:
                return
            yield index, row
            index += 1

    def events(self):
        return [row for _, row in self._rows(self._lib.sim_get_event, Event)]

    def instances(self, t=None):
        """MIG instances alive at t (now): dicts, one a compute instance."""
        t = self.now() if t is None else t
        return [{"index": index, "gpu": row.gpu, "gi": row.gi, "ci": row.ci, "slot": row.slot,
                 "slices": row.gi_slices, "ci_slices": row.ci_slices, "profile": self.string(row.profile), "uuid": self.string(row.uuid),
                 "memory_bytes": row.memory_bytes, "profile_id": row.profile_id, "placement": row.placement}
                for index, row in self._rows(self._lib.sim_get_instance, Instance) if row.from_ns <= t < row.until_ns]

    def processes(self, t=None):
        t = self.now() if t is None else t
        return [p for p in self.all_processes() if p["start_ns"] <= t < p["end_ns"]]

    def all_processes(self):
        return [{"index": index, "gpu": row.gpu, "instance": row.instance, "pid": row.pid, "type": row.type,
                 "memory_bytes": row.memory_bytes, "name": self.string(row.name), "real": row.work != 0,
                 "start_ns": row.start_ns, "end_ns": row.end_ns,
                 "pod": None if row.pod == NONE else row.pod, "container": None if row.container == NONE else row.container}
                for index, row in self._rows(self._lib.sim_get_process, Process)]

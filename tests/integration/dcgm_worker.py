"""Evaluates Python expressions with libdcgm on a simulated node: one per line on stdin, JSON answers on stdout.

usage: dcgm_worker.py MAJOR. Structures are read and written at the offsets of data/dcgm-abi.tsv, so that this is an
independent witness of the library's ABI. Names: everything below, keep (a dict to remember things in).
"""
import ctypes as c
import json
import math
import pathlib
import struct
import sys
import time

MAJOR = int(sys.argv[1])
HEADER = {3: "dcgm3.3.9", 4: "dcgm4.6.1"}[MAJOR]
BLANKS = {0x7ffffffffffffff0: "blank", 0x7ffffffffffffff1: "not_found", 0x7ffffffffffffff2: "not_supported",
          0x7ffffffffffffff3: "no_permission", 140737488355328.0: "blank", 140737488355329.0: "not_found",
          140737488355330.0: "not_supported", 140737488355331.0: "no_permission", "<<<NULL>>>": "blank",
          "<<<NOT_FOUND>>>": "not_found", "<<<NOT_SUPPORTED>>>": "not_supported", "<<<NOT_PERM>>>": "no_permission"}
keep = {}


def facts():
    sizes, members = {}, {}
    path = pathlib.Path(__file__).resolve().parents[2] / "data" / "dcgm-abi.tsv"
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        header, kind, group, name, size, offset, text = line.split("\t")[:7]
        if header == HEADER and kind == "struct":
            sizes[group] = int(size)
        elif header == HEADER and kind == "member" and offset != "-":
            members.setdefault(group, {})[name] = (int(size), int(offset), text)
    return sizes, members


SIZES, MEMBERS = facts()


class Record:
    """A structure of the facts, or one inside another: [member] reads and writes it."""

    def __init__(self, name, version=None, buffer=None, base=0):
        self.name, self.base = name, base
        self.buffer = buffer if buffer is not None else c.create_string_buffer(SIZES[name])
        if version is not None:
            self["version"] = SIZES[name] | version << 24

    def _format(self, member):
        size, offset, text = MEMBERS[self.name][member]
        form = "d" if text == "double" else {1: "B", 2: "H", 4: "I", 8: "Q"}.get(size)
        signed = text in ("int", "short", "int64_t", "long long") or "enum" in text
        return size, self.base + offset, text, form.lower() if form and signed and form != "d" else form

    def __getitem__(self, member):
        size, at, text, form = self._format(member)
        if text.startswith("char["):
            return self.buffer[at:at + size].split(b"\0")[0].decode()
        return struct.unpack_from(form, self.buffer, at)[0]

    def __setitem__(self, member, value):
        _, at, _, form = self._format(member)
        struct.pack_into(form, self.buffer, at, value)

    def part(self, member, name, index=0):
        return Record(name, buffer=self.buffer, base=self.base + MEMBERS[self.name][member][1] + index * SIZES[name])

    def numbers(self, member, count, form="I", skip=0):
        at = self.base + MEMBERS[self.name][member][1] + skip
        return list(struct.unpack_from(f"{count}{form}", self.buffer, at))

    def ref(self):
        return c.byref(self.buffer)


LIB = c.CDLL(f"libdcgm.so.{MAJOR}")
CALLBACK = c.CFUNCTYPE(c.c_int, c.c_int, c.c_uint, c.c_void_p, c.c_int, c.c_void_p)
HANDLE = c.c_size_t


def has(symbol):
    return hasattr(LIB, symbol)


def init():
    return [LIB.dcgmInit(), LIB.DcgmFieldsInit()]


def handle():
    return HANDLE(keep["h"])


def start(mode=1, version=1):
    params = Record("dcgmStartEmbeddedV2Params_v1", version)
    params["opMode"] = mode
    code = LIB.dcgmStartEmbedded_v2(params.ref())
    if code == 0 and params["dcgmHandle"]:
        keep["h"] = params["dcgmHandle"]
    return [code, params["dcgmHandle"]]


def connect(address, unix=0, timeout_ms=5000, version=2):
    params = Record("dcgmConnectV2Params_v2", version)
    params["timeoutMs"], params["addressIsUnixSocket"] = timeout_ms, unix
    out = HANDLE()
    code = LIB.dcgmConnect_v2(address.encode(), params.ref(), c.byref(out))
    if code == 0:
        keep["h"] = out.value
    return code


def connect3(address, timeout_ms=5000, version=1):
    params = Record("dcgmConnectV3Params_v1", version)
    params["timeoutMs"] = timeout_ms
    out = HANDLE()
    code = LIB.dcgmConnect_v3(address.encode(), params.ref(), c.byref(out))
    if code == 0:
        keep["h"] = out.value
    return code


def disconnect():
    return LIB.dcgmDisconnect(handle())


def version(word=2):
    out = Record("dcgmVersionInfo_v2", word)
    return [LIB.dcgmHostengineVersionInfo(handle(), out.ref()), out["rawBuildInfoString"]]


def devices():
    ids, count = (c.c_uint * 32)(), c.c_int()
    code = LIB.dcgmGetAllDevices(handle(), ids, c.byref(count))
    return [code, ids[:count.value]]


def entities(kind, room=1024):
    ids, count = (c.c_uint * max(room, 1))(), c.c_int(room)
    code = LIB.dcgmGetEntityGroupEntities(handle(), kind, ids, c.byref(count), 0)
    return [code, ids[:count.value] if code == 0 else count.value]


def status(gpu):
    out = c.c_int()
    return [LIB.dcgmGetGpuStatus(handle(), gpu, c.byref(out)), out.value]


def attributes(gpu, word=3):
    out = Record("dcgmDeviceAttributes_v3", word)
    code = LIB.dcgmGetDeviceAttributes(handle(), gpu, out.ref())
    if code != 0:
        return [code, None]
    who = out.part("identifiers", "dcgmDeviceIdentifiers_v1")
    power = out.part("powerLimits", "dcgmDevicePowerLimits_v1")
    memory = out.part("memoryUsage", "dcgmDeviceMemoryUsage_v1")
    settings = out.part("settings", "dcgmDeviceSettings_v2")
    return [code, {"uuid": who["uuid"], "name": who["deviceName"], "bus_id": who["pciBusId"], "serial": who["serial"],
                   "driver": who["driverVersion"], "limit": power["curPowerLimit"], "fb": memory["fbTotal"],
                   "mig": settings["migModeEnabled"]}]


def hierarchy(word=2):
    out = Record("dcgmMigHierarchy_v2", word)
    code = LIB.dcgmGetGpuInstanceHierarchy(handle(), out.ref())
    if code != 0:
        return [code, None]
    rows = []
    for i in range(out["count"]):
        row = out.part("entityList", "dcgmMigHierarchyInfo_v2", i)
        own, parent = row.part("entity", "dcgmGroupEntityPair_t"), row.part("parent", "dcgmGroupEntityPair_t")
        info = row.part("info", "dcgmMigEntityInfo_t")
        rows.append([own["entityGroupId"], own["entityId"], parent["entityGroupId"], parent["entityId"],
                     info["gpuUuid"], info["nvmlGpuIndex"], info["nvmlInstanceId"], info["nvmlComputeInstanceId"],
                     info["nvmlProfileSlices"]])
    return [code, rows]


def links(word={3: 3, 4: 5}[MAJOR]):
    name = {3: "dcgmNvLinkStatus_v3", 4: "dcgmNvLinkStatus_v5"}[MAJOR]
    gpu_name = {3: "dcgmNvLinkGpuLinkStatus_v3", 4: "dcgmNvLinkGpuLinkStatus_v4"}[MAJOR]
    out = Record(name, word)
    code = LIB.dcgmGetNvLinkLinkStatus(handle(), out.ref())
    if code != 0:
        return [code, None, None]
    states = {"gpus": {}, "nvSwitches": {}}
    for member, part, count in (("gpus", gpu_name, out["numGpus"]),
                                ("nvSwitches", "dcgmNvLinkNvSwitchLinkStatus_t", out["numNvSwitches"])):
        for i in range(count):
            row = out.part(member, part, i)
            states[member][row["entityId"]] = row.numbers("linkState", MEMBERS[part]["linkState"][0] // 4)
    return [code, states["gpus"], states["nvSwitches"]]


def peers(word=1):
    out = Record("dcgmNvLinkP2PStatus_v1", word)
    code = LIB.dcgmGetNvLinkP2PStatus(handle(), out.ref())
    count = out["numGpus"] if code == 0 else 0
    return [code, [out.numbers("gpus", 1 + count, skip=i * 132) for i in range(count)]]


def cpus(word=1):
    out = Record("dcgmCpuHierarchy_v1", word)
    code = LIB.dcgmGetCpuHierarchy(handle(), out.ref())
    return [code, [[out.numbers("cpus", 1, skip=i * 144)[0], out.numbers("cpus", 1, "Q", i * 144 + 16)[0]]
                   for i in range(out["numCpus"] if code == 0 else 0)]]


def cpus2(word=2):
    out = Record("dcgmCpuHierarchy_v2", word)
    code = LIB.dcgmGetCpuHierarchy_v2(handle(), out.ref())
    at = MEMBERS["dcgmCpuHierarchy_v2"]["cpus"][1]
    return [code, [[out.numbers("cpus", 1, skip=i * 400)[0], out.numbers("cpus", 1, "Q", i * 400 + 16)[0],
                    out.buffer[at + i * 400 + 144:at + i * 400 + 400].split(b"\0")[0].decode()]
                   for i in range(out["numCpus"] if code == 0 else 0)]]


def group(name, *pairs, kind=1):
    out = HANDLE()
    code = LIB.dcgmGroupCreate(handle(), kind, name.encode(), c.byref(out))
    added = [LIB.dcgmGroupAddEntity(handle(), out, *pair) for pair in pairs] if code == 0 else []
    keep.update({name: out.value} if code == 0 else {})
    return [code, *added]


def fields(name, *ids):
    out = HANDLE()
    code = LIB.dcgmFieldGroupCreate(handle(), len(ids), (c.c_ushort * max(len(ids), 1))(*ids), name.encode(), c.byref(out))
    keep.update({name: out.value} if code == 0 else {})
    return code


def watch(g="g", f="f", period_us=100000, age=2.0, samples=0):
    return LIB.dcgmWatchFields(handle(), HANDLE(keep[g]), HANDLE(keep[f]), c.c_longlong(period_us), c.c_double(age), samples)


def unwatch(g="g", f="f"):
    return LIB.dcgmUnwatchFields(handle(), HANDLE(keep[g]), HANDLE(keep[f]))


def destroy(name):
    return LIB.dcgmGroupDestroy(handle(), HANDLE(keep[name]))


def destroy_fields(name):
    return LIB.dcgmFieldGroupDestroy(handle(), HANDLE(keep[name]))


def update():
    return LIB.dcgmUpdateAllFields(handle(), 1)


def decode(kind, raw):
    value = (raw[:256].split(b"\0")[0].decode() if kind == "s" else
             struct.unpack_from("d" if kind == "d" else "q", raw)[0])
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return BLANKS.get(value, value)


def record(at, name="dcgmFieldValue_v1"):
    memory = c.create_string_buffer(c.string_at(at, SIZES[name]), SIZES[name])
    row = Record(name, buffer=memory)
    kind = chr(row["fieldType"])
    offset = MEMBERS[name]["value.i64"][1]
    return row["version"], row["fieldId"], kind, row["status"], row["ts"], decode(kind, memory.raw[offset:])


def collect(call, stop_after=None):
    """[code, {"entity/id/field": [type, status, ts, value]}, sizes of the calls, kept pointers seen overwritten]"""
    rows, sizes, first, overwritten = {}, [], [], []

    def callback(entity, ident, values, count, _):
        if first:
            overwritten.append(record(first[0])[1] != first[1])
        else:
            first.extend([values, record(values)[1]])
        sizes.append(count)
        for i in range(count):
            word, field, kind, code, ts, value = record(values + i * SIZES["dcgmFieldValue_v1"])
            assert word == SIZES["dcgmFieldValue_v1"] | 1 << 24
            rows.setdefault(f"{entity}/{ident}/{field}", []).append([kind, code, ts, value])
        return int(stop_after is not None and len(sizes) >= stop_after)

    code = call(CALLBACK(callback))
    return [code, rows, sizes, overwritten]


def latest(g="g", f="f", stop_after=None):
    code, rows, sizes, overwritten = collect(
        lambda cb: LIB.dcgmGetLatestValues_v2(handle(), HANDLE(keep[g]), HANDLE(keep[f]), cb, None), stop_after)
    return [code, {key: values[0] for key, values in rows.items()}, sizes, overwritten]


def since(start_us, g="g", f="f"):
    after = c.c_longlong()
    code, rows, _, _ = collect(lambda cb: LIB.dcgmGetValuesSince_v2(
        handle(), HANDLE(keep[g]), HANDLE(keep[f]), c.c_longlong(start_us), c.byref(after), cb, None))
    return [code, rows, after.value]


def array(pairs, ids, flags=0):
    size = SIZES["dcgmFieldValue_v2"]
    out = c.create_string_buffer(size * len(pairs) * len(ids))
    flat = [number for pair in pairs for number in pair]
    code = LIB.dcgmEntitiesGetLatestValues(handle(), (c.c_int * len(flat))(*flat), len(pairs),
                                           (c.c_ushort * len(ids))(*ids), len(ids), flags, out)
    return [code, [list(record(c.addressof(out) + i * size, "dcgmFieldValue_v2")) for i in range(len(pairs) * len(ids))]]


def health_set(g="g", systems=0x7fffffff, word=2):
    params = Record("dcgmHealthSetParams_v2", word)
    params["groupId"], params["systems"] = keep[g], systems
    params["updateInterval"], params["maxKeepAge"] = 1000000, 60.0
    return LIB.dcgmHealthSet_v2(handle(), params.ref())


def health(g="g", word={3: 4, 4: 5}[MAJOR]):
    out = Record({3: "dcgmHealthResponse_v4", 4: "dcgmHealthResponse_v5"}[MAJOR], word)
    code = LIB.dcgmHealthCheck(handle(), HANDLE(keep[g]), out.ref())
    rows = []
    for i in range(out["incidentCount"] if code == 0 else 0):
        row = out.part("incidents", "dcgmIncidentInfo_t", i)
        error, at = row.part("error", "dcgmDiagErrorDetail_t"), row.part("entityInfo", "dcgmGroupEntityPair_t")
        rows.append([at["entityGroupId"], at["entityId"], row["system"], row["health"], error["code"], error["msg"]])
    return [code, out["overallHealth"], rows]


def metric_groups(gpu, word=3):
    out = Record("dcgmProfGetMetricGroups_v3", word)
    out["gpuId"] = gpu
    code = LIB.dcgmProfGetSupportedMetricGroups(handle(), out.ref())
    rows = [out.part("metricGroups", "dcgmProfMetricGroupInfo_v2", i)
            for i in range(out["numMetricGroups"] if code == 0 else 0)]
    return [code, [[row["majorId"], row["minorId"], row.numbers("fieldIds", row["numFieldIds"], "H")] for row in rows]]


def meta(field):
    LIB.DcgmFieldGetById.restype = c.c_void_p
    at = LIB.DcgmFieldGetById(field)
    if not at:
        return None
    row = Record("dcgm_field_meta_t", buffer=c.create_string_buffer(c.string_at(at, 72), 72))
    return [row["fieldId"], chr(row["fieldType"]), row["tag"], row["entityLevel"]]


def wait_latest(ready, deadline_s=20, **words):
    """latest() as soon as ready(rows) holds."""
    until = time.monotonic() + deadline_s
    while True:
        answer = latest(**words)
        if ready(answer[1]) or time.monotonic() > until:
            return answer
        time.sleep(0.01)


def sampled(g="g", f="f"):
    """latest() when no value waits for its sample any more (an XID may wait for ever)."""
    return wait_latest(lambda rows: rows and all(v[1] != -14 for k, v in rows.items() if not k.endswith("/230")), g=g, f=f)


def main():
    for line in sys.stdin:
        try:
            answer = {"value": eval(line)}  # noqa: S307 - the test's own words
        except Exception as error:  # noqa: BLE001 - told to the test
            answer = {"error": repr(error)}
        print(json.dumps(answer), flush=True)


main()

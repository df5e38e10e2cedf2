"""A program that knows libcuda by ctypes works on the CUDA double; NVML's double and the truth must show that work."""
import json
import pathlib
import signal
import subprocess
import sys

import pytest

from harness import ROOT, SLOW, wait_until

import run_node

WORKER = pathlib.Path(__file__).with_name("cuda_worker.py")
MIB = 1 << 20
MS = 1_000_000
CONTEXT = 256 * MIB
FREE = (23028 - 297) * MIB  # of an A10G without what the driver keeps
UUIDS = ["ff76466b22fcf7a9abe2ce3ac453b8b3", "0b1f3a529d0e4c4f8f3a64c1d2a7e501"]


class Worker:
    """A process with libcuda on the node."""

    def __init__(self, node, start=True, **environment):
        self.process = subprocess.Popen([sys.executable, WORKER], env=dict(node.env, **environment), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.node = node
        if start:
            self.ask("start()")

    def send(self, expression):
        self.process.stdin.write(" ".join(expression.split()) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, expression):
        self.send(expression)
        answer = self.answer()
        assert "value" in answer, (expression, answer)
        return answer["value"]

    def code(self, expression):
        """The CUresult of a call that must fail."""
        self.send(expression)
        answer = self.answer()
        assert "code" in answer, (expression, answer)
        return answer["code"]

    def load(self, text="plain"):
        return self.ask(f"load({ptx(text)!r})")

    def keep(self, name, expression):
        self.ask(f"keep.update({name}={expression})")

    def close(self):
        self.process.stdin.close()
        self.process.wait(20 * SLOW)
        self.process.stdout.close()


def ptx(name):
    return (ROOT / "src" / "burn" / "ptx" / f"{name}.ptx").read_text(encoding="ascii")


@pytest.fixture
def node():
    with run_node.SimNode("burn", kubelet=False) as n:
        yield n


@pytest.fixture
def held():
    """The same with its clock held at 100 s: nothing ends before the test says so."""
    with run_node.SimNode("burn", kubelet=False, freeze=100) as n:
        yield n


@pytest.fixture
def make(request):
    def start(node, **words):
        worker = Worker(node, **words)
        request.addfinalizer(worker.close)
        return worker
    return start


# --- devices ---

def test_devices_are_the_nodes(node, make):
    w = make(node)
    assert w.ask('one(c.c_int, "cuDriverGetVersion")') == 12020
    assert w.ask('one(c.c_int, "cuDeviceGetCount")') == 2
    assert w.ask('(lambda b: (good("cuDeviceGetName", b, 64, 1), b.value.decode())[1])(c.create_string_buffer(64))') == \
        "NVIDIA A10G"
    assert [w.ask(f'one(c.c_int, "cuDeviceGetAttribute", {a}, 0)') for a in (10, 16, 75, 76)] == [32, 80, 8, 6]
    assert w.ask('one(c.c_size_t, "cuDeviceTotalMem_v2", 0)') == FREE
    for device, want in enumerate(UUIDS):
        assert w.ask(f'bytes(one(c.c_char * 16, "cuDeviceGetUuid_v2", {device})).hex()') == want
    assert w.code('one(c.c_int, "cuDeviceGet", 2)') == 101


@pytest.mark.parametrize("visible,want", [
    ("1", [1]), ("1,0", [1, 0]), ("0,7,1", [0]), ("GPU-0b1f3a52", [1]), ("0,0", []), ("", []), ("-1", []),
    ("GPU-0b1f3a52-9d0e-4c4f-8f3a-64c1d2a7e501,0", [1, 0]), ("GPU-99", []),
])
def test_cuda_visible_devices_chooses_and_orders(node, make, visible, want):
    w = make(node, start=False, CUDA_VISIBLE_DEVICES=visible)
    assert w.ask('call("cuInit", 0)') == (0 if want else 100)
    if want:
        count = w.ask('one(c.c_int, "cuDeviceGetCount")')
        assert [w.ask(f'bytes(one(c.c_char * 16, "cuDeviceGetUuid", {i})).hex()') for i in range(count)] == \
            [UUIDS[i] for i in want]


def test_a_mig_device_is_chosen_by_its_uuid(make):
    with run_node.SimNode("mig", kubelet=False) as n:
        gpu = [i for i in n.node.instances() if i["gpu"] == 0]
        w = make(n, CUDA_VISIBLE_DEVICES=gpu[1]["uuid"])
        assert w.ask('one(c.c_int, "cuDeviceGetCount")') == 1
        assert w.ask('one(c.c_size_t, "cuDeviceTotalMem_v2", 0)') == gpu[1]["memory_bytes"]
        mine = [p for p in n.node.processes() if p["pid"] == w.process.pid]
        assert [p["instance"] for p in mine] == [gpu[1]["index"]]


def test_calls_before_cuinit_and_in_a_child_are_refused(node, make):
    w = make(node, start=False)
    assert w.ask('call("cuDeviceGetCount", c.byref(c.c_int()))') == 3
    w.ask("start()")
    assert w.ask('child(lambda: call("cuInit", 0))') == 3
    assert w.ask('child(lambda: call("cuCtxSynchronize"))') == 3
    assert w.ask('call("cuCtxSynchronize")') == 0


def test_errors_have_names_and_texts(node, make):
    w = make(node)
    assert w.ask('text("cuGetErrorName", 2)') == "CUDA_ERROR_OUT_OF_MEMORY"
    assert w.ask('text("cuGetErrorName", 0)') == "CUDA_SUCCESS"
    assert w.ask('text("cuGetErrorString", 100)') == "no CUDA-capable device is detected"
    assert w.code('text("cuGetErrorName", 12345)') == 1


# --- memory ---

def test_memory_is_accounted_to_the_process_and_the_gpu(node, make):
    w = make(node)
    info = '(lambda a, b: (good("cuMemGetInfo_v2", c.byref(a), c.byref(b)), [a.value, b.value])[1])(c.c_size_t(), c.c_size_t())'
    assert w.ask(info) == [FREE - CONTEXT, FREE]
    at = w.ask(f'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t({20000 * MIB + 1}))')
    assert w.ask(info) == [FREE - CONTEXT - 20002 * MIB, FREE]
    assert node.node.memory(0)[2] == CONTEXT + 20002 * MIB
    assert [(p["pid"], p["gpu"], p["memory_bytes"]) for p in node.node.processes()] == \
        [(w.process.pid, 0, CONTEXT + 20002 * MIB)]
    assert w.code(f'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t({3000 * MIB}))') == 2
    assert w.ask(f'call("cuMemFree_v2", u64({at}))') == 0
    assert w.ask(f'call("cuMemFree_v2", u64({at}))') == 1
    assert w.ask(info) == [FREE - CONTEXT, FREE]
    assert w.ask('call("cuDevicePrimaryCtxRelease_v2", 0)') == 0
    assert node.node.processes() == []
    assert node.node.memory(0)[2] == 0


def test_memory_holds_what_was_written_and_knows_its_bounds(node, make):
    w = make(node)
    at = w.ask('one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(4096))')
    w.ask(f'good("cuMemsetD32_v2", u64({at}), 0xabcd1234, c.c_size_t(1024))')
    w.ask(f'good("cuMemcpyHtoD_v2", u64({at + 8}), (c.c_uint32 * 2)(7, 8), c.c_size_t(8))')
    assert w.ask(f"words({at}, 5)") == [0xABCD1234, 0xABCD1234, 7, 8, 0xABCD1234]
    assert w.code(f"words({at}, 1025)") == 1
    assert w.code(f"words({at - 4}, 1)") == 1
    assert w.ask(f'call("cuMemsetD32", c.c_uint({at & 0xFFFFFFFF}), 0, 1)') == 1  # the 32-bit function of CUDA 3.1


# --- modules ---

def module(version="6.0", target="sm_50", entry=".visible .entry k(.param .u64 a)\n{ ret; }"):
    return f"// .version 99.0\n.version {version}\n.target {target}\n.address_size 64\n{entry}\n"


@pytest.mark.parametrize("text,code,log", [
    (module(), 0, ""),
    (module("8.2", "sm_86"), 0, ""),
    (module("8.3"), 222, "Unsupported .version 8.3; current version is '8.2'"),
    (module(target="sm_90"), 218, "SM version specified by .target is higher than default SM version assumed"),
    (module("8.0", "sm_80a"), 218, "SM version specified by .target is higher"),
    ("nothing", 218, "Missing .version directive"),
    (".version 6.0\n", 218, "Missing .target directive"),
    (module(entry=".entry ("), 218, "syntax error"),
])
def test_ptx_is_taken_or_refused_as_driver_and_gpu_know_it(node, make, text, code, log):
    w = make(node)
    got, said = w.ask(f"load_log({text!r})")
    assert got == code
    assert log in said if log else said == ""


def test_an_entry_that_is_not_there_is_not_found(node, make):
    w = make(node)
    w.load()
    assert w.code('function("fp33")') == 500


# --- work ---

def busy_ms(node, pid, start_s=0, end_s=10000):
    return node.node.process_busy_us(pid, start_s * 10**9, end_s * 10**9) / 1000


def test_a_launch_takes_the_time_that_its_parameters_say(held, make):
    """1000 turns of 32 products in each of 81920 threads, 80 multiprocessors with 128 a cycle at 1710 MHz; 4 us more."""
    w = make(held)
    w.load()
    w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
    w.keep("e", "[event() for _ in range(3)]")
    w.ask('good("cuEventRecord", keep["e"][0], None)')
    assert w.ask('work("fp32", keep["m"], 1000)') == 0
    w.ask('good("cuEventRecord", keep["e"][1], None)')
    assert w.ask('work("fp32", keep["m"], 1000, quanta=10)') == 0
    w.ask('good("cuEventRecord", keep["e"][2], None)')
    one = 81920 * 32 * 1000 / (80 * 128 * 1710e6) * 1e3
    assert w.ask('call("cuEventQuery", keep["e"][2])') == 600
    assert w.code('elapsed(keep["e"][0], keep["e"][2])') == 600
    held.advance(1)
    assert w.ask('call("cuEventQuery", keep["e"][2])') == 0
    assert w.ask('elapsed(keep["e"][0], keep["e"][1])') == pytest.approx(one + 0.004, abs=1e-5)
    assert w.ask('elapsed(keep["e"][1], keep["e"][2])') == pytest.approx(10 * one + 0.004, abs=1e-5)
    assert busy_ms(held, w.process.pid) == pytest.approx(11 * one + 0.008, abs=2e-3)
    assert held.node.load(0, 100 * 10**9) == 1
    assert held.node.load(0, 101 * 10**9) == 0


def test_work_shows_in_utilisation_memory_and_energy(held, make):
    w = make(held)
    w.load()
    w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
    before = held.node.truth(0, "energy_mj")
    assert w.ask('work("fp32", keep["m"], 1000, quanta=5000)') == 0  # 0.75 s in one launch
    seconds = 81920 * 32 * 1000 * 5000 / (80 * 128 * 1710e6)
    held.advance(0.5)
    assert held.node.truth(0, "gpu_percent") == 100
    assert held.node.truth(1, "gpu_percent") == 0
    held.advance(9.5)
    assert held.node.truth(0, "gpu_percent") == 0
    want = 24.5 * 10 + 274.937 * seconds  # joules: idle power, and what full load adds
    assert held.node.truth(0, "energy_mj") - before == pytest.approx(want * 1000, abs=2)


def test_results_are_those_of_the_arithmetic_and_compare_finds_what_differs(node, make):
    w = make(node)
    w.load()
    w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(8 << 20)).value')
    block = 320 * 256 * 4
    assert w.ask('work("int32", keep["m"], 3, seed=7, blocks=4, quanta=4)') == 0
    want = 0
    for chain in range(8):
        x = 5 * 8 + 7 + chain
        for _ in range(12):
            x = (x * (5 * 4 + 1664525) + 1013904223) % 2**32
        want ^= x
    assert w.ask('words(keep["m"], 6)')[5] == want
    w.keep("n", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(64)).value')
    compare = f'launch("compare", u64(keep["m"]), u64(keep["m"] + {block}), u64(keep["n"]), u32({block // 4}), u32(0), u32(3), u32(3))'
    assert w.ask(compare) == 0
    assert w.ask('words(keep["n"], 2)') == [0, 0]
    w.ask(f'good("cuMemcpyHtoD_v2", u64(keep["m"] + {2 * block + 16}), (c.c_uint32 * 1)(1), c.c_size_t(4))')
    assert w.ask(compare) == 0
    assert w.ask('words(keep["n"], 2)') == [1, 0]
    node.set("gpu0.cuda_mismatches", 40)
    assert w.ask(compare) == 0
    assert w.ask('words(keep["n"], 2)') == [42, 0]


def test_the_pattern_is_filled_and_verified(node, make):
    w = make(node)
    w.load()
    w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
    w.keep("n", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(64)).value')
    assert w.ask('launch("fill", u64(keep["m"]), u64(1 << 18), u32(9))') == 0
    assert w.ask('words(keep["m"], 3)') == [9, 2654435770, (2 * 2654435761 + 9) % 2**32]
    verify = 'launch("verify", u64({}), u64(keep["m"]), u64(keep["n"]), u32(1024), u32(0), u32(256), u32(256))'
    assert w.ask(verify.format(9)) == 0
    assert w.ask('words(keep["n"], 2)') == [0, 0]
    assert w.ask(verify.format(8)) == 0
    assert w.ask('words(keep["n"], 2)') == [256 * 256, 0]  # the first 256 words of each block are looked at


def test_two_processes_take_turns_on_one_gpu(held, make):
    first, second = make(held), make(held)
    for w in (first, second):
        w.load()
        w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
        w.keep("e", "[event(), event()]")
    for w in (first, second, first, second):  # each 15 ms
        assert w.ask('work("fp32", keep["m"], 1000, quanta=100)') == 0
    piece = 81920 * 32 * 1000 * 100 / (80 * 128 * 1710e6) * 1e3 + 0.004
    held.advance(1)
    times = [busy_ms(held, w.process.pid) for w in (first, second)]
    assert times == [pytest.approx(2 * piece, abs=2e-3)] * 2
    assert held.node.busy_us(0, 100 * 10**9, 101 * 10**9) / 1000 == pytest.approx(4 * piece, abs=2e-3)
    at = 100 * 10**9 + int(1.5 * piece * MS)  # in the second's first
    assert [held.node.process_busy_us(w.process.pid, at, at + MS) for w in (first, second)] == [0, 1000]
    assert held.node.busy_us(1, 0, 200 * 10**9) == 0


def test_what_a_killed_process_had_queued_ends_with_it(held, make):
    w, other = make(held), make(held)
    for worker in (w, other):
        worker.load()
        worker.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
    assert w.ask('work("fp32", keep["m"], 1000, quanta=100000)') == 0  # 15 s
    held.advance(1)
    assert held.node.truth(0, "gpu_percent") == 100
    w.process.send_signal(signal.SIGKILL)
    w.process.wait()
    assert [p["pid"] for p in held.node.processes()] == [other.process.pid]
    held.advance(1)
    assert held.node.truth(0, "gpu_percent") == 0
    assert busy_ms(held, w.process.pid) == pytest.approx(1000, abs=1e-3)
    assert other.ask('work("fp32", keep["m"], 1000, quanta=100)') == 0
    assert held.node.load(0, 102 * 10**9) == 1  # at once: the dead one's 15 s are not waited for


def test_busy_time_stays_on_record_when_entries_are_used_again(held, make):
    """70 contexts one after the other, more than there are entries, each busy for 15 ms."""
    w = make(held, start=False)
    piece = 81920 * 32 * 1000 * 100 / (80 * 128 * 1710e6) * 1e3 + 0.004
    for _ in range(70):
        w.ask("start()")
        w.load()
        w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
        assert w.ask('work("fp32", keep["m"], 1000, quanta=100)') == 0
        held.advance(0.1)
        assert w.ask('call("cuDevicePrimaryCtxRelease_v2", 0)') == 0
    assert held.node.busy_us(0, 0, 200 * 10**9) / 1000 == pytest.approx(70 * piece, abs=0.1)


def test_more_intervals_than_are_kept_are_all_in_the_sum_and_the_newest_are_exact(held, make):
    """1100 launches of 1.5 ms, one each 10 ms; 1023 are kept one by one."""
    w = make(held)
    w.load()
    w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
    piece = 81920 * 32 * 1000 * 10 / (80 * 128 * 1710e6) * 1e3 + 0.004
    for _ in range(1100):
        assert w.ask('work("fp32", keep["m"], 1000, quanta=10)') == 0
        held.advance(0.01)
    start, end = 100 * 10**9, 111 * 10**9
    busy = lambda a, b: held.node.process_busy_us(w.process.pid, start + a * MS, start + b * MS) / 1000
    assert busy(0, 11000) == pytest.approx(1100 * piece, abs=0.01)
    assert busy(10990, 11000) == busy(800, 810) == pytest.approx(piece, abs=2e-3)
    assert busy(1005, 1010) == 0
    assert busy(0, 700) == pytest.approx(70 * piece, rel=0.01)  # of the mean
    assert held.node.busy_us(0, start, end) / 1000 == pytest.approx(1100 * piece, abs=0.01)


def test_a_launch_waits_when_1024_are_pending(held, make):
    w = make(held)
    w.load()
    w.keep("m", 'one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(1 << 20)).value')
    assert w.ask('[work("fp32", keep["m"], 1000, quanta=10) for _ in range(1024)]') == [0] * 1024
    w.send('work("fp32", keep["m"], 1000, quanta=10)')
    wait_until(lambda: held.node.calls("cuLaunchKernel") == 1025, what="the call")
    held.advance(0.002)  # the first is done
    assert w.answer() == {"value": 0}
    piece = 81920 * 32 * 1000 * 10 / (80 * 128 * 1710e6) * 1e3 + 0.004
    assert busy_ms(held, w.process.pid) == pytest.approx(1025 * piece, abs=0.01)


# --- what goes wrong ---

def test_calls_meet_their_faults_and_are_counted(node, make):
    w = make(node)
    w.load()
    node.fault("cuMemAlloc_v2", "return=2", gpu=0, count=1)
    assert w.code('one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(64))') == 2
    assert w.ask('one(c.c_uint64, "cuMemAlloc_v2", c.c_size_t(64)) is not None')
    node.reset_counts()
    w.ask('call("cuStreamSynchronize", None)')
    assert node.node.calls("cuStreamSynchronize") == 1


def test_a_failed_launch_breaks_the_context(node, make):
    w = make(node)
    w.load()
    node.fault("cuStreamSynchronize", "return=719", count=1)
    assert w.ask('call("cuStreamSynchronize", None)') == 719
    assert w.ask('call("cuCtxSynchronize")') == 719
    assert w.code('launch("fault")') == 719
    assert w.ask('call("cuDevicePrimaryCtxRelease_v2", 0)') == 0
    w.ask("start()")
    assert w.ask('call("cuCtxSynchronize")') == 0


def test_an_illegal_access_breaks_the_context_and_raises_xid_31(node, make):
    w = make(node)
    w.load()
    assert w.ask('launch("fault")') == 0
    assert w.ask('call("cuCtxSynchronize")') == 700
    assert [(e.data, e.gpu) for e in node.node.events()] == [(31, 0)]


def test_a_hanging_call_goes_on_when_the_fault_is_cleared(node, make):
    w = make(node)
    node.fault("cuCtxSynchronize", "hang")
    w.send('call("cuCtxSynchronize")')
    wait_until(lambda: node.node.calls("cuCtxSynchronize") == 1, what="the call")
    node.clear_faults()
    assert w.answer() == {"value": 0}


@pytest.mark.parametrize("signal_name,value,code", [
    ("driver.cuda_return", 803, 803), ("driver.cuda_return", 100, 100), ("driver.init_return", 9, 100)])
def test_a_driver_that_cannot_says_so_at_cuinit(node, make, signal_name, value, code):
    node.set(signal_name, value)
    assert make(node, start=False).ask('call("cuInit", 0)') == code


def test_a_lost_gpu_fails_the_calls_about_it(node, make):
    w = make(node)
    node.set("gpu0.lost", 1)
    assert w.ask('call("cuCtxSynchronize")') == 999
    assert w.ask('call("cuDeviceTotalMem_v2", c.byref(c.c_size_t()), 1)') == 0


def test_peers_are_those_with_nvlink(node, make):
    assert make(node).ask('one(c.c_int, "cuDeviceCanAccessPeer", 0, 1)') == 0
    with run_node.SimNode("h100x8", kubelet=False) as n:
        w = make(n)
        assert w.ask('one(c.c_int, "cuDeviceCanAccessPeer", 0, 1)') == 1
        w.keep("peer", 'one(c.c_void_p, "cuDevicePrimaryCtxRetain", 1)')
        assert w.ask('call("cuCtxEnablePeerAccess", keep["peer"], 0)') == 0
        assert w.ask('call("cuCtxEnablePeerAccess", keep["peer"], 0)') == 704

# SPDX-License-Identifier: Apache-2.0
"""podgpu-burn's kernels, as they stand in the program: a real ptxas assembles them for each generation of GPU, and they
are run here an instruction at a time, against the functions that the program checks a GPU with."""

import ctypes
import os
import pathlib
import re
import struct
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PODGPU_BUILD", ROOT / "build"))
KINDS = ["fp32", "fp64", "fp16", "bf16", "tf32", "int32"]  # in the order of enum burn_kind
ARCHITECTURES = [50, 52, 60, 61, 70, 75, 80, 86, 87, 89, 90, 100, 120]
SAMPLES = [0, 1, 31, 32, 127, 128, 200, 255]  # threads of a block


def texts():
    """Target -> text, from the program's own bytes."""
    found = re.findall(rb"\.version [0-9.]+\n\.target sm_[^\0]+", (BUILD / "podgpu-burn").read_bytes())
    return [text.decode("ascii") for text in found]


def text_of(entry):
    return next(t for t in texts() if f".entry {entry}(" in t)


def target(text):
    return int(re.search(r"\.target sm_(\d+)", text).group(1))


def find_ptxas():
    import nvidia

    for folder in nvidia.__path__:
        for path in pathlib.Path(folder).glob("*/bin/ptxas"):
            return path
    raise AssertionError("no ptxas: script/bootstrap installs nvidia-cuda-nvcc-cu12")


@pytest.mark.smoke
def test_the_program_has_the_four_texts_each_as_old_as_it_can_be():
    versions = sorted(re.findall(r"\.version ([0-9.]+)\n\.target (sm_\d+)", t)[0] for t in texts())
    assert versions == [("4.0", "sm_50"), ("6.0", "sm_70"), ("7.0", "sm_80"), ("7.0", "sm_80")]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_ptxas_assembles_each_text_without_spilling(architecture, tmp_path):
    for n, text in enumerate(texts()):
        if target(text) > architecture:
            continue
        path = tmp_path / f"{n}.ptx"
        path.write_text(text, encoding="ascii")
        run = subprocess.run(
            [find_ptxas(), "-v", f"-arch=sm_{architecture}", "-o", tmp_path / "out.cubin", path],
            capture_output=True, text=True, timeout=120, check=False,
        )
        assert run.returncode == 0, run.stderr
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", run.stderr)
        assert len(spills) == text.count(".entry") and set(spills) == {("0", "0")}
        # 1024 threads of a multiprocessor share its 65,536 registers.
        assert all(int(n) <= 64 for n in re.findall(r"Used (\d+) registers", run.stderr))


libm = ctypes.CDLL("libm.so.6")
libm.fmaf.argtypes, libm.fmaf.restype = [ctypes.c_float] * 3, ctypes.c_float
libm.fma.argtypes, libm.fma.restype = [ctypes.c_double] * 3, ctypes.c_double


def as_float(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def float_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def as_double(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def double_bits(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def half_value(bits):
    return struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]


class Thread:
    """One thread of a launch, over memory of 32-bit words by address. Values are bit patterns."""

    def __init__(self, text, entry, arguments, memory):
        body = re.search(rf"\.entry {entry}\((.*?)\)[^{{]*\{{(.*?)\n\}}", text, re.S)
        names = re.findall(r"\.param \.u(?:32|64) (\w+)", body.group(1))
        assert len(names) == len(arguments)
        self.parameters = dict(zip(names, arguments))
        self.memory = memory
        self.code, self.labels = [], {}
        for line in re.sub(r"(\w+):\n", r"\1:;", body.group(2)).split(";"):
            line = " ".join(line.split())
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.code)
            elif line and not line.startswith(".reg"):
                self.code.append(line)

    def run(self, block, thread, blocks):
        self.registers = {"%ctaid.x": block, "%tid.x": thread, "%nctaid.x": blocks}
        at = 0
        for _ in range(200000):
            line = self.code[at]
            at += 1
            guard = re.match(r"@(%\w+) (.*)", line)
            if guard:
                if not self.registers[guard.group(1)]:
                    continue
                line = guard.group(2)
            operation, _, rest = line.partition(" ")
            if operation == "ret":
                return
            if operation == "bra":
                at = self.labels[rest]
                continue
            self.execute(operation, [w.strip() for w in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,{}\[\]]+", rest) if w.strip()])
        raise AssertionError("does not end")

    def value(self, word):
        if word.startswith("{"):
            return [self.value(w.strip()) for w in word[1:-1].split(",")]
        if word.startswith("%"):
            return self.registers[word]
        if re.match(r"0[fd]", word):
            return int(word[2:], 16)
        return int(word, 0)

    def address(self, word):
        return self.value(word.strip("[]"))

    def execute(self, operation, words):
        if operation.startswith("ld.param"):
            self.registers[words[0]] = self.parameters[words[1].strip("[]")]
        elif operation.startswith(("ld.", "st.", "red.")):
            self.access(operation, words)
        elif "mma" in operation:
            self.multiply(operation, words)
        elif operation.startswith("mov") and words[0].startswith("{"):
            self.unpack(words)
        else:
            out = self.compute(operation, [self.value(w) for w in words[1:]])
            size = 64 if re.search(r"64$|mul\.wide|cvta?\.(to\.global\.)?u64|f64", operation) else 32
            if operation.startswith("cvt.u32"):
                size = 32
            self.registers[words[0]] = out & (2**size - 1)

    def unpack(self, words):
        low, high = [w.strip() for w in words[0][1:-1].split(",")]
        value = self.value(words[1])
        self.registers[low], self.registers[high] = value & 0xFFFFFFFF, value >> 32

    def access(self, operation, words):
        if operation.startswith("red"):
            assert operation == "red.global.add.u64"
            self.memory[self.address(words[0])] += self.value(words[1])
        elif operation.startswith("ld"):
            at = self.address(words[1])
            names = [w.strip() for w in words[0].strip("{}").split(",")]
            for n, name in enumerate(names):
                self.registers[name] = self.memory[at + 4 * n]
        else:
            at = self.address(words[0])
            values = self.value(words[1])
            for n, value in enumerate(values if isinstance(values, list) else [values]):
                self.memory[at + 4 * n] = value

    def multiply(self, operation, words):
        """All elements of A are one number, and all of B: whichever lane holds which, a sum is of equal products."""
        kind, depth = ("tf32", 8) if "tf32" in operation else ("bf16", 16) if "bf16" in operation else ("fp16", 16)
        sums = [as_float(c) for c in self.value(words[3])]
        factors = []
        for registers in (self.value(words[1]), self.value(words[2])):
            numbers = set()
            for r in registers:
                if kind == "tf32":
                    numbers.add(as_float(r))
                elif kind == "bf16":
                    numbers |= {as_float(r & 0xFFFF0000), as_float((r << 16) & 0xFFFFFFFF)}
                else:
                    numbers |= {half_value(r), half_value(r >> 16)}
            assert len(numbers) == 1
            factors.append(numbers.pop())
        out = [w.strip() for w in words[0][1:-1].split(",")]
        assert len(out) == len(sums) == (8 if kind == "fp16" else 4)
        for name, c in zip(out, sums):
            self.registers[name] = float_bits(c + depth * factors[0] * factors[1])

    @staticmethod
    def compute(operation, v):
        simple = {
            "cvta.to.global.u64": lambda: v[0], "cvt.u64.u32": lambda: v[0], "cvt.u32.u64": lambda: v[0],
            "mad.lo.u32": lambda: v[0] * v[1] + v[2], "mul.lo.u64": lambda: v[0] * v[1],
            "mul.wide.u32": lambda: v[0] * v[1], "shl.b32": lambda: v[0] << v[1], "shl.b64": lambda: v[0] << v[1],
            "shr.u32": lambda: v[0] >> v[1], "add.u32": lambda: v[0] + v[1], "add.u64": lambda: v[0] + v[1],
            "sub.u32": lambda: v[0] - v[1], "and.b32": lambda: v[0] & v[1], "or.b32": lambda: v[0] | v[1],
            "xor.b32": lambda: v[0] ^ v[1], "cvt.rn.f32.u32": lambda: float_bits(float(v[0])),
            "cvt.rn.f64.u32": lambda: double_bits(float(v[0])),
            "cvt.rn.f16.f32": lambda: struct.unpack("<H", struct.pack("<e", as_float(v[0])))[0],
            "fma.rn.f32": lambda: float_bits(libm.fmaf(*map(as_float, v))),
            "fma.rn.f64": lambda: double_bits(libm.fma(*map(as_double, v))),
        }
        if operation in simple:
            return simple[operation]()
        if operation.startswith("mov"):
            if isinstance(v[0], list):
                return v[0][0] | v[0][1] << 16
            return v[0]
        compare = re.fullmatch(r"setp\.(eq|ne|ge)\.u(32|64)", operation)
        assert compare, operation
        return int({"eq": v[0] == v[1], "ne": v[0] != v[1], "ge": v[0] >= v[1]}[compare.group(1)])


@pytest.fixture(scope="module")
def truth():
    library = ctypes.CDLL(str(BUILD / "tests/unit/burn/libfakecuda.so"))
    library.fake_truth.restype = ctypes.c_uint32
    return lambda kind, thread, turns, seed: library.fake_truth(KINDS.index(kind), thread, turns, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_work_kernel_writes_what_the_cpu_computes(kind, truth):
    blocks, turns, seed = 3, 5, 77
    for n, thread in enumerate(SAMPLES):
        memory = {64: 0}
        Thread(text_of(kind), kind, [4096, 64, 1, blocks, 3, turns, seed], memory).run(n % 2, thread, 2)
        i = n % 2 * 256 + thread
        want = truth(kind, i, turns, seed)
        # From the second block on and around: each of the three has the result, and nothing else is written.
        assert memory == {64: 0} | {4096 + (block * 512 + i) * 4: want for block in range(blocks)}


@pytest.mark.parametrize("kind", KINDS)
def test_results_tell_rounds_and_threads_apart(kind, truth):
    words = {truth(kind, thread, 9, seed) for thread in range(64) for seed in range(4)}
    assert len(words) > 60 and 0 not in words
    if kind in ("fp32", "fp64", "int32"):
        assert truth(kind, 3, 9, 1) != truth(kind, 3, 10, 1)


def pattern(j):
    return (j % 2**32 + (j >> 32)) * 2654435761


def test_fill_writes_the_pattern():
    memory = {}
    words = 1100
    for block in range(2):
        for thread in range(256):
            Thread(text_of("fill"), "fill", [4096, words, 9], memory).run(block, thread, 2)
    assert memory == {4096 + 4 * j: (pattern(j) + 9) % 2**32 for j in range(words)}


def test_dram_copies_its_blocks_whole_and_nothing_else():
    turns, blocks, threads = 2, 3, 256
    bytes_of_block = threads * turns * 64
    source, out = 1 << 20, 1 << 24
    memory = {source + 4 * j: j + 1 for j in range(blocks * bytes_of_block // 4)}
    for thread in range(threads):
        Thread(text_of("dram"), "dram", [out, source, 2, blocks, 2, turns, 0], memory).run(0, thread, 1)
    copied = {at - out: v for at, v in memory.items() if at >= out}
    words = bytes_of_block // 4
    assert copied == {4 * j: j + 1 for block in (2, 0) for j in range(block * words, (block + 1) * words)}


def check_kernel(name, first, memory, words, blocks, count, threads=256):
    for thread in range(threads):
        kernel = Thread(text_of(name), name, [first, 1 << 20, 8, words, 2, blocks, count], memory)
        kernel.run(0, thread, 1)
    return memory[8]


def test_compare_counts_the_words_that_differ():
    words, blocks = 300, 3
    reference, results = 4096, 1 << 20
    memory = {8: 0} | {reference + 4 * j: j * 3 for j in range(words)}
    memory |= {results + 4 * (b * words + j): j * 3 for b in range(blocks) for j in range(words)}
    assert check_kernel("compare", reference, memory, words, blocks, 3) == 0
    for block, j in ((0, 0), (0, 299), (1, 17), (2, 255), (2, 256)):
        memory[results + 4 * (block * words + j)] ^= 1 << 31
    assert check_kernel("compare", reference, memory, words, blocks, 2) == 4  # blocks 2 and 0
    assert check_kernel("compare", reference, memory, words, blocks, 3) == 9  # all, added


def test_verify_counts_the_words_that_are_not_the_patterns():
    words, blocks, results = 300, 3, 1 << 20
    memory = {8: 0} | {results + 4 * j: (pattern(j) + 5) % 2**32 for j in range(words * blocks)}
    assert check_kernel("verify", 5, memory, words, blocks, 3) == 0
    memory[results + 4 * (2 * words + 299)] ^= 1 << 31
    memory[results + 4 * words] ^= 1 << 31
    assert check_kernel("verify", 5, memory, words, blocks, 1) == 1
    assert check_kernel("verify", 6, memory, words, blocks, 1) == 1 + words


def test_fault_writes_where_nothing_is():
    memory = {}
    Thread(text_of("fault"), "fault", [], memory).run(0, 0, 1)
    assert memory == {16: 1}

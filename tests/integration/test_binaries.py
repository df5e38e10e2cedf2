# SPDX-License-Identifier: Apache-2.0
"""What the built programs are made of: the libraries they need, and how they are hardened."""
import re
import subprocess

import pytest

from harness import BUILD

SANITIZED = BUILD.name in ("asan", "tsan", "fuzz")
pytestmark = [pytest.mark.smoke, pytest.mark.skipif(SANITIZED, reason="a sanitizer brings libraries of its own")]
PROGRAMS = ["podgpu-agent", "podgpu-burn", "podgpu-exporter", "podgpu-source"]
NEEDED = {
    "podgpu-agent": ["libc.so.6", "libcrypt.so.1", "libgnutls.so.30", "libm.so.6", "libmicrohttpd.so.12"],
    "podgpu-burn": ["libc.so.6", "libcrypt.so.1", "libgnutls.so.30", "libm.so.6", "libmicrohttpd.so.12"],
    "podgpu-exporter": ["libc.so.6", "libcrypt.so.1", "libgnutls.so.30", "libm.so.6", "libmicrohttpd.so.12"],
    "podgpu-source": ["libc.so.6"],
}
# A function of each library that is linked statically.
STATIC = ["uv_run", "nghttp2_session_mem_recv", "yaml_parser_parse", "libdeflate_alloc_compressor",
          "protobuf_c_message_unpack"]


def readelf(program, *options):
    return subprocess.run(["readelf", "-W", *options, BUILD / program], capture_output=True, text=True, check=True).stdout


def imported(program):
    """The names that a program takes from shared libraries."""
    rows = [line.split() for line in readelf(program, "--dyn-syms").splitlines()]
    return {row[7].split("@")[0] for row in rows if len(row) > 7 and row[6] == "UND"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_needs_these_shared_libraries_and_no_other(program):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(program, "-d"))
    # The loader itself, which thread-local variables of RE2 ask for, is there anyway.
    assert sorted(name for name in needed if not name.startswith("ld-linux")) == NEEDED[program]


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_position_independent_and_its_tables_are_read_only(program):
    dynamic = readelf(program, "-d")
    assert re.search(r"Type:\s+DYN", readelf(program, "-h"))
    assert re.search(r"FLAGS_1\).*NOW PIE", dynamic)
    assert re.search(r"\(FLAGS\).*BIND_NOW", dynamic)
    assert "GNU_RELRO" in readelf(program, "-l")


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_memory_of_it_is_both_written_and_executed(program):
    segments = re.findall(r"^  (\w+) +(?:0x\w+ +){5}([RWE ]{3}) ", readelf(program, "-l"), re.M)
    assert dict(segments)["GNU_STACK"] == "RW "
    assert [flags for name, flags in segments if "W" in flags and "E" in flags] == []
    assert "TEXTREL" not in readelf(program, "-d")


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_looks_for_libraries_where_the_system_does(program):
    assert not re.search(r"RPATH|RUNPATH", readelf(program, "-d"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_stacks_and_buffers_are_guarded(program):
    names = imported(program)
    assert "__stack_chk_fail" in names
    assert len([n for n in names if n.endswith("_chk")]) >= 4
    assert not names & {"strcpy", "strcat", "gets", "system", "popen", "strtok", "atoi", "alloca"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_exports_nothing_of_its_own(program):
    rows = [line.split() for line in readelf(program, "--dyn-syms").splitlines()]
    own = {row[7] for row in rows if len(row) > 7 and row[0][:-1].isdigit() and row[6] != "UND" and "@" not in row[7]}
    assert own == set()


@pytest.mark.skipif(BUILD.name == "release", reason="stripped")
def test_small_libraries_are_inside():
    text = subprocess.run(["nm", BUILD / "podgpu-exporter"], capture_output=True, text=True, check=True).stdout
    inside = set(re.findall(r"^\w+ [Tt] (\w+)$", text, re.M))
    assert [name for name in STATIC if name not in inside] == []


@pytest.mark.skipif(BUILD.name != "release", reason="only the release build is stripped")
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_release_is_stripped_and_small(program):
    assert ".symtab" not in readelf(program, "-S") and ".debug_info" not in readelf(program, "-S")
    assert (BUILD / program).stat().st_size < (1 << 20 if program == "podgpu-burn" else 4 << 20)

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Holds src/ and sim/ to the rules of the house (docs/architecture.md, "Rooms").

Which room may include which; each foreign library's header in its adapter only; engines without I/O, clock and log;
no banned function; no file over 1000 lines (tables apart), no function over 80.

check_rooms.py ROOT       prints one line a violation; status 1 when there is any
check_rooms.py --self-test  plants each kind of violation in a tree of its own and looks for it
"""

import pathlib
import re
import sys
import tempfile
import unittest

MOST_FILE_LINES = 1000
MOST_FUNCTION_LINES = 80

# Room -> rooms it may include, beside itself. Not listed: a room nobody knows.
ROOMS = {
    "base": set(),
    "codec": {"base"},
    "metrics": {"base", "codec"},
    "io": {"base", "codec"},
    "gpu": {"base"},
    "source": {"base", "gpu"},
    "kube": {"base", "codec", "io"},
    "exporter": {"base", "codec", "metrics", "io", "gpu", "kube"},
    "agent": {"base", "codec", "metrics", "io", "kube"},
    "burn": {"base", "metrics", "io"},
    "top": {"base", "metrics", "io"},
}

# The simulated node reads its scenarios with our parsers; the ABI and the truth are its own, so that a mistake in ours
# does not meet its twin there.
SIM_MAY = {"base", "codec"}

# What glibc and the kernel headers give; anything else in <> is a foreign library.
LIBC = re.compile(
    r"^(assert|ctype|dirent|elf|endian|errno|fcntl|float|fnmatch|getopt|glob|grp|ifaddrs|inttypes|limits|link|locale|"
    r"malloc|math|netdb|poll|pthread|pwd|sched|setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|"
    r"stdio|stdlib|string|strings|syslog|termios|time|unistd|"
    r"(sys|linux|arpa|netinet|net|asm)/[a-z0-9_/]+)\.h$"
)
CXX = re.compile(r"^(charconv|cmath|cstddef|cstdint|cstring|memory|new|string|string_view|utility|vector)$")

# Foreign header -> where it may be included.
FOREIGN = [
    (r"uv\.h", r"src/io/loop\.c"),
    (r"microhttpd\.h", r"src/io/http_\w+\.[ch]"),
    (r"gnutls/crypto\.h", r"src/io/http_\w+\.[ch]|src/codec/hash\.c"),
    (r"gnutls/.*", r"src/io/http_\w+\.[ch]"),
    (r"nghttp2/.*", r"src/io/grpc\w*\.[ch]"),
    (r"curl/.*", r"src/io/http_client_curl\.h"),
    (r"crypt\.h", r"src/io/\w+\.c"),
    (r"yaml\.h", r"src/codec/yaml\.c"),
    (r"libdeflate\.h", r"src/codec/gzip\.c"),
    (r"jansson\.h", r"src/codec/json\.c"),
    (r"re2/.*", r"src/codec/regex\.cc"),
    (r"snappy-c\.h", r"src/codec/snappy\.c"),
    (r"xxhash\.h", r"src/codec/hash\.[ch]"),
    (r"expat\.h", r"src/codec/xml\.c"),
    (r"protobuf-c/.*|.*\.pb-c\.h", r"src/(codec/protobuf|kube/pod_resources_decoder)\.c"),
    (r"dlfcn\.h", r"src/base/dl\.c|sim/.*\.c"),
    (r"curses\.h|ncurses\.h", r"src/top/\w+\.c"),
]
VENDOR = re.compile(r"^(nvml|cuda\w*|dcgm\w*)\.h$")

# No I/O, no clock, no log: bytes and time come in as arguments.
ENGINES = re.compile(
    r"^src/(metrics/.*|gpu/.*|codec/.*|exporter/(attribute|device_view|doctor_read|dra|ledger|usage|exp_counts|inventory|render|counters|config_file|pod_metadata|source_plan)\w*\.[ch]|"
    r"kube/(process_cgroup|pod_record)\w*\.[ch]|"
    r"agent/cwagent_config(?!_load)\w*\.[ch]|"
    r"agent/(aws/logs_wire|labels|letter_case|config_reader|relabel\w*|prometheus_(duration|config_\w+))\.[ch]|"
    r"agent/(target\w*|scrape_protocol|discover_document)\.[ch]|"
    r"agent/sinks/emf\w*\.[ch]|"
    r"agent/series\w*\.[ch]|"
    r"agent/aws/(answer|container_url|env|ini|keys|profile)\.[ch]|"
    r"agent/(spool_record|lint\w*)\.[ch]|"
    r"agent/discover_kube_\w+\.[ch]|"
    r"burn/(shape|page|record|report)\.[ch]|"
    r"source/(dcgm_(address|value|watch_plan)\.[ch]|nvml_usage_track\.c)|"
    r"kube/(pod_resources_decoder|api_stream|api_kubeconfig)\.[ch])$"
)
ENGINE_HEADERS = re.compile(r'^("base/(log|dl|file)\.h"|"io/.*"|<(fcntl|poll|dirent|netdb|sys/socket|sys/epoll)\.h>)$')
ENGINE_CALLS = re.compile(
    r"\b(clock_mono_ns|clock_wall_ns|clock_gettime|gettimeofday|time|log_(?:at|debug|info|warn|error|write)|open|openat|"
    r"fopen|read|write|recv|send|socket|printf|fprintf|puts|fputs|getenv)\s*\("
)

BANNED = re.compile(
    r"\b(atoi|atol|atoll|atof|strtol|strtoll|strtoul|strtoull|strtoimax|strtoumax|sscanf|scanf|fscanf|strcpy|strcat|"
    r"sprintf|vsprintf|strtok|strtok_r|gets|system|popen|alloca|setlocale)\s*\("
)

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]+[>"])', re.M)
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.S,
)


def blank(text):
    """Spaces of the same shape, so that lines and columns stay."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    return TOKEN.sub(lambda m: blank(m.group()) if m.group()[0] == "/" else m.group(), text)


def without_literals(text):
    """Neither comments nor what stands in quotes."""
    return TOKEN.sub(lambda m: blank(m.group()), text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


class Checker:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.found = []

    def say(self, path, line, what):
        self.found.append(f"{path}:{line}: {what}")

    def run(self):
        for top in ("src", "sim"):
            for path in sorted((self.root / top).rglob("*")):
                if path.suffix in (".c", ".h", ".cc") and path.is_file():
                    self.check_file(path.relative_to(self.root).as_posix(), path.read_text(encoding="utf-8"))
        return self.found

    def check_file(self, path, text):
        self.check_room(path)
        for match in INCLUDE.finditer(without_comments(text)):
            self.check_include(path, line_of(text, match.start(1)), match.group(1))
        code = without_literals(text)
        for match in BANNED.finditer(code):
            self.say(path, line_of(code, match.start()), f"banned function {match.group(1)}")
        if ENGINES.match(path):
            for match in ENGINE_CALLS.finditer(code):
                self.say(path, line_of(code, match.start()), f"{match.group(1)} in an engine")
        if not re.search(r"_table\.[ch]$", path):
            lines = text.count("\n")
            if lines > MOST_FILE_LINES:
                self.say(path, lines, f"file of {lines} lines, {MOST_FILE_LINES} at most")
            self.check_functions(path, code)

    def check_room(self, path):
        parts = path.split("/")
        if parts[0] == "src" and (len(parts) < 3 or parts[1] not in ROOMS):
            self.say(path, 1, "not in a known room")

    def check_include(self, path, line, header):
        name = header[1:-1]
        if ENGINES.match(path) and ENGINE_HEADERS.match(header):
            self.say(path, line, f"{header} in an engine")
        for pattern, allowed in FOREIGN:
            if (header[0] == "<" or name.endswith(".pb-c.h")) and re.fullmatch(pattern, name):
                if not re.fullmatch(allowed, path):
                    self.say(path, line, f"{header} outside its adapter")
                return
        if VENDOR.match(name):
            self.say(path, line, f"vendor header {header}")
        elif header[0] == "<":
            if not LIBC.match(name) and not (path.endswith(".cc") and CXX.match(name)):
                self.say(path, line, f"{header} is of no known library")
        elif path.startswith("src/"):
            self.check_own_include(path, line, name)
        elif name.split("/")[0] in ROOMS.keys() - SIM_MAY:
            self.say(path, line, f"the simulated node includes {header}")

    def check_own_include(self, path, line, name):
        room, other = path.split("/")[1], name.split("/")[0]
        if "/" not in name or other not in ROOMS:
            self.say(path, line, f'"{name}" does not name a room')
        elif other != room and other not in ROOMS.get(room, set()):
            self.say(path, line, f'room {room} includes "{name}"')
        elif ".." in name.split("/"):
            self.say(path, line, f'"{name}" climbs out of its room')

    def check_functions(self, path, code):
        code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: blank(m.group()), code, flags=re.M)
        stack = []  # True: a scope whose content is top level (namespace, extern "C")
        start = 0  # of what may become a function's signature
        opened = 0
        for match in re.finditer(r"[{};]", code):
            at = match.start()
            top = all(stack)
            if match.group() == "{":
                before = code[start:at].strip()
                if top:
                    opened = start + len(code[start:at]) - len(code[start:at].lstrip()) if before else at
                    function = before.endswith(")") or re.search(r"\)\s*(const|noexcept)$", before)
                    scope = bool(re.search(r"(\bnamespace\b[\w\s:]*|\bextern\b)$", before))
                    stack.append(scope)
                    in_function = bool(function)
                    if scope:
                        start = at + 1
                else:
                    stack.append(False)
            elif match.group() == "}":
                was_scope = stack.pop() if stack else False
                if all(stack):
                    if not was_scope and in_function:
                        self.check_length(path, code, opened, at)
                    start = at + 1
            elif top:
                start = at + 1

    def check_length(self, path, code, opened, at):
        first, last = line_of(code, opened), line_of(code, at)
        if last - first + 1 > MOST_FUNCTION_LINES:
            self.say(path, first, f"function of {last - first + 1} lines, {MOST_FUNCTION_LINES} at most")


CLEAN = {
    "src/base/buf.h": '#pragma once\n#include <stdint.h>\n#include "base/sv.h"\n',
    "src/base/num_text.cc": '#include <charconv>\nextern "C" {\nint f(void)\n{\n    return 0;\n}\n}\n',
    "src/codec/yaml.c": '#include <yaml.h>\n#include "base/buf.h"\n',
    "src/io/loop.c": "#include <uv.h>\n#include <sys/epoll.h>\n",
    "src/exporter/render.c": '#include "gpu/frame.h" // not "io/loop.h"\n/* strcpy(a) time(0) */\n'
                             'static const char *s = "sprintf(x) // {";\n'
                             "static int runtime(int x)\n{\n    return x;\n}\n",
    "sim/truth.c": '#include "node.h"\n#include <math.h>\n',
}


def function_of(lines):
    return "int f(void)\n{\n" + "    g();\n" * (lines - 3) + "}\n"


class SelfTest(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return Checker(root).run()

    def test_a_clean_tree_has_no_violation(self):
        self.assertEqual(self.found(CLEAN), [])

    def test_each_planted_violation_is_found(self):
        cases = [
            ("src/base/a.c", '#include "codec/yaml.h"\n', ':1: room base includes "codec/yaml.h"'),
            ("src/gpu/a.h", '\n#include "codec/gzip.h"\n', ':2: room gpu includes "codec/gzip.h"'),
            ("src/source/a.c", '#include "io/loop.h"\n', ':1: room source includes "io/loop.h"'),
            ("src/metrics/a.c", '#include "gpu/frame.h"\n', ':1: room metrics includes "gpu/frame.h"'),
            ("src/kube/a.c", '#include "metrics/text.h"\n', ':1: room kube includes "metrics/text.h"'),
            ("src/exporter/a.c", '#include "source/nvml.h"\n', ':1: room exporter includes "source/nvml.h"'),
            ("src/exporter/a.c", '#  include "buf.h"\n', ':1: "buf.h" does not name a room'),
            ("src/exporter/a.c", '#include "base/../io/loop.h"\n', ':1: "base/../io/loop.h" climbs out of its room'),
            ("src/exporter/a.c", '#include "sim/node.h"\n', ':1: "sim/node.h" does not name a room'),
            ("src/attic/a.c", "", ":1: not in a known room"),
            ("src/a.c", "", ":1: not in a known room"),
            ("sim/a.c", '#include "gpu/frame.h"\n', ':1: the simulated node includes "gpu/frame.h"'),
            ("src/io/timer.c", "#include <uv.h>\n", ":1: <uv.h> outside its adapter"),
            ("src/io/loop.h", "#include <uv.h>\n", ":1: <uv.h> outside its adapter"),
            ("src/exporter/a.c", "#include <microhttpd.h>\n", ":1: <microhttpd.h> outside its adapter"),
            ("src/io/grpc.c", "#include <gnutls/gnutls.h>\n", ":1: <gnutls/gnutls.h> outside its adapter"),
            ("src/io/loop.c", "#include <nghttp2/nghttp2.h>\n", ":1: <nghttp2/nghttp2.h> outside its adapter"),
            ("src/exporter/a.c", "#include <yaml.h>\n", ":1: <yaml.h> outside its adapter"),
            ("src/io/http_body.c", "#include <libdeflate.h>\n", ":1: <libdeflate.h> outside its adapter"),
            ("src/kube/a.c", '#include "x.pb-c.h"\n', ':1: "x.pb-c.h" outside its adapter'),
            ("src/source/a.c", "#include <dlfcn.h>\n", ":1: <dlfcn.h> outside its adapter"),
            ("src/agent/a.c", "#include <curl/curl.h>\n", ":1: <curl/curl.h> outside its adapter"),
            ("src/io/http_client.h", "#include <curl/curl.h>\n", ":1: <curl/curl.h> outside its adapter"),
            ("src/kube/a.c", "#include <crypt.h>\n", ":1: <crypt.h> outside its adapter"),
            ("src/source/a.c", "#include <nvml.h>\n", ":1: vendor header <nvml.h>"),
            ("src/base/a.c", "#include <zlib.h>\n", ":1: <zlib.h> is of no known library"),
            ("src/base/a.c", "#include <cmath>\n", ":1: <cmath> is of no known library"),
            ("src/gpu/a.c", '#include "base/log.h"\n', ':1: "base/log.h" in an engine'),
            ("src/exporter/render_x.c", '#include "io/loop.h"\n', ':1: "io/loop.h" in an engine'),
            ("src/exporter/inventory.c", "int f(void)\n{\n    return clock_mono_ns();\n}\n",
             ":3: clock_mono_ns in an engine"),
            ("src/metrics/text.c", 'void f(void)\n{\n    log_warn("x");\n}\n', ":3: log_warn in an engine"),
            ("src/exporter/attribute.c", "void f(void)\n{\n    open(0);\n}\n", ":3: open in an engine"),
        ]
        for function in ("atoi", "strtol", "strtoul", "sscanf", "strcpy", "strcat", "sprintf", "strtok", "system",
                         "alloca"):
            cases.append(("sim/a.c", f"int x = {function} (y);\n", f":1: banned function {function}"))
        for path, text, expected in cases:
            with self.subTest(path=path, text=text):
                files = dict(CLEAN)
                files[path] = text
                self.assertEqual(self.found(files), [path + expected])

    def test_sizes_are_exact(self):
        longest = "\n" * (MOST_FILE_LINES - 1)
        self.assertEqual(self.found({"src/base/a.c": longest + "x\n"}), [])
        self.assertEqual(self.found({"src/base/a.c": longest + "x\ny\n"}),
                         ["src/base/a.c:1001: file of 1001 lines, 1000 at most"])
        self.assertEqual(self.found({"src/base/a_table.c": "\n" * 5000}), [])
        self.assertEqual(self.found({"src/base/a.c": function_of(80)}), [])
        self.assertEqual(self.found({"src/base/a.c": "int v = 0;\n\n" + function_of(81)}),
                         ["src/base/a.c:3: function of 81 lines, 80 at most"])
        table = "static const int t[] = {\n" + "    1,\n" * 200 + "};\n"
        self.assertEqual(self.found({"src/base/a.c": table + "struct s {\n" + "    int a;\n" * 200 + "};\n"}), [])
        hidden = '#define BODY \\\n    if (x) { \\\n        y();\n' + "namespace {\n" + function_of(81) + "}\n"
        self.assertEqual(self.found({"src/base/a.cc": hidden}),
                         ["src/base/a.cc:5: function of 81 lines, 80 at most"])

    def test_a_table_before_a_function_does_not_hide_it(self):
        text = "static const struct s t[] = {\n    {1, {2}},\n};\n\n" + function_of(100)
        self.assertEqual(self.found({"src/base/a.c": text}), ["src/base/a.c:5: function of 100 lines, 80 at most"])


def main():
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = Checker(sys.argv[1]).run()
    print("\n".join(found) or "no violation")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

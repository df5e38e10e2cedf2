#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks abi.h against the facts of one major: a _Static_assert per struct and member that both know.

usage: make_abi_check.py ABI_TSV ABI_H HEADER OUT
"""
import re
import sys


def main():
    facts, header, release, target = sys.argv[1:]
    major = re.match(r"dcgm(\d)", release)[1]
    text = open(header, encoding="utf-8").read()
    declared = set(re.findall(r"^} (dcgm\w+_(?:t|v\d+));", text, re.M))
    lines, known = [], {}
    with open(facts, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    for source, kind, group, name, size, offset in (row[:6] for row in rows):
        if group not in declared or kind not in ("struct", "member"):
            continue
        known.setdefault(group, set()).add(source)
        if source != release:
            continue
        if kind == "struct":
            lines.append(f'_Static_assert(sizeof({group}) == {size}, "{group}");')
        elif offset != "-":
            lines.append(f'_Static_assert(offsetof({group}, {name}) == {offset}, "{group}.{name}");')
    # Two structs inside others that the headers' facts have no row of their own for.
    missing = declared - set(known) - {"dcgmNvLinkGpuLinkP2PStatus_v1"}
    if missing or not lines:
        sys.exit(f"no facts about {sorted(missing)}")
    # What the double declares for one major only stands in abi.h under DCGM_MAJOR.
    guarded = {name for name in declared if release not in known.get(name, {release})}
    for name in guarded:
        before = text[:text.index(f"}} {name};")]
        if len(re.findall(r"^#if DCGM_MAJOR == 4", before, re.M)) == len(re.findall(r"^#endif", before, re.M)) - 1:
            sys.exit(f"{name} is not in {release} and stands in abi.h for both majors")
    with open(target, "w", encoding="utf-8") as f:
        f.write(f'#include <stddef.h>\n\n#include "abi.h"\n\n_Static_assert(DCGM_MAJOR == {major}, "major");\n' +
                "\n".join(lines) + "\n")


main()

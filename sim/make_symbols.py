#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""data/nvml-symbols.tsv -> symbol_table.c, or the linker's list of what a driver of 2020 exports.

usage: make_symbols.py table|map TSV OUT
"""
import re
import sys

OLD_BRANCH = 450


def branch_of(text):
    if text.endswith("-branch"):  # the newest header: no driver branch named yet
        return 610
    return int(re.sub(r"\D", "", text))


def main():
    kind, source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:]
    symbols = sorted((row[0], branch_of(row[2])) for row in rows)
    with open(target, "w", encoding="utf-8") as f:
        if kind == "map":
            f.write("{\n    global:\n")
            for name, branch in symbols:
                if branch <= OLD_BRANCH:
                    f.write(f"        {name};\n")
            f.write("    local: *;\n};\n")
            return
        f.write('#include "symbol_table.h"\n\nconst struct sim_driver_symbol sim_driver_symbols[] = {\n')
        for name, branch in symbols:
            f.write(f'    {{"{name}", {branch}}},\n')
        f.write("};\nconst size_t sim_driver_symbol_count = sizeof(sim_driver_symbols) / sizeof(sim_driver_symbols[0]);\n")


main()

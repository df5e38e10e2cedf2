#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""data/dcgm-fields.tsv -> the fields a libdcgm of one release knows, with their metadata.

usage: make_fields.py FIELDS_TSV RELEASE OUT
"""
import sys

LEVELS = {"None": 0, "GPU": 1, "vGPU": 2, "Switch": 3, "GPU_I": 4, "GPU_CI": 5, "LINK": 6, "CPU": 7, "CPU_CORE": 8,
          "ConnectX": 9}
TYPES = {"i64": "i", "double": "d", "string": "s", "binary": "b"}
SIZES = {"i64": 8, "double": 8, "string": 0, "binary": 0}


def version(text):
    return tuple(int(part) for part in text.lstrip("v").split("."))


def main():
    source, release, target = sys.argv[1:]
    lines = []
    with open(source, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:]
    for row in sorted(rows, key=lambda row: int(row[0])):
        field, tag, kind, scope, level, first = row[0], row[3], row[4], row[5], row[6], row[13]
        if version(first) > version(release) or field == "0":
            continue
        nvml = row[10] if row[10].isdigit() else "0"
        lines.append(f"    {{{field}, '{TYPES[kind]}', {SIZES[kind]}, \"{tag[:47]}\", {0 if scope == 'global' else 1}, {nvml}, "
                     f"{LEVELS[level]}, NULL}},\n")
    with open(target, "w", encoding="utf-8") as f:
        f.write('#include "double.h"\n\nconst dcgm_field_meta_t double_fields[] = {\n' + "".join(lines) +
                "};\nconst size_t double_field_count = sizeof(double_fields) / sizeof(double_fields[0]);\n")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks abi.h against the facts: one _Static_assert per struct and member that both know.

usage: make_abi_check.py ABI_TSV ABI_H OUT
"""
import re
import sys

# The double's old forms and packing-free helpers that the newest header has no row for.
OURS_ONLY = {"nvmlPciInfo_v2_t", "nvmlDeviceAttributes_v1_t", "nvmlEventData_v1_t", "nvmlGridLicensableFeature_v3_t",
             "nvmlGridLicensableFeatures_v3_t"}


def main():
    facts, header, target = sys.argv[1:]
    declared = set(re.findall(r"^} (nvml\w+_t);", open(header, encoding="utf-8").read(), re.M))
    lines, seen = [], set()
    with open(facts, encoding="utf-8") as f:
        for row in (line.rstrip("\n").split("\t") for line in f):
            kind, group, name, size, offset = row[1:6]
            struct = group
            if struct not in declared:
                continue
            if kind == "struct":
                seen.add(struct)
                lines.append(f'_Static_assert(sizeof({struct}) == {size}, "{struct}");')
            elif kind == "member":
                lines.append(f'_Static_assert(offsetof({struct}, {name}) == {offset}, "{struct}.{name}");')
    missing = declared - seen - OURS_ONLY
    if missing:
        sys.exit(f"no facts about {sorted(missing)}")
    with open(target, "w", encoding="utf-8") as f:
        f.write('#include <stddef.h>\n\n#include "abi.h"\n\n' + "\n".join(lines) + "\n")


main()

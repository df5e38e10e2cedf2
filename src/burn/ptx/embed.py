#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT TEXT...: a C file with each text as a string, `burn_ptx_STEM`, comments left out."""

import pathlib
import re
import sys


def main():
    out, *texts = map(pathlib.Path, sys.argv[1:])
    lines = ["// Made of the texts in src/burn/ptx.", '#include "burn/kernels.h"', ""]
    for path in texts:
        kept = [re.sub(r"\s*//.*", "", line).strip() for line in path.read_text(encoding="ascii").splitlines()]
        lines.append(f"const char burn_ptx_{path.stem}[] =")
        lines += [f'    "{line}\\n"' for line in kept if line]
        lines[-1] += ";"
    out.write_text("\n".join(lines) + "\n", encoding="ascii")


main()

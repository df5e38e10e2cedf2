# SPDX-License-Identifier: Apache-2.0
"""Our declarations of NVML against NVIDIA's own header, where the package nvidia-nvml-dev is installed."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def official_header():
    for folder in sys.path:
        found = sorted(pathlib.Path(folder).glob("nvidia/*/include/nvml.h"))
        if found:
            return found[-1]
    return None


def test_structs_and_constants_are_those_of_nvidias_header():
    header = official_header()
    if header is None:
        pytest.skip("package nvidia-nvml-dev is not installed")
    done = subprocess.run(
        [ROOT / "script/make-abi-check", "nvml", ROOT / "src/source/nvml_abi.h", "nvml.h", header.parent],
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 300

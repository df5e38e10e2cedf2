# SPDX-License-Identifier: Apache-2.0
"""script/make-abi-check notices a declaration that differs from the vendor's header, whichever way it does."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(vendor, folder):
    return subprocess.run([ROOT / "script/make-abi-check", vendor, folder / f"{vendor}_abi.h", f"{vendor}_abi.h", folder],
                          capture_output=True, text=True, timeout=60, check=False)


def test_ours_as_they_are_pass(tmp_path):
    for vendor, least in (("nvml", 300), ("dcgm", 450)):
        (tmp_path / f"{vendor}_abi.h").write_text((ROOT / f"src/source/{vendor}_abi.h").read_text())
        done = check(vendor, tmp_path)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[0]) >= least


@pytest.mark.parametrize("vendor, old, new, message", [
    ("dcgm", "unsigned int addressIsUnixSocket;", "unsigned long addressIsUnixSocket;", "dcgmConnectV2Params_v2: size"),
    ("dcgm", "dcgmIncidentInfo_t incidents[64];", "dcgmIncidentInfo_t incidents[63];", "dcgmHealthResponse_v4: size"),
    ("dcgm", "int linkState[256];", "int linkState[64];", "dcgm4_switch_links: size"),
    ("dcgm", "int linkStatus[DCGM_MAX_NUM_DEVICES];", "int linkStatus[31];", "dcgmNvLinkGpuLinkP2PStatus_v1: size"),
    ("dcgm", "char uuid[DCGM_MAX_STR_LENGTH];", "char uuid[96]; char pad[160];", "no such member"),
    ("dcgm", "    unsigned int fbFree;\n", "", "dcgmDeviceMemoryUsage_v1.fbFree: missing"),
    ("dcgm", "DCGM_ST_PAUSED = -54", "DCGM_ST_PAUSED = -53", "DCGM_ST_PAUSED: value"),
    ("dcgm", "<<<NOT_PERM>>>", "<<<NO_PERM>>>", "DCGM_STR_NOT_PERMISSIONED: value"),
    ("dcgm", "DCGM_STRUCT_VERSION(dcgmProfGetMetricGroups_v3, 3)", "DCGM_STRUCT_VERSION(dcgmProfGetMetricGroups_v3, 2)",
     "dcgmProfGetMetricGroups_version3: value"),
    ("nvml", "char busIdLegacy[16];", "char busIdLegacy[20];", "nvmlPciInfo_t"),
])
def test_a_declaration_that_differs_fails(tmp_path, vendor, old, new, message):
    text = (ROOT / f"src/source/{vendor}_abi.h").read_text()
    assert old in text
    (tmp_path / f"{vendor}_abi.h").write_text(text.replace(old, new))
    done = check(vendor, tmp_path)
    assert done.returncode != 0
    assert message in done.stderr

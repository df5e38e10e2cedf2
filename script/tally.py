# SPDX-License-Identifier: Apache-2.0
"""Adds up the stages of script/test: tally.py STAGES. Prints `N passed, N failed, N skipped`; status 1 when any failed.

Each line of STAGES is a stage's name, exit status and result file (meson's JSON lines or JUnit XML; "-": the stage is
one test itself), with tabs between. A stage that ended badly without a failed test in its file counts as one."""
import json
import pathlib
import sys
from xml.etree import ElementTree


def of_meson(path):
    passed = failed = skipped = 0
    for line in path.read_text().splitlines():
        result = json.loads(line)["result"]
        passed += result in ("OK", "EXPECTEDFAIL")
        skipped += result == "SKIP"
        failed += result not in ("OK", "EXPECTEDFAIL", "SKIP")
    return passed, failed, skipped


def of_junit(path):
    passed = failed = skipped = 0
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        bad = int(suite.get("failures")) + int(suite.get("errors"))
        left = int(suite.get("skipped"))
        failed += bad
        skipped += left
        passed += int(suite.get("tests")) - bad - left
    return passed, failed, skipped


def of_stage(status, result):
    if result == "-":
        return (1, 0, 0) if status == 0 else (0, 1, 0)
    path = pathlib.Path(result)
    try:
        passed, failed, skipped = of_meson(path) if path.suffix == ".json" else of_junit(path)
    except (OSError, ValueError, KeyError, TypeError, ElementTree.ParseError):
        return 0, 1, 0
    if failed == 0 and (status != 0 or passed == 0):
        failed = 1
    return passed, failed, skipped


def main(stages):
    total = [0, 0, 0]
    for line in pathlib.Path(stages).read_text().splitlines():
        _, status, result = line.split("\t")
        total = [t + n for t, n in zip(total, of_stage(int(status), result))]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

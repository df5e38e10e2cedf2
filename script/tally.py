# SPDX-License-Identifier: Apache-2.0
"""Adds up the stages of script/test: tally.py STAGES. Prints `N passed, N failed, N skipped`; status 1 when any failed.

Each line of STAGES is a stage's name, exit status and result file (meson's JSON lines or JUnit XML; "-": the stage is
one test itself), with tabs between. A stage that ended badly without a failed test in its file counts as one. A stage
named "... again" ran failed tests of another once more: those that passed are no failures.
tally.py --failed RESULT prints the tests that failed in a JUnit file, as pytest takes them; nothing where something
else went wrong, too."""
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


def failed_tests(path):
    """file::test of each failed one; none when a failure can't be run by its name."""
    names = []
    try:
        cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []
    for case in cases:
        if case.find("failure") is None and case.find("error") is None:
            continue
        if not (case.get("file") or "").endswith(".py"):
            return []
        module = case.get("file").removesuffix(".py").replace("/", ".")
        inside = case.get("classname").removeprefix(module).strip(".").split(".")
        names.append("::".join([case.get("file"), *filter(None, inside), case.get("name")]))
    return sorted(set(names))


def main(stages):
    total = [0, 0, 0]
    for line in pathlib.Path(stages).read_text().splitlines():
        name, status, result = line.split("\t")
        passed, failed, skipped = of_stage(int(status), result)
        if name.endswith(" again"):
            passed, failed, skipped = passed, -passed, 0
        total = [t + n for t, n in zip(total, (passed, failed, skipped))]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    if sys.argv[1] == "--failed":
        print("".join(name + "\n" for name in failed_tests(sys.argv[2])), end="")
        sys.exit(0)
    sys.exit(main(sys.argv[1]))

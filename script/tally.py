"""Adds up the results that script/test left in a folder and prints the closing line."""
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.iterdir()):
    if path.suffix == ".json":
        for line in path.read_text().splitlines():
            result = json.loads(line)["result"]
            if result in ("OK", "EXPECTEDFAIL"):
                passed += 1
            elif result == "SKIP":
                skipped += 1
            else:
                failed += 1
    elif path.suffix == ".xml":
        for suite in ElementTree.parse(path).getroot().iter("testsuite"):
            bad = int(suite.get("failures")) + int(suite.get("errors"))
            left = int(suite.get("skipped"))
            failed += bad
            skipped += left
            passed += int(suite.get("tests")) - bad - left
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)

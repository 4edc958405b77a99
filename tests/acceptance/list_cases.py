"""Prints a line "ROW name" for each acceptance case: test_N4_raw_address_is_refused[22] → N4 raw address is refused [22]."""

import pathlib
import re
import subprocess
import sys

listed = subprocess.run([sys.executable, "-B", "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", str(pathlib.Path(__file__).parent)],
                        capture_output=True, text=True)
if listed.returncode != 0:
    sys.exit(listed.stdout + listed.stderr)
for line in listed.stdout.splitlines():
    if case := re.search(r"::test_([A-Z]\d+)_(\w+)(\[.*\])?$", line):
        row, name, variant = case.groups()
        print(row, name.replace("_", " "), *([variant] if variant else []))

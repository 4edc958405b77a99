"""Prints a line "ROW name" for each acceptance case: test_N4_raw_address_is_refused → N4 raw address is refused."""

import pathlib
import re

for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
    for match in re.finditer(r"^def test_([A-Z]\d+)_(\w+)\(", path.read_text(), re.MULTILINE):
        print(match.group(1), match.group(2).replace("_", " "))

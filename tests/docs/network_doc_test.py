"""docs/network.md against the source: every reason, every kind of drop and every limit, with its number and its place."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs/network.md").read_text()
UNITS = {"": 1, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "KiB": 1 << 10, "MiB": 1 << 20}
CHRONO = {"milliseconds": "ms", "seconds": "s", "minutes": "min", "hours": "h"}
FIELDS = {"flows": 0, "idle": 1, "payload": 2}  # of DatagramFlows::Limits


def rows(heading):
    section = DOC.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| ")][1:]


def number(text):
    """Of a constant's C++ expression: 64 * 1024, size_t{1} << 20, std::chrono::seconds(30), 30s."""
    text = re.sub(r"std::chrono::(\w+)\((\d+)\)", lambda m: m[2] + CHRONO[m[1]], text.strip())
    text = re.sub(r"(?:size_t|uint64_t)\{(\d+)\}", r"\1", text)
    if timed := re.fullmatch(r"(\d+)(ms|s|min|h)", text):
        return int(timed[1]) * UNITS[timed[2]]
    assert re.fullmatch(r"[\d\s*<()]+", text), f"not a plain number: {text}"
    return eval(text)  # digits and operators only


def constant(path, name):
    name, _, field = name.partition(".")
    source = re.sub(r"//[^\n]*", "", (ROOT / path).read_text())
    found = re.findall(rf"\b{name}\s*(?:=\s*([^;]+)|\{{([^;]+)\}});", source)
    assert len(found) == 1, f"{path}: {len(found)} definitions of {name}"
    text = found[0][0] or found[0][1]
    return number(text.split(",")[FIELDS[field]] if field else text)


def documented(text):
    count, _, unit = text.partition(" ")
    return int(count) * UNITS[unit]


def check_limits():
    wrong = []
    for what, limit, where in rows("Limits"):
        path, name = re.fullmatch(r"`(\S+)` `(\S+)`", where).groups()
        if constant(path, name) != documented(limit):
            wrong.append(f"{what}: the document says {limit}, {path} has {constant(path, name):g}")
    return wrong


def check_reasons():
    source = set(re.findall(r'\{Reason::\w+, "([\w-]+)"\}', (ROOT / "src/policy/reason.cc").read_text()))
    assert len(source) > 10
    listed = {row[0].strip("`") for row in rows("Reasons")}
    return [f"reason {reason}: only in one of the document and src/policy/reason.cc" for reason in sorted(source ^ listed)]


def check_drops():
    table = (ROOT / "src/net/link.cc").read_text().split("kNames = {")[1].split("}")[0]
    kinds = re.findall(r'"([\w-]+)"', table)
    assert len(kinds) > 10
    return [f"drop {kind}: not in the document" for kind in kinds if f"`{kind}`" not in DOC]


problems = check_limits() + check_reasons() + check_drops()
assert number("size_t{1} << 20") == 1 << 20 and number("64 * 1024") == 65536 and number("std::chrono::minutes(10)") == 600
print("\n".join(problems) or "docs/network.md agrees with the source")
sys.exit(bool(problems))

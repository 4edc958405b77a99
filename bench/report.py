"""Rows of figures: one form for the table, the JSON files and the README."""
import dataclasses
import json
import os
import statistics
from typing import Optional


@dataclasses.dataclass
class Row:
    row: str  # of the contract
    what: str
    ours: Optional[float]
    unit: str
    peer: Optional[float] = None
    peer_name: Optional[str] = None
    ratio: Optional[float] = None
    bar: str = ""
    holds: Optional[bool] = None  # None: has no bar, or (without `ours`) could not be measured here; `what` says why


def at_most(row, what, ours, unit, limit):
    return Row(row, what, ours, unit, bar=f"<= {limit:g} {unit}", holds=ours <= limit)


def beside(row, what, ours, unit, peer, peer_name, *, at_least=None, at_most=None):
    """`ours` as a multiple of the peer's."""
    ratio = ours / peer
    holds = ratio >= at_least if at_least is not None else ratio <= at_most
    bar = f">= {at_least:g}x" if at_least is not None else f"<= {at_most:g}x"
    return Row(row, what, ours, unit, peer, peer_name, ratio, bar, holds)


def aside(row, what, ours, unit, peer, peer_name):
    """`ours` as a multiple of the peer's, without a bar."""
    return Row(row, what, ours, unit, peer, peer_name, ours / peer)


def faster(row, what, ours, unit, peer, peer_name, times):
    """How many times the peer's time ours is."""
    ratio = peer / ours
    return Row(row, what, ours, unit, peer, peer_name, ratio, f">= {times:g}x faster", ratio >= times)


def unmeasured(row, what, why, unit="", bar=""):
    return Row(row, f"{what}: {why}", None, unit, bar=bar)


def interleave(rounds, *measures, pick=statistics.median):
    """Calls the measures in turn, round after round, and gives the median (or what `pick` says) of each: what disturbs the
    machine for a while then disturbs all of them."""
    seen = [[] for _ in measures]
    for _ in range(rounds):
        for values, measure in zip(seen, measures):
            values.append(measure())
    return [pick(values) for values in seen]


def number(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def verdict(row):
    return {True: "yes", False: "NO", None: "-" if row.ours is not None else "not measured"}[row.holds]


HEAD = ("row", "what", "ours", "peer", "ratio", "bar", "holds")


def cells(row):
    peer = "-" if row.peer is None else f"{number(row.peer)} {row.unit} ({row.peer_name})"
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
    ours = "-" if row.ours is None else f"{number(row.ours)} {row.unit}"
    return (row.row, row.what, ours, peer, ratio, row.bar, verdict(row))


def plain_table(rows):
    lines = [HEAD] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def markdown_table(rows):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def write_json(folder, rows):
    """`folder`/Q1.json and so on, each an array of the rows of that name."""
    os.makedirs(folder, exist_ok=True)
    for name in sorted({row.row for row in rows}):
        with open(os.path.join(folder, f"{name}.json"), "w") as f:
            json.dump([dataclasses.asdict(row) for row in rows if row.row == name], f, indent=1)
            f.write("\n")

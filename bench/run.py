#!/usr/bin/python3
"""The figures of the contract, each measured on this machine, beside its peer where it has one.

    bench/run.py --build build [--row Q2 ...] [--markdown]

Prints one table and writes BUILD/bench/ROW.json. Needs a release build; a machine that does other work at the time gives
figures about that work, so the load is printed with them. Exit status 1 when a bar is missed or a measurement broke; a peer
that is not installed or does not work here is no failure.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import images  # noqa: E402
import memory  # noqa: E402
import report  # noqa: E402
import start  # noqa: E402
from product import Product  # noqa: E402


def measure_network(product):
    # A user namespace also for root: pasta refuses to keep root, and gives up what it needs with it.
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount", "/usr/bin/python3", "-B",
               str(pathlib.Path(__file__).resolve().parent / "network.py")]
    done = subprocess.run(command, env={**product.environment, "SANDBOX_BIN": str(product.bin)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"network.py: {done.stderr.strip()[-800:]}")
    return [report.Row(**row) for row in json.loads(done.stdout)]


# In the order of measuring: what a busy machine disturbs most comes first.
GROUPS = [(("Q2", "N14"), measure_network), (("V3",), start.measure_starts), (("N14",), start.measure_refusals),
          (("Q1",), memory.measure), (("Q3",), images.measure)]
SHOWN = ["Q1", "Q2", "V3", "N14", "Q3"]


def measure_all(product, wanted):
    rows, failed = [], False
    for names, measure in GROUPS:
        if wanted and not wanted & set(names):
            continue
        begin = time.monotonic()
        try:
            found = measure(product)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            failed = True
            found = [report.unmeasured(names[0], measure.__name__, str(error))]
        rows += found
        print(f"  {' '.join(names)}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    rows = [row for row in rows if not wanted or row.row in wanted]
    return sorted(rows, key=lambda row: SHOWN.index(row.row)), failed


def load():
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True, help="folder of a release build")
    parser.add_argument("--row", action="append", choices=SHOWN, help="only this row; repeatable")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    args = parser.parse_args()
    product = Product(args.build)
    product.prepare()
    before = load()
    rows, failed = measure_all(product, set(args.row or []))
    report.write_json(product.build / "bench", rows)
    print(report.markdown_table(rows) if args.markdown else report.plain_table(rows))
    print(f"\n{os.cpu_count()} processors; load before {before}, after {load()} (1, 5, 15 minutes)")
    return 1 if failed or any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

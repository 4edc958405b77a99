"""`make clients`: every client of clients.py in a sandbox, and the table of what it did in docs/clients.md.

Needs root (network namespaces) and the built product. The two roots are made once, in build/clients, in several minutes; after that
a run takes about ten. Ends with an error, and leaves the document alone, when a client does not do what clients.py says. The figures
are of the machine as it is: make them on a quiet one.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/acceptance"), str(pathlib.Path(__file__).parent)]

import roots  # noqa: E402
from clients import CLIENTS  # noqa: E402
from harness import Machine  # noqa: E402
from servers import ClientServers, Runs, controls, problems, refusals  # noqa: E402

BAR = 1.0  # seconds from the first packet to the end (contract N14)
LIMIT = 4.0  # what a busy machine may add to that; beyond it a client has slept, and that is an error
TIMEOUT = 3600
HEAD = """# What clients say when they are refused

Made by `make clients`; not to be edited by hand. Each client ran as root in a sandbox (Debian 12, QEMU emulation) against real servers with
real certificates: once allowed, then refused in three ways. The same refused commands were run where policy allowed them, and worked.

- **A denied name**: the DNS gate answers that there is no such name (decision 042). What a person reads is in the last column.
- **A denied name on an allowed address**: the name was found in `/etc/hosts`; the name gate ends the connection with a TLS alert, or answers
  a plain HTTP request with 403 and the rule that would allow it.
- **An address that no allowed name has led to**: the SYN is reset, as by a closed port.

**Seconds** are from the client's first packet to its end, so that loading a program under emulation does not count; **asked** is the number of
DNS questions, and of connections tried, until it gave up. `sandbox policy log` names the reason and the rule for each of them.
"""


def cell(client, case, said):
    run = said[client.name, case]
    match = re.search(client.words[case], run["output"])
    line = next(line for line in run["output"].splitlines() if match.group() in line)
    line = re.sub(r"^(E: |W: |npm error |npm ERR! |WARNING: )", "", line.strip())
    return f"{run['wait']:.2f}", run["queries"], run["connects"], shorten(line, match.group())


def shorten(line, words, width=110):
    """The part of a line around the words that count."""
    if len(line) > width:
        at = max(0, line.index(words) + len(words) - width)
        line = ("… " if at else "") + line[at : at + width].strip() + (" …" if at + width < len(line) else "")
    return line.replace("|", "\\|").replace("`", "'")


def table(title, case, asked, said):
    rows = [f"\n## {title}\n", "| client | seconds | asked | what it says |", "|---|---|---|---|"]
    for client in CLIENTS:
        if case in client.cases:
            seconds, queries, connects, words = cell(client, case, said)
            count = queries if asked == "queries" else connects
            rows.append(f"| {client.name} | {seconds}{' (1)' if client.remedy and float(seconds) >= BAR else ''} | {count} | `{words}` |")
    return rows


def versions():
    """The packages of the clients, by asking the image's own package list."""
    tar = roots.make("clients", ROOT / "build/clients")
    status = subprocess.run(["tar", "-xOf", tar, "./var/lib/dpkg/status"], check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)", status, re.M))
    wanted = ["curl", "wget", "git", "apt", "python3", "python3-requests", "python3-pip", "nodejs", "npm", "openjdk-17-jre-headless", "openssh-client",
              "postgresql-client-15", "redis-tools"]
    return ", ".join(f"{name} {found[name]}" for name in wanted if name in found)


def document(said, load):
    lines = [HEAD]
    lines += table("A denied name", "name", "queries", said)
    lines += table("A denied name on an allowed address", "stream", "connects", said)
    lines += table("An address that no allowed name has led to", "address", "connects", said)
    lines += ["\n## Clients that wait by themselves\n", *(f"- (1) {client.name}: {client.remedy}" for client in CLIENTS if client.remedy)]
    kept = [said[client.name, case]["wait"] for client in CLIENTS if not client.remedy for case in client.cases if case != "allowed"]
    lines.append(f"\nOf the {len(kept)} other refusals {sum(wait < BAR for wait in kept)} were over within {BAR:.0f} s; the slowest took {max(kept):.1f} s. "
                 f"The load average of the machine was {load:.1f} meanwhile, on {os.cpu_count()} cores.")
    return "\n".join(lines) + "\n"


def main():
    folder = ROOT / "build/clients"
    root, image = roots.servers(folder), roots.clients(folder)
    machine = Machine()
    try:
        machine.start()
        with ClientServers(machine, root) as servers:
            servers.make_java_trust()
            runs = Runs(servers, f"oci:{image}", ["-m", f"{root}/programs:/clients:ro"])
            said, control = refusals(runs, CLIENTS, TIMEOUT, times=2), controls(runs, CLIENTS, TIMEOUT)
    finally:
        machine.stop()
    (folder / "results.json").write_text(json.dumps([[*key, run] for key, run in said.items()]))
    if wrong := problems(CLIENTS, said, control, LIMIT):
        sys.exit("\n".join(wrong))
    text = document(said, os.getloadavg()[2]) + f"\nVersions: {versions()}.\n"
    (ROOT / "docs/clients.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()

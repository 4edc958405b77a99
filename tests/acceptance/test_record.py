"""Contract row V6 of the record: what a guest can do to its own log."""

import fcntl
import json
import os
import pathlib
import socket
import subprocess
import tempfile

from harness import BIN


def test_V6_a_guest_that_floods_the_record_fills_nothing_and_hides_nothing(machine):
    probe = """
attempt(dns, "first.denied.test")
http_before = attempt(dns, "good.test")
answered, waiting = 0, 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(2)
    s.connect((GATEWAY, 53))
    for i in range(20000):
        s.send(query(f"n{i}.flood.test", ident=i))
        waiting += 1
        if waiting == 64:
            try:
                while waiting:
                    answered += s.recv(512)[3] & 15 == 3
                    waiting -= 1
            except socket.timeout:
                waiting = 0
attempt(dns, "last.denied.test")
report(answered=answered)
"""
    name = f"flood-{os.getpid()}"
    seen, run = machine.probe(probe, "--allow", "good.test", "--name", name, timeout=240)
    assert seen["answered"] >= 15000, run  # the control: they were real denials
    audit = machine.home / "run" / name / "audit"
    size = sum(f.stat().st_blocks * 512 for f in audit.iterdir())
    assert 0 < size < 8 << 20, size
    records = machine.decisions(name)
    denied = [r for r in records if r.get("verdict") == "deny"]
    named = [n for r in denied for n in r.get("names", []) + r.get("destinations", [])]
    assert "first.denied.test" in named and "last.denied.test" in named
    assert [r for r in records if r.get("verdict") == "allow" and r.get("names") == ["good.test"]]
    counted = sum(r.get("count", 1) for r in denied if r.get("kind") in (None, "summary"))
    lost = sum(r.get("count", 1) for r in records if r.get("kind") == "lost")
    assert counted + lost >= seen["answered"], (counted, lost, seen)
    assert len({n for n in named if n.endswith(".flood.test")}) + lost >= seen["answered"]  # and every destination by name
    assert max(by_second(records).values()) <= 1500, by_second(records)


def by_second(records):
    counts = {}
    for r in records:
        counts[r["time"][:19]] = counts.get(r["time"][:19], 0) + 1
    return counts


def test_V6_the_recorder_holds_twice_its_bound_and_reports_the_loss(machine):
    limit = 64 << 10
    losses, largest = {}, 0

    def look(audit):
        nonlocal largest
        files = {}
        for name in sorted(os.listdir(audit)):
            try:
                files[name] = (pathlib.Path(audit) / name).read_text()
            except FileNotFoundError:  # it became the older one at this moment; it is seen the next time
                continue
        largest = max(largest, sum(map(len, files.values())))
        # A last line may be half written.
        entries = [json.loads(line) for text in files.values() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        losses.update({r["seq"]: r["count"] for r in entries if r.get("kind") == "lost"})
        return entries

    with tempfile.TemporaryDirectory(dir=machine.dir) as audit:
        with RecorderProcess(audit, {"sources": [{"fd": 10, "name": "gateway"}], "limit_bytes": limit}) as recorder:
            for i in range(5000):
                recorder.record({"proto": "dns", "verdict": "deny", "reason": "no-allow-rule", "names": [f"n{i}.flood.test"]})
                if i % 50 == 0:
                    look(audit)
            recorder.source.send(b"{ no record")
        left = look(audit)
        assert sorted(os.listdir(audit)) == ["decisions.1.jsonl", "decisions.jsonl"]
    assert limit < largest <= 2 * limit, largest
    assert left[-1]["kind"] == "end"
    assert [r["seq"] for r in left] == list(range(left[0]["seq"], left[-1]["seq"] + 1))  # no gap in what is left
    assert left[0]["seq"] > 1000 and sum(losses.values()) == left[0]["seq"] - 1, losses  # every record that is gone was reported
    assert [r["names"] for r in left if r.get("verdict") == "deny"][-1] == ["n4999.flood.test"]
    assert [r["count"] if "count" in r else 1 for r in left if r.get("kind") == "malformed"] == [1]


class RecorderProcess:
    """sandbox-recorder as docs/processes.md has it started, with one source at descriptor 10."""

    def __init__(self, audit, config):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.source, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = os.memfd_create("config")
        os.write(memory, json.dumps(config).encode())
        os.lseek(memory, 0, os.SEEK_SET)
        directory = os.open(audit, os.O_RDONLY | os.O_DIRECTORY)
        wanted = {3: memory, 4: theirs.fileno(), 5: directory, 10: source.fileno()}

        def place():
            high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for number, fd in wanted.items()}
            for number, fd in high.items():
                os.dup2(fd, number)

        self.control = ours
        self.process = subprocess.Popen([BIN / "sandbox-recorder"], preexec_fn=place, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for fd in (memory, directory):
            os.close(fd)
        theirs.close()
        source.close()
        assert json.loads(self.control.recv(4096)) == {"ready": True}

    def record(self, fields):
        self.source.send(json.dumps(fields).encode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.source.close()
        self.control.close()
        assert self.process.wait(10) == 0

"""Contract row C4 while a sandbox runs: rules are added, open connections are judged again, decisions are explained, and a
person is asked."""

import json
import os
import pathlib
import re
import select
import subprocess
import tempfile
import termios
import time

import pytest

from harness import Running
from terminal import Terminal

# Inside: runs the shell commands that it is given, one line each, and says how each ended.
SHELL = "echo up; while read -r line; do sh -c \"$line\"; echo \"ended $?\"; done"


class Inside(Running):
    def __init__(self, machine, *flags, name=None):
        super().__init__(machine, SHELL, *flags, name=name)

    def do(self, line):
        """Output and status of a command inside, which ends by itself."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        out = ""
        while True:
            got = self.process.stdout.readline()
            assert got, out
            if match := re.fullmatch(r"ended (\d+)\n", got):
                return out, int(match[1])
            out += got


@pytest.fixture(scope="module")
def inside(machine):
    with Inside(machine, "--allow", "good.test:80", "--allow", "www.good.test:8080") as it:
        yield it


CURL = "curl -sS -m 20 "


def test_C4_what_is_allowed_while_it_runs_is_reachable_at_once(machine, inside):
    assert inside.do(CURL + "http://other.test/")[1] == 6
    result = machine.sandbox("policy", "allow", inside.name, "OTHER.test:80")
    assert result.status == 0 and result.out == "allow  other.test:80\n", result
    assert inside.do(CURL + "http://other.test/") == ("hello from other.test\n", 0)
    assert inside.do(CURL + "http://sibling.test/")[1] == 6, "nothing else is"
    again = machine.sandbox("policy", "allow", inside.name, "other.test:80")
    assert again.status == 0 and again.out == "" and "nothing changed" in again.err, again
    check = machine.sandbox("policy", "check", "--sandbox", inside.name, "other.test:80")
    assert check.status == 0 and "matched allow 'other.test:80'" in check.out, check
    record = json.loads((inside.dir / "record.json").read_text())
    assert record["allow"] == ["good.test:80", "www.good.test:8080", "other.test:80"], record
    notes = [r["text"] for r in machine.decisions(inside.name) if r.get("kind") == "note"]
    assert [n for n in notes if re.fullmatch(r"policy changed: allow other\.test:80, by uid \d+, pid \d+", n)], notes


# Inside: one connection to each of two names, then, at every line on stdin, a request on each.
TALK = r"""
import socket, sys
def dial(name):
    s = socket.create_connection((name, 80), 20)
    s.settimeout(20)
    return s
def get(s, name):
    try:
        s.sendall(("GET / HTTP/1.1\r\nHost: %s\r\n\r\n" % name).encode())
        data = b""
        while b"hello from" not in data or not data.endswith(b"\n"):
            block = s.recv(1000)
            if not block:
                return "end"
            data += block
        return "answered" if b"hello from" in data and b" 200 " in data else "refused"
    except OSError as error:
        return type(error).__name__
names = ["good.test", "other.test"]
open_ones = [dial(name) for name in names]
print("up", flush=True)
for line in sys.stdin:
    print(*[get(s, name) for s, name in zip(open_ones, names)], flush=True)
"""


def test_C4_a_deny_rule_cuts_what_is_open_and_denied_and_nothing_else(machine):
    with Running(machine, f"python3 -c '{TALK}'", "--allow", "good.test:80", "--allow", "other.test:80") as it:
        def talk():
            it.process.stdin.write("\n")
            it.process.stdin.flush()
            return it.process.stdout.readline().split()

        assert talk() == ["answered", "answered"]
        result = machine.sandbox("policy", "deny", it.name, "other.test")
        assert result.status == 0 and result.out == "deny   other.test\n", result
        first, second = talk()
        assert first == "answered" and second in ("ConnectionResetError", "BrokenPipeError")
        decisions = machine.decisions(it.name)
        cut = [r for r in decisions if r.get("kind") == "close" and r.get("text") == "no longer allowed"]
        assert [r["address"] for r in cut] == ["50.50.50.11"], decisions
        assert [r for r in decisions if r.get("reason") == "deny-rule" and r["rule"] == "other.test"], decisions


def test_C4_a_change_that_fails_changes_nothing_and_says_so(machine, inside):
    def many(first):
        return machine.sandbox("policy", "allow", inside.name, *[f"name{i:05}.zone.example.org" for i in range(first, first + 2500)])

    assert many(0).status == 0
    before = (inside.dir / "record.json").read_text()
    full = many(2500)
    assert full.status == 1 and "128 KiB in all" in full.err and "hint:" in full.err, full.err[:1000]
    bad = machine.sandbox("policy", "allow", inside.name, "sibling.test", "a.*.b")
    assert bad.status == 2 and "'a.*.b'" in bad.err, bad
    host = machine.sandbox("policy", "allow", inside.name, "127.0.0.1:80")
    assert host.status == 2 and "host.internal:80" in host.err, host
    assert (inside.dir / "record.json").read_text() == before
    assert inside.do(CURL + "http://sibling.test/")[1] == 6
    assert inside.do(CURL + "http://good.test/") == ("hello from good.test\n", 0)


def test_C4_a_deny_rule_wins_over_what_is_allowed_later_and_the_user_is_told(machine, inside):
    machine.sandbox("policy", "deny", inside.name, "alias.good.test")
    result = machine.sandbox("policy", "allow", inside.name, "alias.good.test")
    assert result.status == 0 and "alias.good.test stays denied, by the deny rule 'alias.good.test'" in result.err, result
    assert inside.do(CURL + "http://alias.good.test/")[1] == 6


def test_C4_a_decision_is_explained_by_its_number_with_the_command_that_would_change_it(machine, inside):
    inside.do(CURL + "http://www.good.test:8080/; " + CURL + "http://good.test:8080/")
    log = machine.sandbox("policy", "log", "--denied", inside.name).out
    number = re.search(r"deny  http good\.test at 50\.50\.50\.10:8080  host-denied .*#(\d+)$", log, re.M)[1]
    said = machine.sandbox("policy", "explain", f"{inside.name}:{number}")
    assert said.status == 0, said
    match = re.search(r"^allow it: +sandbox policy allow (\S+) (\S+)$", said.out, re.M)
    assert match and match[1] == inside.name, said
    assert "why:" in said.out and f"--allow {match[2]}" in said.out, said
    assert re.search(r"^that is: +TCP port 8080 of \S+, wherever it resolves in public space$", said.out, re.M), said
    assert machine.sandbox("policy", "allow", match[1], match[2]).status == 0, "the command is the one that helps"
    name = match[2].split(":")[0]
    assert inside.do(CURL + f"http://{name}:8080/") == (f"hello from {name}:8080\n", 0)
    after = machine.sandbox("policy", "explain", f"{inside.name}:{number}")
    assert f"allowed since, by the rule '{match[2]}'" in after.out, after
    wrong = machine.sandbox("policy", "explain", f"{inside.name}:999999")
    assert wrong.status == 1 and "no decision" in wrong.err and "hint:" in wrong.err, wrong
    assert machine.sandbox("policy", "explain", f"{inside.name}:x").status == 2


def test_C4_the_last_denial_is_explained_after_the_end(machine):
    name = f"explain-{os.getpid()}"
    machine.run(CURL + "http://other.test/", "--name", name)
    said = machine.sandbox("policy", "explain", name)
    assert said.status == 0 and "no allow rule is about other.test" in said.out, said
    assert "at start: --allow other.test" in re.sub(" +", " ", said.out) and "allow it:" not in said.out, said
    ended = machine.sandbox("policy", "allow", name, "other.test")
    assert ended.status == 1 and f"sandbox '{name}' is not running" in ended.err and "hint:" in ended.err, ended


# ---- ask ----

PROMPT = r"sandbox asks: {}\? \[o\]nce \[s\]ession \[a\]lways \[d\]eny "


class Asked(Terminal):
    """A shell on a terminal in a sandbox that asks; keys that are typed too early are thrown away, so they are typed until the
    answer is on the screen."""

    def __init__(self, machine, *argv, **kwargs):
        self.name = f"asked-{os.getpid()}-{time.monotonic_ns() % 100000}"
        super().__init__(machine, *argv, flags=("--ask", "--name", self.name, "--allow", "good.test"), **kwargs)

    def answer(self, key, outcome):
        end = time.monotonic() + 20
        while not re.search(outcome, self.text):
            assert time.monotonic() < end, self.text
            self.type(key)
            if select.select([self.master], [], [], 0.3)[0]:
                self.text += os.read(self.master, 4096).decode("utf-8", "replace")
        self.text = self.text[re.search(outcome, self.text).end():]


@pytest.fixture()
def asked_home(machine):
    """A home of its own for what is always allowed, with the images of the other."""
    with tempfile.TemporaryDirectory(dir=machine.dir) as home:
        for folder in ("images", "kernel", "boot"):
            pathlib.Path(home, folder).symlink_to(machine.home / folder)
        yield pathlib.Path(home)


def test_C4_a_person_is_asked_and_one_key_answers(machine, asked_home):
    home = {"SANDBOX_HOME": str(asked_home)}
    t = Asked(machine, "bash", "--norc", env=home)
    try:
        t.expect(r"\$ ")
        machine.forget()
        t.type("curl -sS http://other.test/\n")
        t.expect(PROMPT.format(r"look up other\.test"))
        assert machine.seen(server="dns", name="other.test") == [], "nothing has left the host"
        t.type("y\n")  # means nothing
        t.answer("o", "- allowed once")
        t.expect("hello from other.test")
        t.type("curl -sS http://other.test/\n")
        t.expect(PROMPT.format(r"look up other\.test"))
        t.answer("d", "- denied")
        t.expect(r"curl: \(6\) Could not resolve host: other\.test")
        t.type("curl -sS http://50.50.50.10:8080/\n")
        t.expect(PROMPT.format(r"connect to 50\.50\.50\.10:8080, which no name led to"))
        t.answer("s", "- allowed for this sandbox")
        t.expect("hello from 50.50.50.10")
        t.type("curl -sS http://50.50.50.10:8080/\n")
        t.expect("hello from 50.50.50.10")
        t.type("curl -sS http://sibling.test/\n")
        t.expect(PROMPT.format(r"look up sibling\.test"))
        t.answer("a", "- always allowed, in " + re.escape(f"{asked_home}/allow"))
        t.expect("hello from sibling.test")
        assert t.raw(), "the terminal is the command's again"
        t.type("exit\n")
        assert t.process.wait(60) == 0
        assert termios.tcgetattr(t.slave) == t.before
    finally:
        t.close()
    assert (asked_home / "allow").read_text() == "sibling.test\n"
    log = machine.sandbox("policy", "log", t.name, env=home).out
    for note in ("asked: other.test allowed once, by uid", "asked: other.test denied, by uid",
                 "policy changed: allow 50.50.50.10:8080, asked, by uid", "policy changed: allow sibling.test, asked, by uid"):
        assert note in log, log
    later = machine.run(CURL + "http://sibling.test/", env=home)
    assert later.out == "hello from sibling.test\n", later
    assert f"1 rule of {asked_home}/allow is always allowed" in later.err, later
    (asked_home / "allow").write_text("a.*.b\n")
    broken = machine.run("true", env=home)
    assert broken.status == 2 and "allow, line 1: 'a.*.b'" in broken.err, broken


def test_C4_many_questions_at_once_stay_readable_and_other_terminals_may_answer(machine):
    t = Asked(machine, "bash", "--norc")
    try:
        t.expect(r"\$ ")
        t.type("for n in other sibling private; do curl -sS http://$n.test/ & done; wait; echo all do''ne\n")
        t.expect(r"\(2 more waiting\) ")
        allowed = machine.sandbox("policy", "allow", t.name, "other.test", "sibling.test", "private.test")
        assert allowed.status == 0, allowed
        t.expect(r"- no longer asked")
        heard = t.expect(r"(?s)(.*)all done")[1]
    finally:
        t.close()
    assert "hello from other.test" in heard and "hello from sibling.test" in heard, heard


def test_C4_while_a_question_stands_the_sandbox_cannot_write_over_it_or_take_the_key(machine):
    spam = "while :; do printf 'SPAM\\r\\033[2J'; sleep 0.01; done"
    t = Asked(machine, "sh", "-c", f"({spam}) & curl -sS http://other.test/ > /dev/null; read -n 1 x; echo \"got:$x:\"")
    try:
        t.expect(PROMPT.format(r"look up other\.test"), timeout=90)
        end = time.monotonic() + 2
        t.text = ""
        while time.monotonic() < end:
            if select.select([t.master], [], [], 0.2)[0]:
                t.text += os.read(t.master, 65536).decode("utf-8", "replace")
        assert "SPAM" not in t.text, t.text
        t.answer("d", "- denied")
        t.expect("SPAM")
    finally:
        t.close()


def test_C4_without_a_terminal_nobody_is_asked(machine):
    process = machine.popen("run", "--ask", "builtin", "--", "true", cwd=machine.dir, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == "" and "needs a terminal" in err and "sandbox policy allow" in err, err

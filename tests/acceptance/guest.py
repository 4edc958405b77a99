"""A running sandbox that many cases share: probes are sent into it, and each case looks at what came of its own.

`Guest` is a sandbox with a policy; `Outside` answers the same probes in the host namespace, where no gate is: what is refused
inside has its control there, or in the same sandbox under an allowed name.
"""

import json
import os
import pathlib
import select
import subprocess
import tempfile
import time

from harness import SANDBOX

SECONDS = 120  # longer than any probe takes on a loaded machine
DENIED_WITHIN = 5  # a refusal is at once, emulated and on a busy machine; less than anything is held for, 10 s


class Agent:
    """A process that runs guest_agent.py."""

    def __init__(self, argv, **how):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0, **how)
        self.buffer, self.lost = b"", False
        assert self._line() == "up", self.said()

    def _line(self):
        end = time.monotonic() + SECONDS
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            ready = select.select([self.process.stdout], [], [], max(left, 0))[0]
            block = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            self.lost = not block  # a late answer would be taken for that to the next probe
            assert block, f"no answer within {SECONDS} s, or the end: {self.said()}"
            self.buffer += block
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def ask(self, probe):
        """The value of the last expression of `probe`."""
        assert not self.lost, "an earlier probe was not answered"
        self.process.stdin.write(json.dumps({"probe": probe}).encode() + b"\n")
        reply = json.loads(self._line())
        assert "error" not in reply, reply["error"]
        return reply["value"]

    def together(self, *expressions):
        """Each one's value; they run at the same time, for those that wait long."""
        calls = ", ".join(f"lambda: {e}" for e in expressions)
        return self.ask(f"with concurrent.futures.ThreadPoolExecutor({len(expressions)}) as pool: values = "
                        f"list(pool.map(lambda call: call(), [{calls}]))\nvalues")

    def refused(self, expression):
        """What a call that is refused came to; it may not hang."""
        said, seconds = self.ask(f"timed(lambda: {expression})")
        assert seconds < DENIED_WITHIN and said != "timeout", (expression, said, seconds)
        return said

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def program(machine):
    here = pathlib.Path(__file__).parent
    path = machine.dir / "agent.py"
    path.write_text((here / "guest_probe.py").read_text() + (here / "guest_agent.py").read_text())
    return path


class Outside(Agent):
    def __init__(self, machine):
        super().__init__(["ip", "netns", "exec", machine.host, "/usr/bin/python3", "-u", program(machine)],
                         env={**os.environ, "PROBE_CA": str(machine.dir / "ca.pem")})


class Guest(Agent):
    """Root with every capability, in a sandbox with these rules."""

    def __init__(self, machine, *flags):
        self.machine = machine
        self.name = f"guest-{os.getpid()}-{time.monotonic_ns() % 1000000}"
        self.work = tempfile.TemporaryDirectory(dir=machine.dir)
        os.chmod(self.work.name, 0o755)
        shares = ["-m", f"{machine.dir}/ca.pem:/ca.pem:ro", "-m", f"{program(machine)}:/agent.py:ro"]
        run = [SANDBOX, "run", "--no-tty", "--privileged", "--name", self.name, *shares, *flags, "builtin", "--", "sh", "-c",
               "exec sudo python3 -u /agent.py"]
        super().__init__(machine.wrap(run), cwd=self.work.name, env=machine.environment())

    def stop(self):
        super().stop()
        self.work.cleanup()

    def decisions(self, **fields):
        """Records of the policy log that have these fields."""
        log = subprocess.run([SANDBOX, "policy", "log", "--json", self.name], env=self.machine.environment(), capture_output=True, text=True, check=True)
        return [r for r in map(json.loads, log.stdout.splitlines()) if all(r.get(k) == v for k, v in fields.items())]

    def recorded(self, **fields):
        """The same, awaited: a record is written a moment after the decision. Equal denials within 10 s are one record."""
        end = time.monotonic() + 20
        while not (found := self.decisions(**fields)):
            assert time.monotonic() < end, (fields, self.decisions(verdict="deny"))
            time.sleep(0.1)
        return found

    def denied(self, **fields):
        return self.recorded(verdict="deny", **fields)

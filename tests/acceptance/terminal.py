"""A command in a sandbox as a person sees it: on a terminal."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import tempfile
import termios
import time


class Terminal:
    """A sandbox on a pseudo-terminal, which is its controlling one. `stdout`: where the command's output goes instead."""

    def __init__(self, machine, *argv, flags=(), rows=30, columns=100, env=None, stdin=None, stdout=None):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.slave = os.dup(slave)
        self.before = termios.tcgetattr(slave)
        self.work = tempfile.TemporaryDirectory()
        self.process = machine.popen("run", *flags, "builtin", "--", *argv, cwd=self.work.name, stdin=slave if stdin is None else stdin,
                                     stdout=slave if stdout is None else stdout, stderr=subprocess.DEVNULL,
                                     env={"TERM": "xterm", **(env or {})}, start_new_session=True,
                                     preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.text = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, pattern, timeout=60):
        end = time.monotonic() + timeout
        while not re.search(pattern, self.text):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.text!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.text += os.read(self.master, 4096).decode("utf-8", "replace")
                except OSError:
                    break
        match = re.search(pattern, self.text)
        assert match, f"no {pattern!r} in {self.text!r}"
        self.text = self.text[match.end() :]
        return match

    def type(self, text):
        os.write(self.master, text.encode())

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)
        self.work.cleanup()

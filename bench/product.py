"""The built product, as the benches start it."""
import contextlib
import os
import pathlib
import select
import subprocess
import tempfile
import time


class Product:
    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.bin = self.build / "bin"
        # The same caches as the acceptance tests, so that the user's own ~/.sandbox is left alone.
        self.home = pathlib.Path(os.environ.get("SANDBOX_TEST_HOME", self.build / "test-home")).resolve()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.environment = {**os.environ, "SANDBOX_HOME": str(self.home), "NO_COLOR": "1"}
        self.environment.pop("SANDBOX_TRACE", None)

    def prepare(self):
        """Image, kernel and boot state, so that every later start is a warm one."""
        with tempfile.TemporaryDirectory() as workspace:
            subprocess.run([self.bin / "sandbox", "run", "-w", workspace, "builtin", "--", "true"], env=self.environment,
                           stdin=subprocess.DEVNULL, check=True, timeout=900)

    @contextlib.contextmanager
    def running(self, image, *command, flags=()):
        """A sandbox with an empty workspace mounted, in the time of the with block; see Running."""
        with tempfile.TemporaryDirectory() as workspace:
            begin = time.monotonic()
            process = subprocess.Popen([self.bin / "sandbox", "run", "-w", workspace, *flags, image, "--", *command],
                                       env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            try:
                yield Running(process, begin)
            finally:
                process.kill()  # its supervisor sees that, and ends the sandbox
                process.communicate()
                wait_for_supervisors()

    def first_output(self, image, *command):
        """Seconds from the call of `sandbox run` to the command's first byte."""
        with self.running(image, *command) as sandbox:
            return sandbox.wait_output()


def wait_for_supervisors():
    """A supervisor whose client is gone is nobody's child any more; the next start must not share the machine with its end."""
    end = time.monotonic() + 10
    while time.monotonic() < end and any(words[0].endswith(b"/sandbox-supervisor") and parent_of(other) == 1
                                         for other, words in processes()):
        time.sleep(0.02)


class Running:
    def __init__(self, process, begin):
        self.process = process
        self.begin = begin

    def wait_output(self, seconds=120):
        """Seconds from the start to the next output."""
        if not select.select([self.process.stdout], [], [], seconds)[0] or not os.read(self.process.stdout.fileno(), 4096):
            self.process.kill()
            raise RuntimeError(f"the sandbox printed nothing: {self.process.stderr.read().decode(errors='replace')[-500:]}")
        return time.monotonic() - self.begin

    def parts(self):
        """Pids of its processes by name: sandbox-supervisor, sandbox-gateway, qemu-system-x86_64, ..."""
        children = {}
        for pid, words in processes():
            children.setdefault(parent_of(pid), []).append((pid, os.path.basename(words[0]).decode()))
        found, parents = {}, [self.process.pid]
        while parents:
            for pid, name in children.get(parents.pop(), []):
                found.setdefault(name, []).append(pid)
                parents.append(pid)
        return found


def processes():
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            if words[0]:
                yield int(entry), words


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def pss_megabytes(pid, without=""):
    """Proportional set size in units of 10^6 bytes; mappings of files whose path starts with `without` left out."""
    total, counted = 0, True
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                counted = not (without and len(words) > 5 and words[5].startswith(without))
            elif words[0] == "Pss:" and counted:
                total += int(words[1]) * 1024
    return total / 1e6

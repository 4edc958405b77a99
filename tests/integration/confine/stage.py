"""Starts each confined program as it is shipped, with hostile code preloaded into it (inject.cc), and hears what that could do.

A Stage is the surroundings: a user, his files, another of his processes, a listener on loopback.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

BIN = pathlib.Path(os.environ["SANDBOX_BIN"])
PROBE = BIN / "libconfine_probe.so"
QEMU = "/usr/bin/qemu-system-x86_64"
ORDINARY = 64000  # a user of whom nothing is on this machine
# As src/machine/command_line.cc has it.
QEMU_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


class Stage:
    def __init__(self, uid):
        self.uid = uid
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sandbox-confine-"))
        for name in ("home/.ssh/id_ed25519", "home/notes", "home/unlinked", "home/renamed", "run/other/disk.qcow2",
                     "share/file", "read_only/file"):
            path = self.dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("of the user\n")
        for name in ("audit", "bin", "mount_point"):
            (self.dir / name).mkdir()
        for program in ("sandbox-gateway", "sandbox-recorder", "sandbox-files", "sandbox-launcher", PROBE.name):
            shutil.copy(BIN / program, self.dir / "bin")  # the build folder may be closed to another user
        self.dir.chmod(0o755)  # QEMU is nobody, and finds the probe in here
        if uid != os.geteuid():
            for folder, _, files in os.walk(self.dir):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    os.chown(path, uid, uid)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # of the test's own network namespace
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.victim = subprocess.Popen(self.as_user(["cat"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.victim.stdin.write(b"up\n")
        self.victim.stdin.flush()
        assert self.victim.stdout.readline() == b"up\n"

    def as_user(self, argv):
        if self.uid == os.geteuid():
            return [str(word) for word in argv]
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", *map(str, argv)]

    def close(self):
        self.victim.kill()
        self.victim.wait()
        self.listener.close()
        # Controls have mounted something there.
        while os.path.ismount(self.dir / "mount_point"):
            subprocess.run(["umount", self.dir / "mount_point"], check=True)
        shutil.rmtree(self.dir)

    def environment(self, program, report):
        with open(f"/proc/{self.victim.pid}/maps") as maps:
            address = next(line.split("-")[0] for line in maps if " r" in line)
        return {"LD_PRELOAD": str(self.dir / "bin" / PROBE.name), "CONFINE_PROBE_PROGRAM": program,
                "CONFINE_PROBE_REPORT": str(report), "CONFINE_PROBE_DIR": str(self.dir),
                "CONFINE_PROBE_VICTIM": str(self.victim.pid), "CONFINE_PROBE_ADDRESS": f"0x{address}",
                "CONFINE_PROBE_PORT": str(self.listener.getsockname()[1])}

    # ---- a helper, as docs/processes.md says

    @contextlib.contextmanager
    def helper(self, program, config, wires, guest_wire, **more):
        """`wires` are {descriptor: socket or number}. Gives the outcomes and the pid of the helper, which is ready by then."""
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = os.memfd_create("config")
        os.write(memory, json.dumps(config).encode())
        os.lseek(memory, 0, os.SEEK_SET)
        heard, tell = os.pipe()
        environment = {**os.environ, **self.environment(program, 7), "CONFINE_PROBE_WIRE": str(guest_wire), **more}
        process = start(self.as_user([self.dir / "bin" / program]), {3: memory, 4: theirs, 7: tell, **wires}, environment)
        os.close(memory)
        os.close(tell)
        theirs.close()
        try:
            control.settimeout(60)
            hello = control.recv(65536)
            assert hello == b'{"ready":true}', hello or process.stderr.read()
            os.set_blocking(heard, False)
            yield parse(os.read(heard, 65536)), process.pid
        finally:
            control.close()
            process.kill()
            process.wait()
            process.stderr.close()
            os.close(heard)

    # ---- QEMU, in its cage and out of it

    def qemu(self, caged):
        heard, tell = os.pipe()
        held, release = os.pipe()
        control, theirs = socket.socketpair()
        # Probes wait until nothing is left of the root in which QEMU was started, as the guest does.
        environment = {**self.environment(os.path.basename(QEMU), 10), "CONFINE_PROBE_AWAIT": "11"}
        command = ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), QEMU, "-machine", "none",
                   "-nodefaults", "-display", "none", "-S", "-sandbox", QEMU_SANDBOX]
        if not caged:
            command.insert(1, "CONFINE_PROBE_CONTROL_ALONE=1")
        else:
            binds = [QEMU, "/usr/bin/env", "/usr/lib", "/lib", "/lib64", "/usr/share/qemu", "/usr/share/seabios",
                     "/etc/ld.so.cache", "/dev/null", self.dir / "bin"]
            command = [self.dir / "bin" / "sandbox-launcher", "3", *(b for b in binds if os.path.exists(b)), "--", *command]
        process = start(self.as_user(command), {3: theirs, 10: tell, 11: held}, os.environ)
        for fd in (tell, held):
            os.close(fd)
        theirs.close()
        try:
            if caged:
                self._empty_the_cage(control, heard)
            os.close(release)
            return parse(self._hear(heard))
        finally:
            control.close()
            process.kill()
            process.wait()
            process.stderr.close()
            os.close(heard)

    @staticmethod
    def _empty_the_cage(control, heard):
        """Once QEMU has come as far as its own filter: until then it needs its libraries."""
        assert os.read(heard, 6) == b"begun\n"
        control.settimeout(60)
        control.send(b"d")
        assert control.recv(1) == b"d"

    @staticmethod
    def _hear(heard):
        report = b""
        while not report.endswith(b"end\n"):
            piece = os.read(heard, 65536)
            assert piece, f"ended early: {report[-200:]}"
            report += piece
        return report


def start(argv, descriptors, environment):
    numbers = {number: fd if isinstance(fd, int) else fd.fileno() for number, fd in descriptors.items()}
    high = {number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for number, fd in numbers.items()}

    def place():
        for number, fd in high.items():
            os.dup2(fd, number)

    process = subprocess.Popen(argv, env=environment, preexec_fn=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, pass_fds=tuple(numbers))
    for fd in high.values():
        os.close(fd)
    return process


def parse(report):
    """{"confined": {probe: outcome}, "control": {probe: outcome}}"""
    outcomes = {"confined": {}, "control": {}}
    lines = report.decode().splitlines()
    assert lines[-1] == "end", report
    for line in lines:
        if line in ("begun", "end"):
            continue
        when, probe, outcome = line.split()
        assert probe not in outcomes[when], f"{probe} was reported twice"
        outcomes[when][probe] = outcome
    assert len(outcomes["control"]) > 60 and outcomes["confined"].keys() in (set(), outcomes["control"].keys())
    return outcomes

"""What every acceptance case stands on: a machine of its own (network namespaces), and a way to run a sandbox in it.

`host` is the namespace in which `sandbox` runs; `world` has the servers (world.py). They are joined by a veth pair, and nothing
else is reachable from either, so a case can neither depend on nor touch a real network.
"""

import ctypes
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SANDBOX_BIN_DIR", ROOT / "build" / "bin"))
SANDBOX = BIN / "sandbox"


class Result:
    def __init__(self, status, out, err, seconds):
        self.status, self.raw_out, self.err, self.seconds = status, out, err, seconds
        self.out = out.decode("utf-8", "replace")

    def __repr__(self):
        return f"status {self.status} after {self.seconds:.2f} s\n--- out\n{self.out}\n--- err\n{self.err}"


class Machine:
    """Namespaces, servers and a sandbox home, for one test session."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sandbox-acceptance-"))
        self.host = f"sbx-host-{os.getpid()}"
        self.world = f"sbx-world-{os.getpid()}"
        self.log = self.dir / "world.log"
        self.log.touch()
        # Image, kernel and boot states are kept between sessions; they are caches of the product itself.
        self.home = pathlib.Path(os.environ.get("SANDBOX_TEST_HOME", ROOT / "build" / "test-home"))
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.servers = None

    def start(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True)

        for ns in (self.host, self.world):
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
        ip("link", "add", "veth0", "netns", self.host, "type", "veth", "peer", "name", "veth0", "netns", self.world)
        ip("-n", self.host, "addr", "add", "50.50.50.1/24", "dev", "veth0")
        for address in ("50.50.50.10/24", "50.50.50.11/24", "50.50.50.53/24", "10.99.0.10/24"):
            ip("-n", self.world, "addr", "add", address, "dev", "veth0")
        for ns, end in ((self.host, 1), (self.world, 10)):
            ip("-n", ns, "addr", "add", f"fd50::{end}/64", "dev", "veth0", "nodad")
            ip("-n", ns, "link", "set", "veth0", "up")
        ip("-n", self.host, "route", "add", "10.99.0.0/24", "dev", "veth0")
        ip("-n", self.host, "route", "add", "default", "via", "50.50.50.10")
        self.in_host(["sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647"], check=True)
        (self.dir / "resolv.conf").write_text("nameserver 50.50.50.53\n")
        self.make_certificates()
        self.servers = subprocess.Popen(
            ["ip", "netns", "exec", self.world, "/usr/bin/python3", "-B", str(pathlib.Path(__file__).parent / "world.py"),
             "--log", str(self.log), "--certificates", str(self.dir)],
            stdout=subprocess.PIPE)
        assert self.servers.stdout.readline() == b"ready\n"
        return self

    def stop(self):
        if self.servers:
            self.servers.kill()
            self.servers.wait()
        for ns in (self.host, self.world):
            subprocess.run(["ip", "netns", "del", ns], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def make_certificates(self):
        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out",
                "ca.pem", "-subj", "/CN=acceptance CA", "-days", "30")
        names = "good.test www.good.test alias.good.test sneaky.good.test sibling.test other.test denied.test".split()
        (self.dir / "san.cnf").write_text("subjectAltName=" + ",".join("DNS:" + n for n in names) + ",IP:50.50.50.10\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out",
                "server.csr", "-subj", "/CN=good.test")
        openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30",
                "-extfile", "san.cnf", "-out", "server.pem")

    # --- running things ---------------------------------------------------------------------------------------------------

    def wrap(self, argv):
        """The argv that runs `argv` in the host namespace, with its resolvers."""
        script = f"mount --make-rprivate / && mount --bind {self.dir}/resolv.conf /etc/resolv.conf && exec \"$@\""
        return ["ip", "netns", "exec", self.host, "unshare", "-m", "sh", "-c", script, "sh", *map(str, argv)]

    def environment(self, extra=None):
        # A proxy that this machine needs would be the sandbox's too, and is not in these namespaces.
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env.update(SANDBOX_HOME=str(self.home), NO_COLOR="1")
        env.update(extra or {})
        return env

    def in_host(self, argv, **kwargs):
        return subprocess.run(["ip", "netns", "exec", self.host, *map(str, argv)], **kwargs)

    def popen(self, *args, cwd=None, env=None, **kwargs):
        return subprocess.Popen(self.wrap([SANDBOX, *args]), cwd=cwd, env=self.environment(env), **kwargs)

    def sandbox(self, *args, cwd=None, env=None, stdin=b"", timeout=120):
        """Runs `sandbox ARGS` to its end."""
        begin = time.monotonic()
        done = subprocess.run(self.wrap([SANDBOX, *args]), cwd=cwd, env=self.environment(env), input=stdin,
                              capture_output=True, timeout=timeout)
        return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"), time.monotonic() - begin)

    def run(self, script, *flags, image="builtin", cwd=None, stdin=b"", timeout=120, env=None, shell="sh"):
        """`sandbox run FLAGS builtin -- sh -c SCRIPT`, in an empty workspace unless cwd says otherwise."""
        if cwd is not None:
            return self.sandbox("run", *flags, image, "--", shell, "-c", script, cwd=cwd, stdin=stdin, timeout=timeout, env=env)
        with tempfile.TemporaryDirectory(dir=self.dir) as empty:
            os.chmod(empty, 0o755)  # root without capabilities must be able to enter it
            return self.sandbox("run", *flags, image, "--", shell, "-c", script, cwd=empty, stdin=stdin, timeout=timeout, env=env)

    def python(self, source, *flags, **kwargs):
        """A Python program as root inside, its source on stdin."""
        return self.run("sudo python3 -", *flags, stdin=source.encode(), **kwargs)

    def probe(self, source, *flags, **kwargs):
        """The same with the helpers of guest_probe.py and the CA of the servers; the object that it reported, and the run."""
        helpers = (pathlib.Path(__file__).parent / "guest_probe.py").read_text()
        result = self.python(helpers + source, "-m", f"{self.dir}/ca.pem:/ca.pem:ro", *flags, **kwargs)
        try:
            return json.loads(result.out.splitlines()[-1]), result
        except (ValueError, IndexError):
            raise AssertionError(result) from None

    # --- what was seen outside --------------------------------------------------------------------------------------------

    def seen(self, **fields):
        """Log entries of the servers that have these fields."""
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [e for e in entries if all(e.get(k) == v for k, v in fields.items())]

    def forget(self):
        self.log.write_text("")

    def decisions(self, name):
        """The policy log of a sandbox, as JSON objects."""
        result = self.sandbox("policy", "log", "--json", name)
        assert result.status == 0, result
        return [json.loads(line) for line in result.out.splitlines()]

    def processes(self):
        """Pids of our helpers and of QEMU that are still running, by name."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            name = os.path.basename(words[0].decode("utf-8", "replace"))
            if name.startswith("sandbox-") or name.startswith("qemu-system"):
                found.setdefault(name, []).append(int(entry.name))
        return found


class Running:
    """A sandbox that runs `script` until it is told to stop; its processes by name."""

    def __init__(self, machine, script="echo up; sleep 1000", *flags, name=None):
        self.machine = machine
        self.name = name or f"running-{os.getpid()}-{time.monotonic_ns() % 100000}"
        self.work = tempfile.TemporaryDirectory(dir=machine.dir)
        self.process = machine.popen("run", "--no-tty", "--name", self.name, *flags, "builtin", "--", "sh", "-c", script,
                                     cwd=self.work.name, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "up\n", self.process.communicate()
        # By descent: other sandboxes may start and end on this machine at the same time.
        family = _descendants(self.process.pid)
        self.pids = {name: sorted(family & set(pids)) for name, pids in machine.processes().items() if family & set(pids)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self.work.cleanup()

    @property
    def dir(self):
        return self.machine.home / "run" / self.name

    def gone(self, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            left = {n: p for n, p in self.alive().items() if p}
            if not left:
                return True
            time.sleep(0.05)
        return False

    def alive(self):
        return {name: [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists() and _state(pid) != "Z"]
                for name, pids in self.pids.items()}


def _descendants(pid):
    parents = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    family, size = {pid}, 0
    while len(family) != size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return family - {pid}


def _state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"


class Wire:
    """Every IPv4 packet that the host namespace sends to the servers, as seen on their side of the cable."""

    def __init__(self, machine):
        self.socket = None
        self.packets, self.begun = [], []
        thread = threading.Thread(target=self._open, args=(machine.world,))  # setns is of one thread
        thread.start()
        thread.join()
        assert self.socket is not None

    def _open(self, namespace):
        with open(f"/run/netns/{namespace}") as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        self.socket.setblocking(False)

    def seen(self, begun=False):
        """(protocol, destination, port) of what has come so far; port 0 where there is none. With `begun`, of TCP the SYNs only:
        connections of earlier cases may still be closing."""
        while True:
            try:
                packet, (device, kind, direction, *_) = self.socket.recvfrom(65536)
            except BlockingIOError:
                return self.begun if begun else self.packets
            if direction == socket.PACKET_OUTGOING or kind != 0x0800 or device == "lo":  # lo: the servers among themselves
                continue
            port = int.from_bytes(packet[22:24], "big") if packet[9] in (6, 17) else 0
            self.packets.append((packet[9], socket.inet_ntoa(packet[16:20]), port))
            if packet[9] != socket.IPPROTO_TCP or packet[33] & 2:
                self.begun.append(self.packets[-1])

    def forget(self):
        self.seen()
        self.packets, self.begun = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

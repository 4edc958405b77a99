"""A network of three namespaces around one gateway process.

    guest ── TAP ── [wire_pump ── stream] ── sandbox-gateway (host) ── veth ── world

`guest` is where programs of a sandbox would run, with a real Linux TCP; `host` is where the gateway's sockets
live; `world` has public-looking addresses, on which servers are started. A Namespace is kept by a sleeping child.
Sockets made while a thread is inside a namespace belong to it for good, so tests use plain sockets of this process.
"""
import ctypes
import fcntl
import json
import os
import random
import select
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager

BIN = os.environ["SANDBOX_BIN"]
GUEST_MAC, GATEWAY_MAC = "52:54:00:12:34:56", "52:55:c0:00:00:01"
GUEST_IP, GATEWAY_IP = "192.0.0.2", "192.0.0.1"
# Documentation ranges are special-use and would be refused by name; these are ordinary addresses, and the namespace is
# connected to nothing.
WORLD_NET, HOST_UPLINK = "45.80.0", "45.80.0.1"
RESOLVER = "45.80.0.2"
# Frames that a TAP device holds for its reader: more than all the windows of a case together. A virtual machine's cable waits
# for a busy reader where a TAP device drops, and the gateway is made for a cable that loses nothing (no SACK, no timestamps):
# Linux then doubles its timeout with each loss and cannot measure again until one of its segments passes at once.
TAP_QUEUE = 20_000

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000


def _setns(fd, kind):
    if _libc.setns(fd, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def is_sanitized():
    with open(f"{BIN}/sandbox-gateway", "rb") as f:
        return b"__asan_init" in f.read()


def run(*argv, **kw):
    return subprocess.run(argv, check=True, capture_output=True, text=True, **kw).stdout


class Namespace:
    def __init__(self, name):
        self.name = name
        self.holder = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", "echo up; exec sleep infinity"],
                                       stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"up\n"
        self.fd = os.open(f"/proc/{self.holder.pid}/ns/net", os.O_RDONLY)
        self.ip("link", "set", "lo", "up")

    def argv(self, *argv):
        return ["nsenter", "-t", str(self.holder.pid), "-n", "-m", "--", *argv]

    def run(self, *argv, check=True, timeout=60):
        return subprocess.run(self.argv(*argv), check=check, capture_output=True, text=True, timeout=timeout)

    def ip(self, *argv):
        return run(*self.argv("ip", *argv))

    def sysctl(self, name, value):
        run(*self.argv("sh", "-c", f"echo '{value}' > /proc/sys/{name.replace('.', '/')}"))

    def do(self, call):
        """Runs call() on a thread inside this namespace."""
        box = {}

        def body():
            try:
                _setns(self.fd, _CLONE_NEWNET)
                box["value"] = call()
            except BaseException as error:  # handed to the caller
                box["error"] = error

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if "error" in box:
            raise box["error"]
        return box["value"]

    def socket(self, *args):
        return self.do(lambda: socket.socket(*args))

    def close(self):
        self.holder.kill()
        self.holder.wait()
        os.close(self.fd)


def make_tap(namespace, mtu):
    def create():
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH14x", b"eth0", 0x1002))  # TUNSETIFF, IFF_TAP | IFF_NO_PI
        return fd

    fd = namespace.do(create)
    namespace.ip("link", "set", "eth0", "address", GUEST_MAC)
    namespace.ip("link", "set", "eth0", "mtu", str(mtu), "txqueuelen", str(TAP_QUEUE), "up")
    namespace.ip("addr", "add", f"{GUEST_IP}/29", "dev", "eth0")
    namespace.ip("route", "add", "default", "via", GATEWAY_IP)
    return fd


class Gateway:
    """One sandbox-gateway, started as docs/processes.md says."""

    def __init__(self, host, wire_fd, config):
        config_fd = os.memfd_create("config")
        os.write(config_fd, json.dumps(config).encode())
        os.lseek(config_fd, 0, os.SEEK_SET)
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.record_socket, records = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stderr = tempfile.TemporaryFile()
        fds = [fcntl.fcntl(f, fcntl.F_DUPFD, 20) for f in (config_fd, control.fileno(), wire_fd, records.fileno())]

        def prepare():
            _setns(host.fd, _CLONE_NEWNET)
            for number, fd in enumerate(fds, start=3):
                os.dup2(fd, number)

        self.process = subprocess.Popen([f"{BIN}/sandbox-gateway"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.stderr, preexec_fn=prepare,
                                        pass_fds=[3, 4, 5, 6])
        for fd in fds:
            os.close(fd)
        os.close(config_fd)
        control.close()
        records.close()
        self.records = []
        self._lock = threading.Lock()
        threading.Thread(target=self._read_records, daemon=True).start()
        self.control.settimeout(10)
        self.hello = json.loads(self.control.recv(65536) or b"{}")

    def _read_records(self):
        while message := self.record_socket.recv(65536):
            with self._lock:
                self.records.append(json.loads(message))

    def ask(self, **message):
        self.control.send(json.dumps(message).encode())
        return json.loads(self.control.recv(1 << 20))

    def publish(self, listener, port, id=1):
        message = {"op": "publish", "id": id, "port": port}
        socket.send_fds(self.control, [json.dumps(message).encode()], [listener.fileno()])
        return json.loads(self.control.recv(1 << 20))

    def stats(self):
        return self.ask(op="stats")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def pss_kib(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))

    def find(self, **wanted):
        with self._lock:
            return [r for r in self.records if all(r.get(k) == v for k, v in wanted.items())]

    def wait_record(self, seconds=5, **wanted):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.find(**wanted):
                return found[-1]
            time.sleep(0.01)
        raise AssertionError(f"no record {wanted} in {self.records[-20:]}\n{self.log()}")

    def wait_note(self, word, seconds=5):
        end = time.monotonic() + seconds
        while not [r for r in self.find(kind="note") if word in r["text"]]:
            assert time.monotonic() < end, f"no note about {word}"
            time.sleep(0.01)

    def wait_stats(self, condition, seconds=10):
        end = time.monotonic() + seconds
        while not condition(stats := self.stats()):
            assert time.monotonic() < end, stats
            time.sleep(0.05)
        return stats

    def log(self):
        self.stderr.seek(0)
        return self.stderr.read().decode()

    def close(self):
        self.control.close()
        return self.process.wait(timeout=5)


class Lab:
    """Everything, torn down by close()."""

    def __init__(self, allow=(), deny=(), mtu=1500, form="tap", pump=(), resolvers=(RESOLVER,), **config):
        self.guest, self.host, self.world = Namespace("guest"), Namespace("host"), Namespace("world")
        try:
            self._build(allow, deny, mtu, form, pump, resolvers, config)
        except BaseException:
            self._close_namespaces()
            raise

    def _build(self, allow, deny, mtu, form, pump, resolvers, more):
        self._uplink()
        self.host.sysctl("net.ipv4.ping_group_range", "0 0")
        self.tap = make_tap(self.guest, mtu)
        self.pump = None
        wire = self.tap
        if form == "stream":
            wire = self._start_pump(pump)
        config = dict(wire=form, mtu=mtu, guest_mac=GUEST_MAC, gateway_mac=GATEWAY_MAC, guest_ip=GUEST_IP,
                      gateway_ip=GATEWAY_IP, prefix=29, allow=list(allow), deny=list(deny), resolvers=list(resolvers), **more)
        self.gateway = Gateway(self.host, wire, config)
        assert self.gateway.hello == {"ready": True}, (self.gateway.hello, self.gateway.log())
        if form == "stream":
            os.close(wire)
        self.dns = DnsServer(self.world, RESOLVER)
        self.servers = [self.dns]

    def _uplink(self):
        run("ip", "link", "add", "uplink", "netns", str(self.host.holder.pid), "type", "veth", "peer", "name", "street",
            "netns", str(self.world.holder.pid))
        self.host.ip("addr", "add", f"{HOST_UPLINK}/24", "dev", "uplink")
        self.host.ip("link", "set", "uplink", "up")
        self.host.ip("route", "add", "default", "via", RESOLVER)
        self.world.ip("link", "set", "street", "up")
        self.add_address(RESOLVER)

    def add_address(self, address):
        self.world.ip("addr", "add", f"{address}/24", "dev", "street")

    def _start_pump(self, options):
        ours, theirs = socket.socketpair()
        self.pump = subprocess.Popen([f"{BIN}/wire_pump", str(self.tap), str(ours.fileno()), *map(str, options)],
                                     pass_fds=[self.tap, ours.fileno()])
        ours.close()
        return theirs.detach()

    def serve(self, address, port, handler):
        server = TcpServer(self.world, address, port, handler)
        self.servers.append(server)
        return server

    def connect(self, address, port, timeout=120):
        s = self.guest.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(timeout)
        try:
            s.connect((address, port))
        except BaseException:
            s.close()
            raise
        return s

    def resolve(self, name, **kw):
        return dns_query(self.guest, GATEWAY_IP, name, **kw)

    def close(self):
        for server in self.servers:
            server.close()
        code = self.gateway.close()
        if self.pump:
            self.pump.wait(timeout=5)
        os.close(self.tap)
        self._close_namespaces()
        assert code == 0, self.gateway.log()

    def _close_namespaces(self):
        for namespace in (self.guest, self.host, self.world):
            namespace.close()


@contextmanager
def lab(**options):
    it = Lab(**options)
    try:
        yield it
    finally:
        it.close()


# ---- servers in the world ----

class TcpServer:
    def __init__(self, namespace, address, port, handler):
        self.socket = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(1024)
        self.handler = handler
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            connection.settimeout(60)
            try:
                self.handler(connection)
            except OSError:
                pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class UdpServer:
    """Answers each datagram with answer(datagram)."""

    def __init__(self, namespace, address, port, answer):
        self.socket = namespace.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, port))
        self.socket.settimeout(0.1)
        self.answer = answer
        self.stopping = False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while not self.stopping:
            try:
                data, peer = self.socket.recvfrom(65536)
                self.socket.sendto(self.answer(data), peer)
            except OSError:  # a time-out, or an ICMP error about an earlier answer
                pass

    def close(self):
        self.stopping = True
        self.thread.join()  # a descriptor closed under a reader may be another socket's by the time it reads
        self.socket.close()


def read_exactly(s, count):
    parts, left = [], count
    while left > 0:
        block = s.recv(min(left, 1 << 20))
        if not block:
            break
        parts.append(block)
        left -= len(block)
    return b"".join(parts)


def read_all(s):
    parts = []
    while block := s.recv(1 << 20):
        parts.append(block)
    return b"".join(parts)


# ---- DNS ----

def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def build_query(name, qtype=1, ident=None, edns=True):
    ident = random.randrange(65536) if ident is None else ident
    opt = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b""
    return struct.pack(">HHHHHH", ident, 0x0100, 1, 0, 0, 1 if edns else 0) + encode_name(name) + struct.pack(
        ">HH", qtype, 1) + opt


class Reply:
    def __init__(self, message):
        self.ident, flags, _, answers, authority, extra = struct.unpack_from(">HHHHHH", message)
        self.rcode, self.truncated = flags & 15, bool(flags & 0x0200)
        self.addresses, self.ede = [], None
        at = self._skip_name(message, 12) + 4
        for _ in range(answers + authority + extra):
            at = self._skip_name(message, at)
            kind, _, _, size = struct.unpack_from(">HHIH", message, at)
            data = message[at + 10:at + 10 + size]
            at += 10 + size
            if kind == 1:
                self.addresses.append(socket.inet_ntoa(data))
            if kind == 41 and len(data) >= 6 and data[:2] == b"\0\x0f":
                self.ede = (struct.unpack(">H", data[4:6])[0], data[6:].decode())

    @staticmethod
    def _skip_name(message, at):
        while message[at] != 0:
            if message[at] >= 0xC0:
                return at + 2
            at += 1 + message[at]
        return at + 1


def dns_query(namespace, server, name, qtype=1, tcp=False, timeout=5):
    query = build_query(name, qtype)
    with namespace.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        s.connect((server, 53))
        s.send(struct.pack(">H", len(query)) + query if tcp else query)
        if tcp:
            return Reply(read_exactly(s, struct.unpack(">H", read_exactly(s, 2))[0]))
        return Reply(s.recv(65536))


class DnsServer:
    """Answers A from `zone` over UDP and TCP, NXDOMAIN for the rest; keeps a log of every query that came."""

    def __init__(self, namespace, address):
        self.zone, self.log = {}, []
        self.udp = UdpServer(namespace, address, 53, self.answer)
        self.tcp = TcpServer(namespace, address, 53, self._serve_tcp)

    def _serve_tcp(self, connection):
        while head := read_exactly(connection, 2):
            reply = self.answer(read_exactly(connection, struct.unpack(">H", head)[0]))
            connection.sendall(struct.pack(">H", len(reply)) + reply)

    def answer(self, query):
        end = Reply._skip_name(query, 12)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode("latin1"))
            at += 1 + query[at]
        name, (qtype, _) = ".".join(labels).lower(), struct.unpack_from(">HH", query, end)
        self.log.append((name, qtype))
        known = self.zone.get(name)
        addresses = known if known and qtype == 1 else []
        head = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, len(addresses), 0, 0)
        return head + query[12:end + 4] + b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(a) for a in addresses)

    def close(self):
        self.udp.close()
        self.tcp.close()

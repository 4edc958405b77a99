"""Q2 and the gateway's part of N14. Run by run.py in a user and network namespace of its own, so that it needs no root, and
pasta finds no root to give up; prints its rows as JSON.

    guest ── TAP ── sandbox-gateway ──┐
    guest ── TAP ── slirp4netns ──────┼── (host) ── veth ── servers (world)
    guest ── TAP ── pasta ────────────┘

Each guest is a network namespace with Linux's own TCP. All share the road from the host to the servers.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import time

BIN = pathlib.Path(os.environ["SANDBOX_BIN"])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration" / "gateway"))
from netlab import Namespace, lab  # noqa: E402
from report import at_most, beside, interleave, unmeasured  # noqa: E402

SERVER = "45.80.0.10"
PORT = 5201
SECONDS = 2  # of each transfer; the first fifth is not counted
ROUNDS = 5
TURNS = 3000


class NoPeer(Exception):
    """The other program does not work on this machine. Every other failure is a broken measurement."""


class Peer:
    """A guest namespace whose network is another program's."""

    def __init__(self, host, command):
        self.guest = Namespace("peer")
        # By descriptor: neither program keeps the right to look into another process's /proc.
        netns = self.guest.fd
        self.process = subprocess.Popen(host.argv(*command(f"/proc/self/fd/{netns}")), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[netns])
        end = time.monotonic() + 10
        while "default" not in self.guest.ip("-4", "route"):
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise NoPeer(f"{command('')[0]} does not work here")
            time.sleep(0.05)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.guest.close()


@contextlib.contextmanager
def peer(host, command):
    it = Peer(host, command)
    try:
        yield it
    finally:
        it.close()


def slirp4netns(mtu):
    return lambda netns: ["slirp4netns", "--configure", f"--mtu={mtu}", "--netns-type=path", netns, "tap0"]


def pasta(mtu):
    none = ["-t", "none", "-u", "none", "-T", "none", "-U", "none"]
    return lambda netns: ["pasta", "--foreground", "--quiet", "--config-net", "--ipv4-only", "--mtu", str(mtu),
                          "--ns-ifname", "tap0", *none, "--netns-only", "--netns", netns]


def gigabits(world, guest, *, inwards):
    """What iperf3 received per second, from the guest or into it."""
    server = subprocess.Popen(world.argv("iperf3", "--server", "--one-off", "--bind", SERVER, "--port", str(PORT)),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_listening(world)
        out = guest.run("iperf3", "--client", SERVER, "--port", str(PORT), "--time", str(SECONDS), "--omit",
                        str(SECONDS / 5), "--json", *(["--reverse"] if inwards else [])).stdout
        return json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e9
    finally:
        server.kill()
        server.wait()


def wait_listening(world):
    end = time.monotonic() + 5
    while f":{PORT} " not in world.run("ss", "-Hltn").stdout:
        if time.monotonic() > end:
            raise RuntimeError("the server does not listen")
        time.sleep(0.01)


def microseconds(world, guest):
    server = subprocess.Popen(world.argv(BIN / "tcp_turns", "serve", SERVER, str(PORT)), stdout=subprocess.PIPE)
    try:
        server.stdout.readline()
        return float(guest.run(BIN / "tcp_turns", "ask", SERVER, str(PORT), str(TURNS)).stdout)
    finally:
        server.kill()
        server.communicate()


def throughput(here, peer_guest, mtu, peer_name, wanted):
    """The best transfer of each: some of pasta's stall for a while, and a median would count that for us."""
    rows = []
    for inwards in (False, True):
        ours, theirs = interleave(ROUNDS, lambda: gigabits(here.world, here.guest, inwards=inwards),
                                  lambda: gigabits(here.world, peer_guest, inwards=inwards), pick=max)
        what = f"throughput, MTU {mtu}, {'into' if inwards else 'out of'} the sandbox"
        rows.append(beside("Q2", what, ours, "Gbit/s", theirs, peer_name, at_least=wanted))
    return rows


def round_trip(here, peer_guest):
    """The quickest of each: where the scheduler spreads the programs of a turn over two processors, either takes 60 to 100 us."""
    ours, theirs = interleave(ROUNDS, lambda: microseconds(here.world, here.guest),
                              lambda: microseconds(here.world, peer_guest), pick=min)
    return beside("Q2", "round trip of a byte over TCP", ours, "us", theirs, "pasta", at_most=1.5)


def measure_beside(peer_name, command, mtu, measures, missing):
    """Rows of `measures`, each a function of a lab and the peer's guest; the row `missing` where the peer is."""
    if not shutil.which(peer_name):
        return [unmeasured(*missing, why=f"{peer_name} is not installed")]
    with lab(allow=[SERVER], mtu=mtu) as here:
        here.add_address(SERVER)
        try:
            with peer(here.host, command) as other:
                return [row for measure in measures for row in measure(here, other.guest)]
        except NoPeer as error:
            return [unmeasured(*missing, why=str(error))]


def pending_flows(count=1000, pending=16 << 10):
    """Readers that do not read, on both ends of every flow. The gateway counts the memory of its rings; they double when they
    are full, so at least half of it is filled."""
    with lab(allow=[SERVER]) as here, contextlib.ExitStack() as stack:
        here.add_address(SERVER)
        listener = stack.enter_context(here.world.socket(socket.AF_INET, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind((SERVER, PORT))
        listener.listen(count)
        block = bytes(256 << 10)
        for _ in range(count):
            client = stack.enter_context(here.guest.socket(socket.AF_INET, socket.SOCK_STREAM))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(10)
            client.connect((SERVER, PORT))
            server = stack.enter_context(listener.accept()[0])
            for end in (client, server):
                end.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    end.send(block)
        time.sleep(2)
        stats = here.gateway.stats()
        held = stats["tcp_memory"] / 2 / count
        if stats["tcp_sessions"] != count or held < pending:
            raise RuntimeError(f"{stats['tcp_sessions']} flows hold {held:.0f} bytes each, not {count} and {pending}")
        memory = here.gateway.pss_kib() * 1024 / 1e6
        what = f"the gateway with {count} flows, at least {held / 1024:.0f} KiB pending in each"
        return [at_most("Q2", what, memory, "MB", 128)]


# ---- N14 on the wire: what is asked, and how long until the answer ----

def client_hello(name):
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(into, out, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return out.read()


def milliseconds(ask):
    begin = time.monotonic()
    ask()
    return (time.monotonic() - begin) * 1000


def refusals(count=100):
    with lab(allow=["good.test"]) as here:
        here.add_address(SERVER)
        here.dns.zone["good.test"] = [SERVER]
        for port in (80, 443):
            here.serve(SERVER, port, lambda connection: connection.recv(1))
        here.resolve("good.test")

        def name():
            assert here.resolve("denied.test").rcode == 5

        def address():
            try:
                here.connect("45.80.0.99", 443).close()
            except ConnectionRefusedError:
                return
            raise AssertionError("not refused")

        def stream(port, request, answer):
            with here.connect(SERVER, port) as s:
                begin = time.monotonic()
                s.sendall(request)
                assert answer in s.recv(4096)
                return (time.monotonic() - begin) * 1000

        hello = client_hello("denied.test")
        request = b"GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n"
        rows = []
        for what, ask in (("a DNS query", lambda: milliseconds(name)), ("a SYN", lambda: milliseconds(address)),
                          ("a TLS hello", lambda: stream(443, hello, b"\x15\x03")),
                          ("an HTTP request", lambda: stream(80, request, b"403"))):
            worst = max(ask() for _ in range(count))
            rows.append(at_most("N14", f"refusal of {what} at the gateway, the slowest of {count}", worst, "ms", 50))
        return rows


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def throughput_with(mtu, name, wanted):
        return lambda here, guest: throughput(here, guest, mtu, name, wanted)

    rows = measure_beside("slirp4netns", slirp4netns(1500), 1500, [throughput_with(1500, "slirp4netns", 1.5)],
                          ("Q2", "throughput at MTU 1500"))
    rows += measure_beside("pasta", pasta(65520), 65520,
                           [throughput_with(65520, "pasta", 0.7), lambda here, guest: [round_trip(here, guest)]],
                           ("Q2", "throughput at MTU 65520 and round trip"))
    rows += pending_flows()
    rows += refusals()
    print(json.dumps([dataclasses.asdict(row) for row in rows]))


if __name__ == "__main__":
    main()

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
import tempfile
import time

BIN = pathlib.Path(os.environ["SANDBOX_BIN"])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "integration" / "gateway"))
import machine_network  # noqa: E402
from netlab import GATEWAY_IP, TAP_QUEUE, Namespace, lab  # noqa: E402
from report import Row, aside, at_most, beside, interleave, unmeasured  # noqa: E402

SERVER = "45.80.0.10"
PORT = 5201
SECONDS = 2  # of each transfer; the first fifth is not counted
ROUNDS, FEW_ROUNDS = 5, 2
TURNS, VISITS = 3000, 1000


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
        self.guest.ip("link", "set", "tap0", "txqueuelen", str(TAP_QUEUE))  # as long as ours

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


def gigabits(world, guest, *, inwards, flows=1):
    """What iperf3 received per second, from the guest or into it."""
    server = subprocess.Popen(world.argv("iperf3", "--server", "--one-off", "--bind", SERVER, "--port", str(PORT)),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_listening(world)
        out = guest.run("iperf3", "--client", SERVER, "--port", str(PORT), "--time", str(SECONDS), "--omit",
                        str(SECONDS / 5), "--parallel", str(flows), "--json", *(["--reverse"] if inwards else [])).stdout
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


@contextlib.contextmanager
def serving(namespace, *command):
    """A server that says "ready" once it is."""
    process = subprocess.Popen(namespace.argv(*map(str, command)), stdout=subprocess.PIPE)
    try:
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{command[0]} did not start")
        yield
    finally:
        process.kill()
        process.communicate()


def microseconds(world, guest, how, count):
    with serving(world, BIN / "tcp_turns", "serve", SERVER, PORT):
        return float(guest.run(BIN / "tcp_turns", how, SERVER, str(PORT), str(count)).stdout)


def throughput(here, peer_guest, mtu, peer_name, wanted):
    """The best transfer of each: some of pasta's stall for a while, and a median would count that for us."""
    rows = []
    for inwards in (False, True):
        ours, theirs = interleave(ROUNDS, lambda: gigabits(here.world, here.guest, inwards=inwards),
                                  lambda: gigabits(here.world, peer_guest, inwards=inwards), pick=max)
        what = f"throughput, MTU {mtu}, {'into' if inwards else 'out of'} the sandbox"
        rows.append(beside("Q2", what, ours, "Gbit/s", theirs, peer_name, at_least=wanted))
        ours, theirs = interleave(FEW_ROUNDS, lambda: gigabits(here.world, here.guest, inwards=inwards, flows=16),
                                  lambda: gigabits(here.world, peer_guest, inwards=inwards, flows=16), pick=max)
        rows.append(aside("Q2", what + ", 16 flows", ours, "Gbit/s", theirs, peer_name))
    return rows


def beside_the_kernel(mtu):
    """The same transfers beside ones from the host itself, which cross the veth pair and nothing else."""
    with lab(allow=[SERVER], mtu=mtu) as here:
        here.add_address(SERVER)
        for namespace, device in ((here.host, "uplink"), (here.world, "street")):
            namespace.ip("link", "set", device, "mtu", str(mtu))
        rows = []
        for inwards in (False, True):
            ours, limit = interleave(FEW_ROUNDS, lambda: gigabits(here.world, here.guest, inwards=inwards),
                                     lambda: gigabits(here.world, here.host, inwards=inwards), pick=max)
            what = f"throughput, MTU {mtu}, {'into' if inwards else 'out of'} the sandbox"
            rows.append(aside("Q2", what, ours, "Gbit/s", limit, f"no gateway, veth at {mtu}"))
        return rows


def round_trip(here, peer_guest):
    """The quickest of each: where the scheduler spreads the programs of a turn over two processors, either takes 60 to 100 us."""
    rows = []
    for how, count, what in (("ask", TURNS, "round trip of a byte over TCP"),
                             ("visit", VISITS, "connect, round trip of a byte, close")):
        ours, theirs = interleave(ROUNDS, lambda: microseconds(here.world, here.guest, how, count),
                                  lambda: microseconds(here.world, peer_guest, how, count), pick=min)
        rows.append(beside("Q2", what, ours, "us", theirs, "pasta", at_most=1.25 if how == "ask" else 1.5))
    return rows


def queries_per_second(guest, server, names):
    out = guest.run("dnsperf", "-s", server, "-d", names, "-l", str(SECONDS), "-c", "4", "-q", "200").stdout
    found = {key.strip(): value.split()[0] for key, _, value in (line.partition(":") for line in out.splitlines()) if value.split()}
    if int(found["Queries lost"]) > int(found["Queries sent"]) // 100:
        raise RuntimeError(f"dnsperf: {found['Queries lost']} of {found['Queries sent']} queries were lost")
    return float(found["Queries per second"])


def name_service():
    """Each name is another, so that nobody's cache answers; the upstream is on the host's own loopback."""
    with tempfile.TemporaryDirectory() as folder, lab(allow=["*.bench.test"], resolvers=["127.0.0.1"]) as here, \
            serving(here.host, BIN / "dns_answers", "127.0.0.1", 53, SERVER):
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        names = folder / "names"
        names.write_text("".join(f"n{i}.bench.test A\n" for i in range(100_000)))
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        here.host.run("mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf")
        try:
            with peer(here.host, slirp4netns(1500)) as other:
                ours, theirs = interleave(FEW_ROUNDS, lambda: queries_per_second(here.guest, GATEWAY_IP, str(names)),
                                          lambda: queries_per_second(other.guest, "10.0.2.3", str(names)), pick=max)
                rows = [aside("Q2", "DNS, names nobody has asked before", ours, "queries/s", theirs, "slirp4netns")]
        except NoPeer:
            ours = max(queries_per_second(here.guest, GATEWAY_IP, str(names)) for _ in range(FEW_ROUNDS))
            rows = []
        return [Row("Q2", "DNS, names nobody has asked before", ours, "queries/s", bar=">= 20000 queries/s",
                    holds=ours >= 20_000), *rows]


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


def open_flows(here, stack, count):
    """Both ends of `count` connections, with buffers as small as the kernels make them."""
    listener = stack.enter_context(here.world.socket(socket.AF_INET, socket.SOCK_STREAM))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind((SERVER, PORT))
    listener.listen(count)
    for _ in range(count):
        client = stack.enter_context(here.guest.socket(socket.AF_INET, socket.SOCK_STREAM))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect((SERVER, PORT))
        yield client, stack.enter_context(listener.accept()[0])


def flow_memory(count=1000, pending=16 << 10):
    """First flows that carry nothing, then the same with readers that do not read, on both ends of every flow. The gateway
    counts the memory of its rings; they double when they are full, so at least half of it is filled."""
    with lab(allow=[SERVER]) as here, contextlib.ExitStack() as stack:
        here.add_address(SERVER)
        before = here.gateway.pss_kib()
        flows = list(open_flows(here, stack, count))
        idle = (here.gateway.pss_kib() - before) / count
        held, deadline = 0, time.monotonic() + 30
        while held < pending and time.monotonic() < deadline:
            for end in (end for both in flows for end in both):
                end.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    end.send(bytes(8 << 10))
            time.sleep(1)
            stats = here.gateway.stats()
            held = stats["tcp_memory"] / 2 / count
        if stats["tcp_sessions"] != count or held < pending:
            raise RuntimeError(f"{stats['tcp_sessions']} flows hold {held:.0f} bytes each, not {count} and {pending}")
        memory = here.gateway.pss_kib() * 1024 / 1e6
        what = f"the gateway with {count} flows, at least {held / 1024:.0f} KiB pending in each"
        return [at_most("Q2", what, memory, "MB", 64), Row("Q2", "memory of a flow that carries nothing", idle, "KiB")]


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

    rows = []
    for mtu, name, command, wanted in ((1500, "slirp4netns", slirp4netns, 2), (1500, "pasta", pasta, 1),
                                       (65520, "slirp4netns", slirp4netns, 1), (65520, "pasta", pasta, 0.95)):
        measures = [throughput_with(mtu, name, wanted)]
        if (mtu, name) == (65520, "pasta"):
            measures.append(round_trip)
        rows += measure_beside(name, command(mtu), mtu, measures, ("Q2", f"throughput at MTU {mtu} beside {name}"))
    for mtu in (1500, 65520):
        rows += beside_the_kernel(mtu)
    rows += machine_network.measure()
    rows += name_service()
    rows += flow_memory()
    rows += refusals()
    print(json.dumps([dataclasses.asdict(row) for row in rows]))


if __name__ == "__main__":
    main()

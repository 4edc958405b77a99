"""Q2 through a machine: the same guest, its network card once on our gateway's wire and once on QEMU's own user network.

    guest ── virtio-net ── QEMU ── stream ── sandbox-gateway (host) ──┐
    guest ── virtio-net ── QEMU ── -netdev user (host) ───────────────┴── veth ── servers (world)

The guest is the product's kernel and machine with net_guest as its only program; see net_guest.cc. Runs where network.py does.
"""
import contextlib
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time

from netlab import GATEWAY_IP, GATEWAY_MAC, GUEST_IP, GUEST_MAC, Gateway, Lab
from report import beside, interleave, unmeasured

BIN = pathlib.Path(os.environ["SANDBOX_BIN"])
SERVER, PORT = "45.80.0.10", 5301
SECONDS, WARM_UP = 2.0, 0.3
ROUNDS = 3
PATIENCE = 90


class WireLab(Lab):
    """A lab whose wire is QEMU's: `wire` is the machine's end."""

    def _start_pump(self, options):
        self.wire, theirs = socket.socketpair()
        for end in (self.wire, theirs):
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                end.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        return theirs.detach()

    def __init__(self, mtu):
        super().__init__(allow=[SERVER], mtu=mtu, form="stream")
        self.add_address(SERVER)

    def close(self):
        super().close()  # first: a gateway that loses its wire says so
        self.wire.close()


@contextlib.contextmanager
def wire_lab(mtu):
    it = WireLab(mtu)
    try:
        yield it
    finally:
        it.close()


class Guest:
    def __init__(self, folder):
        self.initramfs = folder / "initramfs"
        done = subprocess.run([BIN / "initramfs_of", BIN / "net_guest", self.initramfs], capture_output=True, text=True, check=True)
        self.kernel = done.stdout.strip()

    def argv(self, direction, netdev, address, gateway, mtu):
        job = ",".join([direction, SERVER, str(PORT), address, gateway, str(mtu), GUEST_MAC])
        return ["qemu-system-x86_64", "-M", "q35,hpet=off,smbus=off,sata=off,usb=off", "-accel", "tcg,thread=multi,tb-size=64",
                "-cpu", "max,-erms", "-m", "512M", "-smp", "2", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-serial", "stdio", "-netdev", netdev, "-device", f"virtio-net-pci,netdev=net,mac={GUEST_MAC},romfile=",
                "-device", "virtio-serial-pci", "-chardev", "null,id=ctl", "-device", "virtserialport,chardev=ctl,name=sandbox.ctl.0",
                "-chardev", "null,id=fs", "-device", "virtserialport,chardev=fs,name=sandbox.fs.0",
                "-kernel", self.kernel, "-initrd", self.initramfs,
                "-append", f"console=ttyS0 quiet panic=-1 reboot=t rcupdate.rcu_expedited=1 netbench={job}"]


def receive(connection):
    """Gbit/s of what arrives in SECONDS, after WARM_UP."""
    buffer = bytearray(1 << 20)
    begin = time.monotonic()
    total, counted_from = 0, None
    while (now := time.monotonic()) - begin < WARM_UP + SECONDS:
        if counted_from is None and now - begin >= WARM_UP:
            total, counted_from = 0, now
        if not (n := connection.recv_into(buffer)):
            raise RuntimeError("the guest stopped")
        total += n
    return total * 8 / (now - counted_from) / 1e9


def send(connection):
    """Gbit/s of what the guest says has arrived, from the first byte to its answer."""
    block = bytes(1 << 20)
    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        connection.sendall(block)
    connection.shutdown(socket.SHUT_WR)
    answer = connection.recv(8, socket.MSG_WAITALL)
    if len(answer) != 8:
        raise RuntimeError("the guest did not say what arrived")
    return struct.unpack("<Q", answer)[0] * 8 / (time.monotonic() - begin) / 1e9


def transfer(here, argv, direction, pass_fds=()):
    """A machine's life, in the host's namespace: one transfer with a server of the world."""
    with here.world.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((SERVER, PORT))
        listener.listen(1)
        listener.settimeout(PATIENCE)
        process = subprocess.Popen(here.host.argv(*argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, pass_fds=pass_fds)
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE)
                return receive(connection) if direction == "out" else send(connection)
        except TimeoutError:
            process.kill()
            raise RuntimeError(f"the guest did not connect: {process.stdout.read()[-400:]!r}") from None
        finally:
            process.kill()
            process.communicate()


def ours(guest, direction, mtu):
    with wire_lab(mtu) as here:
        fd = here.wire.fileno()
        netdev = f"stream,id=net,server=off,addr.type=fd,addr.str={fd}"
        return transfer(here, guest.argv(direction, netdev, f"{GUEST_IP}/29", GATEWAY_IP, mtu), direction, [fd])


def user_network(guest, direction):
    with wire_lab(1500) as here:
        return transfer(here, guest.argv(direction, "user,id=net", "10.0.2.15/24", "10.0.2.2", 1500), direction)


def measure():
    with tempfile.TemporaryDirectory() as folder:
        try:
            guest = Guest(pathlib.Path(folder))
        except subprocess.CalledProcessError as error:
            return [unmeasured("Q2", "throughput of a machine", why=error.stderr.strip())]
        rows = []
        for direction, way in (("out", "out of"), ("in", "into")):
            small, large, theirs = interleave(
                ROUNDS, lambda: ours(guest, direction, 1500), lambda: ours(guest, direction, 65520),
                lambda: user_network(guest, direction), pick=max)
            for mtu, value in ((1500, small), (65520, large)):
                rows.append(beside("Q2", f"a machine's throughput, MTU {mtu}, {way} it", value, "Gbit/s", theirs,
                                   "QEMU's user network, 1500", at_least=1))
        return rows

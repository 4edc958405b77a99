"""Rows N1, N8: the cable to the gateway, and the frames on it.

Only a datagram to port 7 of good.test is permitted of the packets that the frames carry; what its server logs, and what is seen on the
cable behind the gateway, says what got through.
"""

import os
import signal
import time

import pytest

from harness import Running, Wire

PERMITTED = ["--allow", "good.test", "--allow", "udp/good.test:7"]


def test_N1_one_network_device_and_its_wire_ends_in_the_gateway(machine):
    script = """
echo up
ls /sys/class/net | tr '\\n' ' '; ls /sys/bus/virtio/drivers/virtio_net | grep -c ^virtio; grep -lx 0x020000 /sys/bus/pci/devices/*/class | wc -l
while :; do curl -s -m 2 -o /dev/null http://good.test/ping; echo beat; sleep 0.1; done"""
    with Wire(machine) as wire, Running(machine, script, "--allow", "good.test") as running:
        assert running.process.stdout.readline().split() == ["eth0", "lo", "1"]
        assert running.process.stdout.readline() == "1\n"

        def beats(count):
            for _ in range(count):
                assert running.process.stdout.readline() == "beat\n"

        beats(2)
        assert (6, "50.50.50.10", 80) in wire.seen()  # the control: it flowed
        (gateway,) = running.pids["sandbox-gateway"]
        os.kill(gateway, signal.SIGSTOP)
        time.sleep(0.3)
        wire.forget()
        beats(2)  # the guest lives and tries
        assert wire.seen() == []
        os.kill(gateway, signal.SIGCONT)
        beats(3)
        assert (6, "50.50.50.10", 80) in wire.seen()
        os.kill(gateway, signal.SIGKILL)
        assert running.gone(), running.alive()
        wire.forget()
        time.sleep(1)
        assert wire.seen() == []
        assert running.process.wait(10) == 125


# --- frames -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def guest(guests, machine):
    guest = guests(*PERMITTED)
    assert guest.ask("frames = Frames(); dns('good.test')")[0] == 0
    machine.forget()
    return guest


SIZE = 300  # of the datagram that a trick would bring to the one permitted port


def sent(*fragments, **how):
    """A probe that sends these IPv4 packets, each an expression, as frames."""
    words = "".join(f", {key}={value}" for key, value in how.items())
    return "; ".join(f"frames.send({fragment}{words})" for fragment in fragments)


def datagram(source="GUEST", size=SIZE):
    return f"udp_bytes({source}, GOOD, 7, b'd' * {size})"


def options(text):
    return sent(f"ipv4(GOOD, {datagram()}, options={text})")


def spoofed(source):
    return sent(f"ipv4(GOOD, {datagram(repr(source))}, source={source!r})")


def pieces(*ranges, ident, last=SIZE + 8, payload=datagram()):
    """Fragments of a datagram: (from, to) of its bytes."""
    return sent(*(f"ipv4(GOOD, {payload}[{a}:{b}], ident={ident}, fragment={a // 8 | (0x2000 if b < last else 0)})" for a, b in ranges))


OTHER_MAC = "bytes.fromhex('525400abcdef')"
SYN = "syn_bytes(GUEST, GOOD, 80)"
IPV6 = "bytes.fromhex('60000000%04x%02x40' % (len({payload}), {protocol}) + '{source}' + '{destination}') + {payload}"
V6 = {"source": "fe80000000000000505400fffe000001", "destination": "00000000000000000000ffff3232320a"}

# The probe, and the kind of the drop that the record says.
FRAMES = {
    "record route": (options("b'\\x07\\x07\\x04' + b'\\0' * 5"), "ip-options"),
    "loose source route": (options("b'\\x83\\x07\\x04' + socket.inet_aton(OTHER) + b'\\0'"), "ip-options"),
    "strict source route": (options("b'\\x89\\x07\\x04' + socket.inet_aton(OTHER) + b'\\0'"), "ip-options"),
    "timestamp option": (options("b'\\x44\\x08\\x05\\0' + b'\\0' * 4"), "ip-options"),
    "router alert": (options("b'\\x94\\x04\\0\\0'"), "ip-options"),
    "no-operation options": (options("b'\\x01' * 4"), "ip-options"),
    "options of 40 bytes": (options("b'\\0' * 40"), "ip-options"),
    "a neighbour's source": (spoofed("192.0.0.3"), "ip-source"),
    "the gateway's source": (spoofed("192.0.0.1"), "ip-source"),
    "the host's source": (spoofed("50.50.50.1"), "ip-source"),
    "loopback's source": (spoofed("127.0.0.1"), "ip-source"),
    "no source": (spoofed("0.0.0.0"), "ip-source"),
    "broadcast as source": (spoofed("255.255.255.255"), "ip-source"),
    "another source MAC": (sent(f"ipv4(GOOD, {datagram()})", source=OTHER_MAC), "source-mac"),
    "the gateway's MAC as source": (sent(f"ipv4(GOOD, {datagram()})", source="frames.gateway"), "source-mac"),
    "another destination MAC": (sent(f"ipv4(GOOD, {datagram()})", to=OTHER_MAC), "destination-mac"),
    "a VLAN": (sent(f"ipv4(GOOD, {datagram()})", tag="bytes.fromhex('81000005')"), "vlan"),
    "VLAN 0": (sent(f"ipv4(GOOD, {datagram()})", tag="bytes.fromhex('81000000')"), "vlan"),
    "two VLANs": (sent(f"ipv4(GOOD, {datagram()})", tag="bytes.fromhex('88a800058100000a')"), "vlan"),
    "fragments that overlap": (pieces((0, 208), (200, SIZE + 8), ident=101), "fragment-overlap"),
    "a fragment twice, different": (pieces((0, 200), ident=102) + "; " + pieces((0, 200), ident=102, payload=datagram(size=SIZE + 1)) + "; " +
                                    pieces((200, SIZE + 8), ident=102), "fragment-overlap"),
    "a fragment behind the end": (pieces((200, SIZE + 8), ident=103) + "; " + sent(f"ipv4(GOOD, b'x' * 8, ident=103, fragment={400 // 8})") + "; " +
                                  pieces((0, 200), ident=103), "fragment-overlap"),
    "a fragment beyond 64 KB": (sent(f"ipv4(GOOD, {datagram()}, ident=104, fragment=0x1fff)"), "fragment-invalid"),
    "a fragment of odd length": (sent(f"ipv4(GOOD, {datagram()}[:101], ident=105, fragment=0x2000)"), "fragment-invalid"),
    "a SYN in fragments": (sent(f"ipv4(GOOD, {SYN}[:8], 6, ident=106, fragment=0x2000)", f"ipv4(GOOD, {SYN}[8:], 6, ident=106, fragment=1)"), "tcp-fragment"),
    "a SYN with more to follow": (sent(f"ipv4(GOOD, {SYN}, 6, ident=107, fragment=0x2000)"), "tcp-fragment"),
    "GRE": (sent(f"ipv4(GOOD, b'\\0\\0\\x08\\0' + ipv4(GOOD, {datagram()}), 47)"), "protocol"),
    "IP in IP": (sent(f"ipv4(GOOD, ipv4(GOOD, {datagram()}), 4)"), "protocol"),
    "IPv6 in IP": (sent("ipv4(GOOD, " + IPV6.format(payload=datagram(), protocol=17, **V6) + ", 41)"), "protocol"),
    "SCTP": (sent("ipv4(GOOD, b'\\0' * 64, 132)"), "protocol"),
    "UDP-Lite": (sent(f"ipv4(GOOD, {datagram()}, 136)"), "protocol"),
    "ESP": (sent("ipv4(GOOD, b'\\0' * 64, 50)"), "protocol"),
    "IGMP": (sent("ipv4(GOOD, b'\\x16\\0' + b'\\0' * 6, 2)"), "protocol"),
    "IPv6 to a mapped address": (sent(IPV6.format(payload=datagram(), protocol=17, **V6), kind="0x86dd"), "ipv6"),
    "IPv6 neighbour discovery": (sent(IPV6.format(payload="b'\\x87' + b'\\0' * 23", protocol=58, source=V6["source"], destination="ff02" + "0" * 27 + "1"), kind="0x86dd"),
                                 "ipv6"),
    "IPv6 as IPv4": (sent(IPV6.format(payload=datagram(), protocol=17, **V6)), "ip-malformed"),
    "LLDP": (sent("b'\\0' * 60", kind="0x88cc"), "frame-type"),
    "PPPoE": (sent(f"b'\\x11\\0\\0\\1\\0\\x40\\0\\x21' + ipv4(GOOD, {datagram()})", kind="0x8864"), "frame-type"),
    "MPLS": (sent(f"b'\\0\\0\\x11\\xff' + ipv4(GOOD, {datagram()})", kind="0x8847"), "frame-type"),
    "a length for a type": (sent(f"b'\\xaa\\xaa\\3\\0\\0\\0\\x08\\0' + ipv4(GOOD, {datagram()})", kind="0x0200"), "frame-type"),
    "a bad header checksum": (sent(f"ipv4(GOOD, {datagram()})[:10] + b'\\1\\2' + ipv4(GOOD, {datagram()})[12:]"), "ip-malformed"),
    "a header longer than the packet": (sent(f"b'\\x4f' + ipv4(GOOD, {datagram()})[1:40]"), "ip-"),
    "a packet longer than its frame": (sent(f"ipv4(GOOD, {datagram()})[:-50]"), "ip-malformed"),
    "a datagram longer than its packet": (sent(f"ipv4(GOOD, {datagram()}[:-50])"), "udp-malformed"),
    "a bad checksum of UDP": (sent(f"ipv4(GOOD, {datagram()}[:6] + b'\\1\\2' + {datagram()}[8:])"), "udp-malformed"),
    "to every station": (sent("ipv4('255.255.255.255', udp_bytes(GUEST, '255.255.255.255', 7, b'd' * 9))", to="b'\\xff' * 6"), "ip-destination"),
    "to a group": (sent("ipv4('224.0.0.251', udp_bytes(GUEST, '224.0.0.251', 5353, b'd' * 9))", to="bytes.fromhex('01005e0000fb')"), "ip-destination"),
    "nothing but an Ethernet header": ("frames.socket.send(frames.gateway + frames.mac + b'\\x08\\0')", "ip-malformed"),
}


@pytest.mark.parametrize("trick", FRAMES)
def test_N8_a_frame_that_is_not_the_guests_own_plain_packet_goes_nowhere(machine, guest, trick):
    """A plain datagram behind it in the same wire says that it was dealt with, and that the guest is still served."""
    probe, kind = FRAMES[trick]
    with Wire(machine) as wire:
        guest.ask(probe + "; frames.send(ipv4(GOOD, udp_bytes(GUEST, GOOD, 7, b'p'))); udp(GOOD, 7, b'pp')")
        assert {e["size"] for e in machine.seen(server="udp-echo")} == {1, 2}
        assert set(wire.seen(begun=True)) == {(17, "50.50.50.10", 7)}
    # The first of each kind is noted, the others counted.
    assert any(f"dropped a frame ({kind}" in r["text"] for r in guest.recorded(kind="note")), guest.decisions(kind="note")


@pytest.mark.parametrize("order", [[(0, 104), (104, 208), (208, 308)], [(208, 308), (104, 208), (0, 104)], [(104, 208), (208, 308), (0, 104)]],
                         ids=["in order", "backwards", "mixed"])
def test_N8_honest_fragments_are_put_together(machine, guest, order):
    guest.ask(pieces(*order, ident=200 + order[0][0] + order[1][0]) + "; udp(GOOD, 7)")
    assert {e["size"] for e in machine.seen(server="udp-echo")} == {SIZE, 1}


def test_N8_a_datagram_that_is_never_whole_is_never_sent(machine, guest):
    guest.ask(pieces((0, 104), (208, 308), ident=300) + "; " + pieces((104, 208), ident=301) + "; udp(GOOD, 7)")
    assert {e["size"] for e in machine.seen(server="udp-echo")} == {1}


def test_N8_fragments_of_many_datagrams_at_once_harm_no_others(machine, guest):
    """More beginnings than are kept: they are dropped, and whole packets pass on."""
    guest.ask("for ident in range(1000, 1100): frames.send(ipv4(GOOD, b'x' * 800, ident=ident, fragment=0x2000))")
    guest.ask("udp(GOOD, 7)")
    assert {e["size"] for e in machine.seen(server="udp-echo")} == {1}
    assert any("fragment-limit" in r["text"] for r in guest.recorded(kind="note"))


ARP = "struct.pack('>HHBBH', 1, 0x0800, 6, 4, {operation}) + {mac} + socket.inet_aton({address}) + frames.gateway + socket.inet_aton({target})"


@pytest.mark.parametrize("address", ["192.0.0.1", "192.0.0.3", "50.50.50.1", "255.255.255.255"])
@pytest.mark.parametrize("operation", [1, 2], ids=["request", "answer"])
def test_N8_ARP_claims_nothing_but_the_guests_own_address(machine, guest, operation, address):
    own = ARP.format(operation=operation, mac="frames.mac", address=repr(address), target=repr(address))
    other = ARP.format(operation=operation, mac=OTHER_MAC, address="GUEST", target="GATEWAY")
    guest.ask(f"frames.send({own}, kind=0x0806); frames.send({own}, kind=0x0806, to=b'\\xff' * 6); frames.send({other}, kind=0x0806)")
    assert any("(arp-claim" in r["text"] for r in guest.recorded(kind="note"))
    # Nobody took the gateway's place, nor the guest's: answers still come where they should.
    assert guest.ask("http(GOOD, ['good.test'])") == [[200, "hello from good.test\n"]]
    assert guest.ask("udp(GOOD, 7, b'e' * 77)") == 77


# --- a guest that arranges its own network ----------------------------------------------------------------------------------------


@pytest.fixture
def own(guests, machine):
    """A guest whose network is put back afterwards."""
    guest = guests(*PERMITTED, apart="own")
    guest.ask("sh = lambda script: subprocess.run(script, shell=True, capture_output=True, text=True).stderr")
    guest.ask("dns('good.test')")
    machine.forget()
    yield guest
    guest.ask("sh('ip -6 addr flush dev eth0')")
    assert guest.ask("udp(GOOD, 7)") == 1


@pytest.mark.parametrize("address", ["192.0.0.4", "10.0.0.2"])
def test_N8_a_second_address_of_the_guest_is_not_served(machine, own, address):
    own.ask(f"sh('ip addr add {address}/32 dev eth0')")
    try:
        with Wire(machine) as wire:
            assert own.together(f"attempt(udp, GOOD, 7, b'e' * 110, ({address!r}, 0))",
                                f"attempt(tcp, GOOD, 80, b'x', ({address!r}, 0))") == ["timeout", "timeout"]
            assert wire.seen(begun=True) == []
    finally:
        own.ask(f"sh('ip addr del {address}/32 dev eth0')")
    assert own.ask("udp(GOOD, 7, b'e' * 111, (GUEST, 0))") == 111
    assert {e["size"] for e in machine.seen(server="udp-echo")} == {111}


def test_N8_IPv6_of_the_guests_own_making_reaches_nothing(machine, outside, own):
    assert outside.ask("tcp6('fd50::10', 80)") == "connected"
    own.ask("""sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.eth0.disable_ipv6=0; ip -6 addr add fd50::2/64 dev eth0 nodad; "
                  "ip -6 neigh replace fd50::10 lladdr $(ip neigh show 192.0.0.1 | grep -o '..:..:..:..:..:..') dev eth0")""")
    said = own.ask("attempt(tcp6, 'fd50::10', 80)")
    assert said in ("timeout", "ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EHOSTUNREACH", "ENODEV"), said
    assert machine.seen(server="http") == []


def test_N8_a_raw_socket_is_judged_like_any_other(machine, own):
    send = """
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
s.sendto({}, ({!r}, 0))
udp(GOOD, 7)"""
    with Wire(machine) as wire:
        for address in ("50.50.50.11", "50.50.50.1", "10.99.0.10"):
            own.ask(send.format(f"ipv4({address!r}, udp_bytes(GUEST, {address!r}, 7, b'r'))", address))
            own.ask(send.format(f"ipv4({address!r}, syn_bytes(GUEST, {address!r}, 80), 6)", address))
        assert set(wire.seen(begun=True)) == {(17, "50.50.50.10", 7)}
    machine.forget()
    own.ask(send.format("ipv4(GOOD, udp_bytes(GUEST, GOOD, 7, b'r' * 55))", "50.50.50.10"))
    assert {e["size"] for e in machine.seen(server="udp-echo")} == {55, 1}


def test_N8_forged_segments_do_not_open_or_join_a_connection(machine, own):
    """Without a handshake there is nothing to speak in: data, ACK, FIN and both at once are answered with a reset or not at all."""
    with Wire(machine) as wire:
        own.ask("""
frames = Frames()
for flags in (0x00, 0x01, 0x03, 0x10, 0x18, 0x29, 0x12, 0x3f):
    segment = bytearray(syn_bytes(GUEST, OTHER, 80, next_port()) + b"GET / HTTP/1.0\\r\\n\\r\\n")
    segment[13], segment[16:18] = flags, b"\\0\\0"
    pseudo = socket.inet_aton(GUEST) + socket.inet_aton(OTHER) + struct.pack(">BBH", 0, 6, len(segment))
    segment[16:18] = struct.pack(">H", checksum(pseudo + bytes(segment)))
    frames.send(ipv4(OTHER, bytes(segment), 6))
udp(GOOD, 7)""")
        assert set(wire.seen(begun=True)) == {(17, "50.50.50.10", 7)}
    assert own.ask("http(GOOD, ['good.test'])")[0][0] == 200

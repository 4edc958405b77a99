"""What the guest's root may send as raw frames, beside the same frame sent properly; and what the process may not do."""
import os
import socket
import struct

import pytest

from netlab import GATEWAY_IP, GATEWAY_MAC, GUEST_IP, GUEST_MAC, is_sanitized, lab

SERVER = "45.80.0.10"


@pytest.fixture(scope="module")
def net():
    with lab(allow=["udp/45.80.0.10:9000"]) as it:
        it.add_address(SERVER)
        it.received = it.world.socket(socket.AF_INET, socket.SOCK_DGRAM)
        it.received.bind((SERVER, 9000))
        it.received.settimeout(1)
        it.raw = it.guest.socket(socket.AF_PACKET, socket.SOCK_RAW)
        it.raw.bind(("eth0", 0))
        yield it
        it.received.close()
        it.raw.close()


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_packet(payload, source=GUEST_IP, protocol=17, options=b"", fragment=0, ident=1):
    words = 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH4s4s", 0x40 | words, 0, words * 4 + len(payload), ident, fragment, 64, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(SERVER)) + options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def datagram(text):
    return struct.pack(">HHHH", 5000, 9000, 8 + len(text), 0) + text


def frame(payload, source=GUEST_MAC, target=GATEWAY_MAC, kind=0x0800):
    return mac(target) + mac(source) + struct.pack(">H", kind) + payload


def arp(sender_ip, operation=2):
    return struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, operation, mac(GUEST_MAC), socket.inet_aton(sender_ip), mac(GATEWAY_MAC),
                       socket.inet_aton(GATEWAY_IP))


def test_a_proper_frame_arrives(net):
    net.raw.send(frame(ip_packet(datagram(b"proper"))))
    assert net.received.recv(100) == b"proper"


@pytest.mark.parametrize("kind, bad", [
    ("source-mac", frame(ip_packet(datagram(b"bad")), source="02:00:00:00:00:01")),
    ("destination-mac", frame(ip_packet(datagram(b"bad")), target="02:00:00:00:00:01")),
    ("vlan", frame(struct.pack(">HH", 5, 0x0800) + ip_packet(datagram(b"bad")), kind=0x8100)),
    ("ip-source", frame(ip_packet(datagram(b"bad"), source="192.0.0.3"))),
    ("ip-source", frame(ip_packet(datagram(b"bad"), source=GATEWAY_IP))),
    ("ip-options", frame(ip_packet(datagram(b"bad"), options=b"\x07\x07\x04\0\0\0\0\0"))),
    ("tcp-fragment", frame(ip_packet(bytes(24), protocol=6, fragment=0x2000))),
    ("arp-claim", frame(arp(GATEWAY_IP), kind=0x0806)),
    ("arp-claim", frame(arp("192.0.0.5"), kind=0x0806)),
    ("frame-type", frame(bytes(50), kind=0x88CC)),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_frame_that_is_not_the_guests_own_is_dropped_and_counted(net, kind, bad):
    before = net.gateway.stats()["dropped"].get(kind, 0)
    net.raw.send(bad)
    net.gateway.wait_stats(lambda s: s["dropped"].get(kind, 0) == before + 1)
    net.raw.send(frame(ip_packet(datagram(b"after"))))
    assert net.received.recv(100) == b"after", "the bad one was not delivered before it"
    net.gateway.wait_note(kind)


def test_overlapping_fragments_deliver_nothing(net):
    whole = datagram(b"A" * 40)
    net.raw.send(frame(ip_packet(whole[:24], fragment=0x2000, ident=9)))
    net.raw.send(frame(ip_packet(whole[16:40], fragment=0x2000 | 2, ident=9)))
    net.raw.send(frame(ip_packet(whole[40:], fragment=5, ident=9)))
    net.raw.send(frame(ip_packet(datagram(b"after"))))
    assert net.received.recv(100) == b"after"
    assert net.gateway.stats()["dropped"]["fragment-overlap"] >= 1


def test_dhcp_gives_the_lease_with_its_mtu(net):
    discover = (bytes([1, 1, 6, 0]) + b"\1\2\3\4" + bytes(20) + mac(GUEST_MAC) + bytes(10 + 192) + bytes.fromhex("63825363") +
                bytes([53, 1, 1, 255]))
    udp = struct.pack(">HHHH", 68, 67, 8 + len(discover), 0) + discover
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
    net.raw.settimeout(2)
    listener = net.guest.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    listener.bind(("eth0", 0x0800))
    listener.settimeout(2)
    net.raw.send(frame(head + udp, target="ff:ff:ff:ff:ff:ff"))
    while True:
        got = listener.recv(2000)
        if got[:6] == mac(GUEST_MAC) and got[34:38] == struct.pack(">HH", 67, 68):
            break
    listener.close()
    message = got[42:]
    assert socket.inet_ntoa(message[16:20]) == GUEST_IP
    assert bytes([26, 2]) + struct.pack(">H", 1500) in message


def test_the_process_is_confined(net):
    with open(f"/proc/{net.gateway.process.pid}/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0
    assert int(status["Threads"]) == 1


@pytest.mark.skipif(is_sanitized(), reason="the sanitizers' shadow memory is no figure of ours")
def test_it_is_small_when_idle(net):
    assert net.gateway.pss_kib() <= 12 * 1024


def test_it_ends_with_its_supervisor_and_with_its_wire():
    with lab() as net:
        pass  # close() asserts exit 0 once control is closed
    with lab(form="stream") as net:
        net.pump.kill()
        assert net.gateway.process.wait(timeout=5) == 1
        assert "wire" in net.gateway.log()
        net.gateway.close = lambda: 0

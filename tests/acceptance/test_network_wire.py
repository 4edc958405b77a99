"""Rows N1, N8: the cable to the gateway, and the frames on it."""

import os
import signal
import time

from harness import Running, Wire

# "permitted" is the datagram port with which raw packets have their control.
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


def test_N8_frames_that_are_not_the_guests_own_plain_packets_go_nowhere(machine):
    """Each frame carries a datagram of its own size to the one permitted port, so the server's log says which arrived."""
    probe = """
GOOD = "50.50.50.10"
dns("good.test")
frames = Frames()
sent = {}
def datagram(size, source=GUEST):
    return udp_bytes(source, GOOD, 7, b"d" * size)
def send(what, size, payload, **how):
    sent[what] = size
    frames.send(payload, **how)
other_mac = bytes.fromhex("525400abcdef")
# Permitted: the machinery works, alone, as ordered fragments and in any order.
send("plain", 101, ipv4(GOOD, datagram(101)))
whole = datagram(1200)
sent["fragments"] = 1200
for at in (800, 0, 400):
    part = whole[at:at + 400] if at < 800 else whole[at:]
    frames.send(ipv4(GOOD, part, ident=9, fragment=at // 8 | (0x2000 if at < 800 else 0)))
# Refused.
send("options", 102, ipv4(GOOD, datagram(102), options=b"\\x07\\x07\\x04" + b"\\0" * 5))
send("source route", 103, ipv4(GOOD, datagram(103), options=b"\\x83\\x07\\x04" + socket.inet_aton("50.50.50.11") + b"\\0"))
send("source address", 104, ipv4(GOOD, datagram(104, "192.0.0.3"), source="192.0.0.3"))
send("source outside", 105, ipv4(GOOD, datagram(105, "50.50.50.1"), source="50.50.50.1"))
send("source mac", 106, ipv4(GOOD, datagram(106)), source=other_mac)
send("destination mac", 107, ipv4(GOOD, datagram(107)), to=other_mac)
send("vlan", 108, ipv4(GOOD, datagram(108)), tag=bytes.fromhex("81000005"))
send("double vlan", 109, ipv4(GOOD, datagram(109)), tag=bytes.fromhex("88a800058100000a"))
sent["overlap"] = 1300
overlapping = datagram(1300)
for at, end in ((0, 808), (800, 1308)):
    frames.send(ipv4(GOOD, overlapping[at:end], ident=10, fragment=at // 8 | (0x2000 if end < 1308 else 0)))
sent["unfinished"] = 1400
frames.send(ipv4(GOOD, datagram(1400)[:800], ident=11, fragment=0x2000))
syn = syn_bytes(GUEST, GOOD, 80)
frames.send(ipv4(GOOD, syn[:8], 6, ident=12, fragment=0x2000))
frames.send(ipv4(GOOD, syn[8:], 6, ident=12, fragment=1))
frames.send(ipv4(GOOD, b"\\0" * 64, 47, ident=13))  # GRE
frames.send(ipv4(GOOD, b"\\0" * 64, 132, ident=14))  # SCTP
v6 = bytes.fromhex("6000000000081140fe800000000000005054fffe000001" + "00" + "00000000000000000000ffff3232320a")
frames.send(v6 + udp_bytes(GUEST, GOOD, 7, b""), kind=0x86dd)
frames.send(b"\\0" * 60, kind=0x88cc)
# Claims on the gateway's address and on a stranger's.
arp = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2)
for claimed in (GATEWAY, "192.0.0.4"):
    frames.send(arp + frames.mac + socket.inet_aton(claimed) + frames.gateway + socket.inet_aton(GATEWAY), kind=0x0806)
# A second address, by the guest's own stack.
subprocess.run("ip addr add 192.0.0.4/29 dev eth0; sysctl -qw net.ipv6.conf.all.disable_ipv6=0", shell=True, stderr=subprocess.DEVNULL)
second = [attempt(udp, GOOD, 7, b"e" * 110, ("192.0.0.4", 0)), attempt(udp, GOOD, 7, b"e" * 111, (GUEST, 0))]
def six():
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.settimeout(5)
        s.connect(("2001:db8::1", 80))
try:
    ipv6 = attempt(six)
except Exception as e:
    ipv6 = str(e)
report(sent=sent, second=second, ipv6=ipv6, still=attempt(http, GOOD, ["good.test"]))
"""
    machine.forget()
    name = f"frames-{os.getpid()}"
    with Wire(machine) as wire:
        seen, run = machine.probe(probe, *PERMITTED, "--name", name)
        went = wire.seen()
    arrived = sorted(e["size"] for e in machine.seen(server="udp-echo"))
    assert arrived == sorted([seen["sent"]["plain"], seen["sent"]["fragments"], 111]), (arrived, run)
    assert seen["second"] == ["timeout", 111], run
    assert seen["ipv6"] in ("ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EHOSTUNREACH", "timeout"), run
    assert seen["still"] == [[200, "hello from good.test\n"]], run  # nobody took the gateway's place
    assert {p for p in went if p[0] != 17} == {(6, "50.50.50.10", 80)}, set(went)
    notes = " ".join(r["text"] for r in machine.decisions(name) if r.get("kind") == "note")
    for kind in ("ip-options", "ip-source", "source-mac", "destination-mac", "vlan", "fragment-overlap", "tcp-fragment", "protocol",
                 "ipv6", "frame-type", "arp-claim"):
        assert f"({kind}" in notes, (kind, notes)

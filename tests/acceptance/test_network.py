"""Contract rows N1 to N16: the network boundary. Every probe is made as root inside, and each refusal has its control."""

import calendar
import ipaddress
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

import pytest

from harness import SANDBOX, Running, Wire


def test_N2_no_rules_nothing_resolves_or_connects(machine):
    machine.forget()
    result = machine.run("curl -sS -m 5 http://good.test/; echo $?; curl -sS -m 5 http://50.50.50.10/; echo $?")
    assert result.out.split() == ["6", "7"], result
    assert "no --allow rules; this sandbox reaches nothing" in result.err
    assert machine.seen() == []
    control = machine.run("curl -sS -m 5 http://good.test/", "--allow", "good.test")
    assert control.out == "hello from good.test\n", control
    assert machine.seen(server="http", host="good.test")


def test_N3_a_denied_name_is_refused_for_every_type_and_never_asked_upstream(machine):
    machine.forget()
    probe = """
import socket, struct
def ask(name, qtype, tcp):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\\0" + struct.pack(">HH", qtype, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(3)
    s.connect(("192.0.0.1", 53))
    s.send(struct.pack(">H", len(q)) + q if tcp else q)
    r = s.recv(4096)
    if tcp:
        r = r[2:] or s.recv(4096)
    return r[3] & 15
for tcp in (False, True):
    print([ask("other.test", t, tcp) for t in (1, 2, 5, 6, 12, 15, 16, 28, 33, 64, 65, 255, 256, 65280)])
    print(ask("good.test", 1, tcp), ask("good.test", 16, tcp))
"""
    result = machine.python(probe, "--allow", "good.test")
    lines = result.out.splitlines()
    assert lines[0] == lines[2] == str([3] * 14), result  # NXDOMAIN
    assert lines[1] == lines[3] == "0 0", result
    assert machine.seen(server="dns", name="other.test") == []
    assert machine.seen(server="dns", name="good.test")


def test_N4_a_raw_address_of_a_live_server_is_refused(machine):
    machine.forget()
    result = machine.run("curl -sS -m 5 http://50.50.50.10/; echo $?; curl -sS -m 5 http://good.test/", "--allow", "good.test",
                         "--show-policy-log")
    assert result.out.splitlines()[0] == "7", result
    assert result.out.splitlines()[1] == "hello from good.test", result
    assert "deny tcp 50.50.50.10:80 unresolved-address" in result.err
    assert re.search(r"allow tcp 50\.50\.50\.10:80 allow-rule good\.test", result.err), result
    assert [e["host"] for e in machine.seen(server="http")] == ["good.test"]


# What every sandbox below may reach; "permitted" is the datagram port with which raw packets have their control.
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


def test_N5_echo_follows_the_dial_rule_at_port_0(machine):
    probe = """
def ping(name):
    run = subprocess.run(["ping", "-n", "-c1", "-W2", name], capture_output=True, text=True)
    return [run.returncode, run.stdout + run.stderr]
dns("good.test")
results = dict(name=ping("50.50.50.10"), other=ping("50.50.50.11"), http=attempt(http, "50.50.50.10", ["good.test"]))
report(**results)
"""
    icmp = 1
    with Wire(machine) as wire:
        ported, run = machine.probe(probe, "--allow", "good.test:80")
        assert ported["name"][0] == 1 and "filtered" in ported["name"][1], run
        assert ported["http"][0][0] == 200, run  # the control: with its port it is allowed
        assert not [p for p in wire.seen() if p[0] == icmp]
        allowed, run = machine.probe(probe, "--allow", "good.test")
        assert allowed["name"][0] == 0, run
        assert allowed["other"][0] == 1 and "filtered" in allowed["other"][1], run
        assert {p[1] for p in wire.seen() if p[0] == icmp} == {"50.50.50.10"}
        wire.forget()
        only, run = machine.probe(probe, "--allow", "icmp/good.test", "--allow", "icmp/50.50.50.11")
        assert only["name"][0] == 0 and only["other"][0] == 0, run
        assert only["http"] == "ECONNREFUSED", run
        assert not [p for p in wire.seen() if p[0] == 6]


def test_N6_the_name_in_a_hello_is_judged_on_every_port(machine):
    probe = """
dns("good.test")
report(**{f"{sni} {port}": timed(tls, "50.50.50.10", sni, port) for port in (443, 8443, 22)
          for sni in ("good.test", "sibling.test", "other.test", None)})
"""
    machine.forget()
    name = f"n6-{os.getpid()}"
    seen, run = machine.probe(probe, "--allow", "good.test", "--allow", "other.test", "--name", name)
    for port in (443, 8443, 22):
        assert seen[f"good.test {port}"][0] == "HTTP/1.1 200 OK", run
        # Not allowed; allowed but not vouched for at this address; none.
        for sni in ("sibling.test", "other.test", None):
            said, seconds = seen[f"{sni} {port}"]
            assert "alert" in said.lower() and seconds < 3, (sni, port, run)
    arrived = machine.seen(server="http")
    assert sorted((e["host"], e["port"]) for e in arrived) == [("good.test", 22), ("good.test", 443), ("good.test", 8443)]
    # Where no name was shown, the record is of the connection: proto tcp.
    records = [r for r in machine.decisions(name) if r.get("proto") == "tls" or r.get("reason") == "sni-denied"]
    assert {(r.get("sni"), r.get("verdict"), r.get("reason")) for r in records} == {
        ("good.test", "allow", "allow-rule"), ("sibling.test", "deny", "sni-denied"), ("other.test", "deny", "sni-denied"),
        (None, "deny", "sni-denied")}, json.dumps(records, indent=1)
    # The control: the same hello is answered when the name is allowed and vouched for.
    control, run = machine.probe('dns("sibling.test"); report(tls=attempt(tls, "50.50.50.10", "sibling.test", 8443))',
                                 "--allow", "sibling.test")
    assert control["tls"] == "HTTP/1.1 200 OK", run


def test_N6_the_host_of_every_request_on_a_connection_is_judged(machine):
    probe = """
dns("good.test")
report(second=attempt(http, "50.50.50.10", ["good.test", "sibling.test"]), other_port=attempt(http, "50.50.50.10", ["sibling.test"], 8080),
       address=attempt(http, "50.50.50.10", ["50.50.50.10"]), control=attempt(http, "50.50.50.10", ["good.test", "good.test:80"]),
       absolute=attempt(tcp, "50.50.50.10", 80, b"GET http://sibling.test/ HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n"),
       connect=attempt(tcp, "50.50.50.10", 80, b"CONNECT sibling.test:443 HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n"),
       pipelined=attempt(tcp, "50.50.50.10", 80, b"GET /a HTTP/1.1\\r\\nHost: sibling.test\\r\\n\\r\\n" * 2))
"""
    machine.forget()
    name = f"n6-host-{os.getpid()}"
    seen, run = machine.probe(probe, "--allow", "good.test", "--name", name)
    assert seen["control"] == [[200, "hello from good.test\n"], [200, "hello from good.test:80\n"]], run
    assert [status for status, _ in seen["second"]] == [200, 403], run
    assert seen["other_port"][0][0] == 403 and seen["address"][0][0] == 403, run
    for smuggled in ("absolute", "connect", "pipelined"):
        assert seen[smuggled].split()[1] in ("400", "403"), (smuggled, run)
    assert {e["host"] for e in machine.seen(server="http")} == {"good.test", "good.test:80"}
    assert [r for r in machine.decisions(name) if r.get("host") == "sibling.test" and r.get("reason") == "host-denied"]
    control, run = machine.probe(probe, "--allow", "good.test", "--allow", "sibling.test")
    # Allowed, but nothing has vouched for it at this address yet.
    assert [status for status, _ in control["second"]] == [200, 403], run
    control, run = machine.probe('dns("sibling.test")' + probe, "--allow", "good.test", "--allow", "sibling.test")
    assert [status for status, _ in control["second"]] == [200, 200], run


def test_N7_deny_comes_before_allow_for_every_name_of_an_address(machine):
    probe = """
dns("good.test")
report(sneaky=attempt(dns, "sneaky.good.test"), alias=attempt(dns, "alias.good.test"), denied=attempt(dns, "denied.test"),
       web=attempt(http, "50.50.50.10", ["good.test"]), raw=attempt(tcp, "50.50.50.10", 7, b"x\\n"))
"""
    zone = ["--allow", "*.good.test"]
    seen, run = machine.probe(probe, *zone, "--deny", "denied.test")
    assert seen["sneaky"] == [3, []] and seen["denied"] == [3, []], run  # an alias that leads through a denied name
    assert seen["alias"] == [0, ["50.50.50.10"]] and seen["web"][0][0] == 200 and seen["raw"] == "x\n", run
    control, run = machine.probe(probe, *zone)
    assert control["sneaky"] == [0, ["50.50.50.10"]] and control["web"][0][0] == 200, run
    # Two names share an address: one denied by name, then the address denied itself.
    shared = """
report(good=attempt(dns, "good.test"), sibling=attempt(dns, "sibling.test"), web=attempt(http, "50.50.50.10", ["good.test", "sibling.test"]),
       tls=attempt(tls, "50.50.50.10", "sibling.test"), www=attempt(tls, "50.50.50.10", "good.test"))
"""
    seen, run = machine.probe(shared, "--allow", "good.test", "--allow", "sibling.test", "--deny", "sibling.test")
    assert seen["good"][0] == 0 and seen["sibling"] == [3, []], run
    assert [status for status, _ in seen["web"]] == [200, 403] and "alert" in seen["tls"].lower(), run
    assert seen["www"] == "HTTP/1.1 200 OK", run
    seen, run = machine.probe(shared, "--allow", "good.test", "--deny", "50.50.50.0/24")
    assert seen["web"] == "ECONNREFUSED" and seen["www"] == "ECONNREFUSED", run


def test_N9_a_private_address_is_vouched_only_where_the_rule_says_so(machine):
    probe = """
report(before=timed(tcp, "10.99.0.10", 80), name=timed(dns, "private.test"), tool=subprocess.run(["curl", "-sS", "-m5", "http://private.test/"],
       capture_output=True, text=True).stdout, neighbour=timed(tcp, "10.99.0.11", 80), other=attempt(dns, "api.corp.test"))
"""
    machine.forget()
    name = f"n9-{os.getpid()}"
    seen, run = machine.probe(probe, "--allow", "private.test", "--allow", "api.corp.test", "--name", name)
    assert seen["name"][0] == [3, []] and seen["tool"] == "", run
    assert machine.seen(server="http") == []
    refusal = next(r for r in machine.decisions(name) if r.get("reason") == "rebinding" and "private.test" in r["names"])
    assert refusal["address"] == "10.99.0.10" and "--allow private.test@10.99.0.10" in refusal["text"], refusal
    seen, run = machine.probe(probe, "--allow", "private.test@10.99.0.0/24", "--allow", "api.corp.test", "--name", name)
    assert seen["before"][0] == seen["neighbour"][0] == "ECONNREFUSED", run
    assert seen["name"][0] == [0, ["10.99.0.10"]] and seen["tool"] == "hello from private.test\n", run
    assert seen["other"] == [3, []], run  # that name, and no other
    raw = {(r["address"], r.get("reason")) for r in machine.decisions(name) if r.get("proto") == "tcp" and r.get("verdict") == "deny"}
    assert raw == {("10.99.0.10", "unresolved-address"), ("10.99.0.11", "unresolved-address")}
    outside, run = machine.probe(probe, "--allow", "private.test@10.98.0.0/16")
    assert outside["name"][0] == [3, []] and outside["tool"] == "", run


def test_N9_loopback_metadata_and_the_hosts_own_addresses_never_by_a_name(machine):
    probe = """
report(**{n: attempt(dns, n) for n in ("loop.test", "metadata.test", "hostaddr.test", "mixed.test")},
       dial={a: attempt(tcp, a, 80) for a in ("127.0.0.1", "169.254.169.254", "50.50.50.1", "10.99.0.10")},
       mixed=attempt(http, "50.50.50.10", ["mixed.test"]))
"""
    names = ("loop.test", "metadata.test", "hostaddr.test", "mixed.test")
    flags = [word for n in names for word in ("--allow", n)]
    listener = subprocess.Popen(machine.wrap(["/usr/bin/python3", "-m", "http.server", "80"]), cwd=machine.dir / "..",
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10
        up = "import socket; socket.create_connection(('50.50.50.1', 80), 1)"
        while machine.in_host(["/usr/bin/python3", "-c", up], stderr=subprocess.DEVNULL).returncode != 0:
            assert time.monotonic() < end  # the control: something does listen on the host's own address
        seen, run = machine.probe(probe, *flags, "--allow", "hostaddr.test@50.50.50.0/24")
    finally:
        listener.kill()
        listener.wait()
    assert seen["loop.test"] == seen["metadata.test"] == seen["hostaddr.test"] == [3, []], run
    assert seen["mixed.test"] == [0, ["50.50.50.10"]], run  # only the good one
    assert seen["mixed"] == [[200, "hello from mixed.test\n"]], run
    del seen["dial"]["127.0.0.1"]  # the guest's own
    assert set(seen["dial"].values()) == {"ECONNREFUSED"}, run
    for rule in ("loop.test@127.0.0.0/8", "metadata.test@169.254.0.0/16"):
        refused = machine.sandbox("policy", "check", "--allow", rule, "loop.test")
        assert refused.status == 2 and "no name may lead to" in refused.err, refused


def test_N10_root_with_every_capability_is_still_refused(machine):
    probe = """
def sh(script):
    return subprocess.run(script, shell=True, capture_output=True, text=True).stdout.strip()
def probes():
    return dict(name=attempt(dns, "other.test"), raw=attempt(tcp, "50.50.50.11", 80), web=attempt(http, "50.50.50.10", ["sibling.test"]),
                lan=attempt(tcp, "50.50.50.1", 80), good=attempt(tls, "50.50.50.10", "good.test"))
dns("good.test")
first = probes()
sh("env -u http_proxy -u https_proxy -u ALL_PROXY true; ip route flush table main; ip rule flush; ip rule add from all table main; "
   "ip route add 192.0.0.1 dev eth0; ip route add default via 192.0.0.1 dev eth0 onlink; echo nameserver 50.50.50.53 > /etc/resolv.conf; "
   "echo '50.50.50.11 good.test' >> /etc/hosts")
second = probes()
sh("ip neigh replace 192.0.0.1 lladdr ff:ff:ff:ff:ff:ff dev eth0")
third = probes()
lookup, hosts = sh("curl -sS -m 8 http://other.test/ 2>&1"), sh("curl -sS -m 8 http://good.test/ 2>&1")
# Every address is said to be on the cable: nobody answers for them there.
sh("ip neigh del 192.0.0.1 dev eth0; ip route replace default dev eth0 scope link")
fourth = attempt(tcp, "50.50.50.11", 80)
report(first=first, second=second, third=third, fourth=fourth, lookup=lookup, hosts=hosts,
       uid=os.getuid(), caps=sh("grep CapEff /proc/self/status"))
"""
    with Wire(machine) as wire:
        seen, run = machine.probe(probe, "--privileged", "--allow", "good.test", "-e", "http_proxy=http://50.50.50.10:8080")
        went = set(wire.seen())
    assert seen["uid"] == 0 and int(seen["caps"].split()[1], 16) & 1 << 12, run  # CAP_NET_ADMIN
    for stage in ("first", "second", "third"):
        refused = seen[stage]
        assert refused["name"] == [3, []] and refused["raw"] == "ECONNREFUSED" and refused["lan"] == "ECONNREFUSED", (stage, run)
        assert refused["web"][0][0] == 403, (stage, run)
        assert refused["good"] == "HTTP/1.1 200 OK", (stage, run)  # the control, each time
    assert seen["fourth"] in ("EHOSTUNREACH", "timeout") and "hello" not in seen["lookup"] + seen["hosts"], run
    assert went <= {(17, "50.50.50.53", 53), (6, "50.50.50.10", 80), (6, "50.50.50.10", 443)}, went


def test_N8_no_other_way_out_by_name_service_or_datagram(machine):
    """Servers that would answer: each is first asked from the host, as the control."""
    asks = {"udp 53": "udp('50.50.50.10', 53)", "dns udp": "dns('good.test', server='50.50.50.53')",
            "dns tcp": "dns('good.test', server='50.50.50.53', tcp=True)", "dot": "tcp('50.50.50.10', 853, b'x\\n')",
            "mdns": "udp('50.50.50.10', 5353)", "quic": "udp('50.50.50.10', 443)", "udp 7": "udp('50.50.50.10', 7)"}
    entries = ", ".join(f"{key!r}: timed(lambda: {call})" for key, call in asks.items())
    helpers = (pathlib.Path(__file__).parent / "guest_probe.py").read_text()
    control = machine.in_host(["/usr/bin/python3", "-c", helpers + f"report(**{{{entries}}})"], capture_output=True, text=True)
    outside = json.loads(control.stdout)
    assert outside["dns udp"][0] == outside["dns tcp"][0] == [0, ["50.50.50.10"]] and outside["dot"][0] == "x\n", outside
    assert all(outside[key][0] == 1 for key in ("udp 53", "mdns", "quic", "udp 7")), outside

    probe = f"""
asks = {{{entries}}}
before = attempt(tls, "50.50.50.10", "good.test")
dns("good.test")
asks_after = {{{entries}}}
grease, ech = hello_with(0x2a2a, b"x"), hello_with(0xfe0d, b"\\0" * 32)
report(asks=asks, after=asks_after, before=before, doh=attempt(tls, "50.50.50.10", "50.50.50.10"), doh_unnamed=attempt(tls, "50.50.50.10", None),
       doh_other=attempt(tls, "50.50.50.53", None), ech=timed(tls, "50.50.50.10", "good.test", 443, ech),
       grease=timed(tls, "50.50.50.10", "good.test", 443, grease), good=attempt(tls, "50.50.50.10", "good.test"),
       permitted=attempt(udp, "50.50.50.10", 7), aaaa=dns("good.test", 28), https=dns("good.test", 65),
       own=attempt(dns, "good.test", tcp=True))
"""
    name = f"n8-{os.getpid()}"
    machine.forget()
    with Wire(machine) as wire:
        # Rules that name the address and every port do not open these either.
        seen, run = machine.probe(probe, *PERMITTED, "--allow", "50.50.50.53", "--allow", "udp/50.50.50.53", "--name", name)
        went = set(wire.seen())
    for key in ("udp 53", "dns udp", "dns tcp", "dot", "mdns", "quic"):
        for said, seconds in (seen["asks"][key], seen["after"][key]):
            assert said == ("ECONNREFUSED" if key in ("dns tcp", "dot", "quic") else "EHOSTUNREACH") and seconds < 1, (key, run)
    assert seen["before"] == "ECONNREFUSED" and seen["good"] == "HTTP/1.1 200 OK", run
    assert "alert" in seen["doh"].lower() and "alert" in seen["doh_unnamed"].lower(), run
    assert seen["doh_other"] == "ECONNREFUSED", run  # allowed, nobody listens: the upstream's own answer
    assert "access denied" in seen["ech"][0].lower() and seen["ech"][1] < 3, run
    # The control: a hello that was changed in the same way reaches the server, which notices at the end of the handshake.
    assert seen["grease"][0] != "HTTP/1.1 200 OK" and "access denied" not in seen["grease"][0].lower(), run
    assert seen["permitted"] == 1 and seen["own"] == [0, ["50.50.50.10"]], run
    assert seen["aaaa"] == [0, []] and seen["https"][1] == [], run
    reasons = {(r.get("proto"), r.get("port"), r.get("reason")) for r in machine.decisions(name) if r.get("verdict") == "deny"}
    assert {("udp", 443, "quic"), ("tls", 443, "ech")} <= reasons, reasons
    assert went == {(17, "50.50.50.53", 53), (6, "50.50.50.10", 443), (6, "50.50.50.53", 443), (17, "50.50.50.10", 7)}, went


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


def test_N14_a_denial_is_readable_and_at_once_whatever_asks(machine):
    probe = """
def sh(script):
    run = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    return [run.returncode, run.stdout + run.stderr]
dns("good.test")
# The first run of a program is its load from disk; what is measured is the denial.
sh("curl --version; git --version; python3 -c 'import urllib.request, ssl'")
repo = "deb [trusted=yes] http://other.test/debian stable main"
open("/tmp/sources.list", "w").write(repo + "\\n")
# apt asks three times by itself, whatever the refusal, and waits between: one attempt is what is measured.
apt = "apt-get -o Acquire::Retries=0 -o Dir::Etc::sourcelist=/tmp/sources.list -o Dir::Etc::sourceparts=/nonexistent -o APT::Get::List-Cleanup=0 update"
report(
    curl=timed(sh, "curl -sS http://other.test/"), curl_tls=timed(sh, "curl -sS https://other.test/"), curl_address=timed(sh, "curl -sS http://50.50.50.11/"),
    git=timed(sh, "git ls-remote https://other.test/x.git"), apt=timed(sh, apt),
    python=timed(sh, "python3 -c 'import urllib.request; urllib.request.urlopen(\\"http://other.test/\\")' 2>&1 | tail -1"),
    glibc=timed(sh, "getent ahosts other.test"),
    curl_sni=timed(sh, "curl -sS --cacert /ca.pem --resolve sibling.test:443:50.50.50.10 https://sibling.test/"),
    git_sni=timed(sh, "git -c http.sslCAInfo=/ca.pem -c http.curloptResolve=sibling.test:443:50.50.50.10 ls-remote https://sibling.test/x.git"),
    python_sni=timed(attempt, tls, "50.50.50.10", "sibling.test"),
    forbidden=timed(sh, "curl -sS -i -H 'Host: sibling.test' http://50.50.50.10/"),
    denied_by_rule=timed(sh, "curl -sS -i -H 'Host: www.good.test' http://50.50.50.10/"),
    allowed=timed(sh, "curl -sS --cacert /ca.pem https://good.test/"),
    dns_text=dns_text(query("other.test")))
"""
    helper = """
def dns_text(q):
    q = q[:11] + b"\\1" + q[12:] + b"\\0" + struct.pack(">HHIH", 41, 1232, 0, 0)  # with EDNS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.sendto(q, (GATEWAY, 53))
        return s.recv(4096).decode("latin-1")
"""
    seen, run = machine.probe(helper + probe, "--allow", "good.test", "--allow", "*.good.test", "--deny", "www.good.test")
    slow = {tool: seconds for tool, (_, seconds) in ((t, v) for t, v in seen.items() if t != "dns_text") if seconds >= 3}
    assert not slow, (slow, run)
    said = {tool: value[0] for tool, value in seen.items()}
    assert said["allowed"] == [0, "hello from good.test\n"], run  # the control
    assert said["curl"][0] == 6 and said["curl_tls"][0] == 6 and "Could not resolve host" in said["curl"][1], run
    assert said["curl_address"][0] == 7 and "other.test" not in said["curl_address"][1], run
    assert said["git"][0] == 128 and "Could not resolve host" in said["git"][1], run
    assert "other.test" in said["apt"][1] and re.search("Temporary failure resolving|Could not resolve|Something wicked", said["apt"][1]), run
    assert "URLError" in said["python"][1], run
    assert said["glibc"][0] == 2, run
    for tool in ("curl_sni", "git_sni"):
        assert said[tool][0] in (35, 128) and re.search("alert access denied|Access was denied", said[tool][1]), (tool, run)
    assert "ACCESS_DENIED" in said["python_sni"].upper().replace(" ", "_"), run
    assert said["forbidden"][1].startswith("HTTP/1.1 403"), run
    assert "sibling.test" in said["forbidden"][1] and "sandbox run --allow sibling.test:80" in said["forbidden"][1], run
    assert said["denied_by_rule"][1].startswith("HTTP/1.1 403") and "by rule 'www.good.test'" in said["denied_by_rule"][1], run
    assert "other.test is refused (no-allow-rule)" in seen["dns_text"], run  # the extended error's text


def test_N16_every_decision_is_in_the_log_with_all_that_led_to_it(machine):
    probe = """
dns("good.test")
results = [attempt(dns, "other.test"), attempt(dns, "www.good.test"), attempt(dns, "private.test"), attempt(tcp, "50.50.50.11", 80), attempt(udp, "50.50.50.10", 7),
           attempt(udp, "50.50.50.10", 9), attempt(udp, "50.50.50.10", 443), attempt(tls, "50.50.50.10", "good.test"),
           attempt(tls, "50.50.50.10", "sibling.test"), attempt(http, "50.50.50.10", ["good.test", "sibling.test"]),
           subprocess.run(["ping", "-c1", "-W1", "50.50.50.11"], capture_output=True).returncode,
           subprocess.run(["ping", "-c1", "-W1", "50.50.50.10"], capture_output=True).returncode]
report(results=results)
"""
    name = f"n16-{os.getpid()}"
    begin = time.time()
    seen, run = machine.probe(probe, *PERMITTED, "--allow", "private.test", "--deny", "www.good.test", "--name", name)
    end = time.time()
    records = machine.decisions(name)
    decisions = [r for r in records if r.get("verdict")]

    def line(r):
        return (r["proto"], r.get("address"), r.get("port"), r["verdict"], r["reason"], r.get("rule"), tuple(r.get("names", [])),
                r.get("sni") or r.get("host"))

    good = ("good.test",)
    expected = {
        ("dns", None, None, "allow", "allow-rule", "good.test", good, None),
        ("dns", None, None, "deny", "no-allow-rule", None, ("other.test",), None),
        ("dns", None, None, "deny", "deny-rule", "www.good.test", ("www.good.test",), None),
        ("dns", "10.99.0.10", None, "deny", "rebinding", "private.test", ("private.test",), None),
        ("tcp", "50.50.50.11", 80, "deny", "unresolved-address", None, (), None),
        ("udp", "50.50.50.10", 7, "allow", "allow-rule", "udp/good.test:7", good, None),
        ("udp", "50.50.50.10", 9, "deny", "no-allow-rule", None, good, None),
        ("udp", "50.50.50.10", 443, "deny", "quic", None, good, None),
        ("tcp", "50.50.50.10", 443, "allow", "allow-rule", "good.test", good, None),
        ("tls", "50.50.50.10", 443, "allow", "allow-rule", "good.test", good, "good.test"),
        ("tls", "50.50.50.10", 443, "deny", "sni-denied", None, good, "sibling.test"),
        ("http", "50.50.50.10", 80, "allow", "allow-rule", "good.test", good, "good.test"),
        ("http", "50.50.50.10", 80, "deny", "host-denied", None, good, "sibling.test"),
        ("icmp", "50.50.50.11", None, "deny", "unresolved-address", None, (), None),
        ("icmp", "50.50.50.10", None, "allow", "allow-rule", "good.test", good, None),
    }
    lines = {line(r) for r in decisions}
    assert expected <= lines, (expected - lines, lines - expected, run)
    assert lines - expected <= {
        ("tcp", "50.50.50.10", 80, "allow", "allow-rule", "good.test", good, None),
        ("dns", None, None, "allow", "allow-rule", "private.test", ("private.test",), None),  # the question, before its answer came
    }, lines - expected
    for r in records:
        seconds = calendar.timegm(time.strptime(r["time"][:19], "%Y-%m-%dT%H:%M:%S"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", r["time"]) and begin - 1 <= seconds <= end, r
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
    assert {r["source"] for r in decisions} == {"gateway"}
    closes = [r for r in records if r.get("kind") == "close" and r.get("port") == 443]
    assert closes and all(r["bytes"]["out"] > 0 for r in closes if r["bytes"]["in"] > 0), closes


def test_N9_the_hosts_own_package_archive_is_reached_by_its_name_and_nothing_else(machine):
    """In the world as it is: names and addresses come from this host's own configuration when the case runs."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(URI)"], capture_output=True, text=True)
    hosts = sorted({urllib.parse.urlsplit(uri).hostname for uri in listed.stdout.split() if uri.startswith(("http:", "https:"))})
    try:
        at = {host: sorted({entry[4][0] for entry in socket.getaddrinfo(host, 80, socket.AF_INET)}) for host in hosts}
        for host in hosts:
            socket.create_connection((at[host][0], 80), 3).close()
    except OSError as e:
        pytest.skip(f"this host reaches no package archive: {e}")
    if not hosts:
        pytest.skip("apt of this host has no archive over HTTP")

    def update(*flags):
        with tempfile.TemporaryDirectory(dir=machine.dir) as work:
            os.chmod(work, 0o755)
            # One small suite is enough, and a large one takes emulation half a minute to read.
            script = ("cd /tmp; grep -h -e -updates /etc/apt/sources.list > one || grep -h ^deb /etc/apt/sources.list | head -1 > one; "
                      "sudo apt-get -o Acquire::Retries=0 -o Dir::Etc::sourcelist=/tmp/one -o Dir::Etc::sourceparts=- update 2>&1; echo status $?")
            begin = time.monotonic()
            done = subprocess.run([SANDBOX, "run", "--no-tty", "--show-policy-log", *flags, "builtin", "--", "sh", "-c", script], cwd=work,
                                  env=machine.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
            return done.stdout, done.stderr, time.monotonic() - begin

    def rules(form):
        return [word for host in hosts for address in at[host] for word in ("--allow", form.format(host=host, address=address))]

    out, err, _ = update(*rules("{host}@{address}"))
    assert "status 0" in out and "Err:" not in out and "Failed to fetch" not in out, (out, err)
    out, err, seconds = update()
    assert "Failed to fetch" in out and re.search("Temporary failure resolving|Could not resolve", out) and seconds < 30, (out, err)
    assert re.search(r"deny dns (\S+) no-allow-rule", err).group(1) in hosts, err
    if all(ipaddress.ip_address(a).is_global for host in hosts for a in at[host]):
        return
    out, err, _ = update(*rules("{host}"))
    assert "Failed to fetch" in out and "rebinding" in err, (out, err)

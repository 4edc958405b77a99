"""Rows N8, N10: ways around the gates that a program or root inside may try."""

import json
import os
import pathlib

from harness import Wire

# "permitted" is the datagram port with which raw packets have their control.
PERMITTED = ["--allow", "good.test", "--allow", "udp/good.test:7"]


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

"""Contract rows N1 to N16: the network boundary. Every probe is made as root inside, and each refusal has its control."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from harness import BIN, Running, Wire


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
    assert lines[0] == lines[2] == str([5] * 14), result  # REFUSED
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
    records = [r for r in machine.decisions(name) if r.get("proto") == "tls"]
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
       web=attempt(http, "50.50.50.10", ["good.test"]), raw=attempt(tcp, "50.50.50.10", 7, b"x"))
"""
    zone = ["--allow", "*.good.test"]
    seen, run = machine.probe(probe, *zone, "--deny", "denied.test")
    assert seen["sneaky"] == [5, []] and seen["denied"] == [5, []], run  # an alias that leads through a denied name
    assert seen["alias"] == [0, ["50.50.50.10"]] and seen["web"][0][0] == 200 and seen["raw"] == "x", run
    control, run = machine.probe(probe, *zone)
    assert control["sneaky"] == [0, ["50.50.50.10"]] and control["web"][0][0] == 200, run
    # Two names share an address: one denied by name, then the address denied itself.
    shared = """
report(good=attempt(dns, "good.test"), sibling=attempt(dns, "sibling.test"), web=attempt(http, "50.50.50.10", ["good.test", "sibling.test"]),
       tls=attempt(tls, "50.50.50.10", "sibling.test"), www=attempt(tls, "50.50.50.10", "good.test"))
"""
    seen, run = machine.probe(shared, "--allow", "good.test", "--allow", "sibling.test", "--deny", "sibling.test")
    assert seen["good"][0] == 0 and seen["sibling"] == [5, []], run
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
    assert seen["name"][0] == [5, []] and seen["tool"] == "", run
    assert machine.seen(server="http") == []
    (refusal,) = [r for r in machine.decisions(name) if r.get("reason") == "rebinding" and "private.test" in r["names"]]
    assert refusal["address"] == "10.99.0.10" and "--allow private.test@10.99.0.10" in refusal["text"], refusal
    seen, run = machine.probe(probe, "--allow", "private.test@10.99.0.0/24", "--allow", "api.corp.test", "--name", name)
    assert seen["before"][0] == seen["neighbour"][0] == "ECONNREFUSED", run
    assert seen["name"][0] == [0, ["10.99.0.10"]] and seen["tool"] == "hello from private.test\n", run
    assert seen["other"] == [5, []], run  # that name, and no other
    raw = {(r["address"], r.get("reason")) for r in machine.decisions(name) if r.get("proto") == "tcp" and r.get("verdict") == "deny"}
    assert raw == {("10.99.0.10", "unresolved-address"), ("10.99.0.11", "unresolved-address")}
    outside, run = machine.probe(probe, "--allow", "private.test@10.98.0.0/16")
    assert outside["name"][0] == [5, []] and outside["tool"] == "", run


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
    assert seen["loop.test"] == seen["metadata.test"] == seen["hostaddr.test"] == [5, []], run
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
sh("ip neigh del 192.0.0.1 dev eth0; ip route replace default dev eth0 scope link")
fourth = {k: v for k, v in probes().items() if k != "good"}
report(first=first, second=second, third=third, fourth=fourth, lookup=sh("curl -sS -m 8 http://other.test/ 2>&1"), hosts=sh("curl -sS -m 8 http://good.test/ 2>&1"),
       uid=os.getuid(), caps=sh("grep CapEff /proc/self/status"))
"""
    with Wire(machine) as wire:
        seen, run = machine.probe(probe, "--privileged", "--allow", "good.test", "-e", "http_proxy=http://50.50.50.10:8080")
        went = set(wire.seen())
    assert seen["uid"] == 0 and int(seen["caps"].split()[1], 16) & 1 << 12, run  # CAP_NET_ADMIN
    for stage in ("first", "second", "third", "fourth"):
        refused = seen[stage]
        if stage == "fourth":  # no route to a gateway: nothing answers for those addresses
            assert refused["raw"] != "connected" and refused["name"] in ([5, []], "timeout", "EHOSTUNREACH"), run
            continue
        assert refused["name"] == [5, []] and refused["raw"] == "ECONNREFUSED" and refused["lan"] == "ECONNREFUSED", (stage, run)
        assert refused["web"][0][0] == 403, (stage, run)
        assert refused["good"] == "HTTP/1.1 200 OK", (stage, run)  # the control, each time
    assert "hello" not in seen["lookup"] + seen["hosts"], run
    assert went <= {(17, "50.50.50.53", 53), (6, "50.50.50.10", 80), (6, "50.50.50.10", 443)}, went

"""Contract rows N1 to N16: the network boundary. Every probe is made as root inside, and each refusal has its control."""

import re


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

"""Rows N2, N3, N7: which names are answered, and by whom. Every probe is made as root inside, each refusal with its control."""


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

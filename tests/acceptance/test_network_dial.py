"""Rows N4, N5, N13: which addresses are dialled, which are pinged, and what of the gateway itself answers."""

import re

import pytest

from harness import Wire

ICMP, TCP, UDP = 1, 6, 17


@pytest.fixture
def guest(guests, machine):
    guest = guests("--allow", "good.test", "--allow", "udp/good.test:7")
    machine.forget()
    return guest


def test_N4_a_raw_address_of_a_live_server_is_refused(machine):
    machine.forget()
    result = machine.run("curl -sS -m 5 http://50.50.50.10/; echo $?; curl -sS -m 5 http://good.test/", "--allow", "good.test",
                         "--show-policy-log")
    assert result.out.splitlines()[0] == "7", result
    assert result.out.splitlines()[1] == "hello from good.test", result
    assert "deny tcp 50.50.50.10:80 unresolved-address" in result.err
    assert re.search(r"allow tcp 50\.50\.50\.10:80 allow-rule good\.test", result.err), result
    assert [e["host"] for e in machine.seen(server="http")] == ["good.test"]


@pytest.mark.parametrize("port", [7, 22, 25, 80, 443, 3128, 8080, 9000])
def test_N4_a_server_that_no_allowed_name_led_to_is_not_dialled(machine, outside, guests, port):
    """The rule allows the name on every port; what is missing is that it was asked for."""
    guest = guests("--allow", "sibling.test")
    with Wire(machine) as wire:
        assert guest.refused(f"tcp(GOOD, {port})") == "ECONNREFUSED"
        assert guest.denied(proto="tcp", address="50.50.50.10", port=port, reason="unresolved-address")
        assert not [p for p in wire.seen(begun=True) if p[:2] == (TCP, "50.50.50.10") and p[2] == port]
    assert outside.ask(f"tcp(GOOD, {port})") == "connected"


def test_N4_the_same_server_is_dialled_once_its_name_was_asked_for(guests):
    guest = guests("--allow", "sibling.test", apart="asked")
    assert guest.refused("tcp(GOOD, 80)") == "ECONNREFUSED"
    guest.ask("dns('sibling.test')")
    assert guest.ask("tcp(GOOD, 80)") == "connected"


@pytest.mark.parametrize("spelling", ["50.50.50.11", "842150411", "0x3232320b", "062.062.062.013", "50.50.12811", "::ffff:50.50.50.11"])
def test_N4_no_spelling_of_an_address_is_a_name(machine, outside, guest, spelling):
    url = f"http://[{spelling}]/" if ":" in spelling else f"http://{spelling}/"
    curl = f"subprocess.run(['curl', '-sS', '-m', '8', {url!r}], capture_output=True, text=True)"
    assert outside.ask(curl + ".stdout").startswith("hello from ")
    machine.forget()
    assert guest.refused(curl + ".returncode") == 7
    assert machine.seen() == []


@pytest.mark.parametrize("port", [7, 53, 443, 5353, 9])
def test_N4_a_datagram_needs_a_rule_that_says_udp(machine, outside, guests, port):
    guest = guests("--allow", "good.test")
    assert port == 9 or outside.ask(f"udp(GOOD, {port})") == 1
    machine.forget()
    guest.ask("dns('good.test')")
    assert guest.refused(f"udp(GOOD, {port})") == ("ECONNREFUSED" if port == 443 else "EHOSTUNREACH")
    assert machine.seen(server="udp-echo") == []
    assert guest.denied(proto="udp", address="50.50.50.10", port=port, reason="quic" if port == 443 else "no-allow-rule")


def test_N4_a_datagram_that_a_rule_allows_is_carried(machine, guest):
    guest.ask("dns('good.test')")
    assert guest.ask("udp(GOOD, 7)") == 1
    assert guest.refused("udp(GOOD, 53)") == "EHOSTUNREACH"
    assert [e["port"] for e in machine.seen(server="udp-echo")] == [7]


@pytest.mark.parametrize("rule", ["good.test:80", "50.50.50.10:80", "50.50.50.0/28:80"])
def test_N4_a_port_in_a_rule_is_that_port_and_no_other(machine, guests, rule):
    guest = guests("--allow", rule)
    guest.ask("dns('good.test')")
    machine.forget()
    for port in (81, 443, 8080, 22, 7):
        assert guest.refused(f"tcp(GOOD, {port})") == "ECONNREFUSED"
    assert guest.refused("udp(GOOD, 7)") == "EHOSTUNREACH"
    host = "good.test" if rule.startswith("good") else "50.50.50.10"
    assert guest.ask(f"http(GOOD, [{host!r}])")[0][0] == 200
    assert [e["port"] for e in machine.seen(server="http")] == [80]


# Sent as frames, so that no routing table of the guest decides. On the host something listens on each of its own addresses.
NOWHERE = {"loopback": "127.0.0.1", "a resolver on loopback": "127.0.0.53", "this host": "0.0.0.0", "broadcast": "255.255.255.255",
           "multicast": "224.0.0.251", "the network of the cable": "192.0.0.7", "a neighbour": "192.0.0.3", "itself": "192.0.0.2",
           "the host": "50.50.50.1", "its broadcast": "50.50.50.255", "metadata": "169.254.169.254", "a private server": "10.99.0.10",
           "an unresolved server": "50.50.50.11", "class E": "240.0.0.1"}
LISTENER = """
listener = socket.create_server(("0.0.0.0", 80), reuse_port=True)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("0.0.0.0", 7))
for s in (listener, datagrams):
    s.setblocking(False)
"""
HEARD = """
def heard():
    count = 0
    for take in (lambda: listener.accept()[0].close(), lambda: datagrams.recv(2048)):
        while True:
            try:
                take()
                count += 1
            except BlockingIOError:
                break
    return count
"""


@pytest.fixture(scope="module")
def listening(outside):
    outside.ask(LISTENER + HEARD)
    for address in ("127.0.0.1", "127.0.0.53", "50.50.50.1", "0.0.0.0"):
        assert outside.ask(f"tcp({address!r}, 80)") == "connected"
    assert outside.ask("heard()") == 4
    yield outside
    outside.ask("listener.close(); datagrams.close()")


PACKETS = """
frames.send(ipv4({0!r}, syn_bytes(GUEST, {0!r}, 80, next_port()), 6))
frames.send(ipv4({0!r}, udp_bytes(GUEST, {0!r}, 7, b"x")))
frames.send(ipv4({0!r}, icmp_bytes(8, 0, b"x"), 1))
udp(GOOD, 7)"""  # the last, behind the others on the same cable, says that those were dealt with


@pytest.mark.parametrize("where", NOWHERE)
def test_N4_packets_to_an_address_that_no_name_may_have_go_nowhere(machine, listening, guest, where):
    guest.ask("dns('good.test'); frames = Frames()")
    with Wire(machine) as wire:
        guest.ask(PACKETS.format(NOWHERE[where]))
        assert set(wire.seen(begun=True)) == {(UDP, "50.50.50.10", 7)}
        assert listening.ask("heard()") == 0
        wire.forget()
        guest.ask(PACKETS.format("50.50.50.10"))
        assert set(wire.seen(begun=True)) == {(TCP, "50.50.50.10", 80), (UDP, "50.50.50.10", 7), (ICMP, "50.50.50.10", 0)}


# --- the gateway's own address ------------------------------------------------------------------------------------------------------


def test_N13_of_65535_TCP_ports_of_the_gateway_one_answers(machine, listening, guest):
    assert guest.ask("scan_tcp(GATEWAY)") == {"open": [53], "closed": 65534, "silent": []}


def test_N13_of_65535_UDP_ports_of_the_gateway_the_name_service_answers(machine, listening, guest):
    """67 is where DHCP is asked, which this is not; every other port is said to be prohibited, at once."""
    assert guest.ask("scan_udp(GATEWAY)") == {"answered": [53], "refused": 65533, "silent": [67]}


@pytest.mark.parametrize("port", [80, 443, 8080, 2375, 9090, 10250, 1, 65535])
def test_N13_there_is_no_control_interface_to_post_to(guest, port):
    curl = f"subprocess.run(['curl', '-sS', '-m', '8', '-d', 'allow=other.test', 'http://192.0.0.1:{port}/policy'], capture_output=True).returncode"
    assert guest.refused(curl) == 7
    assert guest.ask("dns('other.test')") == [3, []]


def test_N13_the_scan_finds_what_is_open(guests):
    """The control of the scans, where a server is allowed on two ports."""
    guest = guests("--allow", "50.50.50.10:80", "--allow", "50.50.50.10:7", "--allow", "udp/50.50.50.10:7")
    assert guest.ask("scan_tcp(GOOD, range(1, 1000))") == {"open": [7, 80], "closed": 997, "silent": []}
    assert guest.ask("scan_udp(GOOD, range(1, 1000))")["answered"] == [7]


# --- echo -------------------------------------------------------------------------------------------------------------------------


def test_N5_echo_follows_the_dial_rule_at_port_0(machine, guests):
    ping = "subprocess.run(['ping', '-n', '-c1', '-W2', {!r}], capture_output=True, text=True)"
    said = "[r.returncode, r.stdout + r.stderr]"

    def pinged(guest, address):
        return guest.ask(f"r = {ping.format(address)}\n{said}")

    with Wire(machine) as wire:
        ported = guests("--allow", "good.test:80")
        ported.ask("dns('good.test')")
        status, text = pinged(ported, "50.50.50.10")
        assert status == 1 and "filtered" in text, text
        assert ported.ask("http(GOOD, ['good.test'])")[0][0] == 200  # the control: with its port it is allowed
        assert not [p for p in wire.seen(begun=True) if p[0] == ICMP]
        allowed = guests("--allow", "good.test", "--allow", "udp/good.test:7")
        allowed.ask("dns('good.test')")
        assert pinged(allowed, "50.50.50.10")[0] == 0
        status, text = pinged(allowed, "50.50.50.11")
        assert status == 1 and "filtered" in text, text
        assert {p[1] for p in wire.seen(begun=True) if p[0] == ICMP} == {"50.50.50.10"}
        wire.forget()
        only = guests("--allow", "icmp/good.test", "--allow", "icmp/50.50.50.11")
        only.ask("dns('good.test')")
        assert pinged(only, "50.50.50.10")[0] == 0 and pinged(only, "50.50.50.11")[0] == 0
        assert only.refused("http(GOOD, ['good.test'])") == "ECONNREFUSED"
        assert not [p for p in wire.seen(begun=True) if p[0] == TCP]


@pytest.mark.parametrize("size", [0, 56, 1472, 8000])
def test_N5_echo_with_a_payload_carries_it_to_allowed_addresses_only(machine, guest, size):
    guest.ask("dns('good.test')")
    ping = f"subprocess.run(['ping', '-n', '-c1', '-W3', '-s', '{size}', '-p', '5ec3e7', %r], stdout=subprocess.DEVNULL).returncode"
    with Wire(machine) as wire:
        assert guest.refused(ping % "50.50.50.11") == 1
        assert guest.denied(proto="icmp", address="50.50.50.11", reason="unresolved-address")
        assert wire.seen(begun=True) == []
        if size <= 1472:
            assert guest.ask(ping % "50.50.50.10") == 0
            assert {p[:2] for p in wire.seen(begun=True)} == {(ICMP, "50.50.50.10")}


@pytest.mark.parametrize("kind", {"an answer nobody asked for": 0, "unreachable": 3, "source quench": 4, "redirect": 5, "router": 9,
                                  "solicitation": 10, "time exceeded": 11, "timestamp": 13, "address mask": 17, "unknown": 250}.items(),
                         ids=lambda pair: pair[0])
def test_N5_no_other_message_of_ICMP_leaves(machine, guest, kind):
    guest.ask("dns('good.test'); frames = Frames()")
    with Wire(machine) as wire:
        guest.ask(f"frames.send(ipv4(GOOD, icmp_bytes({kind[1]}, 0, b'payload' * 8), 1)); udp(GOOD, 7)")
        assert set(wire.seen(begun=True)) == {(UDP, "50.50.50.10", 7)}
        wire.forget()
        guest.ask("frames.send(ipv4(GOOD, icmp_bytes(8, 0, b'payload' * 8), 1)); udp(GOOD, 7)")
        assert (ICMP, "50.50.50.10") in {p[:2] for p in wire.seen(begun=True)}
    notes = [r["text"] for r in guest.decisions(kind="note")]
    assert any("(icmp-unsupported" in note for note in notes), notes

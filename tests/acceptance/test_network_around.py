"""Rows N8, N10, N11, N12: ways around the gates that a program, or root inside, may try."""

import pytest

from harness import Wire

# Rules that name the address and every port do not open these either.
RULES = ["--allow", "good.test", "--allow", "udp/good.test", "--allow", "50.50.50.53", "--allow", "udp/50.50.50.53"]


@pytest.fixture
def guest(guests, machine):
    guest = guests(*RULES)
    assert guest.ask("dns('good.test')")[0] == 0
    machine.forget()
    return guest


# Other resolvers, each of which answers where no gate is: what is asked, what comes then, what comes here, and the record.
RESOLVERS = {
    "DNS over UDP": ("dns('other.test', server=RESOLVER)", [0, ["50.50.50.11"]], "EHOSTUNREACH", ("udp", 53)),
    "DNS over TCP": ("dns('other.test', server=RESOLVER, tcp=True)", [0, ["50.50.50.11"]], "ECONNREFUSED", ("tcp", 53)),
    "DNS over TLS": ("dot(RESOLVER, 'other.test')", ["50.50.50.11"], "ECONNREFUSED", ("tcp", 853)),
    "DNS over TLS at an allowed site": ("dot(GOOD, 'other.test')", ["50.50.50.11"], "ECONNREFUSED", ("tcp", 853)),
    "port 53 of an allowed site": ("udp(GOOD, 53, query('other.test'))", 28, "EHOSTUNREACH", ("udp", 53)),
    "multicast DNS": ("udp(GOOD, 5353, query('other.test'))", 28, "EHOSTUNREACH", ("udp", 5353)),
}


@pytest.mark.parametrize("which", RESOLVERS)
def test_N8_another_resolver_is_not_reached_by(machine, outside, guest, which):
    probe, answer, refusal, (proto, port) = RESOLVERS[which]
    with Wire(machine) as wire:
        assert guest.refused(probe) == refusal
        assert port not in {p[2] for p in wire.seen(begun=True)} and machine.seen() == []
    assert guest.denied(proto=proto, port=port)
    assert outside.ask(probe) == answer
    assert machine.seen()
    assert guest.ask("dns('good.test')") == [0, ["50.50.50.10"]]


def test_N8_another_resolver_answers_where_a_rule_names_its_port_and_vouches_for_nothing(guests):
    guest = guests("--allow", "udp/50.50.50.53:53", "--allow", "50.50.50.53:53", "--allow", "50.50.50.53:853")
    assert guest.ask("dns('other.test', server=RESOLVER)") == guest.ask("dns('other.test', server=RESOLVER, tcp=True)") == [0, ["50.50.50.11"]]
    assert guest.ask("dot(RESOLVER, 'other.test')") == ["50.50.50.11"]
    assert guest.refused("tcp(OTHER, 80)") == "ECONNREFUSED"


@pytest.mark.parametrize("sni", [None, "other.test", "sibling.test"])
def test_N8_DNS_over_HTTPS_by_address_is_refused(machine, outside, guests, sni):
    guest = guests("--allow", "good.test")
    guest.ask("dns('good.test')")
    for address in ("RESOLVER", "GOOD"):
        assert outside.ask(f"doh({address}, 'other.test', {sni!r})") == ["50.50.50.11"]
    machine.forget()
    assert guest.refused(f"doh(RESOLVER, 'other.test', {sni!r})") == "ECONNREFUSED"
    assert "access denied" in guest.refused(f"doh(GOOD, 'other.test', {sni!r})").lower()  # nor at the address of an allowed site
    assert machine.seen() == []
    assert guest.denied(proto="tcp", address="50.50.50.53", port=443, reason="unresolved-address")
    assert guest.denied(address="50.50.50.10", port=443, reason="sni-denied", sni=sni)


def test_N8_what_DNS_over_HTTPS_says_where_a_rule_allows_it_vouches_for_nothing(machine, guest):
    assert guest.ask("doh(RESOLVER, 'other.test')") == ["50.50.50.11"]
    assert machine.seen(server="dns", transport="https", name="other.test")
    assert guest.refused("tcp(OTHER, 443)") == "ECONNREFUSED"


@pytest.mark.parametrize("address", ["50.50.50.10", "50.50.50.53", "50.50.50.11"])
def test_N8_QUIC_is_refused_so_that_clients_fall_back(machine, outside, guest, address):
    """A long header of version 1, padded as a first packet is."""
    first = f"udp({address!r}, 443, b'\\xc3\\0\\0\\0\\1\\x08' + b'c' * 1194)"
    if address == "50.50.50.10":
        assert outside.ask(first) == 1200
    machine.forget()
    assert guest.refused(first) == "ECONNREFUSED"
    assert guest.denied(proto="udp", address=address, port=443, reason="quic")
    assert machine.seen() == []
    assert guest.ask("tls(GOOD, 'good.test')") == "HTTP/1.1 200 OK"


@pytest.mark.parametrize("file", ["/etc/resolv.conf", "/etc/hosts"])
def test_N8_what_the_guest_writes_about_names_changes_nothing(machine, guest, file):
    """Its own resolver, and its own list of names: the gates read neither."""
    line = {"/etc/resolv.conf": "nameserver 50.50.50.53", "/etc/hosts": "50.50.50.11 good.test other.test"}[file]
    fetched = "subprocess.run(['curl', '-sS', '-m', '10', 'http://{}/'], capture_output=True, text=True).stdout"
    guest.ask(f"kept = open({file!r}).read(); open({file!r}, 'w').write({line!r} + '\\n')")
    try:
        assert guest.ask(fetched.format("other.test")) == guest.ask(fetched.format("good.test")) == ""
    finally:
        guest.ask(f"open({file!r}, 'w').write(kept)")
    assert machine.seen(server="http") == []
    assert guest.ask(fetched.format("good.test")) == "hello from good.test\n"


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
        went = set(wire.seen(begun=True))
    assert seen["uid"] == 0 and int(seen["caps"].split()[1], 16) & 1 << 12, run  # CAP_NET_ADMIN
    for stage in ("first", "second", "third"):
        refused = seen[stage]
        assert refused["name"] == [3, []] and refused["raw"] == "ECONNREFUSED" and refused["lan"] == "ECONNREFUSED", (stage, run)
        assert refused["web"][0][0] == 403, (stage, run)
        assert refused["good"] == "HTTP/1.1 200 OK", (stage, run)  # the control, each time
    assert seen["fourth"] in ("EHOSTUNREACH", "timeout") and "hello" not in seen["lookup"] + seen["hosts"], run
    assert went <= {(17, "50.50.50.53", 53), (6, "50.50.50.10", 80), (6, "50.50.50.10", 443)}, went


# --- a daemon, and a neighbour ----------------------------------------------------------------------------------------------------

DAEMON = """
for url in http://other.test/ http://50.50.50.11/ http://good.test/; do
  curl -sS -m 8 $url 2>&1; echo $?
done
echo end
"""


@pytest.mark.parametrize("how", ["setsid", "unshare -m -p -f", "chroot /", "unshare -U -r", "sudo -u nobody"])
def test_N11_what_a_program_leaves_behind_is_under_the_same_policy(machine, guest, how):
    """Without its parent; in namespaces of its own, under another root or user."""
    said = guest.ask(f"""
open("/tmp/daemon.sh", "w").write({DAEMON!r})
open("/tmp/daemon.out", "w")
subprocess.run("({how} sh /tmp/daemon.sh </dev/null >/tmp/daemon.out 2>&1 &)", shell=True)
end = time.monotonic() + 40
while "end" not in open("/tmp/daemon.out").read() and time.monotonic() < end:
    time.sleep(0.1)
open("/tmp/daemon.out").read()""")
    lines = [line for line in said.splitlines() if line.isdigit() or line.startswith("hello")]
    assert lines == ["6", "7", "hello from good.test", "0"], said
    assert {e["host"] for e in machine.seen(server="http")} == {"good.test"}


def test_N11_a_network_namespace_inside_has_no_way_of_its_own(machine, guest):
    curl = "subprocess.run('{} curl -sS -m 5 http://good.test/', shell=True, capture_output=True, text=True).returncode"
    assert guest.ask(curl.format("unshare -n")) == 6
    assert guest.ask(curl.format("unshare -n").replace("good.test", "50.50.50.10")) == 7
    assert guest.ask(curl.format("unshare -m")) == 0


@pytest.fixture(scope="module")
def neighbours(guests):
    """Two sandboxes; in the first a server listens."""
    everything = ["--allow", "192.0.0.0/24", "--allow", "udp/192.0.0.0/24", "--allow", "50.50.50.1", "--allow", "good.test"]
    first, second = guests(*RULES), guests(*everything)
    first.ask("""
import threading
server = socket.create_server(("0.0.0.0", 8000))
met = []
def serve():
    while True:
        connection, peer = server.accept()
        met.append(peer[0])
        connection.sendall(b"here")
        connection.close()
threading.Thread(target=serve, daemon=True).start()""")
    return first, second


@pytest.mark.parametrize("address", ["192.0.0.2", "192.0.0.1", "192.0.0.3", "50.50.50.1"])
def test_N12_a_server_in_one_sandbox_is_not_reached_from_another(neighbours, address):
    """Even where rules allow every address that it might be thought to have."""
    first, second = neighbours
    count = first.ask("len(met)")
    for own in ("192.0.0.2", "127.0.0.1"):
        assert first.ask(f"socket.create_connection(({own!r}, 8000), 5).recv(9).decode()") == "here"
    assert first.ask("len(met)") == count + 2
    assert second.ask(f"attempt(tcp, {address!r}, 8000)") in ("ECONNREFUSED", "EHOSTUNREACH", "timeout", "ENETUNREACH")
    assert first.ask("len(met)") == count + 2


def test_N12_frames_of_one_sandbox_are_not_seen_in_another(neighbours):
    """Both have the same addresses on their cables, which are two."""
    first, second = neighbours
    first.ask("frames = Frames()")
    second.ask("""
ears = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)  # ETH_P_ALL
ears.bind(("eth0", 0x0003))
ears.settimeout(1)""")
    for destination in ("b'\\xff' * 6", "frames.mac", "frames.gateway"):
        first.ask(f"frames.send(b'from the first' * 5, kind=0x88b5, to={destination})")
    first.ask("dns('good.test')")
    second.ask("dns('good.test')")
    heard = second.ask("""
frames_heard = []
try:
    while True:
        frames_heard.append(ears.recv(2048).hex())
except socket.timeout:
    pass
frames_heard""")
    assert heard and not any(b"from the first".hex() in frame for frame in heard)  # its own, and no other


def test_N12_what_one_sandbox_resolved_opens_nothing_in_another(guests):
    first, second = guests("--allow", "sibling.test"), guests("--allow", "sibling.test", "--allow", "other.test")
    assert first.ask("dns('sibling.test')")[0] == 0
    assert first.ask("tcp(GOOD, 80)") == "connected"
    assert second.refused("tcp(GOOD, 80)") == "ECONNREFUSED"
    assert second.denied(proto="tcp", address="50.50.50.10", reason="unresolved-address")
    assert not [r for r in first.decisions(verdict="deny") if r.get("address") == "50.50.50.10"]

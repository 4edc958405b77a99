"""Row N9: where an allowed name may lead, and where none may.

The zones at.test, mapped.test and six.test answer with whatever address the name says (world_dns.py), as the owner of any allowed
zone can.
"""

import ipaddress
import os
import re
import socket
import subprocess
import tempfile
import time
import urllib.parse

import pytest

from harness import SANDBOX

DENIED = [3, []]
ZONES = ["--allow", "*.at.test", "--allow", "*.mapped.test", "--allow", "*.six.test", "--allow", "flip.test", "--allow", "moving.test",
         "--allow", "good.test"]


@pytest.fixture
def guest(guests):
    return guests(*ZONES)


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


# Of every special-use range an address, of the large ones the ends; the gateway, the guest, and the host on its network.
SPECIAL = """0.0.0.0 0.1.2.3 10.0.0.0 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254 169.254.0.1 169.254.169.254
172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.2 192.0.0.170 192.0.2.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1
203.0.113.255 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 50.50.50.1""".split()


@pytest.mark.parametrize("address", SPECIAL)
def test_N9_a_name_is_not_vouched_at(machine, outside, guest, address):
    name = address.replace(".", "-") + ".at.test"
    assert outside.ask(f"dns({name!r}, server=RESOLVER)") == [0, [address]]  # that is what the zone says
    assert guest.refused(f"dns({name!r})") == guest.refused(f"dns({name!r}, tcp=True)") == DENIED
    assert guest.refused(f"dns({name!r}, 255)") == DENIED  # asked for everything
    (refusal, *_) = guest.denied(proto="dns", names=[name], address=address, reason="rebinding")
    hinted = f"--allow {name}@{address}" in refusal["text"]
    never = address.split(".")[0] in ("0", "127", "169", "224", "239", "255") or address in ("50.50.50.1", "192.0.0.1")
    assert hinted != never, refusal  # no rule can lead there by a name, and the message does not pretend it
    # It was never entered: the address itself stays what it was. (Own addresses and loopback are the guest's.)
    if address.split(".")[0] not in ("0", "127") and address != "192.0.0.2":
        assert guest.refused(f"attempt(tcp, {address!r}, 80)") in ("ECONNREFUSED", "ENETUNREACH", "EACCES", "EHOSTUNREACH"), address


def test_N9_addresses_just_outside_of_the_special_ranges_are_vouched(guest):
    for address in """1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255 169.255.0.0
                      172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255
                      203.0.112.255 203.0.114.0 223.255.255.255""".split():
        assert guest.ask(f"dns({address.replace('.', '-') + '.at.test'!r})") == [0, [address]]


@pytest.mark.parametrize("address", ["10.99.0.10", "127.0.0.1", "169.254.169.254", "192.168.1.1", "50.50.50.1", "50.50.50.11"])
def test_N9_an_IPv4_mapped_address_is_no_way_to(machine, outside, guest, address):
    """In an AAAA record, in answer to a question for A, for AAAA and for everything."""
    name = address.replace(".", "-") + ".mapped.test"
    assert outside.ask(f"[kind for kind, _ in records(exchange(query({name!r}, 28), RESOLVER))]") == [28]
    assert guest.ask(f"[records(exchange(query({name!r}, kind))) for kind in (1, 28, 255)]") == [[], [], []]
    assert guest.refused(f"tcp({address!r}, 80)" if not address.startswith("127") else "dns('x.test')") in ("ECONNREFUSED", DENIED)
    # By a socket for both families, whose connection to the mapped address is one over IPv4.
    if not address.startswith("127"):
        assert guest.refused(f"tcp6('::ffff:{address}', 80)") == "ECONNREFUSED"
    guest.ask("dns('good.test')")
    assert guest.ask("tcp6('::ffff:50.50.50.10', 80)") == "connected"


SIX = {"loopback": "::1", "link-local": "fe80::1", "unique-local": "fd50::10", "NAT64": "64:ff9b::a63:a", "6to4": "2002:a63:a::1",
       "compatible": "::10.99.0.10", "global": "2600::1"}


@pytest.mark.parametrize("which", SIX)
def test_N9_an_IPv6_address_is_no_way_to(outside, guest, which):
    address = ipaddress.ip_address(SIX[which])
    name = address.packed.hex() + ".six.test"
    assert outside.ask(f"records(exchange(query({name!r}, 28), RESOLVER))") == [[28, address.packed.hex()]]
    assert guest.ask(f"[records(exchange(query({name!r}, kind))) for kind in (1, 28, 255)]") == [[], [], []]
    if which != "loopback":  # the guest's own
        assert guest.refused(f"tcp6({str(address)!r}, 80)") in ("ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EHOSTUNREACH")


def test_N9_an_answer_of_no_life_that_turns_private_moves_nobody(machine, guest):
    """The classic: a short TTL, a public address for the check, a private one for the request."""
    machine.forget()
    first, second, third = (guest.ask("dns('flip.test')") for _ in range(3))
    assert sorted([first, second]) == [[0, ["50.50.50.10"]], DENIED] and third == first
    assert guest.denied(proto="dns", names=["flip.test"], address="10.99.0.10", reason="rebinding")
    for _ in range(2):
        assert guest.ask("http(GOOD, ['flip.test'])")[0][0] == 200
        assert guest.refused("tcp('10.99.0.10', 80)") == "ECONNREFUSED"
        guest.ask("dns('flip.test')")
    assert {e["address"] for e in machine.seen(server="http")} == {"50.50.50.10"}


def test_N9_an_address_is_dialled_from_the_answer_on_that_named_it(machine, guest):
    machine.forget()
    found = guest.ask("dns('moving.test')")[1]
    other = "50.50.50.11" if found == ["50.50.50.10"] else "50.50.50.10"
    assert guest.ask(f"http({found[0]!r}, ['moving.test'])")[0][0] == 200
    if other == "50.50.50.11":  # good.test's address may have been vouched for by another case
        assert guest.refused(f"http({other!r}, ['moving.test'])") == "ECONNREFUSED"
    assert guest.ask("dns('moving.test')")[1] == [other]
    assert guest.ask(f"http({other!r}, ['moving.test'])")[0][0] == 200
    assert guest.ask(f"http({found[0]!r}, ['moving.test'])")[0][0] == 200  # the first goes on for its time
    assert len(machine.seen(server="http", host="moving.test")) == 3


@pytest.mark.parametrize("name", ["10-99-0-10.at.test", "1.chain.test", "private.test"])
def test_N9_a_range_of_one_rule_serves_no_other_name(machine, guests, name):
    guest = guests("--allow", "api.corp.test@10.99.0.0/24", "--allow", "*.at.test", "--allow", "private.test@10.98.0.0/16",
                   "--allow", "*.chain.test@10.99.0.0/24")
    machine.forget()
    assert guest.ask("dns('api.corp.test')") == [0, ["10.99.0.10"]]
    assert guest.ask("http('10.99.0.10', ['api.corp.test'])")[0][0] == 200
    assert guest.refused(f"dns({name!r})") == DENIED
    assert guest.refused(f"http('10.99.0.10', [{name!r}])")[0][0] == 403
    assert {e["host"] for e in machine.seen(server="http")} == {"api.corp.test"}


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

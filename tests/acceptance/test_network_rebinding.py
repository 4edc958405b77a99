"""Row N9: where an allowed name may lead, and where none may."""

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

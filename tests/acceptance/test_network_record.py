"""Rows N14, N16: how a denial reads, inside and in the record."""

import calendar
import os
import re
import time

# "permitted" is the datagram port with which raw packets have their control.
PERMITTED = ["--allow", "good.test", "--allow", "udp/good.test:7"]


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
    # A program's own start is in it, emulated and perhaps on a busy machine; what hangs waits for 10 s or more.
    slow = {tool: seconds for tool, (_, seconds) in ((t, v) for t, v in seen.items() if t != "dns_text") if seconds >= 8}
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

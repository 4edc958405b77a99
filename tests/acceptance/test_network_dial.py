"""Rows N4, N5: which addresses are dialled, and which are pinged."""

import re

from harness import Wire


def test_N4_a_raw_address_of_a_live_server_is_refused(machine):
    machine.forget()
    result = machine.run("curl -sS -m 5 http://50.50.50.10/; echo $?; curl -sS -m 5 http://good.test/", "--allow", "good.test",
                         "--show-policy-log")
    assert result.out.splitlines()[0] == "7", result
    assert result.out.splitlines()[1] == "hello from good.test", result
    assert "deny tcp 50.50.50.10:80 unresolved-address" in result.err
    assert re.search(r"allow tcp 50\.50\.50\.10:80 allow-rule good\.test", result.err), result
    assert [e["host"] for e in machine.seen(server="http")] == ["good.test"]


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

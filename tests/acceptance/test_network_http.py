"""Row N6: the host of each request of an HTTP stream."""

import os


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

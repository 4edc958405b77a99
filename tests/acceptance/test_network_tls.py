"""Row N6: the name in the hello of a TLS stream."""

import json
import os


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
    # Where no name was shown, the record is of the connection: proto tcp.
    records = [r for r in machine.decisions(name) if r.get("proto") == "tls" or r.get("reason") == "sni-denied"]
    assert {(r.get("sni"), r.get("verdict"), r.get("reason")) for r in records} == {
        ("good.test", "allow", "allow-rule"), ("sibling.test", "deny", "sni-denied"), ("other.test", "deny", "sni-denied"),
        (None, "deny", "sni-denied")}, json.dumps(records, indent=1)
    # The control: the same hello is answered when the name is allowed and vouched for.
    control, run = machine.probe('dns("sibling.test"); report(tls=attempt(tls, "50.50.50.10", "sibling.test", 8443))',
                                 "--allow", "sibling.test")
    assert control["tls"] == "HTTP/1.1 200 OK", run

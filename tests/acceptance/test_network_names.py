"""Rows N2, N3, N7: which names are answered, and by whom. Every probe is made as root inside, each refusal with its control."""

import pytest

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = range(6)
ALLOWED = ["--allow", "good.test", "--allow", "*.chain.test", "--allow", "*.loop.test", "--allow", "two.test", "--allow", "stray.test",
           "--allow", "chaos.test", "--allow", "many.test", "--allow", "svc.test", "--allow", "sneaky.good.test", "--deny", "denied.test",
           "--deny", "7.chain.test"]


@pytest.fixture
def guest(guests):
    return guests(*ALLOWED)


def test_N2_no_rules_nothing_resolves_or_connects(machine):
    machine.forget()
    result = machine.run("curl -sS -m 5 http://good.test/; echo $?; curl -sS -m 5 http://50.50.50.10/; echo $?")
    assert result.out.split() == ["6", "7"], result
    assert "no --allow rules; this sandbox reaches nothing" in result.err
    assert machine.seen() == []
    control = machine.run("curl -sS -m 5 http://good.test/", "--allow", "good.test")
    assert control.out == "hello from good.test\n", control
    assert machine.seen(server="http", host="good.test")


TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "NULL": 10, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "DNAME": 39, "DS": 43,
         "TLSA": 52, "SVCB": 64, "HTTPS": 65, "ANY": 255, "CAA": 257, "TYPE65280": 65280}


@pytest.mark.parametrize("kind", TYPES)
def test_N3_no_type_of_a_denied_name_is_answered_or_asked_upstream(machine, guest, kind):
    machine.forget()
    for tcp in (False, True):
        assert guest.refused(f"dns('other.test', {TYPES[kind]}, tcp={tcp})") == [NXDOMAIN, []]
        assert guest.ask(f"dns('good.test', {TYPES[kind]}, tcp={tcp})")[0] == NOERROR
    assert machine.seen(server="dns", name="other.test") == []
    # Of an allowed name every type goes upstream, but for the one that is answered with nothing.
    assert bool(machine.seen(server="dns", name="good.test", type=TYPES[kind])) == (kind != "AAAA")
    assert guest.denied(proto="dns", names=["other.test"], reason="no-allow-rule")


# What is no host name, or not the allowed one, however it is spelt. "|" is a dot inside a label.
ODD_NAMES = {"upper case": "OTHER.TEST", "mixed case": "oThEr.TeSt", "NUL in front": "\0good.test", "NUL behind": "good.test\0",
             "NUL and another name": "good.test\0.other.test", "one label with a dot": "good|test", "dot in a label": "www|good.test",
             "a space": "good .test", "a wildcard": "*.good.test", "child": "a.good.test", "parent": "test", "root": "",
             "prefix": "notgood.test", "suffix": "good.test.other.test", "high bytes": "g\xf6\xf6d.test", "number": "50.50.50.10"}


@pytest.mark.parametrize("which", ODD_NAMES)
def test_N3_a_name_that_is_not_the_allowed_one_is_refused(machine, guest, which):
    machine.forget()
    # A parent of an allowed name exists, or a resolver inside would conclude that nothing is below it.
    denial = [NOERROR if which in ("parent", "root") else NXDOMAIN, []]
    assert guest.refused(f"dns({ODD_NAMES[which]!r})") == guest.refused(f"dns({ODD_NAMES[which]!r}, tcp=True)") == denial
    assert machine.seen(server="dns") == []
    assert guest.ask("dns('good.test')") == [NOERROR, ["50.50.50.10"]]


@pytest.mark.parametrize("spelling", ["GOOD.TEST", "gOOd.tEsT"])
def test_N3_letter_case_and_a_trailing_dot_do_not_make_another_name(machine, guest, spelling):
    reply = guest.ask(f"exchange(query({spelling!r})).decode('latin-1')")
    assert spelling.split(".")[0] in reply  # as it was asked
    assert guest.ask(f"dns({spelling!r})") == [NOERROR, ["50.50.50.10"]]
    look_up = "[entry[4][0] for entry in socket.getaddrinfo({!r}, 80, socket.AF_INET, socket.SOCK_STREAM)]"
    assert guest.ask(look_up.format(spelling + ".")) == ["50.50.50.10"]
    assert isinstance(guest.refused(f"attempt(lambda: {look_up.format('other.test.')})"), str)
    assert machine.seen(server="dns", name="other.test") == []


HEAD = "struct.pack('>HHHHHH', 7, {flags}, {questions}, 0, 0, 0)"
ODD_MESSAGES = {
    "a label of 64 bytes": (HEAD.format(flags=0x100, questions=1) + " + b'\\x40' + b'a' * 64 + b'\\4test\\0' + b'\\0\\1\\0\\1'", FORMERR),
    "a name of 256 bytes": (HEAD.format(flags=0x100, questions=1) + " + (b'\\x3f' + b'a' * 63) * 4 + b'\\0' + b'\\0\\1\\0\\1'", FORMERR),
    "a pointer to itself": (HEAD.format(flags=0x100, questions=1) + " + b'\\xc0\\x0c' + b'\\0\\1\\0\\1'", FORMERR),
    "a name cut short": ("query('good.test')[:-6]", FORMERR),
    "two questions": (HEAD.format(flags=0x100, questions=2) + " + query('good.test')[12:] + query('other.test')[12:]", FORMERR),
    "no question": (HEAD.format(flags=0x100, questions=0), FORMERR),
    "another query behind": ("query('good.test') + query('other.test')[12:]", FORMERR),
    "an update": ("query('good.test', flags=0x2900)", NOTIMP),
    "a notification": ("query('good.test', flags=0x2100)", NOTIMP),
    "class CHAOS": ("query('good.test', qclass=3)", REFUSED),
    "class ANY": ("query('good.test', qclass=255)", REFUSED),
    "a zone transfer": ("query('good.test', 252)", NOTIMP),
    "an incremental transfer": ("query('good.test', 251)", NOTIMP),
}


@pytest.mark.parametrize("which", ODD_MESSAGES)
def test_N3_a_message_that_is_no_plain_question_is_answered_with_an_error(machine, guest, which):
    message, rcode = ODD_MESSAGES[which]
    machine.forget()
    for tcp in (False, True):
        assert guest.refused(f"exchange({message}, tcp={tcp})[3] & 15") == rcode
    assert machine.seen(server="dns") == []
    assert guest.ask("exchange(query('good.test'))[3] & 15") == NOERROR
    assert machine.seen(server="dns", name="good.test")


def test_N3_a_reply_sent_as_a_query_is_not_answered(machine, guest):
    machine.forget()
    assert guest.ask("""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(5)
s.connect((GATEWAY, 53))
s.send(query("good.test", ident=1, flags=0x8180))
s.send(query("good.test", ident=2))
s.recv(512)[:2].hex()""") == "0002"
    assert len(machine.seen(server="dns")) == 1


@pytest.mark.parametrize("step", [1, 1000])
def test_N3_queries_in_one_stream_are_judged_one_by_one(machine, guest, step):
    machine.forget()
    found = guest.ask(f"""
both = b"".join(struct.pack(">H", len(q)) + q for q in (query("other.test", ident=1), query("good.test", ident=2), query("other.test", ident=3)))
s = socket.create_connection((GATEWAY, 53), 5)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for at in range(0, len(both), {step}):
    s.sendall(both[at:at + {step}])
s.shutdown(socket.SHUT_WR)
data, found = to_end(s), {{}}
while data:
    size = struct.unpack(">H", data[:2])[0]
    found[str(data[3])], data = data[5] & 15, data[2 + size:]
found""")
    assert found == {"1": NXDOMAIN, "2": NOERROR, "3": NXDOMAIN}
    assert {e["name"] for e in machine.seen(server="dns")} == {"good.test"}


def test_N3_a_message_longer_than_any_query_ends_the_stream(machine, guest):
    assert guest.refused("tcp(GATEWAY, 53, b'GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n')") in ("", "ECONNRESET")
    assert guest.ask("dns('good.test', tcp=True)") == [NOERROR, ["50.50.50.10"]]


# --- what a hostile name server may answer ------------------------------------------------------------------------------------


def test_N3_an_answer_too_large_for_UDP_comes_over_TCP(machine, guest):
    assert guest.ask("dns('many.test')") == [NOERROR, []]
    assert len(guest.ask("dns('many.test', tcp=True)")[1]) == 60
    assert guest.ask("len(set(entry[4][0] for entry in socket.getaddrinfo('many.test', 80, socket.AF_INET)))") == 60


def test_N7_a_denied_name_keeps_its_neighbours_of_the_same_zone_and_address(guests):
    guest = guests("--allow", "*.good.test", "--deny", "denied.test")
    assert guest.ask("dns('good.test')") == guest.ask("dns('alias.good.test')") == [NOERROR, ["50.50.50.10"]]
    assert guest.refused("dns('sneaky.good.test')") == guest.refused("dns('denied.test')") == [NXDOMAIN, []]
    assert guest.ask("http(GOOD, ['good.test'])")[0][0] == 200
    assert guest.ask("tcp(GOOD, 7, b'x\\n')") == "x\n"
    control = guests("--allow", "*.good.test")
    assert control.ask("dns('sneaky.good.test')") == [NOERROR, ["50.50.50.10"]]
    assert control.ask("http(GOOD, ['sneaky.good.test'])")[0][0] == 200


def test_N7_a_name_allowed_and_denied_is_denied_on_every_stream(machine, guests):
    machine.forget()
    guest = guests("--allow", "good.test", "--allow", "sibling.test", "--deny", "sibling.test")
    assert guest.ask("dns('good.test')")[0] == NOERROR and guest.refused("dns('sibling.test')") == [NXDOMAIN, []]
    assert [status for status, _ in guest.refused("http(GOOD, ['good.test', 'sibling.test'])")] == [200, 403]
    assert "access denied" in guest.refused("tls(GOOD, 'sibling.test')").lower()
    assert guest.ask("tls(GOOD, 'good.test')") == "HTTP/1.1 200 OK"
    assert guest.denied(proto="http", host="sibling.test", rule="sibling.test") and guest.denied(proto="tls", sni="sibling.test", rule="sibling.test")
    assert {e["host"] for e in machine.seen(server="http")} == {"good.test"}


def test_N7_a_denied_address_is_denied_under_an_allowed_name(machine, guests):
    machine.forget()
    guest = guests("--allow", "good.test", "--deny", "50.50.50.0/24")
    guest.ask("dns('good.test')")
    assert guest.refused("http(GOOD, ['good.test'])") == guest.refused("tls(GOOD, 'good.test')") == "ECONNREFUSED"
    assert guest.denied(proto="tcp", address="50.50.50.10", reason="deny-rule", rule="50.50.50.0/24")
    assert machine.seen(server="http") == []


@pytest.mark.parametrize("name", ["1.chain.test", "6.chain.test"])
def test_N7_an_alias_leads_to_an_address_under_the_name_that_was_asked(machine, guest, name):
    machine.forget()
    assert guest.ask(f"dns({name!r})") == [NOERROR, ["50.50.50.10"]]
    assert guest.ask(f"http(GOOD, [{name!r}])") == [[200, f"hello from {name}\n"]]
    assert machine.seen(server="http", host=name)


@pytest.mark.parametrize("name", ["7.chain.test", "8.chain.test", "16.chain.test", "sneaky.good.test"])
def test_N7_an_alias_that_leads_through_a_denied_name_is_refused(machine, outside, guest, name):
    assert outside.ask(f"dns({name!r}, server=RESOLVER, tcp=True)") == [NOERROR, ["50.50.50.10"]]
    assert guest.refused(f"dns({name!r})") == [NXDOMAIN, []]
    assert guest.denied(proto="dns", names=[name], reason="deny-rule")
    guest.ask("dns('good.test')")
    assert guest.refused(f"http(GOOD, [{name!r}])")[0][0] == 403
    assert machine.seen(server="http", host=name) == []
    assert guest.ask("http(GOOD, ['good.test'])")[0][0] == 200


def test_N7_the_same_aliases_are_followed_where_none_is_denied(machine, guests):
    guest = guests("--allow", "*.chain.test")
    assert guest.ask("dns('16.chain.test')") == [NOERROR, ["50.50.50.10"]]
    assert guest.ask("http(GOOD, ['16.chain.test'])")[0][0] == 200


@pytest.mark.parametrize("name", ["17.chain.test", "20.chain.test", "a.loop.test", "b.loop.test", "self.loop.test", "two.test"])
def test_N7_aliases_without_an_end_or_with_two_are_an_error(machine, outside, guests, name):
    guest = guests("--allow", "*.chain.test", "--allow", "*.loop.test", "--allow", "two.test")
    machine.forget()
    assert outside.ask(f"len(records(exchange(query({name!r}), RESOLVER, tcp=True)))") >= 1
    assert guest.refused(f"dns({name!r})") == [SERVFAIL, []]
    assert guest.refused(f"dns({name!r}, tcp=True)") == [SERVFAIL, []]
    assert len(machine.seen(server="dns", name=name)) >= 3  # it was asked, and answered
    assert guest.refused("tcp(OTHER, 80)") == "ECONNREFUSED"


def test_N3_addresses_of_other_owners_in_an_answer_vouch_for_nothing(machine, outside, guest):
    machine.forget()
    assert sorted(outside.ask("dns('stray.test', server=RESOLVER)")[1]) == ["50.50.50.10"] + ["50.50.50.11"] * 4
    assert guest.ask("dns('stray.test')") == [NOERROR, ["50.50.50.10"]]
    assert guest.ask("[kind for kind, _ in records(exchange(query('stray.test')))]") == [1]
    assert guest.refused("tcp(OTHER, 80)") == "ECONNREFUSED"
    assert guest.denied(proto="tcp", address="50.50.50.11", reason="unresolved-address")
    assert guest.ask("http(GOOD, ['stray.test'])")[0][0] == 200


def test_N3_an_address_in_another_class_vouches_for_nothing(machine, outside, guest):
    assert outside.ask("dns('chaos.test', server=RESOLVER)")[1] == ["50.50.50.11"]
    assert guest.ask("dns('chaos.test')") == [NOERROR, []]
    assert guest.refused("tcp(OTHER, 80)") == "ECONNREFUSED"


@pytest.mark.parametrize("kind", ["SVCB", "HTTPS"])
def test_N8_service_records_lose_hints_ECH_and_HTTP3(machine, outside, guest, kind):
    ask = f"records(exchange(query('svc.test', {TYPES[kind]})%s))"
    ((_, whole),) = outside.ask(ask.replace(")%s", "), RESOLVER"))
    for part in ("0005000a0008", "00040004323232", "00060010", b"\x02h3".hex()):
        assert part in whole, part
    ((number, left),) = guest.ask(ask.replace("%s", ""))
    assert number == TYPES[kind] and left == "000100" + "00010003" + b"\x02h2".hex(), left
    assert guest.refused("tcp(OTHER, 443)") == "ECONNREFUSED"  # the address of the hint

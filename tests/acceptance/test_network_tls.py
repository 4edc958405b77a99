"""Row N6: the name in the hello of a TLS stream.

50.50.50.10 serves good.test, www.good.test and sibling.test alike, with a certificate for all of them: nothing but the gate keeps
a program with a connection to the first from being served as the last. Ports 9543 and 9544 log every byte that reaches the server.
"""

import pytest

RULES = ["--allow", "good.test", "--allow", "other.test", "--allow", "*.good.test", "--deny", "www.good.test"]
OK = "HTTP/1.1 200 OK"


@pytest.fixture
def guest(guests, machine):
    guest = guests(*RULES)
    assert guest.ask("dns('good.test')")[0] == 0
    machine.forget()
    return guest


def refused_hello(guest, expression):
    said = guest.refused(expression)
    assert "access denied" in said.lower(), said


PORTS = [443, 8443, 22]


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("sni", ["sibling.test", "www.good.test", "other.test", "alias.good.test", None])
def test_N6_a_hello_for_another_site_of_the_address_is_refused(machine, outside, guest, sni, port):
    """Not allowed; denied; allowed, but not vouched for at this address (two of them); none at all."""
    assert outside.ask(f"tls(GOOD, {sni!r}, {port})") == OK
    machine.forget()
    refused_hello(guest, f"tls(GOOD, {sni!r}, {port})")
    assert machine.seen() == []
    # Where no name was shown, the record is of the connection.
    assert guest.denied(proto="tls" if sni else "tcp", sni=sni, port=port, reason="sni-denied")
    assert guest.ask(f"tls(GOOD, 'good.test', {port})") == OK
    assert [e["host"] for e in machine.seen(server="http")] == ["good.test"]


def test_N6_a_name_is_served_once_it_is_resolved_there(machine, guests):
    guest = guests("--allow", "good.test", "--allow", "sibling.test")
    guest.ask("dns('good.test')")
    refused_hello(guest, "tls(GOOD, 'sibling.test', 8443)")
    assert guest.ask("dns('sibling.test')")[0] == 0
    assert guest.ask("tls(GOOD, 'sibling.test', 8443)") == OK


# How a hello may be cut without being another hello: what is refused in one piece is refused in many.
CUTS = {"segments of one byte": "cut=in_segments(1)", "segments of seven bytes": "cut=in_segments(7)",
        "records of ten bytes": "alter=in_records(10)", "records of ten bytes, segments of one": "alter=in_records(10), cut=in_segments(1)",
        "a first record of four bytes": "alter=lambda hello: hello[:3] + b'\\0\\4' + hello[5:9] + hello[:3] + "
                                        "struct.pack('>H', len(hello) - 9) + hello[9:]"}


@pytest.mark.parametrize("cut", CUTS)
def test_N6_a_hello_in_pieces_is_read_as_one(machine, outside, guest, cut):
    assert outside.ask(f"tls(GOOD, 'sibling.test', 9543, {CUTS[cut]})") == OK
    machine.forget()
    refused_hello(guest, f"tls(GOOD, 'sibling.test', 9543, {CUTS[cut]})")
    assert machine.seen() == []
    assert guest.denied(proto="tls", sni="sibling.test", port=9543, reason="sni-denied")
    assert guest.ask(f"tls(GOOD, 'good.test', 9543, {CUTS[cut]})") == OK


def test_N6_a_hello_in_records_of_one_byte_is_more_than_is_read(machine, outside, guest):
    assert outside.ask("tls(GOOD, 'good.test', 9543, alter=in_records(1))") == OK
    machine.forget()
    refused_hello(guest, "tls(GOOD, 'good.test', 9543, alter=in_records(1))")
    assert machine.seen() == [] and guest.denied(proto="tcp", port=9543, reason="sni-unreadable")


@pytest.mark.parametrize("name", ["good.test", "sibling.test"])
@pytest.mark.parametrize("size", [20000, 40000])
def test_N6_a_large_hello_is_read_to_its_end_or_refused(machine, outside, guest, size, name):
    probe = f"tls(GOOD, {name!r}, 9543, context=verbose({size}))"
    assert outside.ask(probe) == OK
    machine.forget()
    if (size, name) == (20000, "good.test"):
        assert guest.ask(probe) == OK
    else:
        refused_hello(guest, probe)
        assert machine.seen() == []
        assert guest.denied(port=9543, reason="sni-unreadable" if size == 40000 else "sni-denied")


# What a library may read differently from another, or from us. {} is the server_name extension's inside.
def server_name(*entries):
    inside = b"".join(bytes([kind]) + len(name).to_bytes(2, "big") + name for kind, name in entries)
    return len(inside).to_bytes(2, "big") + inside


NAME_TRICKS = {
    "two names": server_name((0, b"good.test"), (0, b"sibling.test")),
    "two names, the good one last": server_name((0, b"sibling.test"), (0, b"good.test")),
    "a name of another kind in front": server_name((1, b"x"), (0, b"sibling.test")),
    "an empty name": server_name((0, b"")),
    "an empty list": b"\0\0",
    "a list shorter than its length": b"\0\x20" + server_name((0, b"sibling.test"))[2:],
    "a NUL behind the good name": server_name((0, b"good.test\0.sibling.test")),
    "a trailing dot": server_name((0, b"good.test.")),
    "a label of 64 bytes": server_name((0, b"a" * 64 + b".good.test")),
    "an address": server_name((0, b"50.50.50.10")),
    "an address as a number": server_name((0, b"842150410")),
    "an address as a hex number": server_name((0, b"0x3232320a")),
    "an IPv6 address": server_name((0, b"[::ffff:50.50.50.10]")),
    "a space": server_name((0, b" sibling.test")),
    "high bytes": server_name((0, b"sibl\xefng.test")),
}


@pytest.mark.parametrize("trick", NAME_TRICKS)
def test_N6_a_server_name_that_can_be_read_two_ways_is_refused(machine, outside, guest, trick):
    probe = f"tls(GOOD, None, 9543, hello_with(0, {NAME_TRICKS[trick]!r}))"
    outside.ask(f"attempt(lambda: {probe})")
    assert machine.seen(server="tap", port=9543)  # the control: it is sent, and reaches the server where no gate is
    machine.forget()
    refused_hello(guest, probe)
    assert machine.seen() == []
    assert guest.denied(proto="tcp", port=9543, reason="sni-unreadable")
    plain = f"attempt(tls, GOOD, None, 9543, hello_with(0, {server_name((0, b'good.test'))!r}))"
    assert "access denied" not in guest.ask(plain).lower()  # put in the same way, the good name goes through
    assert machine.seen(server="tap", port=9543)


def test_N6_two_server_name_extensions_are_refused(machine, outside, guest):
    probe = f"tls(GOOD, 'good.test', 9543, hello_with(0, {server_name((0, b'sibling.test'))!r}))"
    outside.ask(f"attempt(lambda: {probe})")
    assert "sibling.test" in machine.seen(server="tap", port=9543)[0]["data"]
    machine.forget()
    refused_hello(guest, probe)
    assert machine.seen() == [] and guest.denied(proto="tcp", port=9543, reason="sni-unreadable")


RECORD_TRICKS = {
    "an SSLv2 hello": b"\x80\x2e\x01\x03\x03\0\x15\0\0\0\x10" + b"\0\0\x2f" * 7 + b"c" * 16,
    "an alert first": b"\x15\x03\x01\0\x02\x01\0",
    "a change of cipher first": b"\x14\x03\x01\0\x01\x01",
    "application data first": b"\x17\x03\x03\0\x04data",
    "an empty record first": b"\x16\x03\x01\0\0",
    "a handshake of version 4": b"\x16\x04\x00\0\x04\x01\0\0\0",
    "a handshake that is no hello": b"\x16\x03\x01\0\x04\x02\0\0\0",
    "a record of 20 KB": b"\x16\x03\x01\x4e\x20" + b"\x01\0\x4e\x1c" + b"x" * 3000,
}


@pytest.mark.parametrize("trick", RECORD_TRICKS)
def test_N6_a_stream_of_TLS_that_does_not_begin_with_a_hello_is_refused(machine, outside, guest, trick):
    """Some libraries pass over such a beginning and read the hello behind it."""
    outside.ask(f"deliver(GOOD, 9000, {RECORD_TRICKS[trick]!r} + hello_of('sibling.test'))")
    assert "sibling.test" in "".join(e["data"] for e in machine.seen(server="tap", port=9000))
    machine.forget()
    said = guest.refused(f"talk(GOOD, 9000, {RECORD_TRICKS[trick]!r} + hello_of('sibling.test'))")
    assert said.encode("latin-1") == b"\x15\x03\x03\0\x02\x02\x31", said  # a fatal alert: access denied
    assert machine.seen() == []
    assert guest.denied(proto="tcp", port=9000, reason="sni-unreadable")


def test_N6_a_hello_that_never_ends_is_given_up_and_nothing_of_it_goes_on(machine, guest):
    """One that stays open is given up after ten seconds, one whose client has ended at once."""
    open_, ended = guest.together("timed(unfinished, GOOD, 9543, False)", "timed(unfinished, GOOD, 9543, True)")
    alert = b"\x15\x03\x03\0\x02\x02\x31".decode("latin-1")
    assert open_[0] == ended[0] == alert and 8 < open_[1] < 25 and ended[1] < 3, (open_, ended)
    assert machine.seen() == []
    assert guest.denied(proto="tcp", port=9543, reason="sni-unreadable")
    assert guest.ask("tls(GOOD, 'good.test', 9543)") == OK


# --- a second hello, and a hidden one -------------------------------------------------------------------------------------------


def test_N6_a_second_hello_after_a_retry_is_judged_too(machine, outside, guest):
    """Port 8444 takes no key share but P-384, so OpenSSL sends a second hello; 9544 is the tap in front of it."""
    assert guest.ask("tls(GOOD, 'good.test', 9544)") == OK
    assert sum(e["data"].count("good.test") for e in machine.seen(server="tap", port=9544)) >= 2  # there were two
    refused_hello(guest, "tls(GOOD, 'sibling.test', 9544)")
    for second in ("renamed('good.test', 'evil.test')", "hello_with(0xfe0d, b'\\0' * 32, 6)"):
        machine.forget()
        outside.ask(f"attempt(tls, GOOD, 'good.test', 9544, second={second})")
        bare = [e["data"] for e in machine.seen(server="tap", port=9544)]
        assert any("evil.test" in d or "\xfe\x0d" in d for d in bare), bare
        machine.forget()
        refused_hello(guest, f"tls(GOOD, 'good.test', 9544, second={second})")
        assert not any("evil.test" in e["data"] or "\xfe\x0d" in e["data"] for e in machine.seen(server="tap", port=9544))
        assert machine.seen(server="http") == []
    assert guest.denied(proto="tcp", port=9544, reason="sni-unreadable")


# An outer hello as RFC 9849 has it (X25519, HKDF-SHA256, AES-128-GCM), and what drafts and clients in disguise send.
ENCRYPTED = {
    "ECH": (0xFE0D, b"\0" + b"\0\1\0\1" + b"\x2a" + b"\0\x20" + bytes(range(32)) + b"\0\xd0" + bytes(range(208))),
    "an inner hello in clear": (0xFE0D, b"\1"),
    "an empty ECH": (0xFE0D, b""),
    "ESNI of the drafts": (0xFFCE, b"\x13\1\0\x1d\0\x20" + bytes(32) + b"\0\x20" + bytes(32) + b"\1\0" + bytes(256)),
}


@pytest.mark.parametrize("which", ENCRYPTED)
def test_N8_a_hello_that_hides_its_name_is_refused(machine, outside, guest, which):
    kind, data = ENCRYPTED[which]
    probe = f"tls(GOOD, 'good.test', 9543, hello_with({kind:#x}, {data!r}))"
    outside.ask(f"attempt(lambda: {probe})")
    assert machine.seen(server="tap", port=9543)
    machine.forget()
    refused_hello(guest, probe)
    assert machine.seen() == [] and guest.denied(proto="tls", sni="good.test", port=9543, reason="ech")


@pytest.mark.parametrize("kind", [0xFE0C, 0xFE0E, 0x2A2A, 0xFAFA])
def test_N8_an_extension_that_only_looks_like_it_passes(machine, guest, kind):
    said = guest.ask(f"attempt(tls, GOOD, 'good.test', 9543, hello_with({kind:#x}, {ENCRYPTED['ECH'][1]!r}))")
    assert "access denied" not in said.lower(), said  # the server notices that the hello was changed, at the end of the handshake
    assert machine.seen(server="tap", port=9543)


def test_N6_TLS_on_a_port_of_another_protocol_is_judged_as_TLS(machine, guest):
    """Port 25 greets first, and port 80 speaks HTTP: the hello decides, not the port."""
    for port in (25, 80):
        said = guest.refused(f"talk(GOOD, {port}, hello_of('sibling.test'))")
        assert "\x15\x03\x03\0\x02\x02\x31" in said, (port, said)
        assert guest.denied(proto="tls", sni="sibling.test", port=port, reason="sni-denied")
    assert machine.seen(server="http") == []


@pytest.mark.parametrize("sent", [b"SSH-2.0-x\r\n", b"\x05\x01\x00", b"EHLO x\r\n", b"\0\0\0\x08\x04\xd2\x16\x2f"],
                         ids=["SSH", "SOCKS5", "SMTP", "PostgreSQL"])
def test_N6_on_443_only_what_shows_a_name_passes(machine, guest, sent):
    """Elsewhere another protocol passes, to the address that was allowed."""
    assert guest.refused(f"talk(GOOD, 443, {sent!r})") in ("", "ECONNRESET")
    assert guest.denied(proto="tcp", port=443, reason="sni-unreadable")
    assert guest.ask(f"tcp(GOOD, 9000, {sent!r})")
    assert "".join(e["data"] for e in machine.seen(server="tap", port=9000)).encode("latin-1") == sent

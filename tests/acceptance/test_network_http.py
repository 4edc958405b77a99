"""Row N6: the host of every request of an HTTP stream.

Port 9000 of good.test logs every byte and answers each block as the most lenient of servers would: what a trick wants to bring
there must not arrive. The control of each is the same bytes sent where no gate is.
"""

import pytest

RULES = ["--allow", "good.test", "--allow", "other.test", "--allow", "*.good.test", "--deny", "www.good.test"]
GET = b"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: sibling.test\r\n\r\n"


@pytest.fixture
def guest(guests, machine):
    guest = guests(*RULES)
    assert guest.ask("dns('good.test')")[0] == 0
    machine.forget()
    return guest


def arrived(machine, port=9000):
    return "".join(e["data"] for e in machine.seen(server="tap", port=port))


@pytest.mark.parametrize("port", [80, 8080])
@pytest.mark.parametrize("host", ["sibling.test", "www.good.test", "other.test", "alias.good.test", "50.50.50.10", "SIBLING.TEST",
                                  "sibling.test.", "sibling.test:80", "other.test:8080", "localhost", "[::1]"])
def test_N6_a_request_for_another_site_of_the_address_is_refused(machine, outside, guest, host, port):
    assert outside.ask(f"http(GOOD, [{host!r}], {port})")[0][0] == 200
    machine.forget()
    ((status, text),) = guest.refused(f"http(GOOD, [{host!r}], {port})")
    assert status == 403 and text.startswith("sandbox: "), text
    assert machine.seen() == []
    shown = host.lower().removesuffix(".").split(":")[0] if "[" not in host else host
    assert guest.denied(proto="http", host=shown, port=port, reason="host-denied")
    assert guest.ask(f"http(GOOD, ['good.test'], {port})") == [[200, "hello from good.test\n"]]


@pytest.mark.parametrize("spelling", ["good.test", "GOOD.test", "good.test.", "good.test:9000"])
def test_N6_a_request_for_the_name_that_was_resolved_passes_however_it_is_spelt(machine, guest, spelling):
    assert "200 OK" in guest.ask(f"tcp(GOOD, 9000, b'GET / HTTP/1.1\\r\\nHost: {spelling}\\r\\n\\r\\n')")
    assert f"Host: {spelling}" in arrived(machine)


@pytest.mark.parametrize("pieces", [[GET + HIDDEN], [GET, HIDDEN], [GET[:20], GET[20:] + HIDDEN[:30], HIDDEN[30:]],
                                    [bytes([b]) for b in GET + HIDDEN]], ids=["pipelined", "one after another", "across segments", "byte by byte"])
def test_N6_the_second_request_of_a_connection_is_judged(machine, guest, outside, pieces):
    outside.ask(f"deliver(GOOD, 9000, {b''.join(pieces)!r})")
    assert "sibling.test" in arrived(machine)
    machine.forget()
    said = guest.refused(f"talk(GOOD, 9000, *{pieces!r})")
    assert "403 Forbidden" in said and arrived(machine) in (GET.decode(), ""), (said, arrived(machine))
    assert guest.denied(proto="http", host="sibling.test", port=9000, reason="host-denied")


def body(fields, content, method="POST"):
    return f"{method} / HTTP/1.1\r\nHost: good.test\r\n{fields}\r\n".encode() + content


CHUNKED = b"0\r\n\r\n" + HIDDEN
# Requests that two servers would split in different places, or understand differently. Each carries sibling.test somewhere.
TRICKS = {
    "target of another host": b"GET http://sibling.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "Host of another target": b"GET http://good.test/ HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "both of another host": b"GET http://sibling.test/ HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "user in the target": b"GET http://good.test@sibling.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "backslash in the target": b"GET http://good.test\\@sibling.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "target of another scheme": b"GET ftp://sibling.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "target without a scheme": b"GET sibling.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "CONNECT": b"CONNECT sibling.test:443 HTTP/1.1\r\nHost: sibling.test:443\r\n\r\n",
    "CONNECT under the good Host": b"CONNECT sibling.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
    "h2c upgrade": b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
                   b"HTTP2-Settings: AAMAAABk\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\nsibling.test",
    "h2c by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0\0\0\x10\1\5\0\0\0\1\x82\x86\x84\x41\x0csibling.test",
    "HTTP/3 by name": b"GET / HTTP/3.0\r\nHost: sibling.test\r\n\r\n",
    "Content-Length and chunked": body("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
    "chunked and Content-Length": body("Transfer-Encoding: chunked\r\nContent-Length: %d\r\n" % len(CHUNKED), CHUNKED),
    "two lengths": body("Content-Length: 0\r\nContent-Length: %d\r\n" % len(HIDDEN), HIDDEN),
    "two lengths in one field": body("Content-Length: 0, %d\r\n" % len(HIDDEN), HIDDEN),
    "a length with a sign": body("Content-Length: +0\r\n", HIDDEN),
    "a length in hex": body("Content-Length: 0x0\r\n", HIDDEN),
    "a negative length": body("Content-Length: -1\r\n", HIDDEN),
    "a length beyond 64 bits": body("Content-Length: 18446744073709551616\r\n", HIDDEN),
    "chunked twice": body("Transfer-Encoding: chunked, chunked\r\n", CHUNKED),
    "two codings": body("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
    "chunked not last": body("Transfer-Encoding: chunked, gzip\r\n", CHUNKED),
    "xchunked": body("Transfer-Encoding: xchunked\r\n", CHUNKED),
    "a vertical tab before chunked": body("Transfer-Encoding: \x0bchunked\r\n", CHUNKED),
    "chunked behind a space": body("Transfer-Encoding : chunked\r\n", CHUNKED),
    "chunked in HTTP/1.0": CHUNKED.join([b"POST / HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n", b""]),
    "a chunk size with a sign": body("Transfer-Encoding: chunked\r\n", b"+0\r\n\r\n" + HIDDEN),
    "a chunk size of 17 digits": body("Transfer-Encoding: chunked\r\n", b"10000000000000000\r\n" + HIDDEN),
    "a chunk line that ends in LF": body("Transfer-Encoding: chunked\r\n", b"0;x=\n" + HIDDEN),
    "a chunk longer than its size": body("Transfer-Encoding: chunked\r\n", b"1\r\nab0\r\n\r\n" + HIDDEN),
    "a second Host": b"GET / HTTP/1.1\r\nHost: good.test\r\nHost: sibling.test\r\n\r\n",
    "a Host of two names": b"GET / HTTP/1.1\r\nHost: good.test, sibling.test\r\n\r\n",
    "a Host with a user": b"GET / HTTP/1.1\r\nHost: good.test@sibling.test\r\n\r\n",
    "a Host with a path": b"GET / HTTP/1.1\r\nHost: good.test/sibling.test\r\n\r\n",
    "a Host with a NUL": b"GET / HTTP/1.1\r\nHost: sibling.test\0.good.test\r\n\r\n",
    "a Host with a bare CR": b"GET / HTTP/1.1\r\nHost: good.test\rHost: sibling.test\r\n\r\n",
    "a Host that is folded": b"GET / HTTP/1.1\r\nHost:\r\n sibling.test\r\n\r\n",
    "a Host behind a space": b"GET / HTTP/1.1\r\nHost : sibling.test\r\n\r\n",
    "a folded line in front": b"GET / HTTP/1.1\r\n X: y\r\nHost: sibling.test\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\nX-Forwarded-Host: sibling.test\r\n\r\n",
    "no Host in HTTP/1.0": b"GET / HTTP/1.0\r\nX-Host: sibling.test\r\n\r\n",
    "HTTP/0.9": b"GET /sibling.test\r\n",
    "HTTP/0.9 with a space in its target": b"GET http://sibling.test/ x\r\n\r\n",
    "HTTP/0.9 under another protocol's version": b"GET http://sibling.test/ SIP/2.0\r\n\r\n",
    "CONNECT without a version": b"CONNECT sibling.test:443\r\n\r\n",
    "lines that end in LF": b"GET / HTTP/1.1\nHost: sibling.test\n\n",
    "a head that ends in LF": b"GET / HTTP/1.1\r\nHost: good.test\r\n\nGET / HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "tabs in the request line": b"GET\t/\tHTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "two spaces in the request line": b"GET  / HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "an empty line in front": b"\r\nGET / HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "white space in front": b" GET / HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "a method of its own": b"FETCH / HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "a method in small letters": b"get / http/1.1\r\nhost: sibling.test\r\n\r\n",
    "a NUL in the method": b"GET\0 / HTTP/1.1\r\nHost: sibling.test\r\n\r\n",
    "a head of 70 KB": b"GET / HTTP/1.1\r\nX: " + b"a" * 70000 + b"\r\nHost: sibling.test\r\n\r\n",
    "an upgrade to anything": b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\nsibling.test",
    "an upgrade and a request behind it": b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + HIDDEN,
    "an upgrade of the second request": GET + b"GET / HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + HIDDEN,
}


@pytest.mark.parametrize("trick", TRICKS)
def test_N6_no_request_reaches_another_site_by(machine, outside, guest, trick):
    sent = TRICKS[trick]
    outside.ask(f"deliver(GOOD, 9000, {sent!r})")
    assert arrived(machine).encode("latin-1") == sent
    machine.forget()
    said = guest.refused(f"talk(GOOD, 9000, {sent!r})")
    assert "HTTP/1.1 400" in said or "HTTP/1.1 403" in said, said
    assert "sibling.test" not in arrived(machine) and "\r\n0\r\n" not in arrived(machine), arrived(machine)
    assert guest.denied(port=9000, reason="host-denied")


BODIES = {
    "with its length": body("Content-Length: %d\r\n" % len(HIDDEN), HIDDEN),
    "in a chunk": body("Transfer-Encoding: chunked\r\n", b"%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n"),
    "in two chunks with extensions": body("Transfer-Encoding: chunked\r\n", b"a;x=y\r\n" + HIDDEN[:10] + b"\r\n%X\r\n" % (len(HIDDEN) - 10) + HIDDEN[10:] +
                                          b"\r\n0\r\nTrailer: x\r\n\r\n"),
}


@pytest.mark.parametrize("which", BODIES)
def test_N6_what_only_looks_like_a_request_is_a_body(machine, guest, which):
    """The other side: a proper body passes whatever it says, and what follows it is judged."""
    assert "200 OK" in guest.ask(f"deliver(GOOD, 9000, {BODIES[which]!r})")
    assert arrived(machine).encode("latin-1") == BODIES[which]
    machine.forget()
    assert "403 Forbidden" in guest.refused(f"talk(GOOD, 9000, {BODIES[which] + HIDDEN!r})")
    assert arrived(machine).encode("latin-1") in (BODIES[which], b"")


def test_N6_HTTP2_in_clear_is_refused_to_a_real_client(machine, outside, guest):
    curl = "subprocess.run(['curl', '-sS', '-m', '8', '--resolve', '{0}:8081:50.50.50.10', '--http2-prior-knowledge', 'http://{0}:8081/'], capture_output=True, text=True)"
    assert outside.ask(curl.format("sibling.test") + ".stdout") == "h2\n"
    assert [e["host"] for e in machine.seen(server="http2")] == ["sibling.test:8081"]
    machine.forget()
    for name in ("sibling.test", "good.test"):
        assert guest.ask(curl.format(name) + ".returncode") != 0
    assert machine.seen() == [] and guest.denied(proto="tcp", port=8081, reason="host-denied")


# --- through a proxy that is an allowed host --------------------------------------------------------------------------------------

PROXIED = ["--allow", "proxy/good.test:3128", "--allow", "good.test:443", "--allow", "good.test:80"]
CONNECT = "CONNECT {0} HTTP/1.1\\r\\nHost: {0}\\r\\n\\r\\n"


def test_N6_CONNECT_to_a_host_that_is_allowed_as_a_site_is_refused(machine, outside, guest):
    for target in ("sibling.test:443", "other.test:443", "50.50.50.11:80", "good.test:443"):
        assert "200 Connection" in outside.ask(f"tcp(GOOD, 3128, b'{CONNECT.format(target)}')")
    machine.forget()
    for target in ("sibling.test:443", "other.test:443", "50.50.50.11:80", "good.test:443"):
        assert "403 Forbidden" in guest.refused(f"talk(GOOD, 3128, b'{CONNECT.format(target)}')")
    assert machine.seen() == []


@pytest.mark.parametrize("target", ["sibling.test:443", "other.test:443", "good.test:8080", "50.50.50.10:443", "10.99.0.10:80", "127.0.0.1:80"])
def test_N6_CONNECT_through_an_allowed_proxy_goes_where_the_rules_say(machine, outside, guests, target):
    assert "200 Connection" in outside.ask(f"tcp(GOOD, 3128, b'{CONNECT.format(target)}')")
    guest = guests(*PROXIED)
    guest.ask("dns('good.test')")
    machine.forget()
    assert "403 Forbidden" in guest.refused(f"talk(GOOD, 3128, b'{CONNECT.format(target)}')")
    assert machine.seen() == [] and guest.denied(proto="http", host=target.split(":")[0], port=3128, reason="host-denied")
    assert "200 Connection" in guest.ask(f"tcp(GOOD, 3128, b'{CONNECT.format('good.test:443')}')")
    assert [e["target"] for e in machine.seen(server="proxy")] == ["good.test:443"]


@pytest.mark.parametrize("inside", ["sibling.test", None])
def test_N6_TLS_inside_of_a_tunnel_is_judged(machine, outside, guests, inside):
    guest = guests(*PROXIED)
    guest.ask("dns('good.test')")
    curl = "subprocess.run(['curl', '-sS', '-k', '-m', '8', '-p', '-x', 'http://50.50.50.10:3128', 'https://good.test/'], capture_output=True, text=True).stdout"
    assert guest.ask(curl) == "hello from good.test\n"
    tunnelled = f"tunnelled(GOOD, 3128, 'good.test:443', {inside!r})"
    assert outside.ask(tunnelled) == "established"
    machine.forget()
    assert "access denied" in guest.refused(tunnelled).lower()
    assert guest.ask("tunnelled(GOOD, 3128, 'good.test:443', 'good.test')") == "established"
    assert machine.seen(server="http") == []


def test_N6_a_request_inside_of_a_tunnel_is_judged(machine, guests):
    guest = guests(*PROXIED)
    guest.ask("dns('good.test')")
    machine.forget()
    through = f"talk(GOOD, 3128, b'{CONNECT.format('good.test:80')}' + b'GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n')"
    assert "hello from good.test" in guest.ask(through % "good.test")
    assert "403 Forbidden" in guest.refused(through % "sibling.test")
    assert [e["host"] for e in machine.seen(server="http")] == ["good.test"]


@pytest.mark.parametrize("sent", [b"\x05\x01\x00", b"\x04\x01\x01\xbb\x32\x32\x32\x0b\0", b"SSH-2.0-x\r\n", b"\0\0\0\0"],
                         ids=["SOCKS5", "SOCKS4", "SSH", "bytes"])
def test_N6_a_proxy_is_spoken_to_in_HTTP_only(machine, outside, guests, sent):
    guest = guests(*PROXIED, "--allow", "proxy/good.test:9000")
    guest.ask("dns('good.test')")
    machine.forget()
    assert "200 OK" in outside.ask(f"tcp(GOOD, 9000, {sent!r})")
    machine.forget()
    assert guest.refused(f"talk(GOOD, 9000, {sent!r})") in ("", "ECONNRESET")
    assert machine.seen() == []

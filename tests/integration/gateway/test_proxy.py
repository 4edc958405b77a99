"""A host that reaches the world only through a proxy, and a guest that uses one.

The proxy is a real one, in the world, with a resolver of its own. Except where NO_PROXY is the subject, the host has a route to
the proxy's address and to nothing else: what does not go through it goes nowhere.
"""
import contextlib
import errno
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

import pytest

from netlab import HOST_UPLINK, RESOLVER, lab, read_all, read_exactly

SERVER, OTHER, PROXY, PORT = "45.80.0.10", "45.80.0.11", "45.80.0.3", 3128
NAMES = ("www.example.org", "other.example.org", "mail.example.org", "hidden.example.com")


def upstream(**more):
    return {"host": "proxy.example.org", "port": PORT, "addresses": [PROXY], "authorization": "", "no_proxy": "", **more}


class Proxy:
    """tinyproxy in the world, with the world's resolver."""

    def __init__(self, net, *lines):
        self.dir = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.dir.name)
        self.log_file = folder / "log"
        self.log_file.touch(0o666)
        (folder / "resolv.conf").write_text(f"nameserver {RESOLVER}\n")
        (folder / "conf").write_text("\n".join([f"Port {PORT}", f"Listen {PROXY}", "Timeout 600", "MaxClients 200",
                                                f'LogFile "{self.log_file}"', "LogLevel Connect", *lines, ""]))
        script = f"mount --bind {folder}/resolv.conf /etc/resolv.conf && exec tinyproxy -d -c {folder}/conf"
        self.process = subprocess.Popen(net.world.argv("unshare", "-m", "sh", "-c", script), stdout=subprocess.DEVNULL)
        try:
            self.wait(net)
        except BaseException:
            self.close()
            raise

    def wait(self, net):
        end = time.monotonic() + 20
        while True:
            with net.world.socket(socket.AF_INET, socket.SOCK_STREAM) as s, contextlib.suppress(OSError):
                s.connect((PROXY, PORT))
                break
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.02)

    def asked(self):
        """The request lines that came."""
        lines = self.log_file.read_text().splitlines()
        return [line.split("): ", 1)[1].rsplit(" ", 1)[0] for line in lines if "Request (file" in line]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.dir.cleanup()


class Street:
    """What the host sends into the world: (protocol, destination, port)."""

    def __init__(self, net):
        self.socket = net.world.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        self.socket.setblocking(False)

    def seen(self):
        out = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, (_, _, kind, *_) = self.socket.recvfrom(65536)
                if kind != socket.PACKET_OUTGOING and socket.inet_ntoa(packet[12:16]) == HOST_UPLINK:
                    port = int.from_bytes(packet[22:24], "big") if packet[9] in (6, 17) else 0
                    out.add((packet[9], socket.inet_ntoa(packet[16:20]), port))
        return out


def populate(net):
    for address in (SERVER, OTHER, PROXY):
        net.add_address(address)
    net.dns.zone.update({name: [SERVER] for name in NAMES})
    net.requests = []

    def http(connection):
        while head := read_head(connection):
            net.requests.append(head)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    net.serve(SERVER, 80, http)
    net.serve(SERVER, 25, lambda c: c.sendall(b"220 greeter ready\r\n") or read_all(c))
    net.serve(SERVER, 7, echo)
    net.serve(OTHER, 7, echo)


def echo(connection):
    while block := connection.recv(1 << 16):
        connection.sendall(block)


def read_head(connection):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        block = connection.recv(1)
        if not block:
            return head
        head += block
    return head


def only_the_proxy(net):
    """The host keeps a route to the proxy and loses all others."""
    net.host.ip("route", "flush", "table", "main")
    net.host.ip("route", "add", f"{PROXY}/32", "dev", "uplink")
    with net.host.socket(socket.AF_INET, socket.SOCK_STREAM) as s, pytest.raises(OSError):
        s.connect((SERVER, 80))


ALLOW = ["*.example.org", "45.80.0.11:7", "udp/45.80.0.10:9000"]


@pytest.fixture(scope="module")
def net():
    with lab(allow=ALLOW, upstream_proxy=upstream()) as it:
        populate(it)
        only_the_proxy(it)
        it.proxy = Proxy(it)
        it.street = Street(it)
        yield it
        it.proxy.close()


def get(net, name, path="/", port=80):
    [address] = net.resolve(name).addresses
    with net.connect(address, port) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        return read_head(s)


def refused(net, address, port, within=2.0):
    begin = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        net.connect(address, port)
    assert time.monotonic() - begin < within


def test_without_the_proxy_nothing_is_reached():
    """The control of everything below."""
    with lab(allow=ALLOW) as net:
        populate(net)
        only_the_proxy(net)
        assert net.resolve("www.example.org", timeout=10).rcode == 2
        with pytest.raises(OSError) as error:
            net.connect(OTHER, 7)
        assert error.value.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)


def test_a_name_goes_to_the_proxy_and_nothing_goes_around_it(net):
    net.street.seen()
    assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")
    assert "CONNECT www.example.org:80" in net.proxy.asked()
    assert net.street.seen() == {(6, PROXY, PORT)}
    record = net.gateway.wait_record(proto="tcp", port=80, verdict="allow")
    assert record["names"] == ["www.example.org"] and record["text"] == "through the proxy proxy.example.org:3128"
    assert net.gateway.wait_record(proto="http", host="www.example.org", verdict="allow")


def test_each_name_has_an_address_of_its_own_at_once(net):
    begin = time.monotonic()
    first, second = (net.resolve(name).addresses for name in ("www.example.org", "other.example.org"))
    assert time.monotonic() - begin < 1 and first != second and first == net.resolve("WWW.example.ORG").addresses
    for qtype in (28, 16, 65, 33):
        reply = net.resolve("www.example.org", qtype=qtype)
        assert reply.rcode == 0 and not reply.addresses
    assert net.resolve("hidden.example.com").rcode == 3


def test_the_name_on_the_stream_is_still_judged(net):
    [address] = net.resolve("www.example.org").addresses
    before = len(net.requests)
    with net.connect(address, 80) as s:
        s.sendall(b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n")
        assert read_head(s).startswith(b"HTTP/1.1 403")
    assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")
    assert len(net.requests) == before + 1


def test_a_server_that_speaks_first_is_heard(net):
    [address] = net.resolve("mail.example.org").addresses
    with net.connect(address, 25, timeout=10) as s:
        assert s.recv(100) == b"220 greeter ready\r\n"


def test_an_address_goes_through_it_as_an_address(net):
    data = os.urandom(4 << 20)
    with net.connect(OTHER, 7, timeout=60) as s:
        threading.Thread(target=s.sendall, args=(data,), daemon=True).start()  # this proxy knows no half-closed end
        assert read_exactly(s, len(data)) == data
    assert f"CONNECT {OTHER}:7" in net.proxy.asked()


def test_many_at_once(net):
    [address] = net.resolve("www.example.org").addresses
    results = []

    def one():
        with net.connect(address, 7, timeout=60) as s:
            s.sendall(b"\0" * 1000)
            results.append(read_exactly(s, 1000))

    threads = [threading.Thread(target=one) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [b"\0" * 1000] * 60
    net.gateway.wait_stats(lambda stats: stats["tcp_connecting"] == 0)


def test_what_is_no_tcp_is_refused_with_a_reason(net):
    with net.guest.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.connect((SERVER, 9000))
        s.send(b"x")
        with pytest.raises(OSError) as error:
            s.recv(10)
        assert error.value.errno == errno.EHOSTUNREACH
    assert "cannot go through the upstream proxy" in net.gateway.wait_record(
        proto="udp", reason="upstream-proxy", verdict="deny")["text"]
    [address] = net.resolve("www.example.org").addresses
    assert net.guest.run("ping", "-n", "-c", "1", "-W", "2", address, check=False).returncode != 0
    assert net.gateway.wait_record(proto="icmp", reason="upstream-proxy", verdict="deny")


def test_the_proxy_is_out_of_the_guests_reach():
    with lab(allow=["*.example.org", "45.80.0.0/24"], upstream_proxy=upstream()) as net:
        populate(net)
        only_the_proxy(net)
        proxy = Proxy(net)
        net.connect(OTHER, 7).close()  # the control: another address of the network
        refused(net, PROXY, PORT)
        [address] = net.resolve("proxy.example.org").addresses
        refused(net, address, PORT)
        assert "it is the upstream proxy itself" in net.gateway.wait_record(reason="upstream-proxy")["text"]
        assert proxy.asked() == [f"CONNECT {OTHER}:7"]
        proxy.close()


def test_credentials_are_given_and_asked_for_in_words():
    with lab(allow=["*.example.org"], upstream_proxy=upstream()) as net:
        populate(net)
        only_the_proxy(net)
        proxy = Proxy(net, "BasicAuth user secret")
        for name in ("www.example.org", "other.example.org"):
            refused(net, net.resolve(name).addresses[0], 80)
            record = net.gateway.wait_record(reason="upstream-proxy", names=[name], verdict="deny")
            assert "asks for a user name and password (407)" in record["text"], record
        assert len([r for r in net.gateway.find(kind="note") if "407" in r["text"]]) == 1
        proxy.close()
    with lab(allow=["*.example.org"], upstream_proxy=upstream(authorization="Basic dXNlcjpzZWNyZXQ=")) as net:
        populate(net)
        only_the_proxy(net)
        proxy = Proxy(net, "BasicAuth user secret")
        assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")
        assert not [r for r in net.gateway.records if "secret" in str(r) or "dXNlcj" in str(r)]
        assert not [head for head in net.requests if b"dXNlcj" in head]
        proxy.close()


def test_what_the_proxy_refuses_is_refused_and_recorded():
    with lab(allow=["*.example.org"], upstream_proxy=upstream()) as net:
        populate(net)
        only_the_proxy(net)
        proxy = Proxy(net, "ConnectPort 80")
        [address] = net.resolve("www.example.org").addresses
        refused(net, address, 7)
        record = net.gateway.wait_record(reason="upstream-proxy", port=7, verdict="deny")
        assert "proxy.example.org:3128 answered 403" in record["text"] and record["names"] == ["www.example.org"]
        assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")
        refused(net, net.resolve("no-such-name.example.org").addresses[0], 80, within=20)
        assert "answered 5" in net.gateway.wait_record(names=["no-such-name.example.org"], reason="upstream-proxy")["text"]
        proxy.close()


def test_a_proxy_that_is_down_is_a_refusal_at_once_and_its_other_address_is_tried():
    with lab(allow=["*.example.org"], upstream_proxy=upstream()) as net:
        populate(net)
        only_the_proxy(net)
        refused(net, net.resolve("www.example.org").addresses[0], 80)
        assert "cannot be reached: Connection refused" in net.gateway.wait_record(reason="upstream-proxy")["text"]
        proxy = Proxy(net)
        assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")  # the control
        proxy.close()
    with lab(allow=["*.example.org"], upstream_proxy=upstream(addresses=["2001:db8::1", OTHER, PROXY])) as net:
        populate(net)
        proxy = Proxy(net)
        assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")
        proxy.close()


ANSWERS = {
    "nonsense": (lambda c: c.sendall(b"SSH-2.0-OpenSSH\r\n"), "not HTTP"),
    "endless": (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\nA: " + b"a" * (1 << 20)), "not HTTP"),
    "silent end": (lambda c: None, "without an answer"),
    "cut": (lambda c: c.sendall(b"HTTP/1.1 200 OK\r\n"), "without an answer"),
}


def test_what_a_broken_proxy_says_is_survived():
    with lab(allow=["*.example.org"], upstream_proxy=upstream()) as net:
        populate(net)
        answer = []

        def serve(connection):
            read_head(connection)
            answer[0](connection)

        net.serve(PROXY, PORT, serve)
        for number, (call, words) in enumerate(ANSWERS.values()):
            answer[:] = [call]
            name = f"n{number}.example.org"
            refused(net, net.resolve(name).addresses[0], 80)
            assert words in net.gateway.wait_record(names=[name], reason="upstream-proxy", verdict="deny")["text"]

        def slowly(connection):
            for byte in b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n220 hello":
                connection.sendall(bytes([byte]))

        answer[:] = [slowly]  # the control: odd, and right
        [address] = net.resolve("mail.example.org").addresses
        with net.connect(address, 25, timeout=10) as s:
            assert read_all(s) == b"220 hello"
        net.gateway.wait_stats(lambda stats: stats["tcp_sessions"] == 0 and stats["tcp_connecting"] == 0)


def test_what_no_proxy_names_goes_around_it():
    with lab(allow=["*.example.org", "45.80.0.11:7"], upstream_proxy=upstream(no_proxy="www.example.org, 45.80.0.11/32")) as net:
        populate(net)
        proxy, street = Proxy(net), Street(net)
        assert net.resolve("www.example.org").addresses == [SERVER]
        assert get(net, "www.example.org").startswith(b"HTTP/1.1 200")
        net.connect(OTHER, 7).close()
        assert proxy.asked() == []
        assert street.seen() == {(17, RESOLVER, 53), (6, SERVER, 80), (6, OTHER, 7)}
        assert "text" not in net.gateway.wait_record(proto="tcp", address=SERVER, verdict="allow")
        assert get(net, "other.example.org").startswith(b"HTTP/1.1 200")
        assert proxy.asked() == ["CONNECT other.example.org:80"]
        proxy.close()


# ---- a proxy that the guest itself uses ----

@pytest.fixture(scope="module")
def guests_proxy():
    with lab(allow=[f"proxy/{PROXY}:{PORT}", "www.example.org:80", f"{OTHER}:7"]) as it:
        populate(it)
        it.proxy = Proxy(it)
        yield it
        it.proxy.close()


def ask(net, head, *after):
    with net.connect(PROXY, PORT) as s:
        s.settimeout(10)
        s.sendall(head.encode())
        answers = [read_head(s)]
        for more in after:
            s.sendall(more)
            answers.append(read_head(s))
        return answers


def test_the_guest_uses_an_allowed_proxy_in_absolute_form(guests_proxy):
    [answer] = ask(guests_proxy, "GET http://www.example.org/ HTTP/1.1\r\nHost: www.example.org\r\n\r\n")
    assert answer.split(b"\r\n")[0].endswith(b"200 OK")
    asked = guests_proxy.proxy.asked()
    for url, host in (("http://hidden.example.com/", "hidden.example.com"), ("http://www.example.org:81/", "www.example.org:81"),
                      (f"http://{SERVER}/", SERVER)):
        [answer] = ask(guests_proxy, f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403"), (url, answer)
    assert guests_proxy.proxy.asked() == asked


def test_the_guest_uses_an_allowed_proxy_by_connect_and_the_tunnel_stays_judged(guests_proxy):
    inside = b"GET / HTTP/1.1\r\nHost: %s\r\n\r\n"
    answers = ask(guests_proxy, "CONNECT www.example.org:80 HTTP/1.1\r\nHost: www.example.org:80\r\n\r\n",
                  inside % b"www.example.org", inside % b"hidden.example.com")
    assert [a.split()[1] for a in answers] == [b"200", b"200", b"403"], answers
    asked = guests_proxy.proxy.asked()
    assert "CONNECT www.example.org:80" in asked
    for target in ("hidden.example.com:80", "www.example.org:443", f"{SERVER}:80", "host.internal:80"):
        [answer] = ask(guests_proxy, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403"), (target, answer)
    assert guests_proxy.proxy.asked() == asked
    [answer] = ask(guests_proxy, f"CONNECT {OTHER}:7 HTTP/1.1\r\nHost: {OTHER}:7\r\n\r\n")
    assert answer.split()[1] == b"200"


def test_a_proxy_without_its_rule_is_no_way_to_anywhere():
    with lab(allow=[f"{PROXY}:{PORT}", "www.example.org"]) as net:
        populate(net)
        proxy = Proxy(net)
        [answer] = ask(net, "CONNECT www.example.org:80 HTTP/1.1\r\nHost: www.example.org:80\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403")
        assert proxy.asked() == []
        proxy.close()

"""Each gate refuses what it must, at once and audibly, beside the same thing allowed."""
import contextlib
import errno
import os
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from netlab import GATEWAY_IP, Reply, TcpServer, UdpServer, build_query, lab, read_exactly

SERVER, OTHER = "45.80.0.10", "45.80.0.11"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=www.example.org", "-keyout", folder / "key", "-out", folder / "cert"], check=True,
                   capture_output=True)
    return folder


@pytest.fixture(scope="module")
def net(certificate):
    with lab(allow=["www.example.org", "*.cdn.example.net:443", "only443.example.org:443", "udp/45.80.0.10:9000",
                    "udp/45.80.0.10:443", "host.internal:8123"],
             deny=["ads.cdn.example.net"]) as it:
        it.add_address(SERVER)
        it.add_address(OTHER)
        it.dns.zone.update({name: [SERVER] for name in (
            "www.example.org", "a.cdn.example.net", "ads.cdn.example.net", "hidden.example.com", "only443.example.org")})
        it.dns.zone["private.cdn.example.net"] = ["10.1.2.3"]
        it.hellos = []

        def tls(connection):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "cert", certificate / "key")
            it.hellos.append(connection.recv(5, socket.MSG_PEEK))
            with context.wrap_socket(connection, server_side=True) as s:
                s.sendall(b"hello over TLS")

        def http(connection):
            while head := read_head(connection):
                it.requests.append(head)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        it.requests = []
        for address in (SERVER, OTHER):
            it.serve(address, 443, tls)
            it.serve(address, 80, http)
        it.resolve("www.example.org")
        it.resolve("a.cdn.example.net")
        yield it


def read_head(connection):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        block = connection.recv(1)
        if not block:
            return b""
        head += block
    return head


def quickly(seconds=1.0):
    class Timer:
        def __enter__(self):
            self.begin = time.monotonic()

        def __exit__(self, *_):
            assert time.monotonic() - self.begin < seconds
    return Timer()


TCP, UDP = socket.SOCK_STREAM, socket.SOCK_DGRAM


@contextlib.contextmanager
def answering(net, port, *kinds):
    """Servers that answer the host itself: without them a closed port would refuse as a gate does."""
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            server = TcpServer(net.world, SERVER, port, lambda c: c.sendall(b"x")) if kind == TCP else UdpServer(
                net.world, SERVER, port, lambda data: data)
            stack.callback(server.close)
            with net.host.socket(socket.AF_INET, kind) as s:
                s.settimeout(5)
                s.connect((SERVER, port))
                s.send(b"x")
                assert s.recv(10) == b"x"
        yield


# ---- gate 1 ----

@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_an_allowed_name_resolves(net, tcp):
    assert net.resolve("www.example.org", tcp=tcp).addresses == [SERVER]


@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
@pytest.mark.parametrize("qtype", [1, 28, 16, 65, 255, 2, 15])
def test_a_denied_name_is_refused_for_every_type_and_never_sent_upstream(net, qtype, tcp):
    with quickly():
        reply = net.resolve("hidden.example.com", qtype=qtype, tcp=tcp)
    assert reply.rcode == 3
    assert reply.ede and "hidden.example.com" in reply.ede[1]
    assert not [q for q in net.dns.log if "hidden" in q[0]]


def test_queries_are_pipelined_on_one_connection(net):
    names = ["www.example.org", "hidden.example.com"] * 50
    with net.guest.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.settimeout(5)
        s.connect((GATEWAY_IP, 53))
        s.sendall(b"".join(struct.pack(">H", len(q)) + q for q in (build_query(n, ident=i) for i, n in enumerate(names))))
        replies = {}
        for _ in names:
            reply = Reply(read_exactly(s, struct.unpack(">H", read_exactly(s, 2))[0]))
            replies[reply.ident] = reply.rcode
    assert replies == {i: 0 if i % 2 == 0 else 3 for i in range(len(names))}


def test_a_name_that_resolves_to_private_space_is_refused(net):
    reply = net.resolve("private.cdn.example.net")
    assert reply.addresses == []
    assert net.gateway.wait_record(proto="dns", reason="rebinding")


@pytest.mark.parametrize("port", [53, 853, 5353, 5355])
def test_other_resolvers_are_refused_at_once(net, port):
    with answering(net, port, TCP, UDP):
        with quickly(), pytest.raises(ConnectionRefusedError):
            net.connect(SERVER, port)
        assert udp_error(net, port) == errno.EHOSTUNREACH


def udp_error(net, port):
    with net.guest.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, quickly():
        s.settimeout(3)
        s.connect((SERVER, port))
        s.send(b"\0" * 20)
        with pytest.raises(OSError) as error:
            s.recv(10)
        return error.value.errno


# ---- gate 2 ----

def test_an_address_nobody_vouched_for_is_refused(net):
    with quickly(), pytest.raises(ConnectionRefusedError):
        net.connect(OTHER, 443)
    assert net.gateway.wait_record(address=OTHER, port=443, verdict="deny")["reason"] == "unresolved-address"


# ---- gate 4 ----

def tls_hello(net, name, address=SERVER, pieces=False):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with net.connect(address, 443) as s:
        def flush():
            data = outgoing.read()
            for i in range(0, len(data), 7 if pieces else max(1, len(data))):
                s.sendall(data[i:i + 7] if pieces else data)

        def step(call):
            while True:
                try:
                    result = call()
                    flush()
                    return result
                except ssl.SSLWantReadError:
                    flush()
                    block = s.recv(65536)
                    if not block:
                        incoming.write_eof()
                    incoming.write(block)
        step(client.do_handshake)
        return step(lambda: client.read(100))


def test_an_allowed_server_name_passes(net):
    assert tls_hello(net, "www.example.org") == b"hello over TLS"
    assert net.gateway.wait_record(proto="tls", sni="www.example.org", verdict="allow")


def test_a_hello_in_many_segments_passes(net):
    assert tls_hello(net, "a.cdn.example.net", pieces=True) == b"hello over TLS"


@pytest.mark.parametrize("name", ["hidden.example.com", "ads.cdn.example.net", "b.cdn.example.net"])
def test_another_server_name_gets_an_alert_and_the_server_sees_nothing(net, name):
    before = len(net.hellos)
    with quickly(), pytest.raises(ssl.SSLError) as error:
        tls_hello(net, name)
    assert "ALERT" in str(error.value).upper()
    assert net.gateway.wait_record(sni=name, verdict="deny")
    tls_hello(net, "www.example.org")  # the control, and later than anything of the other connection
    assert len([h for h in net.hellos[before:] if h]) == 1


def http(net, *hosts, port=80):
    """Sends one request per host on one connection; returns status and body of each answer."""
    answers = []
    with net.connect(SERVER, port) as s:
        for host in hosts:
            s.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head = read_head(s).decode()
            length = int(head.lower().split("content-length:")[1].split()[0])
            answers.append((int(head.split()[1]), read_exactly(s, length).decode()))
    return answers


def test_an_allowed_host_passes(net):
    assert http(net, "www.example.org") == [(200, "ok")]


def test_a_denied_host_gets_a_403_that_says_how_to_allow_it(net):
    with quickly():
        [(status, body)] = http(net, "hidden.example.com")
    assert status == 403
    assert "hidden.example.com" in body and "--allow" in body
    assert net.gateway.wait_record(proto="http", host="hidden.example.com", verdict="deny")


def test_every_request_of_a_connection_is_judged(net):
    before = len(net.requests)
    answers = http(net, "www.example.org", "www.example.org", "hidden.example.com")
    assert [status for status, _ in answers] == [200, 200, 403]
    assert len(net.requests) - before == 2


# ---- UDP and echo ----

def test_udp_passes_with_a_rule_that_names_it_also_in_fragments(net):
    server = UdpServer(net.world, SERVER, 9000, lambda data: data[::-1])
    with net.guest.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((SERVER, 9000))
        for size in (0, 1, 1472, 1473, 20_000, 60_000):
            data = os.urandom(size)
            s.send(data)
            assert s.recv(65536) == data[::-1], size
    server.close()


@pytest.mark.parametrize("port, expected", [(443, errno.ECONNREFUSED), (9001, errno.EHOSTUNREACH)])
def test_other_udp_is_refused_within_one_round_trip(net, port, expected):
    with answering(net, port, UDP):
        assert udp_error(net, port) == expected


def ping(net, address):
    return net.guest.run("ping", "-n", "-c", "1", "-W", "2", address, check=False)


def test_echo_follows_the_rules(net):
    assert ping(net, SERVER).returncode == 0, "www.example.org is allowed on every port, and so for echo"
    with quickly():
        denied = ping(net, OTHER)
    assert denied.returncode != 0 and "filtered" in denied.stdout.lower()


# ---- the host ----

def test_host_internal_reaches_the_hosts_loopback_on_its_port_only(net):
    listener, other = (net.host.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(2))
    for s, port in ((listener, 8123), (other, 8124)):  # both are there; one is allowed
        s.bind(("127.0.0.1", port))
        s.listen()
    threading.Thread(target=lambda: listener.accept()[0].sendall(b"from the host"), daemon=True).start()
    [address] = net.resolve("host.internal").addresses
    assert address == GATEWAY_IP
    with net.connect(address, 8123) as s:
        assert s.recv(100) == b"from the host"
    with pytest.raises(ConnectionRefusedError):
        net.connect(address, 8124)
    listener.close()
    other.close()


def test_the_gateway_serves_nothing_else_to_the_guest(net):
    for port in (1, 22, 67, 80, 443, 8080):
        with pytest.raises(ConnectionRefusedError):
            net.connect(GATEWAY_IP, port)


# ---- control ----

def test_a_replaced_policy_ends_the_flows_that_it_forbids():
    with lab(allow=["45.80.0.10:7000", "45.80.0.10:7001"]) as net:
        net.add_address(SERVER)
        for port in (7000, 7001):
            net.serve(SERVER, port, lambda c: c.sendall(read_exactly(c, 4)))
        kept, cut = net.connect(SERVER, 7000), net.connect(SERVER, 7001)
        assert "error" in net.gateway.ask(op="policy", allow=["*.*"], deny=[]), "a bad policy changes nothing"
        assert net.gateway.stats()["tcp_sessions"] == 2
        assert net.gateway.ask(op="policy", allow=["45.80.0.10:7000"], deny=[]) == {"done": True}
        with pytest.raises(ConnectionResetError):
            cut.recv(1)
        kept.sendall(b"\0abc")
        assert read_exactly(kept, 4) == b"\0abc"
        with pytest.raises(ConnectionRefusedError):
            net.connect(SERVER, 7001)


def test_resolvers_may_change_and_failures_are_told():
    with lab(allow=["www.example.org"], resolvers=[]) as net:
        net.dns.zone["www.example.org"] = [SERVER]
        assert net.resolve("www.example.org").rcode == 2
        assert net.gateway.ask(op="resolvers", resolvers=["45.80.0.2"]) == {"done": True}
        assert net.resolve("www.example.org").addresses == [SERVER]
        assert "error" in net.gateway.ask(op="no-such-thing")


def test_a_wrong_configuration_is_an_error_that_names_what_is_wrong():
    with pytest.raises(AssertionError, match="gateway configuration.*bad rule"):
        with lab(allow=["bad rule"]):
            pass

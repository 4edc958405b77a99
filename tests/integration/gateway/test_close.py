"""Connections begin and end for the guest as they would without a gateway."""
import errno
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from netlab import lab, read_all, read_exactly

SERVER = "45.80.0.10"
PORT = 7000
SILENT = "45.80.0.66"  # nobody answers there: not even ARP does, so the host itself would say unreachable; see below


@pytest.fixture(scope="module")
def net():
    with lab(allow=["45.80.0.0/24", "two.example.org"]) as it:
        it.add_address(SERVER)
        yield it


def connect_error(net, address, port, **kw):
    with pytest.raises(OSError) as error:
        net.connect(address, port, **kw)
    return error.value.errno


def test_guest_closes_its_half_first(net):
    def answer_at_the_end(connection):
        connection.sendall(str(len(read_all(connection))).encode())

    net.serve(SERVER, 7001, answer_at_the_end)
    with net.connect(SERVER, 7001) as s:
        s.sendall(b"\0" * 200_000)
        s.shutdown(socket.SHUT_WR)
        assert read_all(s) == b"200000"


def test_server_closes_its_half_first(net):
    received = []

    def finish_then_listen(connection):
        connection.sendall(b"done")
        connection.shutdown(socket.SHUT_WR)
        received.append(len(read_all(connection)))

    net.serve(SERVER, 7002, finish_then_listen)
    with net.connect(SERVER, 7002) as s:
        assert read_all(s) == b"done"
        time.sleep(0.2)
        s.sendall(b"\0" * 1_000_000)
    net.gateway.wait_stats(lambda st: st["tcp_sessions"] == 0)
    assert received == [1_000_000]


def test_refused_is_refused(net):
    assert connect_error(net, SERVER, 7999) == errno.ECONNREFUSED
    assert net.gateway.wait_record(kind="close", port=7999)["text"] == "refused by the host"


def test_unreachable_is_unreachable(net):
    net.host.ip("route", "add", "unreachable", "45.80.0.77/32")
    begin = time.monotonic()
    assert connect_error(net, "45.80.0.77", PORT) == errno.EHOSTUNREACH
    assert time.monotonic() - begin < 1


def test_a_server_that_resets_resets_the_guest_after_its_last_bytes(net):
    arrived = threading.Event()

    def send_and_reset(connection):
        read_exactly(connection, 1)
        connection.sendall(b"last words")
        arrived.wait(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    net.serve(SERVER, 7003, send_and_reset)
    with net.connect(SERVER, 7003) as s:
        s.sendall(b"\0")
        assert read_exactly(s, 10) == b"last words"
        arrived.set()
        with pytest.raises(ConnectionResetError):
            s.recv(1)


def test_a_guest_that_resets_resets_the_server(net):
    ended = []
    arrived, over = threading.Event(), threading.Event()

    def wait_for_reset(connection):
        read_exactly(connection, 5)
        arrived.set()
        try:
            connection.recv(1)
            ended.append("closed")
        except ConnectionResetError:
            ended.append("reset")
        over.set()

    net.serve(SERVER, 7004, wait_for_reset)
    s = net.connect(SERVER, 7004)
    s.sendall(b"\0abcd")
    assert arrived.wait(5)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    assert over.wait(5) and ended == ["reset"]


def test_a_black_hole_frees_the_client_for_its_next_address(net):
    """Neighbour entries are given by hand, so that SYNs really go out and nothing comes back."""
    for address in (SILENT, "45.80.0.67"):
        net.host.ip("neigh", "add", address, "lladdr", "02:00:00:00:00:99", "dev", "uplink")
    net.dns.zone["two.example.org"] = [SILENT, "45.80.0.67"]
    assert sorted(net.resolve("two.example.org").addresses) == [SILENT, "45.80.0.67"]
    begin = time.monotonic()
    assert connect_error(net, SILENT, PORT, timeout=20) == errno.EHOSTUNREACH
    assert 7 < time.monotonic() - begin < 10


def test_a_server_may_speak_first_on_any_port(net):
    net.serve(SERVER, 7005, lambda c: (c.sendall(b"SSH-2.0-test\r\n"), read_all(c)))
    with net.connect(SERVER, 7005) as s:
        assert s.recv(100) == b"SSH-2.0-test\r\n"


def test_two_thousand_short_connections_leave_nothing(net):
    def reverse(connection):
        connection.sendall(connection.recv(64)[::-1])
        read_all(connection)  # the guest closes first, so that no TIME_WAIT is left here

    net.serve(SERVER, 7006, reverse)
    net.gateway.wait_stats(lambda st: st["tcp_sessions"] == 0)
    before = net.gateway.descriptors()

    def one(number):
        text = b"\0%d" % number
        with net.connect(SERVER, 7006) as s:
            s.sendall(text)
            assert read_exactly(s, len(text)) == text[::-1]

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(one, range(2000)))
    net.gateway.wait_stats(lambda st: st["tcp_sessions"] == 0 and st["tcp_connecting"] == 0)
    assert net.gateway.descriptors() == before


def test_many_flows_at_once(net):
    release = threading.Event()

    def hold(connection):
        release.wait(30)
        connection.sendall(read_exactly(connection, 2))

    net.serve(SERVER, 7007, hold)
    sockets = []
    with ThreadPoolExecutor(32) as pool:
        sockets = list(pool.map(lambda _: net.connect(SERVER, 7007), range(500)))
    for number, s in enumerate(sockets):
        s.sendall(struct.pack(">BB", 0, number % 256))
    assert net.gateway.stats()["tcp_sessions"] >= 500
    release.set()
    for number, s in enumerate(sockets):
        assert read_exactly(s, 2) == struct.pack(">BB", 0, number % 256)
        s.close()


def test_at_most_64_connects_to_one_address_are_under_way():
    with lab(allow=["45.80.0.0/24"]) as net:  # its own records: no other test's may fill the second
        net.add_address(SERVER)
        check_connect_budget(net)


def check_connect_budget(net):
    net.host.ip("neigh", "replace", "45.80.0.68", "lladdr", "02:00:00:00:00:99", "dev", "uplink")
    sockets = [net.guest.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(80)]
    for s in sockets:
        s.setblocking(False)
        s.connect_ex(("45.80.0.68", PORT))
    net.gateway.wait_stats(lambda st: st["tcp_connecting"] == 64)
    net.gateway.wait_record(reason="flow-limit", address="45.80.0.68")
    for s in sockets:
        s.close()
    assert net.serve(SERVER, 7008, lambda c: c.sendall(b"x")) and net.connect(SERVER, 7008).recv(1) == b"x"


def test_600_connects_into_black_holes_do_not_hold_up_a_good_host():
    with lab(allow=["45.80.0.0/24"]) as net:
        net.add_address(SERVER)
        holes = [f"45.80.0.{100 + n}" for n in range(12)]
        for address in holes:
            net.host.ip("neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "dev", "uplink")
        sockets = [net.guest.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(600)]
        for number, s in enumerate(sockets):
            s.setblocking(False)
            s.connect_ex((holes[number % len(holes)], PORT))
        net.gateway.wait_stats(lambda st: st["tcp_connecting"] == 600)
        net.serve(SERVER, 7009, lambda c: c.sendall(b"x"))
        with net.connect(SERVER, 7009) as good:
            assert good.recv(1) == b"x"
        assert net.gateway.stats()["tcp_connecting"] == 600  # none of them has had to end for it
        for s in sockets:
            s.close()

"""A published port leads into the guest, and only what was published does."""
import contextlib
import os
import resource
import socket
import struct
import time

import pytest

from netlab import GATEWAY_IP, GUEST_IP, TcpServer, lab, read_all, read_exactly


@pytest.fixture()
def net():
    with lab() as it:
        it.listener = it.host.socket(socket.AF_INET, socket.SOCK_STREAM)
        it.listener.bind(("127.0.0.1", 0))
        it.listener.listen()
        it.port = it.listener.getsockname()[1]
        assert it.gateway.publish(it.listener, 80) == {"done": True}
        yield it
        it.listener.close()


def visit(net, where=None):
    s = net.host.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(10)
    s.connect(where or ("127.0.0.1", net.port))
    return s


def test_bytes_pass_both_ways_and_both_ends_close(net):
    net.servers.append(TcpServer(net.guest, GUEST_IP, 80, lambda c: c.sendall(read_all(c)[::-1])))
    data = bytes(range(256)) * 8000
    with visit(net) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        assert read_all(s) == data[::-1]
    net.gateway.wait_stats(lambda st: st["tcp_sessions"] == 0)
    assert net.gateway.wait_record(kind="close", rule="publish")["bytes"] == {"out": len(data), "in": len(data)}


def test_a_refused_first_attempt_poisons_nothing(net):
    with pytest.raises(ConnectionResetError), visit(net) as s:
        s.recv(1)
    net.servers.append(TcpServer(net.guest, GUEST_IP, 80, lambda c: c.sendall(b"now")))
    with visit(net) as s:
        assert read_exactly(s, 3) == b"now"


def test_a_guest_that_resets_resets_the_visitor(net):
    def reset(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    net.servers.append(TcpServer(net.guest, GUEST_IP, 80, reset))
    # The reset may arrive while connect() is still returning.
    with pytest.raises(ConnectionResetError), visit(net) as s:
        s.recv(1)


def test_two_listeners_lead_to_one_port_and_the_other_stays(net):
    def greet(connection):
        connection.sendall(b"now")
        connection.sendall(connection.recv(1))

    net.servers.append(TcpServer(net.guest, GUEST_IP, 80, greet))
    with net.host.socket(socket.AF_INET, socket.SOCK_STREAM) as second:
        second.bind(("127.0.0.2", 0))
        second.listen()
        assert "error" in net.gateway.publish(second, 80), "an id is used once"
        assert net.gateway.publish(second, 80, id=2) == {"done": True}
        with visit(net) as one, visit(net, second.getsockname()) as two:
            assert read_exactly(one, 3) == read_exactly(two, 3) == b"now"
            assert net.gateway.ask(op="unpublish", id=2) == {"done": True}
            with pytest.raises(ConnectionResetError):
                two.recv(1)
            one.sendall(b"x")
            assert read_exactly(one, 1) == b"x"


def test_200_visitors_at_once_are_served_and_see_the_gateway_as_their_peer(net):
    peers = []

    def greet(connection):
        peers.append(connection.getpeername()[0])
        connection.sendall(connection.recv(100))

    net.servers.append(TcpServer(net.guest, GUEST_IP, 80, greet))
    net.listener.listen(1024)
    with contextlib.ExitStack() as stack:
        visitors = [stack.enter_context(visit(net)) for _ in range(200)]
        for number, s in enumerate(visitors):
            s.sendall(b"%d" % number)
        assert [s.recv(100) for s in visitors] == [b"%d" % number for number in range(200)]
    assert set(peers) == {GATEWAY_IP} and len(peers) == 200


def test_unpublished_is_unreachable(net):
    assert net.gateway.ask(op="unpublish", id=1) == {"done": True}
    assert "error" in net.gateway.ask(op="unpublish", id=1)
    before = net.gateway.stats()["tcp"]["segments_out"]
    with visit(net) as s:
        s.settimeout(0.3)
        with pytest.raises(OSError):
            s.recv(1)
    time.sleep(0.1)
    assert net.gateway.stats()["tcp"]["segments_out"] == before


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_descriptors_a_visitor_waits_and_nothing_spins(net):
    net.servers.append(TcpServer(net.guest, GUEST_IP, 80, lambda c: c.sendall(b"now")))
    pid = net.gateway.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    before = cpu_seconds(pid)
    with visit(net) as s:
        s.settimeout(1)
        with pytest.raises(TimeoutError):
            s.recv(1)
        assert cpu_seconds(pid) - before < 0.3
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        s.settimeout(10)
        assert read_exactly(s, 3) == b"now"

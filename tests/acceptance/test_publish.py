"""Contract row N13: nothing leads into a sandbox but what -p publishes, and the gateway serves the guest no control."""

import json
import re
import subprocess

import pytest

from harness import Running

# Inside: waits for a line on stdin before it listens, so that a port can be published, and visited, before there is a server.
# It answers each connection with its own peer's address and echoes one line.
SERVER = r'''
import socket, socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write((self.client_address[0] + "\n").encode())
        self.wfile.write(self.rfile.readline())
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address, request_queue_size, daemon_threads = True, 1024, True
print("up", flush=True)
for line in sys.stdin:
    port = int(line)
    server = Server(("0.0.0.0", port), Echo)
    import threading
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("listening", port, flush=True)
'''


class Inside(Running):
    """A sandbox with that server, which listens where it is told to."""

    def __init__(self, machine, *flags):
        super().__init__(machine, f"python3 -c '{SERVER}'", *flags)

    def listen(self, port):
        self.process.stdin.write(f"{port}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == f"listening {port}\n"


@pytest.fixture(scope="module")
def inside(machine):
    with Inside(machine, "-p", "8080", "-p", "18080:8081") as it:
        yield it


def ports(machine, name, *flags):
    result = machine.sandbox("ports", "--json", name, *flags)
    assert result.status == 0, result
    return json.loads(result.out)


def host_port(machine, name, guest):
    return next(p["port"] for p in ports(machine, name) if p["guest"] == guest)


def visit(machine, port, text="hello\n", address="127.0.0.1", timeout=20):
    """What the server said to one visitor in the host's namespace: its lines, or the error's name."""
    source = f"""
import socket
try:
    s = socket.create_connection(({address!r}, {port}), {timeout})
    s.sendall({text.encode()!r})
    data = b""
    while block := s.recv(1000):
        data += block
    print(data.decode().split())
except OSError as error:
    print([type(error).__name__])
"""
    return eval(machine.in_host(["/usr/bin/python3", "-c", source], capture_output=True, text=True, check=True).stdout)


def test_N13_a_port_may_be_published_and_visited_before_its_server_listens(machine, inside):
    port = host_port(machine, inside.name, 8080)
    assert visit(machine, port) == ["ConnectionResetError"]
    inside.listen(8080)
    assert visit(machine, port) == ["192.0.0.1", "hello"], "the guest sees the gateway as its peer"
    notes = [r["text"] for r in machine.decisions(inside.name) if r.get("kind") == "note"]
    assert "published 127.0.0.1:18080 -> 8081, at its start" in notes, notes


def test_N13_what_is_not_published_is_refused_although_it_listens(machine, inside):
    inside.listen(8082)
    assert visit(machine, 8082) == ["ConnectionRefusedError"]
    ports(machine, inside.name, "--publish", "18082:8082")
    assert visit(machine, 18082) == ["192.0.0.1", "hello"]


def test_N13_a_port_is_open_on_loopback_alone_unless_an_address_is_given(machine, inside):
    inside.listen(8083)
    ports(machine, inside.name, "-p", "18083:8083")
    assert visit(machine, 18083) == ["192.0.0.1", "hello"]
    assert visit(machine, 18083, address="50.50.50.1") == ["ConnectionRefusedError"]
    assert visit(machine, 18083, address="::1") == ["ConnectionRefusedError"]
    ports(machine, inside.name, "-p", "50.50.50.1:18083:8083", "-p", "[::1]:18083:8083")
    for address in ("127.0.0.1", "50.50.50.1", "::1"):
        assert visit(machine, 18083, address=address) == ["192.0.0.1", "hello"], address
    for address in ("127.0.0.1", "50.50.50.1", "::1"):
        assert [p["address"] for p in ports(machine, inside.name) if p["guest"] == 8083].count(address) == 1


def test_N13_unpublishing_cuts_who_is_connected_and_frees_the_port(machine, inside):
    inside.listen(8084)
    ports(machine, inside.name, "-p", "18084:8084", "-p", "18085:8084")
    source = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 18084), 20)
print(s.recv(100).decode().strip(), flush=True)
try:
    print(s.recv(100))
except ConnectionResetError:
    print("reset")
"""
    visitor = subprocess.Popen(["ip", "netns", "exec", machine.host, "/usr/bin/python3", "-c", source], stdout=subprocess.PIPE, text=True)
    assert visitor.stdout.readline() == "192.0.0.1\n"
    left = ports(machine, inside.name, "--unpublish", "18084:8084")
    assert [p["port"] for p in left if p["guest"] == 8084] == [18085]
    assert visitor.communicate(timeout=20)[0] == "reset\n"
    assert visit(machine, 18084) == ["ConnectionRefusedError"]
    assert visit(machine, 18085) == ["192.0.0.1", "hello"], "the other one of that port stays"
    again = machine.sandbox("ports", inside.name, "--unpublish", "18084:8084")
    assert again.status == 1 and "no such port is published" in again.err, again
    changed = [r["text"] for r in machine.decisions(inside.name) if r.get("kind") == "note" and "18084" in r["text"]]
    assert re.fullmatch(r"published 127\.0\.0\.1:18084 -> 8084, by uid \d+, pid \d+", changed[0]), changed
    assert changed[1].startswith("no longer published: 127.0.0.1:18084 -> 8084, by uid"), changed


def test_N13_two_hundred_visitors_at_once_are_served(machine, inside):
    inside.listen(8086)
    ports(machine, inside.name, "-p", "18086:8086")
    source = """
import socket
all = [socket.create_connection(("127.0.0.1", 18086), 60) for _ in range(200)]
for n, s in enumerate(all):
    s.sendall(b"%d\\n" % n)
def read(s):
    data = b""
    while block := s.recv(1000):
        data += block
    return data
print(sum(read(s) == b"192.0.0.1\\n%d\\n" % n for n, s in enumerate(all)))
"""
    done = machine.in_host(["/usr/bin/python3", "-c", source], capture_output=True, text=True, timeout=100)
    assert done.stdout == "200\n", done


def test_N13_a_taken_port_is_an_error_that_names_it_and_changes_nothing(machine, inside):
    before = ports(machine, inside.name)
    result = machine.sandbox("ports", inside.name, "-p", "18099:99", "-p", "18080:99")
    assert result.status == 1, result
    assert "port 18080 of 127.0.0.1 is in use already" in result.err and "hint:" in result.err, result
    assert ports(machine, inside.name) == before
    result = machine.run("true", "-p", "18080:8080")
    assert result.status == 125 and "port 18080 of 127.0.0.1 is in use already" in result.err, result
    result = machine.run("true", "-p", "192.0.2.1:18080:8080")
    assert result.status == 125 and "192.0.2.1 is no address of this host" in result.err, result


def test_N13_the_gateway_offers_the_guest_no_control(machine):
    probe = """
import json, socket
accepted = []
for port in [*range(1, 1100), 2375, 3128, 5000, 8000, 8080, 8443, 9000, 18080, 49152, 65535]:
    s = socket.socket()
    s.settimeout(5)
    try:
        s.connect(("192.0.0.1", port))
        s.sendall(b'POST /publish HTTP/1.1\\r\\nHost: 192.0.0.1\\r\\nContent-Length: 27\\r\\n\\r\\n{"op":"publish","port":80}\\n')
        accepted.append([port, s.recv(100).decode("latin1")])
    except ConnectionRefusedError:
        pass
    except OSError as error:
        accepted.append([port, type(error).__name__])
    s.close()
print(json.dumps(accepted))
"""
    result = machine.python(probe, "-p", "18090:8080")
    # Port 53 takes names and nothing else: what is no DNS message ends the connection.
    assert [port for port, _ in json.loads(result.out)] == [53], result
    control = machine.python(probe.replace("192.0.0.1", "127.0.0.1").replace("import json, socket", """
import json, socket, threading
server = socket.create_server(("127.0.0.1", 8080))
threading.Thread(target=lambda: server.accept()[0].sendall(b"here"), daemon=True).start()
"""))
    assert json.loads(control.out) == [[8080, "here"]], control


def test_N13_a_sandbox_that_does_not_run_is_said_to(machine):
    missing = machine.sandbox("ports", "no-such-sandbox")
    assert missing.status == 1 and "there is no sandbox 'no-such-sandbox'" in missing.err, missing
    with Running(machine) as it:
        assert ports(machine, it.name) == []
        socket_path = it.dir / "control"
        assert socket_path.is_socket() and socket_path.stat().st_mode & 0o777 == 0o600
        it.process.kill()
        assert it.gone()
    ended = machine.sandbox("ports", it.name)
    assert ended.status == 1 and f"sandbox '{it.name}' is not running" in ended.err and "hint:" in ended.err, ended

"""What a probe inside a sandbox is written with. Sent to the guest in front of the probe; needs only Python's own library.

Every helper answers with data instead of raising, so that one machine can make many probes: a refusal is the errno's name or the
text of the error. `timed` adds how long it took.
"""

import errno
import json
import os
import socket
import ssl
import struct
import subprocess
import time

GATEWAY, GUEST = "192.0.0.1", "192.0.0.2"
GOOD, OTHER, RESOLVER = "50.50.50.10", "50.50.50.11", "50.50.50.53"  # good.test, other.test, their name server
CA = os.environ.get("PROBE_CA", "/ca.pem")


def timed(call, *args, **kwargs):
    begin = time.monotonic()
    return [attempt(call, *args, **kwargs), round(time.monotonic() - begin, 3)]


def attempt(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except socket.timeout:
        return "timeout"
    except ssl.SSLError as e:
        return str(e)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e)) if e.errno and e.errno > 0 else str(e)


def report(**results):
    print(json.dumps(results))


# --- names ------------------------------------------------------------------------------------------------------------------


def wire_name(name):
    """A name in its wire form; labels may hold any byte: "\\x00" in the text is a NUL, and "|" stands for a dot inside a label."""
    labels = [part.replace("|", ".").encode("latin-1") for part in name.split(".")] if name else []
    return b"".join(bytes([len(part)]) + part for part in labels) + b"\0"


def query(name, qtype=1, ident=7, qclass=1, flags=0x100):
    return struct.pack(">HHHHHH", ident, flags, 1, 0, 0, 0) + wire_name(name) + struct.pack(">HH", qtype, qclass)


def exchange(message, server=GATEWAY, port=53, tcp=False):
    """The reply to a DNS message, bytes."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((server, port))
        s.sendall(struct.pack(">H", len(message)) + message if tcp else message)
        return framed(s) if tcp else s.recv(65536)


def framed(stream):
    """One message of DNS over TCP or TLS."""
    data = b""
    while len(data) < 2 or len(data) < 2 + struct.unpack(">H", data[:2])[0]:
        block = stream.recv(65536)
        if not block:
            raise OSError("closed")
        data += block
    return data[2:]


def dns(name, qtype=1, server=GATEWAY, port=53, tcp=False):
    """[rcode, addresses] of a query made by hand."""
    reply = exchange(query(name, qtype), server, port, tcp)
    return [reply[3] & 15, addresses(reply)]


def records(reply):
    """[type, rdata in hex] of every record of a reply, of all its sections."""
    def skip(at):
        while reply[at] and reply[at] < 0xC0:
            at += 1 + reply[at]
        return at + (2 if reply[at] else 1)

    questions, *counts = struct.unpack(">HHHH", reply[4:12])
    found, at = [], 12
    for _ in range(questions):
        at = skip(at) + 4
    for _ in range(sum(counts)):
        at = skip(at)
        kind, _, _, size = struct.unpack(">HHIH", reply[at : at + 10])
        found.append([kind, reply[at + 10 : at + 10 + size].hex()])
        at += 10 + size
    return found


def addresses(reply):
    return [socket.inet_ntoa(bytes.fromhex(data)) for kind, data in records(reply) if kind == 1]


def dot(address, name, port=853):
    """DNS over TLS by address, as a program with its own resolver does it."""
    with unverified().wrap_socket(socket.create_connection((address, port), 5)) as s:
        message = query(name)
        s.sendall(struct.pack(">H", len(message)) + message)
        return addresses(framed(s))


def doh(address, name, sni=None, port=443):
    """DNS over HTTPS by address."""
    with unverified().wrap_socket(socket.create_connection((address, port), 5), server_hostname=sni) as s:
        message = query(name)
        s.sendall(f"POST /dns-query HTTP/1.1\r\nHost: {sni or address}\r\nContent-Type: application/dns-message\r\n"
                  f"Content-Length: {len(message)}\r\nConnection: close\r\n\r\n".encode() + message)
        return addresses(to_end(s).split(b"\r\n\r\n", 1)[1])


def unverified():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


# --- streams and datagrams --------------------------------------------------------------------------------------------------


def tcp(address, port, send=b"", source=None):
    """What comes back: text, "" for an end without a word, or the refusal."""
    with socket.create_connection((address, port), 5, source_address=source) as s:
        if send:
            s.sendall(send)
        return s.recv(4096).decode("latin-1") if send else "connected"


def tcp6(address, port):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.settimeout(5)
        scope = socket.if_nametoindex("eth0") if address.startswith("fe80:") else 0
        s.connect((address, port, 0, scope))
        return "connected"


def to_end(stream):
    data = b""
    while block := stream.recv(65536):
        data += block
    return data


def talk(address, port, *pieces):
    """What comes back until the end, when each piece is a segment of its own. A reset after an answer does not take it back."""
    answer = b""
    with socket.create_connection((address, port), 5) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                s.sendall(piece if isinstance(piece, bytes) else piece.encode("latin-1"))
            while block := s.recv(65536):
                answer += block
        except ConnectionError:
            if not answer:
                raise
    return answer.decode("latin-1")


def udp(address, port, data=b"x", source=None):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        if source:
            s.bind(source)
        s.connect((address, port))
        s.send(data)
        return len(s.recv(65536))


def http(address, hosts, port=80):
    """[status, body] for each of several requests on one connection; ends early when the server does."""
    answers = []
    with socket.create_connection((address, port), 5) as s:
        f = s.makefile("rb")
        for host in hosts:
            s.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            status = f.readline()
            if not status:
                break
            length = 0
            while (line := f.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.append([int(status.split()[1]), f.read(length).decode()])
    return answers


def tls(address, sni, port=443, alter=None, cut=None, context=None, second=None):
    """The first line of GET / over TLS under `sni`, the certificate being verified against the CA of the test when sni is a
    name. `alter` may change the first flight (the ClientHello) on its way, `second` the next one, and `cut` says in which
    segments the first goes."""
    context = context or (ssl.create_default_context(cafile=CA) if sni else unverified())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=sni)
    changes = [alter, second]
    with socket.create_connection((address, port), 5) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def flush():
            data = outgoing.read()
            if not data:
                return
            change = changes.pop(0) if changes else None
            data = change(data) if change else data
            for piece in cut(data) if cut and len(changes) == 1 else [data]:
                s.sendall(piece)

        def step(call, *args):
            while True:
                try:
                    done = call(*args)
                except ssl.SSLWantReadError:
                    done = None
                flush()
                if done is not None:
                    return done
                block = s.recv(65536)
                if block:
                    incoming.write(block)
                else:
                    incoming.write_eof()

        step(lambda: client.do_handshake() or True)
        step(client.write, f"GET / HTTP/1.1\r\nHost: {sni}\r\n\r\n".encode())
        return step(client.read, 4096).split(b"\r\n")[0].decode()


def deliver(address, port, data):
    """Sends everything and hears the server out, so that all of it has arrived."""
    with socket.create_connection((address, port), 5) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        return to_end(s).decode("latin-1")


def tunnelled(address, port, target, sni):
    """TLS under `sni` in a tunnel that a proxy is asked for."""
    with socket.create_connection((address, port), 5) as s:
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        if b" 200 " not in s.recv(4096):
            return "refused"
        with unverified().wrap_socket(s, server_hostname=sni):
            return "established"


def in_segments(size):
    return lambda data: [data[at : at + size] for at in range(0, len(data), size)]


def in_records(size):
    """The handshake message of a flight, in records of so many bytes."""
    def alter(flight):
        length = struct.unpack(">H", flight[3:5])[0]
        message, rest = flight[5 : 5 + length], flight[5 + length :]
        return b"".join(flight[:3] + struct.pack(">H", len(message[at : at + size])) + message[at : at + size]
                        for at in range(0, len(message), size)) + rest

    return alter


def renamed(old, new):
    """Another name of the same length in a flight of the handshake."""
    assert len(old) == len(new)
    return lambda flight: flight.replace(old.encode(), new.encode())


def hello_of(sni):
    """A ClientHello as OpenSSL makes it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    attempt(unverified().wrap_bio(incoming, outgoing, server_hostname=sni).do_handshake)
    return outgoing.read()


def verbose(size):
    """A client whose hello has about so many bytes, all of them proper: a long list of protocols."""
    context = ssl.create_default_context(cafile=CA)
    context.set_alpn_protocols([f"{i:0>250}" for i in range(size // 251)])
    return context


def unfinished(address, port, ends):
    """Half a hello for good.test; what comes back until the end."""
    with socket.create_connection((address, port), 30) as s:
        hello = hello_of("good.test")
        s.sendall(hello[: len(hello) // 2])
        if ends:
            s.shutdown(socket.SHUT_WR)
        return to_end(s).decode("latin-1")


def hello_with(extension, data, at=0):
    """Adds an extension to a ClientHello that fills one record. The handshake cannot finish (the transcripts differ), but what
    happens to the hello shows. The record begins at `at`."""

    def alter(flight):
        before, record = flight[:at], flight[at:]
        body = record[9:]
        end = 34
        end += 1 + body[end]  # session id
        end += 2 + struct.unpack(">H", body[end : end + 2])[0]  # ciphers
        end += 1 + body[end]  # compression
        extensions = body[end + 2 :] + struct.pack(">HH", extension, len(data)) + data
        body = body[:end] + struct.pack(">H", len(extensions)) + extensions
        length = struct.pack(">I", len(body))[1:]
        return before + record[:3] + struct.pack(">H", len(body) + 4) + b"\x01" + length + body

    return alter


# --- raw frames, for root ---------------------------------------------------------------------------------------------------


def checksum(data):
    data += b"\0" * (len(data) & 1)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp_bytes(source, destination, port, payload, from_port=4000):
    head = struct.pack(">HHHH", from_port, port, 8 + len(payload), 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack(">BBH", 0, 17, 8 + len(payload))
    return head[:6] + struct.pack(">H", checksum(pseudo + head + payload) or 0xFFFF) + payload


def syn_bytes(source, destination, port, from_port=4001):
    head = struct.pack(">HHIIBBHHH", from_port, port, 1000, 0, 0x50, 2, 65535, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(destination) + struct.pack(">BBH", 0, 6, 20)
    return head[:16] + struct.pack(">H", checksum(pseudo + head)) + head[18:]


def icmp_bytes(kind, code, payload, ident=77):
    head = struct.pack(">BBHHH", kind, code, 0, ident, 1)
    return head[:2] + struct.pack(">H", checksum(head + payload)) + head[4:] + payload


def next_port(used=[20000]):
    """A source port that no packet of ours had before."""
    used[0] += 1
    return used[0]


def ipv4(destination, payload, protocol=17, source=GUEST, options=b"", ident=1, fragment=0):
    head = struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), ident, fragment, 64,
                       protocol, 0, socket.inet_aton(source), socket.inet_aton(destination)) + options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


class Frames:
    """Ethernet frames out of eth0, past the guest's own IP stack."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.socket.bind(("eth0", 0x0800))  # hears the answers, and not what is sent
        self.mac = self.socket.getsockname()[4]
        subprocess.run(["ping", "-c1", "-W1", GATEWAY], stdout=subprocess.DEVNULL)
        line = next(line for line in open("/proc/net/arp") if line.startswith(GATEWAY + " "))
        self.gateway = bytes.fromhex(line.split()[3].replace(":", ""))

    def send(self, payload, kind=0x0800, source=None, to=None, tag=b""):
        self.socket.send((to or self.gateway) + (source or self.mac) + tag + struct.pack(">H", kind) + payload)


ALL_PORTS = range(1, 65536)


def for_each_port(packet, at, checksum_at):
    """port → the packet with that port at `at`. Made from one with port 0, since a checksum made anew for each of 65535 would
    take an emulated machine minutes."""
    total = ~struct.unpack(">H", packet[checksum_at : checksum_at + 2])[0] & 0xFFFF
    before, between, behind = packet[:at], packet[at + 2 : checksum_at], packet[checksum_at + 2 :]

    def with_port(port):
        added = total + port
        added = (added & 0xFFFF) + (added >> 16)
        return before + port.to_bytes(2, "big") + between + (~added & 0xFFFF or 0xFFFF).to_bytes(2, "big") + behind

    return with_port


def scan(ports, packet_of, verdict_of):
    """Sends to every port, in batches, to the unanswered ones up to three times. Port → what the answer means."""
    frames, found = Frames(), {}
    head = frames.gateway + frames.mac + b"\x08\0"
    send, receive = frames.socket.send, frames.socket.recv
    frames.socket.settimeout(1)
    for _ in range(3):
        left = [port for port in ports if port not in found]
        for start in range(0, len(left), 64):
            waited = set(left[start : start + 64])
            for port in waited:
                send(head + packet_of(port))
            try:
                while waited:
                    port, verdict = verdict_of(receive(2048))
                    if port in waited:
                        found[port] = verdict
                        waited.discard(port)
            except socket.timeout:
                pass
    return found


def ports_with(found, verdict):
    return sorted(port for port, what in found.items() if what == verdict)


def scan_tcp(address, ports=ALL_PORTS):
    source = socket.inet_aton(address)

    def verdict_of(frame):
        if frame[23] != 6 or frame[26:30] != source:
            return None, None
        return int.from_bytes(frame[34:36], "big"), "closed" if frame[47] & 4 else "open"

    found = scan(ports, for_each_port(ipv4(address, syn_bytes(GUEST, address, 0, 30000), 6), 22, 36), verdict_of)
    return {"open": ports_with(found, "open"), "closed": len(ports_with(found, "closed")), "silent": [p for p in ports if p not in found]}


def scan_udp(address, ports=ALL_PORTS):
    source = socket.inet_aton(address)

    def verdict_of(frame):
        if frame[23] == 17 and frame[26:30] == source:
            return int.from_bytes(frame[34:36], "big"), "answered"
        if frame[23] == 1 and frame[34] == 3:  # the packet that it quotes begins 8 bytes later
            return int.from_bytes(frame[64:66], "big"), "refused"
        return None, None

    found = scan(ports, for_each_port(ipv4(address, udp_bytes(GUEST, address, 0, query("good.test"), 30001)), 22, 26), verdict_of)
    return {"answered": ports_with(found, "answered"), "refused": len(ports_with(found, "refused")), "silent": [p for p in ports if p not in found]}

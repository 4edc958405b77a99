"""What a probe inside a sandbox is written with. Sent to the guest in front of the probe; needs only Python's own library.

Every helper answers with data instead of raising, so that one machine can make many probes: a refusal is the errno's name or the
text of the error. `timed` adds how long it took.
"""

import errno
import json
import os  # noqa: F401, for the probes
import socket
import ssl
import struct
import subprocess
import time

GATEWAY, GUEST = "192.0.0.1", "192.0.0.2"


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


def query(name, qtype=1, ident=7):
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split("."))
    return struct.pack(">HHHHHH", ident, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", qtype, 1)


def dns(name, qtype=1, server=GATEWAY, port=53, tcp=False):
    """[rcode, addresses] of a query made by hand."""
    q = query(name, qtype)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.connect((server, port))
        s.send(struct.pack(">H", len(q)) + q if tcp else q)
        r = s.recv(4096)
        if tcp:
            r = r[2:] or s.recv(4096)
    return [r[3] & 15, addresses(r)]


def addresses(reply):
    def skip(at):
        while reply[at] and reply[at] < 0xC0:
            at += 1 + reply[at]
        return at + (2 if reply[at] else 1)

    found, at = [], skip(12) + 4
    for _ in range(struct.unpack(">H", reply[6:8])[0]):
        at = skip(at)
        kind, _, _, size = struct.unpack(">HHIH", reply[at : at + 10])
        at += 10
        if kind == 1:
            found.append(socket.inet_ntoa(reply[at : at + size]))
        at += size
    return found


# --- streams and datagrams --------------------------------------------------------------------------------------------------


def tcp(address, port, send=b"", source=None):
    """What comes back: text, "" for an end without a word, or the refusal."""
    with socket.create_connection((address, port), 5, source_address=source) as s:
        if send:
            s.sendall(send)
        return s.recv(4096).decode("latin-1") if send else "connected"


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


def tls(address, sni, port=443, alter=None):
    """The first line of GET / over TLS under `sni`, the certificate being verified against the CA of the test when sni is a
    name; `alter` may change the ClientHello on its way."""
    context = ssl.create_default_context(cafile="/ca.pem")
    if sni is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=sni)
    with socket.create_connection((address, port), 5) as s:
        first = True

        def step(call, *args):
            nonlocal first
            while True:
                try:
                    done = call(*args)
                except ssl.SSLWantReadError:
                    done = None
                data = outgoing.read()
                if data:
                    s.sendall(alter(data) if alter and first else data)
                    first = False
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


def hello_with(extension, data):
    """Adds an extension to a ClientHello that fills one record. The handshake cannot finish (the transcripts differ), but what
    happens to the hello shows."""

    def alter(record):
        body = record[9:]
        at = 34
        at += 1 + body[at]  # session id
        at += 2 + struct.unpack(">H", body[at : at + 2])[0]  # ciphers
        at += 1 + body[at]  # compression
        extensions = body[at + 2 :] + struct.pack(">HH", extension, len(data)) + data
        body = body[:at] + struct.pack(">H", len(extensions)) + extensions
        return record[:3] + struct.pack(">H", len(body) + 4) + b"\x01" + struct.pack(">I", len(body))[1:] + body

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


def ipv4(destination, payload, protocol=17, source=GUEST, options=b"", ident=1, fragment=0):
    head = struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), ident, fragment, 64,
                       protocol, 0, socket.inet_aton(source), socket.inet_aton(destination)) + options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


class Frames:
    """Ethernet frames out of eth0, past the guest's own IP stack."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)  # ETH_P_ALL, to hear the answers
        self.socket.bind(("eth0", 0x0003))
        self.mac = self.socket.getsockname()[4]
        subprocess.run(["ping", "-c1", "-W1", GATEWAY], stdout=subprocess.DEVNULL)
        line = next(line for line in open("/proc/net/arp") if line.startswith(GATEWAY + " "))
        self.gateway = bytes.fromhex(line.split()[3].replace(":", ""))

    def send(self, payload, kind=0x0800, source=None, to=None, tag=b""):
        self.socket.send((to or self.gateway) + (source or self.mac) + tag + struct.pack(">H", kind) + payload)

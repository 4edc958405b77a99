"""The name servers of the acceptance cases: an honest zone, and names that answer as an attacker's would.

Whoever runs the zone of an allowed name decides what it answers, so each of these is what a hostile server may say:

  *.at.test               the address in the first label: 10-1-2-3.at.test is 10.1.2.3
  *.mapped.test           an AAAA record with the address in IPv4-mapped form, whatever was asked
  *.six.test              an AAAA record with the address in hex, whatever was asked
  N.chain.test            N aliases in a row, the last of good.test
  a.loop.test             aliases in a circle; self.loop.test is its own
  flip.test               TTL 0, and by turns 50.50.50.10 and 10.99.0.10
  moving.test             TTL 0, and by turns 50.50.50.10 and 50.50.50.11
  two.test                two different aliases of one name
  stray.test              addresses of other owners, in every section
  chaos.test              its address in class CH
  parrot.test             an answer to another question
  many.test               sixty addresses, so that UDP is too small
  svc.test                HTTPS and SVCB records with hints, ECH and h3
"""

import socket
import socketserver
import struct
import threading

A, CNAME, TXT, AAAA, SVCB, HTTPS, ANY = 1, 5, 16, 28, 64, 65, 255

ZONE = {
    "good.test": ["50.50.50.10"],
    "www.good.test": ["50.50.50.10"],
    "sibling.test": ["50.50.50.10"],  # another name at the same address
    "other.test": ["50.50.50.11"],
    "private.test": ["10.99.0.10"],
    "loop.test": ["127.0.0.1"],
    "hostaddr.test": ["50.50.50.1"],  # an address of the machine that runs the sandbox
    "metadata.test": ["169.254.169.254"],
    "mixed.test": ["10.99.0.10", "50.50.50.10"],
    "api.corp.test": ["10.99.0.10"],
    **{name: ["50.50.50.20"] for name in ("open.test", "shut.test", "back.test")},  # tests/clients/servers.py
    "many.test": [f"50.50.51.{i}" for i in range(1, 61)],
}
ALIASES = {"alias.good.test": "good.test", "sneaky.good.test": "denied.test", "denied.test": "good.test",
           "a.loop.test": "b.loop.test", "b.loop.test": "a.loop.test", "self.loop.test": "self.loop.test"}
TURNS = {"flip.test": ["50.50.50.10", "10.99.0.10"], "moving.test": ["50.50.50.10", "50.50.50.11"]}


def encode_name(name):
    return b"".join(bytes([len(part)]) + part.encode("latin-1") for part in name.split(".")) + b"\0"


def record(owner, kind, data, ttl=60, rclass=1):
    return encode_name(owner) + struct.pack(">HHIH", kind, rclass, ttl, len(data)) + data


def alias(owner, target):
    return record(owner, CNAME, encode_name(target))


def address(owner, text, ttl=60, rclass=1):
    return record(owner, A, socket.inet_aton(text), ttl, rclass)


def service(owner, kind):
    parameters = [(1, b"\x02h2\x02h3"), (4, socket.inet_aton("50.50.50.11")), (5, b"\0\x08" + b"e" * 8), (6, b"\xfd" + b"\0" * 15)]
    return record(owner, kind, struct.pack(">H", 1) + b"\0" + b"".join(struct.pack(">HH", k, len(v)) + v for k, v in parameters))


class Names:
    """Decides what is answered. Reads and writes no socket."""

    def __init__(self):
        self.turn = {name: 0 for name in TURNS}
        self.lock = threading.Lock()

    def next_turn(self, name):
        with self.lock:
            self.turn[name] += 1
            return TURNS[name][(self.turn[name] - 1) % 2]

    def answers(self, name, qtype):
        """Records for a name: None where it does not exist."""
        first, _, parent = name.partition(".")
        wants_address = qtype in (A, ANY)
        if parent == "at.test":
            return [address(name, first.replace("-", "."))] if wants_address else []
        if parent == "mapped.test":
            return [record(name, AAAA, b"\0" * 10 + b"\xff\xff" + socket.inet_aton(first.replace("-", ".")))]
        if parent == "six.test":
            return [record(name, AAAA, bytes.fromhex(first))]
        if parent == "chain.test":
            target = "good.test" if first == "1" else f"{int(first) - 1}.chain.test"
            return [alias(name, target)] + self.answers(target, qtype)
        if name in TURNS:
            return [address(name, self.next_turn(name), ttl=0)] if wants_address else []
        if name == "two.test":
            return [alias(name, "good.test"), alias(name, "other.test"), address("good.test", "50.50.50.10"),
                    address("other.test", "50.50.50.11")]
        if name == "stray.test":
            return [address(name, "50.50.50.10"), address("other.test", "50.50.50.11"), address("good.test", "50.50.50.11")]
        if name == "chaos.test":
            return [address(name, "50.50.50.11", rclass=3)]
        if name == "svc.test":
            return [service(name, qtype)] if qtype in (SVCB, HTTPS) else [address(name, "50.50.50.10")] if wants_address else []
        return self.plain(name, qtype)

    def plain(self, name, qtype):
        found, followed = [], set()
        while name in ALIASES and name not in followed:
            found.append(alias(name, ALIASES[name]))
            followed.add(name)
            name = ALIASES[name]
        if name not in ZONE:
            return found or None
        if qtype in (A, ANY):
            found += [address(name, text) for text in ZONE[name]]
        if qtype in (TXT, ANY):
            found.append(record(name, TXT, b"\x05hello"))
        return found

    def beside(self, name):
        """Records of the authority section and of the additional one."""
        if name != "stray.test":
            return [], []
        return [record(name, 2, encode_name("ns.other.test"))], [address("ns.other.test", "50.50.50.11"), address(name, "50.50.50.11")]

    def answer(self, query, log, transport):
        ident, _, _ = struct.unpack(">HHH", query[:6])
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
            at += 1 + query[at]
        at += 1
        qtype, _ = struct.unpack(">HH", query[at : at + 4])
        name = ".".join(labels).lower()
        log.write(server="dns", transport=transport, name=name, type=qtype)
        found = self.answers(name, qtype)
        authority, additional = self.beside(name)
        question = query[12 : at + 4]
        if name == "parrot.test":
            question, found = encode_name("other.test") + struct.pack(">HH", 1, 1), self.answers("other.test", qtype)
        flags = 0x8180 | (3 if found is None else 0)
        body = question + b"".join((found or []) + authority + additional)
        counts = [len(found or []), len(authority), len(additional)]
        if transport == "udp" and len(body) > 500:
            flags, body, counts = flags | 0x200, question, [0, 0, 0]
        return struct.pack(">HHHHHH", ident, flags, 1, *counts) + body


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(self.server.names.answer(data, self.server.log, "udp"), self.client_address)


class DnsStream(socketserver.StreamRequestHandler):
    """TCP, and TLS where the server has a context."""

    def handle(self):
        transport = "tls" if hasattr(self.request, "cipher") else "tcp"
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            data = self.rfile.read(struct.unpack(">H", head)[0])
            reply = self.server.names.answer(data, self.server.log, transport)
            self.wfile.write(struct.pack(">H", len(reply)) + reply)

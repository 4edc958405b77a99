"""The client's half of stream_server.py, with Python's own library only: it also runs inside a sandbox.

`connect` is a function that gives a new connected socket, TLS or not, to the host named `host`. Every function asserts what it is
for and returns something to look at.
"""

import base64
import hashlib
import json
import os
import random
import struct


def request(connect, host, text, body=b""):
    """(head, body) of one exchange on a connection of its own."""
    with connect() as s:
        s.sendall(f"{text}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode() + body)
        with s.makefile("rb") as answer:
            return read_answer(answer)


def read_answer(answer):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = answer.readline()
        assert line, f"the answer ended after {head!r}"
        head += line
    size = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    body = answer.read(size)
    assert len(body) == size, f"{len(body)} bytes of {size}"
    return head, body


def events(connect, host, count=20):
    """Server-sent events, one at a time: the next is sent only after the last was confirmed on another connection."""
    key, got = os.urandom(8).hex(), []
    with connect() as s:
        s.sendall(f"GET /events/{count} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\nX-Key: {key}\r\n\r\n".encode())
        with s.makefile("rb") as stream:
            while stream.readline() not in (b"\r\n", b""):
                pass
            while size := int(stream.readline(), 16):
                event = stream.read(size)
                stream.readline()
                number = len(got)
                assert event == f"id: {number}\ndata: event {number}\n\n".encode(), event
                got.append(number)
                head, _ = request(connect, host, f"POST /seen/{key}/{number} HTTP/1.1\r\nContent-Length: 0")
                assert head.startswith(b"HTTP/1.1 200 "), head
    assert got == list(range(count)), got
    return len(got)


def chat(connect, host, sizes=(0, 1, 125, 126, 4096, 65535, 65536, 300_000)):
    """WebSocket (RFC 6455): each message is sent when the last has come back; a ping between them; a proper close."""
    key = base64.b64encode(os.urandom(16)).decode()
    generator = random.Random(6455)
    with connect() as s, s.makefile("rb") as stream:
        s.sendall((f"GET /chat HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            assert line, head
            head += line
        accept = base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        assert head.startswith(b"HTTP/1.1 101 ") and accept in head, head
        for size in sizes:
            data = generator.randbytes(size)
            for kind, back in ((2, 2), (9, 10)):
                data = data[:125] if kind == 9 else data
                s.sendall(masked(kind, data))
                first, second = stream.read(2)
                length = second if second < 126 else int.from_bytes(stream.read(2 if second == 126 else 8), "big")
                assert (first, stream.read(length)) == (0x80 | back, data), (size, first)
        s.sendall(masked(8, struct.pack(">H", 1000)))
        assert stream.read(4) == b"\x88\x02\x03\xe8"
        assert stream.read() == b""
    return len(sizes)


def masked(kind, data):
    mask = os.urandom(4)
    size = bytes([0x80 | len(data)]) if len(data) < 126 else (
        bytes([0x80 | 126]) + len(data).to_bytes(2, "big") if len(data) < 65536 else bytes([0x80 | 127]) + len(data).to_bytes(8, "big"))
    whole = (mask * (len(data) // 4 + 1))[: len(data)]
    return bytes([0x80 | kind]) + size + mask + (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(data), "big")


def upload(connect, host, size, chunked=False, expect=False):
    """A body of `size` random bytes; with `expect` none of it is sent before the server's 100 (RFC 9110 section 10.1.1)."""
    data = random.Random(size).randbytes(size)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    wait = "Expect: 100-continue\r\n" if expect else ""
    with connect() as s, s.makefile("rb") as answer:
        s.sendall(f"POST /digest HTTP/1.1\r\nHost: {host}\r\n{wait}{length}\r\n\r\n".encode())
        if expect:
            assert answer.readline().startswith(b"HTTP/1.1 100 ") and answer.readline() == b"\r\n"
        for at in range(0, size, 50_000):
            part = data[at : at + 50_000]
            s.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
        if chunked:
            s.sendall(b"0\r\n\r\n")
        said = json.loads(read_answer(answer)[1])
    assert said == {"size": size, "sha256": hashlib.sha256(data).hexdigest(), "expect": "100-continue" if expect else None,
                    "chunked": chunked}, said
    return said["size"]


def exchanges(connect, host):
    """All of it, for a case that only wants to know."""
    return [events(connect, host), chat(connect, host),
            *(upload(connect, host, size, chunked, expect) for size in (135_000, 10_000_000) for chunked in (False, True) for expect in (False, True))]

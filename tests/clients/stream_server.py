"""What long and large exchanges are tried on: HTTP/1.1, in clear and over TLS.

  python3 stream_server.py ADDRESS PORT TLS_PORT CERT KEY      prints "ready"

  GET /same             a page whose headers are always the same      GET /request       the request itself, as it came
  GET /bytes/SIZE/SEED  that many bytes, see payload()                POST /digest       size and digest of the body, as JSON
  GET /slow/SECONDS     an answer that takes its time                 GET /chat          WebSocket: every message comes back
  GET /events/COUNT     server-sent events. Each is held back until the client has said by POST /seen/KEY/NUMBER that it has the
                        one before, so whoever buffers the stream on its way never sees the second. KEY is in the X-Key header.
"""

import base64
import collections
import hashlib
import http.server
import json
import random
import ssl
import sys
import threading
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
BLOCK = random.Random(15).randbytes(51 << 20)


def payload(size, seed):
    """Bytes that differ from seed to seed and cost nothing to make; size up to 50 MiB."""
    start = seed * 4099 % (1 << 20)
    return memoryview(BLOCK)[start : start + size]


class Streams(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = collections.defaultdict(threading.Semaphore)

    def date_time_string(self, timestamp=None):
        return "Thu, 01 Jan 1970 00:00:00 GMT"  # so that two fetches can be compared byte by byte

    def do_GET(self):
        word, *rest = self.path.strip("/").split("/")
        getattr(self, "get_" + word)(*rest)

    def do_POST(self):
        word, *rest = self.path.strip("/").split("/")
        getattr(self, "post_" + word)(*rest)

    def answer(self, body, *headers):
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def get_same(self):
        self.answer(b"the same for everyone\n" * 1000, ("Set-Cookie", "a=1; Path=/"), ("SET-cookie", "b=2"), ("X-Empty", ""),
                    ("X-Spaces", "  two  and  two  "), ("Cache-Control", "no-cache,no-store"), ("Vary", "*"))

    def get_request(self):
        head = self.raw_requestline + b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in self.headers.raw_items())
        self.answer(head)

    def get_bytes(self, size, seed):
        self.answer(payload(int(size), int(seed)))

    def get_slow(self, seconds):
        time.sleep(float(seconds))
        self.answer(b"at last\n")

    def get_events(self, count):
        key = self.headers["X-Key"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(count)):
            event = f"id: {number}\ndata: event {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            if not self.seen[key, number].acquire(timeout=30):
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def post_seen(self, key, number):
        self.seen[key, int(number)].release()
        self.answer(b"")

    def post_digest(self):
        body = self.read_body()
        self.answer(json.dumps({"size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "expect": self.headers.get("Expect"),
                                "chunked": "Transfer-Encoding" in self.headers}).encode())

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def get_chat(self):
        accept = base64.b64encode(hashlib.sha1(self.headers["Sec-WebSocket-Key"].encode() + GUID).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            first, second = self.rfile.read(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
            mask = self.rfile.read(4)
            data = unmask(self.rfile.read(size), mask)
            kind = first & 0x0F
            self.wfile.write(frame(0x80 | (10 if kind == 9 else kind), data))  # a ping is answered with a pong
            if kind == 8:
                return

    def log_message(self, *_):
        pass


def unmask(data, mask):
    whole = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(data), "big")


def frame(first, data):
    if len(data) < 126:
        return bytes([first, len(data)]) + data
    if len(data) < 65536:
        return bytes([first, 126]) + len(data).to_bytes(2, "big") + data
    return bytes([first, 127]) + len(data).to_bytes(8, "big") + data


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address, port, context=None):
        self.context = context
        super().__init__((address, port), Streams)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):  # in the thread of the connection
        if self.context:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, *_):
        pass  # clients that reset are part of the cases


def main(address, port, tls_port, certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    Server(address, int(port))
    Server(address, int(tls_port), context)
    print("ready", flush=True)
    sys.stdin.read()  # ends with whoever started it


if __name__ == "__main__":
    main(*sys.argv[1:])

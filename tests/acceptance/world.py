"""The internet of the acceptance cases: servers in a network namespace of their own.

Runs inside the namespace; prints one line "ready" when all listen. Addresses look public, since special-use addresses are
never vouched for. Everything that arrives is written to the log file as JSON lines: {"server": "dns", ...}, so that a case can
show that a refused packet or query never came.

  50.50.50.53    DNS, UDP and TCP 53
  50.50.50.10    good.test: HTTP 80 8080, HTTPS 443 8443, echo 7, slow 9001 (server speaks first 25)
  50.50.50.11    other.test: HTTP 80, HTTPS 443
  10.99.0.10     private.test: HTTP 80
"""

import argparse
import http.server
import json
import os
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time

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
}
ALIASES = {"alias.good.test": "good.test", "sneaky.good.test": "denied.test", "denied.test": "good.test"}


class Log:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.lock = threading.Lock()

    def write(self, **fields):
        with self.lock:
            self.file.write(json.dumps(fields) + "\n")


def encode_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


def answer(query, log, transport):
    ident, flags, questions = struct.unpack(">HHH", query[:6])
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    at += 1
    qtype, _ = struct.unpack(">HH", query[at : at + 4])
    name = ".".join(labels).lower()
    log.write(server="dns", transport=transport, name=name, type=qtype)
    question = query[12 : at + 4]
    records, target = [], name
    while target in ALIASES:
        records.append(encode_name(target) + struct.pack(">HHI", 5, 1, 60) + _rdata(encode_name(ALIASES[target])))
        target = ALIASES[target]
    known = target in ZONE
    if qtype == 1:
        for address in ZONE.get(target, []):
            records.append(encode_name(target) + struct.pack(">HHI", 1, 1, 60) + _rdata(socket.inet_aton(address)))
    elif qtype == 16 and known:
        records.append(encode_name(target) + struct.pack(">HHI", 16, 1, 60) + _rdata(b"\x05hello"))
    rcode = 0 if known or records else 3
    header = struct.pack(">HHHHHH", ident, 0x8180 | rcode, 1, len(records), 0, 0)
    return header + question + b"".join(records)


def _rdata(data):
    return struct.pack(">H", len(data)) + data


class DnsUdp(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        sock.sendto(answer(data, self.server.log, "udp"), self.client_address)


class DnsTcp(socketserver.StreamRequestHandler):
    def handle(self):
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            data = self.rfile.read(struct.unpack(">H", head)[0])
            reply = answer(data, self.server.log, "tcp")
            self.wfile.write(struct.pack(">H", len(reply)) + reply)


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        self.server.log.write(server="http", port=self.server.server_address[1], address=self.server.server_address[0],
                              tls=self.server.tls, method=self.command, path=self.path, host=self.headers.get("Host"),
                              body=len(body))
        if self.path.startswith("/bytes/"):
            payload = bytes(i * 7 & 255 for i in range(256)) * (int(self.path.split("/")[2]) // 256 + 1)
            payload = payload[: int(self.path.split("/")[2])]
        else:
            payload = b"hello from %s\n" % (self.headers.get("Host") or "nobody").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

    def log_message(self, *_):
        pass


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        self.server.log.write(server="echo", port=self.server.server_address[1])
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Greeter(socketserver.BaseRequestHandler):
    """Speaks first, as mail servers do."""

    def handle(self):
        self.server.log.write(server="greeter")
        self.request.sendall(b"220 greeter ready\r\n")
        self.request.recv(1024)


class UdpEcho(socketserver.BaseRequestHandler):
    def handle(self):
        data, sock = self.request
        self.server.log.write(server="udp-echo", size=len(data), port=self.server.server_address[1])
        sock.sendto(data, self.client_address)


class TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # clients that reset are part of most cases


class HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def start(server, log):
    server.log = log
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def start_http(address, port, log, context=None):
    server = HttpServer((address, port), Http)
    server.tls = context is not None
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    start(server, log)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--certificates", required=True)
    args = parser.parse_args()
    log = Log(args.log)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.certificates + "/server.pem", args.certificates + "/server.key")
    start(socketserver.ThreadingUDPServer(("50.50.50.53", 53), DnsUdp), log)
    start(TcpServer(("50.50.50.53", 53), DnsTcp), log)
    for address in ("50.50.50.10", "50.50.50.11"):
        for port in (80, 8080):
            start_http(address, port, log)
        for port in (443, 8443, 22):
            start_http(address, port, log, context)
    start_http("10.99.0.10", 80, log)
    start(TcpServer(("50.50.50.10", 7), Echo), log)
    start(TcpServer(("50.50.50.10", 25), Greeter), log)
    for port in (7, 53, 443, 5353):
        start(socketserver.ThreadingUDPServer(("50.50.50.10", port), UdpEcho), log)
    start(TcpServer(("50.50.50.10", 853), Echo), log)
    print("ready", flush=True)
    while os.getppid() != 1:
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())

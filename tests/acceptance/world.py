"""The internet of the acceptance cases: servers in a network namespace of their own.

Runs inside the namespace; prints one line "ready" when all listen. Addresses look public, since special-use addresses are
never vouched for. Everything that arrives is written to the log file as JSON lines: {"server": "dns", ...}, so that a case can
show that a refused packet or query never came.

  50.50.50.53    DNS (world_dns.py), UDP and TCP 53; over TLS 853; over HTTPS 443
  50.50.50.10    good.test: HTTP 80 8080, HTTPS 443 8443 22, echo 7, TLS that asks for another key share 8444 (HelloRetryRequest),
                 HTTP/2 in clear 8081, HTTP proxy 3128, a server that speaks first 25, DNS over TLS 853
                 taps, which log every byte of the client: 9000 answers each block, 9543 to 8443, 9544 to 8444
                 UDP echo 7 53 443 5353
  50.50.50.11    other.test: HTTP 80 8080, HTTPS 443 8443 22, UDP echo 7
  10.99.0.10     private.test: HTTP 80
  fd50::10       HTTP 80
"""

import argparse
import http.server
import json
import os
import socket
import socketserver
import ssl
import sys
import threading
import time

import h2.config
import h2.connection
import h2.events

from world_dns import DnsStream, DnsUdp, Names


class Log:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.lock = threading.Lock()

    def write(self, **fields):
        with self.lock:
            self.file.write(json.dumps(fields) + "\n")


class Http(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        self.server.log.write(server="http", port=self.server.server_address[1], address=self.server.server_address[0],
                              tls=self.server.tls, method=self.command, path=self.path, host=self.headers.get("Host"),
                              body=len(body))
        if self.headers.get("Content-Type") == "application/dns-message":
            payload = self.server.names.answer(body, self.server.log, "https")
        elif self.path.startswith("/bytes/"):
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


class Tap(socketserver.BaseRequestHandler):
    """Logs what the client sends and hands it on, or answers it itself as a lenient HTTP server would."""

    def handle(self):
        if self.server.upstream is None:
            while data := self._read():
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")
            return
        with socket.create_connection(self.server.upstream) as upstream:
            threading.Thread(target=pour, args=(upstream, self.request), daemon=True).start()
            while data := self._read():
                upstream.sendall(data)

    def _read(self):
        data = self.request.recv(65536)
        if data:
            self.server.log.write(server="tap", port=self.server.server_address[1], data=data.decode("latin-1"))
        return data


def pour(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


class Proxy(socketserver.StreamRequestHandler):
    """CONNECT, to whatever is asked for."""

    rbufsize = 0  # what follows the head belongs to the tunnel

    def handle(self):
        method, target, _ = self.rfile.readline().decode("latin-1").split(" ", 2)
        while self.rfile.readline().strip():
            pass
        self.server.log.write(server="proxy", method=method, target=target)
        host, _, port = target.rpartition(":")
        zone = {"good.test": "50.50.50.10", "sibling.test": "50.50.50.10", "other.test": "50.50.50.11"}
        with socket.create_connection((zone.get(host, host), int(port)), 5) as upstream:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=pour, args=(upstream, self.request), daemon=True).start()
            pour(self.request, upstream)


class Http2(socketserver.BaseRequestHandler):
    """HTTP/2 in clear, by prior knowledge."""

    def handle(self):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        self.request.sendall(connection.data_to_send())
        while data := self.request.recv(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    fields = dict(event.headers)
                    self.server.log.write(server="http2", host=fields[":authority"])
                    connection.send_headers(event.stream_id, [(":status", "200"), ("content-length", "3")])
                    connection.send_data(event.stream_id, b"h2\n", end_stream=True)
            self.request.sendall(connection.data_to_send())


class TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # clients that reset are part of most cases


class TlsServer(TcpServer):
    def get_request(self):
        connection, client = super().get_request()
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), client


class HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


class HttpServer6(HttpServer):
    address_family = socket.AF_INET6


class World:
    """Starts servers, all with one log and one zone."""

    def __init__(self, log, certificates):
        self.log, self.names, self.certificates = log, Names(), certificates

    def context(self, curve=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificates + "/server.pem", self.certificates + "/server.key")
        if curve:
            context.set_ecdh_curve(curve)
        return context

    def start(self, server, **attributes):
        server.log, server.names = self.log, self.names
        for name, value in attributes.items():
            setattr(server, name, value)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def http(self, address, port, context=None, kind=HttpServer):
        server = kind((address, port), Http)
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.start(server, tls=context is not None)

    def tcp(self, address, port, handler, **attributes):
        self.start(TcpServer((address, port), handler), **attributes)

    def tls(self, address, port, handler):
        self.start(TlsServer((address, port), handler), context=self.context())

    def udp(self, address, port, handler):
        self.start(socketserver.ThreadingUDPServer((address, port), handler))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", required=True)
    parser.add_argument("--certificates", required=True)
    args = parser.parse_args()
    world = World(Log(args.log), args.certificates)
    world.udp("50.50.50.53", 53, DnsUdp)
    world.tcp("50.50.50.53", 53, DnsStream)
    for address in ("50.50.50.53", "50.50.50.10"):
        world.tls(address, 853, DnsStream)
    world.http("50.50.50.53", 443, world.context())
    for address in ("50.50.50.10", "50.50.50.11"):
        for port in (80, 8080):
            world.http(address, port)
        for port in (443, 8443, 22):
            world.http(address, port, world.context())
        world.udp(address, 7, UdpEcho)
    for address in ("10.99.0.10", "127.0.0.1"):  # the second is what a proxy could lead to
        world.http(address, 80)
    world.http("fd50::10", 80, kind=HttpServer6)
    world.http("50.50.50.10", 8444, world.context("secp384r1"))
    world.tcp("50.50.50.10", 8081, Http2)
    world.tcp("50.50.50.10", 3128, Proxy)
    for port, upstream in ((9000, None), (9543, 8443), (9544, 8444)):
        world.tcp("50.50.50.10", port, Tap, upstream=upstream and ("50.50.50.10", upstream))
    world.tcp("50.50.50.10", 7, Echo)
    world.tcp("50.50.50.10", 25, Greeter)
    for port in (53, 443, 5353):
        world.udp("50.50.50.10", port, UdpEcho)
    print("ready", flush=True)
    while os.getppid() != 1:
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())

"""Contract row N15 on the gateway alone: what an allowed connection carries is what a direct one would carry.

The direct one is made from the host's namespace, side by side with the guest's.
"""

import hashlib
import os
import pathlib
import random
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from netlab import lab

CLIENTS = pathlib.Path(__file__).parents[2] / "clients"
sys.path.append(str(CLIENTS))

import stream_client  # noqa: E402
from stream_server import payload  # noqa: E402

SERVER, HOST = "45.80.0.10", "www.example.org"
HTTP, HTTPS = 80, 443
MEGABYTE = 1 << 20


class Streams:
    def __init__(self, net, folder):
        self.net = net
        self.ca = folder / "cert"
        argv = ["/usr/bin/python3", "-B", CLIENTS / "stream_server.py", SERVER, HTTP, HTTPS, folder / "cert", folder / "key"]
        self.server = subprocess.Popen(net.world.argv(*map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.server.stdout.readline() == b"ready\n"

    def connect(self, namespace, port):
        """A function that connects from a namespace, by TLS when the port is its own."""

        def call():
            s = namespace.socket(socket.AF_INET, socket.SOCK_STREAM)
            s.settimeout(60)
            s.connect((SERVER, port))
            if port != HTTPS:
                return s
            return ssl.create_default_context(cafile=self.ca).wrap_socket(s, server_hostname=HOST)

        return call

    def guest(self, port):
        return self.connect(self.net.guest, port)

    def direct(self, port):
        return self.connect(self.net.host, port)

    def close(self):
        self.server.kill()
        self.server.wait()


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-keyout", folder / "key", "-out", folder / "cert"],
                   check=True, capture_output=True)
    with lab(allow=[HOST], mtu=65520) as net:
        net.add_address(SERVER)
        net.dns.zone[HOST] = [SERVER]
        assert net.resolve(HOST).addresses == [SERVER]
        it = Streams(net, folder)
        yield it
        it.close()


PORTS = pytest.mark.parametrize("port", [HTTP, HTTPS], ids=["http", "https"])


@PORTS
@pytest.mark.parametrize("path", ["/same", "/request", "/bytes/1000000/3"])
def test_a_page_is_the_same_through_the_gateway_and_directly(streams, port, path):
    """Head and body byte by byte; /request is what the server saw of the request."""
    text = f"GET {path} HTTP/1.1\r\nuser-AGENT: a  b\r\nX-Empty:\r\nX-Twice: 1\r\nx-twice: 2"
    through = stream_client.request(streams.guest(port), HOST, text)
    assert through == stream_client.request(streams.direct(port), HOST, text)
    assert through[0].startswith(b"HTTP/1.1 200 OK\r\n")


@PORTS
def test_curl_fetches_the_same_through_the_gateway_and_directly(streams, port):
    scheme = "https" if port == HTTPS else "http"
    argv = ["curl", "-sSi", "--cacert", str(streams.ca), "--resolve", f"{HOST}:{port}:{SERVER}", f"{scheme}://{HOST}/same", f"{scheme}://{HOST}/request"]
    through = streams.net.guest.run(*argv).stdout
    assert through == streams.net.host.run(*argv).stdout
    assert through.count("HTTP/1.1 200 OK") == 2 and "SET-cookie: b=2" in through


@PORTS
def test_events_come_one_by_one(streams, port):
    stream_client.events(streams.guest(port), HOST)


@PORTS
def test_a_websocket_passes_every_message_when_it_is_sent(streams, port):
    stream_client.chat(streams.guest(port), HOST)


@PORTS
@pytest.mark.parametrize("expect", [False, True], ids=["", "expect-100"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [135_000, 10_000_000])
def test_large_posts_arrive_whole(streams, port, size, chunked, expect):
    stream_client.upload(streams.guest(port), HOST, size, chunked, expect)


def test_curl_waits_for_a_100_and_gets_it(streams, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(payload(10_000_000, 1))
    done = streams.net.guest.run("curl", "-sSv", "--expect100-timeout", "30", "-H", "Expect: 100-continue", "--data-binary", f"@{body}", "--resolve",
                                 f"{HOST}:{HTTP}:{SERVER}", f"http://{HOST}/digest")
    assert "HTTP/1.1 100 Continue" in done.stderr and "Done waiting for 100-continue" not in done.stderr, done.stderr
    assert hashlib.sha256(body.read_bytes()).hexdigest() in done.stdout


def test_a_hundred_downloads_have_the_digests_of_what_was_sent(streams):
    spread = random.Random(15)
    sizes = [300_000, 50 * MEGABYTE, *(int(300_000 * (50 * MEGABYTE / 300_000) ** spread.random() ** 2) for _ in range(98))]

    def download(seed, size):
        port = HTTPS if seed % 4 == 0 else HTTP
        _, body = stream_client.request(streams.guest(port), HOST, f"GET /bytes/{size}/{seed} HTTP/1.1")
        assert len(body) == size and hashlib.sha256(body).digest() == hashlib.sha256(payload(size, seed)).digest(), (size, seed)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(download, range(len(sizes)), sizes))


def test_slow_stays_slow_and_unused_stays_usable(streams):
    """Beyond the ten seconds that a half-sent hello is given: an answer that takes longer, and a connection used only later."""
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(stream_client.request, streams.guest(port), HOST, "GET /slow/12 HTTP/1.1") for port in (HTTP, HTTPS)]
        with streams.connect(streams.net.guest, HTTP)() as early, early.makefile("rb") as stream:
            assert [answer.result()[1] for answer in answers] == [b"at last\n"] * 2
            early.sendall(f"GET /same HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert stream.readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.skipif("SANDBOX_LONG_TESTS" not in os.environ, reason="ten minutes of real time: make long")
@PORTS
def test_ten_idle_minutes_change_nothing(streams, port):
    """The unit tests of the TCP stack and of the stream gate show the same on a clock of their own."""
    with streams.connect(streams.net.guest, port)() as s, s.makefile("rb") as stream:
        for pause in (0, 605):
            time.sleep(pause)
            s.sendall(f"GET /same HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            head, _ = stream_client.read_answer(stream)
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")


def test_ten_thousand_connections_in_turn_leave_nothing(streams):
    gateway = streams.net.gateway
    gateway.wait_stats(lambda stats: stats["tcp_sessions"] == 0)
    before = gateway.descriptors()
    connect = streams.guest(HTTP)

    def fetch(_):
        for _ in range(1250):
            with connect() as s:
                s.sendall(f"GET /bytes/64/1 HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode())
                answer = b""
                while block := s.recv(4096):
                    answer += block
            assert answer.endswith(bytes(payload(64, 1))), answer

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, range(8)))
    gateway.wait_stats(lambda stats: stats["tcp_sessions"] == 0 and stats["tcp_connecting"] == 0)
    assert gateway.descriptors() == before

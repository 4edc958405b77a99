"""Bytes are the same on both sides, at every size, in both directions, over good wires and bad ones."""
import hashlib
import random
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from netlab import lab, read_all, read_exactly

SERVER = "45.80.0.10"
PORT = 7000
MEGABYTE = 1 << 20


def payload(size, seed):
    return random.Random(seed).randbytes(size)


def transfer_server(connection):
    """\\0 d SIZE SEED: sends that payload and closes. \\0 u SIZE: reads that many bytes, answers with their digest."""
    _, kind, size, seed = struct.unpack(">BcQQ", read_exactly(connection, 18))
    if kind == b"d":
        connection.sendall(payload(size, seed))
    else:
        connection.sendall(hashlib.sha256(read_exactly(connection, size)).digest())


def download(net, size, seed):
    with net.connect(SERVER, PORT, timeout=60) as s:
        s.sendall(struct.pack(">BcQQ", 0, b"d", size, seed))
        assert read_all(s) == payload(size, seed), f"download of {size} bytes, seed {seed}"


def upload(net, size, seed):
    data = payload(size, seed)
    with net.connect(SERVER, PORT, timeout=60) as s:
        s.sendall(struct.pack(">BcQQ", 0, b"u", size, seed) + data)
        assert read_exactly(s, 32) == hashlib.sha256(data).digest(), f"upload of {size} bytes, seed {seed}"


def sizes(largest):
    """A hundred sizes from one byte on: around every boundary that a segment or a ring has, and spread between."""
    edges = [largest, 1, 2, 3, 535, 536, 1447, 1448, 1459, 1460, 1461, 2920, 2921, 4095, 4096, 4097, 8192, 65495, 65535, 65536,
             65537, 131072, 300_000, MEGABYTE - 1, MEGABYTE, MEGABYTE + 1, 4 * MEGABYTE, 4 * MEGABYTE + 1]
    spread = random.Random(4)
    return ([s for s in edges if s <= largest] + [s for s in (int(10 ** spread.uniform(0, 6)) for _ in range(400)) if s <= largest])[:100]


WIRES = {
    "tap-1500": dict(form="tap", mtu=1500),
    "tap-65520": dict(form="tap", mtu=65520),
    "stream-short-writes": dict(form="stream", mtu=1500, pump=["--short"]),
    "stream-9000": dict(form="stream", mtu=9000),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_hundred_downloads_and_uploads_are_equal_byte_by_byte(wire):
    largest = 50 * MEGABYTE if wire.startswith("tap") else 8 * MEGABYTE
    with lab(allow=[f"{SERVER}:{PORT}"], **WIRES[wire]) as net:
        net.add_address(SERVER)
        net.serve(SERVER, PORT, transfer_server)
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(call, net, size, seed)
                    for seed, size in enumerate(sizes(largest)) for call in (download, upload)]
            for job in jobs:
                job.result()
        net.gateway.wait_stats(lambda s: s["tcp_sessions"] == 0)


@pytest.mark.parametrize("pump, transfers", [
    # Without SACK and timestamps a sender's timeout stays doubled until it measures again (Karn), so a stream that loses many
    # segments in a row may take half a minute. The cable to a virtual machine loses none.
    (["--loss", 1], [*sizes(65_537), *[300_000] * 4]),
    (["--duplicate", 10], [*sizes(300_000)[:30], 4 * MEGABYTE]),
    # The cable to a virtual machine does not reorder, so the terminator keeps nothing that came too early.
    (["--reorder", 1], sizes(131_072)[:40]),
    (["--loss", 0.5, "--duplicate", 1, "--reorder", 0.5, "--short"], sizes(131_072)[:40]),
], ids=["loss", "duplicates", "reordering", "everything"])
def test_a_bad_wire_costs_time_and_no_bytes(pump, transfers):
    with lab(allow=[f"{SERVER}:{PORT}"], form="stream", pump=[*pump, "--seed", 7]) as net:
        net.add_address(SERVER)
        net.serve(SERVER, PORT, transfer_server)
        with ThreadPoolExecutor(32) as pool:
            jobs = [pool.submit(call, net, size, seed)
                    for seed, size in enumerate(transfers) for call in (download, upload)]
            for job in jobs:
                job.result()
        stats = net.gateway.wait_stats(lambda s: s["tcp_sessions"] == 0, seconds=40)
        assert stats["tcp"]["bad_checksum"] == 0
        if pump[:2] == ["--loss", 1]:  # with less, all that was lost may have been the guest's
            assert stats["tcp"]["retransmitted"] > 0, "the pump did lose something"


def test_both_directions_at_once():
    size = 8 * MEGABYTE

    def echo(connection):
        while block := connection.recv(65536):
            connection.sendall(block)

    with lab(allow=[f"{SERVER}:{PORT}"]) as net:
        net.add_address(SERVER)
        net.serve(SERVER, PORT, echo)
        data = b"\0" + payload(size, 1)
        with net.connect(SERVER, PORT) as s:
            writer = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(1)))
            writer.start()
            assert read_all(s) == data
            writer.join()


def test_a_slow_reader_holds_the_sender_back():
    size = 32 * MEGABYTE
    sent = []

    def flood(connection):
        data = bytes(65536)
        connection.settimeout(None)
        for _ in range(size // len(data)):
            connection.sendall(data)
            sent.append(len(data))

    with lab(allow=[f"{SERVER}:{PORT}"]) as net:
        net.add_address(SERVER)
        net.serve(SERVER, PORT, flood)
        with net.connect(SERVER, PORT) as s:
            net.gateway.wait_stats(lambda st: st["tcp_memory"] > 0)
            before = -1
            while before != (before := sum(sent)) or before == 0:  # until the sender has come to a stand
                threading.Event().wait(0.3)
            assert before < size, "nobody has read and yet everything was sent"
            assert net.gateway.stats()["tcp_memory"] <= 5 * MEGABYTE
            assert len(read_all(s)) == size

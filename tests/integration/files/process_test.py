"""sandbox-files as the supervisor starts it, confined, driven with raw FUSE messages."""

import fcntl
import json
import os
import pathlib
import socket
import struct

import pytest

BIN = pathlib.Path(os.environ.get("SANDBOX_BIN", "build/bin")).absolute()
LOOKUP, MKNOD, OPEN, READ, INIT, CREATE = 1, 8, 14, 15, 26, 35


class Process:
    def __init__(self, config):
        memory = os.memfd_create("config")
        os.write(memory, config.encode())
        os.lseek(memory, 0, os.SEEK_SET)
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.port, port = socket.socketpair()
        self.records, records = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.control, self.port, self.records):
            end.settimeout(10)
        self.unique = 0
        self.pid = os.fork()
        if self.pid == 0:
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in
                    (memory, control.fileno(), port.fileno(), records.fileno())]
            for number, fd in enumerate(high):
                os.dup2(fd, 3 + number)
            os.closerange(7, 200)
            os.execv(BIN / "sandbox-files", ["sandbox-files"])
        os.close(memory)
        for end in (control, port, records):
            end.close()

    def hear(self):
        return json.loads(self.control.recv(65536))

    def receive(self, size):
        got = b""
        while len(got) < size:
            piece = self.port.recv(size - len(got))
            assert piece, "the port was closed"
            got += piece
        return got

    def call(self, opcode, node, body):
        self.unique += 1
        request = struct.pack("<IIQQIIII", 40 + len(body), opcode, self.unique, node, 0, 0, 0, 0) + body
        self.port.sendall(struct.pack("<II", len(request) + 8, 1) + request)
        while True:
            length, share = struct.unpack("<II", self.receive(8))
            payload = self.receive(length - 8)
            _, error, unique = struct.unpack("<IiQ", payload[:16])
            assert share == 1
            if unique != 0:  # else a notification
                assert unique == self.unique
                return -error, payload[16:]

    def init(self):
        assert self.call(INIT, 0, struct.pack("<IIII", 7, 40, 131072, 0xFFFFFFFF))[0] == 0

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def share(tmp_path):
    path = tmp_path / "share"
    path.mkdir()
    (path / "f").write_text("hello")
    return path


def config(path, **more):
    return json.dumps({"uid": 1000, "gid": 1000, "shares": [{"id": 1, "path": str(path), "read_only": False}], **more})


def test_it_is_confined_when_it_says_ready_and_serves(share):
    process = Process(config(share))
    assert process.hear() == {"ready": True}
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{process.pid}/status").read().splitlines() if ":\t" in line)
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == 0
    process.init()
    error, entry = process.call(LOOKUP, 1, b"f\0")
    node = struct.unpack("<Q", entry[:8])[0]
    error, opened = process.call(OPEN, node, struct.pack("<II", os.O_RDWR, 0))
    assert error == 0
    handle = struct.unpack("<Q", opened[:8])[0]
    assert process.call(READ, node, struct.pack("<QQIIQII", handle, 0, 100, 0, 0, 0, 0)) == (0, b"hello")
    assert process.call(CREATE, 1, struct.pack("<IIII", 0o102, 0o6644, 0, 0) + b"new\0")[0] == 0
    assert (share / "new").stat().st_mode & 0o7777 == 0o644
    process.control.close()
    assert process.wait() == 0


def test_what_no_correct_kernel_sends_is_recorded(share):
    process = Process(config(share))
    process.hear()
    process.init()
    assert process.call(LOOKUP, 1, b"../outside\0")[0] == 22
    assert process.call(MKNOD, 1, struct.pack("<IIII", 0o20666, 0x103, 0, 0) + b"null\0")[0] == 1
    records = [json.loads(process.records.recv(65536))]
    process.control.close()
    assert process.wait() == 0
    while message := process.records.recv(65536):
        records.append(json.loads(message))
    assert all(record["proto"] == "file" and record["verdict"] == "deny" for record in records)
    text = " ".join(record.get("text", "") for record in records)
    assert "../outside" in text


def test_a_broken_protocol_ends_the_process_and_is_recorded(share):
    process = Process(config(share))
    process.hear()
    process.port.sendall(b"\xff" * 64)
    assert process.wait() == 1
    assert "error" in process.hear()
    assert json.loads(process.records.recv(65536))["reason"] == "protocol-violation"


def test_a_closed_port_is_the_ordinary_end(share):
    process = Process(config(share))
    process.hear()
    process.port.close()
    assert process.wait() == 0


@pytest.mark.parametrize("bad", ["", "{}", "[1]", '{"uid":0,"gid":0,"shares":[],"x":1}',
                                 '{"uid":0,"gid":0,"shares":[{"id":1,"path":"/nonexistent/share"}]}',
                                 '{"uid":0,"gid":0,"shares":[{"id":1,"path":"/dev/null"}]}'])
def test_a_configuration_that_cannot_be_is_an_error_in_a_sentence(bad):
    process = Process(bad)
    answer = process.hear()
    assert answer["error"] and "hint" in answer
    assert process.wait() == 1

"""Runs commands one after the other inside a sandbox, as root, and reports how each ended, as one line of JSON.

On stdin: {"commands": [[label, command], ...], "environment": {...}}. Needs only Python's own library. Counted by listening on
the network device: `wait` is the time from the command's first packet to its end, so that neither loading a program nor starting a
runtime counts; `queries` are DNS questions, `connects` are SYNs.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

TIMEOUT = 120


class Ear:
    """Outgoing packets of eth0, with the time at which the kernel sent each."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
        self.socket.bind(("eth0", 0x0003))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self.socket.setblocking(False)

    def heard(self):
        first, queries, connects = None, 0, 0
        while True:
            try:
                packet, notes, _, sender = self.socket.recvmsg(65536, 256)
            except BlockingIOError:
                return first, queries, connects
            if sender[2] != socket.PACKET_OUTGOING or sender[1] != 0x0800 or packet[9] not in (6, 17):
                continue
            seconds, nanoseconds = struct.unpack("qq", notes[0][2][:16])
            first = first or seconds + nanoseconds / 1e9
            queries += packet[9] == 17 and packet[22:24] == b"\0\x35"
            connects += packet[9] == 6 and packet[33] & 0x12 == 0x02


def run(command, environment):
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryFile() as out:
        env = {**os.environ, "WORK": work}
        for name, value in environment.items():
            env[name] = value.replace("$WORK", work).replace("$KEYS", environment["KEYS"])
        ear, begin = Ear(), time.time()
        process = subprocess.Popen(["sh", "-c", command], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            status = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            status = process.wait()
        end = time.time()
        first, queries, connects = ear.heard()
        ear.socket.close()
        out.seek(0)
        return {"status": status, "seconds": round(end - begin, 3), "wait": round(end - first, 3) if first else None, "queries": queries,
                "connects": connects, "output": out.read().decode("utf-8", "replace")[-4000:]}


if __name__ == "__main__":
    job = json.load(sys.stdin)
    print(json.dumps({label: run(command, job["environment"]) for label, command in job["commands"]}))

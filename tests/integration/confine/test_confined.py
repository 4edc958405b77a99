"""Hostile code inside each confined process gets at nothing but what docs/processes.md gives the process.

The programs are the ones that are shipped; the code is preloaded into them and makes one attempt per process, forked right where the
program has confined itself (inject.cc). Each attempt has its control: the same attempt in the same program before its confinement.
"""
import ctypes
import os
import pathlib
import re
import socket
import subprocess

import pytest

from stage import BIN, ORDINARY, QEMU, Stage, parse


def is_real_root():
    return os.geteuid() == 0 and pathlib.Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


USERS = [os.geteuid()] + ([ORDINARY] if is_real_root() else [])
LANDLOCK_CREATE_RULESET, VERSION_ONLY = 444, 1
has_landlock = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION_ONLY) > 0
pytestmark = pytest.mark.skipif(not has_landlock, reason="no Landlock in this kernel")

# What an ordinary user may not do anyway: there the control has nothing to show.
NEEDS_ROOT = {"change_root", "open_by_handle", "enter_namespace", "make_network_namespace", "mount_something", "become_root",
              "socket_packet", "socket_raw", "use_userfaultfd", "use_bpf", "use_perf"}
# What a kernel may be built without or closed by a sysctl.
MAY_BE_MISSING = {"use_userfaultfd", "use_io_uring", "use_bpf", "use_perf", "use_keyring", "use_old_system_calls",
                  "make_user_namespace", "set_xattr_in_home", "socket_mptcp"}
MISSING = {"ENOSYS", "EPERM", "EACCES", "EOPNOTSUPP", "EPROTONOSUPPORT", "ENOPROTOOPT", "SEGV"}
REFUSED = {"SYS", "EACCES"}  # killed by seccomp; refused by Landlock

GATEWAY = {"wire": "stream", "mtu": 1500, "guest_mac": "52:54:00:12:34:56", "gateway_mac": "52:55:c0:00:00:01",
           "guest_ip": "192.0.0.2", "gateway_ip": "192.0.0.1", "prefix": 29, "allow": [], "deny": [], "resolvers": []}


@pytest.fixture(params=USERS, ids=lambda uid: "root" if uid == 0 else "user")
def stage(request):
    it = Stage(request.param)
    yield it
    it.close()


def check(outcomes, reach, uid, refusals=REFUSED, controls=None):
    confined, controls = outcomes["confined"], controls or outcomes["control"]
    got_through = {probe for probe, outcome in confined.items() if outcome == "allowed"}
    assert got_through == {probe for probe in reach if controls[probe] == "allowed"}
    odd = {probe: outcome for probe, outcome in confined.items() if outcome not in refusals | {"allowed"}}
    assert not odd, "neither through nor refused"
    exempt = set() if uid == 0 and is_real_root() else NEEDS_ROOT
    futile = {probe: outcome for probe, outcome in controls.items()
              if outcome != "allowed" and probe not in exempt and not (probe in MAY_BE_MISSING and outcome in MISSING)}
    assert not futile, "a probe that fails without confinement shows nothing"


def descriptors(pid):
    return {os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()}


def wire(first=b"\0"):
    """Both ends, with something of the guest waiting already."""
    ours, theirs = socket.socketpair()
    ours.send(first)
    return ours, theirs


def records():
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def test_the_gateway_has_sockets_to_the_world_and_nothing_else(stage):
    (guest, theirs), (recorder, sink) = wire(), records()
    with stage.helper("sandbox-gateway", GATEWAY, {5: theirs, 6: sink}, 5) as (outcomes, pid):
        check(outcomes, {"socket_tcp", "socket_udp", "socket_tcp6", "connect_to_host", "find_wire_unread"}, stage.uid)
        assert not {d for d in descriptors(pid) if not re.match(r"socket:|pipe:|anon_inode:|/dev/null$", d)}


def test_the_recorder_has_its_directory_and_nothing_else(stage):
    directory = os.open(stage.dir / "audit", os.O_RDONLY | os.O_DIRECTORY)
    source, theirs = records()
    source.send(b"{}")
    config = {"sources": [{"fd": 10, "name": "guest"}]}
    with stage.helper("sandbox-recorder", config, {5: directory, 10: theirs}, 10) as (outcomes, pid):
        os.close(directory)
        # fstat() is this call with an empty name, which a filter cannot look at: names and sizes can be seen.
        check(outcomes, {"stat_in_home", "find_wire_unread"}, stage.uid)
        files = {d for d in descriptors(pid) if not re.match(r"socket:|pipe:|anon_inode:|/dev/null$", d)}
        assert files == {f"{stage.dir}/audit", f"{stage.dir}/audit/decisions.jsonl"}


def test_the_file_server_has_the_shares_and_nothing_else(stage):
    (guest, theirs), (recorder, sink) = wire(), records()
    config = {"uid": 1000, "gid": 1000, "shares": [
        {"id": 1, "path": str(stage.dir / "share"), "read_only": False},
        {"id": 2, "path": str(stage.dir / "read_only"), "read_only": True}]}
    with stage.helper("sandbox-files", config, {5: theirs, 6: sink}, 5) as (outcomes, pid):
        check(outcomes, {"find_wire_unread"}, stage.uid, REFUSED | {"ENOENT"})  # in its own root there are no such names


def test_the_file_server_cannot_change_a_read_only_share(stage):
    """Its modes and times are not Landlock's business; the mount is read-only too."""
    (guest, theirs), (recorder, sink) = wire(), records()
    outcomes = {}
    for read_only in (True, False):
        # The probes' folder is the share itself: in the server's root its name is /1.
        config = {"uid": 1000, "gid": 1000, "shares": [{"id": 1, "path": str(stage.dir), "read_only": read_only}]}
        with stage.helper("sandbox-files", config, {5: theirs, 6: sink}, 5, CONFINE_PROBE_CONFINED_DIR="/1") as (found, pid):
            outcomes[read_only] = found["confined"]
    changes = ("write_in_home", "chmod_in_home", "touch_in_home")
    assert [outcomes[False][probe] for probe in changes] == ["allowed"] * 3
    assert [outcomes[True][probe] for probe in changes] == ["EROFS"] * 3
    assert outcomes[True]["read_ssh_key"] == outcomes[False]["read_ssh_key"] == "allowed"


def test_the_supervisor_has_its_run_directory_and_the_hosts_resolvers(machine_home):
    stage = Stage(os.geteuid())
    try:
        report = stage.dir / "report"
        environment = {**os.environ, **stage.environment("sandbox-supervisor", report), "SANDBOX_HOME": machine_home}
        done = subprocess.run([BIN / "sandbox", "run", "-w", stage.dir / "share", "builtin", "--", "echo", "it ran"],
                              env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout) == (0, "it ran\n"), done.stderr
        outcomes = parse(report.read_bytes())
        for found in outcomes.values():
            found.pop("find_wire_unread")  # it has not one wire
        # /etc as a whole, since resolv.conf may be replaced at any time.
        check(outcomes, {"read_passwd", "stat_in_home"}, stage.uid)
    finally:
        stage.close()


@pytest.fixture
def machine_home():
    home = os.environ.get("SANDBOX_TEST_HOME")
    if not home:
        pytest.skip("SANDBOX_TEST_HOME is not set")
    return home


@pytest.mark.skipif(not os.path.exists(QEMU), reason="QEMU is elsewhere")
def test_qemu_in_its_cage_has_an_empty_world(stage):
    free, caged = stage.qemu(caged=False)["control"], stage.qemu(caged=True)
    for outcomes in (free, caged["confined"]):
        outcomes.pop("find_wire_unread")  # nothing is on its wires here
    # Sockets of an empty network namespace, memory of its own, and calls that concern nobody else.
    reach = {"socket_tcp", "socket_udp", "socket_tcp6", "socket_mptcp", "socket_unix", "socket_netlink", "socket_pair_unix",
             "serve_on_host",
             "map_code", "make_data_code", "make_memory_file", "use_shared_memory", "become_dumpable"}
    refusals = {"SYS", "EPERM", "ENOENT", "ESRCH", "ENETUNREACH", "ENOSYS", "EROFS"}
    check(caged, reach, stage.uid, refusals, controls=free)

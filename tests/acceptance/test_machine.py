"""Contract rows V1 to V7 and Q3: the machine around the guest."""

import json
import os
import pathlib
import re
import signal
import stat
import time

import pytest

from harness import Running


def test_V1_each_sandbox_has_its_own_kernel_and_nothing_persists(machine):
    first = machine.run("uname -r; cat /proc/sys/kernel/random/boot_id; sudo sh -c 'echo marker > /marker'; ls /marker")
    second = machine.run("uname -r; cat /proc/sys/kernel/random/boot_id; ls /marker")
    assert first.out.splitlines()[0].startswith("6.12."), first
    assert first.out.splitlines()[0] != os.uname().release
    assert first.out.splitlines()[2] == "/marker"  # the control: it was there
    assert "/marker" not in second.out.splitlines(), second
    assert first.out.splitlines()[1] != second.out.splitlines()[1]
    assert not list((machine.home / "run").glob("*/disk.qcow2"))


def test_V2_emulation_is_said_once_and_doctor_says_it(machine):
    run = machine.run("true")
    doctor = machine.sandbox("doctor")
    kvm = re.search(r"^(ok  |warn) kvm +(.*)$", doctor.out, re.M)
    assert kvm, doctor
    if kvm.group(1) == "warn":
        assert len(re.findall("no hardware virtualization", run.err)) == 1, run
    else:
        assert "no hardware virtualization" not in run.err, run


def test_V3_two_sandboxes_share_no_random_bytes_and_the_clock_is_right(machine):
    script = "date +%s.%N; head -c 32 /dev/urandom | base64 -w0; echo; python3 -c 'import os; print(os.getrandom(32).hex())'; cat /proc/sys/kernel/random/uuid; cat /etc/machine-id 2>/dev/null"
    seen = []
    for _ in range(2):
        begin = time.time()
        result = machine.run(script)
        end = time.time()
        lines = result.out.splitlines()
        # The first instruction of the workload ran between begin and end, so its clock may be off by 0.5 s from that at most.
        assert begin - 0.5 <= float(lines[0]) <= end + 0.5, (begin, lines[0], end)
        seen.append(lines[1:4])
    assert all(a != b for a, b in zip(*seen)), seen


def test_V3_the_clock_stays_right(machine):
    with Running(machine, "echo up; while read line; do date +%s.%N; done") as running:
        for _ in range(3):
            time.sleep(1)
            before = time.time()
            running.process.stdin.write("now\n")
            running.process.stdin.flush()
            shown = float(running.process.stdout.readline())
            assert before - 0.5 <= shown <= time.time() + 0.5


def test_V4_the_vmm_lives_in_empty_namespaces_without_privileges(machine):
    with Running(machine) as running:
        qemu = running.pids["qemu-system-x86_64"][-1]
        status = pathlib.Path(f"/proc/{qemu}/status").read_text()
        field = dict(re.findall(r"^(\w+):\t(.*)$", status, re.M))
        assert int(field["CapEff"], 16) == int(field["CapBnd"], 16) == 0
        assert field["NoNewPrivs"] == "1" and field["Seccomp"] == "2"
        assert field["Uid"].split()[0] != "0"
        for kind in ("net", "mnt", "pid", "user", "ipc"):
            assert os.readlink(f"/proc/{qemu}/ns/{kind}") != os.readlink(f"/proc/{running.process.pid}/ns/{kind}"), kind
        mounts = pathlib.Path(f"/proc/{qemu}/mountinfo").read_text().splitlines()
        assert len(mounts) == 1 and " tmpfs " in mounts[0], mounts
        devices = pathlib.Path(f"/proc/{qemu}/net/dev").read_text().splitlines()[2:]
        assert [line.split(":")[0].strip() for line in devices] == ["lo"]


@pytest.mark.parametrize("helper", ["sandbox-gateway", "sandbox-recorder", "sandbox-files", "sandbox-supervisor"])
def test_V4_each_helper_is_confined(machine, helper):
    with Running(machine) as running:
        (pid,) = running.pids[helper]
        field = dict(re.findall(r"^(\w+):\t(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M))
        assert int(field["CapEff"], 16) == int(field["CapPrm"], 16) == 0
        assert field["NoNewPrivs"] == "1" and field["Seccomp"] == "2", helper


def test_V5_a_sandbox_costs_no_disk_and_returns_what_it_freed(machine):
    script = "echo up; read go; head -c 200000000 /dev/urandom > ~/big; sync; echo written; read go; rm ~/big; sync; echo freed; sleep 1000"
    with Running(machine, script) as running:
        disk = running.dir / "disk.qcow2"

        def allocated():
            return disk.stat().st_blocks * 512

        def step(expected):
            running.process.stdin.write("go\n")
            running.process.stdin.flush()
            assert running.process.stdout.readline() == expected + "\n"

        assert allocated() < 16 << 20
        step("written")
        assert allocated() > 200_000_000  # the control: it was there
        step("freed")
        end = time.monotonic() + 30  # ext4 discards after its journal has committed
        while allocated() > 50_000_000:
            assert time.monotonic() < end, allocated()
            time.sleep(0.5)


def test_V7_directories_are_0700_and_files_0600(machine):
    with Running(machine) as running:
        for base, folders, files in os.walk(machine.home):
            for name in folders:
                assert stat.S_IMODE(os.lstat(os.path.join(base, name)).st_mode) == 0o700, os.path.join(base, name)
            for name in files:
                assert stat.S_IMODE(os.lstat(os.path.join(base, name)).st_mode) & 0o177 == 0, os.path.join(base, name)
        assert running.dir.exists()


@pytest.mark.parametrize("victim", ["sandbox-supervisor", "sandbox-gateway", "sandbox-recorder", "sandbox-files",
                                    "sandbox-launcher", "qemu-system-x86_64", "sandbox"])
def test_V8_killing_any_process_ends_the_sandbox_closed(machine, victim):
    flags = ["--allow", "good.test"]
    script = "echo up; while :; do curl -s -m 2 -o /dev/null http://good.test/ping; sleep 0.2; done"
    with Running(machine, script, *flags) as running:
        end = time.monotonic() + 30
        while not machine.seen(server="http", path="/ping"):  # the control: traffic flowed
            assert time.monotonic() < end
            time.sleep(0.1)
        pid = running.process.pid if victim == "sandbox" else running.pids[victim][-1]
        os.kill(pid, signal.SIGKILL)
        assert running.gone(), running.alive()
        _, err = running.process.communicate(timeout=20)
        if victim != "sandbox":
            assert running.process.returncode == 125, (running.process.returncode, err)
            assert re.search(r"sandbox: .*(ended|killed)", err), err
        machine.forget()
        time.sleep(1)
        assert machine.seen() == []
        # What is left on disk is a log, or something that doctor names.
        doctor = machine.sandbox("doctor")
        left = (running.dir / "disk.qcow2").exists() or json.loads((running.dir / "record.json").read_text())["state"] == "running"
        assert (f"'{running.name}'" in doctor.out) == left, doctor
        # The name is reusable.
        again = machine.sandbox("run", "--name", running.name, "builtin", "--", "echo", "again", cwd=machine.dir)
        assert again.out == "again\n", again


def test_V8_a_second_run_of_a_running_name_is_refused(machine):
    with Running(machine) as running:
        again = machine.sandbox("run", "--name", running.name, "builtin", "--", "true", cwd=machine.dir)
        assert again.status == 125 and "already running, use exec" in again.err, again
        assert running.process.poll() is None

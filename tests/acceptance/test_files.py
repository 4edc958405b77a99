"""Contract rows W1 to W4: the shared directories."""

import os
import pathlib
import subprocess
import tempfile

import pytest


@pytest.fixture
def project(machine):
    with tempfile.TemporaryDirectory(dir=machine.dir) as base:
        work = pathlib.Path(base) / "project"
        work.mkdir()
        (pathlib.Path(base) / "outside").mkdir()
        (pathlib.Path(base) / "outside" / "secret").write_text("secret of the host\n")
        (work / "file").write_text("from the host\n")
        yield work


def snapshot(path):
    """Every name below, with mode, owner and content."""
    found = {}
    for base, folders, files in os.walk(path):
        for name in folders + files:
            full = os.path.join(base, name)
            st = os.lstat(full)
            content = os.readlink(full) if os.path.islink(full) else open(full, "rb").read() if os.path.isfile(full) else None
            found[full] = (st.st_mode, st.st_uid, st.st_gid, content)
    return found


def test_W1_the_directory_is_seen_at_its_own_path(machine, project):
    result = machine.run("pwd; cat file; readlink /workspace; cat /workspace/file; echo made > made", cwd=project)
    assert result.out.splitlines() == [str(project), "from the host", str(project), "from the host"], result
    assert (project / "made").read_text() == "made\n"


def test_W1_w_mounts_at_workspace(machine, project):
    result = machine.run("pwd; cat file; ls /workspace", "-w", str(project), cwd=machine.dir)
    assert result.out.splitlines() == ["/workspace", "from the host", "file"], result


def test_W1_the_home_directory_is_not_shared_by_accident(machine, project):
    result = machine.run("pwd; cat file; ls /workspace", cwd=project, env={"HOME": str(project)})
    assert "no workspace is shared" in result.err and result.out == "/\n", result
    refused = machine.sandbox("run", "-w", "/", "builtin", "--", "true")
    assert refused.status != 0 and "hint:" in refused.err, refused


def test_W2_ro_holds_against_guest_root(machine, project):
    before = snapshot(project)
    probe = """
cd /ro
for try in "echo x > new" "echo x >> file" "rm file" "mv file other" "mkdir dir" "ln file hard" "ln -s file soft" \
           "chmod 777 file" "chown 5 file" "truncate -s 0 file" "touch file" "setfattr -n user.x -v y file" \
           "mount -o remount,rw /ro && echo x > new"; do
  sh -c "$try" 2>/dev/null && echo "succeeded: $try"
done
cat file
"""
    result = machine.run(f"sudo sh -c '{probe}'", "-m", f"{project}:/ro:ro")
    assert result.out == "from the host\n", result
    assert snapshot(project) == before
    control = machine.run("sudo sh -c 'echo x > /rw/new && rm /rw/file'", "-m", f"{project}:/rw")
    assert control.status == 0 and (project / "new").exists() and not (project / "file").exists(), control


def test_W2_a_single_file_shows_nothing_beside_it(machine, project):
    result = machine.run("cat /mnt/one; ls -A /mnt; echo more >> /mnt/one", "-m", f"{project}/file:/mnt/one")
    assert result.out.splitlines() == ["from the host", "one"], result
    assert (project / "file").read_text() == "from the host\nmore\n"


def test_W3_nothing_outside_the_share_is_reachable(machine, project):
    os.symlink("../outside/secret", project / "host_link")
    os.symlink("/etc/hostname", project / "absolute_link")
    before = snapshot(project.parent / "outside")
    probe = f"""
cat host_link 2>&1; cat ../outside/secret 2>&1; ls .. ; ls -la {project.parent} | wc -l
ln -s ../outside made_link; cat made_link/secret 2>&1; echo x > made_link/new 2>&1
ln -s ../outside/secret replace; echo overwritten > replace 2>&1
cat {project.parent}/outside/secret 2>&1
"""
    result = machine.run(f"sudo sh -c '{probe}'", cwd=project)
    assert "secret of the host" not in result.out, result
    assert snapshot(project.parent / "outside") == before
    # The link is a link on the host, verbatim, and is what would lead out there.
    assert os.readlink(project / "made_link") == "../outside"
    control = subprocess.run(["cat", project / "host_link"], capture_output=True, text=True, check=True)
    assert control.stdout == "secret of the host\n"


def test_W3_no_devices_and_no_setuid(machine, project):
    result = machine.run("sudo sh -c 'mknod dev c 1 3; echo $?; mknod blk b 254 0; echo $?; cp /bin/true s; chmod 6755 s; stat -c %a s'",
                         cwd=project)
    assert result.out.split()[:2] == ["1", "1"], result
    assert not (project / "dev").exists() and not (project / "blk").exists()
    assert (project / "s").stat().st_mode & 0o6000 == 0
    assert (project / "s").stat().st_mode & 0o777 == 0o755  # the rest of the mode was kept


def test_W4_what_the_guest_makes_is_the_users(machine, project):
    script = "echo a > by_agent; sudo sh -c 'echo r > by_root; mkdir d; echo n > d/nested; chown 1234:1234 by_root'; stat -c '%u %n' *"
    result = machine.run(script, cwd=project)
    owner = os.getuid()
    for name in ("by_agent", "by_root", "d", "d/nested"):
        assert os.lstat(project / name).st_uid == owner, name
    assert {line.split()[0] for line in result.out.splitlines()} == {"1000"}, result


def test_W4_git_works_and_sees_no_dubious_ownership(machine, project):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run([*git, "add", "file"], cwd=project, check=True)
    subprocess.run([*git, "commit", "-qm", "first"], cwd=project, check=True)
    script = "git status --porcelain; echo new > new; git add new; git -c user.name=g -c user.email=g@g commit -qm second; git log --format=%s"
    result = machine.run(script, cwd=project)
    assert result.out.split() == ["second", "first"] and "dubious" not in result.err, result
    log = subprocess.run(["git", "log", "--format=%s"], cwd=project, capture_output=True, text=True, check=True)
    assert log.stdout.split() == ["second", "first"]
    subprocess.run(["git", "fsck", "--strict"], cwd=project, check=True, capture_output=True)


def test_W4_host_edits_are_seen_at_once(machine, project):
    script = """
cat file; echo ready
while [ ! -e go ]; do sleep 0.05; done
cat file; ls
"""
    process = machine.popen("run", "--no-tty", "builtin", "--", "sh", "-c", script, cwd=project, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout.readline() == "from the host\n"
    assert process.stdout.readline() == "ready\n"
    (project / "file").write_text("a longer text, written by the host later\n")
    os.rename(project / "file", project / "file2")
    (project / "file").write_text("and replaced\n")
    (project / "go").touch()
    out, _ = process.communicate(timeout=60)
    assert out.splitlines() == ["and replaced", "file", "file2", "go"]

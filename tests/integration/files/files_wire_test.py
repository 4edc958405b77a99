"""The file wire end to end: real programs on a FUSE mount whose server is sandbox-files, without a VM (see relay_run.cc).

Each test has a directory of the host and runs a script inside, where the share is mounted at `m`."""

import json
import os
import pathlib
import subprocess
import textwrap
import time

import pytest

BIN = pathlib.Path(os.environ.get("SANDBOX_BIN", "build/bin"))


class Wire:
    def __init__(self, base):
        self.base = base
        self.host = base / "host"
        self.mount = base / "m"
        self.host.mkdir()
        self.mount.mkdir()

    def command(self, argv, read_only=False, share=None, inner=()):
        share = share or f"{self.host}={self.mount}"
        shares = [share + ("=ro" if read_only else ""), *inner]
        return [BIN / "relay_run", "--server", BIN / "sandbox-files", "--records", self.base / "records",
                *(word for one in shares for word in ("--share", one)), "--", *argv]

    def run(self, argv, expect=0, timeout=120, **options):
        done = subprocess.run(self.command(argv, **options), cwd=self.base, text=True, capture_output=True,
                              timeout=timeout)
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def sh(self, script, **options):
        return self.run(["sh", "-euc", script], **options)

    def python(self, script, **options):
        return self.run(["python3", "-c", textwrap.dedent(script)], **options)

    def start(self, script):
        """A shell inside that talks with the test line by line."""
        return Inside(subprocess.Popen(self.command(["sh", "-c", script]), cwd=self.base, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def records(self):
        return [json.loads(line) for line in (self.base / "records").read_text().splitlines()]


class Inside:
    """`ask` runs a command inside and gives its output."""

    def __init__(self, process):
        self.process = process

    def ask(self, command):
        self.process.stdin.write(command + "; echo .done\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline()
            assert line, "the shell inside ended"
            if line.rstrip("\n").endswith(".done"):
                lines.append(line.rstrip("\n")[:-len(".done")])
                return "\n".join(lines).rstrip("\n")
            lines.append(line.rstrip("\n"))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


@pytest.fixture
def wire(tmp_path):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse is not usable here")
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode != 0:
        pytest.skip("user namespaces are not usable here")
    return Wire(tmp_path)


@pytest.fixture
def inside(wire):
    shell = wire.start("while read -r line; do eval \"$line\" 2>&1; done")
    yield shell
    shell.end()


def wait_until(ask, wanted, seconds=0.5):
    """Polls: a notification takes its way through two processes. The time limit of caches is longer than this."""
    deadline = time.monotonic() + seconds
    while True:
        got = ask()
        if got == wanted or time.monotonic() > deadline:
            assert got == wanted
            return
        time.sleep(0.005)


# ---- ordinary work

def test_git_works(wire):
    wire.sh("""cd m
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
        git init -q .; mkdir d; for i in $(seq 200); do echo $i > d/$i; done
        git add .; git commit -qm one; test -z "$(git status --porcelain)"
        echo changed > d/7; git mv d/8 e; test "$(git status --porcelain | wc -l)" = 2
        git commit -qam two; git gc -q; git fsck --full; git checkout -q HEAD~1; test "$(cat d/7)" = 7""")
    subprocess.check_call(["git", "-C", wire.host, "fsck", "--full"])
    assert (wire.host / "d" / "8").read_text() == "8\n"


def test_git_works_on_both_sides_in_turn(wire, inside):
    git = "git -c user.name=a -c user.email=a@example.org"
    inside.ask(f"cd m; {git} init -q .; echo 1 > f; {git} add f; {git} commit -qm one")
    subprocess.check_call(f"cd {wire.host}; echo 2 > f; {git} commit -qam two", shell=True)
    wait_until(lambda: inside.ask("git log --format=%s | head -1; cat f; git status --porcelain"), "two\n2")
    # A lock that the host takes away is gone inside.
    inside.ask("touch .git/index.lock")
    assert "index.lock" in inside.ask("git add f")
    (wire.host / ".git" / "index.lock").unlink()
    wait_until(lambda: inside.ask("git add f && echo added"), "added")


def test_sqlite_write_ahead_log_between_two_processes(wire):
    wire.python("""
        import sqlite3, subprocess, sys
        child = '''
        import sqlite3, sys
        db = sqlite3.connect("m/x.db", timeout=30)
        for i in range(100):
            db.execute("insert into t values (?)", (sys.argv[1] + str(i),)); db.commit()
        '''
        import textwrap
        db = sqlite3.connect("m/x.db")
        assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
        db.execute("create table t (x)"); db.commit()
        both = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(child), n]) for n in "ab"]
        assert [p.wait() for p in both] == [0, 0]
        assert db.execute("select count(*) from t").fetchone() == (200,)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    """)


def test_tar_keeps_a_tree(wire):
    wire.sh("""mkdir t; cd t; for d in a b c; do mkdir $d; for i in $(seq 50); do echo $d$i > $d/$i; done; done
        ln -s a/1 link; ln a/2 hard; chmod 640 a/3; touch -d '2001-02-03 04:05:06.789' b/4; cd ..
        tar cf t.tar -C t .; tar xf t.tar -C m; tar df t.tar -C m; diff -r t m
        test $(stat -c %h m/hard) = 2; test $(stat -c %i m/hard) = $(stat -c %i m/a/2)
        rm -rf m/*; test -z "$(ls -A m)" """)


def test_locks_hold_between_processes_inside(wire):
    wire.python("""
        import fcntl, os
        a = open("m/l", "w"); fcntl.flock(a, fcntl.LOCK_EX)
        b = open("m/l", "w")
        try: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB); raise SystemExit("locked twice")
        except BlockingIOError: pass
        fcntl.lockf(a, fcntl.LOCK_EX)
        if os.fork() == 0:
            try: fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
            except BlockingIOError: os._exit(0)
        assert os.wait()[1] == 0
    """)


def test_shared_mappings_reach_the_host_file(wire):
    wire.python("""
        import mmap
        f = open("m/f", "w+b"); f.truncate(1 << 20)
        m = mmap.mmap(f.fileno(), 0); m[500000:500005] = b"hello"; m.flush()
        g = open("m/f", "a+b"); n = mmap.mmap(g.fileno(), 0); n[10:12] = b"ok"; n.flush(); n.close(); g.close()
        assert open("m/f", "rb").read()[10:12] == b"ok"
    """)
    content = (wire.host / "f").read_bytes()
    assert len(content) == 1 << 20 and content[500000:500005] == b"hello" and content[10:12] == b"ok"


def test_a_mapped_page_and_a_host_edit_do_not_lock_each_other(wire, inside):
    """Dropping pages makes the kernel write them first, while the notification waits."""
    (wire.host / "f").write_bytes(b"a" * 65536)
    (wire.host / "script.py").write_text("import mmap,time\nf=open('m/f','r+b'); m=mmap.mmap(f.fileno(),0)\n"
                     "for i in range(300): m[i]=98; time.sleep(0.001)\n")
    inside.ask("python3 m/script.py & true")
    for i in range(60):
        with open(wire.host / "f", "r+b") as f:
            f.seek(60000 + i)
            f.write(b"h")
        time.sleep(0.005)
    assert inside.ask("wait; head -c 3 m/f") == "bbb"


def test_unlinked_files_stay_readable_while_open(wire):
    wire.python("""
        import os
        f = open("m/f", "w+"); f.write("still here"); f.flush(); os.unlink("m/f")
        assert os.fstat(f.fileno()).st_nlink == 0
        os.ftruncate(f.fileno(), 5); f.seek(0); assert f.read() == "still"
        os.fchmod(f.fileno(), 0o600); assert os.listdir("m") == []
        g = open("m/g", "w+"); g.write("old"); g.flush()
        open("m/h", "w").write("new"); os.rename("m/h", "m/g")
        g.seek(0); assert g.read() == "old" and open("m/g").read() == "new"
    """)


def test_many_makers_of_one_path(wire):
    wire.sh("""for i in $(seq 16); do mkdir -p m/a/b/c/d/e/f/$i & done; wait; test $(ls m/a/b/c/d/e/f | wc -l) = 16
        for i in $(seq 8); do (for j in $(seq 50); do echo $i >> m/log; done) & done; wait; test $(wc -l < m/log) = 400""")


def test_rename_exchange_and_noreplace(wire):
    wire.python("""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        open("m/a","w").write("A"); open("m/b","w").write("B")
        assert libc.renameat2(-100, b"m/a", -100, b"m/b", 1) == -1 and ctypes.get_errno() == 17
        assert libc.renameat2(-100, b"m/a", -100, b"m/b", 2) == 0
        assert open("m/a").read() == "B" and open("m/b").read() == "A"
    """)


def test_sparse_files_and_copies(wire):
    wire.python("""
        import os
        f = os.open("m/s", os.O_RDWR | os.O_CREAT)
        os.pwrite(f, b"end", 1 << 40); assert os.stat("m/s").st_size == (1 << 40) + 3
        assert os.lseek(f, 0, os.SEEK_DATA) > 0 and os.stat("m/s").st_blocks < 1000
        os.posix_fallocate(f, 0, 65536); assert os.stat("m/s").st_blocks >= 128
        g = os.open("m/g", os.O_RDWR | os.O_CREAT); os.pwrite(g, os.urandom(300000), 0)
        h = os.open("m/h", os.O_RDWR | os.O_CREAT); n = 0
        while n < 300000: n += os.copy_file_range(g, h, 300000 - n, n, n)
        assert os.pread(g, 300000, 0) == os.pread(h, 300000, 0)
    """)


def test_fifos_and_sockets_work_inside(wire):
    wire.python("""
        import os, socket
        os.mkfifo("m/p")
        if os.fork() == 0: open("m/p", "w").write("through"); os._exit(0)
        assert open("m/p").read() == "through"
        s = socket.socket(socket.AF_UNIX); s.bind("m/s"); s.listen()
        c = socket.socket(socket.AF_UNIX); c.connect("m/s")
    """)


def test_a_large_directory_lists_completely(wire):
    for i in range(5000):
        (wire.host / f"file-with-a-rather-long-name-{i}").touch()
    assert wire.sh("ls m | wc -l; find m -type f | wc -l; ls -l m | wc -l").split() == ["5000", "5000", "5001"]


def test_random_data_arrives_whole(wire):
    wire.sh("head -c 50000000 /dev/urandom > r; cp r m/r; cmp r m/r; dd if=m/r of=m/s bs=7777 status=none; cmp r m/s")


def test_a_single_file_is_shared_alone(wire):
    secret = wire.base / "one.txt"
    secret.write_text("one")
    target = wire.base / "inside.txt"
    out = wire.sh(f"cat {target}; echo two > {target}; cat {target}", share=f"{secret}={target}")
    assert out == "onetwo\n" and secret.read_text() == "two\n"


# ---- edits of the host are seen at once

def test_a_share_inside_another_covers_it(wire):
    (wire.host / "kept").mkdir()
    (wire.host / "kept" / "file").write_text("outer\n")
    (wire.base / "inner").mkdir()
    (wire.base / "inner" / "file").write_text("inner\n")
    inner = wire.base / "inner"
    seen = wire.sh("cat m/kept/file m/new/deep/file m/kept/../new/deep/file; ! echo x > m/kept/file",
                   inner=[f"{inner}={wire.mount}/kept=ro", f"{inner}={wire.mount}/new/deep"], timeout=20)
    assert seen == "inner\n" * 3
    assert (wire.host / "kept" / "file").read_text() == "outer\n"
    assert (wire.host / "new" / "deep").is_dir() and os.listdir(wire.host / "new" / "deep") == []


def test_host_edits_are_seen_at_once(wire, inside):
    f = wire.host / "f"
    f.write_text("one")
    assert inside.ask("cat m/f") == "one"
    f.write_text("a longer text")
    wait_until(lambda: inside.ask("cat m/f; stat -c %s m/f"), "a longer text13")
    f.write_text("b")
    wait_until(lambda: inside.ask("cat m/f"), "b")
    for i in range(20):  # same size, within one tick of the clock
        f.write_text(f"{i:04}")
        wait_until(lambda: inside.ask("cat m/f"), f"{i:04}")


def test_host_edits_are_seen_in_a_file_held_open(wire, inside):
    (wire.host / "f").write_text("first")
    inside.ask("exec 5< m/f; cat m/f")
    with open(wire.host / "f", "a") as f:
        f.write(" and more")
    wait_until(lambda: inside.ask("cat /proc/self/fd/5"), "first and more")


def test_host_renames_removals_and_new_files_are_seen(wire, inside):
    (wire.host / "d").mkdir()
    (wire.host / "d" / "f").write_text("old")
    assert inside.ask("cat m/d/f; ls m/d") == "oldf"
    (wire.host / "d" / "g").write_text("new")
    os.rename(wire.host / "d" / "g", wire.host / "d" / "f")
    wait_until(lambda: inside.ask("cat m/d/f"), "new")
    (wire.host / "d" / "f").unlink()
    wait_until(lambda: inside.ask("test -e m/d/f || echo gone"), "gone")
    (wire.host / "d" / "f").write_text("again")
    wait_until(lambda: inside.ask("cat m/d/f"), "again")
    os.rename(wire.host / "d", wire.host / "e")
    wait_until(lambda: inside.ask("test -e m/d || cat m/e/f"), "again")
    (wire.host / "e" / "f").chmod(0o751)
    wait_until(lambda: inside.ask("stat -c %a m/e/f"), "751")


def test_a_directory_that_the_host_replaced_by_a_symlink_is_not_followed(wire, inside):
    outside = wire.base / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (wire.host / "d").mkdir()
    (wire.host / "d" / "secret").write_text("harmless")
    inside.ask("cd m/d")
    assert inside.ask("cat secret") == "harmless"
    os.rename(wire.host / "d", wire.host / "was")
    (wire.host / "d").symlink_to(outside)
    # A symlink is followed by the guest itself, in its own tree; there the path may exist, but never through the share.
    assert inside.ask("cat secret") == "harmless"
    assert inside.ask("readlink ../d") == str(outside)


# ---- what must not work

def test_a_read_only_share_changes_nothing(wire):
    (wire.host / "f").write_text("same")
    (wire.host / "d").mkdir()
    before = sorted((str(p), p.stat().st_mtime_ns, p.stat().st_mode) for p in wire.host.rglob("*"))
    wire.sh("""cat m/f; for c in 'echo x > m/f' 'echo x >> m/f' 'touch m/n' 'mkdir m/e' 'rm m/f' 'rmdir m/d' 'mv m/f m/g'
        do if sh -c "$c" 2> /dev/null; then echo "worked: $c"; exit 1; fi; done
        for c in 'ln m/f m/h' 'ln -s f m/s' 'chmod 777 m/f' 'touch m/f' 'truncate -s 0 m/f' 'mkfifo m/p'
        do if $c 2> /dev/null; then echo "worked: $c"; exit 1; fi; done""", read_only=True)
    after = sorted((str(p), p.stat().st_mtime_ns, p.stat().st_mode) for p in wire.host.rglob("*"))
    assert before == after


def test_symlinks_lead_nowhere_outside_the_share(wire):
    (wire.host / "abs").symlink_to("/etc/hostname")
    (wire.host / "up").symlink_to("../" * 20 + "etc/hostname")
    assert wire.sh("readlink m/abs m/up").splitlines() == ["/etc/hostname", "../" * 20 + "etc/hostname"]


def test_set_user_id_is_taken_off(wire):
    wire.sh("cp /bin/true m/t; chmod 6755 m/t; test $(stat -c %a m/t) = 755; mkdir -m 7777 m/d; stat -c %a m/d")
    assert (wire.host / "t").stat().st_mode & 0o7000 == 0
    assert (wire.host / "d").stat().st_mode & 0o6000 == 0


def test_deep_trees_are_made_and_removed(wire):
    wire.python("""
        import os
        os.chdir("m")
        for i in range(700): os.mkdir("d" * 50); os.chdir("d" * 50)
        open("bottom", "w").write("x"); assert open("bottom").read() == "x"
    """)
    wire.sh("rm -rf m/*; test -z \"$(ls -A m)\"")


def test_stopping_while_files_are_open_ends_cleanly(wire):
    wire.sh("sleep 100 < /dev/null > m/out 2>&1 & echo started")

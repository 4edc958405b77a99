"""Contract rows C7 and Q3: images by reference, from a registry on the host's loopback."""

import os
import pathlib
import tarfile
import tempfile

import pytest

from images import Registry, busybox_root, tar_of

needs_registry = pytest.mark.skipif(Registry.missing is not None, reason=str(Registry.missing))


@needs_registry
def test_C7_an_image_runs_as_users_of_docker_expect(machine):
    report = b"#!/bin/sh\necho \"$#:$1:$2\"; pwd; id -u; id -g; echo \"$GREETING $PATH $HOME\"; cat /etc/mark\n"
    layers = [tar_of(busybox_root(**{"bin/report": report, "etc/mark": b"lower\n", "etc/gone": b"x"})),
              tar_of({"etc/mark": b"upper\n", "etc/.wh.gone": b""})]
    config = {"Entrypoint": ["/bin/report"], "Cmd": ["one", "two words"], "Env": ["GREETING=hello", "PATH=/bin"],
              "WorkingDir": "/srv/data", "User": "worker:workers"}
    with Registry(machine) as registry:
        whole = registry.push("tool:1", layers, config)
        plain = registry.push("tool:plain", layers, {"Cmd": ["/bin/sh", "-c", "id -u; pwd; ls /etc/gone; ls -d /workspace; exit 7"]})
        pulled = machine.sandbox("image", "pull", whole)
        assert pulled.status == 0, pulled
        own = machine.sandbox("run", whole, cwd=machine.dir)
        assert own.out.splitlines() == ["2:one:two words", "/srv/data", "33", "44", "hello /bin /srv", "upper"], own
        given = machine.sandbox("run", "-u", "0", "-e", "GREETING=bye", whole, "--", "three", cwd=machine.dir)
        assert given.out.splitlines()[:5] == ["1:three:", "/srv/data", "0", "0", "bye /bin /root"], given
        bare = machine.sandbox("run", plain, cwd=machine.dir)  # pulled by run itself
        assert bare.status == 7 and bare.out.splitlines() == ["1000", str(machine.dir), "/workspace"], bare
        unknown = machine.sandbox("run", f"127.0.0.1:{Registry.PORT}/no/such:tag", cwd=machine.dir)
        assert unknown.status == 125 and "hint:" in unknown.err and "tag" in unknown.err, unknown
        for reference in (whole, plain):
            assert machine.sandbox("image", "rm", reference).status == 0


@needs_registry
def test_Q3_a_hostile_layer_ends_in_an_error_and_leaves_nothing(machine):
    def special(path, **fields):
        entry = tarfile.TarInfo(path)
        for key, value in fields.items():
            setattr(entry, key, value)
        return {path: entry}

    deep = "/".join(["d"] * 3000)
    hostile = {
        "above": {"../../escaped": b"x"},
        "link above": {"good": ("hard link", "../../../etc/passwd")},
        "link to nothing": {"good": ("hard link", "no/such/file")},
        "deep": {deep: b"x"},
        "loop": {"a": ("symlink", "b"), "b": ("symlink", "a"), "a/file": b"x"},
        "huge": special("huge", size=1 << 50),
        "cut": None,
    }
    with Registry(machine) as registry, tempfile.TemporaryDirectory(dir=machine.dir) as home:
        os.chmod(home, 0o700)

        def pull(reference):
            return machine.sandbox("image", "pull", reference, env={"SANDBOX_HOME": home})

        def left():  # beside the empty lock of each reference
            return [str(p.relative_to(home)) for part in ("disks", "refs", "tmp") for p in pathlib.Path(home, "images", part).glob("**/*")
                    if p.suffix != ".lock" or p.stat().st_size != 0]

        outcomes = {}
        for name, entries in hostile.items():
            layer = tar_of(busybox_root())[:100_000] if entries is None else tar_of(entries)
            done = pull(registry.push(f"hostile:{name.replace(' ', '-')}", [tar_of(busybox_root()), layer], {"Cmd": ["/bin/sh"]}))
            outcomes[name] = (done.status, done.err.strip().splitlines()[-2:], left())
        for name, (status, words, remains) in outcomes.items():
            assert status == 1 and any(w.startswith("sandbox: ") for w in words) and remains == [], (name, outcomes)
        assert not (pathlib.Path(home).parent / "escaped").exists()
        control = pull(registry.push("hostile:control", [tar_of(busybox_root()), tar_of({"ok": b"x"})], {"Cmd": ["/bin/sh"]}))
        assert control.status == 0 and left(), control

"""Images from a real registry on loopback: Debian's docker-registry, filled by skopeo.

Each negative case damages the registry's own storage and has its control: the same image was pulled before the damage.
"""
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import time

import pytest

BIN = pathlib.Path(os.environ["SANDBOX_BIN"])
SANDBOX = BIN / "sandbox"

pytestmark = pytest.mark.skipif(
    not shutil.which("docker-registry") or not shutil.which("skopeo"), reason="docker-registry or skopeo is missing"
)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry:
    def __init__(self, folder):
        self.storage = folder / "storage"
        self.port = free_port()
        config = folder / "registry.yml"
        config.write_text(
            "version: 0.1\nlog: {level: error}\n"
            f"storage:\n  filesystem: {{rootdirectory: {self.storage}}}\n  cache: {{}}\n"
            f"http: {{addr: '127.0.0.1:{self.port}'}}\n"
        )
        self.process = subprocess.Popen(
            ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "docker-registry did not start"
                time.sleep(0.05)

    def name(self, repository):
        return f"127.0.0.1:{self.port}/{repository}"

    def blob(self, wanted):
        return self.storage / f"docker/registry/v2/blobs/sha256/{wanted[7:9]}/{wanted[7:]}/data"

    def stop(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def registry(tmp_path):
    running = Registry(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def run(home, *words, timeout=120):
    env = dict(os.environ, SANDBOX_HOME=str(home), NO_COLOR="1")
    return subprocess.run(
        [str(SANDBOX), *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
    )


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
                entry.mode = 0o755
                tar.addfile(entry)
            elif isinstance(content, tuple):
                entry.type = tarfile.SYMTYPE
                entry.linkname = content[0]
                tar.addfile(entry)
            else:
                entry.size = len(content)
                entry.mode = 0o755
                tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def write_layout(folder, tars, architectures=("amd64",), diff_ids=None):
    """An OCI layout with one image per architecture behind an index; returns the id and layer digests of the first."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def put(data, media_type):
        (blobs / digest(data)[7:]).write_bytes(data)
        return {"mediaType": media_type, "digest": digest(data), "size": len(data)}

    manifests, first = [], None
    for architecture in architectures:
        layers = [
            put(gzip.compress(tar, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip") for tar in tars
        ]
        diffs = diff_ids or [digest(tar) for tar in tars]
        config = json.dumps({
            "architecture": architecture, "os": "linux",
            "config": {"Cmd": ["/bin/tool"], "Env": ["GREETING=hello"]},
            "rootfs": {"type": "layers", "diff_ids": diffs},
        }).encode()
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": put(config, "application/vnd.oci.image.config.v1+json"), "layers": layers,
        }).encode()
        descriptor = put(manifest, "application/vnd.oci.image.manifest.v1+json")
        descriptor["platform"] = {"architecture": architecture, "os": "linux"}
        manifests.append(descriptor)
        first = first or (digest(config), [layer["digest"] for layer in layers])
    if len(manifests) > 1:
        index = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                            "manifests": manifests}).encode()
        manifests = [put(index, "application/vnd.oci.image.index.v1+json")]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))
    return first


def push(layout, registry, repository, *flags):
    subprocess.run(
        ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", "--all", *flags,
         f"oci:{layout}", f"docker://{registry.name(repository)}"],
        check=True, stdin=subprocess.DEVNULL,
    )


BASE = {"bin": None, "bin/tool": b"#!/bin/sh\necho v1\n", "etc": None, "etc/gone": b"x", "lib": ("usr/lib",), "usr/lib": None}
UPPER = {"etc/.wh.gone": b"", "lib/added": b"by the upper layer", "data/big": os.urandom(300_000)}


def images(home):
    return json.loads(run(home, "image", "ls", "--json").stdout)


def debugfs(disk, request):
    return subprocess.run(["debugfs", "-R", request, disk], capture_output=True, check=True).stdout


def nothing_left(home):
    root = home / "images"
    return not [p for part in ("disks", "refs", "tmp") for p in (root / part).iterdir()]


def test_an_image_of_two_layers_becomes_a_sound_disk(registry, home, tmp_path):
    image_id, _ = write_layout(tmp_path / "layout", [tar_of(BASE), tar_of(UPPER)])
    push(tmp_path / "layout", registry, "tool:1")
    done = run(home, "image", "pull", registry.name("tool:1"))
    assert done.returncode == 0, done.stderr
    [image] = images(home)
    assert image["id"] == image_id
    assert image["reference"] == registry.name("tool:1")
    check = subprocess.run(["e2fsck", "-fn", image["disk"]], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout
    assert debugfs(image["disk"], "cat /bin/tool") == BASE["bin/tool"]
    assert debugfs(image["disk"], "cat /data/big") == UPPER["data/big"]
    assert debugfs(image["disk"], "cat /usr/lib/added") == UPPER["lib/added"]
    assert debugfs(image["disk"], "cat /etc/gone") == b""
    table = run(home, "image", "ls").stdout.splitlines()
    assert table[0].split() == ["REFERENCE", "ID", "SIZE", "CREATED"]
    assert image_id[7:19] in table[1]
    removed = run(home, "image", "rm", image_id[7:15])
    assert removed.returncode == 0, removed.stderr
    assert nothing_left(home)


def test_docker_schema_2_keeps_dockers_image_id(registry, home, tmp_path):
    write_layout(tmp_path / "layout", [tar_of(BASE)])
    push(tmp_path / "layout", registry, "tool:docker", "--format=v2s2")
    done = run(home, "image", "pull", registry.name("tool:docker"))
    assert done.returncode == 0, done.stderr
    raw = subprocess.run(
        ["skopeo", "--insecure-policy", "inspect", "--raw", "--tls-verify=false",
         f"docker://{registry.name('tool:docker')}"], check=True, capture_output=True).stdout
    assert json.loads(raw)["mediaType"] == "application/vnd.docker.distribution.manifest.v2+json"
    assert images(home)[0]["id"] == json.loads(raw)["config"]["digest"]


def test_the_machines_platform_is_chosen_from_an_index(registry, home, tmp_path):
    write_layout(tmp_path / "layout", [tar_of(BASE)], architectures=("s390x", "amd64", "arm64"))
    push(tmp_path / "layout", registry, "tool:multi")
    done = run(home, "image", "pull", registry.name("tool:multi"))
    assert done.returncode == 0, done.stderr
    other = tmp_path / "other"
    write_layout(other, [tar_of(BASE)], architectures=("s390x",))
    push(other, registry, "tool:s390x")
    done = run(home, "image", "pull", registry.name("tool:s390x"))
    assert done.returncode == 1
    assert "s390x" in done.stderr


def test_a_name_the_registry_does_not_have_is_said_so(registry, home):
    done = run(home, "image", "pull", registry.name("no/such:tag"))
    assert done.returncode == 1
    assert "sandbox: " in done.stderr and "hint: check the name and the tag" in done.stderr
    assert nothing_left(home)


def test_no_registry_names_the_way_out(home):
    done = run(home, "image", "pull", f"127.0.0.1:{free_port()}/x")
    assert done.returncode == 1
    assert "connection refused" in done.stderr and "builtin" in done.stderr


@pytest.mark.parametrize("damage", ["flip", "truncate", "lengthen"])
def test_a_damaged_layer_is_refused_and_leaves_nothing(registry, home, tmp_path, damage):
    _, layers = write_layout(tmp_path / "layout", [tar_of(BASE), tar_of(UPPER)])
    push(tmp_path / "layout", registry, "tool:1")
    assert run(home, "image", "pull", registry.name("tool:1")).returncode == 0
    assert run(home, "image", "rm", registry.name("tool:1")).returncode == 0
    blob = registry.blob(layers[1])
    data = bytearray(blob.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    blob.write_bytes({"flip": data, "truncate": data[:-1000], "lengthen": data + b"more"}[damage])
    done = run(home, "image", "pull", registry.name("tool:1"))
    assert done.returncode == 1, done.stdout
    assert nothing_left(home)


def test_a_layer_that_unpacks_to_something_else_is_named(registry, home, tmp_path):
    write_layout(tmp_path / "layout", [tar_of(BASE)], diff_ids=[digest(b"something else")])
    push(tmp_path / "layout", registry, "tool:1")
    done = run(home, "image", "pull", registry.name("tool:1"))
    assert done.returncode == 1
    assert "layer 1 of 1" in done.stderr and "unpacks to" in done.stderr
    assert nothing_left(home)


def test_ctrl_c_during_a_pull_leaves_nothing(registry, home, tmp_path):
    write_layout(tmp_path / "layout", [tar_of({"big": os.urandom(60_000_000)})])
    push(tmp_path / "layout", registry, "tool:big")
    env = dict(os.environ, SANDBOX_HOME=str(home))
    process = subprocess.Popen([str(SANDBOX), "image", "pull", registry.name("tool:big")], env=env,
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    tmp = home / "images/tmp"
    deadline = time.monotonic() + 30
    while not (tmp.is_dir() and list(tmp.iterdir())):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert nothing_left(home)
    # The control: undisturbed, the same pull succeeds.
    assert run(home, "image", "pull", registry.name("tool:big")).returncode == 0


def test_a_killed_pull_is_cleaned_up_by_the_next_command(registry, home, tmp_path):
    write_layout(tmp_path / "layout", [tar_of({"big": os.urandom(60_000_000)})])
    push(tmp_path / "layout", registry, "tool:big")
    process = subprocess.Popen([str(SANDBOX), "image", "pull", registry.name("tool:big")],
                               env=dict(os.environ, SANDBOX_HOME=str(home)), stdin=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    tmp = home / "images/tmp"
    deadline = time.monotonic() + 30
    while not (tmp.is_dir() and list(tmp.iterdir())):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    [left] = tmp.iterdir()
    os.utime(left, (0, 0))  # a young folder may belong to a process that has not locked it yet
    assert run(home, "image", "ls").returncode == 0
    assert nothing_left(home)

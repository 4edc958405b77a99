"""Images made by hand, and a registry in the host namespace to pull them from."""

import gzip
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import time

BUSYBOX = "/usr/bin/busybox"


def tar_of(entries):
    """A layer: path → bytes (a program), None (a directory), ("symlink" | "hard link", target) or a TarInfo to be taken as it is."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in entries.items():
            entry = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(path)
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, tuple):
                entry.type = {"symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE}[content[0]]
                entry.linkname = content[1]
            elif isinstance(content, bytes):
                entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def busybox_root(**more):
    """A root file system in which sh and the usual programs are there."""
    programs = "sh cat env id pwd ls echo touch".split()
    root = {path: None for path in ("bin", "etc", "tmp", "srv", "srv/data")}
    root["bin/busybox"] = pathlib.Path(BUSYBOX).read_bytes()
    root.update({f"bin/{program}": ("symlink", "busybox") for program in programs})
    root["etc/passwd"] = b"root:x:0:0::/root:/bin/sh\nworker:x:33:44::/srv:/bin/sh\n"
    root["etc/group"] = b"root:x:0:\nworkers:x:44:\nextra:x:55:worker\n"
    root.update(more)
    return root


def write_layout(folder, layers, config):
    """An OCI layout of one image; `layers` are tar files, `config` what docker calls Config."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    image = {"architecture": "amd64", "os": "linux", "config": config,
             "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest() for tar in layers]}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": put(json.dumps(image).encode(), "config.v1+json"),
                "layers": [put(gzip.compress(tar, 1, mtime=0), "layer.v1.tar+gzip") for tar in layers]}
    index = {"schemaVersion": 2, "manifests": [put(json.dumps(manifest).encode(), "manifest.v1+json")]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


class Registry:
    """Debian's docker-registry on the loopback of the host namespace."""

    PORT = 5000
    missing = None if shutil.which("docker-registry") and shutil.which("skopeo") else "docker-registry or skopeo is missing"

    def __init__(self, machine):
        self.machine = machine
        self.dir = pathlib.Path(tempfile.mkdtemp(dir=machine.dir))
        config = self.dir / "registry.yml"
        config.write_text(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.dir}/storage}}}}\n"
                          f"http: {{addr: '127.0.0.1:{self.PORT}'}}\n")
        self.process = subprocess.Popen(["ip", "netns", "exec", machine.host, "docker-registry", "serve", str(config)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        answers = ["/usr/bin/python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {self.PORT}), 1)"]
        end = time.monotonic() + 20
        while machine.in_host(answers, stderr=subprocess.DEVNULL).returncode != 0:
            assert time.monotonic() < end, "docker-registry did not start"
            time.sleep(0.1)

    def push(self, name, layers, config):
        """The reference of the image, pushed."""
        layout = self.dir / name.replace(":", "-")
        write_layout(layout, layers, config)
        reference = f"127.0.0.1:{self.PORT}/{name}"
        self.machine.in_host(["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{layout}",
                              f"docker://{reference}"], check=True, stdin=subprocess.DEVNULL)
        return reference

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

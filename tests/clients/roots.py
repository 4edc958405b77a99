"""Two Debian roots, made by mmdebstrap from this machine's own apt sources and kept in build/clients:

  clients    what runs inside the sandbox: an OCI layout, for `sandbox run oci:…`
  servers    what it talks to, and the compilers of the small programs: a folder, entered by chroot

So nothing but mmdebstrap has to be installed on the machine itself, and no server starts on it.
"""

import gzip
import hashlib
import json
import pathlib
import shutil
import subprocess

PACKAGES = {
    "clients": ["ca-certificates", "curl", "wget", "git", "python3", "python3-requests", "python3-pip", "nodejs", "npm", "iproute2",
                "default-jre-headless", "openssh-client", "postgresql-client", "redis-tools"],
    "servers": ["ca-certificates", "golang-go", "default-jdk-headless", "musl-tools", "postgresql", "redis-server"],
}
PROGRAMS = pathlib.Path(__file__).parent / "programs"


def sources():
    """(release, one-line sources): those of the release that this machine runs."""
    release = dict(line.split("=", 1) for line in open("/etc/os-release") if "=" in line)["VERSION_CODENAME"].strip().strip('"')
    wanted = {release, f"{release}-updates", f"{release}-security"}
    targets = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"],
                             check=True, capture_output=True, text=True).stdout.split()
    found = sorted({target for target in targets if target.split("|")[1] in wanted})
    return release, [f"deb {uri} {suite} {component}" for uri, suite, component in (target.split("|") for target in found)]


def acquire_settings():
    """How this machine's apt downloads: proxies, clocks, retries."""
    skipped = ("Acquire::IndexTargets", "Acquire::Changelogs", "Acquire::cdrom", "Acquire::CompressionTypes")
    lines = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [f"--aptopt={line}" for line in lines
            if line.startswith("Acquire::") and not line.startswith(skipped) and not line.endswith(' "";')]


def make(name, folder):
    """The tar file of a root; made once, and again when its packages change."""
    folder.mkdir(parents=True, exist_ok=True)
    tar, recipe = folder / f"{name}.tar", folder / f"{name}.packages"
    packages = ",".join(PACKAGES[name])
    if tar.exists() and recipe.exists() and recipe.read_text() == packages:
        return tar
    release, lines = sources()
    part = folder / f"{name}.part"
    print(f"making the root of the {name}: a few minutes", flush=True)
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", f"--include={packages}", *acquire_settings(), release,
                    part, *lines], check=True)
    part.rename(tar)
    recipe.write_text(packages)
    return tar


def servers(folder):
    """The folder of the servers' root, with the small programs compiled into /programs."""
    tar, root = make("servers", folder), folder / "servers"
    if not (root / "done").exists() or (root / "done").stat().st_mtime < tar.stat().st_mtime:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        subprocess.run(["tar", "-xpf", tar, "-C", root, "--numeric-owner", "--exclude=./dev/*"], check=True)
        (root / "done").touch()
    compile_programs(root)
    return root


def compile_programs(root):
    out = root / "programs"
    out.mkdir(exist_ok=True)
    sources = sorted(PROGRAMS.iterdir())
    if (out / "done").exists() and all((out / "done").stat().st_mtime > source.stat().st_mtime for source in sources):
        return
    for source in sources:
        shutil.copy(source, out)
    build = ("set -e; cd /programs && musl-gcc -static -O2 -o musl_get musl_get.c && javac Get.java && "
             "CGO_ENABLED=0 GOCACHE=/tmp/go GOFLAGS=-mod=mod GO111MODULE=off go build -o go_get get.go && touch done")
    subprocess.run(entering(root, "sh", "-c", build), check=True)


def entering(root, *argv):
    """The argv that runs `argv` in a root, with /proc and /dev."""
    script = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "sh", "-c", script, root, *argv]


def clients(folder):
    """The OCI layout of the clients' image."""
    tar, layout = make("clients", folder), folder / "image"
    if (layout / "index.json").exists() and (layout / "index.json").stat().st_mtime > tar.stat().st_mtime:
        return layout
    shutil.rmtree(layout, ignore_errors=True)
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(data)}

    plain, packed = digest_of(tar), blobs / "layer"
    with open(tar, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{digest_of(packed)}", "size": packed.stat().st_size}
    packed.rename(blobs / layer["digest"].removeprefix("sha256:"))
    config = {"architecture": "amd64", "os": "linux", "config": {"User": "root"}, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": put(json.dumps(config).encode(), "config.v1+json"), "layers": [layer]}
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [put(json.dumps(manifest).encode(), "manifest.v1+json")]}))
    return layout


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

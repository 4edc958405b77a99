"""Q3: from layers to a disk, and starts from a small and a large image.

The images are OCI layouts made here: several layers of many small files and a few large ones, that deflate to about half.
"""
import contextlib
import gzip
import hashlib
import io
import json
import pathlib
import random
import statistics
import subprocess
import tarfile
import tempfile
import time

from report import Row, at_most

LAYERS, LAYER_BYTES = 4, 50_000_000  # compressed, as a registry counts them
STARTS = 7


class Hashing:
    """A file that knows the SHA-256 of what was written to it."""

    def __init__(self, file):
        self.file, self.hash = file, hashlib.sha256()

    def write(self, data):
        self.hash.update(data)
        return self.file.write(data)

    def flush(self):
        self.file.flush()


class Layout:
    """An OCI layout in the making (image-spec, image-layout.md)."""

    def __init__(self, folder):
        self.folder = folder
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.layers, self.diff_ids, self.bytes = [], [], 0

    def put(self, data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(data)}

    def layer(self, entries):
        """`entries(written)` yields (TarInfo, bytes), and may ask how many bytes the layer has by now."""
        path = self.blobs / "layer"
        with open(path, "wb") as file:
            packed = Hashing(file)
            with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0, filename="") as zipped:
                plain = Hashing(zipped)
                with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                    for info, data in entries(file.tell):
                        tar.addfile(info, io.BytesIO(data))
        digest, size = packed.hash.hexdigest(), path.stat().st_size
        path.rename(self.blobs / digest)
        self.layers.append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:" + digest,
                            "size": size})
        self.diff_ids.append("sha256:" + plain.hash.hexdigest())
        self.bytes += size

    def finish(self):
        config = self.put(json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/say_ready"]},
                                      "rootfs": {"type": "layers", "diff_ids": self.diff_ids}}).encode(),
                          "application/vnd.oci.image.config.v1+json")
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = self.put(json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config,
                                        "layers": self.layers}).encode(), kind)
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))


def file_entry(name, data, mode=0o644):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    return info, data


def program_layer(product):
    program = (product.bin / "say_ready").read_bytes()
    return lambda written: [file_entry("say_ready", program, 0o755)]


def bulk_layer(seed):
    """Files of 200 bytes to 30 KB, each fiftieth a hundred times as large, until the layer is full."""
    def entries(written):
        source = random.Random(seed)
        count = 0
        while written() < LAYER_BYTES:
            size = source.randrange(200, 30_000) * (100 if count % 50 == 49 else 1)
            yield file_entry(f"data/{seed}/{count // 100}/{count}", source.randbytes(size // 2).hex().encode())
            count += 1
    return entries


def make_images(product, folder):
    small, large = Layout(folder / "small"), Layout(folder / "large")
    for layout in (small, large):
        layout.layer(program_layer(product))
    for seed in range(LAYERS):
        large.layer(bulk_layer(seed))
    small.finish()
    large.finish()
    return small, large


def pull(product, reference):
    """Seconds from the end of the download to the end of the command, by its own report of what it does."""
    process = subprocess.Popen([product.bin / "sandbox", "image", "pull", reference], env=product.environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    downloaded, said = None, []
    for line in process.stderr:
        said.append(line)
        if line.startswith("unpacking") and downloaded is None:
            downloaded = time.monotonic()
    if process.wait() != 0 or downloaded is None:
        raise RuntimeError(f"sandbox image pull {reference}: {''.join(said)[-500:]}")
    return time.monotonic() - downloaded


def measure(product):
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        small, large = make_images(product, folder)
        references = [f"oci:{layout.folder}" for layout in (small, large)]
        for reference in references:
            stack.callback(subprocess.run, [product.bin / "sandbox", "image", "rm", reference], env=product.environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pull(product, references[0])
        seconds = pull(product, references[1])
        starts = [[], []]
        for _ in range(STARTS):
            for times, reference in zip(starts, references):
                times.append(product.first_output(reference, "/say_ready"))
        of_small, of_large = map(statistics.median, starts)
    megabytes = large.bytes / 1e6
    ratio = of_large / of_small
    return [
        at_most("Q3", f"{megabytes:.0f} MB of layers to a bootable disk, after download", seconds, "s", 10),
        Row("Q3", f"cached start of that image beside one of {small.bytes / 1e6:.1f} MB (medians of {STARTS})", of_large, "s",
            of_small, "small image", ratio, "<= 1.15x", ratio <= 1.15),
    ]

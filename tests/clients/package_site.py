"""A web site for package managers and git: what clients of every kind fetch in tests, made and served by real programs.

  python3 package_site.py make DIR                    fills DIR (needs git and dpkg-deb)
  python3 package_site.py serve DIR ADDRESS CERT KEY  HTTP on port 80, HTTPS on 443; prints "ready"

  /page              text, "allowed page\\n"          /git/demo.git    smart HTTP, by git http-backend
  /debian            an apt archive with one package  /simple          a package index for pip with one wheel
  /npm/left-shift    a package for npm, with its tarball
"""

import base64
import functools
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import ssl
import subprocess
import sys
import tarfile
import threading
import zipfile

PAGE = "allowed page\n"
PACKAGE = "sandbox-demo"  # of apt and pip
NPM_PACKAGE = "left-shift"


def make(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page").write_text(PAGE)
    make_git(folder / "git")
    make_apt(folder / "debian")
    make_pip(folder / "simple")
    make_npm(folder / "npm")


def make_git(folder):
    work = folder / "work"
    work.mkdir(parents=True)
    who = ["-c", "user.name=Demo", "-c", "user.email=demo@example.org"]

    def git(*words):
        subprocess.run(["git", "-C", work, *who, *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (work / "README").write_text("a repository for tests\n")
    git("add", "README")
    git("commit", "-q", "-m", "First")
    git("clone", "-q", "--bare", work, folder / "demo.git")


def make_apt(folder):
    root = folder / "build"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(f"Package: {PACKAGE}\nVersion: 1.0\nArchitecture: all\nMaintainer: Demo <demo@example.org>\n"
                                         "Description: A package for tests\n")
    (root / "usr/share" / PACKAGE).mkdir(parents=True)
    (root / "usr/share" / PACKAGE / "hello").write_text("hello\n")
    deb = folder / f"{PACKAGE}_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", root, deb], check=True, capture_output=True)
    data = deb.read_bytes()
    control = (root / "DEBIAN/control").read_text()
    packages = f"{control}Filename: {deb.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n".encode()
    (folder / "Packages").write_bytes(packages)
    (folder / "Release").write_text("Suite: flat\nCodename: flat\nSHA256:\n"
                                    f" {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n")


def make_pip(folder):
    name = PACKAGE.replace("-", "_")
    wheel = folder / PACKAGE / f"{name}-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    files = {f"{name}.py": "def hello():\n    return 'hello'\n",
             f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
             f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text)}\n"
        archive.writestr(f"{name}-1.0.dist-info/RECORD", f"{record}{name}-1.0.dist-info/RECORD,,\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (wheel.parent / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}#sha256={digest}">{wheel.name}</a>\n')


def make_npm(folder):
    folder.mkdir(parents=True)
    about = {"name": NPM_PACKAGE, "version": "1.0.0", "main": "index.js"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, text in {"package/package.json": json.dumps(about), "package/index.js": "module.exports = n => n << 1\n"}.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    tarball = gzip.compress(out.getvalue(), mtime=0)
    (folder / f"{NPM_PACKAGE}-1.0.0.tgz").write_bytes(tarball)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    # The tarball's address is filled in with the Host of the request.
    about["dist"] = {"tarball": f"https://HOST/npm/{NPM_PACKAGE}-1.0.0.tgz", "integrity": integrity}
    (folder / "about.json").write_text(json.dumps({"name": NPM_PACKAGE, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": about}}))


class Site(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path.startswith("/git/"):
            self.run_git()
        elif self.path == f"/npm/{NPM_PACKAGE}":
            text = pathlib.Path(self.directory, "npm/about.json").read_text().replace("HOST", self.headers["Host"])
            self.answer(200, [("Content-Type", "application/json")], text.encode())
        else:
            super().do_GET()

    def do_POST(self):
        self.run_git()

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def run_git(self):
        """CGI (RFC 3875) to git's own server."""
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environment = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.directory, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                       "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(len(body)),
                       "CONTENT_TYPE": self.headers.get("Content-Type") or "", "HOME": "/nonexistent",
                       "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
                       "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                       "GIT_PROTOCOL": self.headers.get("Git-Protocol") or ""}
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True)
        head, _, out = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200" if head else "500").split()[0])
        self.answer(status, headers.items(), out)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address, port, folder, context=None):
        self.context = context
        super().__init__((address, port), functools.partial(Site, directory=str(folder)))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def process_request_thread(self, request, client_address):
        """The handshake is made in the client's own thread: one that is never finished holds up nobody else."""
        if self.context:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except OSError:
                return self.shutdown_request(request)
        super().process_request_thread(request, client_address)

    def handle_error(self, *_):
        pass  # clients that reset are part of most cases


def serve(folder, address, certificate, key):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    Server(address, 80, folder)
    Server(address, 443, folder, context)
    print("ready", flush=True)
    sys.stdin.read()  # ends with whoever started it


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]).resolve())
    else:
        serve(*sys.argv[2:])

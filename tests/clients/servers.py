"""The servers that the clients are tried on, in the world of tests/acceptance/harness.py, at one address.

  open.test, shut.test, back.test   package_site.py on 80 and 443, an SSH server on 22
  with the root of roots.py as well   PostgreSQL on 5432 (TLS), Redis on 6379 and, with TLS, 6380

`keys` is the folder to mount in the sandbox: the authority's certificate and what the SSH client needs.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

from clients import BACK, CASES, ENVIRONMENT, OPEN, SHUT, SITE  # noqa: E402
from roots import entering  # noqa: E402


class ClientServers:
    def __init__(self, machine, root=None):
        self.machine, self.root = machine, root
        self.dir = machine.dir / "clients"
        self.keys = self.dir / "keys"
        self.keys.mkdir(parents=True)
        self.started = []
        self.in_world = ["ip", "netns", "exec", machine.world]
        subprocess.run(["ip", "-n", machine.world, "addr", "add", f"{SITE}/24", "dev", "veth0"], check=True)
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise

    def start_all(self):
        self.make_certificate()
        self.start_site()
        self.start_ssh()
        if self.root:
            self.start_postgres()
            self.start_redis()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            process.terminate()
            process.wait()
        subprocess.run(["ip", "-n", self.machine.world, "addr", "del", f"{SITE}/24", "dev", "veth0"], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, *argv, **how):
        process = subprocess.Popen([*self.in_world, *map(str, argv)], **how)
        self.started.append(process)
        return process

    def wait_for(self, *argv):
        """Until a command in the world succeeds."""
        end = time.monotonic() + 60
        while (done := subprocess.run([*self.in_world, *map(str, argv)], capture_output=True, text=True)).returncode != 0:
            assert time.monotonic() < end, (argv, done.stdout, done.stderr)
            time.sleep(0.1)
        return done.stdout

    def wait_for_port(self, port):
        self.wait_for("/usr/bin/python3", "-c", f"import socket; socket.create_connection(('{SITE}', {port}), 1)")

    def make_certificate(self):
        def openssl(*words):
            subprocess.run(["openssl", *map(str, words)], check=True, cwd=self.dir, capture_output=True)

        shutil.copy(self.machine.dir / "ca.pem", self.keys)
        (self.dir / "san.cnf").write_text(f"subjectAltName=DNS:{OPEN},DNS:{SHUT},DNS:{BACK},IP:{SITE}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "csr.pem",
                "-subj", f"/CN={OPEN}")
        openssl("x509", "-req", "-in", "csr.pem", "-CA", self.machine.dir / "ca.pem", "-CAkey", self.machine.dir / "ca.key",
                "-CAcreateserial", "-days", 30, "-extfile", "san.cnf", "-out", "cert.pem")

    def start_site(self):
        program = HERE / "package_site.py"
        subprocess.run(["/usr/bin/python3", "-B", program, "make", self.dir / "site"], check=True)
        site = self.start("/usr/bin/python3", "-B", program, "serve", self.dir / "site", SITE, self.dir / "cert.pem",
                          self.dir / "key.pem", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert site.stdout.readline() == b"ready\n"

    def start_ssh(self):
        """Root's own authorized_keys stay hidden behind ours, in a mount namespace of the server's."""
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.keys / "id_ssh"], check=True)
        home = self.dir / "ssh-home"
        (home / ".ssh").mkdir(mode=0o700, parents=True)
        shutil.copy(self.keys / "id_ssh.pub", home / ".ssh/authorized_keys")
        made = subprocess.run(["dropbearkey", "-t", "ed25519", "-f", self.dir / "host_key"], check=True, capture_output=True, text=True)
        public = next(line for line in made.stdout.splitlines() if line.startswith("ssh-ed25519 "))
        (self.keys / "known_hosts").write_text("".join(f"{host} {public}\n" for host in (OPEN, SHUT, BACK, SITE)))
        script = 'mount --bind "$1" /root && exec dropbear -F -E -s -p "$2" -r "$3" -P "$4"'
        self.start("unshare", "--mount", "sh", "-c", script, "sh", home, f"{SITE}:22", self.dir / "host_key", self.dir / "ssh.pid",
                   stderr=subprocess.DEVNULL)
        self.wait_for_port(22)

    def start_postgres(self):
        data = "/tmp/postgres"
        shutil.rmtree(self.root / "tmp/postgres", ignore_errors=True)
        inside = self.root / "tmp/tls"
        inside.mkdir(exist_ok=True)
        for name in ("cert.pem", "key.pem"):
            shutil.copy(self.dir / name, inside)
        owner = subprocess.run(entering(self.root, "sh", "-c", "chown -R postgres /tmp/tls && chmod 0600 /tmp/tls/key.pem && "
                                        f"install -d -o postgres {data} && id -u postgres"), check=True, capture_output=True, text=True)
        as_postgres = ["setpriv", "--reuid", owner.stdout.strip(), "--clear-groups"]
        program = "/usr/lib/postgresql/15/bin/"
        subprocess.run(entering(self.root, *as_postgres, program + "initdb", "-D", data, "-A", "trust"), check=True, capture_output=True)
        with open(self.root / "tmp/postgres/pg_hba.conf", "a") as rules:
            rules.write("hostssl demo demo all trust\n")
        self.start(*entering(self.root, *as_postgres, program + "postgres", "-D", data, "-c", f"listen_addresses={SITE}", "-c", "ssl=on",
                             "-c", "ssl_cert_file=/tmp/tls/cert.pem", "-c", "ssl_key_file=/tmp/tls/key.pem", "-k", data),
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        psql = entering(self.root, "psql", "-h", data, "-U", "postgres", "-c")
        self.wait_for(*psql, "create role demo login")
        self.wait_for(*psql, "create database demo owner demo")

    def start_redis(self):
        self.start(*entering(self.root, "redis-server", "--bind", SITE, "--port", "6379", "--tls-port", "6380", "--tls-auth-clients", "no",
                             "--tls-cert-file", "/tmp/tls/cert.pem", "--tls-key-file", "/tmp/tls/key.pem", "--tls-ca-cert-file", "/tmp/tls/cert.pem",
                             "--protected-mode", "no", "--save", ""), stdout=subprocess.DEVNULL)
        self.wait_for(*entering(self.root, "redis-cli", "-e", "-h", SITE, "set", "page", "allowed page"))

    def make_java_trust(self):
        """The authority in the form that Java reads."""
        shutil.copy(self.keys / "ca.pem", self.root / "tmp/ca.pem")
        (self.root / "tmp/trust.p12").unlink(missing_ok=True)
        subprocess.run(entering(self.root, "keytool", "-importcert", "-noprompt", "-alias", "acceptance", "-file", "/tmp/ca.pem", "-keystore",
                                "/tmp/trust.p12", "-storetype", "PKCS12", "-storepass", "changeit"), check=True, capture_output=True)
        shutil.copy(self.root / "tmp/trust.p12", self.keys)


class Runs:
    """Clients in a sandbox: `ask` runs them in one machine and gives what run_clients.py says about each, by (client, case).

    The clients are in `image`; those named in `elsewhere` are run by `inside`, a shell command with a {command} in it, after
    `prepare` has made that possible."""

    def __init__(self, servers, image, flags=(), prepare="true", elsewhere=(), inside="{command}"):
        self.servers, self.image, self.flags, self.prepare = servers, image, list(flags), prepare
        self.elsewhere, self.inside = elsewhere, inside

    def ask(self, asked, allow, hosts="", timeout=600):
        """`asked`: pairs of a client and a case. `hosts`: what is added to /etc/hosts."""
        commands = []
        for client, case in asked:
            command = client.command.format(host=CASES[case])
            if client.name in self.elsewhere:
                command = self.inside.format(command=shlex.quote(command))
            commands.append([json.dumps([client.name, case]), command])
        environment = {"KEYS": "/keys", "CLIENTS": "/clients", **ENVIRONMENT}
        script = f"printf '%s' {shlex.quote(hosts)} >> /etc/hosts && {self.prepare} && exec python3 /tools/run_clients.py"
        result = self.servers.machine.run(
            script, "--user", "root", "--privileged", "-m", f"{self.servers.keys}:/keys:ro", "-m", f"{HERE}:/tools:ro", *self.flags,
            *[word for name in allow for word in ("--allow", name)], image=self.image, timeout=timeout,
            stdin=json.dumps({"commands": commands, "environment": environment}).encode())
        assert result.status == 0, result
        return {tuple(json.loads(label)): said for label, said in json.loads(result.out.splitlines()[-1]).items()}


def refusals(runs, clients, timeout=600, times=1):
    """Every case of every client, in two machines: the literal address before anything has vouched for it, asked for `times`
    times, since in that machine the first run of a program is its load from disk."""
    pairs = [(client, case) for client in clients for case in client.cases if case != "address"]
    said = runs.ask(pairs, [OPEN], hosts=f"{SITE} {BACK}\n", timeout=timeout)
    pairs = [(client, "address") for client in clients if "address" in client.cases for _ in range(times)]
    return {**said, **runs.ask(pairs, ["other.test"], timeout=timeout)}


def controls(runs, clients, timeout=600):
    """The same commands where policy allows them all."""
    pairs = [(client, case) for client in clients for case in client.cases if case != "allowed"]
    return runs.ask(pairs, [OPEN, SHUT, BACK, SITE], timeout=timeout)


def problems(clients, said, control, limit):
    """What is not as it must be, a line each."""
    found = []
    for client in clients:
        for case in client.cases:
            run = said[client.name, case]
            words = re.search(client.words[case], run["output"])
            if not words or (run["status"] == 0) != (case == "allowed"):
                found.append(f"{client.name}, {case}: status {run['status']}: {run['output'][-600:]}")
            elif case != "allowed" and not client.remedy and (run["wait"] is None or run["wait"] >= limit):
                found.append(f"{client.name}, {case}: {run['wait']} s, {run['queries']} queries, {run['connects']} connects")
            if case != "allowed" and control[client.name, case]["status"] != 0:
                found.append(f"{client.name}, {case}: fails when allowed: {control[client.name, case]['output'][-600:]}")
    return found

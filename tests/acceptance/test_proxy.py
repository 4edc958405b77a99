"""Contract row N17: a host behind a company's proxy, or with certificate authorities of its own."""

import contextlib
import pathlib
import subprocess
import tempfile
import time

import pytest

from harness import Wire

PROXY, PORT = "50.50.50.3", 3128
URL = f"http://user:s3cret@{PROXY}:{PORT}"


class Proxy:
    """tinyproxy in the world; it asks for a password."""

    def __init__(self, machine):
        self.machine = machine
        self.dir = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.dir.name)
        self.log = folder / "log"
        self.log.touch(0o666)
        (folder / "conf").write_text(f'Port {PORT}\nListen {PROXY}\nTimeout 600\nLogFile "{self.log}"\nLogLevel Connect\n'
                                     "BasicAuth user s3cret\n")
        self.ip("addr", "add", f"{PROXY}/24", "dev", "veth0")
        script = f"mount --make-rprivate / && mount --bind {machine.dir}/resolv.conf /etc/resolv.conf && exec tinyproxy -d -c {folder}/conf"
        self.process = subprocess.Popen(["ip", "netns", "exec", machine.world, "unshare", "-m", "sh", "-c", script],
                                        stdout=subprocess.DEVNULL)
        try:
            self.wait()
        except BaseException:
            self.__exit__()
            raise

    def wait(self):
        end = time.monotonic() + 30
        while self.machine.in_host(["bash", "-c", f"exec 3<>/dev/tcp/{PROXY}/{PORT}"], capture_output=True).returncode:
            assert time.monotonic() < end and self.process.poll() is None
            time.sleep(0.05)

    def ip(self, *words):
        subprocess.run(["ip", "-n", self.machine.world, *words], check=True)

    def asked(self):
        return [line.split("): ", 1)[1].rsplit(" ", 1)[0] for line in self.log.read_text().splitlines() if "Request (file" in line]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.ip("addr", "del", f"{PROXY}/24", "dev", "veth0")
        self.dir.cleanup()


@contextlib.contextmanager
def only_the_proxy(machine):
    """The host namespace has a route to the proxy and to nothing else."""
    def ip(*words):
        machine.in_host(["ip", *words], check=True)

    ip("route", "flush", "table", "main")
    ip("route", "add", f"{PROXY}/32", "dev", "veth0")
    try:
        yield
    finally:
        ip("route", "del", f"{PROXY}/32", "dev", "veth0")
        ip("route", "add", "50.50.50.0/24", "dev", "veth0", "src", "50.50.50.1")
        ip("route", "add", "10.99.0.0/24", "dev", "veth0")
        ip("route", "add", "default", "via", "50.50.50.10")


FETCH = "curl -sS -m 20 http://good.test/; curl -sS -m 20 --cacert /ca.pem https://good.test/"


def fetch(machine, *flags, script=FETCH, **kwargs):
    return machine.run(script, "-m", f"{machine.dir}/ca.pem:/ca.pem:ro", "--allow", "good.test", *flags, **kwargs)


def test_N17_where_a_proxy_is_the_only_way_out_everything_goes_through_it_by_name(machine):
    with Proxy(machine) as proxy, only_the_proxy(machine):
        without = fetch(machine, "--upstream-proxy", "none")  # the control
        assert without.status != 0 and "hello" not in without.out and proxy.asked() == [], without
        with Wire(machine) as wire:
            seen = fetch(machine, "--name", "proxied", env={"https_proxy": URL},
                         script=FETCH + "; env; cat /proc/cmdline; curl -sS -m 5 http://denied.test/")
            went = set(wire.seen())
        assert seen.out.count("hello from good.test\n") == 2, seen
        assert "s3cret" not in seen.out + seen.err and "_proxy" not in seen.out
        assert f"connections go through the proxy {PROXY}:{PORT} (https_proxy)" in seen.err
        assert proxy.asked() == ["CONNECT good.test:80", "CONNECT good.test:443"]
        assert went == {(6, PROXY, PORT)}, went
        records = machine.decisions("proxied")
        dials = [r for r in records if r.get("proto") == "tcp" and r.get("verdict") == "allow"]
        assert [r["names"] for r in dials] == [["good.test"], ["good.test"]]
        assert all(r["text"] == f"through the proxy {PROXY}:{PORT}" for r in dials)
        assert "s3cret" not in str(records) and not any(
            b"s3cret" in f.read_bytes() for f in (machine.home / "run/proxied").rglob("*") if f.is_file())
        log = machine.sandbox("policy", "log", "proxied")
        assert f"through the proxy {PROXY}:{PORT}" in log.out, log


def test_N17_no_proxy_is_honoured_and_the_proxy_itself_is_out_of_reach(machine):
    script = f"curl -sS -m 20 http://good.test/; curl -sS -m 5 http://other.test/; curl -sS -m 5 http://{PROXY}:{PORT}/; echo $?"
    with Proxy(machine) as proxy:
        flags = ("--allow", "other.test", "--allow", "50.50.50.0/24", "--upstream-proxy", URL)
        seen = fetch(machine, *flags, script=script, env={"NO_PROXY": "localhost,.other.test"})
        assert seen.out == "hello from good.test\nhello from other.test\n7\n", seen
        assert proxy.asked() == ["CONNECT good.test:80"]


def test_N17_what_the_proxy_refuses_is_an_error_at_once_that_says_so(machine):
    script = "curl -sS -m 20 -w '%{time_total}' http://good.test/ 2>&1; ping -n -c 1 -W 2 good.test >/dev/null || echo no ping"
    with Proxy(machine) as proxy, only_the_proxy(machine):
        wrong = fetch(machine, "--upstream-proxy", f"http://{PROXY}:{PORT}", script=script)
        assert "curl: (7)" in wrong.out and "no ping" in wrong.out, wrong
        assert "good.test:80 (upstream-proxy" in wrong.err and "asks for a user name and password (407)" in wrong.err, wrong
        proxy.process.kill()
        proxy.process.wait()
        down = fetch(machine, "--upstream-proxy", URL, script=script)
        assert "curl: (7)" in down.out and "upstream-proxy" in down.err and "s3cret" not in down.err, down


@pytest.mark.parametrize("url, words", [("socks5://50.50.50.3:1080", "socks5 is not supported"), ("http://50.50.50.3", "has no port")])
def test_N17_a_proxy_that_cannot_be_used_is_an_error_and_never_a_way_around(machine, url, words):
    seen = fetch(machine, env={"all_proxy": url})
    assert seen.status == 2 and words in seen.err and "all_proxy" in seen.err and "--upstream-proxy none" in seen.err, seen


TRUST = """
curl -sS -m 20 https://good.test/ 2>&1
sudo curl -sS -m 20 https://good.test/ 2>&1
sudo python3 -c 'import urllib.request; print(urllib.request.urlopen("https://good.test/").read().decode().strip())' 2>&1 | tail -1
git ls-remote https://good.test/x 2>&1
for file in "$SSL_CERT_FILE" "$NODE_EXTRA_CA_CERTS" "$REQUESTS_CA_BUNDLE" "$CARGO_HTTP_CAINFO"; do
  env -u SSL_CERT_FILE curl -sS -m 20 --cacert "$file" --capath /nowhere https://good.test/ 2>&1
done
"""


def test_N17_the_hosts_certificate_authorities_are_trusted_inside_when_asked(machine):
    env = {"SSL_CERT_FILE": f"{machine.dir}/ca.pem"}
    without = machine.run(TRUST, "--allow", "good.test", env=env)  # the control
    assert "hello" not in without.out and without.out.count("curl: (60)") == 2, without
    assert "CERTIFICATE_VERIFY_FAILED" in without.out, without
    seen = machine.run(TRUST, "--allow", "good.test", "--trust-host-ca", env=env)
    assert seen.out.count("hello from good.test") == 7, seen
    assert "certificate" not in seen.out.lower(), seen  # git came as far as the server's own answer


def test_N17_a_certificate_file_that_is_named_and_missing_is_an_error(machine):
    seen = machine.run("true", "--trust-host-ca", env={"NODE_EXTRA_CA_CERTS": "/nonexistent/ca.pem"})
    assert seen.status == 125 and "/nonexistent/ca.pem (NODE_EXTRA_CA_CERTS)" in seen.err, seen

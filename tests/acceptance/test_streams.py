"""Contract row N15 in a sandbox: what an allowed connection carries arrives as it was sent, when it was sent.

The gateway alone, with the comparison beside a direct connection, is tests/integration/gateway/test_streams.py.
"""

import pathlib
import subprocess

import pytest

CLIENTS = pathlib.Path(__file__).parents[1] / "clients"
HTTP, HTTPS = 9080, 9443  # at good.test


@pytest.fixture(scope="module")
def stream_server(machine):
    argv = ["ip", "netns", "exec", machine.world, "/usr/bin/python3", "-B", CLIENTS / "stream_server.py", "50.50.50.10", HTTP, HTTPS,
            machine.dir / "server.pem", machine.dir / "server.key"]
    server = subprocess.Popen([str(word) for word in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    yield server
    server.kill()
    server.wait()


def test_N15_events_websockets_and_large_posts_pass_as_they_are(machine, stream_server):
    probe = f"""
address = dns("good.test")[1][0]
def clear():
    return socket.create_connection((address, {HTTP}), 60)
def secure():
    return ssl.create_default_context(cafile="/ca.pem").wrap_socket(socket.create_connection((address, {HTTPS}), 60), server_hostname="good.test")
report(clear=exchanges(clear, "good.test"), secure=exchanges(secure, "good.test"))
"""
    client = (CLIENTS / "stream_client.py").read_text()
    seen, run = machine.probe(client + probe, "--allow", "good.test", timeout=300)
    posts = [135_000] * 4 + [10_000_000] * 4
    assert seen == {"clear": [20, 8, *posts], "secure": [20, 8, *posts]}, run


def test_N15_curl_sees_the_same_page_inside_and_outside(machine, stream_server):
    fetch = f"curl -sSi --cacert {{ca}} http://good.test:{HTTP}/same http://good.test:{HTTP}/request https://good.test:{HTTPS}/same https://good.test:{HTTPS}/request"
    agent = " -A same"  # versions of curl may differ
    inside = machine.run(fetch.format(ca="/ca.pem") + agent, "--allow", "good.test", "-m", f"{machine.dir}/ca.pem:/ca.pem:ro")
    outside = subprocess.run(machine.wrap(["sh", "-c", fetch.format(ca=machine.dir / "ca.pem") + agent]), capture_output=True, check=True)
    assert inside.raw_out == outside.stdout, (inside, outside)
    assert inside.out.count("HTTP/1.1 200 OK") == 4, inside

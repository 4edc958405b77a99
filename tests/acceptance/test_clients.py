"""Contract row N14 by the clients themselves: each of them works when it is allowed, and says at once that it is refused.

The machine's own clients are lent to the sandbox: /usr of the host is shared read-only and entered by chroot. All that Debian has
is measured by `make clients` (docs/clients.md).
"""

import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "clients"))

from clients import CLIENTS, apt  # noqa: E402
from servers import ClientServers, Runs, controls, problems, refusals  # noqa: E402

OWN = ["curl", "curl, plain HTTP", "git", "Python urllib", "musl, static"]  # of the built-in image
LENT = ["wget", "Node, getaddrinfo", "Node, c-ares", "ssh"]
CHOSEN = [*(client for client in CLIENTS if client.name in OWN + LENT), apt("apt")]
LIMIT = 3.0  # a client that waits and asks again takes longer; the figures themselves are docs/clients.md's

LEND = ("mkdir -p /host/etc /host/proc /host/dev /host/tmp /host/root /host/keys /host/clients && cd /host && ln -s usr/bin usr/sbin usr/lib usr/lib64 . && "
        "for folder in etc proc dev tmp keys clients; do mount --rbind /$folder /host/$folder; done")


@pytest.fixture(scope="module")
def servers(machine):
    with ClientServers(machine) as it:
        programs = it.dir / "programs"
        shutil.copytree(pathlib.Path(__file__).parents[1] / "clients/programs", programs)
        subprocess.run(["musl-gcc", "-static", "-O2", "-o", programs / "musl_get", programs / "musl_get.c"], check=True)
        it.programs = programs
        yield it


def test_N14_every_client_works_when_allowed_and_says_at_once_that_it_is_refused(servers):
    runs = Runs(servers, "builtin", ["-m", f"{servers.programs}:/clients:ro", "-m", "/usr:/host/usr:ro"], LEND, LENT,
                "chroot /host /bin/sh -c {command}")
    wrong = problems(CHOSEN, refusals(runs, CHOSEN), controls(runs, CHOSEN), LIMIT)
    assert not wrong, "\n".join(wrong)

"""Q1: what an idle sandbox costs the host, guest memory left out."""
import time

from product import pss_megabytes
from report import at_most, unmeasured

OURS = ("sandbox-supervisor", "sandbox-gateway", "sandbox-files", "sandbox-recorder")
GUEST_MEMORY = "/memfd:guest-memory"
SETTLING = 5  # seconds after the command's first output


def measure(product):
    with product.running("builtin", "sh", "-c", "echo up; exec sleep 600", flags=["--allow", "example.org"]) as sandbox:
        sandbox.wait_output()
        time.sleep(SETTLING)
        parts = sandbox.parts()
        try:
            ours = {name: sum(map(pss_megabytes, parts[name])) for name in OURS}
            # QEMU's launcher stays beside it, and belongs to it.
            beside = [pid for name in parts if name.startswith(("qemu-system", "sandbox-launcher")) for pid in parts[name]]
            qemu = sum(pss_megabytes(pid, without=GUEST_MEMORY) for pid in beside)
        except PermissionError as error:
            return [unmeasured("Q1", "memory of an idle sandbox", f"{error.filename} cannot be read")]
    each = ", ".join(f"{name.removeprefix('sandbox-')} {value:.1f}" for name, value in ours.items())
    return [
        at_most("Q1", f"idle, our processes ({each})", sum(ours.values()), "MB", 40),
        at_most("Q1", "idle, QEMU and its launcher, without guest memory", qemu, "MB", 90),
        at_most("Q1", "idle, the gateway alone", ours["sandbox-gateway"], "MB", 12),
    ]

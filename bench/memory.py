"""Q1: what an idle sandbox costs the host, guest memory left out."""
import time

from product import pss_megabytes
from report import at_most, unmeasured

OURS = ("sandbox-supervisor", "sandbox-gateway", "sandbox-files", "sandbox-recorder")
QEMU = ("qemu-system-x86_64", "sandbox-launcher")  # the launcher stays beside it, and belongs to it
GUEST_MEMORY = "/memfd:guest-memory"
SETTLING = 5  # seconds after the command's first output


def measure(product):
    with product.running("builtin", "sh", "-c", "echo up; exec sleep 600", flags=["--allow", "example.org"]) as sandbox:
        sandbox.wait_output()
        time.sleep(SETTLING)
        parts = sandbox.parts()
        try:
            missing = set(OURS + QEMU) - set(parts)
            if missing:
                raise RuntimeError(f"no {', '.join(sorted(missing))} among the processes of the sandbox")
            ours = {name: sum(map(pss_megabytes, parts[name])) for name in OURS}
            qemu = sum(pss_megabytes(pid, without=GUEST_MEMORY) for name in QEMU for pid in parts[name])
        except PermissionError as error:
            return [unmeasured("Q1", "memory of an idle sandbox", f"{error.filename} cannot be read")]
    each = ", ".join(f"{name.removeprefix('sandbox-')} {value:.1f}" for name, value in ours.items())
    return [
        at_most("Q1", f"idle, our processes ({each})", sum(ours.values()), "MB", 40),
        at_most("Q1", "idle, QEMU and its launcher, without guest memory", qemu, "MB", 90),
        at_most("Q1", "idle, the gateway alone", ours["sandbox-gateway"], "MB", 12),
    ]

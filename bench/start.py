"""V3: warm starts beside cold ones. N14: how long a program inside waits for a refusal."""
import statistics
import subprocess
import time

from report import at_most, faster

WARM_STARTS, COLD_STARTS = 10, 5
REFUSALS = 5


def seconds_of_cold_start(product):
    begin = time.monotonic()
    process = subprocess.Popen([product.bin / "cold_start", "builtin"], env=product.environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = process.stdout.readline()
    seconds = time.monotonic() - begin
    _, errors = process.communicate()
    if said != b"ready\n" or process.returncode != 0:
        raise RuntimeError(f"cold_start: {errors.decode(errors='replace').strip()[-500:]}")
    return seconds


def measure_starts(product):
    warm, cold = [], []
    for _ in range(COLD_STARTS):
        for _ in range(WARM_STARTS // COLD_STARTS):
            warm.append(product.first_output("builtin", "echo", "ready"))
        cold.append(seconds_of_cold_start(product))
    ours = statistics.median(warm)
    return [
        at_most("V3", f"warm start, workspace mounted, to the first byte of output (median of {WARM_STARTS})", ours, "s", 0.7),
        faster("V3", "warm start beside a boot of the same machine", ours, "s", statistics.median(cold), "no boot state", 5),
    ]


def measure_refusals(product):
    """Each in a fresh sandbox, so the time has all of curl's own start in it. Says nothing unless curl failed as expected."""
    def seconds_until_refused(url, status):
        script = f"echo begin; curl -sS {url} 2>/dev/null; [ $? -eq {status} ] && echo refused"
        with product.running("builtin", "sh", "-c", script) as sandbox:
            sandbox.wait_output()
            begin = time.monotonic()
            sandbox.wait_output()
            return time.monotonic() - begin

    rows = []
    # 6: the name could not be resolved. 7: the address could not be connected to (curl(1), EXIT CODES).
    for what, url, status in (("name", "http://denied.example/", 6), ("address", "http://198.51.100.1/", 7)):
        seconds = statistics.median(seconds_until_refused(url, status) for _ in range(REFUSALS))
        rows.append(at_most("N14", f"inside, until curl of a denied {what} has ended (median of {REFUSALS})", seconds, "s", 3))
    return rows

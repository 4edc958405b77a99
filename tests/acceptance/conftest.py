import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from guest import Guest, Outside  # noqa: E402
from harness import Machine  # noqa: E402


@pytest.fixture(scope="session")
def machine():
    m = Machine()
    try:
        yield m.start()
    finally:
        m.stop()


@pytest.fixture(scope="session")
def outside(machine):
    """The controls: the same probes where no gate is."""
    agent = Outside(machine)
    yield agent
    agent.stop()


@pytest.fixture(scope="module")
def guests(machine):
    """Sandboxes of a module, by their rules: guests("--allow", "good.test") is the same one each time, unless `apart` tells
    several with the same rules from each other."""
    running = {}

    def with_rules(*flags, apart=None):
        key = (apart, *flags)
        if key not in running:
            running[key] = Guest(machine, *flags)
        return running[key]

    yield with_rules
    for guest in running.values():
        guest.stop()

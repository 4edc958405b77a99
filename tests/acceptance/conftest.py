import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import Machine  # noqa: E402


@pytest.fixture(scope="session")
def machine():
    m = Machine()
    try:
        yield m.start()
    finally:
        m.stop()

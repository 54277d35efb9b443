"""How the tests run: async tests by themselves, hypothesis without deadlines, Ctrl-C as usual.

Many tests look for what was left behind, and collect garbage to see it. Each time, that would go through all of the
thirteen thousand tests that pytest holds, for a third of a second. So those are set aside once they are all there.
"""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.leaks import _nothing_left  # noqa: F401 - a fixture
from tests.kit.loop import pytest_pyfunc_call  # noqa: F401 - a hook, which makes native async tests work
from tests.kit.ports import free_port  # noqa: F401 - a fixture

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("local"), max_examples=200)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A shell that starts the tests in the background makes them, and all they start, deaf to SIGINT and SIGQUIT, and nohup
# to SIGHUP.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Until all tests are there, nearly nothing is garbage.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("MCPLUMB_PLAIN") == "1":
        skip = pytest.mark.skip(reason="It needs the speed tricks, which MCPLUMB_PLAIN=1 turns off.")
        for item in items:
            if item.get_closest_marker("tricks"):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    gc.freeze()

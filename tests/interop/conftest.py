"""How the tests are shared out among workers: those that look at the same visit go to the same one.

On a machine without Node.js, Go, Rust or Java, what needs it is skipped.
"""

from __future__ import annotations

from collections.abc import Generator
from importlib import import_module
from typing import Any

import pytest

from tests.interop.environments import NoToolchain


def group_of(nodeid: str) -> str:
    """A module's tests with the same parameters are together; every other test is on its own."""
    test, _, parameters = nodeid.partition("[")
    return f"{test.partition('::')[0]}[{parameters}" if parameters else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # Imported like this because it has no types.
    scheduler = import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    # Not that of one fixture: pytest keeps what it has raised, and raises it again for the next test that shares it.
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    return (yield from _skipping())


def _skipping() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except NoToolchain as error:
        pytest.skip(str(error))

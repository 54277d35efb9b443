"""The pytest plugin: the fixture ``mcp``, which connects tests to servers. pytest finds it by its entry point.

Every test suite in an environment loads this module, so it imports nothing of the package before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mcplumb.sync import Client

__all__ = ["mcp"]

#: Seconds until a call without an answer fails, unless the test sets its own timeout: hanging tests should fail soon.
_TIMEOUT = 10.0


@pytest.fixture
def mcp() -> Iterator[Callable[..., Client]]:
    """Connect to servers: ``client = mcp(server)`` is a blocking client, which is closed after the test.

    ``mcp`` takes what ``mcplumb.sync.connect`` takes: a server, a command or an address, and options.
    """
    with ExitStack() as clients:

        def connect_for_the_test(target: Any, **options: Any) -> Client:
            from mcplumb.sync import connect

            return clients.enter_context(connect(target, **{"timeout": _TIMEOUT, **options}))

        yield connect_for_the_test

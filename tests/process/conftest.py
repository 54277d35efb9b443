"""A process that cheap tests share, and that each leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.harness import Client, ServerProcess


@pytest.fixture(scope="module")
def _shared_workshop() -> Iterator[ServerProcess]:
    with ServerProcess("workshop", may_fail=True) as server:
        yield server


@pytest.fixture
def workshop(_shared_workshop: ServerProcess) -> Iterator[Client]:
    """A modern client of a server that other tests use, too. At the end, nothing unexpected may have come."""
    client = Client(_shared_workshop)
    yield client
    client.fence()
    assert _shared_workshop.inbox == []

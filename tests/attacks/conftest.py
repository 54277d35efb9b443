"""After each attack, whoever was attacked must still serve."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.harness import Target


@pytest.fixture(autouse=True)
def _still_serves() -> Iterator[None]:
    yield
    for target in Target.running:
        target.serves()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """A server with nothing set, which the tests of a module attack one after the other."""
    with Target() as target:
        yield target

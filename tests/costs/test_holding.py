"""What a process holds for each of what is open: requests, subscriptions, connections, sessions."""

from __future__ import annotations

import pytest

from tests.costs.ceilings import check
from tests.costs.measuring import HELD, hold

# The ceilings are those of the fast mode.
pytestmark = pytest.mark.tricks


@pytest.mark.parametrize("subject", HELD)
def test_what_is_open_takes_little_memory(subject: str) -> None:
    check(subject, hold(subject))

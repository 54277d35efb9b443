"""What a call takes of a process: instructions, functions, system calls, tasks, timers, memory that stays."""

from __future__ import annotations

import pytest

from tests.costs.ceilings import check
from tests.costs.measuring import CASES, count

# The ceilings are those of the fast mode.
pytestmark = pytest.mark.tricks


@pytest.mark.parametrize("subject", CASES)
def test_a_call_takes_no_more_than_is_allowed(subject: str) -> None:
    side, case = CASES[subject]
    check(subject, count(side, case).figures())

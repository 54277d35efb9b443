"""What a call takes does not grow with how much else there is: not by a single instruction."""

from __future__ import annotations

import pytest

from tests.costs.measuring import Case, Side, count

# The ceilings are those of the fast mode.
pytestmark = pytest.mark.tricks

FEW, MANY = Case(tools=10, waiting=1, subscriptions=10), Case(tools=1000, waiting=100, subscriptions=1000)
#: That memory is given back is looked at elsewhere: how much tables grow by depends on what is in them.
ELSEWHERE = {"kept blocks"}


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_call_takes_the_same_among_few_and_among_many(side: Side) -> None:
    few, many = (count(side, case).figures() for case in (FEW, MANY))
    assert {name: many[name] - few[name] for name in few.keys() - ELSEWHERE if many[name] != few[name]} == {}

"""One check by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcplumb.testing import End, Pair, checks, memory_pair
from mcplumb.testing.check_runner import each_way, once


async def example(one: End, other: End) -> None:
    """One has a name. And more."""
    seen.append(one.name)
    one.send_names(["never"])


seen: list[str] = []


@asynccontextmanager
async def memory() -> AsyncIterator[Pair]:
    yield Pair(*memory_pair())


def test_a_check_has_a_name_and_a_rule() -> None:
    check = once(example, "order")
    assert (str(check), check.rule, check.needs) == ("example", "One has a name. And more.", {"both", "order"})


def test_each_end_takes_each_part() -> None:
    first, second = each_way(example, "spoil")
    assert (first.name, first.needs) == ("example_from_first", {"both", "spoil"})
    assert (second.name, second.needs) == ("example_from_second", {"spoil"})
    seen.clear()
    asyncio.run(first(memory))
    asyncio.run(second(memory))
    assert seen == ["first", "second"]


@pytest.mark.parametrize(("leaver", "is_first"), [("one", True), ("other", False)])
def test_a_client_that_leaves_without_a_word_has_to_be_noticed(leaver: str, is_first: bool) -> None:
    first, second = each_way(example, leaver="one" if leaver == "one" else "other")
    assert ("notice" in first.needs, "notice" in second.needs) == (is_first, not is_first)


def test_a_pair_that_cannot_be_spoiled() -> None:
    (check,) = (check for check in checks() if "spoil" in check.needs)
    with pytest.raises(AssertionError, match="The pair has no spoil: give it one, or leave out the checks that need"):
        asyncio.run(check(memory))

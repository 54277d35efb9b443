from __future__ import annotations

import asyncio

import pytest

from mcplumb.client.subscriptions import Changes
from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.types.notification_params import SubscriptionFilter
from tests.kit.loop import turns

TOOLS = Change("tools")
PROMPTS = Change("prompts")


class Source:
    """Brings nothing by itself."""

    def __init__(self) -> None:
        self.opened: list[Changes] = []
        self.closed: list[Changes] = []
        self.reopened: list[tuple[Changes, McplumbError]] = []

    async def open(self, changes: Changes) -> None:
        self.opened.append(changes)

    async def close(self, changes: Changes) -> None:
        self.closed.append(changes)

    def reopen(self, changes: Changes, cause: McplumbError) -> None:
        self.reopened.append((changes, cause))

    def has_spent_token(self, changes: Changes) -> bool:
        return False


def new(source: Source | None = None) -> Changes:
    return Changes(source or Source(), SubscriptionFilter(tools_list_changed=True), 1.0)


async def test_changes_come_in_order_before_and_while_they_are_waited_for() -> None:
    source = Source()
    changes = new(source)
    async with changes as entered:
        assert entered is changes
        assert (source.opened, source.closed) == ([changes], [])
        changes.push(TOOLS)
        changes.push(PROMPTS)
        assert [await anext(changes), await anext(changes)] == [TOOLS, PROMPTS]
        waiting = asyncio.ensure_future(anext(aiter(changes)))
        await turns()
        changes.push(TOOLS)
        assert await waiting == TOOLS
    assert source.closed == [changes]


async def test_what_came_before_the_end_is_still_given() -> None:
    async with new() as changes:
        changes.push(TOOLS)
        changes.end()
        changes.end(Closed("Too late to matter."))
        assert [change async for change in changes] == [TOOLS]


async def test_an_end_with_an_error_raises_it_again_and_again() -> None:
    async with new() as changes:
        changes.push(TOOLS)
        changes.end(Closed("Gone."))
        assert await anext(changes) == TOOLS
        for _ in range(2):
            with pytest.raises(Closed, match="Gone"):
                await anext(changes)


async def test_leaving_ends_the_iteration_of_others() -> None:
    async with new() as changes:
        others = [asyncio.ensure_future(_all(changes)) for _ in range(2)]
        await turns()
    assert await asyncio.gather(*others) == [[], []]


async def _all(changes: Changes) -> list[Change | Missed]:
    return [change async for change in changes]


async def test_a_cancelled_wait_loses_nothing() -> None:
    async with new() as changes:
        waiting = asyncio.ensure_future(anext(aiter(changes)))
        await turns()
        changes.push(TOOLS)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await anext(changes) == TOOLS


async def test_a_consumer_that_is_too_slow_is_told() -> None:
    async with new() as changes:
        for _ in range(1002):
            changes.push(TOOLS)
        assert changes.dropped == 1000
        changes.end()
        assert await _all(changes) == [Missed(), TOOLS]


async def test_they_are_entered_before_they_are_listened_to() -> None:
    with pytest.raises(UsageError, match="Enter the changes first"):
        await anext(new())


async def test_they_are_listened_to_once() -> None:
    changes = new()
    async with changes:
        pass
    with pytest.raises(UsageError, match="call listen again"):
        async with changes:
            pass


async def test_what_breaks_off_is_begun_again_unless_it_has_ended() -> None:
    source = Source()
    changes = new(source)
    cause = Closed("It broke off.")
    async with changes:
        changes.cut(cause)
        assert source.reopened == [(changes, cause)]
        changes.granted(SubscriptionFilter(tools_list_changed=True))
        assert isinstance(await anext(changes), Missed)
        changes.end()
        changes.cut(cause)
        assert source.reopened == [(changes, cause)]

from __future__ import annotations

import asyncio
import gc
import sys
from contextvars import ContextVar

import pytest

from mcplumb.rpc.outgoing_requests import SendSlots
from mcplumb.transports.line_connection import HIGH_WATER
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.messages import Notification
from tests.kit.loop import run, turns
from tests.transports.ends import Recorder

needs_eager = pytest.mark.skipif(sys.version_info < (3, 12), reason="This Python has no eager tasks.")

#: So much of it clogs a connection whose peer does not read.
TEXT = "x" * (HIGH_WATER // 8)


def give_back(slots: SendSlots) -> None:
    """Leave a slot, as a caller does."""
    slots.free += 1
    if slots.waiting:
        slots.wake()


class Ends:
    """SendSlots on a connection to a peer that reads when it is told to."""

    def __init__(self, count: int) -> None:
        self.near, self.far = memory_pair()
        self.far_side = Recorder()
        self.near.start(Recorder())
        self.turns = SendSlots(count, self.near, asyncio.get_running_loop())

    def clog(self) -> None:
        while not self.near.is_clogged:
            self.near.send(Notification("n", {"text": TEXT}))

    def read(self) -> None:
        self.far.start(self.far_side)

    async def close(self) -> None:
        self.near.abort()
        self.far.abort()
        await turns()


async def test_free_places_are_taken_without_a_wait() -> None:
    ends = Ends(2)
    assert await ends.turns.take(None)
    assert await ends.turns.take(None)
    assert ends.turns.free == 0
    give_back(ends.turns)
    assert ends.turns.free == 1
    await ends.close()


async def test_whoever_came_first_is_let_in_first() -> None:
    async def visit(name: str) -> None:
        assert await ends.turns.take(None)
        seen.append(name)

    ends, seen = Ends(1), list[str]()
    await ends.turns.take(None)
    visits = [asyncio.ensure_future(visit(name)) for name in "abc"]
    await turns()
    assert seen == []
    for count in range(1, 4):
        assert ends.turns.waiting == 4 - count, "so whoever comes now does not take it"
        give_back(ends.turns)
        await turns()
        assert seen == list("abc")[:count]
        assert ends.turns.free == 0
    await asyncio.gather(*visits)
    give_back(ends.turns)
    assert ends.turns.free == 1
    await ends.close()


@pytest.mark.parametrize("is_its_turn", [False, True])
@pytest.mark.parametrize("deadline", [None, 1e9])
async def test_whoever_is_cancelled_takes_no_place(is_its_turn: bool, deadline: float | None) -> None:
    ends = Ends(1)
    await ends.turns.take(None)
    first, second = (asyncio.ensure_future(ends.turns.take(deadline)) for _ in range(2))
    await turns()
    if is_its_turn:
        give_back(ends.turns)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not is_its_turn:
        give_back(ends.turns)
    assert await second
    assert ends.turns.free == 0
    give_back(ends.turns)
    assert ends.turns.free == 1
    await ends.close()


async def test_nobody_is_let_in_while_the_server_does_not_read() -> None:
    ends = Ends(10)
    ends.clog()
    waiting = [asyncio.ensure_future(ends.turns.take(None)) for _ in range(3)]
    await turns()
    assert not any(task.done() for task in waiting)
    ends.read()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert ends.turns.free == 7
    await ends.close()


@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=needs_eager)])
def test_those_who_waited_do_not_all_send_at_once(eager: bool) -> None:
    async def main() -> None:
        async def visit(number: int) -> None:
            assert await ends.turns.take(None)
            seen.append(number)
            assert not ends.near.is_clogged
            ends.near.send(Notification("n", {"text": TEXT}))

        ends, seen = Ends(10_000), list[int]()
        ends.clog()
        visits = [asyncio.ensure_future(visit(number)) for number in range(500)]
        await turns()
        assert seen == []
        ends.read()
        await asyncio.gather(*visits)
        assert seen == [*range(500)]
        assert ends.turns.free == 9500
        # And once more: nothing is left of the first time that would be in the way.
        ends.far.pause()
        ends.clog()
        waiting = asyncio.ensure_future(ends.turns.take(None))
        await turns()
        ends.far.resume()
        assert await waiting
        await ends.close()

    run(main(), eager=eager)


async def test_whoever_comes_when_a_place_is_given_back_comes_after_those_who_waited() -> None:
    async def visit(name: str) -> None:
        assert await ends.turns.take(None)
        seen.append(name)

    ends, seen = Ends(1), list[str]()
    await ends.turns.take(None)
    visits = [asyncio.ensure_future(visit("first"))]
    await turns()
    # It begins to ask before the first has been woken.
    visits.append(asyncio.ensure_future(visit("second")))
    asyncio.get_running_loop().call_soon(give_back, ends.turns)
    visits.append(asyncio.ensure_future(visit("third")))
    await turns()
    assert seen == ["first"]
    give_back(ends.turns)
    visits.append(asyncio.ensure_future(visit("fourth")))
    await turns()
    assert seen == ["first", "second"]
    give_back(ends.turns)
    await turns()
    give_back(ends.turns)
    await asyncio.gather(*visits)
    assert seen == ["first", "second", "third", "fourth"]
    await ends.close()


async def test_a_place_that_is_given_back_while_the_server_does_not_read_is_not_lost() -> None:
    ends = Ends(1)
    await ends.turns.take(None)
    waiting = asyncio.ensure_future(ends.turns.take(None))
    await turns()
    ends.clog()
    give_back(ends.turns)
    await turns()
    assert not waiting.done()
    ends.read()
    assert await waiting
    await ends.close()


@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=needs_eager)])
def test_many_may_wait_for_few_places(eager: bool) -> None:
    async def main() -> None:
        async def visit() -> None:
            assert await ends.turns.take(None)
            await asyncio.sleep(0)
            give_back(ends.turns)

        ends = Ends(100)
        for _ in range(2):
            await asyncio.gather(*[visit() for _ in range(1500)])
            assert ends.turns.free == 100
        await ends.close()

    run(main(), eager=eager)


async def test_each_waits_until_its_own_deadline() -> None:
    async def visit(name: str, seconds: float | None) -> None:
        deadline = None if seconds is None else loop.time() + seconds
        over.append((name, await ends.turns.take(deadline)))

    loop = asyncio.get_running_loop()
    ends, over = Ends(1), list[tuple[str, bool]]()
    await ends.turns.take(None)
    waits = {"ever": None, "last": 0.3, "past": -1.0, "first": 0.1, "long": 1000.0, "second": 0.2}
    visits = [asyncio.ensure_future(visit(*each)) for each in waits.items()]
    await asyncio.wait(visits[1:4] + visits[5:])
    assert over == [("past", False), ("first", False), ("second", False), ("last", False)]
    give_back(ends.turns)
    give_back(ends.turns)
    await asyncio.gather(*visits)
    assert over[4:] == [("ever", True), ("long", True)]
    assert ends.turns.free == 0
    await ends.close()


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_nobody_waits_for_a_connection_that_is_gone(how: str) -> None:
    ends = Ends(10)
    ends.clog()
    waiting = [asyncio.ensure_future(ends.turns.take(None)) for _ in range(200)]
    await turns()
    if how == "close":
        closing = asyncio.ensure_future(ends.near.close())
    else:
        closing = asyncio.ensure_future(turns())
        ends.near.abort()
    await turns()
    for done in range(10):
        assert waiting[done].done(), "whoever has a place finds out that it is of no use"
    for _ in range(190):
        give_back(ends.turns)
    assert await asyncio.gather(*waiting) == [True] * 200
    ends.far.abort()
    await closing
    await ends.close()


async def test_those_who_leave_again_and_again_leave_nothing() -> None:
    ends = Ends(1)
    await ends.turns.take(None)
    one = asyncio.ensure_future(ends.turns.take(1e9))
    await turns()
    counts = {}
    for round_ in range(40):
        some = [asyncio.ensure_future(ends.turns.take(1e9 - round_)) for _ in range(50)]
        await turns()
        for task in some:
            task.cancel()
        await asyncio.wait(some)
        del some
        if round_ in (0, 39):  # to count takes long
            gc.collect()
            counts[round_] = sum(isinstance(each, asyncio.Future) for each in gc.get_objects())
    assert counts[39] < counts[0] + 200
    give_back(ends.turns)
    await one
    await ends.close()


async def test_the_timer_goes_with_the_last() -> None:
    loop = asyncio.get_running_loop()
    scheduled: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    before = set(scheduled)
    ends = Ends(1)
    await ends.turns.take(None)
    waiting = [asyncio.ensure_future(ends.turns.take(loop.time() + 1000 + n)) for n in range(3)]
    await turns()
    assert len([each for each in scheduled if not each.cancelled() and each not in before]) == 1
    for _ in waiting:
        give_back(ends.turns)
    await asyncio.gather(*waiting)
    assert not [each for each in scheduled if not each.cancelled() and each not in before]
    await ends.close()


async def test_whoever_is_cancelled_when_the_time_is_over_gives_back_nothing() -> None:
    loop = asyncio.get_running_loop()
    ends = Ends(1)
    await ends.turns.take(None)
    waiting = asyncio.ensure_future(ends.turns.take(loop.time() + 0.01))
    await turns()
    loop.call_at(loop.time() + 0.01, waiting.cancel)
    await asyncio.wait([waiting])
    assert ends.turns.free == 0
    give_back(ends.turns)
    assert ends.turns.free == 1
    await ends.close()


async def test_if_all_tasks_are_cancelled_the_next_ones_are_let_in_all_the_same() -> None:
    ends = Ends(2)
    ends.clog()
    one, another = (asyncio.ensure_future(ends.turns.take(None)) for _ in range(2))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task(), another}:
        task.cancel()
    ends.read()
    assert await another
    with pytest.raises(asyncio.CancelledError):
        await one
    assert ends.turns.free == 1
    await ends.close()


@pytest.mark.parametrize("how", ["cancelled", "too late"])
async def test_nothing_looks_out_for_those_who_have_left(how: str) -> None:

    seen: ContextVar[str] = ContextVar("seen")
    ends = Ends(2)
    ends.clog()
    before = asyncio.all_tasks()
    seen.set("the caller's")
    waiting = asyncio.ensure_future(ends.turns.take(None if how == "cancelled" else 0.0))
    await asyncio.sleep(0)
    lookouts = asyncio.all_tasks() - before - {waiting}
    if how == "cancelled":
        [lookout] = lookouts
        if sys.version_info >= (3, 12):
            assert seen not in lookout.get_context()
        waiting.cancel()
    await asyncio.wait([waiting])
    await turns()
    assert asyncio.all_tasks() == before
    await ends.close()


async def test_closing_leaves_no_task_that_waits_for_the_connection_to_drain() -> None:
    ends = Ends(1)
    ends.clog()
    waiting = [asyncio.ensure_future(ends.turns.take(None)) for _ in range(3)]
    await turns()
    assert len(asyncio.all_tasks()) == 1 + 3 + 1, "one looks out for all of them"
    ends.turns.close()
    await asyncio.gather(*waiting)
    # Whoever asks later looks for a place, finds the connection closed, and starts nothing either.
    await ends.turns.take(None)
    await turns()
    assert ends.near.is_clogged
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await ends.close()


def test_a_place_can_be_given_back_when_the_loop_is_gone() -> None:
    async def begin() -> tuple[SendSlots, asyncio.Task[bool]]:
        ends = Ends(1)
        await ends.turns.take(None)
        waiting = asyncio.ensure_future(ends.turns.take(None))
        await turns()
        await ends.close()
        return ends.turns, waiting

    loop = asyncio.new_event_loop()
    places, waiting = loop.run_until_complete(begin())
    loop.close()
    give_back(places)
    assert places.free == 1
    waiting._log_destroy_pending = False  # type: ignore[attr-defined] # as with a loop that nobody has cleaned up

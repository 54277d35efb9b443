from __future__ import annotations

import asyncio
import gc

import pytest

from mcplumb.transports.http_server.auth.shared_task import SharedTask
from tests.kit.loop import turns


async def test_all_get_the_result() -> None:
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        return "done"

    shared = SharedTask(work())
    waiting = [asyncio.ensure_future(shared.result()) for _ in range(3)]
    await turns()
    assert not shared.is_over
    gate.set()
    assert await asyncio.gather(*waiting) == ["done"] * 3
    assert shared.is_over


async def test_all_get_the_error() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    shared = SharedTask(work())
    found = await asyncio.gather(shared.result(), shared.result(), return_exceptions=True)
    assert [type(each) for each in found] == [ZeroDivisionError] * 2


async def test_it_ends_with_the_last_that_waits() -> None:
    has_ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    shared = SharedTask(work())
    one, other = asyncio.ensure_future(shared.result()), asyncio.ensure_future(shared.result())
    await turns()
    one.cancel()
    await turns()
    assert not has_ended.is_set()
    other.cancel()
    for each in (one, other):
        with pytest.raises(asyncio.CancelledError):
            await each
    await turns()
    assert has_ended.is_set()


async def test_nobody_joins_one_that_is_ending_because_nobody_waited() -> None:
    """Who joined it would be cancelled with it, for example a request that arrives when another client hangs up."""
    may_end = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()  # as an HTTP session that is closed

    shared = SharedTask(work())
    one = asyncio.ensure_future(shared.result())
    await turns()
    one.cancel()
    await turns()
    assert one.cancelled()
    assert shared.is_over
    may_end.set()
    await turns()


def test_it_is_over_in_another_event_loop() -> None:
    async def begin() -> SharedTask[None]:
        return SharedTask(asyncio.sleep(0))

    shared = asyncio.run(begin())

    async def look() -> bool:
        return shared.is_over

    assert asyncio.run(look())


async def test_one_that_is_kept_goes_on_until_it_is_released() -> None:
    has_ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    shared = SharedTask(work(), is_kept=True)
    one = asyncio.ensure_future(shared.result())
    await turns()
    one.cancel()
    await turns()
    assert (one.cancelled(), shared.is_over) == (True, False)
    other = asyncio.ensure_future(shared.result())
    await turns()
    await shared.release()
    await turns()
    assert not has_ended.is_set(), "Somebody waits."
    other.cancel()
    await turns()
    assert has_ended.is_set()
    await shared.release()


async def test_the_release_of_one_that_nobody_waits_for_ends_it() -> None:
    ended = 0

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended += 1

    shared = SharedTask(work(), is_kept=True)
    await turns()
    await asyncio.gather(shared.release(), shared.release())
    assert ended == 1


async def test_the_error_of_one_that_nobody_waits_for_is_no_fault() -> None:
    async def work() -> None:
        await gate.wait()
        raise ZeroDivisionError

    gate = asyncio.Event()
    shared = SharedTask(work(), is_kept=True)
    one = asyncio.ensure_future(shared.result())
    await turns()
    one.cancel()
    await turns()
    gate.set()
    await turns()
    assert shared.is_over
    del shared, one
    gc.collect()

from __future__ import annotations

import asyncio

import pytest

from mcplumb._fast.begun import Begun


async def at_once() -> int:
    return 7


async def later(first: asyncio.Event, second: asyncio.Event) -> int:
    await first.wait()
    try:
        await second.wait()
    except TimeoutError:
        return 8
    return 9


def test_what_need_not_wait_is_done_at_once() -> None:
    begun = Begun(at_once())
    assert begun.is_done
    assert begun.value == 7

    async def main() -> int:
        return await Begun(at_once())

    assert asyncio.run(main()) == 7


async def test_what_has_to_wait_is_awaited() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    begun = Begun(later(first, second))
    assert not begun.is_done
    loop = asyncio.get_running_loop()
    loop.call_soon(first.set)
    loop.call_soon(loop.call_soon, second.set)
    async with asyncio.timeout(30):
        assert await begun == 9


async def test_what_is_thrown_into_the_wait_arrives_where_it_waits() -> None:

    async def _whole(awaitable: object) -> object:
        return await Begun(awaitable)  # type: ignore[arg-type]

    begun = Begun(later(asyncio.Event(), asyncio.Event()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await begun

    async def patient() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    task = asyncio.create_task(_whole(patient()))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


def test_what_fails_at_once_raises_at_once() -> None:
    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        Begun(fail())

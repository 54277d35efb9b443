"""Awaiting what is mostly done at once."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.transports.connection import StartedAwait


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
    started = StartedAwait(at_once())
    assert started.is_done
    assert started.value == 7

    async def main() -> int:
        return await StartedAwait(at_once())

    assert asyncio.run(main()) == 7


def test_what_has_to_wait_is_awaited() -> None:
    async def main() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        started = StartedAwait(later(first, second))
        assert not started.is_done
        loop = asyncio.get_running_loop()
        loop.call_soon(first.set)
        loop.call_soon(loop.call_soon, second.set)
        async with asyncio.timeout(30):
            assert await started == 9

    asyncio.run(main())


def test_what_is_thrown_into_the_wait_arrives_where_it_waits() -> None:
    async def main() -> None:
        started = StartedAwait(later(asyncio.Event(), asyncio.Event()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await started

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

    async def _whole(awaitable: object) -> object:
        return await StartedAwait(awaitable)  # type: ignore[arg-type]

    asyncio.run(main())


def test_what_fails_at_once_raises_at_once() -> None:
    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        StartedAwait(fail())

from __future__ import annotations

import asyncio
import logging
from contextvars import Context, ContextVar
from typing import Any

import pytest

from mcplumb.rpc.user_callbacks import CallbackQueue, ProgressCallback
from mcplumb.types.notification_params import ProgressParams
from tests.client.peers import LOOPS, skip
from tests.kit.loop import PATIENCE, run, turns


async def test_a_plain_function_is_called_at_once() -> None:
    seen: list[Any] = []

    queue = CallbackQueue(lambda *news: seen.append(news), "f")
    queue.put(1, 2)
    assert seen == [(1, 2)]
    await queue.finish(None)


@pytest.mark.parametrize("pauses", [0, 1])
@pytest.mark.parametrize("eager", LOOPS)
def test_an_async_function_is_called_in_order_one_after_the_other(pauses: int, eager: bool) -> None:
    seen: list[str] = []

    async def slow(name: str) -> None:
        seen.append(f"{name} begins")
        await turns(pauses)
        seen.append(f"{name} ends")

    async def main() -> None:
        queue = CallbackQueue(slow, "f")
        for names in ("ab", "c"):
            for name in names:
                asyncio.get_running_loop().call_soon(queue.put, name)
            await turns(3)
            await queue.finish(None)

    run(main(), eager=eager)
    assert seen == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_function_raises_is_logged_and_the_next_news_is_brought(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    def plain(number: int) -> None:
        if number == 1:
            raise ZeroDivisionError
        seen.append(number)

    async def slow(number: int) -> None:
        plain(number)

    async def main() -> None:
        queue = CallbackQueue(slow if is_async else plain, "on_something")
        queue.put(1)
        queue.put(2)
        await queue.finish(None)

    run(main())
    assert seen == [2]
    assert [(record.name, record.levelno) for record in caplog.records] == [("mcplumb.client", logging.ERROR)]
    assert caplog.messages == ["The callback on_something raised an exception."]


def test_a_function_that_is_too_slow_misses_the_oldest_news() -> None:
    seen: list[int] = []

    async def slow(number: int) -> None:
        seen.append(number)
        await go.wait()

    async def main() -> None:
        queue = CallbackQueue(slow, "f")
        for number in range(1003):
            queue.put(number)
            await turns(2)
        assert queue.dropped == 2
        go.set()
        await queue.finish(None)

    go = asyncio.Event()
    run(main())
    assert seen == [0, *range(3, 1003)]


async def test_any_awaitable_will_do() -> None:
    awaited: list[asyncio.Future[None]] = []

    def callback() -> asyncio.Future[None]:
        awaited.append(asyncio.get_running_loop().create_future())
        return awaited[-1]

    queue = CallbackQueue(callback, "f")
    queue.put()
    queue.put()
    await turns()
    queue.stop()
    queue.stop()
    await turns()
    assert [future.cancelled() for future in awaited] == [True, False]


async def test_a_callback_that_is_cancelled_from_elsewhere_does_not_end_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    elsewhere = asyncio.get_running_loop().create_future()

    async def callback(number: int) -> None:
        if not number:
            await elsewhere
        seen.append(number)

    queue = CallbackQueue(callback, "on_log")
    for number in range(3):
        queue.put(number)
    await turns()
    elsewhere.cancel()
    await queue.finish(None)
    assert seen == [1, 2]
    assert caplog.messages == ["The callback on_log was cancelled."]


def test_finishing_takes_no_longer_than_it_may() -> None:
    stopped: list[bool] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    async def main() -> None:
        queue = CallbackQueue(endless, "f")
        queue.put()
        queue.put()
        await queue.finish(0.01)

    run(main())
    assert stopped == [True]


def progress(number: float) -> ProgressParams:
    return ProgressParams(1, number, 100, "on it")


@pytest.mark.req("PRG-2")
async def test_a_flood_of_progress_is_thinned_out_and_keeps_its_last_value() -> None:
    seen: list[float] = []

    queue = ProgressCallback(lambda number, *_: seen.append(number), asyncio.get_running_loop())
    for number in range(1000):
        queue.put(progress(number))
    assert len(seen) < 1000
    assert queue.dropped == 0
    skip(1)
    await turns()
    assert seen[-1] == 999, "it came when its turn came"
    for number in range(1000, 1100):
        queue.put(progress(number))
    await queue.finish(None)
    assert seen[-1] == 1099, "it came before the answer"


@pytest.mark.parametrize("count", [1, 1000])
async def test_nothing_is_reported_for_a_call_that_failed(count: int) -> None:
    seen: list[float] = []

    queue = ProgressCallback(lambda number, *_: seen.append(number), asyncio.get_running_loop())
    for number in range(count):
        queue.put(progress(number))
    before = len(seen)
    queue.stop()
    skip(10)
    await turns()
    assert len(seen) == before


async def test_progress_that_is_held_back_waits_for_its_turn_again_and_again() -> None:
    seen: list[float] = []

    queue = ProgressCallback(lambda number, *_: seen.append(number), asyncio.get_running_loop())
    for number in range(1000):
        queue.put(progress(number))
    for more in range(1000, 1003):
        skip(1)
        await turns()
        assert seen[-1] == more - 1
        for _ in range(50):
            queue.put(progress(more))
    await queue.finish(None)
    assert seen[-1] == 1002


def test_news_are_brought_in_the_context_of_whoever_wants_them() -> None:
    """Where a notebook shows what is printed, for one."""
    place: ContextVar[str] = ContextVar("place", default="nowhere")
    seen: list[str] = []

    async def later() -> None:
        seen.append(place.get())

    async def main() -> None:
        place.set("here")
        plain, waiting = CallbackQueue(lambda: seen.append(place.get()), "x"), CallbackQueue(later, "x")
        place.set("there")
        Context().run(plain.put)
        asyncio.get_running_loop().call_soon(waiting.put, context=Context())
        await asyncio.sleep(0)
        await waiting.finish(PATIENCE)

    asyncio.run(main())
    assert seen == ["here", "here"]

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.sync import blocking_client
from mcplumb.sync.blocking_client import LineDispatcher, threaded_callback
from tests.kit.loop import PATIENCE


async def call_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return "carried", function(*arguments)


async def later(*arguments: Any) -> None: ...


class Later:
    async def __call__(self) -> None: ...


def test_a_plain_function_becomes_an_async_one_that_somebody_else_calls() -> None:
    assert asyncio.run(threaded_callback(max, "on_log", call_in_thread)(1, 2)) == ("carried", 2)


@pytest.mark.parametrize("function", [later, partial(later, 1), Later(), Later().__call__])
def test_an_async_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="on_log is an async function"):
        threaded_callback(function, "on_log", call_in_thread)


def coroutine() -> Any:
    return later()


class Future:
    """Not a coroutine, but nothing for a blocking client either."""

    def __await__(self) -> Any: ...


@pytest.mark.parametrize("function", [coroutine, Future])
def test_a_function_that_gives_something_to_await_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="returned an awaitable"):
        asyncio.run(threaded_callback(function, "on_log", call_in_thread)())


def test_a_flood_of_lines_comes_whole_and_a_function_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def take(line: str) -> None:
        if line == "7":
            raise ZeroDivisionError
        lines.append(line)

    async def somewhere(function: Callable[..., Any], *arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments)

    async def main() -> None:
        dispatcher = LineDispatcher(take, somewhere)
        await dispatcher.finish(PATIENCE)
        for number in range(20_000):
            dispatcher.feed(str(number))
        await dispatcher.finish(PATIENCE)
        dispatcher.feed("last")
        await dispatcher.finish(PATIENCE)

    asyncio.run(main())
    assert lines == [*(str(number) for number in range(20_000) if number != 7), "last"]
    assert caplog.text.count("raised an exception") == 1


def test_lines_that_nobody_takes_do_not_grow_without_an_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_client, "_MAX_QUEUED", 30)
    lines: list[str] = []

    async def main() -> None:
        dispatcher = LineDispatcher(lines.append, call_in_thread)
        for number in range(10, 99):
            dispatcher.feed(f"line number {number}")
        await dispatcher.finish(PATIENCE)

    asyncio.run(main())
    assert lines == ["line number 97", "line number 98"]
    assert caplog.text.count("too slow") == 1


def test_a_function_for_lines_must_be_a_plain_one() -> None:
    with pytest.raises(UsageError, match="stderr is an async function"):
        LineDispatcher(later, call_in_thread)

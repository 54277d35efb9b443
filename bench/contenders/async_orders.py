"""The orders, for clients that are awaited: they are called alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from bench.contenders.orders import orders, tell, text_of

__all__ = ["clock", "obey"]

clock = time.perf_counter


class Client(Protocol):
    """What the clients have in common."""

    def call_tool(self, name: str, arguments: dict[str, Any], /) -> Awaitable[Any]: ...


async def obey(client: Client, started: float) -> None:
    """Do all that is ordered, with a client that has just been connected; that began at this time."""
    await echo(client, text_of(0))
    tell([clock() - started])
    for what, numbers in orders():
        tell(await WORK[what](client, *numbers))


async def alone(client: Client, count: int) -> list[float]:
    return [await echo(client, text_of(number)) for number in range(count)]


async def echo(client: Client, text: str) -> float:
    started = clock()
    result = await client.call_tool("echo", {"text": text})
    seconds = clock() - started
    check(result, text)
    return seconds


async def in_flight(client: Client, count: int, window: int) -> list[float]:
    """As many callers as the window is wide, each of which calls again as soon as it has its result."""
    numbers = iter(range(count))
    started = clock()
    await asyncio.gather(*[call_on(client, numbers) for _ in range(window)])
    return [clock() - started]


async def call_on(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        text = text_of(number)
        check(await client.call_tool("echo", {"text": text}), text)


async def large(client: Client, size: int) -> list[float]:
    return [await echo(client, "x" * size)]


def check(result: Any, text: str) -> None:
    if [block.text for block in result.content] != [text]:
        raise SystemExit(f"The result should have been {text[:100]!r}: {repr(result)[:200]}")


WORK: dict[str, Callable[..., Awaitable[list[float]]]] = {"alone": alone, "in_flight": in_flight, "large": large}

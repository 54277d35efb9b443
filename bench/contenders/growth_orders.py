"""What a client that may have to do with much is told: a line, answered with CPU seconds and seconds.

``flight 5000 100``: so many calls, of which so many are in flight. ``turns 5000``: so many, one at a time, by one
client after the other. ``together 5000``: so many, all clients at once. ``tools 5000 100``: so many calls of so many
tools. ``list 5``: the list of all tools so many times. ``message 5 1000``: so many echoes of so many characters.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from bench.contenders.orders import orders, tell

__all__ = ["Client", "obey", "target"]


class Client(Protocol):
    """What the clients have in common."""

    def call_tool(self, name: str, arguments: dict[str, Any], /) -> Awaitable[Any]: ...

    def list_tools(self) -> Awaitable[Sequence[Any]]: ...


def target() -> str | list[str]:
    """The address of the server, or the command to launch it."""
    return sys.argv[2] if sys.argv[2].startswith("unix:") else sys.argv[2:]


async def obey(clients: Sequence[Client]) -> None:
    """Do all that is ordered, with clients that have been connected."""
    for client in clients:
        await echo(client, "echo", "hello")
    tell([0.0, 0.0])
    for what, numbers in orders():
        cpu, wall = time.process_time(), time.perf_counter()
        await WORK[what](clients, *numbers)
        tell([time.process_time() - cpu, time.perf_counter() - wall])


async def echo(client: Client, tool: str, text: str) -> None:
    result = await client.call_tool(tool, {"text": text})
    if result.content[0].text != text:
        raise SystemExit(f"The result should have been {text[:100]!r}: {repr(result)[:200]}")


async def flight(clients: Sequence[Client], count: int, window: int) -> None:
    """As many callers as the window is wide, each of which calls again as soon as it has its result."""
    numbers = iter(range(count))
    await asyncio.gather(*[echo_on(clients[0], numbers) for _ in range(window)])


async def echo_on(client: Client, numbers: Iterator[int]) -> None:
    for number in numbers:
        await echo(client, "echo", f"hello from call {number}")


async def turns(clients: Sequence[Client], count: int) -> None:
    for number in range(count):
        await echo(clients[number % len(clients)], "echo", f"hello from call {number}")


async def together(clients: Sequence[Client], count: int) -> None:
    """Each client has one call in flight, all the time."""
    numbers = iter(range(count))
    await asyncio.gather(*[echo_on(client, numbers) for client in clients])


async def tools(clients: Sequence[Client], count: int, size: int) -> None:
    for number in range(count):
        await echo(clients[0], f"tool_{number * STRIDE % size}", f"hello from call {number}")


async def listed(clients: Sequence[Client], times: int) -> None:
    for _ in range(times):
        await clients[0].list_tools()


async def message(clients: Sequence[Client], count: int, size: int) -> None:
    text = "x" * size
    for _ in range(count):
        await echo(clients[0], "echo", text)


#: A prime: one call after the other goes to quite another tool.
STRIDE = 7919
WORK: dict[str, Callable[..., Awaitable[None]]] = {
    "flight": flight,
    "turns": turns,
    "together": together,
    "tools": tools,
    "list": listed,
    "message": message,
}

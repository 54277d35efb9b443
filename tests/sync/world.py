"""A server for blocking clients, in the same process or in one of its own, and what tests need around it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcplumb import Context, Server
from mcplumb.types.content import TextContent
from mcplumb.types.tools import CallToolResult
from tests.kit.loop import PATIENCE

ROOT = Path(__file__).parents[2]
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class World:
    """The server, and what happens in it. Everything of it runs in the loop that it is served in."""

    def __init__(self) -> None:
        #: Set from any thread when ``hang`` has begun, and when it was cancelled.
        self.hanging = threading.Event()
        self.cancelled = threading.Event()
        self.server = server = Server("world", instructions="Look around.")

        @server.tool
        async def echo(text: str) -> str:
            return text

        @server.tool
        async def count(n: int, ctx: Context) -> str:
            for step in range(1, n + 1):
                await ctx.progress(step, n, f"step {step}")
                await ctx.info(f"log {step}")
            return "counted"

        @server.tool
        async def hang(ctx: Context) -> str:
            self.hanging.set()
            await ctx.info("hanging")
            try:
                return await asyncio.Future()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        @server.tool
        async def wait_for_cancellation() -> str:
            return "cancelled" if await asyncio.to_thread(self.cancelled.wait, PATIENCE) else "forgotten"

        @server.tool
        async def introduce(ctx: Context) -> str:
            answer = await ctx.elicit("Who are you?", NAME)
            return str(answer.data)

        @server.tool
        async def think(question: str, ctx: Context) -> str:
            answer = await ctx.sample(question, max_tokens=5)
            return answer.text

        @server.tool
        async def look(ctx: Context) -> str:
            return " ".join(root.uri for root in await ctx.roots())

        @server.tool
        async def mutter(text: str) -> str:
            print(text, file=sys.stderr, flush=True)
            return text

        @server.tool
        async def change() -> str:
            server.resource_changed("world://map")
            return "changed"

        @server.resource("world://map")
        async def world_map() -> str:
            return "a map"

        @server.prompt
        def plan(city: str) -> str:
            return f"Plan a day in {city}."


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def own_threads() -> list[str]:
    """The names of the threads that blocking clients have started."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("mcplumb-sync"))


def wait_until(condition: Callable[[], Any]) -> None:
    """For what happens by itself, in another thread and in no time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "It never happened."
        time.sleep(0.001)


def in_threads(*bodies: Callable[[], Any]) -> None:
    """Run these at once, each in a thread of its own; raises what one of them does."""
    failures: list[BaseException] = []

    def guarded(body: Callable[[], Any]) -> None:
        try:
            body()
        except BaseException as failure:  # noqa: BLE001 - raised below
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "A thread hangs."
    if failures:
        raise failures[0]


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even a dead one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def command(*farewells: Path) -> list[str]:
    """Starts the server as a process, in the folder ``ROOT``; if it ends in order, it leaves these files behind."""
    return [sys.executable, "-m", "tests.sync.world", *map(str, farewells)]


if __name__ == "__main__":
    World().server.run()
    for farewell in sys.argv[1:]:
        Path(farewell).touch()

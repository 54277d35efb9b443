"""Tools of every temper: quick and slow, async and plain, loud, large, broken."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Any, Literal

from mcplumb import Context, RequestError, ToolError
from tests.process.servers.options import make_server

server = make_server("workshop", instructions="Handle with care.")

released = asyncio.Event()
unblocked = threading.Event()
cancelled: list[str] = []


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
def plain_echo(text: str) -> str:
    return text


@server.tool
async def hold(ctx: Context) -> str:
    """Starts, says so, and waits for ``release``."""
    await ctx.progress(1)
    try:
        await released.wait()
    except asyncio.CancelledError:
        cancelled.append("hold")
        await ctx.progress(2)
        await ctx.error("too late")
        raise
    return "released"


@server.tool
async def release(for_good: bool = False) -> str:
    """Lets those go on that wait now, or everyone who ever will."""
    released.set()
    unblocked.set()
    if not for_good:
        released.clear()
        unblocked.clear()
    return "done"


@server.tool
def block(ctx: Context) -> str:
    """Waits as ``hold`` does, in a plain function, which nothing can stop."""
    ctx.progress(1)
    unblocked.wait()
    return "released"


@server.tool
def watch(ctx: Context) -> str:
    """A plain function that looks whether anyone still wants it."""
    ctx.progress(1)
    while not ctx.cancelled:
        time.sleep(0.005)
    cancelled.append("watch")
    ctx.progress(2)
    ctx.error("too late")
    return "stopped"


@server.tool
async def seize() -> str:
    """Keeps the event loop from everything else, for ever, as no async function should."""
    print("the loop is blocked")
    while True:
        time.sleep(0.01)  # noqa: ASYNC251 - that is the point


@server.tool
async def stopped() -> list[str]:
    """Which functions have noticed that they were cancelled; waits for the first."""
    while not cancelled:  # noqa: ASYNC110 - plain functions add to it, too
        await asyncio.sleep(0.005)
    return cancelled


@server.tool
async def nap(seconds: float, ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(seconds)
    return "rested"


@server.tool
def plain_nap(seconds: float, ctx: Context) -> str:
    ctx.progress(1)
    time.sleep(seconds)
    return "rested"


@server.tool
async def count(values: list[float], ctx: Context) -> str:
    """Reports these values as progress."""
    for value in values:
        await ctx.progress(value, 100, f"at {value}")
    return "counted"


@server.tool
def plain_flood(steps: int, ctx: Context) -> str:
    for step in range(steps):
        ctx.progress(step + 1, steps)
    return "flooded"


@server.tool
async def tell(count: int, size: int, ctx: Context) -> str:
    """Sends this many log messages of this size."""
    print("tell begins")
    for number in range(count):
        await ctx.info({"by": "tell", "number": number, "text": "x" * size})
    return "told"


@server.tool
def plain_tell(count: int, size: int, ctx: Context) -> str:
    print("plain_tell begins")
    for number in range(count):
        ctx.info({"by": "plain_tell", "number": number, "text": "x" * size})
    return "told"


@server.tool
async def log_each_level(ctx: Context) -> str:
    for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
        await ctx.log(level, f"a {level}", logger="workshop")
    return "logged"


@server.tool
async def grumble(lines: int) -> str:
    """Fills the server's own log."""
    for number in range(lines):
        logging.getLogger("workshop").error("%d %s", number, "grumble" * 100)
    return "grumbled"


@server.tool
async def big(size: int) -> str:
    logging.getLogger("workshop").warning("a big answer")
    return "x" * size


@server.tool
async def late(ctx: Context) -> str:
    """Goes on to report after it has been answered."""

    async def report() -> None:
        for step in range(2, 100):
            await asyncio.sleep(0)
            await ctx.progress(step)
            await ctx.error("too late")

    await ctx.progress(1)
    background.append(asyncio.create_task(report()))
    return "answered"


background: list[asyncio.Task[None]] = []


@server.tool
async def settled() -> str:
    await asyncio.gather(*background)
    return "settled"


@server.tool
async def whoami(ctx: Context) -> dict[str, Any]:
    client = ctx.client_info
    return {
        "id": ctx.request_id,
        "revision": str(ctx.revision),
        "meta": ctx.meta,
        "client": None if client is None else client.name,
        "roots": ctx.client_capabilities.roots is not None,
        "sampling": ctx.client_capabilities.sampling is not None,
    }


@server.tool
async def fail(how: Literal["tool", "value", "exit", "request", "group"]) -> str:
    raise _errors()[how]


@server.tool
def plain_fail(how: Literal["tool", "value", "exit", "request"]) -> str:
    raise _errors()[how]


def _errors() -> dict[str, BaseException]:
    return {
        "tool": ToolError("The saw is blunt."),
        "value": ValueError("password=hunter2"),
        "exit": SystemExit("password=hunter2"),
        "request": RequestError(-32099, "Closed on Mondays.", {"day": "Monday"}),
        "group": ExceptionGroup("password=hunter2", [ValueError("password=hunter2")]),
    }


@server.tool
async def odd(what: str) -> Any:
    """Returns what JSON cannot say, or only with difficulty."""
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    return {
        "nan": float("nan"),
        "infinity": {"value": float("inf")},
        "surrogate": "half a \ud800 pair",
        "key": {"\ud800": 1},
        "object": object(),
        "circle": circle,
        "deep": deep,
        "generator": (number for number in range(3)),
        "integer": {"value": 10**40},
        "newline": "one\ntwo\r\n\u2028three",
    }[what]


@server.tool
async def stop() -> str:
    server.stop()
    return "stopping"


@server.tool
def plain_stop() -> str:
    server.stop()
    return "stopping"


@server.tool
def leave_thread() -> str:
    """Leaves a thread behind that never ends."""
    threading.Thread(target=threading.Event().wait).start()
    return "left"


@server.tool
async def leave_task() -> str:
    """Leaves a task behind that does not want to be cancelled."""

    async def stay() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    background.append(asyncio.create_task(stay()))
    return "left"


@server.on_request("workshop/custom")
async def custom(params: dict[str, Any]) -> dict[str, Any]:
    return {"got": params.get("value")}


heard: list[Any] = []


@server.on_notification("notifications/workshop/note")
async def note(params: dict[str, Any]) -> None:
    heard.append(params.get("value"))


@server.on_notification("notifications/workshop/slow_note")
def slow_note(params: dict[str, Any]) -> None:
    unblocked.wait()


@server.tool
async def notes() -> list[Any]:
    return heard


if __name__ == "__main__":
    server.run()

"""Our own server that the clients of others use: it has one of everything.

server.py [legacy|modern] [ADDRESS ...]: if the era is given, it speaks only that, and has what the table of the bridge
needs, too.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcplumb import Context, Server, ToolError
from mcplumb.types.tools import CallToolResult

REVISIONS = {"legacy": ["2025-11-25"], "modern": ["2026-07-28"]}

era, addresses = None, sys.argv[1:]
if addresses and addresses[0] in REVISIONS:
    era, *addresses = addresses

server = Server(
    "interop",
    version="1.0.0",
    instructions="A small inn, for trying clients.",
    revisions=REVISIONS[era] if era else None,
    page_size=1 if era else 1000,
)

CITIES = ["Oslo", "Osaka", "Paris"]
NOTES = "interop://notes"

pages = {NOTES: "Bring a coat."}
go_on = asyncio.Event()
was_cancelled = asyncio.Event()


@dataclass
class Forecast:
    city: str
    celsius: list[int]


@dataclass
class Stay:
    nights: int
    breakfast: bool


@dataclass
class Consent:
    sure: bool


@server.tool
def greet(name: str) -> str:
    return f"Hello, {name}!"


@server.tool
async def forecast(city: str, days: int = 3) -> Forecast:
    return Forecast(city, celsius=list(range(days)))


@server.tool
def refuse(reason: str) -> str:
    raise ToolError(reason)


@server.tool
async def climb(steps: int, ctx: Context) -> str:
    """Reports each step, and then waits for ``release``."""
    for step in range(1, steps + 1):
        await ctx.progress(step, steps, f"step {step}")
    try:
        await go_on.wait()
    except asyncio.CancelledError:
        was_cancelled.set()
        raise
    go_on.clear()
    return f"climbed {steps} steps"


@server.tool
async def release() -> str:
    go_on.set()
    return "released"


@server.tool
async def stopped() -> str:
    """Says so when a climb has been cancelled."""
    await asyncio.wait_for(was_cancelled.wait(), 30)
    return "stopped"


@server.tool
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(f"How long do you stay in {room}?", Stay)
    if stay.data is None:
        return f"{room}: {stay.action}"
    consent = await ctx.elicit(f"Book {room}?", Consent)
    return f"{room}: {stay.data}, {consent.data}"


@server.tool
async def announce(text: str, ctx: Context) -> str:
    await ctx.info(text)
    return "announced"


@server.tool
async def rewrite(text: str) -> str:
    pages[NOTES] = text
    server.resource_changed(NOTES)
    return "rewritten"


@server.resource(NOTES)
async def read_notes() -> str:
    return pages[NOTES]


@server.resource("interop://dot", mime_type="image/png")
def dot() -> bytes:
    return b"\x89PNG\r\n"


@server.resource("interop://cities/{city}")
async def about(city: str) -> str:
    return f"{city} is a city."


@server.prompt
def plan(city: str) -> str:
    return f"Plan a day in {city}."


@server.completion("plan", "city")
def complete_prompt(value: str) -> list[str]:
    return [city for city in CITIES if city.startswith(value)]


@server.completion("interop://cities/{city}", "city")
async def complete_template(value: str) -> list[str]:
    return [city for city in CITIES if city.startswith(value)]


def drink() -> str:
    return "Cheers!"


def add_more() -> None:
    """Add what the table of the bridge needs, too."""

    @server.tool
    async def hike(steps: int, folder: str, ctx: Context) -> str:
        """Reports each step, and then waits for a file: the next call may go to another process of the server."""
        for step in range(1, steps + 1):
            await ctx.progress(step, steps, f"step {step}")
        Path(folder, "begun").touch()
        try:
            # Without the folder, everybody has gone.
            while Path(folder).exists() and not Path(folder, "home").exists():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            Path(folder, "stopped").touch()
            raise
        return f"hiked {steps} steps"

    @server.tool
    async def pay(ctx: Context) -> str:
        answer = await ctx.elicit_url("Pay for the room.", "https://inn.example/pay")
        return f"payment: {answer.action}"

    @server.tool
    async def summarize(text: str, ctx: Context) -> str:
        answer = await ctx.sample(f"Summarize: {text}", max_tokens=100)
        return f"{answer.model}: {answer.text}"

    @server.tool
    async def look_around(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())

    @server.tool
    async def open_bar() -> str:
        server.tool(drink)
        return "open"

    @server.tool
    async def sign(ctx: Context) -> CallToolResult:
        return CallToolResult(content=[], meta={"interop/trace": ctx.meta.get("interop/trace")})

    @server.prompt
    def pack() -> str:
        return "Pack a bag."

    @server.on_request("interop/echo")
    async def echo(params: dict[str, Any]) -> dict[str, Any]:
        return {"echo": params["text"]}


if __name__ == "__main__":
    if era:
        add_more()
    server.run(*addresses, on_ready=lambda address: print(address, flush=True))

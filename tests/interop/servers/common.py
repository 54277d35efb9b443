"""The parts of the test server that are the same with all Python SDKs: their decorators have the same names."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

NAME = "inn"
INSTRUCTIONS = "A small inn, for trying clients."
NOTES = "interop://notes"
CITIES = ["Oslo", "Osaka", "Paris"]

PAY = "Pay for the room."
PAY_URL = "https://inn.example/pay"
SUMMARIZE = "Summarize: "
TRACE = "interop/trace"

pages = {NOTES: "Bring a coat."}


#: How to serve: stdio, http, http-json, http-stateless or sse.
way = sys.argv[1] if sys.argv[1:] else "stdio"
port = int(sys.argv[2]) if sys.argv[2:] else 0
#: Whether to serve what the table of the bridge needs, too.
is_full = sys.argv[3:] == ["full"]
http_options = {"json_response": way == "http-json", "stateless_http": way == "http-stateless"}


class Forecast(BaseModel):
    city: str
    celsius: list[int]


class Stay(BaseModel):
    nights: int
    breakfast: bool


def question(room: str) -> str:
    return f"How long do you stay in {room}?"


def booked(room: str, stay: Stay) -> str:
    return f"{room}: {stay.nights} nights, breakfast {stay.breakfast}"


def drink() -> str:
    return "Cheers!"


def complete(value: str) -> list[str]:
    return [city for city in CITIES if city.startswith(value)]


def add_features(
    server: Any, context: type, tool_error: type[Exception], announce_change: Callable[[Any], Any]
) -> None:
    """Add to the server what only differs by these two classes, and by how a change of the notes is announced."""
    go_on = asyncio.Event()
    was_cancelled = asyncio.Event()

    @server.tool()
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    @server.tool()
    async def forecast(city: str, days: int = 3) -> Forecast:
        return Forecast(city=city, celsius=list(range(days)))

    @server.tool()
    def refuse(reason: str) -> str:
        raise tool_error(reason)

    @server.tool()
    async def climb(steps: int, ctx: context) -> str:
        """Reports each step, and then waits for ``release``."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        go_on.clear()
        return f"climbed {steps} steps"

    @server.tool()
    async def release() -> str:
        go_on.set()
        return "released"

    @server.tool()
    async def stopped() -> str:
        """Says so when a climb has been cancelled."""
        await asyncio.wait_for(was_cancelled.wait(), 30)
        was_cancelled.clear()
        return "stopped"

    @server.tool()
    async def announce(text: str, ctx: context) -> str:
        await ctx.info(text)
        return "announced"

    @server.tool()
    async def rewrite(text: str, ctx: context) -> str:
        pages[NOTES] = text
        await announce_change(ctx)
        return "rewritten"

    if is_full:

        @server.tool()
        async def hike(steps: int, folder: str, ctx: context) -> str:
            """Reports each step, and then waits for a file: the next call may go to another process of the server."""
            for step in range(1, steps + 1):
                await ctx.report_progress(step, steps, f"step {step}")
            Path(folder, "begun").touch()
            try:
                # Without the folder, everybody has gone.
                while Path(folder).exists() and not Path(folder, "home").exists():
                    await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                Path(folder, "stopped").touch()
                raise
            return f"hiked {steps} steps"

    @server.resource(NOTES)
    def notes() -> str:
        return pages[NOTES]

    @server.resource("interop://dot", mime_type="image/png")
    def dot() -> bytes:
        return b"\x89PNG\r\n"

    @server.resource("interop://cities/{city}")
    def about(city: str) -> str:
        return f"{city} is a city."

    @server.prompt()
    def plan(city: str) -> str:
        return f"Plan a day in {city}."

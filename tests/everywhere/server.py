"""The server that everything in this folder talks to, whichever way leads to it.

Run as a program it serves on stdio, or at an address, which it prints. What happens in it can be asked for with the
tool ``seen``, so that a test can know it without being in the same process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import msgspec

from mcplumb import Context, Image, RequestError, Server, ToolError
from mcplumb.sync import Context as BlockingContext

__all__ = ["make_server"]

PLACES = ("oslo", "odense", "rome")


class Report(TypedDict):
    city: str
    celsius: float


class Person(msgspec.Struct):
    name: str
    age: int = 0


class Book:
    """What has happened so far, in whichever thread."""

    def __init__(self) -> None:
        self._events: list[str] = []

    def note(self, event: str) -> None:
        self._events.append(event)

    async def wait(self, event: str, times: int = 1) -> int:
        while self._events.count(event) < times:  # noqa: ASYNC110 - a thread can note something, too
            await asyncio.sleep(0.001)
        return self._events.count(event)


def make_server(stop_within: float = 0.5) -> Server:
    book = Book()

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "a lifespan"

    server = Server(
        "everywhere",
        version="3.1",
        title="Everywhere",
        instructions="Come as you are.",
        page_size=4,
        lifespan=lifespan,
        stop_within=stop_within,
        ttl=60,
        cache_scope="public",
    )
    _add_calls(server, book)
    _add_questions(server)
    _add_contents(server, book)
    _add_changes(server)
    return server


def _add_calls(server: Server, book: Book) -> None:
    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers, in a thread."""
        return a * b

    @server.tool
    async def report(city: str) -> Report:
        return {"city": city, "celsius": 21.5}

    @server.tool
    def paint() -> list[Any]:
        return ["A dot:", Image(b"\x89PNG", mime_type="image/png")]

    @server.tool
    async def echo(text: str, times: int = 1) -> str:
        return text * times

    @server.tool
    async def echo_slowly(text: str) -> str:
        book.note("echo began")
        await asyncio.sleep(0.1)
        return text

    @server.tool
    async def fail(how: str) -> str:
        if how == "tool":
            raise ToolError("The well is dry.")
        if how == "request":
            raise RequestError(-32050, "Not today.", {"when": "tomorrow"})
        raise LookupError("a secret")

    @server.tool
    async def count(n: int, ctx: Context) -> str:
        for step in range(1, n + 1):
            await ctx.progress(step, n, f"step {step}")
            await ctx.debug("hush")
            await ctx.info({"step": step})
        return "counted"

    @server.tool
    def count_in_a_thread(n: int, ctx: Context) -> str:
        for step in range(1, n + 1):
            ctx.progress(step, n, f"step {step}")
            ctx.info({"step": step})
        return "counted"

    @server.tool
    async def hang(name: str = "hang") -> str:
        book.note(f"{name} began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            book.note(f"{name} was cancelled")
            raise
        return "never"

    @server.tool
    def spin(ctx: Context) -> str:
        book.note("spin began")
        while not ctx.cancelled:
            time.sleep(0.001)
        book.note("spin was cancelled")
        return "never"

    @server.tool
    async def seen(event: str, times: int = 1) -> int:
        """Wait until it has happened; how often it has."""
        return await book.wait(event, times)

    @server.tool
    async def slow(ctx: Context) -> str:
        """Begin; end when the server is being stopped by somebody else."""
        book.note("slow began")
        await book.wait("stopping")
        return "slow but sure"

    @server.tool
    async def stop() -> str:
        book.note("stopping")
        server.stop()
        return "stopped"

    @server.tool
    async def whoami(ctx: Context) -> dict[str, Any]:
        return {
            "client": None if ctx.client_info is None else ctx.client_info.name,
            "revision": str(ctx.revision),
            "lifespan": ctx.lifespan,
            "meta": ctx.meta.get("com.example/trace"),
        }

    @server.tool
    async def header(name: str, ctx: Context) -> str:
        return "no HTTP" if ctx.headers is None else ctx.headers.get(name, "none")

    @server.tool
    def header_in_a_thread(name: str, ctx: Context) -> str:
        return "no HTTP" if ctx.headers is None else ctx.headers.get(name, "none")

    @server.tool
    async def quote(uri: str, ctx: Context) -> str | None:
        return (await ctx.read_resource(uri)).contents[0].text

    @server.tool
    def quote_in_a_thread(uri: str, ctx: BlockingContext) -> str | None:
        return ctx.read_resource(uri).contents[0].text

    @server.on_request("example/double")
    async def double(params: dict[str, Any]) -> dict[str, Any]:
        if "number" not in params:
            raise RequestError(-32602, "No number.")
        return {"doubled": 2 * params["number"]}

    @server.on_notification("notifications/example")
    async def heard(params: dict[str, Any]) -> None:
        book.note(f"heard {params['word']}")


def _add_questions(server: Server) -> None:
    @server.tool
    async def introduce(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Person)
        if answer.data is None:
            return answer.action
        again = await ctx.elicit("Really?", Person)
        return f"{answer.data.name}, {answer.data.age}: {again.action}"

    @server.tool
    def introduce_in_a_thread(ctx: BlockingContext) -> str:
        answer = ctx.elicit("Who are you?", Person)
        return answer.action if answer.data is None else answer.data.name

    @server.tool
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Please log in.", "https://example.com/login")).action

    @server.tool
    async def think(question: str, ctx: Context) -> str:
        return (await ctx.sample(question, max_tokens=5)).text

    @server.tool
    async def look(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())


def _add_contents(server: Server, book: Book) -> None:
    @server.resource("event://{word}")
    async def event(word: str) -> str:
        """Wait until the word was heard."""
        book.note(f"waiting for {word}")
        await book.wait(f"heard {word}")
        return f"{word} was heard"

    @server.resource("place://{place}/now", ttl=30, cache_scope="private")
    async def now(place: str) -> str | None:
        return f"quiet in {place}" if place in PLACES else None

    @server.resource("place://map", title="The map", mime_type="image/png")
    def place_map() -> bytes:
        return b"\x00\x01"

    @server.resource("place://book")
    def whole_book() -> str:
        return "é" * 1_000_000

    @server.prompt
    def plan(city: str, days: int = 1) -> str:
        """Plan a journey."""
        return f"Plan {days} days in {city}."

    @server.completion("plan", "city")
    def cities(typed: str) -> list[str]:
        return [place for place in PLACES if place.startswith(typed)]

    @server.completion("place://{place}/now", "place")
    async def places(typed: str, others: dict[str, str]) -> list[str]:
        return [f"{typed}!", *others.values()]


def _add_changes(server: Server) -> None:
    @server.tool
    async def grow(name: str) -> str:
        """Add a tool."""

        async def grown() -> str:
            return f"I am {name}."

        server.add_tool(grown, name=name)
        return "grown"

    @server.tool
    async def shrink(name: str) -> str:
        """Remove a tool."""
        server.remove_tool(name)
        return "shrunk"

    @server.tool
    async def open_place(name: str) -> str:
        """Add a resource."""
        server.add_resource(f"place://{name}", lambda: f"Welcome to {name}.", name=name)
        return "open"

    @server.tool
    async def forget_plan() -> str:
        """Remove a prompt."""
        server.remove_prompt("plan")
        return "forgotten"

    @server.tool
    async def touch(uri: str) -> str:
        """Say that a resource has changed."""
        server.resource_changed(uri)
        return "touched"


if __name__ == "__main__":
    make_server(stop_within=3.0).run(*sys.argv[1:], on_ready=lambda address: print(address, flush=True))

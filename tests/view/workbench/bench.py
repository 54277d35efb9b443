"""A workbench that is served, and used by its API as the page uses it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from mcplumb.view.workbench.server_choice import ChosenServer
from mcplumb.view.workbench.workbench_section import WorkbenchSection
from tests.kit.loop import PATIENCE
from tests.view.visitor import Got, Visitor, visiting

SERVER = [sys.executable, str(Path(__file__).with_name("bench_server.py"))]


async def first_found(look: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first result that is not None."""
    async with asyncio.timeout(PATIENCE):
        while (found := await look()) is None:  # noqa: ASYNC110 - only asking again tells
            await asyncio.sleep(0.01)
    return found


class Bench:
    """Uses one connection."""

    def __init__(self, visitor: Visitor, number: int = 0) -> None:
        self.visitor = visitor
        self.number = number

    async def got(self, path: str, method: str = "GET", body: Any = None) -> Got:
        more: dict[str, Any] = {}
        if method == "POST":
            more = {"data": msgspec.json.encode(body or {}), "headers": {"content-type": "application/json"}}
        return await self.visitor.ask(f"api/workbench{path}", method, **more)

    async def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        got = await self.got(path, method, body)
        assert got.status == 200, got.body
        return got.json

    async def of(self, path: str = "", method: str = "GET", body: Any = None) -> Any:
        """Ask something of the connection."""
        return await self.ask(f"/connections/{self.number}{path}", method, body)

    async def connect(self, **choice: Any) -> Any:
        """Connect, and wait until that has worked or failed."""
        self.number = (await self.ask("/connections", "POST", choice))["id"]
        return await self.settled()

    async def settled(self) -> Any:
        async def is_settled() -> Any:
            details = await self.of()
            return details if details["state"] != "connecting" else None

        return await first_found(is_settled)

    async def start(self, name: str, method: str = "tools/call", **arguments: Any) -> int:
        params = {"uri": name} if method == "resources/read" else {"name": name, "arguments": arguments}
        return (await self.of("/calls", "POST", {"method": method, "params": params}))["id"]  # type: ignore[no-any-return]

    async def ended(self, number: int) -> Any:
        async def is_ended() -> Any:
            call = await self.of(f"/calls/{number}")
            return call if call["state"] != "running" else None

        return await first_found(is_ended)

    async def call(self, name: str, method: str = "tools/call", **arguments: Any) -> Any:
        """Make a call, and return its details."""
        return await self.ended(await self.start(name, method, **arguments))

    async def question(self) -> Any:
        """Wait for a question of the server."""

        async def first() -> Any:
            return next(iter((await self.of("/questions"))["questions"]), None)

        return await first_found(first)

    async def answer(self, question: Any, **answer: Any) -> Any:
        return await self.of(f"/questions/{question['id']}", "POST", answer)

    async def logged(self, text: str) -> Any:
        """Wait for a line of the log that contains this, and return it."""

        async def found() -> Any:
            lines = (await self.of("/log"))["lines"]
            return next((line for line in lines if text in line.get("text", "") + str(line.get("data", ""))), None)

        return await first_found(found)


@asynccontextmanager
async def working(start: ChosenServer | None = None, **options: Any) -> AsyncIterator[Bench]:
    """Serve a workbench, by default without a connection."""
    async with visiting(lambda hub: [WorkbenchSection(hub, start, **options)]) as visitor:
        bench = Bench(visitor, 1)
        if start is not None:
            await bench.settled()
        yield bench


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[Bench]:
    """Serve a workbench that is connected to the server of this folder."""
    async with working(ChosenServer(title="bench", place=SERVER, words=("--", *SERVER)), **options) as bench:
        yield bench

"""A server whose tools do what the tests of sessions need, each as far as it is told to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from mcplumb import Context, Server

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Workshop:
    """The server, and what its tools wait for. Made in a running event loop."""

    def __init__(self, **settings: Any) -> None:
        self.server = Server("workshop", version="1", **settings)
        #: Opened by tests: ``gates["a"].set()``.
        self.gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        #: Set by tools that have come to their gate.
        self.reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.cancelled: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        for tool in (self.double, self.chat, self.ask, self.wait, self.tell, self.leave, self.flood):
            self.server.add_tool(tool)

    async def at(self, gate: str) -> None:
        """Wait until a tool has come to this gate."""
        async with asyncio.timeout(60):
            await self.reached[gate].wait()

    async def _pass(self, gate: str) -> None:
        self.reached[gate].set()
        try:
            await self.gates[gate].wait()
        except asyncio.CancelledError:
            self.cancelled[gate].set()
            raise

    async def double(self, n: int) -> str:
        """Answer at once."""
        return str(2 * n)

    async def chat(self, ctx: Context, word: str = "hello") -> str:
        """Say something before the answer."""
        await ctx.info(word)
        await ctx.progress(1, 2)
        return f"{word}, done"

    async def ask(self, ctx: Context, gate: str = "") -> str:
        """Ask the user, once the gate is open."""
        if gate:
            await ctx.info("about to ask")
            await self._pass(gate)
        answer = await ctx.elicit("Your name?", FORM)
        return f"hello {answer.data['name']}" if answer.data else answer.action

    async def wait(self, gate: str) -> str:
        """Say nothing until the gate is open."""
        await self._pass(gate)
        return f"{gate} is open"

    async def tell(self, ctx: Context, gate: str) -> str:
        """Say something before the gate and behind it."""
        await ctx.info(f"before {gate}")
        await self._pass(gate)
        await ctx.info(f"behind {gate}")
        return f"{gate} is open"

    async def leave(self, ctx: Context, gate: str, talks: bool = False, retry: float = 0.25) -> str:
        """Let the client go, and come back when the gate is open."""
        if talks:
            await ctx.info("see you")
        ctx.release_stream(retry)
        await self._pass(gate)
        await ctx.info("welcome back")
        return "here it is"

    async def flood(self, ctx: Context, count: int, size: int) -> str:
        """Say very much."""
        for n in range(count):
            await ctx.info(f"{n} " + "x" * size)
        return "all said"

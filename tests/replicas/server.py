"""The server of which the tests run several replicas: ``python -m tests.replicas.server PORT REDIS_URL``."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass

from mcplumb import Context, HttpOptions, Principal, Server

TOKENS = {"alice-token": "alice", "bob-token": "bob"}
DEFAULT = HttpOptions()


@dataclass
class Reply:
    value: str


def make_server() -> Server:
    server = Server("replicas", version="1", stop_within=float(os.environ.get("STOP_WITHIN", "1.5")))
    changes = {"count": 0}

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def whoami(ctx: Context) -> str:
        return "nobody" if ctx.principal is None else ctx.principal.subject

    @server.tool
    async def which() -> int:
        return os.getpid()

    @server.tool
    async def count(ctx: Context, to: int, wait: float = 0.0) -> str:
        """Report progress up to a number."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to)
            await asyncio.sleep(wait)
        return f"counted to {to}"

    @server.tool
    async def talk(ctx: Context, times: int) -> str:
        """Send many messages on the stream of the call."""
        for number in range(times):
            await ctx.log("warning", f"message {number}")
        return "done"

    @server.tool
    async def log(ctx: Context, text: str) -> str:
        await ctx.log("debug", text)
        return text

    @server.tool
    async def ask(ctx: Context, question: str) -> str:
        answer = await ctx.elicit(question, Reply)
        return f"{answer.action}: {answer.data.value}" if answer.action == "accept" else answer.action

    @server.tool
    async def wait_for_ever(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def release(ctx: Context, seconds: float) -> str:
        await ctx.release_stream(0.05)
        await asyncio.sleep(seconds)
        return "released"

    @server.tool
    async def touch(uri: str) -> str:
        server.resource_changed(uri)
        return uri

    @server.tool
    async def grow() -> str:
        """Add a tool, so that the list changes."""
        changes["count"] += 1

        def extra() -> int:
            return 1

        server.add_tool(extra, name=f"extra-{os.getpid()}-{changes['count']}")
        return "grown"

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        return name

    return server


def authenticate(token: str) -> Principal | None:
    return Principal(TOKENS[token]) if token in TOKENS else None


if __name__ == "__main__":
    port, shared, *rest = sys.argv[1:]
    options = HttpOptions(
        shared=shared,
        metrics=True,
        auth=authenticate if "--auth" in rest else None,
        keep_alive=float(os.environ.get("KEEP_ALIVE", DEFAULT.keep_alive)),
        session_ttl=float(os.environ.get("SESSION_TTL", DEFAULT.session_ttl)),
    )
    make_server().run(f"http://127.0.0.1:{port}", http=options)

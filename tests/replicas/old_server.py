"""A legacy server over stdio, for replicas of a bridge before it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from mcplumb import Context, Server

server = Server("old", version="1", revisions=["2025-06-18"])


@dataclass
class Reply:
    value: str


@server.tool
async def ask(ctx: Context, question: str, times: int = 1) -> str:
    answers = []
    for _ in range(times):
        answer = await ctx.elicit(question, Reply)
        answers.append(answer.data.value if answer.action == "accept" else answer.action)
    return ", ".join(answers)


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def count(ctx: Context, to: int) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
        await asyncio.sleep(0.01)
    return f"counted to {to}"


@server.tool
async def touch(uri: str) -> str:
    server.resource_changed(uri)
    return uri


@server.resource("notes://{name}")
async def note(name: str) -> str:
    return name


if __name__ == "__main__":
    server.run()

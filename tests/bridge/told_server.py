"""A server that answers, reports, logs, asks and announces with the words that its client gave it.

Run as a program it serves on stdio. Nothing that it says for one client has the words of another.
"""

from __future__ import annotations

import asyncio
import os

import msgspec

from mcplumb import Context, Server
from mcplumb.types import ToolAnnotations

__all__ = ["make_server"]


class Form(msgspec.Struct):
    word: str


def make_server() -> Server:
    # The key stays the same when the server is started again, so what a client holds stays valid.
    server = Server("told", version="1", state_keys=[b"the same key for each of the processes"])

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def echo(words: str, ctx: Context) -> str:
        await ctx.progress(1, 2, words)
        await ctx.info(words)
        await asyncio.sleep(0)
        return words

    @server.tool
    async def ask(words: str, ctx: Context) -> str:
        answer = await ctx.elicit(words, Form)
        return f"{words} {answer.action if answer.data is None else answer.data.word}"

    @server.tool
    async def hang(words: str, ctx: Context) -> str:
        await ctx.progress(1, None, words)
        await asyncio.Event().wait()
        return words

    @server.tool
    async def change(words: str) -> str:
        server.resource_changed(f"own:{words}")
        return words

    @server.tool
    async def crash(words: str) -> str:
        os._exit(7)

    @server.resource("own:{words}")
    def own(words: str) -> str:
        return words

    return server


if __name__ == "__main__":
    make_server().run()

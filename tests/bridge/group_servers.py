"""Servers for the tests of bridges over several of them."""

from __future__ import annotations

from dataclasses import dataclass

from mcplumb import Context, Server

MODERN, LEGACY = "2026-07-28", "2025-11-25"


@dataclass
class Name:
    name: str


def notes(era: str, *, page_size: int = 1000) -> Server:
    """A server with one of everything, in one revision."""
    server = Server("notes", revisions=[era], instructions="Write short notes.", page_size=page_size)

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool
    async def delete() -> str:
        return "deleted"

    @server.tool(name="dotted.name")
    async def dotted() -> str:
        return "dotted"

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"Hello {answer.data.name}" if answer.action == "accept" else "Bye"

    @server.tool
    async def shout(ctx: Context) -> str:
        await ctx.warning(f"a warning of the {era} server")
        return "shouted"

    @server.resource("note://first")
    async def first() -> str:
        return f"the first note of the {era} server"

    @server.prompt
    async def write(topic: str) -> str:
        return f"Write about {topic}."

    @server.completion("write", "topic")
    async def topics(value: str) -> list[str]:
        return [f"{value} of the {era} server"]

    return server


def files(era: str) -> Server:
    """A server with a template, and a resource that `notes` has as well."""
    server = Server("files", revisions=[era])

    @server.resource("file:///{path}")
    async def file(path: str) -> str:
        return f"the file {path}"

    @server.resource("note://first")
    async def first() -> str:
        return "hidden by another server"

    @server.completion("file:///{path}", "path")
    async def paths(value: str) -> list[str]:
        return [f"{value}.txt"]

    return server

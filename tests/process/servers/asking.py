"""Functions that ask the client's user, model or files: async and plain ones, of every kind that may ask."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from mcplumb import Context
from mcplumb.sync import Context as BlockingContext
from tests.process.servers.options import OPTIONS, make_server

# A test that makes request state of its own gives the key.
KEY = OPTIONS.pop("key", None)

server = make_server("asking", state_keys=[] if KEY is None else [bytes.fromhex(KEY)])


@dataclass
class Size:
    size: int


@dataclass
class Name:
    name: str


@server.tool
async def order(dish: str, ctx: Context) -> str:
    """Asks two things, one after the other."""
    size = await ctx.elicit(f"How large a {dish}?", Size)
    if size.data is None:
        return f"{dish}: {size.action}"
    name = await ctx.elicit("For whom?", Name)
    return f"{dish} of {size.data.size} for {name.data.name if name.data else name.action}"


@server.tool
def plain_order(dish: str, ctx: BlockingContext) -> str:
    """Asks two things as ``order`` does, in a plain function that blocks."""
    size = ctx.elicit(f"How large a {dish}?", Size)
    if size.data is None:
        return f"{dish}: {size.action}"
    name = ctx.elicit("For whom?", Name)
    return f"{dish} of {size.data.size} for {name.data.name if name.data else name.action}"


@server.tool
async def order_at_once(ctx: Context) -> str:
    """Asks two things at the same time."""
    async with asyncio.TaskGroup() as group:
        size = group.create_task(_ask(ctx, "How large?", Size))
        name = group.create_task(_ask(ctx, "For whom?", Name))
    return f"{size.result()} {name.result()}"


async def _ask(ctx: Context, message: str, form: Any) -> Any:
    return (await ctx.elicit(message, form)).data


@server.tool
async def guarded(ctx: Context) -> str:
    """Asks in the middle of code that forgives every error."""
    try:
        answer = await ctx.elicit("For whom?", Name)
    except Exception:  # noqa: BLE001 - that is the point
        return "swallowed"
    return f"for {answer.data.name if answer.data else answer.action}"


@server.tool
async def pay(ctx: Context) -> str:
    return (await ctx.elicit_url("Pay there.", "https://example.org/pay")).action


@server.tool
async def advise(ctx: Context) -> str:
    return (await ctx.sample("What is good today?", max_tokens=10)).text


@server.tool
def plain_advise(ctx: BlockingContext) -> str:
    return ctx.sample("What is good today?", max_tokens=10).text


@server.tool
async def folders(ctx: Context) -> list[str]:
    return [str(root.uri) for root in await ctx.roots()]


@server.tool
async def echo(text: str) -> str:
    return text


@server.prompt
async def greeting(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"Greet {answer.data.name if answer.data else 'nobody'}."


@server.resource("asking://menu")
async def menu(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name)
    return f"The menu for {answer.data.name if answer.data else 'nobody'}"


@server.on_request("asking/custom")
async def custom(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """May not ask on modern clients: only three methods may."""
    answer = await ctx.elicit("Who are you?", Name)
    return {"action": answer.action}


if __name__ == "__main__":
    server.run()

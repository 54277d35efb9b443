"""A tea house: a small server with tools, resources, a prompt and a completion, used by ``mcplumb demo``.

``mcplumb demo --server`` runs it, and ``mcplumb demo --source`` prints it, as a file to start from.
"""

from __future__ import annotations

import asyncio
import sys

from msgspec import Struct

from mcplumb import Context, Server, ToolError
from mcplumb.types import ToolAnnotations

__all__ = [
    "POURING",
    "TEAS",
    "Order",
    "add_tea",
    "brew",
    "label",
    "menu",
    "minutes",
    "order",
    "pairing",
    "server",
    "teas",
]

server = Server("teahouse", version="1.0", instructions="Read tea://menu, then brew a tea or take an order.")

#: The teas and their steeping times in minutes.
TEAS = {"assam": 4, "rooibos": 7, "sencha": 2}
#: Seconds to pour a cup.
POURING = 0.25


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def minutes(tea: str) -> int:
    """For how many minutes a tea steeps."""
    if tea not in TEAS:
        raise ToolError(f"There is no {tea}. There is {', '.join(TEAS)}.")
    return TEAS[tea]


# Idempotent: if this server is lost during the call, a client may call it again.
@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def brew(tea: str, ctx: Context, cups: int = 4) -> str:
    """Brew a pot of tea and pour it, cup by cup.

    Args:
        tea: One of the menu.
        cups: How many cups.
    """
    steeped = await minutes(tea)
    for cup in range(1, cups + 1):
        await asyncio.sleep(POURING)
        await ctx.progress(cup, cups, f"cup {cup}")
    return f"{cups} cups of {tea}, steeped for {steeped} minutes."


class Order(Struct):
    """What a guest is asked."""

    tea: str
    sugar: bool = False


@server.tool
async def order(ctx: Context) -> str:
    """Take an order: this asks the user."""
    answer = await ctx.elicit("What would you like?", Order)
    if answer.action != "accept":
        raise ToolError("No order, no tea.")
    return f"One {answer.data.tea}, {'with' if answer.data.sugar else 'without'} sugar."


@server.tool
async def add_tea(tea: str, minutes: int) -> str:
    """Put a tea on the menu. Subscribers to the menu are notified."""
    TEAS[tea] = minutes
    server.resource_changed("tea://menu")
    return f"{tea} is on the menu."


@server.resource("tea://menu", mime_type="application/json")
async def menu() -> dict[str, int]:
    """The teas of today, with their minutes."""
    return TEAS


@server.resource("tea://{tea}/label", mime_type="text/plain")
async def label(tea: str) -> str | None:
    """What is written on a tin."""
    return f"{tea.upper()}, {TEAS[tea]} minutes" if tea in TEAS else None


@server.prompt
def pairing(tea: str) -> str:
    """Find something to eat with a tea."""
    return f"Suggest three small things to eat with a cup of {tea}."


@server.completion("pairing", "tea")
async def teas(typed: str) -> list[str]:
    """The teas that begin like this."""
    return [tea for tea in TEAS if tea.startswith(typed)]


if __name__ == "__main__":
    server.run(*sys.argv[1:])

"""A server with one of everything that the commands which use a server have to deal with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mcplumb import Audio, Context, File, Image, Server, ToolError
from mcplumb.types.content import ResourceLink, TextContent
from mcplumb.types.prompts import PromptMessage

server = Server("kitchen", version="1.0")

PNG = b"\x89PNG\r\n\x1a\nthese are not the pixels"
EVIL = "\x1b]0;owned\x07\x1b[2J[red]x[/red]"


@dataclass
class Place:
    city: str
    lat: float | None = None


@server.tool
def types(
    text: str,
    count: int = 1,
    part: float | None = None,
    *,
    hot: bool = False,
    unit: Literal["c", "f"] = "c",
    tags: list[str] | None = None,
    places: dict[str, Place] | None = None,
    place: Place | None = None,
) -> dict[str, Any]:
    """Give back what came.

    Args:
        text: Any text.
        count: How many.
    """
    said = {"text": text, "count": count, "part": part, "hot": hot, "unit": unit, "tags": tags}
    return {**said, "place": place and place.city, "places": places and list(places)}


@server.tool
async def cook(steps: int, ctx: Context) -> str:
    """Cook, step by step."""
    for step in range(steps):
        await ctx.progress(step + 1, steps, f"{EVIL} step {step + 1}")
    await ctx.info({"dish": "soup"})
    await ctx.debug("smells good")
    return "soup"


@server.tool
async def wait(file: str) -> str:
    """Wait until nobody wants it any more."""
    note(file, "started")
    print("waiting")  # on our stderr, for whoever wants to interrupt
    try:
        await asyncio.Event().wait()
    finally:
        note(file, "cancelled")
    return "never"


def note(file: str, text: str) -> None:
    Path(file).write_text(text, encoding="utf-8")


FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As on the bill.", "minLength": 2},
        "size": {"type": "string", "enum": ["small", "large"], "enumNames": ["Small one", "Large one"]},
        "bread": {"type": "string", "oneOf": [{"const": "r", "title": "Rye"}, {"const": "w", "title": "Wheat"}]},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["ham", "egg", "leek"]}},
        "pieces": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "hot": {"type": "boolean", "default": True},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["name", "size"],
}


@server.tool
async def order(ctx: Context) -> dict[str, Any]:
    """Order, after being asked how."""
    answer = await ctx.elicit("How do you take it?", FORM)
    return {"action": answer.action, "data": answer.data}


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask for nothing but a yes."""
    return (await ctx.elicit("Throw it away?", {"type": "object", "properties": {}})).action


@server.tool
async def pay(ctx: Context, url: str = "https://example.org/pay") -> str:
    """Pay on a web page."""
    return (await ctx.elicit_url("Please pay.", url)).action


@server.tool
async def abilities(ctx: Context) -> str:
    """What the client says that it can be asked."""
    can = ctx.client_capabilities
    asked = can.elicitation
    elicitation = "none" if asked is None else " ".join(["form"] * asked.has_form + ["url"] * asked.has_url)
    return f"elicitation: {elicitation}, sampling: {can.sampling is not None}, roots: {can.roots is not None}"


@server.tool
async def folders(ctx: Context) -> list[str]:
    """Where the client lets it work."""
    return [str(root.uri) for root in await ctx.roots()]


@server.tool
def picture() -> Image:
    """A picture."""
    return Image(PNG, mime_type="image/png")


@server.tool
def album() -> list[Any]:
    """Several things at once."""
    link = ResourceLink("kitchen://menu", "menu", title="The menu", mime_type="text/plain")
    file = File(b"%PDF", name="../bill.pdf", mime_type="application/pdf")
    return [
        "see:",
        Image(PNG, mime_type="image/png"),
        Image(PNG, mime_type="image/png"),
        Audio(b"RIFF", mime_type="audio/wav"),
        link,
        file,
    ]


@server.tool
def evil() -> str:
    """A text that wants to drive the terminal."""
    return EVIL


@server.tool
def burn() -> str:
    """Fail."""
    raise ToolError(f"It is burnt.{EVIL}")


@server.resource("kitchen://menu", mime_type="text/plain")
def menu() -> str:
    """What there is; the last line has no end."""
    return "soup\nbread"


@server.resource("kitchen://photo.png", mime_type="image/png")
def photo() -> bytes:
    """Bytes."""
    return PNG


@server.resource("kitchen://guest")
async def guest(ctx: Context) -> str:
    """Asks who it is for."""
    answer = await ctx.elicit("Who are you?", FORM)
    return f"for {answer.data['name'] if answer.data else answer.action}"


@server.resource("kitchen://{dish}/recipe")
def recipe(dish: str) -> str:
    """How to cook it."""
    return f"Cook the {dish}."


@server.prompt
def plan(meal: str, guests: str = "two") -> list[PromptMessage]:
    """Plan a meal."""
    return [
        PromptMessage("user", TextContent(f"Plan a {meal} for {guests}.")),
        PromptMessage("assistant", TextContent("With soup?")),
    ]


@server.completion("plan", "meal")
def meals(typed: str) -> list[str]:
    return [meal for meal in ("breakfast", "brunch", "lunch") if meal.startswith(typed)]


@server.completion("plan", "guests")
def guests(typed: str, known: dict[str, str]) -> list[str]:
    return [f"{number} for {known.get('meal', 'nothing')}" for number in range(150)]


@server.completion("kitchen://{dish}/recipe", "dish")
def dishes(typed: str) -> list[str]:
    return [f"{typed}up", EVIL]


if __name__ == "__main__":
    server.run()

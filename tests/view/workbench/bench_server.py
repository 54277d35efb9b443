"""A server with everything that the workbench can show. ``python bench_server.py [ADDRESS]`` runs it."""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
import zlib
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from mcplumb import Context, Server, ToolError
from mcplumb.types import AudioContent, CallToolResult, ImageContent, ResourceLink, TextContent, ToolAnnotations

server = Server("bench", version="1.0", instructions="Try everything.")


class Address(Struct):
    """Where it goes."""

    street: str
    city: str = "Oslo"


class Item(Struct):
    """What is in the box."""

    name: Annotated[str, Meta(min_length=2)]
    count: Annotated[int, Meta(ge=1, le=99)] = 1
    colour: Literal["red", "green", "blue"] | None = None


@server.tool
async def ship(to: Address, items: list[Item], express: bool = False, note: str | None = None) -> dict[str, Any]:
    """Ship some items.

    Args:
        to: Where to.
        items: What to ship.
        express: Whether it is urgent.
        note: For the driver.
    """
    return {
        "city": to.city,
        "street": to.street,
        "pieces": sum(item.count for item in items),
        "names": [item.name for item in items],
        "express": express,
        "note": note,
    }


class Guest(Struct):
    """Who comes."""

    name: str
    seats: Annotated[int, Meta(ge=1, le=8)] = 2
    window: bool = False


@server.tool
async def reserve(ctx: Context) -> str:
    """Reserve a table: asks with a form."""
    answer = await ctx.elicit("Who comes to dinner?", Guest)
    if answer.action != "accept":
        raise ToolError(f"Not reserved: {answer.action}.")
    return f"{answer.data.seats} seats for {answer.data.name}"


@server.tool
async def pay(ctx: Context, url: str = "https://pay.example/42?from=bench") -> str:
    """Pay on a web page."""
    answer = await ctx.elicit_url("Please pay for your dinner.", url)
    return f"pay: {answer.action}"


@server.tool
async def ask_model(question: str, ctx: Context) -> str:
    """Ask a model."""
    answer = await ctx.sample(question, max_tokens=100, system_prompt="Be brief.")
    return f"It says: {answer.text}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(ctx: Context, to: int = 5, pause: float = 0.05) -> str:
    """Count, with progress."""
    for number in range(1, to + 1):
        await ctx.progress(number, to, f"at {number}")
        await asyncio.sleep(pause)
    return f"counted to {to}"


#: How often `wait` was cancelled.
CANCELLED: list[bool] = []


@server.tool
async def wait(ctx: Context) -> str:
    """Wait without end."""
    await ctx.progress(1, 3, "waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        CANCELLED.append(True)
        print("wait was cancelled", file=sys.stderr, flush=True)
        raise
    return "never"


def png(width: int = 32, height: int = 20) -> bytes:
    """Return a small picture with a gradient."""
    rows = b"".join(
        b"\0" + b"".join(bytes((x * 255 // width, y * 255 // height, 160)) for x in range(width)) for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def wav(seconds: float = 0.2) -> bytes:
    """Return a short silence."""
    data = bytes(int(8000 * seconds))
    sizes = struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + sizes + b"data" + struct.pack("<I", len(data))
    return head + data


@server.tool
async def media() -> CallToolResult:
    """Show a picture, a sound and a link."""
    return CallToolResult([
        TextContent("A picture, a sound, and a link:"),
        ImageContent(base64.b64encode(png()).decode(), "image/png"),
        AudioContent(base64.b64encode(wav()).decode(), "audio/wav"),
        ResourceLink("bench://menu", "menu", mime_type="application/json"),
    ])  # fmt: skip


@server.tool
async def fail(how: Literal["tool", "crash"] = "tool") -> str:
    """Fail."""
    if how == "tool":
        raise ToolError("The kettle is empty. Fill it first.")
    raise RuntimeError("a bug")


@server.tool
async def speak(text: str, ctx: Context) -> str:
    """Log something, and write it to stderr."""
    await ctx.info(text, logger="bench")
    await ctx.debug({"said": text})
    print(f"stderr: {text}", file=sys.stderr, flush=True)
    return "said"


@server.tool
async def flood(ctx: Context, lines: int = 200) -> str:
    """Log many lines."""
    for line in range(1, lines + 1):
        await ctx.info(f"line {line} of {lines}")
    return "flooded"


@server.tool
async def where(ctx: Context) -> list[str]:
    """List the roots."""
    return [root.uri for root in await ctx.roots()]


@server.tool
async def change_menu(dish: str) -> str:
    """Put a dish on the menu, and a tool of its name on the list."""
    MENU.append(dish)
    server.resource_changed("bench://menu")

    async def eat() -> str:
        """Eat it."""
        return f"ate {dish}"

    server.add_tool(eat, name=f"eat_{dish}")
    return f"{dish} is on the menu"


_SIDES = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 3}
#: Arguments of every kind.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "filter": {"$ref": "#/$defs/filter"},
        "shape": {
            "oneOf": [
                {
                    "title": "Circle",
                    "type": "object",
                    "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                    "required": ["kind", "radius"],
                },
                {
                    "title": "Box",
                    "type": "object",
                    "properties": {"kind": {"const": "box"}, "sides": _SIDES},
                    "required": ["kind", "sides"],
                },
            ]
        },
        "amount": {
            "anyOf": [{"type": "integer", "title": "Number"}, {"type": "string", "title": "Words"}],
            "default": 1,
        },
        "when": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "key": {"type": "string", "format": "password"},
        "tags": {"type": "array", "uniqueItems": True, "items": {"enum": ["new", "old", "odd"]}},
        "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": True,
    },
    "required": ["filter", "shape"],
    "$defs": {
        "filter": {
            "type": "object",
            "title": "Filter",
            "properties": {
                "field": {"type": "string"},
                "not": {"$ref": "#/$defs/filter"},
                "all": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
            },
            "required": ["field"],
        }
    },
}


@server.tool(input_schema=SCHEMA)
async def schemas(given: dict[str, Any]) -> dict[str, Any]:
    """Take arguments of every kind."""
    return given


MENU = ["soup", "salad", "stew", "bread"]


@server.resource("bench://menu", mime_type="application/json")
async def menu() -> list[str]:
    """The menu of today."""
    return MENU


@server.resource("bench://logo", mime_type="image/png")
async def logo() -> bytes:
    """The logo of the house."""
    return png(48, 48)


@server.resource("bench://{dish}/recipe", mime_type="text/plain")
async def recipe(dish: str) -> str | None:
    """How a dish is made."""
    return f"Cook the {dish}." if dish in MENU else None


@server.prompt
def review(dish: str, mood: str = "kind") -> str:
    """Write a review of a dish.

    Args:
        dish: What was eaten.
        mood: Of the critic.
    """
    return f"Write a {mood} review of the {dish}."


@server.completion("review", "dish")
async def dishes(typed: str) -> list[str]:
    """Return the dishes that begin like this."""
    return [dish for dish in MENU if dish.startswith(typed)]


@server.completion("bench://{dish}/recipe", "dish")
async def recipes(typed: str) -> list[str]:
    """Return the dishes that begin like this."""
    return [dish for dish in MENU if dish.startswith(typed)]


if __name__ == "__main__":
    server.run(*sys.argv[1:])

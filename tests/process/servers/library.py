"""Lists that change while the server runs, resources that are found or not, prompts and completions."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from mcplumb import Image, ToolError
from mcplumb.types import Icon, ResourceLink, ToolAnnotations
from tests.process.servers.options import make_server

server = make_server(
    "library",
    title="The Library",
    website_url="https://example.org",
    icons=[Icon("https://example.org/icon.png")],
)

SHELF = "library://shelf"
#: A picture of one pixel.
DOT = bytes.fromhex("89504e470d0a1a0a")

texts = {"1": "Call me Ishmael.", "2": "It was the best of times."}


@dataclass
class Book:
    title: str
    pages: int


@server.resource(SHELF, title="The shelf", mime_type="text/plain")
async def shelf() -> str:
    return "\n".join(texts)


@server.resource("library://cover", mime_type="image/png")
def cover() -> bytes:
    return DOT


@server.resource("library://books/{number}")
async def book(number: str) -> str | None:
    return texts.get(number)


@server.resource("library://pages/{number}")
def page(number: int) -> str:
    return f"page {number}"


@server.prompt(title="Review")
def review(title: str, stars: int = 5) -> str:
    return f"Review {title} with {stars} stars."


@server.completion("review", "title")
def titles(value: str) -> list[str]:
    return [f"{value}{number}" for number in range(150)]


@server.tool(title="Find", annotations=ToolAnnotations(read_only_hint=True))
async def find(title: str) -> Book:
    """Find a book."""
    return Book(title, 100)


@server.tool
async def count() -> list[int]:
    return [1, 2, 3]


@server.tool
async def picture() -> Image:
    return Image(DOT, mime_type="image/png")


@server.tool
async def link() -> ResourceLink:
    return ResourceLink(SHELF, "shelf")


@server.tool
async def burn() -> str:
    raise ToolError("Books are not burnt here.")


@server.tool
async def add_tool(name: str) -> str:
    server.add_tool(_lend, name=name)
    return "added"


@server.tool
async def remove_tool(name: str) -> str:
    server.remove_tool(name)
    return "removed"


@server.tool
async def change_all_in_thread() -> str:
    """Adds, removes and changes from a thread that is none of the server's."""
    thread = threading.Thread(target=_change_all)
    thread.start()
    await asyncio.to_thread(thread.join)
    return "changed"


@server.tool
def rewrite(number: str, text: str) -> str:
    """A plain function that changes a resource."""
    texts[number] = text
    server.resource_changed(f"library://books/{number}")
    server.resource_changed(SHELF)
    return "rewritten"


def _change_all() -> None:
    server.add_tool(_lend, name="lend")
    server.remove_tool("lend")
    server.add_resource("library://poster", _lend)
    server.remove_resource("library://poster")
    server.add_prompt(_lend, name="lend")
    server.remove_prompt("lend")


def _lend() -> str:
    return "lent"


if __name__ == "__main__":
    server.run()

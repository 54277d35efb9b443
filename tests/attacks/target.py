"""The server that is attacked: ``python -m tests.attacks.target '{"addresses": […], "http": {…}, "limits": {…}}'``.

It prints each address that it serves at, on a line of its own. Its tools show what becomes of calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections import Counter
from contextlib import suppress
from typing import Annotated, Any

from mcplumb import Context, Header, HttpOptions, Principal, Server
from mcplumb.limits import Limits
from mcplumb.types.tools import ToolAnnotations

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])
if "descriptors" in OPTIONS:
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPTIONS["descriptors"], OPTIONS["descriptors"]))
#: Tokens, and who has them.
PRINCIPALS: dict[str, str] = OPTIONS.get("principals", {})

server = Server("target", limits=Limits(**OPTIONS.get("limits", {})), **OPTIONS.get("server", {}))
#: What became of the calls of ``wait``, by their names.
events: Counter[str] = Counter()
doors: dict[str, asyncio.Event] = {}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def echo(text: str) -> str:
    """Safe, so that a client may call it again."""
    return text


@server.tool
async def wait(name: str) -> str:
    """Until it is released, or cancelled."""
    events[f"{name} began"] += 1
    try:
        await doors.setdefault(name, asyncio.Event()).wait()
    except asyncio.CancelledError:
        events[f"{name} cancelled"] += 1
        raise
    events[f"{name} finished"] += 1
    return name


@server.tool
async def release(name: str) -> str:
    doors.setdefault(name, asyncio.Event()).set()
    return name


@server.tool
async def count(event: str) -> str:
    """How often it came to this."""
    return str(events[event])


@server.tool
async def flood(name: str, times: int, size: int, ctx: Context) -> str:
    """Logs as much as it is asked for, as fast as the client takes it."""
    try:
        for _ in range(times):
            await ctx.info("x" * size)
            events[f"{name} flooded"] += 1
    finally:
        events[f"{name} ended"] += 1
    return name


@server.tool
async def take_descriptors() -> str:
    """All that the process may still open."""
    taken = 0
    with suppress(OSError):
        while True:
            os.open(os.devnull, os.O_RDONLY)
            taken += 1
    return str(taken)


@server.tool
async def read_file() -> str:
    """Needs a descriptor."""
    with open(__file__) as file:  # noqa: ASYNC230, PTH123
        return file.readline()


@server.tool
async def wait_a_little() -> str:
    await asyncio.sleep(0.3)
    return "waited"


@server.tool
async def much(size: int) -> str:
    """A result of that many characters."""
    return "x" * size


@server.tool
async def route(region: Annotated[str, Header("Region")], zone: Annotated[int, Header("Zone")] = 0) -> str:
    """Has arguments that headers repeat."""
    return f"{region}/{zone}"


@server.tool
async def change(times: int) -> str:
    """Something that is subscribed to changes, again and again."""
    for _ in range(times):
        server.resource_changed("target://thing")
        await asyncio.sleep(0)
    return "changed"


@server.resource("target://thing")
async def thing() -> str:
    return "a thing"


@server.prompt
async def greeting() -> str:
    return "Say hello."


def main() -> None:
    http = OPTIONS.get("http", {})
    options: dict[str, Any] = {}
    if PRINCIPALS:
        options["auth"] = lambda token: Principal(PRINCIPALS[token]) if token in PRINCIPALS else None
    if any(address.startswith("http") for address in OPTIONS["addresses"]):
        texts: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in http.items()
        }
        options["http"] = HttpOptions(**texts, **options)
    server.run(
        *OPTIONS["addresses"],
        http=options.get("http"),
        on_ready=lambda address: os.write(1, f"{address}\n".encode()),
    )


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()

"""A server that goes on changing. With a file as its argument, its first process ends after a while, and makes it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcplumb import Server

ENDED = Path(sys.argv[1]) if len(sys.argv) > 1 else None


@asynccontextmanager
async def changes() -> AsyncIterator[None]:
    task = asyncio.create_task(change())
    yield
    task.cancel()


async def change() -> None:
    for number in range(1_000_000):
        await asyncio.sleep(0.02)
        server.resource_changed("changing://now")
        server.add_tool(now, name=f"now{number}")
        server.remove_tool(f"now{number}")
        if ENDED is not None and number > 50 and not ENDED.exists():
            ENDED.touch()
            os._exit(3)


server = Server("changing", lifespan=changes)


@server.resource("changing://now")
def now() -> str:
    return "now"


if __name__ == "__main__":
    server.run()

"""Servers for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcplumb.bridge.bridge import Bridge
from mcplumb.server.server import Server


@asynccontextmanager
async def serving(server: Server | Bridge, *addresses: str, **options: Any) -> AsyncIterator[list[str]]:
    """Serve at the addresses in this event loop while the body runs, and then stop the server.

    Gives the addresses at which it is reached, in their order. An error of the server's is raised.
    """
    ready: list[str] = []
    all_ready = asyncio.Event()

    def note(address: str) -> None:
        ready.append(address)
        if len(ready) == len(addresses):
            all_ready.set()

    task = asyncio.create_task(server.serve(*addresses, on_ready=note, **options))
    waiting = asyncio.create_task(all_ready.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        if not task.done():
            yield ready
    finally:
        server.stop()
        await task

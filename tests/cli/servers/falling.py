"""A server that can be made to fall."""

from __future__ import annotations

import asyncio
import os

from mcplumb import Server

server = Server("falling")


@server.tool
def fall() -> str:
    """Exit, and give no answer."""
    os._exit(7)


@server.tool
async def wait_for_news() -> str:
    """Take longer than it takes to tell that the server is back."""
    await asyncio.sleep(1)
    return "now"


if __name__ == "__main__":
    server.run()

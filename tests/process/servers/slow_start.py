"""A server whose lifespan meets a signal: while it begins, or while it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.process.servers.options import OPTIONS, make_server

WHEN = OPTIONS.pop("when")


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    if WHEN == "begins":
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
    if WHEN == "never begins":
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    yield
    if WHEN == "never ends":
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()


server = make_server("slow", lifespan=lifespan)

if __name__ == "__main__":
    server.run()

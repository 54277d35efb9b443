"""How a client reaches its server: one link a server, over which one connection after the other can be opened."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from mcpipe.errors import ConnectError, McpipeError
from mcpipe.limits import Limits
from mcpipe.protocol.stopping import StopLadder
from mcpipe.transports.connection import Connection
from mcpipe.transports.memory import memory_pair

__all__ = ["Link", "MemoryLink", "Serves"]

_logger = logging.getLogger("mcpipe.client")


class Serves(Protocol):
    """A server in this process."""

    async def serve_connection(self, connection: Connection) -> None:
        """Serve one connection until it has ended and everything that was accepted is done."""


class Link(Protocol):
    """The way to one server."""

    #: What is wrong with the server, if that is known.
    failure: McpipeError | None

    async def open(self) -> Connection:
        """A new connection, after the one before is gone; ``ConnectError`` if there can be none."""

    async def close(self) -> None:
        """Let the server go, now that its connection is closed. Bounded. May be called again."""


class MemoryLink:
    """The way to a server in the same process, which serves each connection in a task."""

    def __init__(self, server: Serves, *, limits: Limits, stop: StopLadder) -> None:
        self.failure: McpipeError | None = None
        self._server = server
        self._limits = limits
        self._stop = stop
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Connection:
        """Start to serve."""
        await self.close()
        ours, theirs = memory_pair(limits=self._limits)
        self._task = asyncio.get_running_loop().create_task(self._serve(theirs))
        return ours

    async def close(self) -> None:
        """Wait for the server to finish; when it takes too long, or when this is cancelled, stop it."""
        task = self._task
        if task is None:
            return
        try:
            await asyncio.wait((task,), timeout=self._stop.close_wait)
        finally:
            task.cancel()
        _, running = await asyncio.wait((task,), timeout=self._stop.term_wait)
        if running:
            _logger.warning("The server does not stop, although its connection is closed.")

    async def _serve(self, connection: Connection) -> None:
        try:
            await self._server.serve_connection(connection)
        except Exception as error:
            _logger.exception("The server failed.")
            self.failure = ConnectError(f"The server failed with {type(error).__name__}: {error}")
            self.failure.__cause__ = error
        finally:
            await connection.close()

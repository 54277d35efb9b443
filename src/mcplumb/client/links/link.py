"""The link interface: a client has one link to its server and opens one connection after the other over it.

`MemoryLink` (a server in this process) and `CustomLink` (a transport of the user's own) are here. Links to a process,
a socket and an HTTP server are in `process_link`, `socket_link` and `http_link`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from mcplumb.errors import Closed, ConnectError, ConnectTimeout, McplumbError
from mcplumb.limits import Limits
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.memory import memory_pair

if TYPE_CHECKING:
    from mcplumb.client.links.process_link import ServerProcess

__all__ = ["CustomLink", "Link", "MemoryLink", "Opens", "Phase", "Serves"]

_logger = logging.getLogger("mcplumb.client")

#: What a connection was in the middle of when it was lost.
Phase: TypeAlias = Literal["spawn", "probe", "handshake", "call"]

#: Opens a new connection over a custom transport, each time it is called.
Opens: TypeAlias = Callable[[], Awaitable[Connection]]


class Serves(Protocol):
    """A server in this process."""

    async def serve_connection(self, connection: Connection) -> None:
        """Serve one connection until it has ended and all accepted requests are finished."""


class Link(Protocol):
    """The way to one server. Only one task uses it, except for ``explain`` and ``kill``."""

    @property
    def can_restart(self) -> bool:
        """Whether opening another connection makes sense after one was lost."""

    @property
    def may_be_silent(self) -> bool:
        """Whether a server may leave a request unanswered whose method it does not know."""

    @property
    def mirrors(self) -> bool:
        """Whether tool arguments are also sent as HTTP headers, where the tool asks for it."""

    @property
    def key(self) -> str | None:
        """The identity of the server for caches that outlive the link; None if it has no lasting one."""

    @property
    def process(self) -> ServerProcess | None:
        """The server's process, if the link starts it."""

    async def open(self) -> Connection:
        """Release the previous connection and open a new one; raise ``ConnectError`` if that fails."""

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return the error for a lost connection; ``how`` is a sentence that says how it ended. Bounded in time."""

    def describe(self) -> str:
        """Describe the server for an error message, with the end of its stderr; empty if nothing is known."""

    async def close(self) -> None:
        """Release the server after its connection was closed. Bounded in time. May be called again.

        If cancelled, it releases the server by force.
        """

    def kill(self) -> None:
        """Release the server at once, without an event loop. May be called again."""


class MemoryLink:
    """A link to a server in the same process, which serves each connection in a task."""

    can_restart = False
    may_be_silent = True
    mirrors = False
    key: str | None = None
    process = None

    def __init__(self, server: Serves, *, limits: Limits, stop: StopLadder, trace: Trace | None = None) -> None:
        self._server = server
        self._limits = limits
        self._trace = trace
        self._stop = stop
        self._task: asyncio.Task[None] | None = None
        self._failure: McplumbError | None = None

    async def open(self) -> Connection:
        """Serve one end of a memory connection in a task, and return the other end."""
        await self.close()
        self._failure = None
        client_end, server_end = memory_pair(limits=self._limits, trace=self._trace)
        self._task = asyncio.get_running_loop().create_task(self._serve(server_end))
        return client_end

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return the error that the server raised, or else how the connection ended."""
        return self._failure or Closed(how)

    def describe(self) -> str:
        """Return nothing: the server is an object of this program."""
        return ""

    async def close(self) -> None:
        """Wait for the server to finish; cancel it if it takes too long, or if this is cancelled."""
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

    def kill(self) -> None:
        """Cancel the task, unless its event loop is closed."""
        if self._task is not None and not self._task.get_loop().is_closed():
            self._task.cancel()

    async def _serve(self, connection: Connection) -> None:
        try:
            await self._server.serve_connection(connection)
        except Exception as error:
            _logger.exception("The server failed.")
            self._failure = ConnectError(f"The server failed with {type(error).__name__}: {error}")
            self._failure.__cause__ = error
        finally:
            await connection.close()


class CustomLink:
    """A link over a transport of the user's own."""

    can_restart = True
    may_be_silent = True
    mirrors = False
    key: str | None = None
    process = None

    def __init__(self, opens: Opens) -> None:
        self._opens = opens

    async def open(self) -> Connection:
        """Call the user's function."""
        try:
            return await self._opens()
        except McplumbError:
            raise
        except OSError as error:
            kind = ConnectTimeout if isinstance(error, TimeoutError) else ConnectError
            raise kind(f"The connection could not be opened: {error}.") from error

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return how the connection ended; nothing more is known."""
        return Closed(how)

    def describe(self) -> str:
        """Return nothing: only the user knows what the transport reaches."""
        return ""

    async def close(self) -> None:
        """Do nothing: the connection has released everything."""

    def kill(self) -> None:
        """Do nothing: the link holds nothing besides the connection."""

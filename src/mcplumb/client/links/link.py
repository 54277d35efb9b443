"""How a client reaches its server: one link a server, over which one connection after the other can be opened.

Here are the way to a server in the same process, and that over a transport of the user's own. Those to a process, a
socket and an HTTP server are in ``process``, ``sockets`` and ``http``.
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

#: What a connection was doing when it was lost.
Phase: TypeAlias = Literal["spawn", "probe", "handshake", "call"]

_logger = logging.getLogger("mcplumb.client")


#: Opens a connection over a transport of the user's own: a new one each time.
Opens: TypeAlias = Callable[[], Awaitable[Connection]]


class Serves(Protocol):
    """A server in this process."""

    async def serve_connection(self, connection: Connection) -> None:
        """Serve one connection until it has ended and everything that was accepted is done."""


class Link(Protocol):
    """The way to one server. It belongs to one task, but for ``explain`` and ``kill``."""

    @property
    def can_restart(self) -> bool:
        """Whether it is worth opening another connection when one was lost."""

    @property
    def may_be_silent(self) -> bool:
        """Whether a server that does not know a question may leave it unanswered."""

    @property
    def mirrors(self) -> bool:
        """Whether arguments of tools are told in headers as well, where the tool wants that."""

    @property
    def key(self) -> str | None:
        """What the server is, for memories that outlive the link; None if it cannot be known again."""

    @property
    def process(self) -> ServerProcess | None:
        """The server's process, if it is one of ours."""

    async def open(self) -> Connection:
        """A new connection, after what is left of the one before has ended; ``ConnectError`` if there can be none."""

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Why the connection was lost, which ended like this. Bounded."""

    def describe(self) -> str:
        """What the server is, and its last words, for an error about it; empty if there is nothing to say."""

    async def close(self) -> None:
        """Let the server go, now that its connection is closed. Bounded. May be called again.

        Cancelled, it does so by force.
        """

    def kill(self) -> None:
        """Let the server go at once, without an event loop. May be called again."""


class MemoryLink:
    """The way to a server in the same process, which serves each connection in a task."""

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
        """Start to serve."""
        await self.close()
        self._failure = None
        ours, theirs = memory_pair(limits=self._limits, trace=self._trace)
        self._task = asyncio.get_running_loop().create_task(self._serve(theirs))
        return ours

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """What the server raised, or else what was seen of it."""
        return self._failure or Closed(how)

    def describe(self) -> str:
        """Nothing: whoever has the server in this process knows what it is."""
        return ""

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

    def kill(self) -> None:
        """Cancel the task, if it is not gone with the event loop."""
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
    """The way to a server over a transport of the user's own."""

    can_restart = True
    may_be_silent = True
    mirrors = False
    key: str | None = None
    process = None

    def __init__(self, opens: Opens) -> None:
        self._opens = opens

    async def open(self) -> Connection:
        """Ask the user's function for one."""
        try:
            return await self._opens()
        except McplumbError:
            raise
        except OSError as error:
            kind = ConnectTimeout if isinstance(error, TimeoutError) else ConnectError
            raise kind(f"The connection could not be opened: {error}.") from error

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """What was seen of it."""
        return Closed(how)

    def describe(self) -> str:
        """Nothing: whoever made the transport knows what is at its other end."""
        return ""

    async def close(self) -> None:
        """Nothing is left when the connection is closed."""

    def kill(self) -> None:
        """The same."""

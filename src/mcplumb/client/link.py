"""The link interface: a client has one link to its server and opens one connection after the other over it.

`MemoryLink` (a server in this process), `SocketLink` (a server that listens at a Unix or TCP socket) and `CustomLink`
(a transport of the user's own) are here. Links to a process and to an HTTP server have their own modules.
"""

# os.path instead of pathlib, whose import would slow down every start:
# ruff: noqa: PTH100

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from mcplumb.errors import Closed, ConnectError, ConnectTimeout, McplumbError
from mcplumb.limits import Limits
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.address import SocketAddress, TcpAddress
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.memory import memory_pair

if TYPE_CHECKING:
    import ssl

    from mcplumb.client.auth.authorizer import Authorizer
    from mcplumb.client.process_link import ServerProcess
    from mcplumb.transports.socket_connection import SocketConnection

__all__ = ["MAX_AUTHORIZED", "CustomLink", "Link", "MemoryLink", "Opens", "Phase", "Serves", "SocketLink"]

_logger = logging.getLogger("mcplumb.client")

#: How often one request is sent again because access was granted.
MAX_AUTHORIZED = 5

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
    def authorizer(self) -> Authorizer | None:
        """Gets tokens from a user, for a server over HTTP that asks for them."""

    @property
    def key(self) -> str | None:
        """The identity of the server for caches that outlive the link; None if it has no lasting one."""

    @property
    def process(self) -> ServerProcess | None:
        """The server's process, if the link starts it."""

    async def open(self) -> Connection:
        """Release the previous connection and open a new one; raise ``ConnectError`` if that fails."""

    def has_read(self) -> bool | None:
        """Whether the server has read everything that was sent to it; None where that cannot be known."""

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
    authorizer = None
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

    def has_read(self) -> None:
        """Return None: the server reads when its task runs."""

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
    authorizer = None
    key: str | None = None
    process = None

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self._connection: Connection | None = None

    async def open(self) -> Connection:
        """Call the user's function."""
        self.kill()
        try:
            self._connection = await self._opens()
        except McplumbError:
            raise
        except OSError as error:
            kind = ConnectTimeout if isinstance(error, TimeoutError) else ConnectError
            raise kind(f"The connection could not be opened: {error}.") from error
        return self._connection

    def has_read(self) -> None:
        """Return None: the interface of transports does not show it."""

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return how the connection ended; nothing more is known."""
        return Closed(how)

    def describe(self) -> str:
        """Return nothing: only the user knows what the transport reaches."""
        return ""

    async def close(self) -> None:
        """Close the connection: one that was lost still holds what the transport needs."""
        self.kill()

    def kill(self) -> None:
        """Close the connection at once."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


class SocketLink:
    """A link to a server at a Unix or TCP address. A lost connection is opened again."""

    can_restart = True
    may_be_silent = True
    mirrors = False
    authorizer = None
    process = None

    def __init__(
        self, address: SocketAddress, *, limits: Limits, tls: ssl.SSLContext | None = None, trace: Trace | None = None
    ) -> None:
        self._address = address
        self._limits = limits
        self._tls = tls
        self._trace = trace
        self._connection: SocketConnection | None = None

    @property
    def key(self) -> str:
        """The address, with an absolute path."""
        address = self._address
        return str(address) if isinstance(address, TcpAddress) else f"unix:{os.path.abspath(address.path)}"

    async def open(self) -> SocketConnection:
        """Connect to the server."""
        from mcplumb.transports.socket_connection import open_connection

        self.kill()
        self._connection = await open_connection(self._address, limits=self._limits, tls=self._tls, trace=self._trace)
        return self._connection

    def has_read(self) -> None:
        """Return None: a socket does not show how much the peer has read."""

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return how the connection ended and why reading failed. The next attempt shows whether the server is gone."""
        failure = None if self._connection is None else self._connection.failure
        why = "" if failure is None else f" Reading failed: {failure.strerror or failure}."
        if phase != "call" and isinstance(self._address, TcpAddress) and self._tls is None:
            why += " Perhaps it requires TLS, or is not an MCP server."
        return Closed(f"{how}{why} {self.describe()}")

    def describe(self) -> str:
        """Return the address."""
        return f"The server is at {self._address}."

    async def close(self) -> None:
        """Close the connection. The server keeps running."""
        self.kill()

    def kill(self) -> None:
        """Close the connection at once."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

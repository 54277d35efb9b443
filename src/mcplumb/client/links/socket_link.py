"""The link to a server that already listens at a Unix or TCP socket."""

# os.path instead of pathlib, whose import would slow down every start:
# ruff: noqa: PTH100

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcplumb.client.links.link import Phase
from mcplumb.errors import Closed, McplumbError
from mcplumb.limits import Limits
from mcplumb.transports.address import SocketAddress, TcpAddress
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.socket_connection import SocketConnection, open_connection

if TYPE_CHECKING:
    import ssl

__all__ = ["SocketLink"]


class SocketLink:
    """A link to a server at a Unix or TCP address. A lost connection is opened again."""

    can_restart = True
    may_be_silent = True
    mirrors = False
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
        self.kill()
        self._connection = await open_connection(self._address, limits=self._limits, tls=self._tls, trace=self._trace)
        return self._connection

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

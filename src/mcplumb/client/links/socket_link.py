"""The way to a server that listens at a Unix or TCP socket, and was started by somebody else."""

# Without pathlib, which a start-up would load for nothing but this:
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
    """The way to a server at an address. A connection that was lost is opened again, as a process is started again."""

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
        """The address, the same from wherever it is seen."""
        address = self._address
        return str(address) if isinstance(address, TcpAddress) else f"unix:{os.path.abspath(address.path)}"

    async def open(self) -> SocketConnection:
        """Connect to the server."""
        self.kill()
        self._connection = await open_connection(self._address, limits=self._limits, tls=self._tls, trace=self._trace)
        return self._connection

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """That it was lost. Whether the server is gone shows when it is connected to again."""
        failure = None if self._connection is None else self._connection.failure
        why = "" if failure is None else f" Reading failed: {failure.strerror or failure}."
        if phase != "call" and isinstance(self._address, TcpAddress) and self._tls is None:
            why += " Perhaps it wants TLS, or is no MCP server."
        return Closed(f"{how}{why} {self.describe()}")

    def describe(self) -> str:
        """Where the server is."""
        return f"The server is at {self._address}."

    async def close(self) -> None:
        """Drop the connection, if that has not been done. The server goes on, for others."""
        self.kill()

    def kill(self) -> None:
        """The same, at once."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

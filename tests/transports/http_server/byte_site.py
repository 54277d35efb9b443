"""A server over HTTP without sockets: its connections get input in exactly these chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from mcplumb.transports.address import HttpAddress
from mcplumb.transports.http_server.asgi_app import HttpApp
from mcplumb.transports.http_server.uvicorn_protocol import HardenedProtocol
from mcplumb.transports.http_server.uvicorn_server import HttpListener

__all__ = ["ByteSite", "ByteTransport", "ElsewhereSite", "settle"]

#: Turns of the loop after which nothing is left to do.
_TURNS = 40


class ByteTransport(asyncio.Transport):
    """The server's end of a connection, for input in exactly these chunks."""

    def __init__(self, local: str) -> None:
        super().__init__({"sockname": (local, 80), "peername": ("127.0.0.1", 4000)})
        self.output = b""
        self.has_ended = False

    def write(self, data: Any) -> None:
        assert not self.has_ended
        self.output += data

    def write_eof(self) -> None:
        self.has_ended = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.has_ended = True

    abort = close

    def is_closing(self) -> bool:
        return self.has_ended

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Further chunks come all the same, as they may."""

    resume_reading = pause_reading


class ByteSite:
    """A server, and connections to it."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        self.listener = HttpListener(app, HttpAddress("http", "127.0.0.1", 80, "/mcp"))

    def connect(self, local: str = "127.0.0.1") -> tuple[Any, ByteTransport]:
        """Open a connection."""
        listener, transport = self.listener, ByteTransport(local)
        protocol = HardenedProtocol(
            listener._config, listener._state, self._app, listener._idle, listener._heads, lambda: False
        )
        protocol.connection_made(transport)
        return protocol, transport

    async def visit(self, chunks: Sequence[bytes], *, pauses: bool, local: str = "127.0.0.1") -> tuple[bytes, bool]:
        """Send these chunks over one connection; return all output, and whether the server closes it."""
        protocol, transport = self.connect(local)
        for chunk in chunks:
            if not transport.has_ended:
                protocol.data_received(chunk)
            if pauses:
                await settle()
        await settle()
        found = transport.output, transport.has_ended
        protocol.connection_lost(None)
        await settle()
        return found


class _SocketLikeTransport(ByteTransport):
    """Ignores what is written after its end, as that of a socket does: uvicorn relies on it."""

    def write(self, data: Any) -> None:
        if not self.has_ended:
            super().write(data)


class ElsewhereSite(ByteSite):
    """The same application under another ASGI server: uvicorn as it is. It has the same parser."""

    def __init__(self, app: HttpApp) -> None:
        super().__init__(app)
        self._state = ServerState()
        self._config = Config(app, lifespan="off", ws="none", log_config=None, proxy_headers=False)
        self._config.load()

    def connect(self, local: str = "127.0.0.1") -> tuple[Any, ByteTransport]:
        """Open a connection."""
        transport = _SocketLikeTransport(local)
        protocol = HttpToolsProtocol(self._config, self._state, {}, asyncio.get_running_loop())
        protocol.connection_made(transport)
        return protocol, transport


async def settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)

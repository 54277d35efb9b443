"""Listen for HTTP and serve an application with uvicorn, in the running event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.transports.address import HttpAddress, TcpAddress
from mcplumb.transports.http_server.asgi_app import HttpApp
from mcplumb.transports.http_server.origin import is_loopback
from mcplumb.transports.socket_listener import listening_sockets

try:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from mcplumb.transports.http_server.uvicorn_protocol import HardenedProtocol
except ImportError as error:
    raise UsageError("Serving over HTTP needs uvicorn and httptools: pip install 'mcplumb[http]'.") from error

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpListener"]

_logger = logging.getLogger("mcplumb.http")

#: Connections that may wait to be accepted. The system may allow fewer.
_BACKLOG = 2048
#: Seconds for accepted requests to finish when the listener is closed.
_FINISH_WITHIN = 30.0
#: Seconds for each of the steps after that.
_LAST_WAIT = 1.0


class HttpListener:
    """Serves an application at one address. Created by `open`, in a running event loop."""

    @classmethod
    async def open(cls, app: HttpApp, address: HttpAddress, *, tls: ssl.SSLContext | None = None) -> HttpListener:
        """Listen at the address and start to serve.

        Raises `ConnectError` with the reason if that fails; nothing is left open then.
        """
        options = app.options
        listener = cls(app, address)
        await app.open()
        try:
            await listener._listen(tls)
        except BaseException:
            await listener.close()
            raise
        if not (is_loopback(address.host) or options.tokens or options.verify):
            _logger.warning(
                "%s can be used by everyone who can reach this machine. To change that, listen at 127.0.0.1, or "
                "require tokens: HttpOptions(tokens=…).",
                listener.address,
            )
        return listener

    def __init__(self, app: HttpApp, address: HttpAddress) -> None:
        #: The address, with the actual port if port 0 was asked for.
        self.address = address
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._state = ServerState()
        self._config = Config(
            app,
            http=HardenedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
        )
        self._config.load()
        self._servers: list[asyncio.Server] = []

    async def close(self, *, within: float = _FINISH_WITHIN) -> None:
        """Stop listening, finish accepted requests within so many seconds, and close all connections.

        A request whose body is incomplete does not count as accepted. May be called again. If cancelled, it aborts the
        requests that are left.
        """
        try:
            for server in self._servers:
                server.close()
            for connection in self._connections:
                connection.shutdown()
            async with asyncio.timeout(within):
                await self._app.close()
                await self._until_idle()
        except TimeoutError:
            if self._tasks:
                _logger.warning("%s: %d requests were cut off, unfinished.", self.address, len(self._tasks))
        finally:
            self.abort()
        await _briefly(self._until_idle())
        for task in self._tasks:
            task.cancel()
        await _briefly(self._until_idle())
        await _briefly(self._app.close())

    def abort(self) -> None:
        """Close all connections at once."""
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.transport.abort()

    @property
    def _connections(self) -> list[HardenedProtocol]:
        return [each for each in self._state.connections if isinstance(each, HardenedProtocol)]

    @property
    def _tasks(self) -> set[asyncio.Task[None]]:
        return self._state.tasks

    async def _listen(self, tls: ssl.SSLContext | None) -> None:
        options = self._app.options
        sockets = await listening_sockets(TcpAddress(self.address.host, self.address.port))
        self.address = msgspec.structs.replace(self.address, port=sockets[0].getsockname()[1])
        try:
            for each in sockets:
                server = await self._loop.create_server(
                    lambda: HardenedProtocol(self._config, self._state, options),
                    sock=each,
                    ssl=tls,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=None if tls is None else options.header_within,
                )
                self._servers.append(server)
        except BaseException:
            for each in sockets:
                each.close()
            raise

    async def _until_idle(self) -> None:
        """Wait until all responses are written and all connections closed."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        while connections := self._connections:
            for each in connections:
                each.shutdown()  # again: one may have been accepted after the first call
            await asyncio.wait([each.closed for each in connections])


async def _briefly(step: Coroutine[Any, Any, None]) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(step, _LAST_WAIT)

"""Listen for HTTP and serve an application with uvicorn, in the running event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from mcplumb.errors import UsageError
from mcplumb.transports.address import HttpAddress, TcpAddress
from mcplumb.transports.http_server.asgi_request import Receive, Scope, Send
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.origin import warn_if_open
from mcplumb.transports.http_server.repeated_heads import RepeatedHeads
from mcplumb.transports.socket_connection import check_tls
from mcplumb.transports.socket_listener import Acceptor, connection_room, listening_sockets, spare_descriptors

try:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from mcplumb.transports.http_server.uvicorn_protocol import HardenedProtocol
except ImportError as error:
    raise UsageError("Serving over HTTP needs uvicorn and httptools: pip install 'mcplumb[http]'.") from error

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpListener", "ListenedApp"]

_logger = logging.getLogger("mcplumb.http")

#: Connections that may wait to be accepted. The system may allow fewer.
_BACKLOG = 2048
#: Concurrent connections above the limit that get a response; others are closed at once.
_MOST_REFUSED = 100
#: Seconds between two warnings that the limit is reached.
_WARN_AGAIN = 60.0
#: Idle connections that are closed when the process has no descriptor left.
_SHED_AT_ONCE = 16
#: Seconds for accepted requests to finish when the listener is closed.
_FINISH_WITHIN = 30.0
#: Seconds for each of the steps after that.
_LAST_WAIT = 1.0


class ListenedApp(Protocol):
    """An ASGI application that a listener opens, serves and closes."""

    @property
    def options(self) -> HttpOptions:
        """Timeouts and limits of its connections."""

    async def open(self) -> None:
        """Open what all requests share."""

    async def close(self) -> None:
        """End all streams, and finish the accepted requests. May be called again."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""


class HttpListener:
    """Serves an application at one address. Created by `open`, in a running event loop."""

    @classmethod
    async def open(
        cls,
        app: ListenedApp,
        address: HttpAddress,
        *,
        tls: ssl.SSLContext | None = None,
        sockets: list[socket.socket] | None = None,
    ) -> HttpListener:
        """Listen at the address and start to serve; with ``sockets``, these listen, and are shared by processes.

        Raises `ConnectError` with the reason if that fails; nothing is left open then.
        """
        listener = cls(app, address)
        await app.open()
        try:
            await listener._listen(tls, sockets)
        except BaseException:
            await listener.close()
            raise
        if sockets is None:
            warn_if_open(listener.address, needs_tokens=app.options.needs_tokens)
        return listener

    def __init__(self, app: ListenedApp, address: HttpAddress) -> None:
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
        self._acceptor: Acceptor | None = None
        self._tls: ssl.SSLContext | None = None
        #: Connections that are being set up (their TLS handshake, mostly), and since when, oldest first.
        self._beginning: dict[asyncio.Task[None], float] = {}
        #: Connections that serve no request, and since when, the longest idle first.
        self._idle: dict[HardenedProtocol, float] = {}
        #: The heads of requests that were accepted before, by whether they came over the loopback interface.
        self._heads: dict[bool, RepeatedHeads] = {}
        wanted = app.options.max_connections
        self._max_connections = connection_room(wanted)
        if self._max_connections < wanted:
            _logger.debug(
                "%s: the descriptors of the process (ulimit -n) allow %d connections.", address, self._max_connections
            )
        self._warn_from = 0.0
        self._max_refused = min(_MOST_REFUSED, spare_descriptors() // 2)

    async def close(self, *, within: float = _FINISH_WITHIN) -> None:
        """Stop listening, finish accepted requests within this many seconds, and close all connections.

        A request whose body is incomplete does not count as accepted. May be called again. If cancelled, it aborts the
        requests that are left.
        """
        try:
            self._stop_accepting()
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
        self._stop_accepting()
        for connection in self._connections:
            connection.transport.abort()

    @property
    def _connections(self) -> list[HardenedProtocol]:
        return [each for each in self._state.connections if isinstance(each, HardenedProtocol)]

    @property
    def _tasks(self) -> set[asyncio.Task[None]]:
        return self._state.tasks

    async def _listen(self, tls: ssl.SSLContext | None, shared: list[socket.socket] | None) -> None:
        place = TcpAddress(self.address.host, self.address.port)
        check_tls(place, tls, is_server=True)
        sockets = await listening_sockets(place) if shared is None else shared
        self.address = msgspec.structs.replace(self.address, port=sockets[0].getsockname()[1])
        self._tls = tls
        if shared is None:
            for each in sockets:
                each.listen(_BACKLOG)
        # Not asyncio's server: at the descriptor limit, that logs thousands of tracebacks a second.
        # One at a time if several processes share the sockets, so that each gets some.
        self._acceptor = Acceptor(
            self.address, sockets, self._accepted, make_room=self._make_room, per_turn=None if shared is None else 1
        )

    def drain(self) -> None:
        """Accept no more connections, and let each of those that there are end with its next response."""
        if self._acceptor is not None:
            self._acceptor.close()
        for heads in self._heads.values():
            heads.close()
        self._state.default_headers.append((b"connection", b"close"))
        for connection in self._state.connections:
            cast("HardenedProtocol", connection).drain()

    @property
    def is_drained(self) -> bool:
        """Whether there are no connections."""
        return not (self._state.connections or self._beginning)

    def _stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        for task in self._beginning:
            task.cancel()

    # Connections

    @property
    def _excess(self) -> int:
        """How many connections there are above the limit; below it, it is negative."""
        return len(self._state.connections) + len(self._beginning) - self._max_connections

    def _accepted(self, connected: socket.socket) -> None:
        if self._excess >= 0:
            # A client that asks for nothing must not take the place of a request.
            self._warn_full()
            self._shed()
        excess = self._excess
        if excess >= self._max_refused:
            connected.close()
            return
        task = self._loop.create_task(self._begin(connected, is_refused=excess >= 0))
        self._beginning[task] = self._loop.time()
        task.add_done_callback(partial(self._begun, connected))

    async def _begin(self, connected: socket.socket, *, is_refused: bool) -> None:
        options = self._app.options
        task = asyncio.current_task()

        def made() -> bool:
            self._beginning.pop(cast("asyncio.Task[None]", task), None)
            return is_refused

        with suppress(OSError):  # the client has disconnected, or the TLS handshake failed
            await self._loop.connect_accepted_socket(
                lambda: HardenedProtocol(self._config, self._state, self._app, self._idle, self._heads, made),
                connected,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else options.header_within,
            )

    def _begun(self, connected: socket.socket, task: asyncio.Task[None]) -> None:
        self._beginning.pop(task, None)
        if task.cancelled():
            connected.close()

    def _warn_full(self) -> None:
        now = self._loop.time()
        if now >= self._warn_from:
            self._warn_from = now + _WARN_AGAIN
            _logger.warning(
                "%s: the limit of %d connections is reached. Those without a request are closed to make room.",
                self.address,
                self._max_connections,
            )

    def _shed(self) -> bool:
        """Close the connection that has been without a request for the longest time; return False if there is none."""
        idle, idle_since = next(iter(self._idle.items()), (None, 0.0))
        begun, begun_at = next(iter(self._beginning.items()), (None, 0.0))
        if begun is not None and (idle is None or begun_at < idle_since):
            del self._beginning[begun]
            begun.cancel()
        elif idle is not None:
            idle.shed()
        return idle is not None or begun is not None

    def _make_room(self) -> bool:
        """Close idle connections when the process has no descriptor left."""
        has_shed = [self._shed() for _ in range(_SHED_AT_ONCE)]
        return has_shed[0]

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

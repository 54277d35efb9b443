"""Serve a server at any number of addresses until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.transports.address import HttpAddress, TcpAddress, UnixAddress, read_address
from mcplumb.transports.connection import ANYONE, Connection, Peer
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.socket_listener import Listener
from mcplumb.transports.stdio import Stdio

if TYPE_CHECKING:
    import socket
    import ssl

    from mcplumb.server.server import Server
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.http_server.uvicorn_server import HttpListener

__all__ = ["AddressHost", "OnReady"]

#: Called with each address once all of them are open, with the actual port in place of 0.
OnReady: TypeAlias = Callable[[str], object]

#: How many seconds connections may take to close beyond the time for their requests.
_LAST_STEPS = 2.0

#: How many seconds idle connections are kept for the requests that may be on their way, and how often to look.
_DRAIN_WITHIN = 1.0
_DRAIN_CHECK = 0.05

_logger = logging.getLogger("mcplumb.server")


class AddressHost:
    """Accepts connections at several addresses for one server.

    It may be created in any thread, and runs once, in one event loop.
    """

    def __init__(
        self,
        server: Server,
        addresses: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
        sockets: Sequence[list[socket.socket]] | None = None,
    ) -> None:
        self._server = server
        #: The sockets that listen, for each of the addresses, if other processes share them.
        self._sockets = None if sockets is None else iter(sockets)
        self._http_listeners: list[HttpListener] = []
        #: Standard input and output, if the server runs on them as well.
        self.stdio: Stdio | None = None
        self._places = [_parse(text, tls) for text in addresses if text != "stdio"]
        if tls is not None and all(isinstance(place, UnixAddress) for place in self._places):
            raise UsageError("tls is for tcp:// and https:// addresses, but none was given.")
        if http is not None and not any(isinstance(place, HttpAddress) for place in self._places):
            raise UsageError("http is for http:// addresses, but none was given.")
        self._tls = tls
        self._http = http
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._is_stopped = False
        #: Closes the recordings of all addresses at the end, and forgets the numbers of their applications.
        self._at_end = ExitStack()
        self._is_cancelling = False
        #: Functions that close the listeners; an HTTP listener waits up to this time for open connections.
        self._closers: list[Callable[[float], Coroutine[Any, Any, None]]] = []
        #: The tasks that serve the connections.
        self._serving: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Accept no more connections, and end ``run``. May be called from any thread."""
        self._is_stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                self._loop.call_soon_threadsafe(self._stop)

    async def drain(self) -> None:
        """Stop, and let other processes that listen at the same sockets take over: no client is turned away.

        A client may just have connected, or send its next request: such connections have a moment, and are told to
        close after the next response.
        """
        for listener in self._http_listeners:
            listener.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_WITHIN):
                while not all(listener.is_drained for listener in self._http_listeners):  # noqa: ASYNC110 - uvicorn's
                    await asyncio.sleep(_DRAIN_CHECK)
        self._server.stop()

    async def run(self, trace: Trace | None = None) -> None:
        """Serve until the server is stopped, or the client on stdio disconnects. Cancellation ends it at once."""
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        if self._is_stopped:
            self._stop()
        server = self._server
        server.active_sessions.join(self)
        try:
            async with server.active_sessions.held(self._stopped, within=server.finish_within):
                try:
                    if not self._stopped.done():
                        ready = [await self._open(place, self._recorded(place, trace)) for place in self._places]
                        self._serve_stdio(self._recorded(None, trace))
                        for address in ready:
                            # Of several processes, their supervisor says it.
                            _logger.log(
                                logging.INFO if self._sockets is None else logging.DEBUG, "Serving at %s", address
                            )
                            if self._on_ready is not None:
                                self._on_ready(address)
                    await asyncio.shield(self._stopped)
                finally:
                    await self._close()
        finally:
            server.active_sessions.leave(self)
            self._at_end.close()

    def _recorded(self, place: UnixAddress | TcpAddress | HttpAddress | None, trace: Trace | None) -> Trace | None:
        """Return the trace for one address, or for stdio."""
        transport = "stdio" if place is None else str(place).partition(":")[0].replace("https", "http")
        return self._at_end.enter_context(self._server._recorded(transport, trace))

    async def _open(self, place: UnixAddress | TcpAddress | HttpAddress, trace: Trace | None) -> str:
        """Open a listener at one address, and return the address with its actual port."""
        if isinstance(place, HttpAddress):
            return await self._open_http(place, trace)
        listener = await Listener.open(
            place,
            self._serve,
            limits=self._server.limits,
            tls=self._tls if isinstance(place, TcpAddress) else None,
            trace=trace,
        )
        self._closers.append(lambda _: listener.close())
        return str(listener.address)

    async def _open_http(self, place: HttpAddress, trace: Trace | None) -> str:
        from mcplumb.transports.http_server.http_options import HttpOptions
        from mcplumb.transports.http_server.uvicorn_server import HttpListener

        options = self._http or HttpOptions()
        if place.path:
            options = msgspec.structs.replace(options, path=place.path)
        app = self._server.asgi(options, serve=self._serve, trace=trace)
        app.answer_with(self._server.active_sessions)
        if options.metrics:
            self._at_end.callback(self._server.metrics.registry.forget_gauges, app)
        sockets = None if self._sockets is None else next(self._sockets)
        listener = await HttpListener.open(app, place, tls=self._tls, sockets=sockets)
        self._http_listeners.append(listener)
        self._closers.append(lambda within: listener.close(within=within))
        return str(msgspec.structs.replace(listener.address, path=options.path))

    def _serve_stdio(self, trace: Trace | None) -> None:
        if self.stdio is not None:
            connection = self.stdio.connection(limits=self._server.limits, trace=trace)
            serving = asyncio.create_task(self._serve(connection, ANYONE))
            # The client that started this process has disconnected.
            serving.add_done_callback(lambda _: self._stop())

    async def _serve(self, connection: Connection, peer: Peer) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs is in one
        self._serving.add(task)
        try:
            await self._server.serve_connection(connection, peer)
        except asyncio.CancelledError:
            if not self._is_cancelling:
                raise
            task.uncancel()  # cancelled by this host: the caller can still send the client an error
        finally:
            self._serving.discard(task)

    def _stop(self) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def _close(self) -> None:
        """Close the listeners and the connections: after ``stop_within``, or at once if ``run`` was cancelled."""
        within = self._server.stop_within if self._stopped is not None and self._stopped.done() else 0.0
        closing = [asyncio.ensure_future(close(within + _LAST_STEPS)) for close in self._closers]
        try:
            await asyncio.sleep(0)
            # Close the listeners first: a client that connects now is refused and retries, and gets no error response.
            self._server.active_sessions.for_each_session(lambda session: session.stop(within))
            if within:
                with suppress(TimeoutError):
                    async with asyncio.timeout(within + _LAST_STEPS):
                        await self._wait_for_sessions()
            self._cancel()
            await asyncio.gather(*closing)
        finally:
            self._cancel()
            rest = {*self._serving, *closing}
            if rest:
                await asyncio.wait(rest, timeout=_LAST_STEPS)

    async def _wait_for_sessions(self) -> None:
        while self._serving or self._server.active_sessions.has_begun:
            if self._serving:
                await asyncio.wait(self._serving)
            else:
                await asyncio.sleep(0)  # those that were begun without a task get one now

    def _cancel(self) -> None:
        self._is_cancelling = True
        self._server.active_sessions.stop_begun()
        for task in self._serving:
            task.cancel()


def _parse(text: str, tls: ssl.SSLContext | None) -> UnixAddress | TcpAddress | HttpAddress:
    address = read_address(text)
    if address is None:
        raise UsageError(
            f"A server cannot run on {text!r}. It can run on 'stdio', 'unix:/path', 'tcp://host:port' or "
            "'http://host:port/path'."
        )
    if isinstance(address, HttpAddress) and (address.scheme == "https") != (tls is not None):
        raise UsageError(f"{text!r} does not match tls: https:// needs tls=…, and http:// must not have it.")
    return address

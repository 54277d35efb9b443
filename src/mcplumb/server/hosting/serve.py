"""Serving a server at its addresses, any number of them at once, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.transports.address import HttpAddress, TcpAddress, UnixAddress, read_address
from mcplumb.transports.connection import ANYONE, Connection, Peer
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.socket_listener import Listener
from mcplumb.transports.stdio import Stdio

if TYPE_CHECKING:
    import ssl

    from mcplumb.server.server import Server
    from mcplumb.transports.http_server.http_options import HttpOptions

__all__ = ["AddressHost", "OnReady"]

#: Is called with each address, once all of them are served: with the port that the system chose, if it was 0.
OnReady: TypeAlias = Callable[[str], object]

#: Seconds that connections may take to end beyond the time that their requests have.
_LAST_STEPS = 2.0

_logger = logging.getLogger("mcplumb.server")


class AddressHost:
    """Takes connections at several addresses for one server. Made in any thread; runs once, in one event loop."""

    def __init__(
        self,
        server: Server,
        addresses: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        self._server = server
        #: Served as well, if given.
        self.stdio: Stdio | None = None
        self._places = [_read(text, tls) for text in addresses if text != "stdio"]
        if tls is not None and all(isinstance(place, UnixAddress) for place in self._places):
            raise UsageError("tls is for tcp:// and https:// addresses, and there is none of them.")
        if http is not None and not any(isinstance(place, HttpAddress) for place in self._places):
            raise UsageError("http is for http:// addresses, and there is none of them.")
        self._tls = tls
        self._http = http
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._is_stopped = False
        self._is_cancelling = False
        #: What closes each place: it lets nobody in any more and, over HTTP, waits so long for those who are in.
        self._doors: list[Callable[[float], Coroutine[Any, Any, None]]] = []
        #: What serves each connection.
        self._serving: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Take no more connections. From any thread."""
        self._is_stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has just been closed
                self._loop.call_soon_threadsafe(self._stop)

    async def run(self, trace: Trace | None = None) -> None:
        """Serve until the server is stopped, or the client on stdio is gone. Cancelled, it ends at once."""
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        if self._is_stopped:
            self._stop()
        server = self._server
        server.presence.join(self)
        try:
            async with server.presence.held(self._stopped, within=server.finish_within):
                try:
                    if not self._stopped.done():
                        ready = [await self._open(place, trace) for place in self._places]
                        self._serve_stdio(trace)
                        for address in ready:
                            _logger.info("Serving at %s", address)
                            if self._on_ready is not None:
                                self._on_ready(address)
                    await asyncio.shield(self._stopped)
                finally:
                    await self._shut()
        finally:
            server.presence.leave(self)

    async def _open(self, place: UnixAddress | TcpAddress | HttpAddress, trace: Trace | None) -> str:
        """Begin to serve at one address."""
        if isinstance(place, HttpAddress):
            return await self._open_http(place, trace)
        listener = await Listener.open(
            place,
            self._serve,
            limits=self._server.limits,
            tls=self._tls if isinstance(place, TcpAddress) else None,
            trace=trace,
        )
        self._doors.append(lambda _: listener.close())
        return str(listener.address)

    async def _open_http(self, place: HttpAddress, trace: Trace | None) -> str:
        from mcplumb.transports.http_server.http_options import HttpOptions
        from mcplumb.transports.http_server.uvicorn_server import HttpListener

        options = self._http or HttpOptions()
        if place.path:
            options = msgspec.structs.replace(options, path=place.path)
        app = self._server.asgi(options, serve=self._serve, trace=trace)
        listener = await HttpListener.open(app, place, tls=self._tls)
        self._doors.append(lambda within: listener.close(within=within))
        return str(msgspec.structs.replace(listener.address, path=options.path))

    def _serve_stdio(self, trace: Trace | None) -> None:
        if self.stdio is not None:
            connection = self.stdio.connection(limits=self._server.limits, trace=trace)
            serving = asyncio.create_task(self._serve(connection, ANYONE))
            # Whoever has started this process for its pipes is gone.
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
            task.uncancel()  # it was this host, and whoever has called this can still say so to the client
        finally:
            self._serving.discard(task)

    def _stop(self) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)

    async def _shut(self) -> None:
        """Let nobody in, and finish with those who are: in the time that they have, or at once if this is cancelled."""
        within = self._server.stop_within if self._stopped is not None and self._stopped.done() else 0.0
        closing = [asyncio.ensure_future(close(within + _LAST_STEPS)) for close in self._doors]
        try:
            await asyncio.sleep(0)
            # Not before the doors are closed: who comes now finds nobody and comes again, and is told no error.
            self._server.presence.tell(lambda session: session.stop(within))
            if self._serving and within:
                await asyncio.wait(self._serving, timeout=within + _LAST_STEPS)
            self._cancel()
            await asyncio.gather(*closing)
        finally:
            self._cancel()
            rest = {*self._serving, *closing}
            if rest:
                await asyncio.wait(rest, timeout=_LAST_STEPS)

    def _cancel(self) -> None:
        self._is_cancelling = True
        for task in self._serving:
            task.cancel()


def _read(text: str, tls: ssl.SSLContext | None) -> UnixAddress | TcpAddress | HttpAddress:
    address = read_address(text)
    if address is None:
        raise UsageError(
            f"A server cannot be run on {text!r}. What it can be run on is 'stdio', 'unix:/path', 'tcp://host:port' or "
            "'http://host:port/path'."
        )
    if isinstance(address, HttpAddress) and (address.scheme == "https") != (tls is not None):
        raise UsageError(f"{text!r} does not fit: https:// needs tls=…, and http:// is without it.")
    return address

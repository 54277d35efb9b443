"""`Bridge`: serves clients of any era with servers of any other, over any transport."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mcplumb.bridge.bridge_session import BridgeSession
from mcplumb.bridge.parked_calls import ParkedCalls
from mcplumb.bridge.router import Router, SingleRouter
from mcplumb.bridge.server_pool import ServerPool, Share
from mcplumb.client.connector import ConfigEntry, Connecting, connect
from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.server.server import Server
from mcplumb.version import __version__

if TYPE_CHECKING:
    import ssl

    from mcplumb.server.address_host import OnReady
    from mcplumb.server.stderr_logs import LogFormat
    from mcplumb.transports.connection import Connection, Peer
    from mcplumb.transports.http_server.asgi_app import HttpApp
    from mcplumb.transports.http_server.http_options import HttpOptions

__all__ = ["Bridge"]

_SHARES = ("auto", "always", "never")


class Bridge:
    """A server whose features are those of other servers: ``Bridge(["npx", "some-server"]).run("http://…")``.

    ``target`` is what `mcplumb.connect` takes: a command, an address, a server object or an entry of a config file. The
    servers are started when a client needs them, started again after a crash, and stopped when they are idle. Clients
    and servers may speak different eras and use different transports.

    - ``share`` says whether clients share one server. *auto*: they do if the server is modern, and if it is legacy
      those do that cannot be asked anything; every other client gets a server of its own. *always*: all share one, and
      a legacy server cannot ask them anything. *never*: each has its own.
    - ``idle`` is how many seconds a server without clients is kept.
    - ``max_servers`` is how often the server runs at once, at most.
    - ``max_parked`` calls may wait for the answer of a modern client to a legacy server's question, each for
      ``park_within`` seconds.
    - ``connect_options`` are passed to `mcplumb.connect`, such as ``env``, ``stderr`` or ``auth``.

    A client's token is never passed on: the bridge authenticates itself.
    """

    def __init__(
        self,
        target: Any,
        *,
        name: str | None = None,
        share: Share = "auto",
        idle: float = 300.0,
        max_servers: int = 100,
        max_parked: int = 1000,
        park_within: float = 600.0,
        limits: Limits = DEFAULT_LIMITS,
        finish_within: float = 30.0,
        stop_within: float = 5.0,
        **connect_options: Any,
    ) -> None:
        if share not in _SHARES:
            raise UsageError(f"share is {share!r}: it is 'auto', 'always' or 'never'.")
        for option, value in (("idle", idle), ("park_within", park_within)):
            if not 0 <= value < float("inf"):
                raise UsageError(f"{option} is {value!r}: it is a number of seconds, at least 0.")
        for option, number in (("max_servers", max_servers), ("max_parked", max_parked)):
            if number < 1:
                raise UsageError(f"{option} is {number!r}: it is an integer of at least 1.")
        self._new_pool = partial(ServerPool, share=share, idle=idle, max_instances=max_servers)
        opens = partial(_open, target, {"limits": limits, **connect_options})
        opens()  # raises UsageError now if the target or an option is wrong
        self._make_router: Callable[[], Router] = lambda: SingleRouter(self._add_pool(name or _name_of(target), opens))
        self._pools: list[ServerPool] = []
        self._max_parked, self._park_within = max_parked, park_within
        #: Which server a request goes to, and the calls that wait for answers. They exist while the bridge runs.
        self.router: Router
        self.parked_calls: ParkedCalls
        self._front = Server(
            "mcplumb-bridge",
            version=__version__,
            lifespan=self._running,
            limits=limits,
            finish_within=finish_within,
            stop_within=stop_within,
            state_ttl=park_within + 60.0,
        )
        self._front.active_sessions.new_session = partial(BridgeSession, self)

    def run(
        self,
        *addresses: str,
        log_format: LogFormat | None = None,
        trace: bool | None = None,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve until SIGINT or SIGTERM, at any number of addresses; by default on stdio. See ``Server.run``."""
        self._front.run(*addresses, log_format=log_format, trace=trace, tls=tls, http=http, on_ready=on_ready)

    async def serve(
        self,
        *addresses: str,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve inside a running event loop, until ``stop`` or cancellation. See ``Server.serve``."""
        await self._front.serve(*addresses, tls=tls, http=http, on_ready=on_ready)

    def asgi(self, http: HttpOptions | None = None) -> HttpApp:
        """Return an ASGI application that serves the bridge over HTTP."""
        return self._front.asgi(http)

    async def serve_connection(self, connection: Connection, peer: Peer | None = None) -> None:
        """Serve one connection until it ends. So ``connect`` takes a bridge, as it takes a server."""
        await self._front.serve_connection(connection, peer)

    def stop(self) -> bool:
        """Accept no more requests, finish the accepted ones, and stop the servers. May be called from any thread."""
        return self._front.stop()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Keep what the sessions share while there are any; then stop the servers."""
        self.parked_calls = ParkedCalls(max_calls=self._max_parked, ttl=self._park_within)
        self.router = self._make_router()
        try:
            yield
        finally:
            self.parked_calls.close()
            pools, self._pools = self._pools, []
            await asyncio.gather(*(pool.close() for pool in pools))

    def _add_pool(self, name: str, opens: Callable[[], Connecting]) -> ServerPool:
        pool = self._new_pool(name, opens)
        self._pools.append(pool)
        return pool


def _open(target: Any, options: dict[str, Any]) -> Connecting:
    return connect(target, **options)


def _name_of(target: Any) -> str:
    """Return a name for a server in messages."""
    if isinstance(target, ConfigEntry):
        return str(getattr(target, "name", "server"))
    if isinstance(target, str):
        return target
    if isinstance(target, Sequence):
        return " ".join(map(os.fspath, target))
    return str(getattr(target, "name", "server"))

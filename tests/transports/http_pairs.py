"""Pairs of connections over HTTP, for the kit: what it takes before two ends can say to each other what they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext

from mcplumb.errors import McplumbError
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.revisions import LATEST, LATEST_LEGACY, REVISIONS
from mcplumb.testing import Pair
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.connection import Connection, Peer, Receiver, Stats
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.http_connection import HttpConnection
from mcplumb.transports.http_server.asgi_app import HttpApp
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.uvicorn_server import HttpListener
from mcplumb.types.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcplumb.wire.messages import Message, Notification, Request, RequestId, Result
from tests.transports.ends import Item

OPENING = "the opening"


class Relay:
    """A connection that has been used already, as if it had not been.

    ``about`` is the request that everything which is sent belongs to. If that fails, the connection is over.
    """

    def __init__(self, inner: Connection, about: RequestId | None = None) -> None:
        self.inner = inner
        self._about = about
        self._receiver: Receiver | None = None
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self.is_over = asyncio.Event()
        inner.start(self)

    async def get(self) -> Item:
        """What comes before the start."""
        return await self._items.get()

    # What the connection calls

    def received(self, item: Item) -> None:
        if self._receiver is None:
            self._items.put_nowait(item)
        else:
            self._receiver.received(item)

    def ended(self, *, clean: bool) -> None:
        if self._receiver is not None:
            self._receiver.ended(clean=clean)

    def hung_up(self) -> None:
        if self._receiver is not None:
            self._receiver.hung_up()

    def broke(self, error: OSError) -> None:
        if self._receiver is not None:
            self._receiver.broke(error)

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        if self._receiver is not None and request_id == OPENING:
            self._receiver.ended(clean=True)

    # What is called on it

    @property
    def is_clogged(self) -> bool:
        return self.inner.is_clogged

    @property
    def stats(self) -> Stats:
        return self.inner.stats

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.inner.resume()
        while not self._items.empty():
            asyncio.get_running_loop().call_soon(receiver.received, self._items.get_nowait())

    def send(self, message: Message, about: RequestId | None = None) -> None:
        self.inner.send(message, self._about if about is None else about)

    def send_batch(self, messages: Sequence[Message]) -> None:
        self.inner.send_batch(messages)

    async def drained(self) -> None:
        await self.inner.drained()

    def pause(self) -> None:
        self.inner.pause()

    def resume(self) -> None:
        self.inner.resume()

    async def close(self) -> None:
        try:
            await self.inner.close()
        finally:
            self.is_over.set()

    def abort(self) -> None:
        self.inner.abort()
        self.is_over.set()


class Host:
    """A server over HTTP that leaves everything to the test, and its clients."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._served: asyncio.Queue[Relay] = asyncio.Queue()
        self._pools: list[ConnectionPool] = []

    def connect(self, *, http_sse: bool = False) -> Relay:
        pool = ConnectionPool(self._url.replace("/mcp", "/sse") if http_sse else self._url)
        self._pools.append(pool)
        return Relay(HttpConnection(pool, http_sse=http_sse))

    async def accept(self) -> Relay:
        return await self._served.get()

    async def serve(self, connection: Connection, peer: Peer) -> None:
        relay = Relay(connection, about=OPENING if peer.era == "modern" else None)
        self._served.put_nowait(relay)
        await relay.is_over.wait()


@asynccontextmanager
async def hosting() -> AsyncIterator[Host]:
    app = HttpApp(
        lambda connection, peer: host.serve(connection, peer),  # noqa: PLW0108 - there is no host yet
        options=HttpOptions(),
        limits=DEFAULT_LIMITS,
        revisions=REVISIONS,
        held=nullcontext,
        param_headers=lambda _: None,
    )
    listener = await HttpListener.open(app, HttpAddress("http", "127.0.0.1", 0, "/mcp"))
    host = Host(str(listener.address))
    try:
        yield host
    finally:
        for pool in host._pools:
            await pool.close()
        await listener.close()


@asynccontextmanager
async def legacy_pair() -> AsyncIterator[Pair]:
    """A session of Streamable HTTP, and its stream."""
    async with hosting() as host:
        first = host.connect()
        version = {"protocolVersion": LATEST_LEGACY.name}
        first.send(Request(OPENING, "initialize", {**version, "capabilities": {}, "clientInfo": {}}))
        second = await host.accept()
        await second.get()
        second.send(Result(OPENING, version))
        await first.get()
        first.send(Notification("notifications/initialized"))
        await second.get()
        second.send(Notification("hello"))
        await first.get()
        yield Pair(first, second)


@asynccontextmanager
async def sse_pair() -> AsyncIterator[Pair]:
    """A client of HTTP+SSE."""
    async with hosting() as host:
        first = host.connect(http_sse=True)
        first.send(Notification("hello"))
        second = await host.accept()
        await second.get()
        yield Pair(first, second)


@asynccontextmanager
async def exchange_pair() -> AsyncIterator[Pair]:
    """One request of a modern client, and everything that belongs to it."""
    async with hosting() as host:
        first = host.connect()
        first.send(Request(OPENING, "tools/list", {"_meta": {PROTOCOL_VERSION: LATEST.name, CLIENT_CAPABILITIES: {}}}))
        second = await host.accept()
        await second.get()
        yield Pair(first, second)

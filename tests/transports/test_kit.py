"""All transports of the package pass the kit that is there for everybody's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from mcplumb.testing import Check, Pair, checks, memory_pair
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.line_connection import LineConnection
from mcplumb.transports.socket_connection import open_connection
from tests.kit.products import sampled
from tests.transports.socket_ends import listening


def of_lines(first: Connection, second: Connection) -> Pair:
    """A pair whose first end can be made to write a line that is no message."""
    assert isinstance(first, LineConnection)

    def spoil() -> None:
        first._sink.write([b"no message\n"])

    return Pair(first, second, spoil)


@asynccontextmanager
async def memory() -> AsyncIterator[Pair]:
    yield of_lines(*memory_pair())


@asynccontextmanager
async def pipes() -> AsyncIterator[Pair]:
    (far_in, near_out), (near_in, far_out) = os.pipe(), os.pipe()
    yield of_lines(StreamConnection(near_in, near_out), StreamConnection(far_in, far_out))


@asynccontextmanager
async def sockets(way: str) -> AsyncIterator[Pair]:
    accepted: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    is_over = asyncio.Event()

    async def serve(connection: Connection, peer: Peer) -> None:
        accepted.set_result(connection)
        await is_over.wait()

    async with listening(way, serve=serve) as place:
        first = await open_connection(place.address, tls=place.tls)
        try:
            yield of_lines(first, await accepted)
        finally:
            is_over.set()


def make_pair(kind: str) -> AbstractAsyncContextManager[Pair]:
    match kind:
        case "memory":
            return memory()
        case "pipes":
            return pipes()
        case _:
            return sockets(kind)


@pytest.mark.req("STR-5")
@pytest.mark.parametrize("kind", sampled(["memory", "pipes", "unix", "tcp", "tls"], ("pipes", "tls")))
@pytest.mark.parametrize("check", checks(), ids=str)
def test_a_byte_stream(check: Check, kind: str) -> None:
    asyncio.run(check(lambda: make_pair(kind)))

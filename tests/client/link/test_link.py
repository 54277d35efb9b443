from __future__ import annotations

import asyncio

import pytest

from mcplumb.client.client import Client
from mcplumb.client.connector import connect
from mcplumb.client.link import MemoryLink
from mcplumb.errors import Closed, RequestLost
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.connection import Connection
from tests.client.peers import Peer, modern, nothing, skip, talk
from tests.kit.loop import run, turns

STOP = StopLadder()


class Stubborn:
    """A server that goes on when its connection has ended, and does not let itself be cancelled either."""

    def __init__(self, *, cancels: int) -> None:
        self.cancels = cancels
        self.release = asyncio.Event()

    async def serve_connection(self, connection: Connection) -> None:
        while True:
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancels -= 1
                if self.cancels <= 0:
                    raise
            else:
                return


async def test_it_is_closed_when_the_server_has_finished() -> None:
    link = MemoryLink(Peer(nothing), limits=DEFAULT_LIMITS, stop=STOP)
    await link.close()
    connection = await link.open()
    connection.abort()
    await link.close()
    await link.close()
    assert isinstance(await link.explain("call", "It ended."), Closed)


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_server_that_does_not_finish_is_stopped(cancels: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Stubborn(cancels=cancels)
        link = MemoryLink(server, limits=DEFAULT_LIMITS, stop=STOP)
        connection = await link.open()
        await turns()
        connection.abort()
        closing = asyncio.ensure_future(link.close())
        await turns()
        skip(STOP.close_wait)
        await turns()
        skip(STOP.term_wait)
        await closing
        server.release.set()

    run(main())
    expected = ["The server does not stop, although its connection is closed."]
    said = [record.getMessage() for record in caplog.records if record.name == "mcplumb.client"]
    assert said == (expected if cancels == 2 else [])


async def test_a_cancelled_close_stops_the_server_at_once() -> None:
    server = Stubborn(cancels=1)
    link = MemoryLink(server, limits=DEFAULT_LIMITS, stop=STOP)
    await link.open()
    await turns()
    closing = asyncio.ensure_future(link.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await turns()
    assert server.cancels == 0


def test_what_a_server_fails_of_is_told_to_those_who_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")
        raise ZeroDivisionError("by nothing")

    async def body(client: Client) -> None:
        with pytest.raises(
            RequestLost, match=r"unknown\. The server failed with ZeroDivisionError: by nothing"
        ) as caught:
            await client.call_tool("x")
        assert caught.value.__cause__ is not None
        assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)

    async def main() -> None:
        async with connect(modern(play)) as client:
            await body(client)

    run(main())
    assert caplog.messages == ["The server failed."]


def test_a_server_is_served_anew_for_each_connection() -> None:
    async def stay(client: Client) -> None:
        pass

    peer = modern(nothing)
    talk(peer, stay)
    talk(peer, stay)
    assert peer.connections == 2

from __future__ import annotations

import asyncio

import pytest

from mcpipe.client.client import Client
from mcpipe.client.connecting import connect
from mcpipe.client.inputs import Inputs
from mcpipe.client.keeping import Keeper
from mcpipe.client.settings import Settings
from mcpipe.errors import ConnectError, McpipeError, UsageError
from mcpipe.transports.connection import Connection
from tests.client.peers import TEXT, Peer, modern, nothing, run, talk, talk_legacy, turns


@pytest.mark.req("LIF-11")
def test_it_may_be_closed_from_any_task_at_any_time_as_often_as_you_like() -> None:
    async def main() -> None:
        peer = modern(nothing)
        async with connect(peer) as client:
            await asyncio.gather(*(asyncio.ensure_future(client.close()) for _ in range(5)))
            await client.close()
        await client.close()
        peer.check()

    run(main())


@pytest.mark.req("LIF-11")
def test_it_may_be_opened_in_one_task_and_closed_in_another() -> None:
    async def main() -> None:
        peer = modern(nothing)
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(connect(peer).__aenter__())
        async with asyncio.TaskGroup() as group:
            group.create_task(opening.result().close())
        peer.check()

    run(main())


@pytest.mark.req("LIF-11")
def test_a_cancelled_close_goes_on() -> None:
    async def main() -> None:
        peer = modern(nothing)
        client = await connect(peer)
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await client.close()
        await peer.gone()
        peer.check()

    run(main())


def test_a_handler_may_close_its_client() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")
        peer.ask(1, "sampling/createMessage", messages=[], maxTokens=1)

    async def body(client: Client) -> None:
        clients.append(client)
        results = await asyncio.gather(client.call_tool("x"), return_exceptions=True)
        assert isinstance(results[0], Exception)

    async def on_sample(_: object) -> str:
        await clients[0].close()
        return ""

    clients: list[Client] = []
    talk_legacy(play, body, on_sample=on_sample)


def test_what_cannot_be_opened_is_closed_again() -> None:
    async def play(peer: Peer) -> None:
        await peer.next()
        await peer.leave()

    async def main() -> None:
        peer = Peer(play)
        connecting = connect(peer)
        with pytest.raises(ConnectError):
            await connecting
        with pytest.raises(UsageError, match="call connect again"):
            await connecting
        await turns()
        peer.check()

    run(main())


class DeadEnd:
    """A link that leads nowhere."""

    failure: McpipeError | None = None
    closed = 0

    async def open(self) -> Connection:
        raise ConnectError("There is nobody.")

    async def close(self) -> None:
        self.closed += 1


def test_a_link_that_leads_nowhere_is_closed_too() -> None:
    async def main() -> None:
        link = DeadEnd()
        keeper = Keeper(link, Settings(inputs=Inputs()))
        with pytest.raises(ConnectError, match="There is nobody"):
            await keeper.open()
        await keeper.close()
        assert link.closed == 1

    run(main())


def test_it_ends_with_its_event_loop() -> None:
    async def main() -> None:
        client = await connect(modern(nothing))
        closing.append(asyncio.ensure_future(client.close()))

    closing: list[asyncio.Future[None]] = []
    asyncio.run(main())
    assert closing[0].done()


def test_it_works_while_it_is_open() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), TEXT)

    async def body(client: Client) -> None:
        assert (await client.call_tool("x")).content

    talk(modern(play), body)

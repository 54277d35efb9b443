from __future__ import annotations

import asyncio

import pytest

from mcplumb.client.client import Client
from mcplumb.client.client_settings import ClientSettings
from mcplumb.client.connector import Connecting, connect
from mcplumb.client.handshake import EraMemory
from mcplumb.client.input_handlers import InputHandlers
from mcplumb.client.link import MemoryLink
from mcplumb.client.supervisor import Supervisor
from mcplumb.errors import Closed, ConnectError, UsageError
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.revisions import allowed_revisions
from mcplumb.transports.connection import Connection
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.wire.messages import METHOD_NOT_FOUND
from tests.client.peers import TEXT, Peer, modern, nothing, skip, talk, talk_legacy
from tests.client.restarting import PATIENT, RestartingLink, after_discovery, after_handshake, talk_through
from tests.kit.loop import run, turns, until


@pytest.mark.req("LIF-11")
async def test_it_may_be_closed_from_any_task_at_any_time_as_often_as_you_like() -> None:
    peer = modern(nothing)
    async with connect(peer) as client:
        await asyncio.gather(*(asyncio.ensure_future(client.close()) for _ in range(5)))
        await client.close()
    await client.close()
    peer.check()


@pytest.mark.req("LIF-11")
def test_it_may_be_closed_again_when_its_event_loop_is_gone() -> None:
    async def main() -> Client:
        return await connect(modern(nothing))

    client = asyncio.run(main())
    asyncio.run(client.close())


@pytest.mark.req("LIF-11")
async def test_it_may_be_opened_in_one_task_and_closed_in_another() -> None:
    peer = modern(nothing)
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(connect(peer).__aenter__())
    async with asyncio.TaskGroup() as group:
        group.create_task(opening.result().close())
    peer.check()


@pytest.mark.req("LIF-11")
@pytest.mark.parametrize("after", range(6))
async def test_it_may_be_closed_while_it_is_opened(after: int) -> None:
    connecting = connect(modern(nothing))
    opening = asyncio.ensure_future(connecting.__aenter__())
    await turns(after)
    await connecting.__aexit__(None, None, None)
    result = (await asyncio.gather(opening, return_exceptions=True))[0]
    assert isinstance(result, Closed | Client)


@pytest.mark.req("LIF-11")
async def test_a_cancelled_close_goes_on() -> None:
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


class DeadEnd(MemoryLink):
    """A link that leads nowhere."""

    closed = 0

    async def open(self) -> Connection:
        raise ConnectError("There is nobody.")

    async def close(self) -> None:
        self.closed += 1


async def test_a_link_that_leads_nowhere_is_closed_too() -> None:
    link = DeadEnd(modern(nothing), limits=DEFAULT_LIMITS, stop=StopLadder())
    supervisor = Supervisor(link, ClientSettings(input_handlers=InputHandlers()), EraMemory())
    with pytest.raises(ConnectError, match="There is nobody"):
        await supervisor.open()
    await supervisor.close()
    assert link.closed == 1


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


# Restarts


@pytest.mark.req("LIF-5", "LIF-7")
def test_a_legacy_server_gets_a_fresh_handshake() -> None:
    async def first(peer: Peer) -> None:
        await peer.leave()

    async def second(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), TEXT)

    async def body(client: Client) -> None:
        while peer.connections == 1:
            await turns()
            skip(1)
        assert (await client.call_tool("x")).content
        assert [each["method"] for each in peer.seen][:2] == ["initialize", "notifications/initialized"]

    peer = Peer(after_handshake(first), after_handshake(second))
    talk_through(peer, body, revisions=allowed_revisions(["2025-11-25"]))


@pytest.mark.req("ERA-7")
def test_a_server_that_was_started_again_is_known() -> None:
    """A legacy one is not asked for its era a second time."""

    class Known(RestartingLink):
        key = "x"

    async def first(peer: Peer) -> None:
        peer.refuse(await peer.expect("server/discover"), METHOD_NOT_FOUND)
        await peer.initialize("2025-11-25")
        await peer.leave()

    async def main() -> None:
        peer = Peer(first, after_handshake(nothing))
        supervisor = Supervisor(
            Known(peer, limits=DEFAULT_LIMITS, stop=StopLadder()),
            ClientSettings(input_handlers=InputHandlers(), restart=PATIENT),
            EraMemory(),
        )
        async with Connecting(supervisor) as client:
            while peer.connections == 1 or not supervisor.session.is_open:
                await turns()
                skip(1)
            assert not client.revision.is_modern
        peer.check()

    run(main())


@pytest.mark.req("LEG-4")
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_log_level_is_set_again(era: str) -> None:
    async def first(peer: Peer) -> None:
        if era == "legacy":
            peer.answer(await peer.expect("logging/setLevel"), {})
            await peer.leave()
        else:
            await peer.expect("tools/call")
            await peer.leave()

    async def second(peer: Peer) -> None:
        if era == "legacy":
            levels.append((await peer.expect("logging/setLevel"))["params"]["level"])
        else:
            levels.append((await peer.expect("tools/list"))["params"]["_meta"][LOG_LEVEL])

    async def body(client: Client) -> None:
        await client.set_log_level("error")
        call = asyncio.ensure_future(client.call_tool("x")) if era == "modern" else None
        while not levels:
            await turns()
            skip(1)
        if call is not None:
            call.cancel()
            await asyncio.wait((call,))

    levels: list[str] = []
    opened = after_discovery if era == "modern" else after_handshake
    talk_through(
        Peer(opened(first), opened(second)),
        body,
        revisions=allowed_revisions(None if era == "modern" else ["2025-11-25"]),
    )
    assert levels == ["error"]


def test_what_was_counted_before_still_counts() -> None:
    async def first(peer: Peer) -> None:
        peer.notify("notifications/x")
        await turns()
        await peer.leave()

    async def body(client: Client) -> None:
        while peer.connections == 1 or not client._supervisor.session.is_open:
            await turns()
            skip(1)
        assert client.stats.messages_in == 3

    peer = Peer(after_discovery(first), after_discovery(nothing))
    talk_through(peer, body)


def test_what_happens_to_the_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def first(peer: Peer) -> None:
        await peer.leave()

    async def body(client: Client) -> None:
        while peer.connections == 1 or not client._supervisor.session.is_open:
            await turns()
            skip(1)

    peer = Peer(after_discovery(first), after_discovery(nothing))
    with caplog.at_level("INFO", logger="mcplumb.client"):
        talk_through(peer, body)
    first_time, lost, second_time, end = (record.getMessage() for record in caplog.records)
    assert first_time.startswith("Connected to ")
    assert "in protocol revision 2026-07-28, after " in first_time
    assert lost.startswith("The server is ")
    assert second_time.startswith("Connected to ")
    assert end == "The connection is closed, and the server is released."


@pytest.mark.req("LIF-5")
def test_a_start_that_fails_is_tried_again_and_each_wait_is_longer() -> None:
    async def leave(peer: Peer) -> None:
        await peer.leave()

    async def fail(peer: Peer) -> None:
        peer.refuse(await peer.expect("server/discover"), -1)
        peer.refuse(await peer.expect("initialize"), -1)

    async def body(client: Client) -> None:
        supervisor, loop = client._supervisor, asyncio.get_running_loop()
        for wait in (1, 2, 4):
            await until(lambda: supervisor._restarter.deadline is not None)
            assert supervisor._restarter.deadline is not None
            # Some of it may have passed already, on a machine that is busy.
            assert wait - 0.95 < supervisor._restarter.deadline - loop.time() <= wait + 0.001
            skip(wait)
            await until(lambda: supervisor._restarter.deadline is None)
        await until(lambda: supervisor.session.is_open)

    # The time that is skipped is longer than the client gives a server to end.
    peer = Peer(after_discovery(leave), fail, fail, after_discovery(nothing), may_be_cancelled=True)
    talk_through(peer, body)


@pytest.mark.req("LIF-11")
@pytest.mark.parametrize("when", ["waiting", "opening"])
def test_it_may_be_closed_while_the_server_is_started_again(when: str) -> None:
    async def leave(peer: Peer) -> None:
        await peer.leave()

    async def body(client: Client) -> None:
        await client._supervisor.session.over
        waiting = asyncio.ensure_future(client.call_tool("x"))
        await turns()
        if when == "opening":
            skip(1)
            await until(lambda: peer.connections == 2)
        await client.close()
        with pytest.raises(Closed, match="was not sent: the server is gone"):
            await waiting

    peer = Peer(after_discovery(leave), nothing)
    talk_through(peer, body)

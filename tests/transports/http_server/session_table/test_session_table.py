"""The table of open sessions: adding, finding and removing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from mcplumb.protocol.principal import Principal
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.asgi_request import Refusal
from mcplumb.transports.http_server.legacy_post import PostConnection
from mcplumb.transports.http_server.session_table import SessionTable
from mcplumb.wire.messages import Message
from tests.kit.loop import PATIENCE, run, turns
from tests.transports.socket_ends import turn_until

pytestmark = pytest.mark.req("HTP-6", "SSE-3")


class Mute(PostConnection):
    """A connection on which nothing goes out."""

    is_clogged = False

    def __init__(self) -> None:
        super().__init__(max_held=10, trace=None)
        self.is_aborted = False

    def send(self, message: Message, about: object = None) -> None:
        raise AssertionError(message)

    def send_batch(self, messages: Sequence[Message]) -> None:
        raise AssertionError(messages)

    async def drained(self) -> None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError

    def abort(self) -> None:
        self._shut()
        self.is_aborted = True


class Service:
    """Serves each connection until that one is hung up, or the test says so."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.ends = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, connection: Connection, peer: Peer) -> None:
        self.peers.append(peer)
        await self.ends.wait()
        if self.error is not None:
            raise self.error


async def test_a_connection_is_served_for_whom_it_is_and_found_by_them() -> None:
    service = Service()
    table: SessionTable[Mute] = SessionTable(service, max_sessions=10)
    ada, bob, anyone = Mute(), Mute(), Mute()
    of_ada, of_bob, elsewhere = Principal("ada"), Principal("bob"), Principal("ada", issuer="https://other.example")
    for connection, principal in ((ada, of_ada), (bob, of_bob), (anyone, None)):
        table.admit(connection, principal)
    ids = [table.enter(ada, of_ada), table.enter(bob, of_bob), table.enter(anyone, None)]
    await turns()
    assert service.peers == [Peer("legacy", of_ada, True), Peer("legacy", of_bob, True), Peer("legacy", None, True)]
    assert len(set(ids)) == 3
    assert table.find(ids[0], Principal("ada", scopes=frozenset(["more"]))) is ada
    assert table.find(ids[2], None) is anyone
    for session_id, principal in (
        (ids[0], of_bob), (ids[0], elsewhere), (ids[0], None), (ids[2], of_ada), ("", None), ("x", None),
    ):  # fmt: skip
        with pytest.raises(Refusal) as refused:
            table.find(session_id, principal)
        assert refused.value.status == 404
    service.ends.set()
    await turns()
    assert ada.is_aborted
    with pytest.raises(Refusal):
        table.find(ids[0], of_ada)


async def test_a_tentative_session_makes_room_the_oldest_first() -> None:
    async def serve(connection: Connection, _: Peer) -> None:
        assert isinstance(connection, Mute)
        await turn_until(lambda: connection.has_hung_up)

    table: SessionTable[Mute] = SessionTable(serve, max_sessions=3)
    members = [Mute() for _ in range(5)]
    ids = []
    for member in members[:3]:
        await table.make_room()
        table.admit(member, None)
        ids.append(table.enter(member, None, is_tentative=True))
    table.confirm(members[0])
    table.confirm(members[0])
    await table.make_room()
    assert [member.has_hung_up for member in members[:3]] == [False, True, False]
    with pytest.raises(Refusal):
        table.find(ids[1], None)
    table.admit(members[3], None)
    table.enter(members[3], None)
    await table.make_room()
    assert members[2].is_aborted
    table.admit(members[4], None)
    # None of those who are left may be sent away.
    await table.make_room()
    with pytest.raises(Refusal):
        table.admit(Mute(), None)
    await table.close()


async def test_whoever_is_over_before_it_is_entered_takes_no_room() -> None:
    service = Service()
    service.ends.set()
    table: SessionTable[Mute] = SessionTable(service, max_sessions=1)
    connection = Mute()
    table.admit(connection, None)
    await turns()
    table.enter(connection, None, is_tentative=True)
    table.admit(Mute(), None)
    await table.make_room()


async def test_whoever_is_dismissed_is_not_found_and_still_served() -> None:
    service = Service()
    table: SessionTable[Mute] = SessionTable(service, max_sessions=1)
    connection = Mute()
    table.admit(connection, None)
    session_id = table.enter(connection, None)
    table.dismiss(connection)
    table.dismiss(connection)
    assert connection.has_hung_up
    assert not connection.is_aborted
    with pytest.raises(Refusal):
        table.find(session_id, None)
    with pytest.raises(Refusal) as refused:
        table.admit(Mute(), None)
    assert refused.value.status == 503
    assert refused.value.headers[0][0] == b"retry-after"
    service.ends.set()
    await turns()
    table.admit(Mute(), None)
    await table.close()


async def test_closing_waits_for_all_and_admits_nobody() -> None:
    service = Service()
    table: SessionTable[Mute] = SessionTable(service, max_sessions=10)
    connections = [Mute() for _ in range(3)]
    for connection in connections:
        table.admit(connection, None)
    closing = asyncio.create_task(table.close())
    await turns()
    assert all(connection.has_hung_up for connection in connections)
    assert not closing.done()
    with pytest.raises(Refusal) as refused:
        table.admit(Mute(), None)
    assert refused.value.status == 503
    service.ends.set()
    await closing
    assert all(connection.is_aborted for connection in connections)


async def test_closing_lets_sessions_end_by_themselves() -> None:
    service = Service()
    table: SessionTable[Mute] = SessionTable(service, max_sessions=10)
    connection = Mute()
    table.admit(connection, None)
    session_id = table.enter(connection, None)
    closing = asyncio.create_task(table.close(within=PATIENCE))
    await turns()
    assert table.find(session_id, None) is connection
    assert not connection.has_hung_up
    with pytest.raises(Refusal):
        table.admit(Mute(), None)
    service.ends.set()
    await closing


async def test_closing_ends_sessions_that_do_not_end_in_time() -> None:
    service = Service()
    table: SessionTable[Mute] = SessionTable(service, max_sessions=10)
    connection = Mute()
    table.admit(connection, None)
    closing = asyncio.create_task(table.close(within=0.01))
    async with asyncio.timeout(PATIENCE):
        while not connection.has_hung_up:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.01)
    service.ends.set()
    await closing


def test_closing_that_is_cancelled_waits_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        table: SessionTable[Mute] = SessionTable(Service(), max_sessions=10)
        connection = Mute()
        table.admit(connection, None)
        closing = asyncio.create_task(table.close())
        await turns()
        closing.cancel()
        await turns()
        assert connection.is_aborted
        await table.close()

    run(main())
    assert caplog.text == ""


def test_a_session_that_fails_is_logged_and_let_go(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        service = Service()
        service.error = RuntimeError("out of tea")
        service.ends.set()
        table: SessionTable[Mute] = SessionTable(service, max_sessions=10)
        connection = Mute()
        table.admit(connection, None)
        await turns()
        assert connection.is_aborted

    run(main())
    assert "out of tea" in caplog.text


#: What the code around an application may have set for one of its requests.
around: ContextVar[str] = ContextVar("around", default="nothing")


async def test_a_session_does_not_run_among_the_variables_of_the_request_that_opened_it() -> None:
    seen: list[str] = []

    async def serve(_: Connection, __: Peer) -> None:
        seen.append(around.get())
        around.set("a session")

    around.set("the application")
    table: SessionTable[Mute] = SessionTable(serve, max_sessions=10)
    around.set("a request")
    table.admit(Mute(), None)
    table.admit(Mute(), None)
    await turns()
    assert seen == ["the application", "the application"]

"""The sessions that are open: admitted, found, dismissed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar

import pytest

from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.legacy_post import PostedConnection
from mcplumb.transports.http_server.request import Refusal
from mcplumb.transports.http_server.session_table import Roster
from mcplumb.wire.messages import Message
from tests.kit.loop import run, turns
from tests.transports.socket_ends import turn_until

pytestmark = pytest.mark.req("HTP-6", "SSE-3")


class Mute(PostedConnection):
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
    roster: Roster[Mute] = Roster(service, max_sessions=10)
    ada, bob, anyone = Mute(), Mute(), Mute()
    for connection, principal in ((ada, "ada"), (bob, "bob"), (anyone, None)):
        roster.admit(connection, principal)
    ids = [roster.enter(ada, "ada"), roster.enter(bob, "bob"), roster.enter(anyone, None)]
    await turns()
    assert service.peers == [Peer("legacy", "ada"), Peer("legacy", "bob"), Peer("legacy", None)]
    assert len(set(ids)) == 3
    assert roster.find(ids[0], "ada") is ada
    assert roster.find(ids[2], None) is anyone
    for session_id, principal in ((ids[0], "bob"), (ids[0], None), (ids[2], "ada"), ("", None), ("x", None)):
        with pytest.raises(Refusal) as refused:
            roster.find(session_id, principal)
        assert refused.value.status == 404
    service.ends.set()
    await turns()
    assert ada.is_aborted
    with pytest.raises(Refusal):
        roster.find(ids[0], "ada")


async def test_a_tentative_session_makes_room_the_oldest_first() -> None:
    async def serve(connection: Connection, _: Peer) -> None:
        assert isinstance(connection, Mute)
        await turn_until(lambda: connection.has_hung_up)

    roster: Roster[Mute] = Roster(serve, max_sessions=3)
    members = [Mute() for _ in range(5)]
    ids = []
    for member in members[:3]:
        await roster.make_room()
        roster.admit(member, None)
        ids.append(roster.enter(member, None, is_tentative=True))
    roster.confirm(members[0])
    roster.confirm(members[0])
    await roster.make_room()
    assert [member.has_hung_up for member in members[:3]] == [False, True, False]
    with pytest.raises(Refusal):
        roster.find(ids[1], None)
    roster.admit(members[3], None)
    roster.enter(members[3], None)
    await roster.make_room()
    assert members[2].is_aborted
    roster.admit(members[4], None)
    # None of those who are left may be sent away.
    await roster.make_room()
    with pytest.raises(Refusal):
        roster.admit(Mute(), None)
    await roster.close()


async def test_whoever_is_over_before_it_is_entered_takes_no_room() -> None:
    service = Service()
    service.ends.set()
    roster: Roster[Mute] = Roster(service, max_sessions=1)
    connection = Mute()
    roster.admit(connection, None)
    await turns()
    roster.enter(connection, None, is_tentative=True)
    roster.admit(Mute(), None)
    await roster.make_room()


async def test_whoever_is_dismissed_is_not_found_and_still_served() -> None:
    service = Service()
    roster: Roster[Mute] = Roster(service, max_sessions=1)
    connection = Mute()
    roster.admit(connection, None)
    session_id = roster.enter(connection, None)
    roster.dismiss(connection)
    roster.dismiss(connection)
    assert connection.has_hung_up
    assert not connection.is_aborted
    with pytest.raises(Refusal):
        roster.find(session_id, None)
    with pytest.raises(Refusal) as refused:
        roster.admit(Mute(), None)
    assert refused.value.status == 503
    assert refused.value.headers[0][0] == b"retry-after"
    service.ends.set()
    await turns()
    roster.admit(Mute(), None)
    await roster.close()


async def test_closing_waits_for_all_and_admits_nobody() -> None:
    service = Service()
    roster: Roster[Mute] = Roster(service, max_sessions=10)
    connections = [Mute() for _ in range(3)]
    for connection in connections:
        roster.admit(connection, None)
    closing = asyncio.create_task(roster.close())
    await turns()
    assert all(connection.has_hung_up for connection in connections)
    assert not closing.done()
    with pytest.raises(Refusal) as refused:
        roster.admit(Mute(), None)
    assert refused.value.status == 503
    service.ends.set()
    await closing
    assert all(connection.is_aborted for connection in connections)


def test_closing_that_is_cancelled_waits_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        roster: Roster[Mute] = Roster(Service(), max_sessions=10)
        connection = Mute()
        roster.admit(connection, None)
        closing = asyncio.create_task(roster.close())
        await turns()
        closing.cancel()
        await turns()
        assert connection.is_aborted
        await roster.close()

    run(main())
    assert caplog.text == ""


def test_a_session_that_fails_is_logged_and_let_go(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        service = Service()
        service.error = RuntimeError("out of tea")
        service.ends.set()
        roster: Roster[Mute] = Roster(service, max_sessions=10)
        connection = Mute()
        roster.admit(connection, None)
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
    roster: Roster[Mute] = Roster(serve, max_sessions=10)
    around.set("a request")
    roster.admit(Mute(), None)
    roster.admit(Mute(), None)
    await turns()
    assert seen == ["the application", "the application"]

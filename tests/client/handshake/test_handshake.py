from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb.client.client import Client
from mcplumb.client.connector import connect
from mcplumb.errors import ConnectError, ConnectTimeout, NoCommonRevision
from mcplumb.protocol.era import DEFAULT_WAITS
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY
from mcplumb.types.lifecycle import ListCapability, ServerCapabilities
from mcplumb.types.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcplumb.wire.messages import METHOD_NOT_FOUND, UNSUPPORTED_VERSION, Notification
from tests.client.peers import Peer, discovered, initialized, nothing, skip, talk
from tests.kit.loop import run, turns, until

NAMES = [revision.name for revision in LEGACY]


async def stay(client: Client) -> Client:
    return client


def refused(peer: Peer, **options: Any) -> ConnectError:
    """The error that connecting to this peer ends with."""

    async def main() -> ConnectError:
        with pytest.raises(ConnectError) as caught:
            await connect(peer, **options)
        return caught.value

    error = run(main())
    peer.check()
    return error


@pytest.mark.req("ERA-1", "ERA-2", "META-1")
def test_a_modern_server_is_asked_once() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.discover(instructions="Be kind.", capabilities={"tools": {}})
        assert request["params"]["_meta"][PROTOCOL_VERSION] == str(LATEST)
        assert request["params"]["_meta"][CLIENT_CAPABILITIES] == {}
        await peer.gone()
        assert len(peer.seen) == 1

    client = talk(Peer(play), stay)
    assert client.revision == LATEST
    assert client.server_info is not None
    assert client.server_info.name == "peer"
    assert client.instructions == "Be kind."
    assert client.capabilities == ServerCapabilities(tools=ListCapability())
    assert repr(client) == "<Client of 'peer', 2026-07-28>"


@pytest.mark.req("ERA-4", "LEG-1")
@pytest.mark.parametrize("code", [METHOD_NOT_FOUND, -32600, -32000, 1])
def test_any_other_error_means_legacy(code: int) -> None:
    async def play(peer: Peer) -> None:
        peer.refuse(await peer.expect("server/discover"), code)
        request = await peer.initialize("2025-06-18", instructions="Be brief.")
        assert request["params"]["protocolVersion"] == str(LATEST_LEGACY)
        assert request["params"]["capabilities"] == {}

    client = talk(Peer(play), stay)
    assert str(client.revision) == "2025-06-18"
    assert client.server_info is not None
    assert client.server_info.name == "peer"
    assert client.instructions == "Be brief."
    assert client.capabilities.resources is not None


@pytest.mark.req("ERA-4", "ERA-6")
def test_a_silent_server_is_sent_initialize_and_the_question_is_dropped_without_a_word() -> None:
    async def play(peer: Peer) -> None:
        question = await peer.expect("server/discover")
        await turns()
        skip(DEFAULT_WAITS.quiet_unseen)
        request = await peer.expect("initialize")
        peer.answer(request, initialized("2024-11-05"))
        await turns()
        skip(0.1)
        await peer.expect("notifications/initialized")
        peer.answer(question, discovered())
        await peer.gone()
        assert len(peer.seen) == 3

    async def body(client: Client) -> None:
        assert str(client.revision) == "2024-11-05"
        await turns()
        assert client.stats.late_answers == 1

    talk(Peer(play), body)


def test_an_echo_of_the_handshake_is_not_answered() -> None:
    async def play(peer: Peer) -> None:
        question = await peer.expect("server/discover")
        peer.ask(question["id"], "server/discover")
        peer.refuse(question, METHOD_NOT_FOUND)
        request = await peer.expect("initialize")
        peer.ask(request["id"], "initialize")
        peer.answer(request, initialized("2025-11-25"))
        await peer.expect("notifications/initialized")

    assert str(talk(Peer(play), stay).revision) == "2025-11-25"


def test_a_program_that_only_echoes_is_told_from_a_slow_server() -> None:
    async def play(peer: Peer) -> None:
        for method in ("server/discover", "initialize"):
            request = await peer.expect(method)
            peer.ask(request["id"], method)
            await turns()
            skip(DEFAULT_WAITS.quiet_unseen)
        skip(DEFAULT_WAITS.patience)
        await peer.gone()

    error = refused(Peer(play))
    assert "did not answer within 60 s" in str(error)
    assert "It sent the client's requests back, as a program does that echoes its input." in str(error)


@pytest.mark.req("ERA-6", "CAN-7")
def test_a_slow_modern_server_is_not_taken_for_legacy() -> None:
    async def play(peer: Peer) -> None:
        question = await peer.expect("server/discover")
        await turns()
        skip(DEFAULT_WAITS.quiet_unseen)
        request = await peer.expect("initialize")
        peer.answer(question, discovered())
        peer.refuse(request, METHOD_NOT_FOUND)
        await peer.discover()
        await peer.gone()
        assert [message["method"] for message in peer.seen] == ["server/discover", "initialize", "server/discover"]

    assert talk(Peer(play), stay).revision == LATEST


@pytest.mark.req("ERA-6")
def test_a_slow_server_that_initialize_has_turned_is_started_again() -> None:
    async def play(peer: Peer) -> None:
        question = await peer.expect("server/discover")
        await turns()
        skip(DEFAULT_WAITS.quiet_unseen)
        request = await peer.expect("initialize")
        peer.answer(question, discovered())
        peer.answer(request, initialized("2025-11-25"))
        peer.refuse(await peer.expect("server/discover"), METHOD_NOT_FOUND)

    async def again(peer: Peer) -> None:
        question = await peer.expect("server/discover")
        await turns()
        skip(5.0)
        await turns()
        peer.answer(question, discovered())
        await peer.gone()
        assert len(peer.seen) == 1

    assert talk(Peer(play, again), stay).revision == LATEST


@pytest.mark.req("ERA-3")
def test_a_modern_error_never_leads_to_initialize() -> None:
    async def play(peer: Peer) -> None:
        data = {"supported": ["2031-01-01"], "requested": str(LATEST)}
        peer.refuse(await peer.expect("server/discover"), UNSUPPORTED_VERSION, data=data)
        await peer.gone()
        assert len(peer.seen) == 1

    error = refused(Peer(play))
    assert isinstance(error, NoCommonRevision)
    assert error.theirs == ("2031-01-01",)


@pytest.mark.req("LEG-1")
@pytest.mark.parametrize("name", NAMES)
def test_a_pinned_legacy_revision_is_offered_at_once(name: str) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.initialize(name)
        assert request["params"]["protocolVersion"] == name

    assert str(talk(Peer(play), stay, revisions=[name]).revision) == name


@pytest.mark.req("ERA-8")
def test_a_pinned_modern_revision_and_a_legacy_server_make_one_clear_error() -> None:
    async def play(peer: Peer) -> None:
        peer.refuse(await peer.expect("server/discover"), METHOD_NOT_FOUND, "Unknown method")
        peer.answer(await peer.expect("initialize"), initialized("2025-03-26"))

    error = refused(Peer(play), revisions=[str(LATEST)])
    assert isinstance(error, NoCommonRevision)
    assert "allows 2026-07-28, and the server offers 2025-03-26" in str(error)


@pytest.mark.req("ERA-5")
def test_a_server_that_goes_away_at_the_question_gets_another_connection() -> None:
    async def leave(peer: Peer) -> None:
        await peer.expect("server/discover")
        await peer.leave()

    async def stay_on(peer: Peer) -> None:
        request = await peer.initialize("2025-11-25")
        assert request["id"] == 2, "ids go on where the first connection ended"

    peer = Peer(leave, stay_on)
    assert str(talk(peer, stay).revision) == "2025-11-25"
    assert peer.connections == 2


def test_a_server_that_goes_away_for_good_is_an_error() -> None:
    async def leave(peer: Peer) -> None:
        await peer.next()
        await peer.leave()

    error = str(refused(Peer(leave)))
    assert error.startswith("The connection ended before the two sides had agreed on a revision.")
    assert "process" not in error


async def test_a_server_that_fails_is_not_tried_twice() -> None:
    async def fail(peer: Peer) -> None:
        raise ZeroDivisionError("by nothing")

    peer = Peer(fail)
    with pytest.raises(ConnectError, match="failed with ZeroDivisionError: by nothing") as caught:
        await connect(peer)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert peer.connections == 1


def test_patience_ends() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("server/discover")
        await turns()
        skip(60)

    error = refused(Peer(play))
    assert type(error) is ConnectTimeout
    assert "did not answer within 60 s" in str(error)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_silent", [True, False])
def test_what_a_server_wrote_that_is_no_message_is_told(count: int, is_silent: bool) -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("server/discover")
        for _ in range(count):
            peer.send(Notification("a", msgspec.Raw(b"{\x1b[2J")))
        await turns()
        if is_silent:
            skip(60)
        else:
            await peer.leave()

    error = str(refused(Peer(play), revisions=[str(LATEST)]))
    many = "The server wrote 2 lines that are not messages, the first of them: '{"
    assert ("The server wrote a line that is not a message: '{" if count == 1 else many) in error
    assert r"\x1b[2J" in error
    assert "The line is not JSON: " in error


@pytest.mark.parametrize("answer", [7, None, "x", [], {}, {"supportedVersions": 7}])
def test_an_answer_that_names_no_versions_is_none(answer: Any) -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("server/discover"), answer)
        await peer.initialize("2025-11-25")

    assert not talk(Peer(play), stay).revision.is_modern


@pytest.mark.parametrize(("asked", "then"), [("server/discover", "initialize"), ("initialize", "server/discover")])
def test_an_answer_that_cannot_be_read_is_an_error(asked: str, then: str) -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect(asked), msgspec.Raw(b"{"))
        peer.refuse(await peer.expect(then), METHOD_NOT_FOUND)

    error = refused(Peer(play), revisions=NAMES if asked == "initialize" else [str(LATEST)])
    assert isinstance(error, NoCommonRevision)


@pytest.mark.parametrize(
    "wrong",
    [
        {"capabilities": 7, "instructions": 7, "_meta": 7, "serverInfo": 7},
        {"capabilities": {"tools": 7}, "instructions": None, "_meta": {}, "serverInfo": {}},
    ],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_server_that_introduces_itself_badly_can_be_talked_to(era: str, wrong: dict[str, Any]) -> None:
    async def play(peer: Peer) -> None:
        if era == "modern":
            await peer.discover(**wrong)
        else:
            await peer.initialize("2025-11-25", **wrong)

    client = talk(Peer(play), stay, revisions=[str(LATEST if era == "modern" else LATEST_LEGACY)])
    assert client.server_info is None
    assert client.instructions is None
    has_tools = wrong["capabilities"] == {"tools": 7}
    assert client.capabilities == ServerCapabilities(tools=ListCapability() if has_tools else None)
    assert repr(client).startswith("<Client of 'unknown', ")


@pytest.mark.req("LEG-4")
def test_a_ping_is_answered_once_initialize_was_sent_and_not_before() -> None:
    async def play(peer: Peer) -> None:
        question = await peer.expect("server/discover")
        peer.ask("early", "ping")
        peer.refuse(question, METHOD_NOT_FOUND)
        request = await peer.expect("initialize")
        peer.ask("late", "ping")
        assert await peer.next() == {"jsonrpc": "2.0", "id": "late", "result": {}}
        peer.answer(request, initialized("2025-11-25"))
        await peer.expect("notifications/initialized")

    async def body(client: Client) -> int:
        return client.stats.violations

    assert talk(Peer(play), body) == 1


async def test_a_cancelled_connect_leaves_nothing_behind() -> None:
    peer = Peer(nothing)
    connecting = asyncio.ensure_future(connect(peer).__aenter__())
    await until(lambda: peer.connections)
    await turns()
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await peer.gone()
    peer.check()

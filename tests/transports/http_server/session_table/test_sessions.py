"""Legacy sessions over real HTTP: how they are opened, found, kept apart, and ended."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from mcplumb import Context, HttpOptions, Principal, Server
from mcplumb.revisions import LEGACY
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.legacy_session import LegacySession
from mcplumb.transports.http_server.session_table import LegacySessions
from mcplumb.wire.messages import Request
from tests.kit.loop import PATIENCE, turns
from tests.kit.results import text_of
from tests.transports.http_server.staged import Staged
from tests.transports.http_server.visits import LATEST, Answer, Visitor, serving
from tests.transports.http_server.workshop import Workshop

pytestmark = pytest.mark.req("HTP-6")


async def sentence(answer: Answer, status: int) -> str:
    assert answer.status == status
    text = (await answer.json())["error"]["message"]
    assert isinstance(text, str)
    return text


# Opening


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", LATEST])
async def test_a_session_is_opened_with_an_id_that_nobody_can_guess(revision: str) -> None:
    async with serving(Workshop().server) as site:
        first, second = Visitor(site), Visitor(site)
        assert (await first.open(revision))["protocolVersion"] == revision
        await second.open(revision)
        ids = [each.headers["Mcp-Session-Id"] for each in (first, second)]
        assert ids[0] != ids[1]
        for each in ids:
            assert len(bytes.fromhex(each)) * 8 >= 128
        assert text_of(await (await first.call("double", n=2)).json()) == "4"


async def test_a_refused_initialize_leaves_no_session_behind() -> None:
    async with serving(Workshop().server, max_sessions=1) as site:
        visitor = Visitor(site)
        refused = await visitor.request("initialize", {"protocolVersion": 5})
        assert refused.status == 200
        assert "mcp-session-id" not in refused.headers
        assert (await refused.json())["error"]["code"] == -32602
        await opened(visitor)


async def opened(visitor: Visitor) -> None:
    """Open a session as soon as there is room."""
    async with asyncio.timeout(PATIENCE):
        while (answer := await visitor.initialize()).status == 503:
            assert int(answer.headers["retry-after"]) > 0
    assert answer.status == 200
    visitor.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]


@pytest.mark.req("LEG-1", "HTP-6")
async def test_initialize_within_a_session_starts_it_over() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        again = await visitor.initialize("2025-03-26")
        assert "mcp-session-id" not in again.headers
        assert (await again.json())["result"]["protocolVersion"] == "2025-03-26"
        # A batch shows that the session has this revision now.
        batch = await visitor.post([{"jsonrpc": "2.0", "id": "a", "method": "ping"}])
        assert batch.status == 200
        assert [each["id"] for each in await batch.json()] == ["a"]
        visitor.headers["Mcp-Session-Id"] = "0" * 48
        await sentence(await visitor.initialize(), 404)


async def test_a_client_that_leaves_while_its_session_is_being_opened() -> None:
    has_begun, may_open = asyncio.Event(), asyncio.Event()

    workshop = Workshop()
    serve = workshop.server.serve_connection
    ended: list[Connection] = []

    async def slow(connection: Connection, peer: Peer) -> None:
        has_begun.set()
        await may_open.wait()
        await serve(connection, peer)
        ended.append(connection)

    async with serving(workshop.server, serve=slow, max_sessions=1) as site:
        visitor = Visitor(site)
        leaving = asyncio.create_task(visitor.initialize())
        await has_begun.wait()
        answer = await visitor.initialize()
        assert answer.status == 503
        site.leave()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await leaving
        may_open.set()
        await opened(visitor)
        assert len(ended) == 1


def test_a_session_that_cannot_be_served(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def fail(_: Connection, peer: Peer) -> None:
            raise RuntimeError(f"no service for {peer.era} clients")

        async with serving(Workshop().server, serve=fail) as site:
            assert "it has ended" in await sentence(await Visitor(site).initialize(), 404)

    asyncio.run(main())
    assert "no service for legacy clients" in caplog.text


# Finding


async def test_requests_need_the_id_of_a_session() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        for answer in (await visitor.call("double", n=1), await visitor.listen(), await visitor.delete()):
            assert "Mcp-Session-Id" in await sentence(answer, 400)
        for wrong in ("0" * 48, "", "x, y"):
            visitor.headers["Mcp-Session-Id"] = wrong
            for answer in (await visitor.call("double", n=1), await visitor.listen(), await visitor.delete()):
                assert "no such session" in await sentence(answer, 404)


async def test_the_version_in_the_header() -> None:
    async with serving(Server("s", version="1", revisions=["2025-03-26", "2025-06-18"])) as site:
        visitor = Visitor(site)
        await visitor.open("2025-06-18")
        for version in ("2025-03-26", "2025-06-18"):
            visitor.headers["MCP-Protocol-Version"] = version
            assert (await visitor.request("ping")).status == 200
        for version in ("2025-11-25", "1.0", "", "2025-06-18, 2025-06-18"):
            visitor.headers["MCP-Protocol-Version"] = version
            assert "2025-06-18, 2025-03-26" in await sentence(await visitor.request("ping"), 400)
        del visitor.headers["MCP-Protocol-Version"]
        assert (await visitor.request("ping")).status == 200


async def test_nobody_uses_the_session_of_another() -> None:
    server = Server("principals", version="1")

    @server.tool
    async def who(ctx: Context) -> str:
        return "" if ctx.principal is None else ctx.principal.subject

    async with serving(server, auth=Principal) as site:
        ada = Visitor(site, Authorization="Bearer ada")
        await ada.open()
        assert text_of(await (await ada.call("who")).json()) == "ada"
        bob = Visitor(site, Authorization="Bearer bob")
        bob.headers["Mcp-Session-Id"] = ada.headers["Mcp-Session-Id"]
        for answer in (await bob.call("who"), await bob.listen(), await bob.delete()):
            assert "no such session" in await sentence(answer, 404)
        assert text_of(await (await ada.call("who")).json()) == "ada"


# Ending


async def test_delete_ends_a_session_and_what_was_accepted_is_answered() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor, other = Visitor(site), Visitor(site)
        await visitor.open()
        await other.open()
        listening = await visitor.listen()
        answer = await visitor.begin_call("wait", "a", gate="a")
        await workshop.at("a")
        deleted = await visitor.delete()
        assert deleted.status == 204
        assert await deleted.body() == b""
        assert await listening.messages() == []
        for gone in (await visitor.call("double", n=1), await visitor.listen(), await visitor.delete()):
            assert "it has ended" in await sentence(gone, 404)
        workshop.gates["a"].set()
        assert text_of(await (await answer.head()).json()) == "a is open"
        assert text_of(await (await other.call("double", n=1)).json()) == "2"


async def test_there_are_only_so_many_sessions() -> None:
    async with serving(Workshop().server, max_sessions=2) as site:
        visitors = [Visitor(site) for _ in range(3)]
        await visitors[0].open()
        await visitors[1].open()
        refused = await visitors[2].initialize()
        assert int(refused.headers["retry-after"]) > 0
        assert "reached its limit of sessions" in await sentence(refused, 503)
        await visitors[0].delete()
        await opened(visitors[2])


async def test_who_never_says_that_it_is_initialized_makes_room() -> None:
    async with serving(Workshop().server, max_sessions=2) as site:
        stayer = Visitor(site)
        await stayer.open()
        passers = [Visitor(site) for _ in range(4)]
        for passer in passers:
            answer = await passer.initialize()
            assert answer.status == 200
            passer.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        assert (await passers[-1].request("ping")).status == 200
        assert (await passers[-1].notify("notifications/initialized")).status == 202
        assert (await Visitor(site).initialize()).status == 503
        for passer in passers[:-1]:
            await sentence(await passer.call("double", n=1), 404)
        for visitor in (stayer, passers[-1]):
            assert text_of(await (await visitor.call("double", n=1)).json()) == "2"


async def test_a_session_is_not_kept_whose_client_was_not_told_its_id() -> None:
    workshop = Workshop()
    ended = asyncio.Event()

    async def serve(connection: Connection, peer: Peer) -> None:
        await workshop.server.serve_connection(connection, peer)
        ended.set()

    sessions: LegacySessions[LegacySession] = LegacySessions(serve, options=HttpOptions(), revisions=LEGACY)
    params = msgspec.json.encode(
        {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    )
    async with workshop.server.held(), asyncio.timeout(PATIENCE):
        staged = Staged()
        staged.reads.clear()
        opening = asyncio.create_task(sessions.post(staged.request, Request(1, "initialize", msgspec.Raw(params))))
        await turns()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await ended.wait()
        await sessions.close()


async def test_what_is_no_message_is_that_also_without_a_session() -> None:
    async with serving(Workshop().server) as site:
        answer = await Visitor(site).post(b"{nope")
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] == -32700


async def test_idle_sessions_expire_and_make_room() -> None:
    async with serving(Workshop().server, max_sessions=1, session_ttl=0.05) as site:
        first, second = Visitor(site), Visitor(site)
        await opened(first)
        await opened(second)
        await sentence(await first.call("double", n=1), 404)


async def test_when_the_server_stops_what_was_accepted_is_answered() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        listening = await visitor.listen()
        plain = await visitor.begin_call("wait", 1, gate="a")
        streamed = await visitor.call("tell", gate="b", request_id=2)
        await workshop.at("a")
        await workshop.at("b")
        closing = asyncio.create_task(site.app.close())
        assert await listening.messages() == []
        assert (await visitor.call("double", n=1)).status in (404, 503)
        assert (await Visitor(site).initialize()).status == 503
        workshop.gates["a"].set()
        workshop.gates["b"].set()
        assert text_of(await (await plain.head()).json()) == "a is open"
        assert text_of((await streamed.messages())[-1]) == "b is open"
        await closing


async def test_what_does_not_end_in_time_is_answered_with_an_error() -> None:
    workshop = Workshop(stop_within=0.05)
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        plain = await visitor.begin_call("wait", 1, gate="a")
        streamed = await visitor.call("tell", gate="b", request_id=2)
        await workshop.at("a")
        await workshop.at("b")
        workshop.server.stop()
        assert "does not finish" in await sentence(await plain.head(), 200)
        assert "does not finish" in (await streamed.messages())[-1]["error"]["message"]


async def test_closing_that_is_cancelled_leaves_nobody_waiting() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        plain = await visitor.begin_call("wait", 1, gate="a")
        await workshop.at("a")
        closing = asyncio.create_task(site.app.close())
        while not closing.done() and (await visitor.call("double", n=1)).status == 200:
            pass
        closing.cancel()
        assert (await plain.head()).status == 404

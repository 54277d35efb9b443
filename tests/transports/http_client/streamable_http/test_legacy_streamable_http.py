from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from mcplumb.errors import Closed, HttpError, ProtocolError, RemoteError
from mcplumb.transports.http_client import http_connection
from mcplumb.wire.messages import Notification, Request, Result
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run, turns
from tests.transports.http_client.raw import LEGACY, Asked, Reply, answer, cancel, event, note, session, world

pytestmark = leaves_nothing


@pytest.mark.req("HTP-6")
async def test_a_session_goes_with_everything_until_its_end() -> None:
    async with world(session) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/list"))
        await w.heard.until_result(1)
        await w.server.until(lambda: "GET" in w.server.order)
        await w.connection.close()
        assert w.server.order[0] == "initialize"
        assert w.server.order[-1] == "DELETE"
        first, *others = w.server.asked
        assert not [name for name in first.headers if name.startswith("mcp-")]
        for asked in others:
            assert asked.headers["mcp-session-id"] == "s1"
            assert asked.headers["mcp-protocol-version"] == LEGACY
        [get] = [asked for asked in others if asked.method == "GET"]
        assert get.headers["accept"] == "text/event-stream"
        assert "last-event-id" not in get.headers
        assert w.heard.order == []


@pytest.mark.req("HTP-6")
async def test_nothing_overtakes_the_word_that_the_session_is_open() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "notifications/initialized":
            await accepted.wait()
        await session(asked, reply)

    accepted = asyncio.Event()

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/list"))
        w.connection.send(Notification("notifications/roots/list_changed"))
        await w.server.until(lambda: len(w.server.asked) == 2)
        await turns()
        assert w.server.order == ["initialize", "notifications/initialized"]
        accepted.set()
        await w.heard.until_result(1)


@pytest.mark.req("HTP-6")
async def test_the_server_asks_on_its_own_stream_and_is_answered_by_a_post() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            await reply.stream(event(b'{"jsonrpc":"2.0","id":"q","method":"ping"}'), event(note("notifications/x")))
            await asyncio.Event().wait()
        await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        await w.heard.until(lambda: w.heard.names == ["ping", "notifications/x"])
        w.connection.send(Result("q", {}))
        await w.server.until(lambda: any(asked.body and "result" in asked.json for asked in w.server.asked))


async def test_a_server_may_have_no_sessions() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "initialize":
            await reply.stream(event(answer(0, {"protocolVersion": LEGACY})))
            await reply.end()
        elif asked.json["id"] == 1:
            await reply.send(404)
        else:
            await reply.result()

    async with world(script) as w:
        w.connection.send(Request(0, "initialize", {}))
        await w.heard.until_result(0)
        w.connection.send(Request(1, "tools/list"))
        assert isinstance(await w.heard.until_failure(1), HttpError)
        w.connection.send(Request(2, "tools/list"))
        await w.heard.until_result(2)
        assert "mcp-session-id" not in w.server.asked[-1].headers
        assert w.server.asked[-1].headers["mcp-protocol-version"] == LEGACY
        await w.connection.close()
        assert w.server.order == ["initialize", "tools/list", "tools/list"]


@pytest.mark.parametrize("version", ["two words", 1, "x" * 65])
async def test_a_revision_that_no_header_can_name_is_not_named(version: object) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.result({"protocolVersion": version})

    async with world(script) as w:
        w.connection.send(Request(0, "initialize", {}))
        await w.heard.until_result(0)
        w.connection.send(Request(1, "tools/list"))
        await w.heard.until_result(1)
        assert "mcp-protocol-version" not in w.server.asked[-1].headers


async def test_a_session_id_must_be_visible() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.result({"protocolVersion": LEGACY}, Mcp_Session_Id="a b")

    async with world(script) as w:
        w.connection.send(Request(0, "initialize", {}))
        error = await w.heard.until_failure(0)
        assert isinstance(error, ProtocolError)
        assert "session id" in str(error)


@pytest.mark.req("HTP-6")
async def test_a_session_that_is_not_known_any_more_is_over() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/list":
            await reply.send(404, refused(-32001, "It belongs to another process."))
        elif asked.rpc == "tools/call":
            await asyncio.Event().wait()
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/call", {}))
        w.connection.send(Request(2, "tools/list"))
        error = await w.heard.until_failure(2)
        assert isinstance(error, Closed)
        assert isinstance(error.__cause__, HttpError)
        assert error.__cause__.status == 404
        # The server says why, and the address is not to blame.
        assert str(error.__cause__) == "The server answered with HTTP 404 Said: It belongs to another process."
        assert w.heard.order == ["ended", "failed"]
        assert w.heard.ends == [True]
        w.connection.send(Request(3, "tools/list"))
        await w.connection.close()
        assert "DELETE" not in w.server.order
        assert len(w.server.of("tools/list")) == 1


def refused(code: int, message: str, request_id: Any = None) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


JSON, TEXT = "application/json", "text/plain; charset=utf-8"


@pytest.mark.req("HTP-6")
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (refused(-32000, "Bad Request: No valid session ID provided", 1), JSON),
        (refused(-32000, "Bad Request: No valid session ID or not an initialize request"), JSON),
        (refused(-32600, "Bad Request: Missing session ID", "server-error"), JSON),
        (refused(-32001, "Session not found"), JSON),
        (refused(-32000, "Bad Request: Mcp-Session-Id header is required"), JSON),
        (refused(-32000, "Bad Request: Server not initialized"), JSON),
        (b'{"error":"Invalid or missing session ID"}', JSON),
        (b"Bad Request: No valid session ID provided", TEXT),
        (b"Invalid session ID\n", TEXT),
    ],
)
async def test_a_session_that_is_refused_in_words_alone_is_over(body: bytes, kind: str) -> None:
    # Servers that were started again say so with 400, and not with 404, if they follow an old example.
    async def script(asked: Asked, reply: Reply) -> None:
        await (reply.send(400, body, kind) if asked.rpc == "tools/list" else session(asked, reply))

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/list"))
        error = await w.heard.until_failure(1)
        assert isinstance(error, Closed)
        assert isinstance(error.__cause__, RemoteError if b"jsonrpc" in body else HttpError)
        assert "ession" in str(error.__cause__) or "not initialized" in str(error.__cause__)
        assert w.heard.order == ["ended", "failed"]
        await w.connection.close()
        assert "DELETE" not in w.server.order


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (refused(-32600, "No.", 1), JSON),
        (refused(-32602, "Unknown argument: session_name", 1), JSON),
        (refused(-32602, "Invalid session ID", 1), JSON),
        (refused(-32000, "The session of the parliament is over.", 1), JSON),
        (b'{"error":"Your session has no such tool."}', JSON),
        (b"No.", TEXT),
        (b"Unknown argument: session_name", TEXT),
        (b"<p>Invalid session ID</p>", "text/html"),
    ],
)
async def test_another_refusal_does_not_end_the_session(body: bytes, kind: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await (reply.send(400, body, kind) if asked.rpc == "tools/list" else session(asked, reply))

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/list"))
        await w.heard.until(lambda: 1 in w.heard.failures or 1 in w.heard.refusals)
        assert not isinstance(w.heard.failures.get(1), Closed)
        w.connection.send(Request(2, "prompts/list"))
        await w.heard.until_result(2)
        assert "ended" not in w.heard.order


# --- What is given up, and what is refused ---


async def test_a_cancellation_follows_its_request_and_then_the_response_is_closed() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            await asyncio.Event().wait()
        await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        await w.server.until(lambda: "GET" in w.server.order)
        w.connection.send(Request(1, "tools/call", {"text": "x" * 100_000}))
        await turns(1)
        w.connection.send(cancel(1))
        await w.server.until(lambda: w.server.of("notifications/cancelled"))
        order = w.server.order
        assert order.index("tools/call") < order.index("notifications/cancelled")
        await w.connection.close()
        assert w.heard.failures == {}


async def test_what_is_given_up_is_given_up_even_if_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_NOTIFICATION_TIMEOUT", 0.05)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await leave.wait()
        writer.transport.abort()

    came, leave = asyncio.Event(), asyncio.Event()

    async with world(session) as w:
        await w.initialize()
        await w.server.until(lambda: "GET" in w.server.order)
        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1)
        w.pool.url = w.pool.url.with_port(server.sockets[0].getsockname()[1])
        w.connection.send(Request(1, "tools/call", {"text": "x" * 50_000_000}))
        await came.wait()
        post = w.connection._post_queue.find(1)
        assert post is not None
        assert post.task is not None
        w.connection.send(cancel(1))
        await asyncio.wait((post.task,))
        assert post.task.cancelled()
        leave.set()
        server.close()


async def test_a_cancellation_of_what_is_not_under_way_is_told() -> None:
    async with world(session) as w:
        await w.initialize()
        w.connection.send(cancel(5))
        await w.server.until(lambda: w.server.of("notifications/cancelled"))


def test_a_notification_that_is_refused_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc.startswith("notifications/roots"):
            await reply.send(400, b"why", "text/plain")
        else:
            await session(asked, reply)

    async def main() -> None:
        async with world(script) as w:
            await w.initialize()
            for _ in range(30):
                w.connection.send(Notification("notifications/roots/list_changed"))
            await w.connection.close()
            assert w.heard.failures == {}

    with caplog.at_level(logging.DEBUG, "mcplumb.client"):
        run(main())
    said = [record for record in caplog.records if "did not reach the server" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING] * 20 + [logging.DEBUG] * 10


async def test_a_batch_waits_for_all_its_answers() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "POST" and isinstance(asked.json, list):
            await reply.stream(event(b"[%b,%b]" % (answer(1), answer(2))), event(answer(3, "last")))
            await reply.end()
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send_batch([Request(number, "ping") for number in (1, 2, 3)])
        assert await w.heard.until_result(3) == "last"
        assert w.heard.failures == {}


def test_the_end_of_a_session_is_not_waited_for_at_any_price(caplog: pytest.LogCaptureFixture) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "DELETE":
            reply.reset()
        else:
            await session(asked, reply)

    async def main() -> None:
        async with world(script) as w:
            await w.initialize()
            await w.connection.close()
            await w.connection.close()

    with caplog.at_level(logging.DEBUG, "mcplumb.client"):
        run(main())
    assert "could not be ended" in caplog.text

from __future__ import annotations

import asyncio

import pytest

from mcplumb.errors import HttpError, ProtocolError, RequestLost
from mcplumb.protocol.http_headers import ParamHeaders, param_headers
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.http_connection import HttpConnection
from mcplumb.wire.messages import Notification, Request
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run, turns
from tests.transports.http_client.raw import MODERN, Asked, Heard, Reply, answer, ask, cancel, event, note, world

pytestmark = leaves_nothing


@pytest.mark.req("HTP-1", "HTP-2")
def test_a_request_is_a_post_that_says_what_it_is() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.result({"asked": asked.json["method"]})

    async def main() -> None:
        async with world(script) as w:
            w.connection.send(ask(1, "tools/list"))
            assert await w.heard.until_result(1) == {"asked": "tools/list"}
            [asked] = w.server.asked
            assert (asked.method, asked.target) == ("POST", "/mcp")
            assert asked.headers["mcp-protocol-version"] == MODERN
            assert asked.headers["mcp-method"] == "tools/list"
            assert asked.headers["content-type"] == "application/json"
            assert asked.headers["accept"] == "application/json, text/event-stream"
            assert asked.headers["accept-encoding"] == "identity"
            assert "mcp-name" not in asked.headers
            assert "cookie" not in asked.headers
            stats = w.connection.stats
            assert (stats.messages_out, stats.messages_in) == (1, 1)
            assert (stats.bytes_out, stats.bad_lines) == (len(asked.body), 0)

    run(main())


@pytest.mark.req("HTP-2")
async def test_names_and_arguments_are_told_in_headers() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}

    def params_of(request: Request) -> ParamHeaders | None:
        return param_headers(schema) if request.method == "tools/call" else None

    async def script(asked: Asked, reply: Reply) -> None:
        await reply.result()

    async with world(script, params_of=params_of) as w:
        w.connection.send(ask(1, "tools/call", name="wetter", arguments={"city": "Zürich"}))
        await w.heard.until_result(1)
        w.connection.send(ask(2, "resources/read", uri="file:///a b"))
        await w.heard.until_result(2)
        call, read = w.server.asked
        assert call.headers["mcp-name"] == "wetter"
        assert call.headers["mcp-param-city"] == "=?base64?WsO8cmljaA==?="
        assert read.headers["mcp-name"] == "file:///a b"
        assert w.server.came == 1  # one after the other over the same connection


@pytest.mark.req("HTP-1")
async def test_a_stream_brings_notifications_and_the_answer() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(b": hello\n\n", event(note("notifications/progress", progressToken=1, progress=1)))
        await reply.events(event(answer(1, "done")))
        await reply.end()

    async with world(script) as w:
        w.connection.send(ask(1))
        assert await w.heard.until_result(1) == "done"
        assert w.heard.names == ["notifications/progress"]
        await turns()
        w.connection.send(ask(1))
        await w.server.until(lambda: len(w.server.asked) == 2)
        assert w.server.came == 1


@pytest.mark.req("HTP-3")
async def test_to_cancel_is_to_close_the_response_of_that_request_alone() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(event(note("notifications/progress", progressToken=asked.json["id"], progress=1)))
        if asked.json["id"] == 2:
            await released.wait()
            await reply.events(event(answer(2, "yes")))
            await reply.end()
        else:
            await asyncio.Event().wait()

    released = asyncio.Event()

    async with world(script) as w:
        w.connection.send(ask(1))
        w.connection.send(ask(2))
        await w.heard.until_count(2)
        w.connection.send(cancel(1))
        w.connection.send(cancel(1))
        w.connection.send(cancel(3))
        # The script for the first request does not read, so that it does not notice: the socket does.
        await turns()
        released.set()
        assert await w.heard.until_result(2) == "yes"
        assert w.heard.failures == {}
        assert w.server.order == ["ping", "ping"]


@pytest.mark.req("HTP-3")
async def test_a_server_sees_that_a_request_is_cancelled() -> None:
    gone = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        while await reader.read(1000):
            came.set()
        gone.set()
        writer.close()

    came = asyncio.Event()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        pool = ConnectionPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        connection = HttpConnection(pool)
        connection.start(Heard())
        connection.send(ask(1))
        await came.wait()
        connection.send(cancel(1))
        await gone.wait()
        await connection.close()
        await pool.close()


async def test_what_was_not_sent_is_taken_back() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.json["id"] >= 100:
            await reply.result()
        else:
            await asyncio.Event().wait()

    async with world(script) as w:
        for number in range(101):
            w.connection.send(ask(number))
        w.connection.send(cancel(100))
        await w.server.until(lambda: len(w.server.asked) == 100)
        w.connection.send(ask(101))
        w.connection.send(cancel(0))
        await w.heard.until_result(101)
        assert [asked.json["id"] for asked in w.server.asked][100:] == [101]


async def test_a_notification_is_posted_and_accepted() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await (reply.result() if "id" in asked.json else reply.send(202))

    async with world(script) as w:
        w.connection.send(Notification("notifications/a"))
        await w.server.until(lambda: len(w.server.asked) == 1)
        w.connection.send(ask(1))
        await w.heard.until_result(1)
        w.connection.send(Notification("notifications/b"))
        await w.server.until(lambda: len(w.server.asked) == 3)
        first, _, second = w.server.asked
        assert first.headers["mcp-method"] == "notifications/a"
        assert "mcp-protocol-version" not in first.headers
        assert second.headers["mcp-protocol-version"] == MODERN


@pytest.mark.req("HTP-1")
async def test_a_listen_stream_takes_no_place_and_its_end_is_told() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "subscriptions/listen":
            await reply.stream(event(note("notifications/subscriptions/acknowledged")))
            await (ending if asked.json["id"] == 200 else asyncio.Event()).wait()
            reply.cut()
        else:
            await reply.result()

    ending = asyncio.Event()

    async with world(script) as w:
        for number in range(120, 231):
            w.connection.send(ask(number, "subscriptions/listen"))
        await w.heard.until_count(111)
        w.connection.send(ask(300))
        await w.heard.until_result(300)
        ending.set()
        assert isinstance(await w.heard.until_failure(200), RequestLost)
        assert list(w.heard.failures) == [200]


@pytest.mark.parametrize("request_id", [1, None, "server-error"])
async def test_an_error_with_any_status_is_the_answer(request_id: object) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.error(400, -32020, request_id)

    async with world(script) as w:
        w.connection.send(ask(1))
        await w.heard.until_count(1)
        assert w.heard.refusals == {1: -32020}
        assert w.heard.failures == {}


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (400, "text/plain", "The server answered with HTTP 400 Said: 'no'."),
        (401, "text/plain", "HTTP 401 Said: 'no'. Give a token that it accepts"),
        (403, "application/json", "another token"),
        (404, "text/html", "HTTP 404 Said: 'no'."),
        (405, "", "HTTP 405 Said: 'no'."),
        (413, "text/plain", "too large"),
        (429, "text/plain", "fewer requests"),
        (200, "text/html", "of the type 'text/html', which does not answer a message."),
        (302, "text/html", "It points to '/else', where a message cannot be sent"),
    ],
)
async def test_a_refusal_without_a_message_says_what_to_do(status: int, kind: str, sentence: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(status, b"no", kind, WWW_Authenticate="Bearer realm=x", Location="/else")

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, HttpError)
        assert error.status == status
        assert sentence in str(error)
        assert error.www_authenticate == "Bearer realm=x"


async def test_a_request_that_is_only_accepted_gets_no_answer() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(202)

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert (
            str(error) == "The server answered with HTTP 202 Said, and nothing else, which does not answer a message."
        )


async def test_who_is_not_let_in_learns_it_from_the_headers_whatever_the_body_says() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.error(401, -32001, WWW_Authenticate='Bearer scope="a"')

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, HttpError)
        assert error.www_authenticate == 'Bearer scope="a"'
        assert w.heard.items == []


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_what_a_gateway_says_leaves_the_outcome_unknown(status: int) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(status, b"<html>", "text/html")

    async with world(script) as w:
        w.connection.send(ask(1))
        assert isinstance(await w.heard.until_failure(1), RequestLost)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "not JSON"),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', "does not answer the request"),
        (b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Oh"}}', "It is error -32000: 'Oh'"),
        (b'{"jsonrpc":"2.0","method":"notifications/x"}', "does not answer"),
        (b"[]", "The batch is empty"),
    ],
)
async def test_json_that_is_no_answer_fails_the_request(body: bytes, sentence: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(200, body)

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, ProtocolError)
        assert sentence in str(error)

from __future__ import annotations

import asyncio
import gzip

import pytest
from msgspec import UNSET

from mcplumb.errors import HttpError, ProtocolError, RequestLost
from mcplumb.limits import Limits
from mcplumb.transports.http_client import response
from mcplumb.wire.messages import Error, ErrorDetail, Notification, encode_line
from tests.kit.leaks import leaves_nothing
from tests.transports.http_client.raw import Asked, Reply, answer, ask, event, note, world

pytestmark = leaves_nothing


def error(message: str) -> bytes:
    return encode_line(Error(UNSET, ErrorDetail(-32600, message)))


async def test_a_body_beyond_the_cap_is_not_read_to_its_end() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.json["id"] == 1:
            await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n")
            while True:
                await reply.raw(b" " * 100_000)
        await reply.send(200, answer(2, "x" * 900))

    async with world(script, limits=Limits(max_line=1000)) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, ProtocolError)
        assert "longer than the cap of 1000 bytes" in str(error)
        await w.server.until(lambda: w.server.gone == 1)
        w.connection.send(ask(2))
        await w.heard.until_result(2)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1000",
        b"Transfer-Encoding: chunked",
    ],
)
async def test_a_body_that_breaks_off_is_a_lost_request(head: bytes) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head + b"\r\n\r\n")
        await reply.raw(b'20\r\n{"jsonrpc":"2.0","id":1,')
        reply.cut()

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, RequestLost)
        assert "broke off" in str(error)


async def test_garbage_in_the_middle_of_a_body_is_a_lost_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "_LOOK_EVERY", 0.01)

    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(event(note("notifications/x")))
        await came.wait()
        await reply.raw(b"this is no chunk\r\n")

    came = asyncio.Event()

    async with world(script) as w:
        w.connection.send(ask(1))
        await w.heard.until_count(1)
        await asyncio.sleep(0.05)  # A response that is only silent is waited for.
        came.set()
        assert isinstance(await w.heard.until_failure(1), RequestLost)


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_bomb_is_not_unpacked(kind: str) -> None:
    bomb = gzip.compress(b" " * 50_000_000)

    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(200, bomb, kind, Content_Encoding="gzip")

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, ProtocolError)
        assert "has compressed its response" in str(error)
        assert w.connection.stats.bytes_in == 0


async def test_the_same_with_a_refusal() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(500, gzip.compress(answer(1)), Content_Encoding="gzip")

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert str(error) == "The server answered with HTTP 500 Said."


@pytest.mark.parametrize(("size", "sentence"), [(100_000, "HTTP 500 OK."), (300, "HTTP 500 OK: 'xxx")])
async def test_what_a_refusal_says_is_quoted_if_it_is_short(size: int, sentence: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 500 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % size)
        await reply.raw(b"x" * size)

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, HttpError)
        assert sentence in str(error)
        assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (error("Show a token."), "application/json", ": Show a token. Give"),
        (error("Show a token"), "application/json", ": Show a token. Give"),
        (error("Who's there?"), "application/json; charset=utf-8", ": Who's there? Give"),
        (error("Kein Schlüssel"), "application/json", ": Kein Schlüssel. Give"),
        (error("x" * 300), "application/json", f": {'x' * 200}. Give"),
        (error("\x1b[2J\u202e"), "application/json", r": \x1b[2J\u202e. Give"),
        (error(""), "application/json", ". Give"),
        (b'{"error":"invalid_token"}', "application/json", """: '{"error":"invalid_token"}'. Give"""),
        (b"No entry.\r\n", "text/plain", ": 'No entry.'. Give"),
        (b" \n", "text/plain", ". Give"),
    ],
)
async def test_a_refusal_is_told_in_its_own_words(body: bytes, kind: str, said: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(401, body, kind)

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, HttpError)
        assert str(error).startswith(f"The server answered with HTTP 401 Said{said} a token that it accepts")


async def test_a_refusal_that_breaks_off_is_a_refusal() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 401\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
        reply.cut()

    async with world(script) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, HttpError)
        assert str(error).startswith("The server answered with HTTP 401. Give a token")


async def test_a_refusal_with_a_result_in_it_is_a_refusal() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(500, answer(1))

    async with world(script) as w:
        w.connection.send(ask(1))
        assert isinstance(await w.heard.until_failure(1), HttpError)
        assert w.heard.items == []


async def test_an_answer_that_cannot_be_read_but_says_whose_it_is_is_passed_on() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(200, b'{"jsonrpc":"2.0","id":1,"result":{},"error":1}')

    async with world(script) as w:
        w.connection.send(ask(1))
        await w.heard.until_count(1)
        await w.connection.close()
        assert w.heard.failures == {}
        assert w.connection.stats.bad_lines == 1


async def test_a_stream_that_does_not_end_after_its_answer_is_closed() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(event(answer(1)))
        while True:
            await reply.events(b": " + b"x" * 10_000 + b"\n")

    async with world(script) as w:
        w.connection.send(ask(1))
        await w.heard.until_result(1)
        await w.server.until(lambda: w.server.gone == 1)


async def test_nor_is_one_waited_for_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "_END_WITHIN", 0.01)

    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream()
        if "id" in asked.json:
            await reply.events(event(answer(1)))
        await asyncio.Event().wait()

    async with world(script) as w:
        w.connection.send(ask(1))
        w.connection.send(Notification("notifications/x"))
        await w.heard.until_result(1)
        await w.server.until(lambda: len(w.server.asked) == 2)
        await w.connection.close()
        assert w.heard.failures == {}

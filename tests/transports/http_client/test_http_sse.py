from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mcplumb.errors import Closed, ConnectError, ConnectTimeout, HttpError, McplumbError
from mcplumb.limits import Limits
from mcplumb.transports.http_client import http_sse
from mcplumb.wire.messages import Notification, Request
from tests.kit.leaks import leaves_nothing
from tests.transports.http_client.raw import LEGACY, Asked, Reply, Script, answer, cancel, event, note, world

pytestmark = leaves_nothing


def pair(
    place: str = "/messages?id=1",
    then: Callable[[Asked, Reply, Reply], Awaitable[None]] | None = None,
    *,
    says: bytes = b"Method Not Allowed",
) -> tuple[Script, list[Reply]]:
    """A server of HTTP+SSE, and its streams. ``then`` is run for each post with the stream and the reply."""
    streams: list[Reply] = []

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            await reply.stream(
                event(b"ignored"), event(place.format(host=asked.headers["host"]).encode(), name="endpoint")
            )
            streams.append(reply)
            await asyncio.Event().wait()
        elif asked.target == "/mcp":
            await reply.send(405, says)
        elif then is not None:
            await then(asked, streams[-1], reply)
        else:
            await reply.send(202, b"Accepted", "text/plain")
            if "id" in asked.json:
                await streams[-1].events(event(answer(asked.json["id"], {"protocolVersion": LEGACY})))

    return script, streams


@pytest.mark.req("SSE-2", "HTP-7")
@pytest.mark.parametrize("says", [b"No", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"No"}}'])
async def test_where_a_session_cannot_be_opened_there_may_be_an_older_server(says: bytes) -> None:
    script, streams = pair(says=says)
    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/list"))
        await w.heard.until_result(1)
        await streams[0].events(event(note("notifications/x")), event(b"{}", name="other"), event(b""))
        await streams[0].events(event(b"/elsewhere", name="endpoint"), event(answer(9)))
        await w.heard.until_result(9)
        assert w.heard.names == ["notifications/x"]
        assert w.server.order == ["initialize", "GET", "initialize", "notifications/initialized", "tools/list"]
        assert [asked.target for asked in w.server.asked[2:]] == ["/messages?id=1"] * 3
        assert w.server.asked[1].headers["accept"] == "text/event-stream"


@pytest.mark.req("SSE-2")
async def test_it_can_be_told_from_the_start() -> None:
    script, _ = pair()
    async with world(script, http_sse=True) as w:
        w.connection.send(Request(0, "server/discover"))
        w.connection.send(Request(1, "initialize"))
        await w.heard.until_result(0)
        await w.heard.until_result(1)
        w.connection.send(cancel(1))  # It was posted, and its answer comes elsewhere.
        await w.server.until(lambda: w.server.of("notifications/cancelled"))
        assert w.server.order.count("GET") == 1


async def test_or_that_it_is_none() -> None:
    script, _ = pair()
    async with world(script, http_sse=False) as w:
        w.connection.send(Request(0, "initialize"))
        error = await w.heard.until_failure(0)
        assert isinstance(error, HttpError)
        assert error.status == 405
        assert w.server.order == ["initialize"]


@pytest.mark.req("SSE-2")
@pytest.mark.parametrize(
    "place",
    [
        "http://elsewhere.example/messages",
        "https://127.0.0.1/messages",
        "//127.0.0.1:1/messages",
        "file:///etc/passwd",
        "http://[",
        "mailto:me",
        "http://user:pass@{host}/messages",
        "//user@{host}/messages",
    ],
)
@pytest.mark.parametrize("http_sse", [True, None])
async def test_an_endpoint_elsewhere_is_refused(place: str, http_sse: bool | None) -> None:
    script, _ = pair(place)
    async with world(script, http_sse=http_sse) as w:
        w.connection.send(Request(0, "initialize"))
        error = await w.heard.until_failure(0)
        assert "Nothing was sent there." in str(error)
        assert "POST" not in [asked.method for asked in w.server.asked if asked.target != "/mcp"]
        if http_sse:
            assert isinstance(error, Closed)
            assert isinstance(w.connection.failure, ConnectError)
            await w.heard.until_end()
            assert w.heard.order == ["broke", "failed", "ended"]
        else:
            assert isinstance(error, HttpError)
            assert w.heard.order == ["failed"]


async def ended(reply: Reply) -> None:
    await reply.stream(event(b"x"))
    await reply.end()


async def torn(reply: Reply) -> None:
    await reply.stream(event(b"x"))
    reply.cut()


async def absent(reply: Reply) -> None:
    await reply.send(404)


async def page(reply: Reply) -> None:
    await reply.send(200, b"<html>", "text/html")


async def silent(reply: Reply) -> None:
    await reply.stream(b": hello\n\n")
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("stream", "kind", "sentence"),
    [
        (ended, ConnectError, "ended it before naming an endpoint"),
        (torn, McplumbError, "broke off"),
        (absent, HttpError, "HTTP 404"),
        (page, HttpError, "of the type 'text/html'"),
        (silent, ConnectTimeout, "named no endpoint within"),
    ],
)
async def test_a_server_without_an_endpoint_is_no_such_server(
    stream: Callable[[Reply], Awaitable[None]],
    kind: type[McplumbError],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind is ConnectTimeout:
        monkeypatch.setattr(http_sse, "_ENDPOINT_TIMEOUT", 0.5)

    async def script(asked: Asked, reply: Reply) -> None:
        await (stream(reply) if asked.method == "GET" else reply.send(405))

    async with world(script) as w:
        w.connection.send(Request(0, "initialize"))
        error = await w.heard.until_failure(0)
        assert isinstance(error, HttpError)
        assert "HTTP 405" in str(error)
        assert "It does not speak HTTP+SSE either: " in str(error)
        assert sentence in str(error)
        assert isinstance(error.__cause__, kind)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_the_end_of_the_stream_is_the_end_of_the_connection(is_clean: bool) -> None:
    script, streams = pair()
    async with world(script, http_sse=True) as w:
        w.connection.send(Request(0, "initialize"))
        await w.heard.until_result(0)
        if is_clean:
            await streams[0].end()
        else:
            streams[0].cut()
        await w.heard.until_end()
        assert w.heard.ends == [is_clean]
        w.connection.send(Request(1, "tools/list"))
        await w.connection.close()
        assert w.server.order == ["GET", "initialize"]


async def test_what_is_refused_there_is_told() -> None:
    async def then(asked: Asked, stream: Reply, reply: Reply) -> None:
        if asked.json["id"] == 1:
            await reply.error(400)
        else:
            await reply.send(400, b"no", "text/plain")

    script, _ = pair(then=then)
    async with world(script, http_sse=True) as w:
        w.connection.send(Request(1, "tools/list"))
        w.connection.send(Request(2, "tools/list"))
        await w.heard.until_failure(2)
        await w.heard.until_count(1)
        assert w.heard.refusals == {1: -32600}


async def test_a_session_that_is_not_known_any_more_is_over() -> None:
    async def then(asked: Asked, stream: Reply, reply: Reply) -> None:
        await reply.error(404)

    script, _ = pair(then=then)
    async with world(script, http_sse=True) as w:
        w.connection.send(Request(1, "tools/list"))
        assert isinstance(await w.heard.until_failure(1), Closed)
        assert w.heard.order == ["ended", "failed"]


async def test_an_event_that_is_too_long_is_passed_over() -> None:
    script, streams = pair()
    async with world(script, http_sse=True, limits=Limits(max_event=200)) as w:
        w.connection.send(Notification("notifications/x"))
        await w.server.until(lambda: len(w.server.asked) == 2)
        await streams[0].events(event(answer(1, "x" * 300)), event(answer(2)))
        await w.heard.until_result(2)
        assert w.connection.stats.bad_lines == 1
        assert len(w.heard.items) == 2

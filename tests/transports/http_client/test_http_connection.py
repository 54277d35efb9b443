from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from mcplumb.errors import Closed, ConnectError, ConnectTimeout, EncodeError, HttpError, RequestLost
from mcplumb.transports.http_client import connection_pool
from mcplumb.transports.http_client import http_connection as module
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.http_connection import HttpConnection
from mcplumb.transports.http_client.post_queue import Post
from mcplumb.transports.http_client.streamable_http import ModernBinding
from mcplumb.wire.messages import Notification, Request, Result, encode_line
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run, turns, until
from tests.transports.http_client.raw import (
    LEGACY,
    Asked,
    Heard,
    Reply,
    answer,
    ask,
    cancel,
    crowded,
    event,
    note,
    session,
    world,
)

pytestmark = leaves_nothing


async def pong(asked: Asked, reply: Reply) -> None:
    await reply.result()


async def hang(asked: Asked, reply: Reply) -> None:
    await asyncio.Event().wait()


# --- Finding the era ---


@pytest.mark.req("HTP-7")
async def test_the_questions_decide_how_things_are_said() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "server/discover":
            await reply.send(400, b"no session", "text/plain")
        else:
            await session(asked, reply)

    async with world(script) as w:
        w.connection.send(ask(1, "server/discover"))
        assert isinstance(await w.heard.until_failure(1), HttpError)
        await w.initialize()
        w.connection.send(Request(2, "tools/list"))
        await w.heard.until_result(2)
        w.connection.send(ask(3, "server/discover"))
        await w.heard.until_failure(3)
        probe, opening, *_ = w.server.asked
        assert probe.headers["mcp-method"] == "server/discover"
        assert "mcp-method" not in opening.headers
        assert w.server.of("tools/list")[0].headers["mcp-session-id"] == "s1"
        assert "mcp-session-id" not in w.server.asked[-1].headers


@pytest.mark.req("HTP-7")
@pytest.mark.parametrize("is_json", [True, False])
async def test_a_server_that_refuses_initialize_may_be_a_modern_one(is_json: bool) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "initialize":
            await (reply.error(404, -32601) if is_json else reply.send(500))
        else:
            await reply.result()

    async with world(script) as w:
        w.connection.send(Request(1, "initialize"))
        await w.heard.until(lambda: w.heard.failures or w.heard.refusals)
        await turns()
        w.connection.send(ask(2, "tools/list"))
        await w.heard.until_result(2)
        assert w.server.asked[-1].headers["mcp-method"] == "tools/list"
        assert w.server.order == ["initialize", "tools/list"]


# --- What goes wrong ---


async def test_a_server_that_cannot_be_reached_breaks_the_connection() -> None:
    async with world(pong) as w:
        await w.server.close()
        for number in range(150):
            w.connection.send(ask(number))
        await w.heard.until_end()
        assert w.heard.order == ["broke", *["failed"] * 150, "ended"]
        assert all(isinstance(error, Closed) for error in w.heard.failures.values())
        assert "cannot be reached" in str(w.heard.failures[149])
        assert isinstance(w.connection.failure, ConnectError)
        assert "cannot be reached" in str(w.heard.errors[0])
        w.connection.send(ask(1000))
        w.connection.send_batch([ask(1001)])
        await w.connection.drained()
        await w.connection.close()


async def test_a_server_that_cannot_be_reached_in_time_breaks_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "_CONNECT_TIMEOUT", 0.2)

    with crowded() as url:
        way = ConnectionPool(url)
        connection, heard = HttpConnection(way), Heard()
        connection.start(heard)
        connection.send(ask(1))
        assert "no connection within 0.2 s" in str(await heard.until_failure(1))
        await heard.until_end()
        assert isinstance(connection.failure, ConnectTimeout)
        await connection.close()
        await way.close()


async def test_what_is_under_way_may_still_be_answered_then() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await released.wait()
        await reply.result("late")

    released = asyncio.Event()

    async with world(script) as w:
        w.connection.send(ask(1))
        await w.server.until(lambda: w.server.asked)
        assert w.server._server is not None
        w.server._server.close()
        w.connection.send(ask(2))
        await w.heard.until_failure(2)
        assert w.heard.ends == []
        released.set()
        assert await w.heard.until_result(1) == "late"
        await w.heard.until_end()


def test_what_nobody_thought_of_fails_only_the_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def exchange(self: ModernBinding, post: Post) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(ModernBinding, "exchange", exchange)

    async def main() -> None:
        async with world(pong) as w:
            w.connection.send(ask(1))
            error = await w.heard.until_failure(1)
            assert isinstance(error, RequestLost)
            assert "ZeroDivisionError: oh" in str(error)

    run(main())
    assert "could not be posted" in caplog.text


def test_a_notification_that_is_not_taken_in_time_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_NOTIFICATION_TIMEOUT", 0.05)

    async def main() -> None:
        async with world(hang) as w:
            w.connection.send(Notification("notifications/x"))
            w.connection.send(Result("q", {}))
            await w.server.until(lambda: len(w.server.asked) == 2)
            await w.connection.close()

    run(main())
    assert "notifications/x did not reach the server. The server did not accept it within 0.05 s." in caplog.text
    assert "A response did not reach the server." in caplog.text


def is_answer(asked: Asked) -> bool:
    return asked.body == encode_line(Result("q", {})).strip()


@pytest.mark.req("SCL-4")
async def test_an_answer_that_the_server_cannot_take_now_is_posted_again() -> None:
    """Nobody else would: the server waits for it, and so does the call that asked."""
    refused = 0

    async def script(asked: Asked, reply: Reply) -> None:
        nonlocal refused
        if is_answer(asked) and refused < 2:
            refused += 1
            await reply.error(503, -32603, Retry_After="0")
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Result("q", {}))
        await w.server.until(lambda: sum(map(is_answer, w.server.asked)) == 3)


@pytest.mark.req("SCL-3")
@pytest.mark.parametrize(
    "message",
    [Result("q", {}), Notification("notifications/initialized"), cancel(7)],
    ids=["answer", "initialized", "cancelled"],
)
@pytest.mark.parametrize("http_sse", [None, True], ids=["streamable", "sse"])
async def test_what_may_arrive_twice_is_posted_again_if_a_gateway_has_lost_its_server(
    http_sse: bool | None, message: Result | Notification
) -> None:
    """As when the replica that had it was killed. Nobody else would: the call that asked waits for the answer."""
    sent = encode_line(message).strip()
    posted = 0

    async def script(asked: Asked, reply: Reply) -> None:
        nonlocal posted
        if asked.method == "GET" and http_sse:
            await reply.stream(event(b"/messages", name="endpoint"))
            await asyncio.Event().wait()
        elif asked.body != sent:
            await session(asked, reply)
        else:
            posted += 1
            if posted == 1:
                await reply.send(502, b"The replica ended before it answered.", "text/plain")
            elif posted == 2:
                await reply.send(504)
            elif posted == 3:
                reply.cut()
            else:
                await reply.send(202)

    async with world(script, http_sse=http_sse) as w:
        if not http_sse:
            w.connection.send(Request(0, "initialize", {"protocolVersion": LEGACY}))
            await w.heard.until_result(0)
        w.connection.send(message)
        await w.server.until(lambda: posted == 4)
        await w.connection.close()
        assert posted == 4


async def test_a_server_that_never_responds_to_initialized_does_not_hold_up_the_session() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await (reply.send(504) if asked.rpc == "notifications/initialized" else session(asked, reply))

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/list"))
        await w.heard.until_result(1)
        assert len(w.server.of("notifications/initialized")) == 4


async def test_a_notification_of_a_user_is_not_posted_again(caplog: pytest.LogCaptureFixture) -> None:
    """The server may have acted on it."""
    posted = 0

    async def script(asked: Asked, reply: Reply) -> None:
        nonlocal posted
        if asked.rpc == "example/note":
            posted += 1
            await reply.send(502)
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Notification("example/note"))
        await until(lambda: "example/note did not reach the server" in caplog.text)
    assert posted == 1


async def test_a_connection_that_closes_posts_nothing_again() -> None:
    posted = 0

    async def script(asked: Asked, reply: Reply) -> None:
        nonlocal posted
        if is_answer(asked):
            posted += 1
            closing.set_result(asyncio.create_task(w.connection.close()))
            await turns()
            await reply.send(502)
        else:
            await session(asked, reply)

    closing: asyncio.Future[asyncio.Task[None]] = asyncio.get_running_loop().create_future()
    async with world(script) as w:
        await w.initialize()
        w.connection.send(Result("q", {}))
        await (await closing)
    assert posted == 1


def test_an_answer_that_is_refused_with_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if is_answer(asked):
            await reply.error(400)
        else:
            await session(asked, reply)

    async def main() -> None:
        async with world(script) as w:
            await w.initialize()
            w.connection.send(Result("q", {}))
            await w.connection.close()

    run(main())
    assert "A response did not reach the server. The server answered with HTTP 400" in caplog.text


def test_a_stream_that_is_no_http_is_not_heard(caplog: pytest.LogCaptureFixture) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            await reply.raw(b"garbage\r\n\r\n")
        else:
            await session(asked, reply)

    async def main() -> None:
        async with world(script) as w:
            await w.initialize()
            await w.server.until(lambda: w.server.gone == 1)
            w.connection.send(Request(1, "ping"))
            await w.heard.until_result(1)

    run(main())
    assert "Messages of the server that belong to no request are not received." in caplog.text


async def test_what_cannot_be_written_is_not_queued() -> None:
    async with world(pong) as w:
        with pytest.raises(EncodeError):
            w.connection.send(Request(1, "x", {"y": object()}))
        assert w.connection.stats.messages_out == 0


# --- Starting, closing, and the rest of it ---


async def test_what_is_sent_before_the_start_waits_for_it() -> None:
    async with world(pong) as w:
        connection, heard = HttpConnection(w.pool), Heard()
        connection.send(ask(1))
        await turns()
        assert w.server.asked == []
        connection.start(heard)
        await heard.until_result(1)
        await connection.close()
        connection.start(heard)


async def test_a_trace_is_shown_what_goes_over_the_connection() -> None:
    seen: list[tuple[str, bytes]] = []

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.json["id"] == 2:
            await reply.error(400)
        else:
            await reply.stream(event(note("notifications/x")), event(answer(1)))
            await reply.end()

    async with world(script, trace=lambda way, line: seen.append((way, line))) as w:
        w.connection.send(ask(1))
        await w.heard.until_result(1)
        w.connection.send(ask(2))
        await w.heard.until(lambda: w.heard.refusals)
        assert [way for way, _ in seen] == ["out", "in", "in", "out", "in"]
        assert seen[0][1] == w.server.asked[0].body
        assert seen[2][1] == answer(1)
        assert w.connection.stats.bytes_in == sum(len(line) for way, line in seen if way == "in")


async def test_closing_waits_for_what_needs_no_answer_and_for_nothing_else() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "slow":
            await hang(asked, reply)
        await asyncio.sleep(0.01)
        await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "slow"))
        await w.server.until(lambda: w.server.of("slow"))
        for _ in range(150):
            w.connection.send(Notification("notifications/x"))
        await w.connection.close()
        assert len(w.server.of("notifications/x")) == 150
        assert w.server.order[-1] == "DELETE"
        assert w.heard.failures == {}


def test_closing_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "_CLOSE_TIMEOUT", 0.05)

    async def main() -> None:
        async with world(hang) as w:
            w.connection.send(Notification("notifications/x"))
            await w.connection.close()

    with caplog.at_level(logging.DEBUG, "mcplumb.client"):
        run(main())
    assert "did not accept the last messages in time" in caplog.text


async def test_a_close_that_is_cancelled_aborts() -> None:
    async with world(hang) as w:
        w.connection.send(Notification("notifications/x"))
        await w.server.until(lambda: w.server.asked)
        closing = asyncio.create_task(w.connection.close())
        other = asyncio.create_task(w.connection.close())
        await turns()
        closing.cancel()
        await asyncio.wait((closing, other))
        assert closing.cancelled()
        assert other.exception() is None


@pytest.mark.parametrize("count", range(0, 40, 3))
def test_an_abort_at_any_time_leaves_nothing(count: int) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            await reply.stream(event(note("notifications/x")))
            await hang(asked, reply)
        await session(asked, reply)

    async def main() -> None:
        async with world(script) as w:
            w.connection.send(Request(0, "initialize", {"protocolVersion": LEGACY}))
            w.connection.send(Notification("notifications/initialized"))
            w.connection.send(Request(1, "ping"))
            await turns(count)
            w.connection.abort()
            w.connection.abort()
            heard = len(w.heard.items)
            await w.connection.gone()
            assert len(w.heard.items) == heard
            assert w.heard.order == []

    run(main())
    gc.collect()


def test_an_abort_before_the_stream_opens_leaves_nothing() -> None:
    """Not even a coroutine that was never awaited, of which Python would warn."""

    async def main() -> None:
        async with world(session, http_sse=True) as w:
            w.connection.send(Request(0, "initialize", {"protocolVersion": LEGACY}))
            await asyncio.sleep(0)  # the post begins, and makes the task of the stream
            w.connection.abort()
            await w.connection.gone()

    run(main())
    gc.collect()


def test_an_abort_after_the_loop_has_closed_does_no_harm() -> None:
    async def main() -> tuple[HttpConnection, ConnectionPool]:
        way = ConnectionPool("http://127.0.0.1:1/")
        return HttpConnection(way), way

    connection, way = asyncio.run(main())
    connection.abort()
    way.kill()


async def test_many_requests_clog_the_connection_until_few_wait() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await released.wait()
        await reply.result()

    released = asyncio.Event()

    async with world(script) as w:
        for number in range(1100):
            assert not w.connection.is_clogged
            w.connection.send(ask(number))
        assert w.connection.is_clogged
        waiting = [asyncio.create_task(w.connection.drained()) for _ in range(3)]
        await w.server.until(lambda: len(w.server.asked) == 100)
        waiting.pop().cancel()
        assert w.connection.is_clogged
        w.connection.send(Notification("notifications/x"))  # does not wait for them
        await w.server.until(lambda: len(w.server.asked) == 101)
        released.set()
        await asyncio.wait(waiting)
        assert not w.connection.is_clogged
        await w.heard.until_count(1100)
        assert w.server.came <= 101


async def test_large_messages_clog_it_too() -> None:
    async with world(pong) as w:
        connection, heard = HttpConnection(w.pool), Heard()
        connection.send(ask(1, text="x" * 2_000_000))
        assert connection.is_clogged
        connection.start(heard)
        await connection.drained()
        await heard.until_result(1)
        assert len(w.server.asked[0].body) > 2_000_000
        await connection.close()

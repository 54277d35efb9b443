"""Modern requests: each is a POST and a connection of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import Context, RequestError, Server
from mcplumb.errors import Closed, McplumbError
from mcplumb.transports.http_server.event_streams import HIGH_WATER
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.modern_post import ModernPost
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Notification, Request, RequestId, Result
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.transports.ends import Recorder
from tests.transports.http_server.asgi import Asgi, turn
from tests.transports.http_server.callers import META, Caller, error_of, written_call
from tests.transports.http_server.visits import Answer, serving
from tests.transports.http_server.workshop import Workshop

PROGRESS = {"progressToken": "p"}


@pytest.mark.req("HTP-1")
async def test_an_answer_by_itself_is_json() -> None:
    async with serving(Workshop().server) as site:
        answer = await Caller(site).call("double", n=21)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        message = await answer.json()
        assert message["id"] == 1
        assert text_of(message) == "42"


@pytest.mark.req("HTP-1", "HTP-8")
async def test_what_comes_before_the_answer_makes_it_a_stream() -> None:
    async with serving(Workshop().server) as site:
        answer = await Caller(site).call("chat", meta=PROGRESS)
        assert answer.status == 200
        assert answer.is_stream
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-store"
        *notifications, last = await answer.messages()
        assert [each["method"] for each in notifications] == ["notifications/progress"]
        assert notifications[0]["params"]["progressToken"] == "p"
        assert text_of(last) == "hello, done"


@pytest.mark.req("HTP-1", "HTP-5")
async def test_an_error_has_a_status_unless_the_stream_has_begun() -> None:
    server = Server("s")

    @server.on_request("x/fail")
    async def fail(params: dict[str, Any]) -> None:
        raise RequestError(-32602, "no")

    @server.on_request("x/late")
    async def late(params: dict[str, Any], ctx: Context) -> None:
        await ctx.progress(1)
        raise RequestError(-32602, "no")

    async with serving(server) as site:
        caller = Caller(site)
        assert await error_of(await caller.request("x/fail", request_id="a")) == (400, -32602, "a")
        assert await error_of(await caller.request("x/missing", request_id=7)) == (404, -32601, 7)
        answer = await caller.request("x/late", meta=PROGRESS)
        assert answer.status == 200
        *_, last = await answer.messages()
        assert last["error"]["code"] == -32602


@pytest.mark.req("HTP-1")
async def test_a_notification_is_accepted_without_a_word_and_heard() -> None:
    server = Server("s")
    heard: list[Any] = []

    @server.on_notification("x/said")
    async def said(params: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(params["word"])

    async with serving(server) as site:
        answer = await Caller(site).notify("x/said", {"word": "hi"})
        assert answer.status == 202
        assert "content-type" not in answer.headers
        assert await answer.body() == b""
        answer = await Caller(site).notify("notifications/cancelled", {"requestId": 1})
        assert answer.status == 202
    assert heard == ["hi"]


@pytest.mark.req("HTP-3")
async def test_to_leave_cancels_that_request_and_nothing_else() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        caller = Caller(site)
        leaving = await caller.begin_call("wait", gate="a")
        staying = await caller.begin_call("wait", gate="b")
        await shop.at("a")
        await shop.at("b")
        leaving.leave()
        async with asyncio.timeout(PATIENCE):
            await shop.cancelled["a"].wait()
        shop.gates["b"].set()
        answer = await staying.head()
        assert answer.status == 200
        assert "result" in await answer.json()
        assert not shop.cancelled["b"].is_set()


@pytest.mark.req("HTP-3")
async def test_to_leave_a_stream_cancels_its_request() -> None:
    server = Server("s")
    cancelled = asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> None:
        await ctx.progress(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with serving(server) as site:
        answer = await Caller(site).call("work", meta=PROGRESS)
        assert (await answer.message())["method"] == "notifications/progress"
        answer.leave()
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()


async def test_a_client_that_reads_no_streams_gets_the_answer_alone() -> None:
    async with serving(Workshop().server) as site:
        caller = Caller(site, Accept="application/json")
        answer = await caller.call("chat", meta=PROGRESS)
        assert text_of(await answer.json()) == "hello, done"
        answer = await caller.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert await error_of(answer) == (406, -32600, 1)


@pytest.mark.req("HTP-1", "HTP-8")
async def test_a_subscription_is_a_stream_that_begins_at_once_and_is_kept_alive() -> None:
    server = Server("s")
    async with serving(server, keep_alive=0.01) as site:
        answer = await Caller(site).request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert answer.is_stream
        assert (await answer.message())["method"] == "notifications/subscriptions/acknowledged"
        assert (await answer.chunk()).startswith(b":")
        server.add_tool(_nothing)
        assert (await answer.message())["method"] == "notifications/tools/list_changed"
        server.stop()
        assert (await answer.message())["id"] == 1
        assert await answer.message() is None


async def test_the_application_ends_subscriptions_when_it_closes() -> None:
    async with serving(Server("s")) as site:
        answer = await Caller(site).request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert (await answer.message())["method"] == "notifications/subscriptions/acknowledged"
        await site.app.close()
        assert (await answer.message())["id"] == 1
        assert await answer.message() is None


async def test_large_answers_pass() -> None:
    server = Server("s")

    @server.tool
    async def much(n: int) -> str:
        return "x" * n

    async with serving(server) as site:
        for size in (60_000, 5_000_000):
            answer = await Caller(site).call("much", n=size)
            assert text_of(await answer.json()) == "x" * size


async def test_a_stream_that_is_not_read_holds_back_its_handler() -> None:
    server = Server("s")
    told = 0

    @server.tool
    async def flood(ctx: Context) -> str:
        nonlocal told
        for n in range(3000):
            await ctx.info("x" * 10_000)
            told = n
        return "done"

    async with serving(server) as site:
        reader, writer = await asyncio.open_connection(site.address.host, site.address.port, limit=1024)
        writer.write(written_call("flood", meta={"io.modelcontextprotocol/logLevel": "info"}))
        seen = -1
        while told != seen:
            seen = told
            await asyncio.sleep(0.5)
        # Some is in the buffers of the system, which are its own business: all of it is thirty million bytes.
        assert told < 2999
        *_, last = await (await Answer(reader, writer).head()).messages()
        assert text_of(last) == "done"
        writer.close()


# The connection itself


def _exchange(asgi: Asgi, message: Request | Notification | None = None, trace: Trace | None = None) -> ModernPost:
    message = message or Request(1, "x", {"_meta": META})
    loop = asyncio.get_running_loop()
    return ModernPost(asgi.request, message, size=50, options=HttpOptions(), trace=trace, loop=loop)


class _Failures(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.failures: list[tuple[RequestId, McplumbError]] = []

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        self.failures.append((request_id, error))


async def test_a_message_comes_once_and_not_while_it_is_held_back() -> None:
    exchange, receiver = _exchange(Asgi()), Recorder()
    exchange.start(receiver)
    exchange.pause()
    await turn()
    assert receiver.items == []
    assert exchange.stats.messages_in == 0
    exchange.resume()
    exchange.resume()
    await turn()
    exchange.pause()
    exchange.resume()
    await turn()
    assert len(receiver.items) == 1
    assert exchange.stats.messages_in == 1
    assert exchange.stats.bytes_in == 50
    exchange.abort()


async def test_nobody_can_be_asked() -> None:
    exchange, receiver = _exchange(Asgi()), _Failures()
    exchange.start(receiver)
    await turn()
    exchange.send(Request(9, "ping"))
    assert receiver.failures == []
    await turn()
    [(request_id, error)] = receiver.failures
    assert request_id == 9
    assert isinstance(error, Closed)
    # Whoever has closed hears nothing more.
    exchange.send(Request(10, "ping"))
    exchange.abort()
    await turn()
    assert len(receiver.failures) == 1


async def test_with_the_answer_the_input_ends_and_nothing_more_is_sent() -> None:
    asgi = Asgi()
    exchange, receiver = _exchange(asgi), Recorder()
    exchange.start(receiver)
    await turn()
    exchange.send_batch([Result(1, {}), Result(1, {}), Notification("x")])
    assert receiver.ends == []
    await turn()
    assert receiver.ends == [True]
    exchange.end_input()
    assert receiver.ends == [True]
    await exchange.close()
    await exchange.close()
    start, body = asgi.sent
    assert start["status"] == 200
    assert body["body"] == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert exchange.stats.messages_out == 1
    assert exchange.stats.bytes_out == len(body["body"])


async def test_a_client_that_does_not_keep_up_clogs_its_stream() -> None:
    asgi = Asgi()
    exchange, receiver = _exchange(asgi), Recorder()
    exchange.start(receiver)
    await turn()
    assert not exchange.is_clogged
    await exchange.drained()
    asgi.gate.clear()
    exchange.send(Notification("x", {"text": "x" * HIGH_WATER}))
    await turn()
    assert exchange.is_clogged
    waiting = asyncio.create_task(exchange.drained())
    await turn()
    assert not waiting.done()
    asgi.gate.set()
    await waiting
    assert not exchange.is_clogged
    asgi.gate.clear()
    exchange.send(Result(1, {}))
    closing = [asyncio.create_task(exchange.close()) for _ in range(2)]
    await turn()
    assert not any(task.done() for task in closing)
    asgi.gate.set()
    await asyncio.wait(closing)
    assert asgi.sent[-1]["more_body"] is False


async def test_a_closing_that_is_cancelled_tears_the_stream() -> None:
    asgi = Asgi()
    exchange, receiver = _exchange(asgi), Recorder()
    exchange.start(receiver)
    await turn()
    asgi.gate.clear()
    exchange.send(Notification("x"))
    closing = asyncio.create_task(exchange.close())
    await turn()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    asgi.gate.set()
    await turn()
    assert asgi.sent == []
    assert receiver.errors == []


async def test_who_leaves_is_told_of_once_and_not_after_the_end() -> None:
    asgi = Asgi()
    exchange, receiver = _exchange(asgi), Recorder()
    exchange.start(receiver)
    await turn()
    asgi.left.set()
    await turn()
    assert len(receiver.errors) == 1
    assert exchange.is_gone
    exchange.send(Result(1, {}))
    await exchange.close()
    assert asgi.sent == []

    asgi = Asgi()
    exchange, receiver = _exchange(asgi), Recorder()
    exchange.start(receiver)
    await turn()
    exchange.abort()
    asgi.left.set()
    await turn()
    assert receiver.errors == []


async def test_an_answer_that_cannot_be_sent_is_nobodys_fault() -> None:
    asgi = Asgi()
    asgi.error = OSError("gone")
    exchange = _exchange(asgi, Notification("x"))
    receiver = Recorder()
    exchange.start(receiver)
    await turn()
    assert receiver.ends == [True]
    await exchange.close()
    assert exchange.is_gone


async def test_what_goes_out_is_shown() -> None:
    shown: list[tuple[str, bytes]] = []
    exchange = _exchange(Asgi(), trace=lambda way, line: shown.append((way, line)))
    exchange.start(Recorder())
    await turn()
    exchange.send(Result(1, {}))
    await exchange.close()
    assert shown == [("out", b'{"jsonrpc":"2.0","id":1,"result":{}}')]


async def _nothing() -> None: ...

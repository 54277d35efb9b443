from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from mcplumb.client.client import Client
from mcplumb.errors import (
    Closed,
    EncodeError,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    RequestTimeout,
)
from mcplumb.limits import Limits
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.types.tools import CallToolResult
from mcplumb.wire.messages import Result
from tests.client.peers import COMPLETE, TEXT, Peer, modern, nothing, skip, talk, talk_legacy
from tests.kit.loop import turns, until

#: More than a connection queues before it is clogged.
MUCH = "x" * 2_000_000


def begin(client: Client, name: str = "slow", **options: Any) -> asyncio.Task[CallToolResult]:
    return asyncio.ensure_future(client.call_tool(name, **options))


async def body_that_calls(client: Client) -> CallToolResult:
    return await client.call_tool("slow")


# --- answers ------------------------------------------------------------------------------------------------------


def test_answers_find_their_callers_in_any_order() -> None:
    async def play(peer: Peer) -> None:
        requests = [await peer.expect("tools/call") for _ in range(3)]
        for request in reversed(requests):
            content = [{"type": "text", "text": request["params"]["name"]}]
            peer.answer(request, {"content": content, **COMPLETE})

    async def body(client: Client) -> None:
        results = await asyncio.gather(*(client.call_tool(name) for name in "abc"))
        assert [result.content[0].text for result in results] == ["a", "b", "c"]  # type: ignore[union-attr]

    talk(modern(play), body)


@pytest.mark.parametrize("data", [None, {"field": ["days"]}, 7])
def test_an_error_is_raised_as_the_server_put_it(data: Any) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.refuse(request, -32602, "Days must be positive", msgspec.UNSET if data is None else data)

    with pytest.raises(RemoteError, match="error -32602: Days must be positive") as caught:
        talk(modern(play), body_that_calls)
    assert (caught.value.code, caught.value.data) == (-32602, data)


@pytest.mark.req("FRM-4")
def test_an_answer_that_cannot_be_read_fails_its_call_at_once_and_no_other() -> None:
    async def play(peer: Peer) -> None:
        first, second = [await peer.expect("tools/call") for _ in range(2)]
        peer.answer(first, msgspec.Raw(b'{"content":'))
        peer.answer(first, msgspec.Raw(b'{"content":'))
        peer.answer(second, TEXT)

    async def body(client: Client) -> None:
        broken, good = await asyncio.gather(client.call_tool("a"), client.call_tool("b"), return_exceptions=True)
        assert isinstance(broken, ProtocolError)
        assert str(broken).startswith("The server's answer to tools/call 'a' cannot be read. ")
        assert isinstance(good, CallToolResult)
        assert (client.stats.bad_lines, client.stats.late_answers) == (2, 1)

    talk(modern(play), body)


@pytest.mark.req("CAN-4")
def test_late_and_unknown_answers_are_counted_and_harm_nobody() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.send(Result(4711, TEXT))
        peer.answer(request, TEXT)
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        assert (await client.call_tool("slow")).content
        await turns()
        assert (client.stats.late_answers, client.stats.unknown_answers) == (1, 1)

    talk(modern(play), body)


def test_what_cannot_be_written_is_not_sent() -> None:
    async def play(peer: Peer) -> None:
        assert (await peer.expect("tools/call"))["params"]["name"] == "b"
        peer.answer({"id": 3}, TEXT)

    async def body(client: Client) -> None:
        with pytest.raises(EncodeError, match="cannot be written as JSON"):
            await client.call_tool("a", {"value": object()})
        await client.call_tool("b")

    talk(modern(play), body)


# --- giving up ----------------------------------------------------------------------------------------------------


@pytest.mark.req("CAN-1", "CAN-4")
def test_a_cancelled_caller_cancels_the_request() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        note = await peer.expect("notifications/cancelled")
        assert note["params"]["requestId"] == request["id"]
        assert note["params"]["reason"]
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        task = begin(client)
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: client.stats.late_answers)

    talk(modern(play), body)


@pytest.mark.req("CAN-4")
def test_a_caller_cancelled_as_the_answer_comes_says_nothing_more() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")
        await peer.gone()
        assert len(peer.seen) == 2

    async def body(client: Client) -> None:
        task = begin(client)
        await turns()
        task.cancel()
        # Before the task has run again, its answer is there.
        client._supervisor.session.received(Result(2, msgspec.Raw(b"{}")))
        with pytest.raises(asyncio.CancelledError):
            await task

    talk(modern(play), body)


@pytest.mark.req("CAN-1", "CAN-5")
def test_a_timeout_cancels_the_request() -> None:
    cancelled = []

    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        note = await peer.expect("notifications/cancelled")
        assert note["params"] == {"requestId": request["id"], "reason": "The request timed out."}
        cancelled.append(request["id"])

    async def body(client: Client) -> None:
        with pytest.raises(RequestTimeout, match=r"tools/call 'slow' was not answered in time \(0\.01 s\), and has"):
            await client.call_tool("slow", timeout=0.01)
        await turns()
        assert len(cancelled) == 1

    talk(modern(play), body)


@pytest.mark.req("CAN-5")
def test_the_default_timeout_is_a_minute() -> None:
    async def body(client: Client) -> None:
        task = begin(client)
        await turns()
        skip(20)
        await turns()
        assert not task.done()
        skip(41)
        with pytest.raises(RequestTimeout, match="60 s"):
            await task

    talk(modern(nothing), body)


def test_each_call_has_its_own_time() -> None:
    async def body(client: Client) -> None:
        long, short, endless = begin(client, timeout=1000), begin(client, timeout=100), begin(client, timeout=None)
        await turns()
        for seconds, done in ((50, [False, False]), (60, [False, True]), (900, [True, True])):
            skip(seconds)
            await turns()
            await until(lambda done=done: [long.done(), short.done()] == done)  # type: ignore[misc]
        skip(100_000)
        await turns()
        assert not endless.done()
        endless.cancel()
        await asyncio.wait([long, short, endless])
        assert isinstance(long.exception(), RequestTimeout)
        assert isinstance(short.exception(), RequestTimeout)

    talk(modern(nothing), body)


@pytest.mark.req("CAN-5")
def test_progress_extends_a_timeout_up_to_the_maximum() -> None:
    seen: list[Any] = []

    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        for step in range(1, 4):
            skip(60)
            peer.notify("notifications/progress", progressToken=token, progress=step)
            await turns()
        skip(60)

    async def body(client: Client) -> None:
        with pytest.raises(RequestTimeout, match="was not done within its max_timeout"):
            await client.call_tool("slow", timeout=100, max_timeout=220, on_progress=lambda *news: seen.append(news))

    talk(modern(play), body)
    assert seen == [(1, None, None), (2, None, None), (3, None, None)]


@pytest.mark.req("CAN-5")
def test_without_more_progress_the_time_is_over() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        peer.notify("notifications/progress", progressToken=token, progress=1)
        peer.notify("notifications/progress", progressToken=token, progress=1)
        peer.notify("notifications/progress", progressToken="other", progress=1)
        await turns()
        skip(101)

    async def body(client: Client) -> None:
        with pytest.raises(RequestTimeout, match="made no progress for 100 s"):
            await client.call_tool("slow", timeout=100, on_progress=print)
        assert client.stats.unknown_answers == 1

    talk(modern(play), body)


def test_a_maximum_alone_is_a_limit_too() -> None:
    async def body(client: Client) -> None:
        with pytest.raises(RequestTimeout, match="was not done within its max_timeout"):
            await client.call_tool("slow", timeout=None, max_timeout=0.01)

    talk(modern(nothing), body)


@pytest.mark.req("CAN-5", "MRT-5")
def test_the_time_that_the_user_takes_does_not_count_on_legacy_either() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")
        peer.ask("q", "elicitation/create", message="Name?", requestedSchema={"type": "object", "properties": {}})
        assert (await peer.expect_answer("q"))["result"] == {"action": "decline"}

    async def body(client: Client) -> None:
        task = begin(client, timeout=100, max_timeout=1000)
        await asked.wait()
        for _ in range(3):
            skip(60)
            await turns()
        answered.set()
        await turns()
        skip(60)
        await turns()
        assert not task.done(), "the server has its full time from the answer on"
        skip(60)
        with pytest.raises(RequestTimeout):
            await task

    async def on_elicit(_: object) -> None:
        asked.set()
        await answered.wait()

    asked, answered = asyncio.Event(), asyncio.Event()
    talk_legacy(play, body, on_elicit=on_elicit)


@pytest.mark.req("CAN-5")
def test_a_user_who_never_answers_holds_up_what_the_server_may_have_asked_for_and_not_for_ever() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")
        await peer.expect("prompts/list")
        peer.ask("q", "elicitation/create", message="Name?", requestedSchema={"type": "object", "properties": {}})

    async def body(client: Client) -> None:
        task = begin(client, timeout=100, max_timeout=250)
        await turns()
        listing = asyncio.ensure_future(client.list_prompts(timeout=100))
        await asked.wait()
        skip(110)
        await until(listing.done)
        assert not task.done()
        skip(110)
        await turns()
        assert not task.done()
        skip(110)
        await asyncio.wait([task, listing])
        assert isinstance(task.exception(), RequestTimeout)
        assert isinstance(listing.exception(), RequestTimeout)

    async def on_elicit(_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    asked = asyncio.Event()
    talk_legacy(play, body, on_elicit=on_elicit)


# --- a server that does not read, and more calls than places ------------------------------------------------------


@pytest.mark.req("CAN-5", "LIF-10")
def test_a_timeout_covers_the_writing() -> None:
    async def play(peer: Peer) -> None:
        peer.connection.pause()

    async def body(client: Client) -> None:
        stuck = begin(client, arguments={"much": MUCH}, timeout=None)
        await turns()
        with pytest.raises(RequestTimeout, match="tools/call 'fast' was not sent in time"):
            await client.call_tool("fast", timeout=0.01)
        with pytest.raises(RequestTimeout, match="notifications/x was not sent in time"):
            await client.notify("notifications/x")
        waiting = begin(client, timeout=None)
        await turns()
        waiting.cancel()
        stuck.cancel()
        await asyncio.wait([waiting, stuck])

    talk(modern(play, may_be_cancelled=True), body, timeout=0.01, stop=StopLadder(close_wait=0.01))


def test_a_call_goes_on_once_the_server_reads_again() -> None:
    async def play(peer: Peer) -> None:
        peer.connection.pause()
        await reading.wait()
        peer.connection.resume()
        for _ in range(2):
            peer.answer(await peer.expect("tools/call"), TEXT)

    async def body(client: Client) -> None:
        first = begin(client, arguments={"much": MUCH})
        await turns()
        second = begin(client)
        await turns()
        assert client.stats.messages_out == 2
        reading.set()
        await asyncio.gather(first, second)

    reading = asyncio.Event()
    talk(modern(play), body)


def test_more_calls_than_places_wait_their_turn() -> None:
    async def play(peer: Peer) -> None:
        for _ in range(5):
            request = await peer.expect("tools/call")
            await turns()
            assert peer.seen[-1] == request, "another one came before this one was answered"
            peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        await asyncio.gather(*(client.call_tool("x") for _ in range(5)))

    talk(modern(play), body, limits=Limits(max_in_flight=1))


def test_a_caller_does_not_overtake_those_that_wait_for_a_slot() -> None:
    async def play(peer: Peer) -> None:
        for name in "abc":
            request = await peer.expect("tools/call")
            assert request["params"]["name"] == name
            peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        async def call_twice() -> None:
            await client.call_tool("a")
            # The slot is free, and "b", which waits for it, has not been resumed yet.
            await client.call_tool("c")

        await asyncio.gather(call_twice(), client.call_tool("b"))

    talk(modern(play), body, limits=Limits(max_in_flight=1))


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_ends_loses_its_calls_at_once_and_takes_no_more(when: str) -> None:
    async def play(peer: Peer) -> None:
        if when == "after":
            await peer.expect("tools/call")
        await peer.leave()

    async def body(client: Client) -> None:
        if when == "after":
            with pytest.raises(RequestLost, match="before tools/call 'slow' was answered: whether it took") as caught:
                await client.call_tool("slow")
            assert isinstance(caught.value.__cause__, Closed)
        else:
            await client._supervisor.session.over
        with pytest.raises(Closed, match=r"'slow' was not sent: .* The server closed the connection\."):
            await client.call_tool("slow")
        with pytest.raises(Closed, match="notifications/x was not sent"):
            await client.notify("notifications/x")

    talk(modern(play), body)


@pytest.mark.req("CAN-1")
def test_closing_gives_up_the_open_calls() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        note = await peer.expect("notifications/cancelled")
        assert note["params"]["requestId"] == request["id"]

    async def body(client: Client) -> None:
        task = begin(client)
        await turns()
        await client.close()
        with pytest.raises(RequestCancelled, match="tools/call 'slow' was given up before it was answered"):
            await task
        with pytest.raises(Closed, match="the client was closed"):
            await client.call_tool("slow")

    talk(modern(play), body)


def test_news_that_a_slow_function_did_not_take_are_counted() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        for step in range(3000):
            skip(1)
            peer.notify("notifications/progress", progressToken=token, progress=step)
            await asyncio.sleep(0)
        peer.answer(request, TEXT)
        await turns()
        skip(5000)

    async def on_progress(*_: object) -> None:
        await asyncio.Event().wait()

    async def body(client: Client) -> None:
        await client.call_tool("slow", timeout=5000, on_progress=on_progress)
        assert client.stats.dropped > 0

    talk(modern(play), body)


@pytest.mark.req("CAN-4", "CAN-5")
def test_however_calls_end_nothing_of_them_stays() -> None:
    async def play(peer: Peer) -> None:
        while True:
            request = await peer.next()
            ending = request["params"].get("name")
            if ending == "answer":
                peer.answer(request, TEXT)
            elif ending == "error":
                peer.refuse(request, -1)
            elif ending == "bad":
                peer.answer(request, msgspec.Raw(b"{"))
            elif ending == "last":
                peer.answer(request, TEXT)
                return

    async def body(client: Client) -> None:
        endings = ["answer", "error", "bad", "cancel", "timeout"] * 100
        timeouts = {"timeout": 0.01}
        tasks = [begin(client, name, timeout=timeouts.get(name), on_progress=print) for name in endings]
        await until(lambda: client.stats.messages_out >= 501)
        for task, ending in zip(tasks, endings, strict=True):
            if ending == "cancel":
                task.cancel()
        await asyncio.wait(tasks)
        assert {type(task.exception()) for task in tasks if not task.cancelled()} == {
            type(None),
            RemoteError,
            ProtocolError,
            RequestTimeout,
        }
        await client.call_tool("last")
        calls = client._supervisor.session.endpoint
        assert (len(calls.outgoing), calls._progress, calls._slots and calls._slots.free) == (0, {}, 10_000)

    talk(modern(play), body)


@pytest.mark.parametrize("how", ["error", "timeout"])
def test_a_call_that_failed_keeps_nothing_of_its_caller(how: str) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        if how == "error":
            peer.refuse(request, -32602, "No", msgspec.UNSET)

    async def body(client: Client) -> None:
        async def call() -> None:
            mine = Mine()
            kept.append(weakref.ref(mine))
            await client.call_tool("slow", timeout=0.01 if how == "timeout" else None)

        class Mine:
            """Something of the caller's."""

        kept: list[weakref.ref[Mine]] = []
        with suppress(RemoteError, RequestTimeout):
            await call()
        assert kept[0]() is None

    gc.collect()
    gc.disable()
    try:
        talk(modern(play), body)
    finally:
        gc.enable()


# --- calls that stay open -----------------------------------------------------------------------------------------


def test_a_call_that_is_forgotten_is_given_up_without_a_word() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("ping"), {})
        await peer.gone()
        assert len(peer.seen) == 2

    async def body(client: Client) -> None:
        calls = client._supervisor.session.endpoint
        assert calls.outgoing.next_id == 2
        call, answer = calls.open("ping", {})
        calls.forget(call)
        assert await answer is None
        assert call.state == "cancelled"
        await until(lambda: calls.outgoing.late)
        assert calls.outgoing.next_id == 3

    talk(modern(play), body)


@pytest.mark.req("CAN-7")
def test_initialize_is_never_cancelled() -> None:
    async def play(peer: Peer) -> None:
        await peer.gone()
        assert [message["method"] for message in peer.seen] == ["server/discover", "initialize"]

    async def body(client: Client) -> None:
        client._supervisor.session.endpoint.open("initialize", {})

    talk(modern(play), body)


@pytest.mark.req("CAN-6")
def test_a_server_may_cancel_a_subscription_and_nothing_else() -> None:
    async def play(peer: Peer) -> None:
        request, subscription = await peer.expect("tools/call"), await peer.expect("subscriptions/listen")
        for request_id in (subscription["id"], subscription["id"], request["id"], "x"):
            peer.notify("notifications/cancelled", requestId=request_id)
        await turns()
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        task = begin(client)
        await turns()
        call, answer = client._supervisor.session.endpoint.open("subscriptions/listen", {})
        assert await answer is None
        assert call.state == "ended"
        assert (await task).content
        assert client.stats.unknown_answers == 3

    talk(modern(play), body)


@pytest.mark.parametrize("timeout", [None, 5])
def test_the_last_progress_comes_before_the_result(timeout: float | None) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        for step in range(100):
            peer.notify("notifications/progress", progressToken=token, progress=step, total=100, message="on it")
        peer.answer(request, TEXT)

    async def on_progress(*news: Any) -> None:
        await asyncio.sleep(0)
        seen.append(news)

    async def body(client: Client) -> None:
        await client.call_tool("slow", timeout=timeout, on_progress=on_progress)
        assert seen[0] == (0, 100, "on it")
        assert seen[-1] == (99, 100, "on it")

    seen: list[Any] = []
    talk(modern(play), body)

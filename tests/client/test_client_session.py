from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import msgspec
import pytest

from mcplumb.client.client import Client
from mcplumb.errors import Closed, ProtocolError, RemoteError, RequestLost
from mcplumb.limits import Limits
from mcplumb.protocol.subscription_state import Change
from mcplumb.types.meta import LOG_LEVEL, TRACEPARENT
from mcplumb.types.notification_params import LogMessageParams
from mcplumb.wire.messages import Error, ErrorDetail, Notification, Request
from tests.client.peers import TEXT, Peer, modern, skip, talk, talk_in, talk_legacy
from tests.kit.loop import turns


async def call(client: Client) -> None:
    assert (await client.call_tool("x")).content


# --- what a server must not send ------------------------------------------------------------------------------------


@pytest.mark.req("DIR-1", "DIR-3")
@pytest.mark.parametrize("method", ["ping", "roots/list", "elicitation/create", "x" * 500])
def test_a_request_from_a_modern_server_is_dropped(method: str, caplog: pytest.LogCaptureFixture) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, method)
        peer.answer(request, TEXT)
        await peer.gone()
        assert len(peer.seen) == 2

    async def body(client: Client) -> None:
        await call(client)
        assert client.stats.violations == 1

    talk(modern(play), body, roots=[])
    assert caplog.messages == [f"The server broke a rule: it sent the request '{method[:80]}', which gets no answer."]


ECHO = "The server broke a rule: it sent the client's request '{}' back, as a program does that echoes its input."


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_server_whose_input_is_echoed_is_used_all_the_same(era: str, caplog: pytest.LogCaptureFixture) -> None:
    """As by a terminal between the two. An answer to the echo would come back as the answer to the request."""

    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(request["id"], "tools/call", name="x", arguments={})
        peer.answer(request, TEXT)
        await peer.gone()
        assert peer.seen[-1] == request

    async def body(client: Client) -> None:
        await call(client)
        assert client.stats.violations == 1

    talk_in(era, play, body)
    assert caplog.messages == [ECHO.format("tools/call")]


@pytest.mark.parametrize(("method", "asked"), [("ping", 0), ("tools/call", 1)])
def test_a_legacy_server_may_use_the_ids_of_the_client(method: str, asked: int) -> None:
    """For a ping, which both may send, and for what it may not: that is refused, if it is no request of ours."""

    async def play(peer: Peer) -> None:
        request = await peer.expect("ping")
        peer.ask(request["id"], method)
        assert ("error" in await peer.expect_answer(request["id"])) == bool(asked)
        peer.answer(request, {})

    async def body(client: Client) -> None:
        await client.ping()
        assert client.stats.violations == 0

    talk_legacy(play, body)


@pytest.mark.req("FRM-10")
@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-06-18", "2025-11-25"])
def test_a_batch_is_no_message_but_in_one_revision(revision: str | None) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.connection.send_batch([Request(1, "ping", {}), Notification("notifications/message", {})])
        peer.answer(request, TEXT)
        await peer.gone()
        assert peer.seen[-1]["method"] == "tools/call"

    async def body(client: Client) -> None:
        await call(client)
        assert client.stats.violations == 1

    talk(modern(play), body) if revision is None else talk_legacy(play, body, revision)


@pytest.mark.req("FRM-4", "FRM-5")
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_bad_lines_are_counted_and_passed_over(era: str, caplog: pytest.LogCaptureFixture) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.send(Notification("a", msgspec.Raw(b"{")))
        peer.send(Notification("b", {"long": "x" * 5000}))
        peer.send(Error(msgspec.UNSET, ErrorDetail(-32700, "What?")))
        peer.answer(request, TEXT)
        await peer.gone()
        assert peer.seen[-1]["method"] == "tools/call"

    async def body(client: Client) -> None:
        await call(client)
        assert (client.stats.bad_lines, client.stats.unknown_answers) == (2, 1)

    talk_in(era, play, body, limits=Limits(max_line=2000))
    first, second, third = caplog.messages
    assert first.startswith('A line from the server was ignored: \'{"jsonrpc"')
    assert first.endswith("{}'. The line is not JSON: it ends too early, or has half of a surrogate pair.")
    assert second.startswith('A line from the server was ignored: \'{"jsonrpc"')
    assert second.endswith("xxx…'. A line is longer than the limit of 2000 bytes, and was skipped.")
    assert third == "The server could not read a message: 'What?'."


def test_a_server_that_is_always_wrong_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        for _ in range(100):
            peer.notify("notifications/progress", progressToken=[], progress="x")
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        await call(client)
        assert client.stats.violations == 100

    with caplog.at_level(logging.DEBUG, "mcplumb.client"):
        talk(modern(play), body)
    levels = [record.levelno for record in caplog.records if record.name == "mcplumb.client"]
    # The first and the last tell of the connection.
    assert levels[1:-1] == [logging.WARNING] * 20 + [logging.DEBUG] * 80


def test_notifications_that_mean_nothing_here_are_ignored() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.notify("notifications/x", anything=[1])
        peer.notify("notifications/message", level="info", data="nobody listens")
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        await call(client)
        assert client.stats.violations == 0

    talk(modern(play), body)


# --- metadata and logs ----------------------------------------------------------------------------------------------


@pytest.mark.req("META-1", "META-6")
def test_every_modern_request_carries_its_metadata_and_what_the_caller_adds() -> None:
    async def play(peer: Peer) -> None:
        meta = peer.seen[0]["params"]["_meta"]
        request = await peer.expect("tools/call")
        assert request["params"]["_meta"] == meta
        peer.answer(request, TEXT)
        request = await peer.expect("tools/call")
        assert request["params"]["_meta"] == {**meta, TRACEPARENT: "00-1-2-01"}
        peer.answer(request, TEXT)
        request = await peer.expect("tools/call")
        assert request["params"]["_meta"] == {**meta, TRACEPARENT: "00-1-2-01", "progressToken": request["id"]}
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        mine = {TRACEPARENT: "00-1-2-01"}
        await client.call_tool("x")
        await client.call_tool("x", meta=mine)
        await client.call_tool("x", meta=mine, on_progress=print)
        assert mine == {TRACEPARENT: "00-1-2-01"}

    talk(modern(play), body)


@pytest.mark.req("META-6")
def test_a_legacy_request_carries_only_what_the_caller_adds() -> None:
    async def play(peer: Peer) -> None:
        for meta in (None, {TRACEPARENT: "00-1-2-01"}):
            request = await peer.expect("tools/call")
            assert request["params"].get("_meta") == meta
            peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        await client.call_tool("x")
        await client.call_tool("x", meta={TRACEPARENT: "00-1-2-01"})

    talk_legacy(play, body)


@pytest.mark.req("LEG-4")
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_logs_reach_the_one_who_wants_them(era: str) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        if era == "modern":
            assert request["params"]["_meta"][LOG_LEVEL] == "info"
        peer.notify("notifications/message", level="info", logger="db", data={"rows": 3})
        peer.notify("notifications/message", level="loud", data=None)
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        await call(client)
        assert client.stats.violations == 1

    logs: list[LogMessageParams] = []
    talk_in(era, play, body, on_log=logs.append)
    assert logs == [LogMessageParams("info", {"rows": 3}, logger="db")]


def test_logs_that_came_before_the_end_are_delivered() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        for number in range(10):
            peer.notify("notifications/message", level="info", data=number)
        peer.answer(request, TEXT)

    async def on_log(log: LogMessageParams) -> None:
        await asyncio.sleep(0)
        logs.append(log.data)

    logs: list[Any] = []
    talk(modern(play), call, on_log=on_log)
    assert logs == list(range(10))


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clean", "said"),
    [(True, "The server closed the connection."), (False, "The connection ended in the middle of a message.")],
)
def test_the_end_of_the_stream_is_told_as_it_was(clean: bool, said: str) -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")

    async def body(client: Client) -> None:
        task = asyncio.ensure_future(client.call_tool("x"))
        await turns()
        client._supervisor.session.ended(clean=clean)
        with pytest.raises(RequestLost, match=said):
            await task

    talk(modern(play), body)


def test_the_last_words_of_a_server_that_reads_no_more_are_heard() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        await peer.expect("tools/call")
        await broken.wait()
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        heard, lost = (asyncio.ensure_future(client.call_tool("x")) for _ in range(2))
        await turns()
        session = client._supervisor.session
        session.broke(BrokenPipeError(errno.EPIPE, "Broken pipe"))
        late = asyncio.ensure_future(client.call_tool("x"))
        broken.set()
        assert (await heard).content
        skip(1)
        with pytest.raises(RequestLost, match="The server does not read any more: Broken pipe"):
            await lost
        with pytest.raises(Closed, match=r"not sent: .* The server does not read any more: Broken pipe"):
            await late

    broken = asyncio.Event()
    talk(modern(play), body)


def test_the_end_after_that_is_the_end() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("tools/call")

    async def body(client: Client) -> None:
        task = asyncio.ensure_future(client.call_tool("x"))
        await turns()
        session = client._supervisor.session
        session.broke(OSError("gone"))
        session.ended(clean=True)
        with pytest.raises(RequestLost, match="The server closed the connection"):
            await task

    talk(modern(play), body)


def test_a_server_that_does_not_read_cannot_hold_up_the_end() -> None:
    async def play(peer: Peer) -> None:
        peer.connection.pause()

    async def body(client: Client) -> None:
        task = asyncio.ensure_future(client.call_tool("x", {"much": "x" * 200_000}))
        await turns()
        closing = asyncio.ensure_future(client.close())
        await turns()
        skip(2)
        await turns()
        skip(2)
        await closing
        assert task.done()
        task.exception()

    talk(modern(play, may_be_cancelled=True), body)


# --- everything finds its way ---------------------------------------------------------------------------------------


def test_the_messages_of_a_modern_server_find_their_way() -> None:
    async def play(peer: Peer) -> None:
        listening = await peer.expect("subscriptions/listen")
        request = await peer.expect("tools/call")
        assert request["params"]["_meta"][LOG_LEVEL] == "error"
        peer.tell(listening["id"], "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})
        peer.tell(listening["id"], "notifications/tools/list_changed")
        peer.notify("notifications/cancelled", requestId=listening["id"])
        peer.refuse(request, -1)
        peer.answer(await peer.expect("tools/call"), msgspec.Raw(b"["))

    async def body(client: Client) -> None:
        await client.set_log_level("error")
        changes = client.listen(tools=True)
        entered = asyncio.ensure_future(changes.__aenter__())
        await turns()
        with pytest.raises(RemoteError):
            await client.call_tool("x")
        await entered
        assert [change async for change in changes] == [Change("tools")]
        with pytest.raises(ProtocolError):
            await client.call_tool("x")

    talk(modern(play), body, client_info=None)


def test_the_messages_of_a_legacy_server_find_their_way() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("logging/setLevel"), {})
        request = await peer.expect("tools/call")
        peer.connection.send_batch([Request(1, "ping", {}), Notification("notifications/tools/list_changed", {})])
        assert [answer["id"] for answer in (await peer.next())["batch"]] == [1]
        peer.send(Request(2, "ping", [1]))
        assert "error" in await peer.expect_answer(2)
        peer.ask(3, "sampling/createMessage", messages=[], maxTokens=1)
        await asked.wait()
        peer.notify("notifications/cancelled", requestId=3)
        peer.tell(1, "notifications/subscriptions/acknowledged", notifications={})
        asked.clear()
        peer.ask(4, "sampling/createMessage", messages=[], maxTokens=1)
        await asked.wait()
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        await client.set_log_level("error")
        async with client.listen(tools=True) as changes:
            await call(client)
            assert await anext(changes) == Change("tools")

    async def on_sample(_: object) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    asked = asyncio.Event()
    talk_legacy(play, body, "2025-03-26", on_sample=on_sample)


def test_stats_tell_what_was_seen() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), TEXT)

    async def body(client: Client) -> None:
        await call(client)
        stats = client.stats
        assert (stats.messages_in, stats.messages_out) == (2, 2)
        assert stats.bytes_in > 0
        assert stats.bytes_out > 0
        quiet = (stats.bad_lines, stats.late_answers, stats.unknown_answers, stats.violations, stats.strays)
        assert quiet == (0,) * 5
        assert stats.dropped == 0

    talk(modern(play), body)


def test_a_malformed_answer_in_a_batch_ends_its_call() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        both = {"jsonrpc": "2.0", "id": request["id"], "result": 5, "error": {"code": 1, "message": "x"}}
        peer.connection.send(msgspec.Raw(msgspec.json.encode([both])))  # type: ignore[arg-type]

    async def body(client: Client) -> None:
        with pytest.raises(ProtocolError, match="cannot be read"):
            await client.call_tool("x", timeout=None)

    talk_legacy(play, body, "2025-03-26")

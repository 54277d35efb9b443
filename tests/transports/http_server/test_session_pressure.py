"""A legacy session whose client does not read, whose owner does not, or that ends meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb.transports.http_server.asgi_request import Refusal
from mcplumb.transports.http_server.event_streams import HIGH_WATER
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.legacy_session import LegacySession
from mcplumb.wire.message_decoder import decode_line
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, Result
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, turns
from tests.transports.ends import Recorder
from tests.transports.http_server.staged import Staged

pytestmark = pytest.mark.req("HTP-6")

INITIALIZE = Request(0, "initialize")
OPENED = Result(0, {"protocolVersion": "2025-11-25"})
PING = Notification("notifications/message", {"data": "x"})


class Stage:
    """A session, and its owner, who only keeps what comes."""

    def __init__(self, **options: Any) -> None:
        self.traced: list[tuple[str, bytes]] = []
        trace = lambda way, line: self.traced.append((way, line))  # noqa: E731 - shorter, and typed by its use
        self.session = LegacySession(options=HttpOptions(**options), trace=trace)
        self.owner = Recorder()
        self.tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Stage:
        """Agree upon a revision."""
        self.session.start(self.owner)
        opening = asyncio.create_task(self.session.open(INITIALIZE))
        await turns()
        self.session.send(OPENED)
        assert msgspec.json.decode(await opening)["result"] == OPENED.result
        self.owner.items.clear()
        return self

    def post(self, staged: Staged, message: Message) -> asyncio.Task[None]:
        """Post in a task of its own."""
        task = asyncio.create_task(self.session.post(staged.request, message))
        self.tasks.append(task)
        return task

    def listen(self, staged: Staged, last_event_id: str | None = None) -> asyncio.Task[None]:
        """Listen in a task of its own."""
        task = asyncio.create_task(self.session.listen(staged.request, last_event_id))
        self.tasks.append(task)
        return task


async def test_what_went_over_it() -> None:
    stage = await Stage().open()
    stage.session.send(PING)
    with pytest.raises(Refusal):
        await stage.session.post(Staged().request, decode_line(b'{"jsonrpc":"2.0","id":1,"result":1,"error":1}'))
    stats = stage.session.stats
    assert (stats.messages_in, stats.messages_out, stats.bad_lines) == (1, 2, 1)
    assert stats.bytes_out == sum(len(line) for way, line in stage.traced if way == "out")


# Back pressure


async def test_one_stream_that_is_not_read_clogs_the_session_until_it_is() -> None:
    stage = await Stage().open()
    slow, quick = Staged(), Staged(method="GET")
    slow.reads.clear()
    stage.post(slow, Request(1, "tools/call"))
    stage.listen(quick)
    await turns()
    large = Notification("notifications/message", {"data": "x" * (HIGH_WATER // 2)})
    for _ in range(2):
        assert not stage.session.is_clogged
        stage.session.send(large, 1)
    assert stage.session.is_clogged
    waiting = asyncio.create_task(stage.session.drained())
    await turns()
    assert not waiting.done()
    assert stage.session.is_clogged
    slow.reads.set()
    await waiting
    assert not stage.session.is_clogged
    await turns()
    assert len(slow.events) == 3
    stage.session.abort()


async def test_a_clogged_stream_that_breaks_clogs_nothing_any_more() -> None:
    stage = await Stage().open()
    slow = Staged()
    slow.reads.clear()
    task = stage.post(slow, Request(1, "tools/call"))
    await turns()
    stage.session.send(Notification("n", {"data": "x" * 2 * HIGH_WATER}), 1)
    assert stage.session.is_clogged
    await turns()
    slow.leave()
    await stage.session.drained()
    await task
    assert not stage.session.is_clogged


async def test_what_is_posted_waits_while_nothing_is_wanted() -> None:
    stage = await Stage().open()
    stage.session.pause()
    first, second = Staged(), Staged()
    tasks = [stage.post(first, Notification("first")), stage.post(second, Notification("second"))]
    await turns()
    assert stage.owner.items == []
    assert first.status is None
    stage.session.resume()
    stage.session.pause()
    await turns()
    assert stage.owner.items == []
    stage.session.resume()
    await asyncio.gather(*tasks)
    assert [item.method for item in stage.owner.items if isinstance(item, Notification)] == ["first", "second"]
    assert (first.status, second.status) == (202, 202)


async def test_only_so_much_waits() -> None:
    stage = await Stage(max_streams=3).open()
    stage.session.pause()
    waiting = [stage.post(Staged(), Notification("n")) for _ in range(3)]
    await turns()
    with pytest.raises(Refusal) as refused:
        await stage.session.post(Staged().request, Notification("n"))
    assert refused.value.status == 503
    stage.session.resume()
    await asyncio.gather(*waiting)
    assert len(stage.owner.items) == 3


async def test_whoever_gives_up_waiting_has_posted_nothing() -> None:
    stage = await Stage().open()
    stage.session.pause()
    task = stage.post(Staged(), Request("x", "tools/call"))
    await turns()
    task.cancel()
    await turns()
    stage.session.resume()
    staged = Staged()
    task = stage.post(staged, Request("x", "tools/call"))
    await turns()
    assert len(stage.owner.items) == 1
    stage.session.send(Result("x", {}))
    await task
    assert staged.status == 200


# Requests whose HTTP request is gone


async def test_a_request_whose_task_is_cancelled_goes_on() -> None:
    stage = await Stage().open()
    task = stage.post(Staged(), Request("x", "tools/call"))
    await turns()
    task.cancel()
    await turns()
    # What is said before the answer has no stream of its own any more.
    stage.session.send(PING, "x")
    stage.session.send(Result("x", {}))
    listener = Staged(method="GET")
    stage.listen(listener)
    await turns()
    assert [event.data for event in listener.events] == [
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"x"}}'
    ]
    stage.session.abort()


async def test_a_stream_whose_task_is_cancelled_can_be_resumed() -> None:
    stage = await Stage().open()
    staged = Staged()
    task = stage.post(staged, Request("x", "tools/call"))
    await turns()
    stage.session.send(PING, "x")
    await turns()
    task.cancel()
    await turns()
    stage.session.send(Result("x", {}))
    again = Staged(method="GET")
    await stage.session.listen(again.request, staged.events[-1].id)
    assert [event.data for event in again.events] == [b'{"jsonrpc":"2.0","id":"x","result":{}}']
    assert again.is_complete


async def test_what_is_sent_for_no_request_that_is_open_is_not_an_answer_to_one() -> None:
    stage = await Stage().open()
    stage.session.send(Result("unknown", {}))
    stage.session.send(Error(msgspec.UNSET, ErrorDetail(-32600, "who?")))
    stage.session.send_batch([Result("unknown", {})])
    stage.session.release("unknown", 1.0)
    listener = Staged(method="GET")
    stage.listen(listener)
    await turns()
    assert [event.data for event in listener.events] == [b""]
    stage.session.abort()


# Idleness


async def test_a_session_is_idle_when_nothing_is_going_on() -> None:
    stage = await Stage().open()
    expired = asyncio.Event()
    listener, posted = Staged(method="GET"), Staged()
    stage.listen(listener)
    task = stage.post(posted, Request("x", "tools/call"))
    await turns()
    stage.session.expire_after(0.01, expired.set, confirmed_within=PATIENCE)
    skip(0.1)
    await turns()
    listener.leave()
    skip(0.1)
    await turns()
    task.cancel()
    skip(0.1)
    await turns()
    assert not expired.is_set()
    stage.session.send(Result("x", {}))
    await expired.wait()


async def test_a_session_that_is_not_confirmed_expires_earlier() -> None:
    stage = await Stage().open()
    expired = asyncio.Event()
    stage.session.expire_after(PATIENCE, expired.set, confirmed_within=0.01)
    await expired.wait()
    expired.clear()
    for notification in (
        Notification("notifications/roots/list_changed"),
        Notification("notifications/initialized"),
    ):
        assert not stage.session.is_confirmed
        await stage.post(Staged(), notification)
    assert stage.session.is_confirmed
    stage.session.expire_after(PATIENCE, expired.set, confirmed_within=0.01)
    skip(0.1)
    await turns()
    assert not expired.is_set()


async def test_a_session_that_is_closed_does_not_expire() -> None:
    stage = await Stage().open()
    expired = asyncio.Event()
    stage.session.expire_after(0.01, expired.set, confirmed_within=PATIENCE)
    stage.session.abort()
    skip(0.1)
    await turns()
    stage.session.expire_after(0.01, expired.set, confirmed_within=PATIENCE)
    skip(0.1)
    await turns()
    assert not expired.is_set()


# The end


async def test_hanging_up_before_the_start_is_told_after_it() -> None:
    stage = Stage()
    stage.session.hang_up()
    stage.session.hang_up()
    stage.session.pause()
    stage.session.start(stage.owner)
    assert stage.owner.ends == []
    await turns()
    assert stage.owner.ends == [True]
    with pytest.raises(Refusal) as refused:
        await stage.session.post(Staged().request, PING)
    assert refused.value.status == 404


async def test_hanging_up_is_not_told_to_whoever_has_closed() -> None:
    stage = await Stage().open()
    stage.session.hang_up()
    await stage.session.close()
    await turns()
    assert stage.owner.ends == []


async def test_what_waits_to_be_received_when_the_session_ends() -> None:
    stage = await Stage().open()
    stage.session.pause()
    task = stage.post(Staged(), Request("x", "tools/call"))
    await turns()
    stage.session.hang_up()
    with pytest.raises(Refusal) as refused:
        await task
    assert refused.value.status == 404
    await turns()
    assert stage.owner.items == []
    assert stage.owner.ends == [True]


async def test_closing_waits_until_the_client_has_read_everything() -> None:
    stage = await Stage().open()
    plain, streamed, listener = Staged(), Staged(), Staged(method="GET")
    for staged in (plain, streamed, listener):
        staged.reads.clear()
    stage.post(plain, Request("plain", "tools/call"))
    stage.post(streamed, Request("streamed", "tools/call"))
    stage.listen(listener)
    await turns()
    stage.session.send(Result("plain", {}))
    stage.session.send(PING, "streamed")
    stage.session.send(PING)
    closing = [asyncio.create_task(stage.session.close()) for _ in range(2)]
    await turns()
    for staged in (plain, streamed, listener):
        assert not any(task.done() for task in closing)
        staged.reads.set()
        await turns()
    await asyncio.gather(*closing)
    assert all(staged.is_complete for staged in (plain, streamed, listener))
    assert len(listener.events) == len(streamed.events) == 2
    stage.session.send(PING)
    stage.session.send_batch([PING])
    await stage.session.close()


async def test_a_request_that_will_not_be_answered() -> None:
    stage = await Stage().open()
    task = stage.post(Staged(), Request("x", "tools/call"))
    await turns()
    await stage.session.close()
    with pytest.raises(Refusal) as refused:
        await task
    assert refused.value.status == 404


async def test_closing_that_is_cancelled_aborts() -> None:
    stage = await Stage().open()
    staged = Staged()
    staged.reads.clear()
    task = stage.post(staged, Request("x", "tools/call"))
    await turns()
    stage.session.send(PING, "x")
    closing = asyncio.create_task(stage.session.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await task
    assert not staged.is_complete


async def test_an_initialize_that_gets_no_answer() -> None:
    stage = Stage()
    stage.session.start(stage.owner)
    opening = asyncio.create_task(stage.session.open(INITIALIZE))
    await turns()
    # Nothing about it goes anywhere before the client has its session.
    stage.session.send(PING, 0)
    stage.session.release(0, 1.0)
    stage.session.abort()
    with pytest.raises(Refusal) as refused:
        await opening
    assert refused.value.status == 404
    assert stage.session.revision is None

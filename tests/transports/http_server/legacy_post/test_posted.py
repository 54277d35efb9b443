"""The incoming half of connections whose messages are posted."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.transports.http_server.legacy_post import PostedConnection, busy, check_reads_events, session_over
from mcplumb.transports.http_server.request import Refusal
from mcplumb.wire.decode import BadMessage
from mcplumb.wire.messages import Message, Notification, Request
from tests.kit.loop import turns
from tests.transports.ends import Recorder
from tests.transports.http_server.staged import Staged

pytestmark = pytest.mark.req("HTP-6", "SSE-1")

NOTE = Notification("n")


class Half(PostedConnection):
    """What a whole connection does with its incoming half."""

    def send(self, *messages: Message, is_batch: bool = False) -> bytes:
        return self._written(*messages, is_batch=is_batch)

    def shut(self) -> None:
        self._shut()


async def test_messages_are_received_when_they_are_wanted() -> None:
    half, owner = Half(max_held=2, trace=None), Recorder()
    half.pause()
    early = [asyncio.create_task(half.deliver(NOTE)) for _ in range(2)]
    await turns()
    with pytest.raises(Refusal) as refused:
        await half.deliver(NOTE)
    assert refused.value.status == 503
    half.start(owner)
    half.pause()
    await turns()
    assert owner.items == []
    half.resume()
    await asyncio.gather(*early)
    assert owner.items == [NOTE, NOTE]
    await half.deliver(BadMessage("bad", -32600))
    assert half.stats.messages_in == 2
    assert half.stats.bad_lines == 1


async def test_waiting_that_is_cancelled_makes_room() -> None:
    half, owner = Half(max_held=1, trace=None), Recorder()
    waiting = asyncio.create_task(half.deliver(NOTE))
    await turns()
    waiting.cancel()
    await turns()
    waiting = asyncio.create_task(half.deliver(NOTE))
    await turns()
    half.start(owner)
    await waiting
    assert owner.items == [NOTE]


@pytest.mark.parametrize("has_started", [False, True])
async def test_hanging_up_is_told_once_and_nothing_comes_after_it(has_started: bool) -> None:
    half, owner = Half(max_held=1, trace=None), Recorder()
    if has_started:
        half.start(owner)
        half.pause()
    waiting = asyncio.create_task(half.deliver(NOTE))
    await turns()
    half.hang_up()
    half.hang_up()
    half.pause()
    assert owner.ends == []
    if not has_started:
        half.start(owner)
    with pytest.raises(Refusal) as refused:
        await waiting
    assert refused.value.status == 404
    await turns()
    assert owner.ends == [True]
    with pytest.raises(Refusal):
        await half.deliver(NOTE)
    assert owner.items == []


async def test_a_closed_one_tells_nothing() -> None:
    half, owner = Half(max_held=1, trace=None), Recorder()
    half.start(owner)
    half.hang_up()
    half.shut()
    half.hang_up()
    await turns()
    assert owner.ends == []
    with pytest.raises(Refusal):
        await half.deliver(NOTE)


async def test_what_goes_out_is_counted_and_shown() -> None:
    shown: list[tuple[str, bytes]] = []
    half = Half(max_held=1, trace=lambda way, line: shown.append((way, line)))
    lines = [half.send(NOTE), half.send(Request(1, "a"), NOTE, is_batch=True)]
    assert lines[0] == b'{"jsonrpc":"2.0","method":"n"}'
    assert lines[1] == b'[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"}]'
    assert shown == [("out", line) for line in lines]
    assert half.stats.messages_out == 2
    assert half.stats.bytes_out == sum(map(len, lines))
    Half(max_held=1, trace=None).send(NOTE)


async def test_refusals() -> None:
    assert session_over().status == 404
    refusal = busy("Later.", seconds=3, request_id=5)
    assert (refusal.status, refusal.request_id, refusal.headers) == (503, 5, ((b"retry-after", b"3"),))

    check_reads_events(Staged(accept="text/event-stream").request)
    with pytest.raises(Refusal) as refused:
        check_reads_events(Staged(accept="application/json").request)
    assert refused.value.status == 406

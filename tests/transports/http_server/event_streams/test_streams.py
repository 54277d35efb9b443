"""Responses that are streams of events."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.transports.http_server.event_streams import HIGH_WATER, EventStream
from tests.client.peers import LOOPS, skip
from tests.kit.loop import run, turns
from tests.transports.http_server.asgi import Asgi, turn

FOREVER = 1000.0


def _stream(asgi: Asgi, *, keep_alive: float = FOREVER, write_within: float = FOREVER) -> tuple[EventStream, list[str]]:
    told: list[str] = []
    stream = EventStream(
        asgi.request,
        keep_alive=keep_alive,
        write_within=write_within,
        gone=lambda: told.append("gone"),
        headers=[(b"x-a", b"b")],
    )
    return stream, told


async def test_it_begins_with_the_first_event_and_ends_with_the_last() -> None:
    asgi = Asgi()
    stream, told = _stream(asgi)
    await turn()
    assert asgi.sent == []
    stream.put(b"data: 1\n\n")
    await turn()
    assert asgi.sent[0]["status"] == 200
    headers = dict(asgi.sent[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream"
    assert headers[b"x-accel-buffering"] == b"no"
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-a"] == b"b"
    stream.put(b"data: 2\n\n")
    stream.put(b"data: 3\n\n")
    stream.end()
    stream.put(b"data: too late\n\n")
    stream.end()
    await stream.finished()
    assert asgi.body == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
    assert [event["more_body"] for event in asgi.sent[1:]] == [True, False]
    assert stream.is_over
    assert told == []
    stream.put(b"data: much too late\n\n")
    stream.abort()
    await turn()
    assert len(asgi.sent) == 3


@pytest.mark.parametrize("eager", LOOPS)
def test_each_event_is_written_when_it_comes(eager: bool) -> None:
    async def main() -> None:
        asgi = Asgi()
        stream, told = _stream(asgi)
        stream.begin()
        for number in range(3):
            await turn()
            assert len(asgi.sent) == 1 + number
            stream.put(b"data: %d\n\n" % number)
        stream.end()
        await stream.finished()
        assert asgi.body == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
        assert told == []

    run(main(), eager=eager)


async def test_it_can_begin_and_end_without_an_event() -> None:
    asgi = Asgi()
    stream, _ = _stream(asgi)
    stream.begin()
    await turn()
    assert [event["type"] for event in asgi.sent] == ["http.response.start"]
    stream.end()
    await stream.finished()
    assert asgi.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.req("HTP-8")
async def test_silence_is_filled_with_comments() -> None:
    asgi = Asgi()
    stream, _ = _stream(asgi, keep_alive=0.001)
    while asgi.body.count(b":") < 3:
        await asgi.sends()
    stream.put(b"data: 1\n\n")
    stream.end()
    await stream.finished()
    lines = asgi.body.split(b"\n")
    assert {line for line in lines if line} == {b": ", b"data: 1"}


async def test_no_comments_are_written_while_events_are() -> None:
    asgi = Asgi()
    stream, _ = _stream(asgi, keep_alive=0.001)
    asgi.gate.clear()
    stream.put(b"data: 1\n\n")
    for _ in range(3):
        skip(0.05)
        await turns()
    assert stream._queued == len(b"data: 1\n\n")
    asgi.gate.set()
    stream.end()
    await stream.finished()


async def test_a_client_that_leaves_ends_it() -> None:
    asgi = Asgi()
    stream, told = _stream(asgi)
    stream.put(b"data: 1\n\n")
    await turn()
    asgi.left.set()
    await stream.finished()
    assert told == ["gone"]
    assert stream.is_over
    stream.end()
    await turn()
    assert asgi.body == b"data: 1\n\n"


def test_a_server_that_cannot_send_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for error in (BrokenPipeError(), RuntimeError("not now")):
            asgi = Asgi()
            asgi.error = error
            stream, told = _stream(asgi)
            stream.put(b"data: 1\n\n")
            await stream.finished()
            assert told == ["gone"]

    asyncio.run(main())
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "not now" in caplog.text


async def test_who_ended_it_is_not_told_that_the_client_has_left() -> None:
    asgi = Asgi()
    asgi.gate.clear()
    stream, told = _stream(asgi)
    stream.put(b"data: 1\n\n")
    stream.end()
    await turn()
    asgi.left.set()
    await stream.finished()
    assert told == []


async def test_a_client_that_reads_nothing_for_long_ends_it() -> None:
    asgi = Asgi()
    asgi.gate.clear()
    stream, told = _stream(asgi, keep_alive=0.01, write_within=0.02)
    stream.put(b"data: 1\n\n")
    async with asyncio.timeout(60):
        await stream.finished()
    assert told == ["gone"]


async def test_it_is_clogged_by_what_waits() -> None:
    asgi = Asgi()
    asgi.gate.clear()
    stream, _ = _stream(asgi)
    stream.put(b"x" * HIGH_WATER)
    assert not stream.is_clogged
    await stream.drained()
    stream.put(b"x")
    assert stream.is_clogged
    waiting = [asyncio.create_task(stream.drained()) for _ in range(3)]
    await turn()
    assert not any(task.done() for task in waiting)
    waiting[0].cancel()
    asgi.gate.set()
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, False, False]
    assert not stream.is_clogged
    stream.abort()


async def test_at_the_end_nobody_waits_for_the_client_any_more() -> None:
    asgi = Asgi()
    asgi.gate.clear()
    stream, _ = _stream(asgi)
    stream.put(b"x" * (HIGH_WATER + 1))
    waiting = asyncio.create_task(stream.drained())
    await turn()
    stream.end()
    await waiting
    asgi.gate.set()
    await stream.finished()
    assert len(asgi.body) == HIGH_WATER + 1


async def test_to_give_up_frees_those_who_wait_and_forgets_what_waits() -> None:
    asgi = Asgi()
    asgi.gate.clear()
    stream, told = _stream(asgi)
    stream.put(b"x" * (HIGH_WATER + 1))
    waiting = asyncio.create_task(stream.drained())
    await turn()
    stream.abort()
    await waiting
    await stream.finished()
    asgi.gate.set()
    await turn()
    assert asgi.sent == []
    assert told == []


async def test_to_wait_for_the_end_can_be_given_up() -> None:
    stream, _ = _stream(Asgi())
    waiting = asyncio.create_task(stream.finished())
    await turn()
    waiting.cancel()
    await turn()
    stream.end()
    await stream.finished()

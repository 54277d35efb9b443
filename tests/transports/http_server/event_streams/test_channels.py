"""The streams of a session, and the responses that carry them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.transports.http_server.event_streams import HIGH_WATER, Channels, EventStream
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.wire.server_sent_events import Event
from tests.kit.loop import turns
from tests.transports.http_server.staged import Staged

pytestmark = pytest.mark.req("HTP-6")


def make(*, primes: bool = False, **options: Any) -> Channels:
    channels = Channels(HttpOptions(**options))
    channels.has_priming_events = primes
    return channels


def data(staged: Staged) -> list[bytes]:
    return [event.data for event in staged.events]


def last(staged: Staged) -> Event:
    return staged.events[-1]


async def finished(channels: Channels, *responses: EventStream) -> None:
    for response in responses:
        await channels.finish(response)


async def test_what_is_said_is_written_while_a_response_carries_it() -> None:
    channels, staged = make(), Staged()
    channel = channels.open()
    assert channels.get(channel.number) is channel
    assert channel.response is None
    response = channel.begin(staged.request)
    assert channel.response is response
    channel.put(b"1")
    channel.put(b"2")
    channels.close(channel)
    await channels.finish(response)
    assert data(staged) == [b"1", b"2"]
    assert staged.is_complete
    assert channel.response is None
    with pytest.raises(KeyError):
        channels.get(channel.number)


async def test_what_is_said_without_a_response_is_written_by_the_next_and_only_that_one() -> None:
    channels, first, second = make(primes=True), Staged(), Staged()
    channel = channels.open()
    channel.put(b"1")
    response = channel.begin(first.request)
    channel.put(b"2")
    await turns()
    first.leave()
    await channels.finish(response)
    assert channel.response is None
    channel.put(b"3")
    response = channel.begin(second.request)
    await turns()
    assert data(first) == [b"1", b"2"]
    assert data(second) == [b"3"]
    response.abort()


@pytest.mark.parametrize("primes", [False, True])
async def test_a_response_with_nothing_to_say_yet(primes: bool) -> None:
    channels, first, second = make(primes=primes), Staged(), Staged()
    channel = channels.open()
    former = channel.begin(first.request)
    await turns()
    assert first.status == 200
    assert data(first) == ([b""] if primes else [])
    place = last(first).id if primes else "1-0"
    assert place
    response = channel.resume(second.request, place, [])
    await channels.finish(former)
    assert first.is_complete
    await turns()
    assert [(event.id, event.data) for event in second.events] == ([(place, b"")] if primes else [])
    response.abort()


async def test_resuming_begins_with_what_was_missed() -> None:
    channels, first, second = make(primes=True), Staged(), Staged()
    channel = channels.open()
    response = channel.begin(first.request)
    channel.put(b"1")
    await turns()
    first.leave()
    await channels.finish(response)
    channel.put(b"2")
    replay = channels.store.after(last(first).id or "")
    assert replay is not None
    response = channel.resume(second.request, last(first).id or "", replay.events)
    channel.put(b"3")
    channels.close(channel)
    await channels.finish(response)
    assert data(second) == [b"2", b"3"]


async def test_releasing_ends_the_response_and_not_the_channel() -> None:
    channels, staged = make(primes=True), Staged()
    channel = channels.open()
    channel.release(5)
    response = channel.begin(staged.request)
    channel.release(1500)
    assert channel.response is None
    await channels.finish(response)
    assert staged.is_complete
    assert last(staged).retry == 1500
    assert channels.get(channel.number) is channel
    channels.close(channel)


async def test_clogged_by_one_of_several() -> None:
    channels, slow, quick = make(), Staged(), Staged()
    slow.reads.clear()
    responses = [channels.open().begin(slow.request), channels.open().begin(quick.request)]
    channels.put(responses[1], b": x\n\n")
    await turns()
    assert not channels.is_clogged
    await channels.drained()
    channels.put(responses[0], b": %b\n\n" % (b"x" * HIGH_WATER))
    assert channels.is_clogged
    draining = asyncio.create_task(channels.drained())
    await turns()
    assert not draining.done()
    slow.reads.set()
    await draining
    assert not channels.is_clogged
    channels.end_all()
    await finished(channels, *responses)
    assert slow.is_complete
    assert quick.is_complete


async def test_aborting_ends_responses_at_once() -> None:
    channels, staged = make(), Staged()
    staged.reads.clear()
    channel = channels.open()
    response = channel.begin(staged.request)
    channel.put(b"1")
    channels.abort_all()
    await channels.finish(response)
    assert not staged.is_complete
    assert channel.response is None

"""What waits while the shared store is away: bounded in number and in bytes, and written in order when it is back.

That streams go on at other replicas is tested with processes, in `tests/replicas`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mcplumb import HttpOptions
from mcplumb.errors import StoreUnavailable
from mcplumb.stores import replica as replica_module
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.stores.replica import KEY_BITS, Replica
from mcplumb.transports.http_server import shared_streams
from mcplumb.transports.http_server.asgi_request import Refusal
from mcplumb.transports.http_server.shared_streams import GetStream, SharedChannels, StreamLogs
from tests.client.peers import LOOPS
from tests.kit.loop import run, turns, until
from tests.transports.http_server.staged import Staged


class Away(MemoryStore):
    is_away = True

    async def append(self, key: str, value: bytes, **options: Any) -> int | None:
        if self.is_away:
            raise StoreUnavailable("It is away.")
        return await super().append(key, value, **options)

    async def put(self, key: str, value: bytes, **options: Any) -> int | None:
        if self.is_away:
            raise StoreUnavailable("It is away.")
        return await super().put(key, value, **options)


@asynccontextmanager
async def logs_in(store: MemoryStore, **options: Any) -> AsyncIterator[StreamLogs]:
    replica = Replica(store)
    await replica.open()
    logs = StreamLogs(replica, HttpOptions(**options))
    try:
        yield logs
    finally:
        await logs.close(0.1)
        await replica.close()


@pytest.mark.req("SCL-4")
async def test_messages_of_a_session_wait_in_order_and_the_oldest_give_way(caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    async with logs_in(store, max_events=3, max_event_bytes=100) as logs:
        session: Any = SimpleNamespace(session_id="s", record=SimpleNamespace(carrier=None))
        stream = GetStream(session, logs)
        for number in range(10):
            stream.put(b"message %d" % number)
            await turns(3)
        stream.put(b"x" * 101)  # drops itself only
        store.is_away = False
        await until(lambda: stream._writing is not None and stream._writing.done())
        kept = [entry.value for entry in await store.read("s/messages", after=0)]
        assert [value[-9:] for value in kept] == [b"message %d" % number for number in (7, 8, 9)]
    texts = [each.getMessage() for each in caplog.records if each.name == "mcplumb.http"]
    assert texts == [
        "A message of 101 bytes to a client was dropped: see max_event_bytes.",
        "7 messages to a client were dropped: too many waited for the store.",
    ]


@pytest.mark.req("SCL-4")
async def test_the_events_of_a_stream_wait_within_their_bytes() -> None:
    store = Away()
    async with logs_in(store, max_events=1000, max_event_bytes=100) as logs:
        channels = SharedChannels(logs.options, logs)
        channels.session_id = "s"
        channel = channels.open((1,))
        for number in range(50):
            channel.put(b"a message of 20 bytes"[:18] + b"%02d" % number)
            await turns(3)
        assert sum(len(entry.value) for entry in channel._waiting) <= 100
        store.is_away = False
        await until(channel._writing.done)
        kept = await store.read(f"s/stream-{channel.number}", after=0)
        # The positions show that the ones before are missing.
        assert [(entry.position, entry.value[-2:]) for entry in kept] == [(n + 1, b"%02d" % n) for n in range(46, 50)]
        channels.close(channel)
        await asyncio.sleep(0)


def channels_of(logs: StreamLogs) -> SharedChannels:
    channels = SharedChannels(logs.options, logs)
    channels.session_id = "s"
    return channels


@pytest.mark.req("SCL-3")
@pytest.mark.parametrize("eager", LOOPS)
def test_everything_reaches_a_store_that_answers_at_once(eager: bool) -> None:
    """On a loop with eager tasks, the task that writes may then end before it is known."""

    async def main() -> None:
        store = MemoryStore()
        async with logs_in(store) as logs:
            channel = channels_of(logs).open((1,))
            session: Any = SimpleNamespace(session_id="s", record=SimpleNamespace(carrier=None))
            stream = GetStream(session, logs)
            for number in range(3):
                await turns()
                channel.put(b"%d" % number)
                stream.put(b"%d" % number)
            await turns()
            for log in (f"s/stream-{channel.number}", "s/messages"):
                kept = [entry.value[-1:] for entry in await store.read(log, after=0)]
                assert kept == [b"0", b"1", b"2"]

    run(main(), eager=eager)


@pytest.mark.req("SCL-3", "SCL-4")
async def test_a_stream_that_ends_while_the_store_is_away_can_be_resumed_later() -> None:
    store = Away()
    async with logs_in(store) as logs, logs_in(store) as others:
        channels = channels_of(logs)
        channel = channels.open((1,))
        channel.put(b'{"method":"progress"}')
        await turns()  # the first attempt to write has failed
        channel.put(b'{"id":1}', is_last=True)
        channels.close(channel)
        await turns()
        assert channels.owns(channel.number)
        store.is_away = False
        await until(lambda: not channels.owns(channel.number))
        staged = Staged(method="GET")
        response = await channels_of(others).resume(staged.request, channel.number, 1)
        assert response is not None
        await response.finished()
        assert [event.data for event in staged.events] == [b'{"id":1}']


@pytest.mark.req("SCL-3")
async def test_a_lost_call_is_reported_when_its_stream_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, if the owner was missed before: the next connection of the client, or its replica, may not live long."""
    monkeypatch.setattr(shared_streams, "_LOOK_AGAIN", 3600.0)
    monkeypatch.setattr(replica_module, "_BACK_WITHIN", 0.0)
    store = MemoryStore()
    number = (7 << KEY_BITS) | (1 << 12)
    header = shared_streams._encode(shared_streams._Header((1,), is_batch=False))
    await store.put(f"s/header-{number}", header, version=0, ttl=60)
    await store.append(f"s/stream-{number}", b'm{"method":"progress"}', ttl=60, most=100, at=1)
    async with logs_in(store) as logs:  # its replica ends before it looks again
        assert await channels_of(logs).resume(Staged(method="GET").request, number, 1) is not None
    async with logs_in(store) as logs:
        staged = Staged(method="GET")
        response = await channels_of(logs).resume(staged.request, number, 1)
        assert response is not None
        await response.finished()
        (event,) = staged.events
        assert b'"id":1' in event.data
        assert b"is unknown" in event.data


async def test_a_refused_resumption_leaves_nothing() -> None:
    async with logs_in(MemoryStore()) as logs:
        channels = channels_of(logs)
        for number in range(3):
            with pytest.raises(Refusal):
                await channels.resume(Staged(method="GET").request, (7 << KEY_BITS) | number, 0)
        assert channels.carried == {}


@pytest.mark.req("SCL-3", "SCL-4")
async def test_a_response_begins_when_the_store_knows_its_stream() -> None:
    """Otherwise the client could not resume it if this replica was killed now."""
    store = Away()
    async with logs_in(store) as logs:
        channels = channels_of(logs)
        channel = channels.open((1,))
        staged = Staged()
        response = channel.begin(staged.request)
        channel.put(b'{"method":"progress"}')
        await turns()
        assert not staged.answered.is_set()
        store.is_away = False
        await until(staged.answered.is_set)
        assert await store.get(f"s/header-{channel.number}") is not None
        channel.put(b'{"id":1}', is_last=True)
        channels.close(channel)
        await channels.finish(response)
        assert [event.data for event in staged.events] == [b'{"method":"progress"}', b'{"id":1}']


@pytest.mark.req("SCL-4")
async def test_a_response_does_not_wait_for_ever_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_streams, "_BEGIN_WITHIN", 0.01)
    async with logs_in(Away()) as logs:
        channels = channels_of(logs)
        channel = channels.open((1,))
        staged = Staged()
        response = channel.begin(staged.request)
        channel.put(b'{"id":1}', is_last=True)
        channels.close(channel)
        await channels.finish(response)
        assert [event.data for event in staged.events] == [b'{"id":1}']

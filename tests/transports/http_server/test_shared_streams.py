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
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.stores.replica import Replica
from mcplumb.transports.http_server.shared_streams import GetStream, SharedChannels, StreamLogs
from tests.kit.loop import turns, until


class Away(MemoryStore):
    is_away = True

    async def append(self, key: str, value: bytes, **options: Any) -> int | None:
        if self.is_away:
            raise StoreUnavailable("It is away.")
        return await super().append(key, value, **options)


@asynccontextmanager
async def logs_in(store: Away, **options: Any) -> AsyncIterator[StreamLogs]:
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
        await until(lambda: stream._writing is None)
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
        await until(lambda: channel._writing is None)
        kept = await store.read(f"s/stream-{channel.number}", after=0)
        # The positions show that the ones before are missing.
        assert [(entry.position, entry.value[-2:]) for entry in kept] == [(n + 1, b"%02d" % n) for n in range(46, 50)]
        channels.close(channel)
        await asyncio.sleep(0)

"""HTTP+SSE at replicas: messages that are posted to another one than that with the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcplumb.errors import StoreUnavailable
from mcplumb.stores import replica
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.transports.http_server import sse_session as module
from tests.kit.loop import PATIENCE, until
from tests.kit.results import text_of
from tests.transports.http_server.test_sse_session import Guest
from tests.transports.http_server.visits import Site, serving
from tests.transports.http_server.workshop import Workshop

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}


class Unsteady(MemoryStore):
    """A store that loses messages for replicas, or is away for some of them."""

    #: What is in the messages that it loses, although it has confirmed them.
    loses: bytes | None = None
    #: What is in the next message that it does not take.
    refuses: bytes | None = None
    #: What is in the next message that it takes, although it says otherwise.
    hides: bytes | None = None
    #: What is in the next message whose log it has lost.
    forgets: bytes | None = None
    keeps_all = False

    async def append(self, key: str, value: bytes, **options: Any) -> int | None:
        if self.loses is not None and self.loses in value:
            return 1
        if self.refuses is not None and self.refuses in value:
            self.refuses = None
            raise StoreUnavailable("It is away.")
        if self.forgets is not None and self.forgets in value:
            self.forgets = None
            await super().remove(key)
        position = await super().append(key, value, **options)
        if self.hides is not None and self.hides in value:
            self.hides = None
            raise StoreUnavailable("It is away.")
        return position

    async def remove(self, key: str) -> bool:
        if self.keeps_all:
            raise StoreUnavailable("It is away.")
        return await super().remove(key)


@asynccontextmanager
async def two(store: MemoryStore, workshop: Workshop | None = None, **options: Any) -> AsyncIterator[tuple[Site, Site]]:
    """Two replicas: the clients of the tests have their streams at the first, and post to the second."""
    workshop = workshop or Workshop()
    async with (
        serving(workshop.server, shared=store, **options) as first,
        serving(Workshop().server, shared=store, **options) as second,
    ):
        yield first, second


async def arrive(sites: tuple[Site, Site], revision: str = "2024-11-05", **capabilities: Any) -> Guest:
    guest = await Guest(sites[0]).open(revision, **capabilities)
    guest.site = sites[1]
    return guest


@pytest.mark.req("SCL-1", "SSE-1")
async def test_a_second_request_with_the_id_of_an_open_one_gets_no_answer_on_the_stream() -> None:
    """The client would take it for the answer to the first one."""
    workshop = Workshop()
    async with two(MemoryStore(), workshop) as sites:
        guest = await arrive(sites)
        await guest.call("wait", 1, gate="a")
        await workshop.at("a")
        refused = await guest.send(PING)
        assert refused.status == 400
        body = await refused.json()
        assert body["id"] == 1
        assert "another one that has not been answered" in body["error"]["message"]
        workshop.gates["a"].set()
        assert text_of(await guest.stream.message()) == "a is open"
        assert (await guest.ask(PING))["result"] == {}


@pytest.mark.req("SCL-1")
@pytest.mark.parametrize("is_batch", [False, True])
async def test_requests_beyond_the_limit_are_refused(*, is_batch: bool) -> None:
    workshop = Workshop()
    async with two(MemoryStore(), workshop, max_streams=1) as sites:
        guest = await arrive(sites, "2025-03-26")
        await guest.call("wait", 7, gate="a")
        await workshop.at("a")
        refused = await guest.send([PING, NOTE] if is_batch else PING)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "too many open requests" in (await refused.json())["error"]["message"]
        workshop.gates["a"].set()
        assert text_of(await guest.stream.message()) == "a is open"


@pytest.mark.req("SCL-1")
async def test_messages_wait_while_nothing_is_wanted_but_only_so_many() -> None:
    async with two(MemoryStore(), max_streams=1) as sites:
        guest = await arrive(sites)
        (connection,) = sites[0].app._sse_sessions._table.serving
        connection.pause()
        await guest.post(PING)  # accepted, although it waits
        refused = await guest.send(NOTE)
        assert refused.status == 503
        connection.resume()
        assert (await guest.stream.message())["result"] == {}
        await guest.post(NOTE)


@pytest.mark.req("SCL-3")
async def test_a_message_that_the_store_has_lost_is_reported_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Redis restarts without its last second, or the replica with the stream was killed before it read it."""
    store = Unsteady()
    async with two(store) as sites:
        guest = await arrive(sites)
        monkeypatch.setattr(module, "_CONFIRM_WITHIN", 0.05)
        store.loses = b'"ping"'
        lost = await guest.send(PING)
        assert lost.status == 504
        assert b"unknown" in await lost.body()


@pytest.mark.req("SCL-3", "SCL-4")
async def test_a_message_that_may_have_reached_the_store_is_not_said_to_be_refused() -> None:
    """The client would send it again, and both would take effect."""
    store = Unsteady()
    async with two(store) as sites:
        guest = await arrive(sites)
        store.hides = b'"ping"'
        lost = await guest.send(PING)
        assert lost.status == 504
        assert await lost.body() == b"It is away. Whether the message was accepted is unknown.\n"
        assert (await guest.stream.message())["result"] == {}


@pytest.mark.req("SCL-4")
async def test_a_message_for_a_replica_that_does_not_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(MemoryStore()) as sites:
        guest = await arrive(sites)
        monkeypatch.setattr(replica, "_MAX_INBOX", 0)
        refused = await guest.send(PING)
        assert refused.status == 503
        assert "does not read" in (await refused.json())["error"]["message"]
        monkeypatch.undo()
        assert (await guest.ask(PING))["result"] == {}


@pytest.mark.req("SCL-4")
async def test_a_message_is_confirmed_after_an_outage_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the inbox of the replica with the POST may not have survived."""
    monkeypatch.setattr(replica, "_BEAT", 0.02)
    monkeypatch.setattr(module, "_CONFIRM_WITHIN", PATIENCE)
    store = Unsteady()
    async with two(store) as sites:
        guest = await arrive(sites)
        store.refuses = b"sse-outcome"
        assert (await guest.ask(PING))["result"] == {}
        assert store.refuses is None
        store.forgets = b"sse-outcome"
        assert (await guest.ask(PING))["result"] == {}
        assert store.forgets is None


@pytest.mark.req("SCL-3")
async def test_a_confirmation_that_comes_too_late_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(MemoryStore()) as sites:
        guest = await arrive(sites)
        monkeypatch.setattr(module, "_CONFIRM_WITHIN", 0.0)
        assert (await guest.send(PING)).status == 504
        assert (await guest.stream.message())["result"] == {}
        monkeypatch.undo()
        assert (await guest.ask(PING))["result"] == {}


@pytest.mark.req("SCL-1")
async def test_a_session_whose_record_is_left_over_is_over() -> None:
    """The store was away when its stream ended."""
    store = Unsteady()
    async with two(store) as sites:
        guest = await arrive(sites)
        store.keeps_all = True
        guest.stream.leave()
        await until(lambda: len(sites[0].app._sse_sessions) == 0)
        over = await guest.send(PING)
        assert over.status == 404
        assert "no such session" in (await over.json())["error"]["message"]


@pytest.mark.req("SCL-3")
async def test_a_replica_that_stops_accepts_nothing_more_and_says_so() -> None:
    workshop = Workshop()
    async with two(MemoryStore(), workshop) as sites:
        guest = await arrive(sites)
        await guest.call("wait", 1, gate="a")
        await workshop.at("a")
        closing = asyncio.create_task(sites[0].app.close())
        await until(lambda: sites[0].app._sse_sessions._table.is_closing)
        refused = await guest.send({**PING, "id": 2})
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        workshop.gates["a"].set()
        assert text_of(await guest.stream.message()) == "a is open"
        async with asyncio.timeout(PATIENCE):
            await closing


@pytest.mark.req("SCL-3")
async def test_a_replica_that_stops_does_not_wait_for_long_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CLOSE_WITHIN", 0.0)
    store = Unsteady()
    async with two(store) as sites:
        guest = await arrive(sites)
        store.loses = b'"ping"'
        posting = asyncio.create_task(guest.send(PING))
        await until(lambda: sites[1].app._sse_sessions._outcomes)
        await sites[1].app.close()
        assert (await posting).status == 504

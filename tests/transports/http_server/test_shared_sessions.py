"""How long sessions live that replicas share. All else is tested with processes, in `tests/replicas`."""

from __future__ import annotations

import time

import pytest

from mcplumb.stores.memory_store import MemoryStore
from tests.client.peers import skip
from tests.kit.loop import until
from tests.transports.http_server.visits import Visitor, serving
from tests.transports.http_server.workshop import Workshop

#: Seconds that the sessions live, which is more than before they are confirmed.
TTL = 1800.0


class Store(MemoryStore):
    """A store that tells how long records live."""

    def left(self, key: str) -> float:
        return self._ends[key] - time.monotonic()

    def shorten(self, key: str, seconds: float) -> None:
        self._ends[key] = time.monotonic() + seconds


def record_of(visitor: Visitor) -> str:
    return f"{visitor.headers['Mcp-Session-Id']}/session"


@pytest.mark.req("SCL-1")
async def test_a_session_lives_as_long_as_it_may_once_the_client_is_ready() -> None:
    """Although it is confirmed at another replica than the one that has opened it, which learns of that later."""
    store = Store()
    async with (
        serving(Workshop().server, shared=store, session_ttl=TTL) as first,
        serving(Workshop().server, shared=store, session_ttl=TTL) as second,
    ):
        visitor = Visitor(first)
        answer = await visitor.initialize()
        visitor.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        assert store.left(record_of(visitor)) < TTL / 2
        visitor.site = second
        assert (await visitor.notify("notifications/initialized")).status == 202
        assert store.left(record_of(visitor)) > TTL / 2
        visitor.site = first
        assert (await visitor.call("double", n=1)).status == 200
        assert store.left(record_of(visitor)) > TTL / 2


@pytest.mark.req("SCL-1")
async def test_each_request_extends_the_life_of_a_session() -> None:
    """Also one that finds no copy of the session, because that was idle."""
    store = Store()
    async with serving(Workshop().server, shared=store, session_ttl=TTL) as site:
        visitor = Visitor(site)
        await visitor.open()
        store.shorten(record_of(visitor), TTL / 4)
        assert (await visitor.call("double", n=1)).status == 200
        assert store.left(record_of(visitor)) > TTL / 2
        skip(61)
        await until(lambda: len(site.app._sessions) == 0)
        store.shorten(record_of(visitor), TTL / 4)
        assert (await visitor.call("double", n=1)).status == 200
        assert store.left(record_of(visitor)) > TTL / 2

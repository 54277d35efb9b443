"""Server-sent events: every page hears what is published, and none can hold up the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from mcplumb.limits import DEFAULT_LIMITS, MAX_PAGE_EVENTS
from mcplumb.view.event_hub import EventHub
from mcplumb.wire.server_sent_events import Event, EventDecoder
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import until
from tests.view.visitor import Visitor, visiting

pytestmark = leaves_nothing


class Stream:
    """The events that a page gets."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self._decoder = EventDecoder(DEFAULT_LIMITS.max_event)
        self._waiting: list[Event] = []

    async def next(self) -> tuple[str, Any]:
        while not self._waiting:
            chunk = await self._content.readany()
            if not chunk:
                return "end", None
            self._waiting += [event for event in self._decoder.feed(chunk) if isinstance(event, Event)]
        event = self._waiting.pop(0)
        return event.event, msgspec.json.decode(event.data)


@asynccontextmanager
async def listening(visitor: Visitor) -> AsyncIterator[Stream]:
    async with visitor.http.get(visitor.served.url + "api/events") as response:
        assert response.headers["content-type"] == "text/event-stream"
        stream = Stream(response.content)
        assert await stream.next() == ("hello", {})
        yield stream


@asynccontextmanager
async def hub_and_visitor() -> AsyncIterator[tuple[EventHub, Visitor]]:
    hubs: list[EventHub] = []

    def keep(hub: EventHub) -> tuple[()]:
        hubs.append(hub)
        return ()

    async with visiting(keep) as visitor:
        yield hubs[0], visitor


async def test_all_pages_hear_everything_in_order() -> None:
    async with hub_and_visitor() as (hub, visitor), listening(visitor) as one, listening(visitor) as two:
        assert hub.has_pages
        for number in range(3):
            hub.publish("news", {"n": number, "text": "a\nb\r\nc"})
        for stream in (one, two):
            assert [await stream.next() for _ in range(3)] == [
                ("news", {"n": number, "text": "a\nb\r\nc"}) for number in range(3)
            ]


async def test_of_one_key_only_the_newest_waits() -> None:
    async with hub_and_visitor() as (hub, visitor), listening(visitor) as stream:
        for number in range(5 * MAX_PAGE_EVENTS):
            hub.publish("rows", number, key="a session")
        hub.publish("rows", "other", key="another")
        assert await stream.next() == ("rows", 5 * MAX_PAGE_EVENTS - 1)
        assert await stream.next() == ("rows", "other")


async def test_a_page_that_does_not_keep_up_is_told() -> None:
    async with hub_and_visitor() as (hub, visitor), listening(visitor) as stream:
        for number in range(MAX_PAGE_EVENTS + 1):
            hub.publish("news", number)
        assert await stream.next() == ("lost", {})
        hub.publish("news", "later")
        assert await stream.next() == ("news", "later")


async def test_a_page_that_goes_is_forgotten() -> None:
    async with hub_and_visitor() as (hub, visitor):
        async with listening(visitor):
            pass
        await until(lambda: not hub.has_pages)


async def test_the_end_of_the_program_ends_the_streams() -> None:
    async with hub_and_visitor() as (hub, visitor), listening(visitor) as stream:
        hub.close()
        assert await stream.next() == ("end", None)
        assert (await visitor.ask("api/events")).status == 503


async def test_there_can_only_be_so_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.view.event_hub.MAX_PAGES", 1)
    async with hub_and_visitor() as (_, visitor), listening(visitor):
        got = await visitor.ask("api/events")
        assert (got.status, got.json["error"]) == (503, "1 pages are open already: close one.")

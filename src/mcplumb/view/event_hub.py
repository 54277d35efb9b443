"""Server-sent events: notify all open pages of changes.

A page that was away asks the API for the present state when it comes back: nothing is kept for it here.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from mcplumb.limits import MAX_PAGE_EVENTS, MAX_PAGES
from mcplumb.transports.http_server.asgi_request import HttpRequest
from mcplumb.view.api_routes import ApiCall, ApiError, Route
from mcplumb.wire.server_sent_events import encode_comment, encode_event

__all__ = ["EventHub"]

_HEADERS = ((b"content-type", b"text/event-stream"),)
#: Seconds between two comments on a silent stream, by which a lost page is noticed.
_KEEP_ALIVE = 15.0
_COMMENT = encode_comment()


class EventHub:
    """Sends events to all open pages. Used in one event loop."""

    def __init__(self) -> None:
        self._pages: set[_Page] = set()
        self._is_closed = False

    @property
    def has_pages(self) -> bool:
        """Whether any page is connected."""
        return bool(self._pages)

    def publish(self, topic: str, data: Any, *, key: str | None = None) -> None:
        """Send an event to every page. With a key, it replaces a queued one of the same topic and key.

        A page that does not keep up gets the event ``lost`` instead of those that do not fit, and asks for everything
        again.
        """
        encoded = encode_event(msgspec.json.encode(data), event=topic)
        for page in self._pages:
            page.put(encoded, None if key is None else (topic, key))

    def routes(self) -> list[Route]:
        """Return the route of the stream."""
        return [Route("GET", "events", self._serve)]

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for page in self._pages:
            page.end()

    async def _serve(self, call: ApiCall) -> None:
        if self._is_closed:
            raise ApiError(503, "mcplumb view is stopping.")
        if len(self._pages) >= MAX_PAGES:
            raise ApiError(503, f"{MAX_PAGES} pages are open already: close one.")
        page = _Page()
        self._pages.add(page)
        try:
            await page.run(call.request)
        finally:
            self._pages.discard(page)


class _Page:
    """The stream of one page, with a queue of at most `MAX_PAGE_EVENTS`."""

    def __init__(self) -> None:
        self._waiting: dict[object, bytes] = {}
        self._wake = asyncio.Event()
        self._has_ended = False

    def put(self, event: bytes, key: object | None) -> None:
        if key is None:
            key = object()
        if key not in self._waiting and len(self._waiting) >= MAX_PAGE_EVENTS:
            self._waiting = {None: encode_event(b"{}", event="lost")}
        else:
            self._waiting[key] = event
        self._wake.set()

    def end(self) -> None:
        self._has_ended = True
        self._wake.set()

    async def run(self, request: HttpRequest) -> None:
        request.watch(self.end)
        try:
            await request.begin(200, _HEADERS)
            await request.write(encode_event(b"{}", event="hello"), more=True)
            while not self._has_ended:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE):
                        await self._wake.wait()
                    data = b"".join(self._waiting.values())
                    self._waiting = {}
                    self._wake.clear()
                except TimeoutError:
                    data = _COMMENT
                if data and not self._has_ended:
                    await request.write(data, more=True)
        except OSError:
            return  # the page has gone
        finally:
            request.unwatch()
        await request.finish()

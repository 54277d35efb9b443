"""Server-sent events over HTTP, as one stream: it may go on in another response when one breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from mcplumb.errors import ProtocolError, RequestLost
from mcplumb.transports.http_client.inbox import Inbox
from mcplumb.transports.http_client.posts import Post
from mcplumb.wire.events import Event, EventDecoder, EventTooLong

__all__ = ["Stream", "next_chunk"]

#: Seconds before a stream is opened again, if the server has not said how many; twice as many each time that it
#: brought nothing, but not more than the last.
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
#: The least of them, whatever the server has said; twice as many each time that there was no message, up to the first.
_SHORTEST_WAIT = 0.1
#: Seconds after which a silent response is looked at. If the length of a chunk is garbage, aiohttp closes the
#: connection, and does not tell whoever reads.
_LOOK_EVERY = 5.0


class Stream:
    """What is known of one stream, from one response to the next."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        #: The id of the last event, to go on from; empty if the stream cannot go on.
        self.last_event_id = ""
        #: How often in a row it was opened and brought nothing.
        self.failures = 0
        #: The same, and brought no more than empty events: it is there, and has no news.
        self._empty = 0
        self._retry: int | None = None

    async def read(self, response: aiohttp.ClientResponse, post: Post | None = None) -> None:
        """Pass on the messages, until this post is answered or the response ends.

        `RequestLost` if it ends in the middle; `ProtocolError` if, in answer to a post, an event is too long.
        """

        def take(event: Event | EventTooLong) -> bool:
            if isinstance(event, EventTooLong):
                self._inbox.pass_over(event)
                if post is not None:
                    raise ProtocolError(f"The server sent an event longer than the cap of {event.max_event} bytes.")
            elif event.event == "message" and event.data:
                self._inbox.take(event.data, post)
            return post is not None and not post.waiting

        await self.read_events(response, take)

    async def read_events(self, response: aiohttp.ClientResponse, take: Callable[[Event | EventTooLong], bool]) -> bool:
        """Hand each event to ``take`` until that has got enough. Whether the end came between two events."""
        decoder = EventDecoder(self._inbox.limits.max_event)
        now = asyncio.get_running_loop().time
        began = now()
        try:
            while chunk := await next_chunk(response):
                for event in decoder.feed(chunk):
                    self.failures = 0
                    if isinstance(event, EventTooLong) or event.data:
                        self._empty = 0
                    await self._inbox.flow()
                    if take(event):
                        return True
        finally:
            if now() - began > _LONGEST_WAIT:
                self.failures = 0  # It was open, and there was nothing to say.
            self.last_event_id = decoder.last_event_id or self.last_event_id
            self._retry = self._retry if decoder.retry is None else decoder.retry
        return decoder.end()

    async def wait(self) -> None:
        """Wait for the time to open it again: as long as the server has said, and longer each time in vain."""
        seconds = min(_FIRST_WAIT * 2 ** min(self.failures, 10), _LONGEST_WAIT)
        if self._retry is not None:
            if not self.failures:
                seconds = min(_SHORTEST_WAIT * 2 ** min(self._empty, 10), _FIRST_WAIT)
            seconds = max(seconds, self._retry / 1000)
        self.failures += 1
        self._empty += 1
        await asyncio.sleep(seconds)


async def next_chunk(response: aiohttp.ClientResponse) -> bytes:
    """Some more of the body; nothing at its end. `RequestLost` if it breaks off."""
    while True:
        try:
            async with asyncio.timeout(_LOOK_EVERY):
                return await response.content.readany()
        except TimeoutError as error:
            if response.connection is None or response.connection.closed:
                raise RequestLost("The HTTP response broke off: something in it was no HTTP.") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RequestLost(f"The HTTP response broke off: {error}.") from error

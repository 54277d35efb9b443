"""HTTP+SSE, the transport of the first revision: one stream brings everything, and names the place to post to."""

from __future__ import annotations

import asyncio

from yarl import URL

from mcplumb.errors import Closed, ConnectError, ConnectTimeout, McplumbError
from mcplumb.transports.http_client.post_queue import Post, Spawn
from mcplumb.transports.http_client.receive_queue import Inbox
from mcplumb.transports.http_client.response import EVENTS, Stream, discard, is_good, is_stream, refusal, refuse
from mcplumb.transports.http_client.session_pool import ClientPool
from mcplumb.wire.server_sent_events import Event, EventTooLong

__all__ = ["SseBinding"]

#: Seconds for a server to name the place to post to, which is the first thing that it says.
_ENDPOINT_WITHIN = 30.0
_LONGEST_QUOTE = 200


class SseBinding:
    """A `Binding` that lives as long as its stream, which ``spawn`` is given to run."""

    def __init__(self, pool: ClientPool, inbox: Inbox, spawn: Spawn) -> None:
        self._pool = pool
        self._inbox = inbox
        self._spawn = spawn
        self._stream: asyncio.Task[None] | None = None
        #: Where to post to, or why there is no such place, once that is known.
        self._place: asyncio.Future[URL | McplumbError] | None = None

    async def open(self) -> URL:
        """Open the stream, if that has not been done, and wait for the place to post to.

        `ConnectError` or `HttpError` if there is none, or if it is at another origin.
        """
        if self._place is None or self._stream is None:
            self._place = asyncio.get_running_loop().create_future()
            self._stream = self._spawn(self._listen(self._place))
        await asyncio.wait((self._place,), timeout=_ENDPOINT_WITHIN)
        if not self._place.done():
            self._stream.cancel()
            said = f"The server opened a stream, and named no endpoint in it within {_ENDPOINT_WITHIN:g} s."
            self._place.set_result(ConnectTimeout(said))
        place = self._place.result()
        if isinstance(place, McplumbError):
            raise place
        return place

    async def exchange(self, post: Post) -> None:
        """Post it. The answer comes on the stream."""
        place = await self.open()
        async with self._pool.request("POST", place, {"Content-Type": "application/json"}, post.body) as response:
            if is_good(response):
                post.waiting.clear()
                await discard(response)
            elif response.status == 404:
                raise Closed("The server has ended the session.") from refusal(response)
            else:
                await refuse(response, post, self._inbox)

    async def leave(self) -> None:
        """The end of the stream says it all."""

    async def _listen(self, place: asyncio.Future[URL | McplumbError]) -> None:
        def take(event: Event | EventTooLong) -> bool:
            if isinstance(event, EventTooLong):
                self._inbox.pass_over(event)
            elif place.done():
                if event.event == "message" and event.data:
                    self._inbox.take(event.data)
            elif event.event == "endpoint":
                place.set_result(self._read_place(event.data))
                return not _is_known(place)
            return False

        is_clean = False
        why: McplumbError = ConnectError("The server opened a stream, and ended it before it named an endpoint.")
        try:
            async with self._pool.request("GET", self._pool.url, {"Accept": EVENTS}) as response:
                if not is_stream(response):
                    raise refusal(response)
                is_clean = await Stream(self._inbox).read_events(response, take)
        except McplumbError as error:
            why = error
        if not place.done():
            place.set_result(why)
        if _is_known(place):
            self._inbox.end(clean=is_clean)
            raise Closed("The server has ended its stream.")

    def _read_place(self, data: bytes) -> URL | McplumbError:
        text = data.decode(errors="replace")
        try:
            place = self._pool.url.join(URL(text))
        except ValueError:
            place = URL()
        if self._pool.is_own(place):
            return place
        return ConnectError(
            f"The server wants messages to be sent to {text[:_LONGEST_QUOTE]!a}, which is not at "
            f"{self._pool.url.origin()} or names a user. Nothing was sent there."
        )


def _is_known(place: asyncio.Future[URL | McplumbError]) -> bool:
    return isinstance(place.result(), URL)

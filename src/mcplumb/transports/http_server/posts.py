"""A POST with requests in it, until they are answered: by one JSON text, or by a stream that ends with it."""

from __future__ import annotations

import asyncio

from mcplumb.transports.http_server.channels import Channel, Channels
from mcplumb.transports.http_server.posted import session_over
from mcplumb.transports.http_server.requests import JSON, HttpRequest, Refusal
from mcplumb.transports.http_server.streams import EventStream

__all__ = ["Post"]

_EVENTS = b"text/event-stream"


class Post:
    """The requests with these ids. It is a stream as soon as something is said before their answer.

    Made in a running event loop. Without a ``request`` there is only ``text``.
    """

    __slots__ = ("_cancelled", "_channel", "_channels", "_outcome", "_request", "ids")

    def __init__(self, channels: Channels, request: HttpRequest | None, ids: tuple[int | str, ...]) -> None:
        self.ids = ids
        self._cancelled: set[int | str] = set()
        self._channels = channels
        #: None if it can no longer become a stream.
        self._request = request
        self._channel: Channel | None = None
        #: How it is answered: with JSON, a stream, a refusal, or nothing.
        self._outcome: asyncio.Future[bytes | EventStream | Refusal | None] = asyncio.get_running_loop().create_future()

    async def respond(self, request: HttpRequest, *, keep_alive: float) -> None:
        """Answer, in the request's own task; after ``keep_alive`` seconds at the latest, with the head of a stream.

        Cancelled, the client gets no JSON any more, but what is on a stream is kept for it.
        """
        beginning = asyncio.get_running_loop().call_later(keep_alive, self.channel)
        try:
            outcome = await self._outcome
        finally:
            beginning.cancel()
            self._request = None
        if isinstance(outcome, EventStream):
            await self._channels.finish(outcome)
        elif isinstance(outcome, Refusal):
            raise outcome
        elif outcome is None:
            await request.respond(200, content_type=_EVENTS)
        else:
            await request.respond(200, outcome, content_type=JSON)

    async def text(self) -> bytes:
        """The answer; `Refusal` if there will be none."""
        outcome = await self._outcome
        if isinstance(outcome, bytes):
            return outcome
        raise outcome if isinstance(outcome, Refusal) else session_over()

    def channel(self) -> Channel | None:
        """Where to say what comes before the answer; None if the client does not hear it here."""
        request = self._request
        if self._channel is None and request is not None and request.accepts("text/event-stream"):
            self._channel = self._channels.open()
            self._decide(self._channel.begin(request))
        return self._channel

    def answer(self, text: bytes) -> None:
        """All that was asked for is answered by this."""
        if self._channel is not None:
            self._channel.put(text)
        self._end(text)

    def cancel(self, request_id: int | str) -> bool:
        """The client wants no answer to this request; True if no other is left, and all is over."""
        self._cancelled.add(request_id)
        if len(self._cancelled) < len(self.ids):
            return False
        self._end(None)
        return True

    def release(self, retry: int) -> None:
        """End the response, and let the client come back for the rest after so many milliseconds."""
        channel = self.channel()
        if channel is not None:
            channel.release(retry)

    def give_up(self) -> None:
        """There will be no answer: the session is over."""
        self._end(session_over())

    def _end(self, outcome: bytes | Refusal | None) -> None:
        if self._channel is not None:
            self._channels.close(self._channel)
        else:
            self._decide(outcome)

    def _decide(self, outcome: bytes | EventStream | Refusal | None) -> None:
        if not self._outcome.done():  # by the end of whoever waited
            self._outcome.set_result(outcome)

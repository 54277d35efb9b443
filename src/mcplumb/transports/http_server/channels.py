"""The streams of one session, and the HTTP responses that carry them.

A channel is a stream as the client knows it: it goes on while no response carries it, and what is said on it then is
kept in the event store until the client comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcplumb.transports.http_server.event_store import EventStore
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.requests import HttpRequest
from mcplumb.transports.http_server.streams import EventStream
from mcplumb.wire.events import encode_event

__all__ = ["Channel", "Channels"]


class Channels:
    """All channels of a session, and the responses that are being written. Belongs to one event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self.keep_alive = options.keep_alive
        self.store = EventStore(max_events=options.max_events, max_bytes=options.max_event_bytes)
        #: Whether the client knows events that have an id and no message, by which it can come back.
        self.has_priming_events = False
        #: Those that have more to say, by their number.
        self._open: dict[int, Channel] = {}
        self._responses: set[EventStream] = set()
        #: The responses that are clogged, or were when something was last put on them.
        self._clogged: set[EventStream] = set()

    def open(self) -> Channel:
        """Begin a channel."""
        channel = Channel(self, self.store.open())
        self._open[channel.number] = channel
        return channel

    def get(self, number: int) -> Channel:
        """The open channel with this number."""
        return self._open[number]

    def close(self, channel: Channel) -> None:
        """This channel has nothing more to say: its response, if there is one, ends. Its events are kept."""
        del self._open[channel.number]
        self.store.close(channel.number)
        response = channel.response
        if response is not None:
            response.end()

    def respond(self, request: HttpRequest, events: Sequence[bytes]) -> EventStream:
        """Begin to answer a request with a stream of events. The request's own task must ``finish`` it."""
        options = self._options
        response = EventStream(request, keep_alive=options.keep_alive, write_within=options.write_within, gone=_ignore)
        self._responses.add(response)
        response.begin()
        if events:
            self.put(response, b"".join(events))
        return response

    def put(self, response: EventStream, event: bytes) -> None:
        """Write an event."""
        response.put(event)
        if response.is_clogged:
            self._clogged.add(response)

    async def finish(self, response: EventStream) -> None:
        """Wait until a response has ended, in whatever way. Cancelled, it is aborted."""
        try:
            await response.finished()
        finally:
            response.abort()
            self._responses.discard(response)
            self._clogged.discard(response)

    @property
    def is_clogged(self) -> bool:
        """Whether the client should catch up with one of its streams."""
        # Asked for every answer, so nothing is looked through if there is nothing.
        if self._clogged:
            self._clogged = {response for response in self._clogged if response.is_clogged}
        return bool(self._clogged)

    async def drained(self) -> None:
        """Wait until nothing is clogged. Cancelling this harms nothing."""
        while self.is_clogged:
            await next(iter(self._clogged)).drained()

    def end_all(self) -> None:
        """Write what is queued, and then end each response."""
        for response in self._responses:
            response.end()

    def abort_all(self) -> None:
        """End each response at once."""
        for response in self._responses:
            response.abort()


class Channel:
    """One stream of a session, until it is closed."""

    __slots__ = ("_channels", "_response", "_sent", "number")

    def __init__(self, channels: Channels, number: int) -> None:
        self._channels = channels
        self.number = number
        self._response: EventStream | None = None
        #: The number of the newest event when there was last a response.
        self._sent = 0

    @property
    def response(self) -> EventStream | None:
        """What carries the channel at the moment, if something does."""
        if self._response is not None and self._response.is_over:
            self._response = None
        return self._response

    def put(self, message: bytes) -> None:
        """Say something: now, or when the client comes back."""
        store = self._channels.store
        event = store.add(self.number, message)
        if self.response is not None:
            self._channels.put(self.response, event)
            self._sent = store.latest

    @property
    def may_begin(self) -> bool:
        """Whether there is no response, or one that the client may have lost: there was time to notice that.

        Clients that push each other out get to do so seldom enough for all but one to give up.
        """
        return self.response is None or self.response.age >= self._channels.keep_alive

    def begin(self, request: HttpRequest) -> EventStream:
        """Answer a request with what is said from now on, and with what nobody has been sent before.

        A former response ends.
        """
        self._end_response()
        store = self._channels.store
        events = store.since(self.number, self._sent)
        if not events and self._channels.has_priming_events:
            events = [store.mark(self.number)]
        return self._attach(request, events)

    def resume(self, request: HttpRequest, last_event_id: str, events: Sequence[bytes]) -> EventStream:
        """Answer a request with these events, which followed the last one that the client has, and with what follows.

        A former response ends: whoever comes back has lost it, even if nobody has noticed that here.
        """
        self._end_response()
        if not events and self._channels.has_priming_events:
            # Some clients forget where they were if a response brings no event at all.
            events = [encode_event(b"", event_id=last_event_id)]
        return self._attach(request, events)

    def release(self, retry: int) -> None:
        """End the response, and let the client come back in so many milliseconds."""
        if self.response is not None:
            self._channels.put(self.response, encode_event(b"", retry=retry))
            self.response.end()
            self._response = None

    def _end_response(self) -> None:
        if self.response is not None:
            self.response.end()

    def _attach(self, request: HttpRequest, events: Sequence[bytes]) -> EventStream:
        self._response = self._channels.respond(request, events)
        self._sent = self._channels.store.latest
        return self._response


def _ignore() -> None:
    """Whether a response is over is asked whenever that matters."""

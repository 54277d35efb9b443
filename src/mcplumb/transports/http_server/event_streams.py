"""Streams of server-sent events: `EventStream` is one HTTP response, `Channel` a resumable stream of a session.

A channel outlives the responses that carry it: while there is none, its messages are kept in the `EventStore` until the
client reconnects.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from mcplumb.transports.connection import Backpressure
from mcplumb.transports.http_server.asgi_request import HttpRequest
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.wire.messages import RequestId
from mcplumb.wire.server_sent_events import encode_comment, encode_event

__all__ = ["HIGH_WATER", "Channel", "Channels", "EventStore", "EventStream", "Replay", "parse_id"]

_logger = logging.getLogger("mcplumb.http")


# One response


#: Queued bytes above which a stream is clogged. Low, since there may be thousands, and uvicorn buffers as well.
HIGH_WATER = 256 * 1024

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Asks proxies such as nginx not to buffer the stream.
    (b"x-accel-buffering", b"no"),
)
_COMMENT = encode_comment()


class EventStream(Backpressure):
    """A response that is a stream of events. It starts with the first event, or with ``begin``.

    Created in a running event loop. Events are queued, and written by a task that runs while there is something to
    write. After ``keep_alive`` seconds without an event, a comment is written. The owner must await ``finished`` before
    the task of the request ends, or call ``abort``.

    ``gone`` is called at most once, from the loop, if the stream breaks before ``end`` or ``abort`` was called: the
    client has disconnected, or has read nothing for about ``write_within`` seconds. Nothing is written before ``hold``
    is done.
    """

    __slots__ = (
        "_finished",
        "_gone",
        "_has_begun",
        "_headers",
        "_hold",
        "_is_ending",
        "_is_over",
        "_is_quiet",
        "_is_writing",
        "_keep_alive",
        "_loop",
        "_made_at",
        "_queue",
        "_queued",
        "_request",
        "_timer",
        "_write_within",
        "_writer",
        "_writing_since",
    )

    def __init__(
        self,
        request: HttpRequest,
        *,
        keep_alive: float,
        write_within: float,
        gone: Callable[[], None],
        headers: Iterable[tuple[bytes, bytes]] = (),
        hold: asyncio.Future[None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(self._loop, HIGH_WATER)
        self._hold = hold
        self._made_at = self._loop.time()
        self._request = request
        self._gone = gone
        self._headers = (*_HEADERS, *headers)
        self._keep_alive = keep_alive
        self._write_within = write_within
        self._queue: list[bytes] = []
        self._queued = 0
        self._has_begun = False
        self._is_ending = False
        self._is_over = False
        self._is_quiet = True
        self._is_writing = False
        self._writer: asyncio.Task[None] | None = None
        self._writing_since: float | None = None
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_later(keep_alive, self._tick)
        request.watch(self._break)

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be written."""
        return self._is_over

    @property
    def age(self) -> float:
        """Seconds since it was created."""
        return self._loop.time() - self._made_at

    def begin(self) -> None:
        """Send the head of the response now, without waiting for an event."""
        self._write_soon()

    def put(self, event: bytes) -> None:
        """Queue one or several encoded events. Does nothing after the end of the stream."""
        if self._is_ending or self._is_over:
            return
        self._queue.append(event)
        self._queued += len(event)
        self._is_quiet = False
        self._rose_to(self._queued)
        self._write_soon()

    def end(self) -> None:
        """Write what is queued, then end the response. May be called again."""
        self._is_ending = True
        self._unclog()  # Nothing more can be put, so there is nothing to wait for.
        self._write_soon()

    def abort(self) -> None:
        """Stop at once and drop what is queued. May be called again, and after ``end``."""
        self._stop()

    async def finished(self) -> None:
        """Wait until the response has ended, in whatever way. Safe to cancel."""
        await asyncio.shield(self._finished)

    def _write_soon(self) -> None:
        if not self._is_writing and not self._is_over:
            # `_writer` does not tell: an eager task may end before it is assigned.
            self._is_writing = True
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        """Write until the queue is empty."""
        request = self._request
        self._writing_since = self._loop.time()
        try:
            if not self._has_begun:
                self._has_begun = True
                if self._hold is not None and not self._hold.done():
                    await asyncio.shield(self._hold)
                await request.begin(200, self._headers)
            while self._queue or self._is_ending:
                events = b"".join(self._queue)
                self._queue.clear()
                is_last = self._is_ending
                await request.write(events, more=not is_last)
                self._writing_since = self._loop.time()
                self._queued -= len(events)
                self._fell_to(self._queued)
                if is_last:
                    self._stop()
                    return
        except OSError:
            self._break()
        except Exception:
            _logger.exception("The HTTP server failed to send a part of a response.")
            self._break()
        finally:
            self._is_writing = False
            self._writer = self._writing_since = None

    def _tick(self) -> None:
        now = self._loop.time()
        if self._writing_since is not None and now - self._writing_since >= self._write_within:
            self._break()
            return
        if self._is_quiet and not self._is_writing:
            self.put(_COMMENT)
        self._is_quiet = True
        self._timer = self._loop.call_at(now + self._keep_alive, self._tick)

    def _break(self) -> None:
        is_unexpected = not (self._is_over or self._is_ending)
        self._stop()
        if is_unexpected:
            self._gone()

    def _stop(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._timer.cancel()
        self._request.unwatch()
        self._queue.clear()
        self._unclog()
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()
        if not self._finished.done():
            self._finished.set_result(None)


# The streams of one session


class Channels:
    """All channels of a session and the responses in progress. Belongs to one event loop."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self.keep_alive = options.keep_alive
        self.store = EventStore(max_events=options.max_events, max_bytes=options.max_event_bytes)
        #: Whether the client's revision has priming events: events with an id but no message, to resume from.
        self.has_priming_events = False
        #: The open channels by their numbers.
        self._open: dict[int, Channel] = {}
        self._responses: set[EventStream] = set()
        #: Responses that were clogged after the last event; some may have drained since.
        self._clogged: set[EventStream] = set()

    def open(self, _: Sequence[RequestId] = (), *, is_batch: bool = False) -> Channel:
        """Open a channel for messages about these requests, or about none."""
        channel = Channel(self, self.store.open())
        self._open[channel.number] = channel
        return channel

    def get(self, number: int) -> Channel:
        """Return the open channel with this number."""
        return self._open[number]

    def close(self, channel: Channel) -> None:
        """Close a channel and end its response, if it has one. Its events are kept."""
        del self._open[channel.number]
        self.store.close(channel.number)
        response = channel.response
        if response is not None:
            response.end()

    def respond(
        self, request: HttpRequest, events: Sequence[bytes], *, hold: asyncio.Future[None] | None = None
    ) -> EventStream:
        """Start a response with these events, after ``hold``. The task of the request must await ``finish``."""
        options = self._options
        response = EventStream(
            request, keep_alive=options.keep_alive, write_within=options.write_within, gone=_ignore, hold=hold
        )
        self._responses.add(response)
        # The client resumes the channel with another token.
        request.when_token_ends(response.end)
        response.begin()
        if events:
            self.put(response, b"".join(events))
        return response

    def put(self, response: EventStream, event: bytes) -> None:
        """Queue an event on a response."""
        response.put(event)
        if response.is_clogged:
            self._clogged.add(response)

    async def finish(self, response: EventStream) -> None:
        """Wait until a response has ended, in whatever way. If cancelled, it aborts the response."""
        try:
            await response.finished()
        finally:
            response.abort()
            self._responses.discard(response)
            self._clogged.discard(response)

    @property
    def is_clogged(self) -> bool:
        """Whether a response is clogged."""
        # Checked for every message, so no new set is built in the usual case.
        if self._clogged:
            self._clogged = {response for response in self._clogged if response.is_clogged}
        return bool(self._clogged)

    async def drained(self) -> None:
        """Wait until no response is clogged. Safe to cancel."""
        while self.is_clogged:
            await next(iter(self._clogged)).drained()

    def end_all(self) -> None:
        """Write what is queued, then end each response."""
        for response in self._responses:
            response.end()

    def abort_all(self) -> None:
        """Abort each response."""
        for response in self._responses:
            response.abort()


class Channel:
    """One stream of a session, which successive responses carry."""

    __slots__ = ("_channels", "_response", "_sent", "number")

    def __init__(self, channels: Channels, number: int) -> None:
        self._channels = channels
        self.number = number
        self._response: EventStream | None = None
        #: The number of the newest event that was put on a response.
        self._sent = 0

    @property
    def response(self) -> EventStream | None:
        """The response that carries the channel at the moment, if there is one."""
        if self._response is not None and self._response.is_over:
            self._response = None
        return self._response

    def put(self, message: bytes, *, is_last: bool = False) -> None:
        """Keep a message, and send it now if there is a response. The last one is followed by ``Channels.close``."""
        store = self._channels.store
        event = store.add(self.number, message)
        if self.response is not None:
            self._channels.put(self.response, event)
            self._sent = store.latest

    @property
    def may_begin(self) -> bool:
        """Whether a new response may start: there is none, or one old enough that the client may have lost it.

        The minimum age keeps two clients that use the same session from replacing each other's response all the time.
        """
        return self.response is None or self.response.age >= self._channels.keep_alive

    def begin(self, request: HttpRequest) -> EventStream:
        """Carry the channel on the response to this request, starting with the messages that were not sent before.

        The previous response ends.
        """
        self._end_response()
        store = self._channels.store
        events = store.since(self.number, self._sent)
        if not events and self._channels.has_priming_events:
            events = [store.mark(self.number)]
        return self._attach(request, events)

    def resume(self, request: HttpRequest, last_event_id: str, events: Sequence[bytes]) -> EventStream:
        """Carry the channel on the response to this request, starting with the events that the client has missed.

        The previous response ends: a client that reconnects has lost it, even if that was not noticed here.
        """
        self._end_response()
        if not events and self._channels.has_priming_events:
            # Some clients forget their position if a response has no event at all.
            events = [encode_event(b"", event_id=last_event_id)]
        return self._attach(request, events)

    def release(self, retry: int) -> None:
        """End the response, and tell the client to reconnect after this many milliseconds."""
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
    """Do nothing: `Channel.response` notices the end of a response."""


# The events that are kept


#: The longest event id that is parsed, in characters. Ours are two numbers.
_LONGEST_ID = 40


class Replay(msgspec.Struct, frozen=True):
    """The events of a stream that followed a given event."""

    #: The number of the stream.
    stream: int
    #: The encoded events, in order.
    events: list[bytes]
    #: Whether the stream is closed.
    is_over: bool


class EventStore:
    """The latest events of one session, limited in number and in bytes.

    The oldest event is dropped first, whatever its stream. An event larger than the limit is not kept at all. The id of
    an event consists of its stream's number and its own number, which counts all events of the session.
    """

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        #: The open streams, and the closed ones of which events are kept.
        self._streams: dict[int, _Stream] = {}
        self._opened = 0
        #: The stream of each kept event, the oldest first.
        self._order: deque[int] = deque()
        self._bytes = 0
        #: The number of the newest event.
        self.latest = 0

    def open(self) -> int:
        """Open a stream and return its number."""
        self._opened += 1
        self._streams[self._opened] = _Stream()
        return self._opened

    def close(self, stream: int) -> None:
        """Close an open stream. Its events are kept."""
        self._streams[stream].is_over = True
        self._remove_if_empty(stream)

    def mark(self, stream: int) -> bytes:
        """Return an event of an open stream that has an id but no message, to resume from. It is not kept."""
        self.latest += 1
        return encode_event(b"", event_id=f"{stream}-{self.latest}")

    def add(self, stream: int, message: bytes) -> bytes:
        """Keep a message of an open stream, and return it as an event."""
        self.latest += 1
        event = encode_event(message, event="message", event_id=f"{stream}-{self.latest}")
        kept = self._streams[stream]
        if len(event) > self._max_bytes:
            kept.dropped = self.latest
            return event
        kept.events.append((self.latest, event))
        self._order.append(stream)
        self._bytes += len(event)
        while len(self._order) > self._max_events or self._bytes > self._max_bytes:
            self._drop_oldest()
        return event

    def since(self, stream: int, number: int) -> list[bytes]:
        """Return the kept events of a stream that are newer than the event with this number."""
        return [event for at, event in self._streams[stream].events if at > number]

    def after(self, event_id: str) -> Replay | None:
        """Return what followed this event on its stream; None if some of that was dropped, or the id is invalid."""
        position = parse_id(event_id)
        if position is None:
            return None
        stream, number = position
        kept = self._streams.get(stream)
        if kept is None or not kept.dropped <= number <= self.latest:
            return None
        return Replay(stream, self.since(stream, number), kept.is_over)

    def _drop_oldest(self) -> None:
        stream = self._order.popleft()
        kept = self._streams[stream]
        number, event = kept.events.popleft()
        kept.dropped = max(kept.dropped, number)
        self._bytes -= len(event)
        self._remove_if_empty(stream)

    def _remove_if_empty(self, stream: int) -> None:
        kept = self._streams[stream]
        if kept.is_over and not kept.events:
            del self._streams[stream]


class _Stream:
    __slots__ = ("dropped", "events", "is_over")

    def __init__(self) -> None:
        self.events: deque[tuple[int, bytes]] = deque()
        #: The number of the newest event that was dropped.
        self.dropped = 0
        self.is_over = False


def parse_id(event_id: str) -> tuple[int, int] | None:
    """Return the numbers of the stream and of the event that an id stands for; None if the id is invalid."""
    stream, _, number = event_id.partition("-")
    if len(event_id) > _LONGEST_ID or not (event_id.isascii() and stream.isdigit() and number.isdigit()):
        return None
    return int(stream), int(number)

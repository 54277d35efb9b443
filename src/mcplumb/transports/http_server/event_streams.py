"""Responses that are streams of server-sent events, and the streams of one session.

A channel is a stream as the client knows it: it goes on while no response carries it, and what is said on it then is
kept in the event store until the client comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from mcplumb.transports.connection import Waiters
from mcplumb.transports.http_server.event_store import EventStore
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.request import HttpRequest
from mcplumb.wire.server_sent_events import encode_comment, encode_event

__all__ = ["HIGH_WATER", "LOW_WATER", "Channel", "Channels", "EventStream"]

_logger = logging.getLogger("mcplumb.http")


# A response that is a stream of server-sent events.


#: Bytes queued from which on a stream is clogged. There may be thousands, and the server has a buffer of its own.
HIGH_WATER = 256 * 1024
#: Bytes queued at which it no longer is.
LOW_WATER = HIGH_WATER // 4

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Proxies that would collect some of the stream before they pass it on are asked not to.
    (b"x-accel-buffering", b"no"),
)
_COMMENT = encode_comment()


class EventStream:
    """The events of one response, which is begun by the first of them or by ``begin``. Made in a running event loop.

    What is put is queued, and written by a task that lives as long as there is something to write. After ``keep_alive``
    seconds without an event, a comment is written. The owner must await ``finished`` before it lets the request go, and
    call ``abort`` if it cannot.

    ``gone`` is called, at most once and from the loop, if nothing can be written any more and neither ``end`` nor
    ``abort`` has been called: the client has left, or has read nothing for about ``write_within`` seconds.
    """

    __slots__ = (
        "_finished",
        "_gone",
        "_has_begun",
        "_headers",
        "_is_ending",
        "_is_over",
        "_is_quiet",
        "_keep_alive",
        "_loop",
        "_made_at",
        "_queue",
        "_queued",
        "_request",
        "_timer",
        "_waiters",
        "_write_within",
        "_writer",
        "_writing_since",
        "is_clogged",
    )

    def __init__(
        self,
        request: HttpRequest,
        *,
        keep_alive: float,
        write_within: float,
        gone: Callable[[], None],
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._made_at = self._loop.time()
        self._request = request
        self._gone = gone
        self._headers = (*_HEADERS, *headers)
        self._keep_alive = keep_alive
        self._write_within = write_within
        self._queue: list[bytes] = []
        self._queued = 0
        #: Whether more is queued than the client should be made to catch up with.
        self.is_clogged = False
        self._waiters = Waiters(self._loop)
        self._has_begun = False
        self._is_ending = False
        self._is_over = False
        self._is_quiet = True
        self._writer: asyncio.Task[None] | None = None
        self._writing_since: float | None = None
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_later(keep_alive, self._tick)
        request.watch(self._break)

    @property
    def is_over(self) -> bool:
        """Whether nothing can be written any more."""
        return self._is_over

    @property
    def age(self) -> float:
        """For how many seconds it has been there."""
        return self._loop.time() - self._made_at

    def begin(self) -> None:
        """Send the head of the response now, whether or not there is an event."""
        self._write_soon()

    def put(self, event: bytes) -> None:
        """Queue one event, or several, in their final form. Nothing happens once the stream has ended."""
        if self._is_ending or self._is_over:
            return
        self._queue.append(event)
        self._queued += len(event)
        self._is_quiet = False
        if self._queued > HIGH_WATER:
            self.is_clogged = True
        self._write_soon()

    def end(self) -> None:
        """Write what is queued, and then end the response. May be called again."""
        self._is_ending = True
        self._unclog()  # Nobody can put anything any more, so nobody need wait.
        self._write_soon()

    def abort(self) -> None:
        """Write nothing more; what is queued is lost. May be called again, and after ``end``."""
        self._stop()

    async def drained(self) -> None:
        """Wait until the stream is no longer clogged, or is over. Cancelling this harms nothing."""
        await self._waiters.wait_while(lambda: self.is_clogged)

    async def finished(self) -> None:
        """Wait until the response has ended, in whatever way. Cancelling this harms nothing."""
        await asyncio.shield(self._finished)

    def _write_soon(self) -> None:
        if self._writer is None and not self._is_over:
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        """Write what is queued, until nothing is."""
        request = self._request
        self._writing_since = self._loop.time()
        try:
            if not self._has_begun:
                self._has_begun = True
                await request.begin(200, self._headers)
            while self._queue or self._is_ending:
                events = b"".join(self._queue)
                self._queue.clear()
                is_last = self._is_ending
                await request.write(events, more=not is_last)
                self._writing_since = self._loop.time()
                self._queued -= len(events)
                if self._queued <= LOW_WATER:
                    self._unclog()
                if is_last:
                    self._stop()
                    return
        except OSError:
            self._break()
        except Exception:
            _logger.exception("The HTTP server failed to send a part of a response.")
            self._break()
        finally:
            self._writer = self._writing_since = None

    def _tick(self) -> None:
        now = self._loop.time()
        if self._writing_since is not None and now - self._writing_since >= self._write_within:
            self._break()
            return
        if self._is_quiet and self._writer is None:
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

    def _unclog(self) -> None:
        if self.is_clogged:
            self.is_clogged = False
            self._waiters.wake()


# The streams of one session, and the HTTP responses that carry them.


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

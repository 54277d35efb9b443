"""The events of a session's streams, kept for clients that come back for them."""

from __future__ import annotations

from collections import deque

import msgspec

from mcplumb.wire.server_sent_events import encode_event

__all__ = ["EventStore", "Replay"]

#: Characters of the longest id that is looked at. Ours are two numbers.
_LONGEST_ID = 40


class Replay(msgspec.Struct, frozen=True):
    """What a stream has had to say since an event of it."""

    stream: int
    #: In their final form, in order.
    events: list[bytes]
    #: Whether nothing more will be added to it.
    is_over: bool


class EventStore:
    """The latest events of one session, at most so many of them and so many bytes.

    The oldest is given up first, whichever stream it is of. An event that is too large by itself is not kept at all.
    The id of an event names its stream and its place among all events of the session, so each id is there once.
    """

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        #: Streams that are open, and those of which events are kept.
        self._streams: dict[int, _Stream] = {}
        self._opened = 0
        #: The stream of each kept event, the oldest first.
        self._order: deque[int] = deque()
        self._bytes = 0
        #: The number of the newest event.
        self.latest = 0

    def open(self) -> int:
        """Begin a stream, and get the number that it has in this session."""
        self._opened += 1
        self._streams[self._opened] = _Stream()
        return self._opened

    def close(self, stream: int) -> None:
        """Nothing more will be added to an open stream. Its events are kept as before."""
        self._streams[stream].is_over = True
        self._tidy(stream)

    def mark(self, stream: int) -> bytes:
        """An event of an open stream that carries no message: a place to come back to. It need not be kept."""
        self.latest += 1
        return encode_event(b"", event_id=f"{stream}-{self.latest}")

    def add(self, stream: int, message: bytes) -> bytes:
        """Keep a message of an open stream; returns the event that it is."""
        self.latest += 1
        event = encode_event(message, event="message", event_id=f"{stream}-{self.latest}")
        kept = self._streams[stream]
        if len(event) > self._max_bytes:
            kept.given_up = self.latest
            return event
        kept.events.append((self.latest, event))
        self._order.append(stream)
        self._bytes += len(event)
        while len(self._order) > self._max_events or self._bytes > self._max_bytes:
            self._give_up_oldest()
        return event

    def since(self, stream: int, number: int) -> list[bytes]:
        """The events of a stream that are newer than the one with this number, as far as they are kept."""
        return [event for at, event in self._streams[stream].events if at > number]

    def after(self, event_id: str) -> Replay | None:
        """What came after this event on its stream; None if that is not known any more, or the id is none of ours."""
        place = _read(event_id)
        if place is None:
            return None
        stream, number = place
        kept = self._streams.get(stream)
        if kept is None or not kept.given_up <= number <= self.latest:
            return None
        return Replay(stream, self.since(stream, number), kept.is_over)

    def _give_up_oldest(self) -> None:
        stream = self._order.popleft()
        kept = self._streams[stream]
        number, event = kept.events.popleft()
        kept.given_up = max(kept.given_up, number)
        self._bytes -= len(event)
        self._tidy(stream)

    def _tidy(self, stream: int) -> None:
        kept = self._streams[stream]
        if kept.is_over and not kept.events:
            del self._streams[stream]


class _Stream:
    __slots__ = ("events", "given_up", "is_over")

    def __init__(self) -> None:
        self.events: deque[tuple[int, bytes]] = deque()
        #: The number of the newest event that is not kept any more.
        self.given_up = 0
        self.is_over = False


def _read(event_id: str) -> tuple[int, int] | None:
    stream, _, number = event_id.partition("-")
    if len(event_id) > _LONGEST_ID or not (event_id.isascii() and stream.isdigit() and number.isdigit()):
        return None
    return int(stream), int(number)

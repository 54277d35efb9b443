"""The latest events of a session's streams, kept for clients that reconnect."""

from __future__ import annotations

from collections import deque

import msgspec

from mcplumb.wire.server_sent_events import encode_event

__all__ = ["EventStore", "Replay"]

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
        position = _parse_id(event_id)
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


def _parse_id(event_id: str) -> tuple[int, int] | None:
    stream, _, number = event_id.partition("-")
    if len(event_id) > _LONGEST_ID or not (event_id.isascii() and stream.isdigit() and number.isdigit()):
        return None
    return int(stream), int(number)

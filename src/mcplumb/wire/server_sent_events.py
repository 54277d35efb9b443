"""Server-sent events: the frame of a stream over HTTP, written and read.

The reader follows the rules that browsers follow, and adds a cap. As the line splitter does, it keeps only what is
unfinished, and gives the same for any chunking.
"""

from __future__ import annotations

from io import BytesIO

import msgspec

from mcplumb.errors import EncodeError, UsageError
from mcplumb.limits import MAX_EVENT_FIELD
from mcplumb.wire.lines import BYTE_ORDER_MARK, HEAD_BYTES, Unfinished

__all__ = ["Event", "EventDecoder", "EventTooLong", "encode_comment", "encode_event"]

# As much of an over-long line as its head may need.
_KEPT = len("data: ") + HEAD_BYTES
# More digits than this are no number of milliseconds that anybody waits, and Python refuses to read thousands of them.
_RETRY_DIGITS = 18


class Event(msgspec.Struct, frozen=True):
    """One event. ``id`` and ``retry`` are the fields of this very event, None if it had none."""

    data: bytes
    event: str = "message"
    id: str | None = None
    retry: int | None = None


class EventTooLong(msgspec.Struct, frozen=True):
    """An event passed the cap and is being discarded; ``head`` is how its data began (at most 1024 bytes)."""

    max_event: int
    head: bytes


def encode_event(
    data: bytes, *, event: str | None = None, event_id: str | None = None, retry: int | None = None
) -> bytes:
    r"""One event as bytes. A ``\r``, ``\n`` or ``\r\n`` in ``data`` reaches the reader as ``\n``.

    ``event`` and ``event_id`` may have at most 1024 bytes: `EventDecoder` ignores longer ones.
    """
    lines = []
    if event is not None:
        lines.append(b"event: " + _written("event", event, "\r\n"))
    if event_id is not None:
        lines.append(b"id: " + _written("id", event_id, "\r\n\0"))
    if retry is not None:
        if retry < 0 or len(str(retry)) > _RETRY_DIGITS:
            raise EncodeError(f"An event cannot say retry: {retry}. It has to be a number of milliseconds.")
        lines.append(b"retry: %d" % retry)
    lines.extend(b"data: " + line for line in _split(data))
    return b"\n".join(lines) + b"\n\n"


def encode_comment(text: str = "") -> bytes:
    """A comment, which readers ignore: something to send when there is nothing to say, to keep a stream open."""
    return b"".join(b": " + line + b"\n" for line in _split(_utf8("comment", text))) + b"\n"


class EventDecoder:
    r"""Cuts a byte stream into events.

    ``max_event`` caps the data collected for one event plus the line being read, comments apart: the moment they pass
    it, the event is reported as one `EventTooLong`, and discarded up to the blank line that ends it. Its id counts even
    so, for a reader that resumed from before it would only get it again.

    An ``id`` or ``event`` of more than 1024 bytes is ignored: an id is held as long as the stream, and sent back in a
    header. A byte-order mark at the start of the stream is no part of it, and does not count.
    """

    __slots__ = (
        "_after_cr",
        "_begun",
        "_data",
        "_event",
        "_has_data",
        "_id",
        "_id_buffer",
        "_last_event_id",
        "_line",
        "_mark",
        "_reconnect",
        "_retry",
        "_size",
        "_skipping",
        "_too_long",
        "max_event",
    )

    def __init__(self, max_event: int) -> None:
        if max_event < 1:
            raise UsageError(f"The event cap is {max_event}: it must be at least 1.")
        self.max_event = max_event
        # The stream.
        self._last_event_id = ""
        self._id_buffer = ""
        self._reconnect: int | None = None
        self._after_cr = False
        # What came of a byte-order mark, None when the stream is past the place for it.
        self._mark: bytes | None = b""
        # The line being read.
        self._line = Unfinished()
        self._skipping = False
        # The event being read. One buffer for its data: a list of short lines would take many times their bytes.
        self._data = BytesIO()
        self._size = 0
        self._has_data = False
        self._event = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._too_long = False
        self._begun = False

    @property
    def last_event_id(self) -> str:
        """The id of the last event that ended, its own or inherited: what to resume from. Empty if there is none."""
        return self._last_event_id

    @property
    def retry(self) -> int | None:
        """The waiting time before a reconnect that the stream asked for last, in milliseconds."""
        return self._reconnect

    def feed(self, chunk: bytes) -> list[Event | EventTooLong]:
        """The events that ``chunk`` completes, and a report for each event in it that passes the cap, in order."""
        if self._mark is not None:
            chunk = self._without_mark(self._mark + chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[Event | EventTooLong] = []
        lines = chunk.split(b"\n")
        rest = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                if self._line.size:
                    self._line.add(line)
                    line = self._line.take()
                self._end_line(line, events)
        if rest and not self._skipping:
            self._hold(rest, events)
        return events

    def end(self) -> bool:
        """Whether the stream ended between two events. If not, the unfinished one is lost, as the rules have it."""
        return not (self._begun or self._line.size or self._mark)

    def _without_mark(self, start: bytes) -> bytes:
        """The start of the stream without a byte-order mark; nothing while it may yet become one."""
        if len(start) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(start):
            self._mark = start
            return b""
        self._mark = None
        return start.removeprefix(BYTE_ORDER_MARK)

    def _hold(self, rest: bytes, events: list[Event | EventTooLong]) -> None:
        """Keeps the beginning of a line, unless it is a comment or passes the cap: then the line is skipped."""
        if not self._line.size and rest.startswith(b":"):
            self._skipping = True
        elif self._size + self._line.size + len(rest) > self.max_event:
            self._line.add(rest[:_KEPT])
            self._give_up(self._line.take(), events)
            self._skipping = True
        else:
            self._line.add(rest)

    def _end_line(self, line: bytes, events: list[Event | EventTooLong]) -> None:
        if line.startswith(b":"):
            return
        if self._size + len(line) > self.max_event:
            self._give_up(line, events)
            return
        if line:
            self._begun = True
            self._read_field(line)
        else:
            self._end_event(events)

    def _read_field(self, line: bytes) -> None:
        if line.startswith(b"data:") or line == b"data":
            if not self._too_long:
                self._add_data(_value(line))
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            text = _short_text(value)
            if text is not None:
                self._event = text
        elif name == b"id":
            text = _short_text(value)
            if text is not None and "\0" not in text:
                self._id = self._id_buffer = text
        elif name == b"retry" and value.isdigit() and len(value) <= _RETRY_DIGITS:
            self._retry = self._reconnect = int(value)

    def _add_data(self, value: memoryview) -> None:
        if self._has_data:
            self._size += self._data.write(b"\n")
        self._size += self._data.write(value)
        self._has_data = True

    def _give_up(self, line: bytes, events: list[Event | EventTooLong]) -> None:
        """Drops the event's data, because ``line`` takes it past the cap."""
        if not self._too_long:
            # Only what is within the cap: a larger chunk would show more of the event than a smaller one.
            line = line[: self.max_event - self._size]
            if line.startswith(b"data:"):
                self._add_data(_value(line[:_KEPT]))
            events.append(EventTooLong(self.max_event, self._data.getvalue()[:HEAD_BYTES]))
            self._data = BytesIO()
            self._size = 0
            self._too_long = True
            self._begun = True

    def _end_event(self, events: list[Event | EventTooLong]) -> None:
        self._last_event_id = self._id_buffer
        if self._has_data and not self._too_long:
            events.append(Event(self._data.getvalue(), self._event or "message", self._id, self._retry))
        if self._begun:
            self._data = BytesIO()
            self._size = 0
            self._has_data = False
            self._event = ""
            self._id = None
            self._retry = None
            self._too_long = False
            self._begun = False


def _value(line: bytes) -> memoryview:
    """What stands in a line ``data: value``, without copying it."""
    return memoryview(line)[len("data: ") if line.startswith(b"data: ") else len("data:") :]


def _short_text(value: bytes) -> str | None:
    """The text of a field, None if it is too long, as it came or as it would be sent back."""
    if len(value) > MAX_EVENT_FIELD:
        return None
    text = value.decode("utf-8", "replace")
    return text if len(text.encode()) <= MAX_EVENT_FIELD else None


def _written(name: str, text: str, forbidden: str) -> bytes:
    if any(character in text for character in forbidden):
        raise EncodeError(f"The {name} of an event has a character in it that would end the field: {text[:80]!a}.")
    value = _utf8(name, text)
    if len(value) > MAX_EVENT_FIELD:
        raise EncodeError(f"The {name} of an event has {len(value)} bytes: use one of at most {MAX_EVENT_FIELD}.")
    return value


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"The {name} of an event has a lone surrogate, which UTF-8 cannot carry.") from error


def _split(data: bytes) -> list[bytes]:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.split(b"\n")

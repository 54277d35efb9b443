"""Encode and decode server-sent events: the framing of a stream over HTTP.

The decoder follows the HTML standard, as browsers do, and adds a size limit. Like the line splitter, it buffers only
the unfinished event, and its output does not depend on how the stream was cut into chunks.
"""

from __future__ import annotations

from io import BytesIO

import msgspec

from mcplumb.errors import EncodeError, UsageError
from mcplumb.limits import MAX_EVENT_FIELD
from mcplumb.wire.lines import BYTE_ORDER_MARK, HEAD_BYTES, LineBuffer

__all__ = ["Event", "EventDecoder", "EventTooLong", "encode_comment", "encode_event"]

# How many bytes of an over-long line are kept: enough for the head of its data.
_HEAD_OF_LINE = len("data: ") + HEAD_BYTES
# A longer number of milliseconds makes no sense, and Python refuses to parse integers of thousands of digits.
_RETRY_DIGITS = 18


class Event(msgspec.Struct, frozen=True):
    """One event. ``id`` and ``retry`` are None if this event did not have these fields itself."""

    data: bytes
    event: str = "message"
    id: str | None = None
    retry: int | None = None


class EventTooLong(msgspec.Struct, frozen=True):
    """An event exceeds the limit and is discarded; ``head`` has the first bytes of its data (at most 1024)."""

    max_event: int
    head: bytes


def encode_event(
    data: bytes, *, event: str | None = None, event_id: str | None = None, retry: int | None = None
) -> bytes:
    r"""Return one event as bytes. A ``\r``, ``\n`` or ``\r\n`` in ``data`` reaches the reader as ``\n``.

    ``event`` and ``event_id`` may have at most 1024 bytes: `EventDecoder` ignores longer ones.
    """
    lines = []
    if event is not None:
        lines.append(b"event: " + _field_value("event", event, "\r\n"))
    if event_id is not None:
        lines.append(b"id: " + _field_value("id", event_id, "\r\n\0"))
    if retry is not None:
        if retry < 0 or len(str(retry)) > _RETRY_DIGITS:
            raise EncodeError(f"The retry time of an event cannot be {retry}: it must be a number of milliseconds.")
        lines.append(b"retry: %d" % retry)
    lines.extend(b"data: " + line for line in _split_lines(data))
    return b"\n".join(lines) + b"\n\n"


def encode_comment(text: str = "") -> bytes:
    """Return a comment as bytes. Readers ignore comments; sending one keeps an idle stream open."""
    return b"".join(b": " + line + b"\n" for line in _split_lines(_utf8("comment", text))) + b"\n"


class EventDecoder:
    r"""Splits a byte stream into events.

    ``max_event`` limits the data of one event plus the line being read, except comments: as soon as they exceed it, the
    decoder reports one `EventTooLong` and discards the event up to the blank line that ends it. The event's id is kept
    nevertheless: a reader that resumed from an earlier id would only receive the same event again.

    An ``id`` or ``event`` of more than 1024 bytes is ignored, because an id is kept as long as the stream and sent back
    in a header. A byte-order mark at the start of the stream is removed and not counted.
    """

    __slots__ = (
        "_after_cr",
        "_data",
        "_event",
        "_has_data",
        "_has_started",
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
            raise UsageError(f"The event limit is {max_event}: it must be at least 1.")
        self.max_event = max_event
        # The stream.
        self._last_event_id = ""
        self._id_buffer = ""
        self._reconnect: int | None = None
        self._after_cr = False
        # The part of a byte-order mark that has arrived; None once the stream is past it.
        self._mark: bytes | None = b""
        # The line being read.
        self._line = LineBuffer()
        self._skipping = False
        # The event being read. Its data is in one buffer, as a list of short lines would take many times their size.
        self._data = BytesIO()
        self._size = 0
        self._has_data = False
        self._event = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._too_long = False
        self._has_started = False

    @property
    def last_event_id(self) -> str:
        """The id to resume from: that of the last complete event, its own or inherited. Empty if there is none."""
        return self._last_event_id

    @property
    def retry(self) -> int | None:
        """The delay before a reconnect that the stream asked for last, in milliseconds."""
        return self._reconnect

    def feed(self, chunk: bytes) -> list[Event | EventTooLong]:
        """Return the events that ``chunk`` completes, and a report for each that exceeds the limit, in order."""
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
            self._buffer(rest, events)
        return events

    def end(self) -> bool:
        """Return whether the stream ended between two events. An unfinished event is dropped, as the standard says."""
        return not (self._has_started or self._line.size or self._mark)

    def _without_mark(self, start: bytes) -> bytes:
        """Return the start of the stream without a byte-order mark; no bytes while it may still become one."""
        if len(start) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(start):
            self._mark = start
            return b""
        self._mark = None
        return start.removeprefix(BYTE_ORDER_MARK)

    def _buffer(self, rest: bytes, events: list[Event | EventTooLong]) -> None:
        """Buffer the beginning of a line. A comment, and a line that exceeds the limit, is skipped instead."""
        if not self._line.size and rest.startswith(b":"):
            self._skipping = True
        elif self._size + self._line.size + len(rest) > self.max_event:
            self._line.add(rest[:_HEAD_OF_LINE])
            self._discard_event(self._line.take(), events)
            self._skipping = True
        else:
            self._line.add(rest)

    def _end_line(self, line: bytes, events: list[Event | EventTooLong]) -> None:
        if line.startswith(b":"):
            return
        if self._size + len(line) > self.max_event:
            self._discard_event(line, events)
            return
        if line:
            self._has_started = True
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

    def _discard_event(self, line: bytes, events: list[Event | EventTooLong]) -> None:
        """Report and discard the event, which exceeds the limit with ``line``."""
        if not self._too_long:
            # Only bytes within the limit: otherwise a larger chunk would show more of the event than a smaller one.
            line = line[: self.max_event - self._size]
            if line.startswith(b"data:"):
                self._add_data(_value(line[:_HEAD_OF_LINE]))
            events.append(EventTooLong(self.max_event, self._data.getvalue()[:HEAD_BYTES]))
            self._data = BytesIO()
            self._size = 0
            self._too_long = True
            self._has_started = True

    def _end_event(self, events: list[Event | EventTooLong]) -> None:
        self._last_event_id = self._id_buffer
        if self._has_data and not self._too_long:
            events.append(Event(self._data.getvalue(), self._event or "message", self._id, self._retry))
        if self._has_started:
            self._data = BytesIO()
            self._size = 0
            self._has_data = False
            self._event = ""
            self._id = None
            self._retry = None
            self._too_long = False
            self._has_started = False


def _value(line: bytes) -> memoryview:
    """Return the value of a line ``data: value``, without copying it."""
    return memoryview(line)[len("data: ") if line.startswith(b"data: ") else len("data:") :]


def _short_text(value: bytes) -> str | None:
    """Return the text of a field; None if it is too long, as received or as it would be sent back."""
    if len(value) > MAX_EVENT_FIELD:
        return None
    text = value.decode("utf-8", "replace")
    return text if len(text.encode()) <= MAX_EVENT_FIELD else None


def _field_value(name: str, text: str, forbidden: str) -> bytes:
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


def _split_lines(data: bytes) -> list[bytes]:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.split(b"\n")

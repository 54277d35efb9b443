"""What a stream holds, decided a second time: byte by byte, from the whole of it, and with nothing shared with mcplumb.

Only the records that are compared in the end are mcplumb's own.
"""

from __future__ import annotations

from typing import NamedTuple

from mcplumb.wire.lines import End, LineTooLong
from mcplumb.wire.server_sent_events import Event, EventTooLong

__all__ = ["Events", "Lines", "plain_events", "plain_lines"]

BOM = b"\xef\xbb\xbf"
HEAD = 1024
FIELD = 1024
CR, LF = 13, 10
SPACES = b" \t\n\r\x0b\x0c"


class Lines(NamedTuple):
    """The lines of a stream, and how it ended."""

    lines: list[bytes | LineTooLong]
    end: End


class Events(NamedTuple):
    """The events of a stream, what is left of it for a reconnect, and whether it ended between two of them."""

    events: list[Event | EventTooLong]
    last_event_id: str
    retry: int | None
    clean: bool


def plain_lines(data: bytes, max_line: int) -> Lines:
    """What a line splitter has to make of ``data``."""
    pieces = [bytearray()]
    for byte in data:
        if byte == LF:
            pieces.append(bytearray())
        else:
            pieces[-1].append(byte)
    lines: list[bytes | LineTooLong] = []
    end = End(clean=True, rest=b"")
    for number, piece in enumerate(pieces):
        is_last = number == len(pieces) - 1
        line = bytes(piece)
        too_long = len(line) > max_line
        if too_long:
            line = line[: min(max_line, HEAD)]
        if number == 0 and line[:3] == BOM:
            line = line[3:]
        if too_long:
            lines.append(LineTooLong(max_line, line))
            if is_last:
                end = End(clean=False, rest=b"")
            continue
        if line[-1:] == b"\r":
            line = line[:-1]
        if all(byte in SPACES for byte in line):
            continue
        if is_last:
            end = End(clean=False, rest=line)
        else:
            lines.append(line)
    return Lines(lines, end)


def plain_events(data: bytes, max_event: int) -> Events:
    """What an event decoder has to make of ``data``."""
    if data in (BOM[:1], BOM[:2]):
        return Events([], "", None, clean=False)
    *lines, rest = _event_lines(data[3:] if data[:3] == BOM else data)
    reader = _Reader(max_event)
    for line in lines:
        reader.read(line)
    reader.overflows(rest)
    clean = not reader.fields and (not rest or rest[:1] == b":")
    return Events(reader.events, reader.last_event_id, reader.retry, clean)


def _event_lines(data: bytes) -> list[bytes]:
    """Everything that stands before a line end, and what stands behind the last one."""
    lines = [bytearray()]
    for at, byte in enumerate(data):
        if byte == CR or (byte == LF and data[max(0, at - 1)] != CR):
            lines.append(bytearray())
        elif byte != LF:
            lines[-1].append(byte)
    return [bytes(line) for line in lines]


class _Reader:
    def __init__(self, max_event: int) -> None:
        self.max_event = max_event
        self.events: list[Event | EventTooLong] = []
        self.last_event_id = ""
        self.current_id = ""
        self.retry: int | None = None
        self.start()

    def start(self) -> None:
        self.fields = 0
        self.values: list[bytes] = []
        self.name = ""
        self.id: str | None = None
        self.wait: int | None = None
        self.is_too_long = False

    def read(self, line: bytes) -> None:
        if line == b"":
            self.last_event_id = self.current_id
            if self.values and not self.is_too_long:
                self.events.append(Event(b"\n".join(self.values), self.name or "message", self.id, self.wait))
            self.start()
        elif line[:1] != b":" and not self.overflows(line):
            self.fields += 1
            name, value = _name_and_value(line)
            self.set_field(name, value)

    def overflows(self, line: bytes) -> bool:
        """Whether ``line`` takes the event past the cap; then it is reported, once."""
        room = self.max_event - (0 if self.is_too_long else len(b"\n".join(self.values)))
        if len(line) <= room or line[:1] == b":":
            return False
        if not self.is_too_long:
            shown = line[:room]
            if shown[:5] == b"data:":
                self.values.append(_name_and_value(shown)[1])
            self.events.append(EventTooLong(self.max_event, b"\n".join(self.values)[:HEAD]))
            self.is_too_long = True
            self.fields += 1
        return True

    def set_field(self, name: bytes, value: bytes) -> None:
        text = value.decode("utf-8", "replace")
        is_short = len(text.encode()) <= FIELD
        if name == b"data":
            if not self.is_too_long:
                self.values.append(value)
        elif name == b"event" and is_short:
            self.name = text
        elif name == b"id" and is_short and "\0" not in text:
            self.id = self.current_id = text
        elif name == b"retry" and 0 < len(value) < 19 and all(byte in b"0123456789" for byte in value):
            self.wait = self.retry = int(value)


def _name_and_value(line: bytes) -> tuple[bytes, bytes]:
    if b":" not in line:
        return line, b""
    colon = line.index(b":")
    value = line[colon + 1 :]
    return line[:colon], value[1:] if value[:1] == b" " else value

"""Split a byte stream into lines: the framing of every byte stream that carries messages.

The splitter buffers only the unfinished line, never more than the limit of it, and inspects each byte at most twice.
Its output does not depend on how the stream was cut into chunks; the tests verify that.
"""

from __future__ import annotations

from io import BytesIO

import msgspec

from mcplumb.errors import UsageError

__all__ = ["BYTE_ORDER_MARK", "HEAD_BYTES", "End", "LineBuffer", "LineSplitter", "LineTooLong"]

#: How many bytes of an over-long line are kept: enough to identify the request.
HEAD_BYTES = 1024

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineTooLong(msgspec.Struct, frozen=True):
    """A line exceeds the limit and is discarded; ``head`` has its first bytes (at most 1024)."""

    max_line: int
    head: bytes


class End(msgspec.Struct, frozen=True):
    """How a stream ended: on a line boundary (``clean``), or in the middle of the line ``rest``.

    ``rest`` is empty after a clean end, and also when the unfinished line was over-long and being discarded. A stream
    whose unfinished line is only white space ends clean, because nothing is lost.
    """

    clean: bool
    rest: bytes


class LineBuffer:
    """A buffer for the beginning of a line whose end has not arrived yet, and its size in bytes."""

    __slots__ = ("_bytes", "size")

    def __init__(self) -> None:
        # A BytesIO hands out its bytes without copying them, which a bytearray cannot do.
        self._bytes = BytesIO()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Append bytes to the buffer."""
        self.size += self._bytes.write(piece)

    def value(self) -> bytes:
        """Return the buffered bytes, and keep them."""
        return self._bytes.getvalue()

    def take(self) -> bytes:
        """Return the buffered bytes, and empty the buffer."""
        line = self._bytes.getvalue()
        self._bytes = BytesIO()
        self.size = 0
        return line


class LineSplitter:
    r"""Splits a byte stream into lines.

    A line ends with ``\n`` or ``\r\n``, which is removed; so is a byte-order mark at the start of the stream. Blank
    lines are dropped. ``max_line`` limits the bytes before the newline, including the ``\r`` and the mark: as soon as
    a line exceeds it, the splitter reports one `LineTooLong` and discards the line's bytes up to and including its
    newline. Then it continues with the next line.
    """

    __slots__ = ("_discarding", "_first", "_line", "longest_whole", "max_line")

    def __init__(self, max_line: int) -> None:
        if max_line < 1:
            raise UsageError(f"The line limit is {max_line}: it must be at least 1.")
        self.max_line = max_line
        self._line = LineBuffer()
        self._discarding = False
        self._first = True
        #: A chunk that is one whole line, with its newline, need not be fed if it has at most this many bytes: 0 while
        #: a line has begun, and until the first one is past.
        self.longest_whole = 0

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Return the lines that ``chunk`` completes, and a report for each line that exceeds the limit, in order."""
        lines = self._cut(chunk, chunk.find(b"\n"))
        self.longest_whole = 0 if self._line.size or self._first or self._discarding else self.max_line
        return lines

    def _cut(self, chunk: bytes, end: int) -> list[bytes | LineTooLong]:
        room = self.max_line - self._line.size
        if end < 0 and len(chunk) <= room and not self._discarding:
            # A piece of a long line. Searching it takes a tenth of the time that splitting it would take.
            self._line.add(chunk)
            return []
        pieces = chunk.split(b"\n")
        if self._first or self._discarding or (len(chunk) > room and max(map(len, pieces)) > room):
            return self._feed_carefully(pieces)
        rest = pieces.pop()
        was_held = self._line.size
        if was_held:
            self._line.add(pieces[0])
            pieces[0] = self._line.take()
        if b"\r" in chunk:
            pieces = [piece.removesuffix(b"\r") for piece in pieces]
        elif was_held:
            # The \r may have been in an earlier chunk.
            pieces[0] = pieces[0].removesuffix(b"\r")
        if rest:
            self._line.add(rest)
        return [*filter(bytes.strip, pieces)]

    def end(self) -> End:
        """Return how the stream ended. Call it after the last chunk."""
        rest = self._finished(self._line.value())
        if not rest.strip():
            rest = b""
        return End(clean=not (rest or self._discarding), rest=rest)

    def _feed_carefully(self, pieces: list[bytes]) -> list[bytes | LineTooLong]:
        """Split a chunk in which a line may exceed the limit, may be the stream's first, or is being discarded."""
        lines: list[bytes | LineTooLong] = []
        rest = pieces.pop()
        for piece in pieces:
            if self._discarding:
                self._discarding = False
            elif self._line.size + len(piece) > self.max_line:
                lines.append(self._report(piece))
            else:
                self._line.add(piece)
                line = self._finished(self._line.take())
                if line.strip():
                    lines.append(line)
            self._first = False
        if not self._discarding:
            if self._line.size + len(rest) > self.max_line:
                lines.append(self._report(rest))
                self._discarding = True
            else:
                self._line.add(rest)
        return lines

    def _finished(self, line: bytes) -> bytes:
        return (line.removeprefix(BYTE_ORDER_MARK) if self._first else line).removesuffix(b"\r")

    def _report(self, piece: bytes) -> LineTooLong:
        """Report and discard the unfinished line, which exceeds the limit with ``piece``."""
        # Only bytes within the limit: otherwise a larger chunk would show more of the line than a smaller one.
        shown = min(HEAD_BYTES, self.max_line)
        self._line.add(piece[:shown])
        head = self._line.take()[:shown]
        return LineTooLong(self.max_line, head.removeprefix(BYTE_ORDER_MARK) if self._first else head)

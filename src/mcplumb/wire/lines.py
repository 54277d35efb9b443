"""Bytes in, complete lines out: the frame of every byte stream that carries messages.

The splitter keeps only the unfinished line, never more than the cap of it, and looks at each byte no more than twice.
What it gives does not depend on how the stream was cut into chunks; the tests hold it to that.
"""

from __future__ import annotations

from io import BytesIO

import msgspec

from mcplumb.errors import UsageError

__all__ = ["BYTE_ORDER_MARK", "HEAD_BYTES", "End", "LineSplitter", "LineTooLong", "Unfinished"]

#: How much of an over-long line is kept: enough to name the request it was.
HEAD_BYTES = 1024

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LineTooLong(msgspec.Struct, frozen=True):
    """A line passed the cap and is being discarded; ``head`` is how it began (at most 1024 bytes)."""

    max_line: int
    head: bytes


class End(msgspec.Struct, frozen=True):
    """How a stream ended: on a line boundary (``clean``), or in the middle of the line ``rest``.

    ``rest`` is empty after a clean end, and also when the torn line was over-long and being discarded. A stream
    that ends in white space only is clean, for nothing was lost.
    """

    clean: bool
    rest: bytes


class Unfinished:
    """The line of which the end has not come yet, and how many bytes of it have."""

    __slots__ = ("_bytes", "size")

    def __init__(self) -> None:
        # A BytesIO gives its bytes away without copying them, which a bytearray cannot.
        self._bytes = BytesIO()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Holds some more of the line."""
        self.size += self._bytes.write(piece)

    def value(self) -> bytes:
        """The bytes, which stay held."""
        return self._bytes.getvalue()

    def take(self) -> bytes:
        """The bytes, which are then no longer held."""
        line = self._bytes.getvalue()
        self._bytes = BytesIO()
        self.size = 0
        return line


class LineSplitter:
    r"""Cuts a byte stream into lines.

    A line is what stands before a ``\n``, without that newline, without one ``\r`` before it, and, for the first line
    of the stream, without a byte-order mark. Blank lines are dropped. ``max_line`` caps the bytes before the newline,
    the ``\r`` and the mark included: the moment a line passes it, it is reported as one `LineTooLong`, and its
    bytes are discarded as they stream past, up to and with its newline. Then the stream goes on.
    """

    __slots__ = ("_discarding", "_first", "_line", "is_at_start", "max_line")

    def __init__(self, max_line: int) -> None:
        if max_line < 1:
            raise UsageError(f"The line cap is {max_line}: it must be at least 1.")
        self.max_line = max_line
        self._line = Unfinished()
        self._discarding = False
        self._first = True
        #: Whether a chunk that is one whole line need not be fed: no line has begun, and the first one is past.
        self.is_at_start = False

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """The lines that ``chunk`` completes, and a report for each line in it that passes the cap, in order."""
        lines = self._cut(chunk, chunk.find(b"\n"))
        self.is_at_start = not (self._line.size or self._first or self._discarding)
        return lines

    def _cut(self, chunk: bytes, end: int) -> list[bytes | LineTooLong]:
        room = self.max_line - self._line.size
        if end < 0 and len(chunk) <= room and not self._discarding:
            # A piece of a long line. To have searched it took a tenth of the time that splitting it would take.
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
            # The \r may have come with an earlier chunk.
            pieces[0] = pieces[0].removesuffix(b"\r")
        if rest:
            self._line.add(rest)
        return [*filter(bytes.strip, pieces)]

    def end(self) -> End:
        """How the stream ended; to be asked after the last chunk."""
        rest = self._finished(self._line.value())
        if not rest.strip():
            rest = b""
        return End(clean=not (rest or self._discarding), rest=rest)

    def _feed_carefully(self, pieces: list[bytes]) -> list[bytes | LineTooLong]:
        """The same as `_cut`, for a chunk in which a line may pass the cap, may be the first, or is discarded."""
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
        """Gives up the unfinished line, which ``piece`` takes past the cap."""
        # Only what is within the cap: a larger chunk would show more of the line than a smaller one.
        shown = min(HEAD_BYTES, self.max_line)
        self._line.add(piece[:shown])
        head = self._line.take()[:shown]
        return LineTooLong(self.max_line, head.removeprefix(BYTE_ORDER_MARK) if self._first else head)

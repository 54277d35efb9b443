"""The format of recordings: one header and one record per line, as JSON, and a reader that survives damaged files.

A recording is appended to while its session runs, so its last line may be torn; the reader waits for the rest of it or
drops it. Unknown keys and unknown kinds of records are ignored, so that old readers read new recordings.
"""

from __future__ import annotations

import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, TypeAlias, cast

import msgspec

from mcplumb.errors import McplumbError, UsageError
from mcplumb.limits import MAX_READ_LINE
from mcplumb.types.payload_decoder import UNREADABLE

__all__ = [
    "FORMAT",
    "SUFFIX",
    "VERSION",
    "By",
    "Header",
    "Host",
    "Http",
    "Record",
    "RecordingReader",
    "Side",
    "Target",
    "encode",
    "line_record",
    "read_recording",
]

FORMAT = "mcplumb-recording"
VERSION = 1
#: The end of a recording's name; a compressed one has ``.gz`` after it.
SUFFIX = ".mcp.jsonl"

By: TypeAlias = Literal["tap", "client", "server", "bridge"]
Side: TypeAlias = Literal["client", "server"]
_Transport: TypeAlias = Literal["stdio", "http", "sse", "unix", "tcp", "memory"]


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server of a session: the command that starts it, or its address. Secrets in it are masked."""

    command: list[str] | None = None
    url: str | None = None


class Host(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that started the tap."""

    pid: int
    program: str = ""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a recording."""

    format: str
    version: int
    id: str
    #: The time of the start, in UTC: ``2026-11-18T12:00:00.123456Z``.
    started: str
    by: By
    transport: _Transport
    name: str = ""
    target: Target = msgspec.field(default_factory=Target)
    host: Host | None = None
    #: The version of mcplumb that wrote it.
    mcplumb: str = ""


class Http(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The HTTP exchange that a record belongs to, and the part of it that the record shows."""

    exchange: int
    # Of a request
    method: str | None = None
    path: str | None = None
    # Of a response
    status: int | None = None
    #: Of a request or a response: pairs of name and value.
    headers: list[tuple[str, str]] | None = None
    # Of an event of a stream
    event: str | None = None
    event_id: str | None = None

    def header(self, name: str) -> str | None:
        """Return the first value of a header, by its name in lower case; None if there is none."""
        return next((value for found, value in self.headers or () if found.lower() == name), None)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line after the first: a line of traffic, a line of stderr, or an event.

    A record with ``event`` is an event; one with ``stderr`` a line of stderr; all others are lines of traffic.
    """

    #: Seconds since the start.
    t: float
    sender: Side | None = msgspec.field(default=None, name="from")
    # A line of traffic
    text: str | None = None
    base64: str | None = None
    torn: bool = False
    crlf: bool = False
    #: The size of the whole line, of which only the beginning was kept.
    cut: int | None = None
    masked: bool = False
    #: The size of the line as it was sent, where masking has changed it.
    size: int | None = None
    http: Http | None = None
    #: For a server at a socket: the connection that it belongs to.
    connection: int | None = None
    # A line of stderr
    stderr: str | None = None
    # An event
    event: str | None = None
    code: int | None = None
    signal: str | None = None
    records: int | None = None
    byte_count: int | None = msgspec.field(default=None, name="bytes")
    reason: str | None = None

    @property
    def line(self) -> bytes | None:
        """The line as it was sent, unless it was cut or masked; None if the record has none."""
        if self.text is not None:
            return self.text.encode("utf-8", "surrogatepass")
        if self.base64 is None:
            return None
        try:
            return b64decode(self.base64)
        except ValueError:
            return b""

    @property
    def sent_size(self) -> int:
        """The bytes of the line when it was sent, without its line end."""
        return self.cut or self.size or len(self.line or b"")


_encoder = msgspec.json.Encoder()
#: Bytes of the first line of a recording.
_MAX_HEADER = 1024 * 1024
_decode_header = msgspec.json.Decoder(Header).decode
_decode_record = msgspec.json.Decoder(Record).decode


def encode(*lines: Header | Record) -> bytes:
    """Return some lines of a recording, each with its newline."""
    return _encoder.encode_lines(lines)


def line_record(t: float, sender: Side | None, line: bytes, **more: Any) -> Record:
    """Return the record of a line of traffic: as text if it is UTF-8, else in base64."""
    try:
        return Record(t=t, sender=sender, text=line.decode(), **more)
    except UnicodeDecodeError:
        return Record(t=t, sender=sender, base64=b64encode(line).decode(), **more)


class RecordingReader:
    """Reads a recording, compressed or not, as far as it is written; each read continues after the previous one.

    Raises `UsageError` if the file cannot be opened, or if its first line is not the header of a recording.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        #: The number of lines that are not records, because the recorder crashed or the file is damaged.
        self.skipped = 0
        self._number = 0
        self._rest = b""
        #: Whether the line that is being read is longer than any that is kept.
        self._is_too_long = False
        #: The time of the last record.
        self._t = 0.0
        #: Whether a compressed file ended too early, which was not reported yet.
        self._is_cut = False
        self._file: IO[bytes] = self._open()
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def is_replaced(self) -> bool:
        """Return whether another recording has taken the place of this one: by a new file, or in the same one."""
        try:
            now = self.path.stat()
        except OSError:
            return False  # what was opened can still be read
        opened = os.fstat(self._file.fileno())
        is_cut = not self.path.name.endswith(".gz") and now.st_size < self._file.tell()
        return is_cut or (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino)

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield the records that have been written since the last call, each with the number of its line.

        In the place of a line that is no record, there is the event ``lost``, unless the recorder reports it next.
        """
        damaged: list[int] = []
        for line in self._lines():
            try:
                record = _decode_record(line)
            except UNREADABLE:
                self.skipped += 1
                damaged.append(self._number)
                continue
            if record.event in ("lost", "restart"):
                damaged = damaged[:-1]
            yield from map(self._lost, damaged)
            damaged = []
            self._t = record.t
            yield self._number, record
        yield from map(self._lost, damaged)
        if self._is_cut:
            self._is_cut = False
            yield self._lost(self._number + 1, "The file is cut off or damaged.")

    def _lost(self, number: int, reason: str = "A line of the file is damaged.") -> tuple[int, Record]:
        return number, Record(t=self._t, event="lost", records=1, reason=reason)

    def last(self) -> tuple[int, Record] | None:
        """Return the record in a last line without a newline, if it is complete; call it at the end."""
        try:
            return (self._number + 1, _decode_record(self._rest)) if self._rest else None
        except UNREADABLE:
            return None

    def _open(self) -> IO[bytes]:
        try:
            if self.path.name.endswith(".gz"):
                import gzip

                return cast("IO[bytes]", gzip.open(self.path))
            return self.path.open("rb")
        except OSError as error:
            raise UsageError(f"The recording {self.path} cannot be read: {error.strerror}.") from None

    def _read_header(self) -> Header:
        line = next(self._lines(_MAX_HEADER), b"")
        try:
            header = _decode_header(line)
        except UNREADABLE:
            if self._is_cut:
                raise UsageError(f"The recording {self.path} is damaged: its beginning cannot be read.") from None
            what = "its first line is not the header of one" if line or self._rest else "it is empty"
            raise UsageError(f"{self.path} is not a recording: {what}.") from None
        if header.format != FORMAT:
            raise UsageError(f"{self.path} is not a recording: its format is {header.format[:80]!a}.")
        if header.version > VERSION:
            raise UsageError(
                f"The recording {self.path} has version {header.version} of the format, and this mcplumb reads "
                f"version {VERSION}. Install a newer mcplumb."
            )
        return header

    def _lines(self, longest: int | None = None) -> Iterator[bytes]:
        """Yield the lines that are complete. In the place of one that is too long, there is an empty one."""
        longest = longest or MAX_READ_LINE
        try:
            while part := self._file.readline(longest):
                line, self._rest = self._rest + part, b""
                self._is_too_long = self._is_too_long or len(line) > longest
                if not part.endswith(b"\n"):
                    if not self._is_too_long:
                        self._rest = line
                    elif not self._number:
                        self._rest = line
                        return  # this is no header, and so no recording
                    continue
                if self._is_too_long:
                    line, self._is_too_long = b"\n", False
                self._number += 1
                yield line
        except (EOFError, zlib.error):
            self._is_cut = True  # what was read before is good
        except OSError as error:
            import gzip

            if isinstance(error, gzip.BadGzipFile) and self._number:
                self._is_cut = True  # its checksum is wrong, or something follows it
                return
            raise McplumbError(f"The recording {self.path} cannot be read: {error.strerror or error}.") from None


def read_recording(path: str | Path) -> tuple[Header, list[tuple[int, Record]]]:
    """Return the header and all records of a recording, each with the number of its line."""
    with RecordingReader(path) as reader:
        found = list(reader.records())
        if (last := reader.last()) is not None:
            found.append(last)
        return reader.header, found

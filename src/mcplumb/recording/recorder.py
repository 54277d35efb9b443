"""Write recordings without ever blocking the recorded program.

`RecordingWriter` appends records to a file, and counts those that it cannot write. `StreamRecords` makes records of
a byte stream. `Recorder` takes records from a program, from any thread, and writes them in a thread of its own; a queue
of limited size is between them, and what does not fit into it is counted and recorded as lost.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mcplumb.errors import UsageError
from mcplumb.limits import MAX_RECORDED_LINE, MAX_RECORDING, MAX_UNRECORDED
from mcplumb.recording.mask_secrets import StderrMask, mask_headers, mask_session_ids, mask_text, may_have_secrets
from mcplumb.recording.recording_format import (
    FORMAT,
    VERSION,
    By,
    Header,
    Host,
    Http,
    Record,
    Side,
    Target,
    encode,
    line_record,
)
from mcplumb.recording.recordings_folder import open_recording, tidy_folder
from mcplumb.version import __version__

__all__ = ["Recorder", "RecordingWriter", "StreamRecords", "new_header"]

#: Seconds between two writes of a recorder that is busy. Each write costs the same, however much it writes.
_INTERVAL = 0.01
#: Seconds that the exit of a program waits for its recorder.
_EXIT_TIMEOUT = 2.0
#: The decimals of times.
_DIGITS = 6
#: Characters of texts that are searched together: they are copied for that.
_MOST_TOGETHER = 1024 * 1024
#: What a record takes in the queue beside its text.
_OVERHEAD = 200


def new_header(
    by: By,
    transport: Any,
    *,
    name: str = "",
    target: Target | None = None,
    host: Host | None = None,
    now: float | None = None,
    unique: str = "",
) -> Header:
    """Return the header of a recording that starts now, or at ``now``; ``unique`` is the last part of its id."""
    now = time.time() if now is None else now
    seconds = time.gmtime(now)
    return Header(
        format=FORMAT,
        version=VERSION,
        id=f"{time.strftime('%Y%m%dT%H%M%SZ', seconds)}-{unique or os.urandom(3).hex()}",
        started=f"{time.strftime('%Y-%m-%dT%H:%M:%S', seconds)}.{int(now % 1 * 1e6):06d}Z",
        by=by,
        transport=transport,
        name=name,
        target=target or Target(),
        host=host,
        mcplumb=__version__,
    )


class RecordingWriter:
    """Appends records to a file, which is created at once. It never raises for a file: it counts what is lost.

    ``place`` is a file, or a folder, which gets a new file; None is the default folder. With ``goes_on``, the file is
    continued that another writer with this header began. Secrets are masked unless ``masks`` is False. ``watch`` is
    called with all records as well, before anything is masked; it must not raise.
    """

    def __init__(
        self,
        header: Header,
        place: str | Path | None = None,
        *,
        masks: bool = True,
        keep: int | None = None,
        goes_on: bool = False,
        watch: Callable[[Sequence[Record]], object] | None = None,
    ) -> None:
        self._watch = watch
        self._masks = masks
        self._stderr = StderrMask()
        self._keep = keep
        self._lost = 0
        self._reason = ""
        self._is_torn = False
        self._is_full = False
        self._size = 0
        #: The file, and why there is none.
        self.path: Path | None = None
        self.failure = ""
        self._fd = -1
        try:
            self._fd, self.path = open_recording(header, place, goes_on=goes_on)
            goes_on = goes_on and not _lacks_header(self._fd, self.path)
        except OSError as error:
            self.failure = f"{error.strerror or error}: {error.filename or place}"
        except UsageError as error:
            self.failure = str(error)
        else:
            if goes_on:
                # The writer before may have died within a line.
                self._is_torn = True
                self._size = os.fstat(self._fd).st_size
            else:
                self._append([header])

    @property
    def lost(self) -> int:
        """The number of records that could not be written and are not yet recorded as lost."""
        return self._lost

    def write(self, records: Sequence[Record]) -> None:
        """Append some records, with secrets masked."""
        if not records:
            return
        if self._watch is not None:
            self._watch(records)
        if self._fd < 0 or self._is_full:
            self._lost += len(records)
            return
        lines: list[Record | Header] = [*(self._mask_all(records) if self._masks else records)]
        lost, self._lost = self._lost, 0
        if self._size > MAX_RECORDING:
            self._is_full = True
            self._reason = f"The recording has reached its limit of {MAX_RECORDING >> 20} MiB"
            lines, lost = [], lost + len(records)
        if lost:
            reason = f"{self._reason}." if self._reason else None
            lines.insert(0, Record(t=records[0].t, event="lost", records=lost, reason=reason))
        if not self._append(lines) and lost:
            # The report of those that were lost before is the first of the lines that were not written.
            self._lost += lost - 1

    def close(self) -> None:
        """Close the file, and tidy its folder if that is the default one."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            if self.path is not None:
                with contextlib.suppress(UsageError):
                    tidy_folder(self.path, self._keep)

    def _append(self, lines: Sequence[Header | Record]) -> bool:
        """Append some lines, and count those that could not be written; return whether any was."""
        # A line that could only be written in part is ended by a newline of its own, and readers skip it.
        before = b"\n" if self._is_torn else b""
        data = before + encode(*lines)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError as error:
            self._reason = error.strerror or str(error)
        self._size += written
        if not written:
            self._lost += len(lines)
            return False
        whole = data.count(b"\n", len(before), written)
        self._lost += len(lines) - whole
        self._is_torn = data[written - 1 : written] != b"\n"
        return whole > 0

    def _mask_all(self, records: Sequence[Record]) -> Iterable[Record]:
        """Mask secrets in all records. To search them together for traces of any takes less time than one by one."""
        texts = [record.text for record in records if record.text is not None]
        if sum(map(len, texts)) > _MOST_TOGETHER or may_have_secrets("\n".join(texts)):
            return map(self._masked, records)
        return [
            record if record.text is not None and record.http is None else self._masked(record) for record in records
        ]

    def _masked(self, record: Record) -> Record:
        if record.stderr is not None:
            text = self._stderr.mask(record.stderr)
            if text is not record.stderr:
                record = msgspec.structs.replace(record, stderr=text, masked=True)
        elif record.text is not None or record.base64 is not None:
            said = record.text if record.text is not None else (record.line or b"").decode("utf-8", "surrogateescape")
            text = mask_text(said)
            if record.http is not None and record.http.event == "endpoint":
                text = mask_session_ids(text)
            if text != said:
                masked = line_record(record.t, record.sender, text.encode("utf-8", "surrogateescape"))
                size = record.size or len(record.line or b"")
                record = msgspec.structs.replace(record, text=masked.text, base64=masked.base64, masked=True, size=size)
        if record.reason is not None and (reason := mask_text(record.reason)) is not record.reason:
            # An error may quote the command of a server, and the end of its stderr.
            record = msgspec.structs.replace(record, reason=reason, masked=True)
        if record.http is not None and (record.http.headers is not None or record.http.path is not None):
            record = msgspec.structs.replace(record, http=_without_secrets(record.http))
        return record


def _lacks_header(fd: int, path: Path) -> bool:
    """Return whether the writer before died before it had written the header of a file; a part of it is removed."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return False  # what was written to a pipe is gone
    with path.open("rb") as file:
        lacks = not file.readline().endswith(b"\n")
    if lacks:
        os.ftruncate(fd, 0)
    return lacks


def _without_secrets(http: Http) -> Http:
    return msgspec.structs.replace(
        http,
        headers=None if http.headers is None else mask_headers(http.headers),
        path=None if http.path is None else mask_session_ids(mask_text(http.path)),
    )


class StreamRecords:
    """Makes records of one direction of a byte stream: one for each line, and one for a torn end.

    All bytes are accounted for: blank lines are records, too. Only the beginning of a line that is longer than
    ``max_line`` is kept. For stderr, ``sender`` is None.
    """

    def __init__(self, sender: Side | None, max_line: int = MAX_RECORDED_LINE) -> None:
        self._sender = sender
        self._max_line = max_line
        self._pieces: list[bytes] = []
        self._kept = 0
        self._size = 0
        self._is_after_gap = False

    def feed(self, t: float, chunk: bytes) -> list[Record]:
        """Return the records of the lines that ``chunk`` completes."""
        end = chunk.find(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        if end == len(chunk) - 1 and not self._size and not self._is_after_gap:
            return [self._record(t, chunk[:end], end)]  # most chunks are one line
        first, *others = chunk.split(b"\n")
        rest = others.pop()
        found = []
        if self._is_after_gap:
            # The beginning of this line is lost, and so the line.
            self._is_after_gap = False
            self._clear()
        else:
            if self._size:
                self._keep(first)
                found.append(self._take(t))
            else:
                found.append(self._record(t, first, len(first)))
        found += [self._record(t, line, len(line)) for line in others]
        self._keep(rest)
        return found

    def end(self, t: float) -> list[Record]:
        """Return the record of a torn end, if there is one."""
        return [self._take(t, torn=True)] if self._size and not self._is_after_gap else []

    def gap(self, t: float, *, is_at_start: bool = False) -> list[Record]:
        """Continue after lost bytes, the last of which may have ended a line; return the line that they tear."""
        found = self.end(t)
        self._clear()
        self._is_after_gap = not is_at_start
        return found

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if (room := self._max_line - self._kept) > 0:
            piece = piece[:room]
            self._kept += len(piece)
            self._pieces.append(piece)

    def _take(self, t: float, *, torn: bool = False) -> Record:
        line, size = b"".join(self._pieces), self._size
        self._clear()
        return self._record(t, line, size, torn=torn)

    def _clear(self) -> None:
        self._pieces = []
        self._kept = self._size = 0

    def _record(self, t: float, line: bytes, size: int, *, torn: bool = False) -> Record:
        if self._sender is not None and size <= self._max_line and not torn:
            if line.endswith(b"\r"):
                return line_record(t, self._sender, line[:-1], crlf=True)
            return line_record(t, self._sender, line)
        cut = None
        if size > self._max_line:
            line, cut = line[: self._max_line], size
        if self._sender is None:
            text = line.removesuffix(b"\r").decode("utf-8", "backslashreplace")
            return Record(t=t, stderr=text, torn=torn, cut=cut)
        if cut is not None:
            # The cut may be within a character.
            line = line[:-3] + line[-3:].decode("utf-8", "ignore").encode() if _is_cut_character(line) else line
        return line_record(t, self._sender, line, torn=torn, cut=cut)


def _is_cut_character(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(line) - 3
    return False


class Recorder:
    """Records the messages of a client, server or bridge in this process. Its methods never block and never raise.

    ``trace`` is the callback of a connection. Records are written by a thread, which starts with the first of them, and
    calls ``watch`` with them.
    """

    def __init__(
        self,
        by: By,
        transport: str,
        *,
        name: str = "",
        target: Target | None = None,
        place: str | Path | None = None,
        masks: bool = True,
        keep: int | None = None,
        max_unrecorded: int = MAX_UNRECORDED,
        watch: Callable[[Sequence[Record]], object] | None = None,
    ) -> None:
        self._watch = watch
        self._began = time.monotonic()
        self._header = new_header(by, transport, name=name, target=target)
        self._place = place
        self._masks = masks
        self._keep = keep
        self._max = max_unrecorded
        #: The server, with secrets masked.
        self.target = target or Target()
        #: The side that this process is; the other one is what it receives from.
        self._us: Side = "client" if by == "client" else "server"
        self._them: Side = "server" if by == "client" else "client"
        self._queue: deque[Record] = deque()
        self._queued = 0
        self._lost = 0
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        #: The file, once it is there.
        self.path: Path | None = None

    def now(self) -> float:
        """Return the seconds since the start."""
        return round(time.monotonic() - self._began, _DIGITS)

    def trace(self, direction: Literal["in", "out"], line: bytes, **more: Any) -> None:
        """Record a message; the ``trace`` callback of a connection. ``more`` are further members of its record."""
        if len(line) > MAX_RECORDED_LINE:
            line, more["cut"] = line[:MAX_RECORDED_LINE], len(line)
        sender = self._us if direction == "out" else self._them
        self.put(line_record(self.now(), sender, line, **more), len(line))

    def stderr(self, line: str) -> None:
        """Record a line of the server's stderr."""
        self.put(Record(t=self.now(), stderr=line[:MAX_RECORDED_LINE]), len(line))

    def event(self, event: str, **details: Any) -> None:
        """Record that something happened."""
        self.put(Record(t=self.now(), event=event, **details), 0)

    def close(self, timeout: float = _EXIT_TIMEOUT) -> None:
        """Write the queue and end the thread; wait for it for at most this many seconds."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._wanted.set()
        if thread is not None:
            atexit.unregister(self.close)
            thread.join(timeout)

    def put(self, record: Record, size: int) -> None:
        """Queue a record; its text has ``size`` bytes."""
        size += _OVERHEAD
        with self._lock:
            if self._is_closed:
                return
            if self._queued + size > self._max:
                self._lost += 1
                return
            if self._lost:
                lost, self._lost = self._lost, 0
                self._queue.append(Record(t=record.t, event="lost", records=lost, reason="The recorder is too slow."))
            self._queue.append(record)
            self._queued += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mcplumb-recorder", daemon=True)
                self._thread.start()
                atexit.register(self.close)
        if not self._wanted.is_set():
            self._wanted.set()

    def _run(self) -> None:
        writer = RecordingWriter(self._header, self._place, masks=self._masks, keep=self._keep, watch=self._watch)
        self.path = writer.path
        if writer.failure:
            import logging  # the recorder of a tap, which is a process of its own, does without

            logging.getLogger("mcplumb.recording").warning("Nothing is recorded. %s.", writer.failure.rstrip("."))
        while True:
            self._wanted.wait()
            with self._lock:
                self._wanted.clear()
                queue, self._queue = self._queue, deque()
                self._queued = 0
                is_closed = self._is_closed
                if is_closed and self._lost:
                    t = round(time.monotonic() - self._began, _DIGITS)
                    queue.append(Record(t=t, event="lost", records=self._lost, reason="The recorder is too slow."))
            writer.write(tuple(queue))
            if is_closed:
                writer.close()
                return
            time.sleep(_INTERVAL)

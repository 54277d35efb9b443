"""The recorder of a tap: a process that writes the tap's frames as records, and ends the server if the tap dies.

It works in intervals, so that it seldom has to be woken, and gives way to the host and the server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from mcplumb.config.entry import mask_arguments
from mcplumb.errors import McplumbError
from mcplumb.recording.recorder import RecordingWriter, StreamRecords, new_header
from mcplumb.recording.recording_format import Host, Record, Side, Target, read_recording
from mcplumb.tap.recorder_link import CLIENT, EVENT, FRAME, LOST, SERVER, STDERR, RecorderOptions
from mcplumb.tap.request_spans import configured_spans
from mcplumb.transports.process.tree import start_time

__all__ = ["record_frames"]

_CHUNK = 1024 * 1024
#: Seconds between two reads, unless there is more to read than this.
_INTERVAL = 0.005
_MUCH = 64 * 1024
_MICROSECOND = 1000
#: Why the bytes are lost that a recorder was given and did not write.
_DIED = "The recorder died."
_SIDES: dict[int, Side | None] = {CLIENT: "client", SERVER: "server", STDERR: None}


def record_frames(pipe: int, options: RecorderOptions, given: list[int] | None, is_at_start: list[bool]) -> int:
    """Record all frames that come through the pipe, and return the exit code.

    ``given`` is how many bytes of each kind earlier recorders got, if this one replaces another; ``is_at_start`` is
    whether those ended with a line.
    """
    header = new_header(
        "tap",
        "stdio",
        name=options.name or Path(options.command[0]).name,
        target=Target(command=mask_arguments(options.command) if options.masks else options.command),
        host=Host(options.host, _program(options.host)),
        now=options.started,
        unique=options.id,
    )
    spans = configured_spans("stdio", options.started)
    writer = RecordingWriter(
        header, options.place, masks=options.masks, keep=options.keep, goes_on=given is not None, watch=spans
    )
    frames = _Frames(options.began)
    if given is not None:
        writer.write(frames.go_on(given, *_recorded(writer), is_at_start))
    while chunk := os.read(pipe, _CHUNK):
        writer.write(frames.feed(chunk))
        if len(chunk) < _MUCH:
            time.sleep(_INTERVAL)
    writer.write(frames.end())
    writer.close()
    if spans is not None:
        spans.close()
    return 0


class _Frames:
    """Turns the bytes of the pipe into records."""

    def __init__(self, began: int) -> None:
        self._began = began
        self._rest = b""
        self._streams = {kind: StreamRecords(side) for kind, side in _SIDES.items()}
        self._t = 0.0
        self._server = 0
        self._started = 0
        self._has_exited = False

    def go_on(self, given: list[int], recorded: dict[int, int], t: float, is_at_start: list[bool]) -> list[Record]:
        """Continue after another recorder, and return the records of what was lost with it."""
        found = [Record(t=t, event="restart", reason="The recorder died, and another one goes on.")]
        for kind, side in _SIDES.items():
            lost = given[kind] - recorded[kind]
            if lost > 0 and side is not None:
                found.append(Record(t=t, event="lost", sender=side, byte_count=lost, reason=_DIED))
            self._streams[kind].gap(t, is_at_start=is_at_start[kind])
        return found

    def feed(self, chunk: bytes) -> list[Record]:
        """Return the records of the frames that ``chunk`` completes."""
        data = self._rest + chunk
        records: list[Record] = []
        streams, unpack, head, began = self._streams, FRAME.unpack_from, FRAME.size, self._began
        at, last = 0, len(data) - head
        while at <= last:
            kind, now, size = unpack(data, at)
            end = at + head + size
            if end > len(data):
                break
            # Whole microseconds, so that a time has no more than six decimals.
            self._t = t = (now - began) // _MICROSECOND / 1e6
            payload = data[at + head : end]
            records += streams[kind].feed(t, payload) if kind in streams else self._other(kind, payload)
            at = end
        self._rest = data[at:]
        return records

    def _other(self, kind: int, data: bytes) -> list[Record]:
        """Return the records of a frame that has no bytes of a stream."""
        if kind == LOST:
            of, size, is_at_start, has_died = map(int, data.split())
            stream, side = self._streams[of], _SIDES[of]
            found = stream.gap(self._t, is_at_start=bool(is_at_start))
            reason = _DIED if has_died else "The recorder is too slow."
            return [*found, Record(t=self._t, event="lost", sender=side, byte_count=size, reason=reason)]
        return list(self._event(data.decode())) if kind == EVENT else []

    def _event(self, words: str) -> Iterator[Record]:
        event, value = words.split()
        match event:
            case "started":
                self._server = int(value)
                self._started = start_time(self._server)
            case "signal":
                yield Record(t=self._t, event="signal", signal=_signal_name(int(value)))
            case "exit":
                self._has_exited = True
                for stream in self._streams.values():
                    yield from stream.end(self._t)
                code = os.waitstatus_to_exitcode(int(value))
                if code < 0:
                    yield Record(t=self._t, event="exit", signal=_signal_name(-code))
                else:
                    yield Record(t=self._t, event="exit", code=code)
            case "end_of_input" | "closed_pipe":
                side: Side = "client" if value == "client" else "server"
                if event == "end_of_input":
                    yield from self._streams[CLIENT if side == "client" else SERVER].end(self._t)
                yield Record(t=self._t, event=event, sender=side)

    def end(self) -> list[Record]:
        """Return the last records. If the tap was killed, kill its server: the signal was meant for that."""
        found = [record for stream in self._streams.values() for record in stream.end(self._t)]
        if self._server and not self._has_exited:
            if start_time(self._server) == self._started:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(self._server, signal.SIGKILL)
            found.append(Record(t=self._t, event="disconnected", reason="The tap was killed, and its server with it."))
        return found


def _recorded(writer: RecordingWriter) -> tuple[dict[int, int], float]:
    """Return how many bytes of each kind are in the recording or counted as lost, and the time of its last record.

    Bytes that no recorder was given are not among them.
    """
    sizes, t = dict.fromkeys(_SIDES, 0), 0.0
    if writer.path is None or not writer.path.is_file():  # nothing can be read again from a pipe
        return sizes, t
    try:
        _, records = read_recording(writer.path)
    except McplumbError:  # it died before it had written the header
        return sizes, t
    for _, record in records:
        t = record.t
        if record.sender is None:
            continue
        kind = CLIENT if record.sender == "client" else SERVER
        if record.event is None:
            sizes[kind] += record.sent_size + record.crlf + (not record.torn)
        elif record.event == "lost" and record.reason == _DIED:
            sizes[kind] += record.byte_count or 0
    return sizes, t


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"

"""Taps as real processes, and the servers behind them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mcplumb.recording.recording_format import Record, read_recording
from mcplumb.tap.read_session import SessionReader
from tests.kit.loop import blocking_until

MCPLUMB = [sys.executable, "-m", "mcplumb"]


def tap_command(place: Path | str, *command: str, options: tuple[str, ...] = ()) -> list[str]:
    return [*MCPLUMB, "tap", "--record", str(place), *options, "--", *command]


def python(code: str) -> list[str]:
    """A server that is a few lines of Python, which starts fast."""
    return [sys.executable, "-I", "-S", "-c", code]


@contextmanager
def tapped(place: Path | str, *command: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A tap in front of a command, with pipes to all of its standard streams."""
    given: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    process = subprocess.Popen(tap_command(place, *command), bufsize=0, **given)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def run_tapped(
    place: Path | str, *command: str, data: bytes = b"", **options: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        tap_command(place, *command), input=data, capture_output=True, timeout=120, check=False, **options
    )


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, group, session, …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children(pid: int, *, leaders: bool = False) -> list[int]:
    """The children of a process that live; with ``leaders``, those that lead a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended
                state, parent, _, session = stat_of(int(entry.name))[:4]
                is_child = int(parent) == pid and state not in ("Z", "X")
                if is_child and (session == entry.name or not leaders):
                    found.append(int(entry.name))
    return found


def recorder_of(pid: int) -> int:
    """The recorder of a tap leads a session of its own."""
    found: list[int] = []

    def look() -> bool:
        found[:] = children(pid, leaders=True)
        return bool(found)

    blocking_until(look, "the recorder to be there")
    return found[0]


def is_alive(pid: int) -> bool:
    try:
        return stat_of(pid)[0] not in ("Z", "X")
    except OSError:
        return False


def records_of(path: Path) -> list[Record]:
    return [record for _, record in read_recording(path)[1]]


def complete(path: Path, event: str = "exit") -> list[Record]:
    """The records, when this event is among them: a recorder under load may be late."""
    found: list[Record] = []

    def look() -> bool:
        if not path.exists() or not path.stat().st_size:
            return False
        found[:] = records_of(path)
        return any(record.event == event for record in found)

    blocking_until(look, f"the event {event}", lambda: found[-3:])
    return found


def said_by(records: list[Record], side: str) -> bytes:
    """What a side said, put together again from its records."""
    return b"".join(
        (record.line or b"") + (b"\r" if record.crlf else b"") + (b"" if record.torn else b"\n")
        for record in records
        if record.sender == side and record.event is None
    )


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(process.stdout.fileno(), 1 if line else 4096)
        if not chunk:
            break
        line += chunk
    return line


def name_of(number: int) -> str:
    return signal.Signals(number).name


def session_of(path: Path) -> SessionReader:
    """A recording, read to its end."""
    return SessionReader(path).read_all()

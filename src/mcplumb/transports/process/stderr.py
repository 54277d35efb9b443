"""Drain a server's standard error: keep its end, and forward it to where the user wants.

It is always read, so that the server never blocks on a full pipe. Forwarding never blocks the event loop either: what
cannot be forwarded is dropped and counted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any, Literal, TypeAlias, TypeGuard

from mcplumb.errors import ConnectError, UsageError
from mcplumb.transports.descriptors import (
    BlockingSink,
    close_private,
    is_open,
    keep_private,
    open_sink,
    private_copy,
)
from mcplumb.transports.line_connection import Sink

__all__ = ["StderrDrain", "StderrMode", "StderrOutput", "check_stderr_mode", "open_output", "stderr_mode"]

#: "inherit" forwards to our own standard error, "capture" only keeps the end, "discard" connects the null device. A
#: path or an open file gets all lines, and a plain function gets each line.
StderrMode: TypeAlias = (
    Literal["inherit", "capture", "discard"]  # noqa: PYI051 - editors complete them
    | str
    | os.PathLike[str]
    | IO[Any]
    | Callable[[str], object]
)

_MODES = ("inherit", "capture", "discard")
_STDERR = 2
#: Bytes per read: a flood of output must not starve the event loop.
_CHUNK = 16 * 1024
#: The most that a pipe can hold, which is read after the server's exit.
_PIPE_CAPACITY = 1024 * 1024
#: Bytes at the end of the stream that are kept.
_KEPT = 64 * 1024
#: Bytes of an unfinished line from which on it is forwarded in parts.
_LONG_LINE = 64 * 1024
#: Bytes queued for our own standard error; more are dropped.
_MOST_QUEUED = 1024 * 1024
#: Bytes that the tail shows: enough for a traceback, and short enough for an error message.
_LONGEST_TAIL = 4 * 1024
#: The decoded form of a truncated character.
_TRUNCATED = "\N{REPLACEMENT CHARACTER}"

_logger = logging.getLogger("mcplumb.client")


def stderr_mode(mode: StderrMode, name: str) -> StderrMode:
    """Check the value, and return it with an absolute path, so that a restart appends to the same file.

    A path that is a folder, or ends with a slash, stands for the file with the server's name in that folder.
    """
    check_stderr_mode(mode)
    if not _is_path(mode):
        return mode
    path = os.fspath(mode)
    if path.endswith(os.sep) or os.path.isdir(path):  # noqa: PTH112 - pathlib is slow to import
        safe = "".join(character if character.isalnum() or character in "._-" else "_" for character in name)
        path = os.path.join(path, f"{safe.lstrip('.') or 'server'}.log")  # noqa: PTH118
    return os.path.abspath(path)  # noqa: PTH100


def _is_path(mode: object) -> TypeGuard[str | os.PathLike[str]]:
    # Any other word is more likely a misspelled mode than the name of a file.
    return isinstance(mode, os.PathLike) or (
        isinstance(mode, str) and mode not in _MODES and (os.sep in mode or "." in mode)
    )


def check_stderr_mode(mode: object) -> None:
    """Raise `UsageError` if the value is not a `StderrMode`."""
    if _is_path(mode):
        return
    if hasattr(mode, "fileno"):
        try:
            mode.fileno()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"The file for stderr cannot be used ({error}): give an open file with a descriptor, or a function."
            ) from None
        if hasattr(mode, "writable") and not mode.writable():
            raise UsageError("The file for stderr is open for reading only: open it for writing or appending.")
    elif not callable(mode):
        if mode not in _MODES:
            choice = ", ".join(map(repr, _MODES))
            raise UsageError(
                f"stderr is {mode!r}: choose {choice}, or give a function that takes a line, an open file, or a path "
                "with a slash or a dot in it."
            )
    elif inspect.iscoroutinefunction(mode) or inspect.iscoroutinefunction(type(mode).__call__):
        raise UsageError("The function for lines of stderr is async: give a plain one, such as a queue's put_nowait.")


class StderrDrain:
    """Reads the standard error of one server until it is closed, from a pipe that it owns.

    Created in a running event loop. Without a descriptor (the server has the null device) it does nothing.
    """

    __slots__ = ("_fd", "_kept", "_loop", "_output", "_unfinished")

    def __init__(self, fd: int | None, output: StderrOutput) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        #: The last bytes read.
        self._kept = bytearray()
        #: The beginning of a line whose end has not been read yet.
        self._unfinished = b""
        self._output = output
        if fd is not None:
            keep_private(fd)
            # This does not affect the server: its end of the pipe has its own flags.
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read)

    @property
    def dropped(self) -> int:
        """The number of bytes that could not be forwarded to our own standard error."""
        return self._output.dropped

    def tail(self, max_lines: int = 20) -> str:
        """Return the last lines, safe for terminals and logs: without control characters but newline and tab."""
        lines = _sanitized(self._kept[-_LONGEST_TAIL:].decode("utf-8", "replace")).rstrip().split("\n")
        if len(self._kept) > _LONGEST_TAIL:
            lines[0] = f"…{lines[0].lstrip(_TRUNCATED)}"
        return "\n".join(lines[-max_lines:])

    def finish(self) -> None:
        """Read what the server wrote before its exit, without waiting for descendants that hold the pipe open."""
        for _ in range(0, _PIPE_CAPACITY, _CHUNK):
            if not self._read():
                break
        self._flush()

    def close(self) -> None:
        """Stop reading and release everything but the tail. May be called again, and when the loop is closed."""
        self._stop_reading()
        self._output.close()

    def _read(self) -> bool:
        """Read one chunk. Return False if there is none, at the moment or at the end."""
        if self._fd is None:
            return False
        try:
            chunk = os.read(self._fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._stop_reading()
            return False
        self._kept += chunk
        del self._kept[:-_KEPT]
        self._forward(self._unfinished + chunk)
        return True

    def _stop_reading(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            close_private(self._fd)
            self._fd = None
            self._flush()

    def _forward(self, block: bytes) -> None:
        """Forward the whole lines, and hold back an unfinished one unless it is long."""
        end = block.rfind(b"\n") + 1
        if not end and len(block) >= _LONG_LINE:
            end = len(block)
        self._unfinished = block[end:]
        if end:
            self._output.put(block[:end])

    def _flush(self) -> None:
        if self._unfinished:
            rest, self._unfinished = self._unfinished, b""
            self._output.put(rest)


class StderrOutput:
    """Where lines are forwarded to: this base class drops them, uncounted."""

    __slots__ = ("dropped",)

    def __init__(self) -> None:
        self.dropped = 0

    def put(self, block: bytes) -> None:
        """Forward lines with their newlines. The last line may lack one: at the end of the stream, or if it is long."""

    def close(self) -> None:
        """Release everything."""


class _FunctionOutput(StderrOutput):
    """Calls a function of the user for each line."""

    __slots__ = ("_function", "_has_failed")

    def __init__(self, function: Callable[[str], object]) -> None:
        super().__init__()
        self._function = function
        self._has_failed = False

    def put(self, block: bytes) -> None:
        """Call the function for each line. Only its first exception is logged."""
        for line in block.removesuffix(b"\n").split(b"\n"):
            try:
                self._function(line.removesuffix(b"\r").decode("utf-8", "replace"))
            except Exception:
                if not self._has_failed:
                    self._has_failed = True
                    _logger.exception("The function for lines of stderr failed. Further failures are not logged.")


class _DescriptorOutput(StderrOutput):
    """Writes all lines to our own standard error, if there is one, or to a file, as it has room."""

    __slots__ = ("_is_watching", "_queue", "_sink")

    def __init__(self, sink: Sink | None) -> None:
        super().__init__()
        self._sink = sink
        self._queue = bytearray()
        self._is_watching = False

    def put(self, block: bytes) -> None:
        """Write or queue the lines, or drop all of them if the queue is full."""
        if self._sink is None or len(self._queue) + len(block) > _MOST_QUEUED:
            self.dropped += len(block)
            return
        self._queue += block
        if not self._is_watching:
            self._write(self._sink)

    def _write(self, sink: Sink) -> None:
        try:
            with memoryview(self._queue) as view:
                written = sink.write((view,))
        except OSError:  # its reader is gone, or the disk is full
            self._release()
            return
        del self._queue[:written]
        if bool(self._queue) != self._is_watching:
            self._is_watching = not self._is_watching
            if self._is_watching:
                sink.watch(lambda: self._write(sink))
            else:
                sink.unwatch()

    def close(self) -> None:
        """Write what there is room for at this moment, and release the descriptor."""
        if self._sink is not None and self._queue:
            self._write(self._sink)
        self._release()

    def _release(self) -> None:
        self.dropped += len(self._queue)
        self._queue.clear()
        sink, self._sink = self._sink, None
        if sink is not None:
            if self._is_watching:
                self._is_watching = False
                sink.unwatch()
            sink.close()


class _TerminalSink(BlockingSink):
    """Writes to a terminal that was opened non-blocking, since a user can stop its output (Ctrl-S) at any time."""

    __slots__ = ()

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write as much as the terminal has room for."""
        try:
            return os.writev(self._fd, pieces)
        except BlockingIOError:
            return 0


def open_output(mode: StderrMode) -> StderrOutput:
    """Open what the mode names, in a running event loop; raise `ConnectError` if a file cannot be opened."""
    if mode == "inherit":
        return _DescriptorOutput(_open_stderr())
    if _is_path(mode):
        return _DescriptorOutput(_open_log(os.fspath(mode)))
    if hasattr(mode, "fileno"):
        return _DescriptorOutput(_open_file(mode))
    return _FunctionOutput(mode) if callable(mode) else StderrOutput()


def _open_log(path: str) -> Sink:
    """Open a log file to append to it. It is created for its owner only: servers write credentials to their logs."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
        try:
            return open_sink(private_copy(fd))
        finally:
            os.close(fd)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConnectError(f"The log for the server's stderr, {path!r}, cannot be opened: {reason}.") from error


def _open_file(file: Any) -> Sink:
    try:
        if hasattr(file, "flush"):
            file.flush()  # what was written to it before comes first
        return open_sink(private_copy(file.fileno()))
    except (OSError, ValueError) as error:
        raise ConnectError(f"The file for the server's stderr cannot be used: {error}.") from error


def _open_stderr() -> Sink | None:
    """Return a sink for our own standard error; None if the process has none, or no descriptor is free."""
    if sys.__stderr__ is None or not is_open(_STDERR):
        return None
    with suppress(OSError):
        if os.isatty(_STDERR) and (terminal := _open_terminal()) is not None:
            return terminal
        copy = private_copy(_STDERR)
        try:
            return open_sink(copy)
        except OSError:
            close_private(copy)
    return None


def _open_terminal() -> Sink | None:
    """Open the terminal of standard error anew, non-blocking; None if it belongs to another user.

    The description that this process inherited is shared with other processes, so its flags must not be changed.
    """
    try:
        own = os.open(os.ttyname(_STDERR), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _TerminalSink(private_copy(own))
    finally:
        os.close(own)


def _sanitized(text: str) -> str:
    import re

    # Escape sequences for colours, titles and the like: CSI, then strings with a terminator, then two-character ones.
    text = re.sub(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])", "", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )

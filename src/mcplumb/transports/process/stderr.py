"""What a server writes to its standard error: always read, its end kept, and passed on as the user wants.

A server is never held up by that, and neither is the event loop: what cannot be passed on is dropped and counted.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

from mcplumb.errors import UsageError
from mcplumb.transports.descriptors import (
    BlockingSink,
    close_private,
    is_open,
    keep_private,
    open_sink,
    private_copy,
)
from mcplumb.transports.line_connection import Sink

__all__ = ["StderrDrain", "StderrMode", "check_stderr_mode"]

#: To our own standard error, only to the end that is kept, to nowhere, or each line to a plain function.
StderrMode: TypeAlias = Literal["inherit", "capture", "discard"] | Callable[[str], object]

_MODES = ("inherit", "capture", "discard")
_STDERR = 2
#: Bytes to read in one turn of the loop: a flood must not keep it from its other work.
_CHUNK = 16 * 1024
#: The most that can be in a pipe, and is read at the end.
_PIPE_ROOM = 1024 * 1024
#: Bytes at the end of the stream that are kept.
_KEPT = 64 * 1024
#: Bytes of a line after which it is passed on although it goes on.
_LONG_LINE = 64 * 1024
#: Bytes that wait for our own standard error to have room.
_WAITING = 1024 * 1024
#: Bytes that the tail shows: enough for a traceback, and not too much for an error message.
_SHOWN = 4 * 1024
#: What is left of a character that was cut.
_TORN = "\N{REPLACEMENT CHARACTER}"

_logger = logging.getLogger("mcplumb.client")


def check_stderr_mode(mode: object) -> None:
    """`UsageError` if it is no `StderrMode`."""
    if not callable(mode):
        if mode not in _MODES:
            choice = ", ".join(map(repr, _MODES))
            raise UsageError(f"stderr is {mode!r}: choose {choice}, or give a function that takes a line.")
    elif inspect.iscoroutinefunction(mode) or inspect.iscoroutinefunction(type(mode).__call__):
        raise UsageError("The function for lines of stderr is async: give a plain one, such as a queue's put_nowait.")


class StderrDrain:
    """Reads the standard error of one server, from a pipe that it then owns, until it is closed.

    Made in a running event loop. Without a descriptor (the server has the null device) there is nothing to read.
    """

    __slots__ = ("_fd", "_kept", "_loop", "_outlet", "_rest")

    def __init__(self, fd: int | None, mode: StderrMode) -> None:
        check_stderr_mode(mode)
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        #: The last bytes that came.
        self._kept = bytearray()
        #: What came and is not yet a whole line.
        self._rest = b""
        self._outlet = _Outlet()
        if fd is not None:
            if mode == "inherit":
                self._outlet = _Forwarder(_open_stderr())
            elif callable(mode):
                self._outlet = _Caller(mode)
            keep_private(fd)
            # The other end, which the server has, has flags of its own.
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read)

    @property
    def dropped(self) -> int:
        """How many bytes our own standard error had no room for."""
        return self._outlet.dropped

    def tail(self, max_lines: int = 20) -> str:
        """The last lines that came, harmless for every terminal and log: no control characters but newline and tab."""
        lines = _harmless(self._kept[-_SHOWN:].decode("utf-8", "replace")).rstrip().split("\n")
        if len(self._kept) > _SHOWN:
            lines[0] = f"…{lines[0].lstrip(_TORN)}"
        return "\n".join(lines[-max_lines:])

    def finish(self) -> None:
        """The server has exited: read what it has written, but wait for nobody who still could write."""
        for _ in range(0, _PIPE_ROOM, _CHUNK):
            if not self._read():
                break
        self._flush()

    def close(self) -> None:
        """Read no more, and let everything go; the tail stays. May be called again, and when the loop is closed."""
        self._stop_reading()
        self._outlet.close()

    def _read(self) -> bool:
        """Read some; False if there is nothing, now or any more."""
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
        self._pass_on(self._rest + chunk)
        return True

    def _stop_reading(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            close_private(self._fd)
            self._fd = None
            self._flush()

    def _pass_on(self, block: bytes) -> None:
        """Pass on the whole lines, and hold back the rest unless it is long."""
        end = block.rfind(b"\n") + 1
        if not end and len(block) >= _LONG_LINE:
            end = len(block)
        self._rest = block[end:]
        if end:
            self._outlet.put(block[:end])

    def _flush(self) -> None:
        if self._rest:
            rest, self._rest = self._rest, b""
            self._outlet.put(rest)


class _Outlet:
    """Where lines go: nowhere."""

    __slots__ = ("dropped",)

    def __init__(self) -> None:
        self.dropped = 0

    def put(self, block: bytes) -> None:
        """Take some lines with their ends. The last one may be without: at the end, or if it is too long."""

    def close(self) -> None:
        """Let everything go."""


class _Caller(_Outlet):
    """Each line goes to a function of the user's."""

    __slots__ = ("_function", "_has_failed")

    def __init__(self, function: Callable[[str], object]) -> None:
        super().__init__()
        self._function = function
        self._has_failed = False

    def put(self, block: bytes) -> None:
        """Call the function for each line. What it raises is logged once."""
        for line in block.removesuffix(b"\n").split(b"\n"):
            try:
                self._function(line.removesuffix(b"\r").decode("utf-8", "replace"))
            except Exception:
                if not self._has_failed:
                    self._has_failed = True
                    _logger.exception("The function for lines of stderr failed. This is told only once.")


class _Forwarder(_Outlet):
    """All lines go to our own standard error, if there is one, when it has room for them."""

    __slots__ = ("_is_watching", "_queue", "_sink")

    def __init__(self, sink: Sink | None) -> None:
        super().__init__()
        self._sink = sink
        self._queue = bytearray()
        self._is_watching = False

    def put(self, block: bytes) -> None:
        """Write the lines, now or later, or drop all of them."""
        if self._sink is None or len(self._queue) + len(block) > _WAITING:
            self.dropped += len(block)
            return
        self._queue += block
        if not self._is_watching:
            self._write(self._sink)

    def _write(self, sink: Sink) -> None:
        try:
            with memoryview(self._queue) as view:
                written = sink.write((view,))
        except OSError:  # nobody reads it any more, or the disk is full
            self._let_go()
            return
        del self._queue[:written]
        if bool(self._queue) != self._is_watching:
            self._is_watching = not self._is_watching
            if self._is_watching:
                sink.watch(lambda: self._write(sink))
            else:
                sink.unwatch()

    def close(self) -> None:
        """Write what there is room for right now, and let go of our standard error."""
        if self._sink is not None and self._queue:
            self._write(self._sink)
        self._let_go()

    def _let_go(self) -> None:
        self.dropped += len(self._queue)
        self._queue.clear()
        sink, self._sink = self._sink, None
        if sink is not None:
            if self._is_watching:
                self._is_watching = False
                sink.unwatch()
            sink.close()


class _TerminalSink(BlockingSink):
    """Writes to a terminal that was opened not to wait: a user can stop its output for as long as they like."""

    __slots__ = ()

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write what the terminal has room for."""
        try:
            return os.writev(self._fd, pieces)
        except BlockingIOError:
            return 0


def _open_stderr() -> Sink | None:
    """The way to our own standard error; None if the process was started without, or has no descriptor for it."""
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
    """The terminal of standard error through a description of our own, or None if it belongs to another user.

    Then it can only be waited for, as everybody else does: nobody may change the flags of the one that all share.
    """
    try:
        own = os.open(os.ttyname(_STDERR), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _TerminalSink(private_copy(own))
    finally:
        os.close(own)


def _harmless(text: str) -> str:
    import re

    # Colours, titles and the like: sequences with an end of their own, then those of two characters.
    text = re.sub(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])", "", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text
    )

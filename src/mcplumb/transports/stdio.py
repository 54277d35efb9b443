"""The process's own standard input and output, reserved for the protocol.

While they are taken, the rest of the process, its children and its forks have the null device as standard input and
standard error as standard output: a ``print``, a child or native code cannot write to the connection.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Self, TextIO

from mcplumb.errors import ConnectError, UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.descriptors import close_private, is_open, private_copy, put_copy, put_null
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.line_connection import Trace

__all__ = ["Stdio", "take_stdio"]

_INPUT, _OUTPUT, _ERROR = 0, 1, 2

_is_taken = False


class Stdio:
    """Standard input and output while they are taken; `take_stdio` makes it."""

    __slots__ = ("_hasty", "_inheritable", "_input", "_output")

    def __init__(self) -> None:
        self._inheritable = os.get_inheritable(_INPUT), os.get_inheritable(_OUTPUT)
        self._input: int | None = private_copy(_INPUT)
        self._output = private_copy(_OUTPUT)
        put_null(_INPUT)
        if _is_there(_ERROR, sys.__stderr__):
            put_copy(_ERROR, _OUTPUT)
        else:
            put_null(_OUTPUT)
            if not is_open(_ERROR):
                # Otherwise the next file that is opened gets its number, and all that is written to stderr.
                put_null(_ERROR)
        _flush_stdout()
        self._hasty: TextIOWrapper | None = None
        stdout = sys.stdout
        with suppress(OSError, ValueError):
            if isinstance(stdout, TextIOWrapper) and not stdout.line_buffering:
                # It now goes to stderr, where people read: show each line when it is printed.
                stdout.reconfigure(line_buffering=True)
                self._hasty = stdout

    @property
    def is_terminal(self) -> bool:
        """Whether standard input is a terminal and not a client."""
        return self._input is not None and os.isatty(self._input)

    def connection(self, *, limits: Limits = DEFAULT_LIMITS, trace: Trace | None = None) -> StreamConnection:
        """Return a server's connection over them. It may be closed before or after ``restore``."""
        if self._input is None:
            raise UsageError("Standard input and output have been given back: take them again to serve on them.")
        ends = private_copy(self._input), private_copy(self._output)
        return StreamConnection(*ends, limits=limits, trace=trace)

    def restore(self) -> None:
        """Restore both as they were. What was printed meanwhile goes to standard error. A second call does nothing."""
        global _is_taken  # noqa: PLW0603 (a process has one standard input)
        if self._input is None:
            return
        _flush_stdout()
        if self._hasty is not None:
            with suppress(OSError, ValueError):
                self._hasty.reconfigure(line_buffering=False)
        put_copy(self._input, _INPUT, inheritable=self._inheritable[0])
        put_copy(self._output, _OUTPUT, inheritable=self._inheritable[1])
        close_private(self._input)
        close_private(self._output)
        self._input = None
        _is_taken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()


def take_stdio() -> Stdio:
    """Reserve standard input and output for the protocol until they are restored.

    What was printed before but not yet written goes to standard error. Raise `UsageError` if they are taken already,
    `ConnectError` if the process was started without them.
    """
    global _is_taken  # noqa: PLW0603 (a process has one standard input)
    if _is_taken:
        raise UsageError(
            "Standard input and output are already used by a server in this process: "
            "run one server at a time on them, and others on sockets."
        )
    for fd, stream, name in ((_INPUT, sys.__stdin__, "input"), (_OUTPUT, sys.__stdout__, "output")):
        if not _is_there(fd, stream):
            raise ConnectError(
                f"Standard {name} is closed, so no client can be served there: "
                "start the process with a pipe in its place, or serve on a socket."
            )
    stdio = Stdio()
    _is_taken = True
    return stdio


def _is_there(fd: int, stream: TextIO | None) -> bool:
    """Return whether the descriptor still is the standard stream that the process started with.

    If the stream was missing or has been closed, its number may belong to any other file by now.
    """
    try:
        return stream is not None and not stream.closed and is_open(fd)
    except ValueError:  # the program has detached it, to wrap it in another way
        return is_open(fd)


def _flush_stdout() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        # A program can put anything there, None included; and standard error may be gone.
        if stream is not None:
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()

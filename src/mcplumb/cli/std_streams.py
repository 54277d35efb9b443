"""Standard streams that exist and write completely, however the process was started.

Results go to stdout: a failed write is reported with its own exit code. Everything else goes to stderr: a failed write
there is ignored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from errno import EPIPE
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["BROKEN_PIPE", "NOT_WRITTEN", "OutputLost", "prepare_streams", "run_and_flush"]

#: Exit codes, see `mcplumb.cli.command_runner.EXIT_CODES`.
NOT_WRITTEN = 74
BROKEN_PIPE = 141

_INPUT, _OUTPUT, _ERROR = 0, 1, 2


class OutputLost(Exception):
    """A write to stdout failed; the cause says why.

    It is not an `OSError`, because some libraries catch and convert those.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"The output cannot be written: {cause.strerror}.")
        self.is_unread = cause.errno == EPIPE


def prepare_streams() -> None:
    """Replace missing streams, and those of the interpreter, by ours. Streams that the caller replaced are kept."""
    # The order matters: each open gets the lowest free descriptor.
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
        sys.stdin = TextIOWrapper(FileIO(_INPUT))
    if sys.stdout is None:
        os.open(os.devnull, os.O_RDONLY)  # read-only, so that writes fail as on a closed descriptor
    if sys.stderr is None:
        os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _wrapped(_Stdout(_OUTPUT, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrapped(_Stderr(_ERROR, "w", closefd=False), sys.stderr)


def run_and_flush(work: Callable[[], int]) -> int:
    """Run a function, flush stdout, and return the function's exit code, or that of a failed write.

    A closed pipe ends the program without a message, as usual.
    """
    try:
        code = work()
        sys.stdout.flush()
    except OutputLost as error:
        # Discard what is still buffered, so that the interpreter does not fail to flush it at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _OUTPUT)
        os.close(nowhere)
        if error.is_unread:
            return BROKEN_PIPE
        sys.stderr.write(f"Error: {error}\n")
        return NOT_WRITTEN
    return code


class _Stdout(FileIO):
    """Writes everything, or raises `OutputLost`."""

    def write(self, data: ReadableBuffer, /) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                written = super().write(rest)
                if written is None:  # another process made the shared stream non-blocking
                    from select import select

                    select((), (self,), ())
                rest = rest[written or 0 :]
        except OSError as error:
            raise OutputLost(error) from error
        return size


class _Stderr(_Stdout):
    """Writes what it can, and ignores failures."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OutputLost:
            return memoryview(data).nbytes


def _wrapped(raw: FileIO, like: object) -> TextIOWrapper:
    """Return a text stream with the settings of another one."""
    if not isinstance(like, TextIOWrapper):
        return TextIOWrapper(BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    return TextIOWrapper(
        raw if like.write_through else BufferedWriter(raw),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )

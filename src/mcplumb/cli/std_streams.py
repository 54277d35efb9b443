"""Standard input, output and error of the command line: there, whatever it was started with.

Results go to stdout: that they cannot be written is told, and is no fault of ours. Everything else goes to stderr: if
that cannot be written, nobody wants to know.
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
    """Something could not be written to stdout; the cause says why.

    It is no `OSError`, as there are libraries that make something else of those.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"The output cannot be written: {cause.strerror}.")
        self.is_unread = cause.errno == EPIPE


def prepare_streams() -> None:
    """Make sure that there are all three, unless the program that calls has put others in their places."""
    # In this order: each gets the lowest descriptor that is free.
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
        sys.stdin = TextIOWrapper(FileIO(_INPUT))
    if sys.stdout is None:
        os.open(os.devnull, os.O_RDONLY)  # to which nothing can be written, as to one that is closed
    if sys.stderr is None:
        os.open(os.devnull, os.O_WRONLY)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _wrapped(_Output(_OUTPUT, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _wrapped(_Messages(_ERROR, "w", closefd=False), sys.stderr)


def run_and_flush(work: Callable[[], int]) -> int:
    """Run something, and write all that it prints; returns its exit code, or that of an output that cannot be written.

    If nobody reads the output any more, it ends without a word, as every program does.
    """
    try:
        code = work()
        sys.stdout.flush()
    except OutputLost as error:
        # What is still buffered goes nowhere, and the interpreter does not complain about it when it ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _OUTPUT)
        os.close(nowhere)
        if error.is_unread:
            return BROKEN_PIPE
        sys.stderr.write(f"Error: {error}\n")
        return NOT_WRITTEN
    return code


class _Output(FileIO):
    """Writes all of it, or raises `OutputLost`."""

    def write(self, data: ReadableBuffer, /) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                written = super().write(rest)
                if written is None:  # whoever shares it does not want to be blocked; we do
                    from select import select

                    select((), (self,), ())
                rest = rest[written or 0 :]
        except OSError as error:
            raise OutputLost(error) from error
        return size


class _Messages(_Output):
    """Writes what can be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OutputLost:
            return memoryview(data).nbytes


def _wrapped(raw: FileIO, like: object) -> TextIOWrapper:
    """A stream for text, with the same settings as another one."""
    if not isinstance(like, TextIOWrapper):
        return TextIOWrapper(BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    return TextIOWrapper(
        raw if like.write_through else BufferedWriter(raw),
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )

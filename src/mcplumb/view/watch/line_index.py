"""Find a line of a recording by its number, without keeping the file in memory."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from mcplumb.errors import McplumbError
from mcplumb.limits import MAX_READ_LINE

__all__ = ["LineIndex"]

#: Lines between two whose places are remembered.
_STRIDE = 256


class LineIndex:
    """The lines of a file, compressed or not, which may still grow. Lines are numbered from 1."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: Where the lines 1, 1 + stride, 1 + 2 * stride … begin.
        self._places = [0]

    def line(self, number: int) -> bytes | None:
        """Return a line, without its newline; None if there is no such line yet."""
        if number < 1:
            return None
        block = min((number - 1) // _STRIDE, len(self._places) - 1)
        for at, line in self._lines(block):
            if at == number:
                return line.removesuffix(b"\n")
        return None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield all lines with their numbers."""
        return self._lines(0)

    def _lines(self, block: int) -> Iterator[tuple[int, bytes]]:
        number, place = block * _STRIDE, self._places[block]
        try:
            with self._open() as file:
                file.seek(place)
                is_too_long = False
                while line := file.readline(MAX_READ_LINE):
                    place += len(line)
                    is_part = is_too_long
                    is_too_long = not line.endswith(b"\n") and (is_part or len(line) == MAX_READ_LINE)
                    if is_too_long:
                        continue
                    if is_part:
                        line = b"\n"
                    number += 1
                    if number % _STRIDE == 0 and number // _STRIDE == len(self._places) and line.endswith(b"\n"):
                        self._places.append(place)
                    yield number, line
        except (EOFError, zlib.error):
            return  # a compressed file that is cut off
        except OSError as error:
            raise McplumbError(f"The recording {self._path} cannot be read: {error.strerror or error}.") from None

    def _open(self) -> IO[bytes]:
        return cast("IO[bytes]", gzip.open(self._path)) if self._path.suffix == ".gz" else self._path.open("rb")

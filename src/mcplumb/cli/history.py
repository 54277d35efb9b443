"""The lines that a user has typed, in a file that only that user can read."""

# Without pathlib: descriptors are what this is about.
# ruff: noqa: PTH103, PTH120

from __future__ import annotations

import os

from mcplumb.config.files import locked, read_file, replace_file

__all__ = ["MOST_LINES", "History"]

#: Lines that are kept. The file has up to twice as many, before it is cut.
MOST_LINES = 1000
_LONGEST = 10_000
_OWN = 0o600


class History:
    """Lines, the latest last. A line that begins with a space is not kept, nor is one that only repeats the last.

    What cannot be read or written raises `ConfigError` or OSError.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._last = ""

    def load(self) -> list[str]:
        """The lines of earlier times."""
        data = read_file(self._file)
        if data is None:
            return []
        # A file that others could read does not stay like that.
        os.chmod(self._file, _OWN)  # noqa: PTH101
        lines = data.decode(errors="replace").split("\n")[:-1]
        if len(lines) > 2 * MOST_LINES:
            with locked(self._file):
                replace_file(self._file, "".join(f"{line}\n" for line in lines[-MOST_LINES:]).encode())
        return lines[-MOST_LINES:]

    def add(self, line: str) -> bool:
        """Keep a line, at once, as other shells may be open; returns whether it is one that is kept."""
        if not line.strip() or line.startswith(" ") or line == self._last or len(line) > _LONGEST:
            return False
        self._last = line
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _OWN)
        try:
            os.write(descriptor, f"{line}\n".encode(errors="replace"))
        finally:
            os.close(descriptor)
        return True

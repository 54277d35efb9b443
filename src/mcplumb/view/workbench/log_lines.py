"""The log of one connection: messages of the server, lines of its stderr, and events, in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mcplumb.limits import MAX_WORKBENCH_LOG

__all__ = ["LogLine", "LogLines"]

#: Bytes of one line that are kept.
_MAX_LINE = 16 * 1024


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line."""

    number: int
    #: In seconds since 1970.
    time: float
    #: ``log``: a message of the server. ``stderr``: a line of its process. ``event``: something that has happened.
    kind: Literal["log", "stderr", "event"]
    level: str = "info"
    logger: str = ""
    #: Of a message that is not a text.
    data: Any = msgspec.UNSET
    text: str = ""


class LogLines:
    """The latest lines. ``changed`` is called with the number of each new line."""

    def __init__(self, changed: Callable[[int], None]) -> None:
        self._changed = changed
        self._lines: deque[LogLine] = deque(maxlen=MAX_WORKBENCH_LOG)
        #: The number of the last line.
        self.last = 0

    def after(self, number: int) -> list[LogLine]:
        """Return the lines after this one that are still kept."""
        missing = min(self.last - number, len(self._lines))
        return list(self._lines)[len(self._lines) - missing :] if missing > 0 else []

    def message(self, level: str, logger: str | None, data: Any) -> None:
        """Add a log message of the server."""
        if isinstance(data, str):
            self._add(kind="log", level=level, logger=_cut(logger or "")[:200], text=_cut(data))
            return
        encoded = msgspec.json.encode(data)
        if len(encoded) > _MAX_LINE:
            self._add(kind="log", level=level, logger=_cut(logger or "")[:200], text=_cut(encoded.decode()))
        else:
            self._add(kind="log", level=level, logger=_cut(logger or "")[:200], data=msgspec.Raw(encoded))

    def stderr(self, line: str) -> None:
        """Add a line of the server's stderr."""
        self._add(kind="stderr", text=_cut(line.rstrip("\n")))

    def event(self, text: str, level: str = "info") -> None:
        """Add an event."""
        self._add(kind="event", level=level, text=_cut(text))

    def _add(self, **line: Any) -> None:
        self.last += 1
        self._lines.append(LogLine(number=self.last, time=time.time(), **line))
        self._changed(self.last)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LINE else f"{text[:_MAX_LINE]}… ({len(text)} characters)"

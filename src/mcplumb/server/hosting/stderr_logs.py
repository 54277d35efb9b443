"""What a running server writes to stderr: logs for people, in one of two formats, and every message on request.

*human* has a time, a level and a text. *plain* has no time; it marks errors with ``Error:`` and traces with
``[TRACE]``. Both are UTF-8. A stderr that nobody reads never holds up the server: what it does not take is dropped.
"""

from __future__ import annotations

import logging
import os
import select
from typing import Literal, TypeAlias

from mcplumb.errors import UsageError

__all__ = ["LOG_FORMATS", "BadLines", "LogFormat", "StderrHandler", "set_up_logs", "trace_line", "write_stderr"]

LogFormat: TypeAlias = Literal["human", "plain"]

LOG_FORMATS: tuple[LogFormat, ...] = ("human", "plain")

_STDERR = 2
#: A pipe that can be written to takes this much at once.
_PIECE = 512
#: How much of a message a trace shows.
_LONGEST_TRACE = 4000
# What would drive a terminal is shown by its number instead.
_SHOWN = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

#: How many bad lines are logged one by one. After that, each time their number has doubled.
_LOGGED_LINES = 10

_logger = logging.getLogger("mcplumb.server")
_tracer = logging.getLogger("mcplumb.trace")


class StderrHandler(logging.Handler):
    """Writes records to stderr, whatever ``sys.stderr`` is."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_plain = log_format == "plain"
        time = "" if self._is_plain else "%(asctime)s %(levelname)-7s "
        self.setFormatter(logging.Formatter(f"{time}%(message)s", "%H:%M:%S"))
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or drop it."""
        try:
            text = self.format(record).translate(_SHOWN)
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is no reason to fail
            self.handleError(record)
            return
        if self._is_plain:
            text = self._prefix(record) + text
        if self._dropped:
            text = f"({self._dropped} log messages were dropped, because nobody read them.)\n{text}"
        if write_stderr(text.encode("utf-8", "backslashreplace") + b"\n"):
            self._dropped = 0
        else:
            self._dropped += 1

    def _prefix(self, record: logging.LogRecord) -> str:
        if record.name == _tracer.name:
            return "[TRACE] "
        return "Error: " if record.levelno >= logging.ERROR else ""


class BadLines:
    """The lines of one client that were no messages: a few of them are logged, and then how many there were."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def note(self, reason: str) -> None:
        """One was passed over, for this reason."""
        self._count += 1
        if self._count <= _LOGGED_LINES:
            _logger.warning("A line from the client was passed over. %s", reason)
        elif self._count & (self._count - 1) == 0:
            _logger.warning("%d lines from the client were passed over so far. %s", self._count, reason)


def write_stderr(data: bytes) -> bool:
    """Write to stderr without ever waiting; False if it did not take everything."""
    try:
        while data:
            if not select.select((), (_STDERR,), (), 0)[1]:
                return False
            data = data[os.write(_STDERR, data[:_PIECE]) :]
    except (OSError, ValueError):  # stderr is closed
        return False
    return True


def set_up_logs(log_format: LogFormat | None, *, trace: bool | None) -> bool:
    """Make the process's logs visible on stderr, unless the program has set up logging itself.

    What is not given comes from the environment: ``MCPLUMB_LOG`` is a format, ``MCPLUMB_TRACE`` switches the trace on.
    Returns whether messages are to be traced.
    """
    chosen = log_format or os.environ.get("MCPLUMB_LOG") or "human"
    if chosen not in LOG_FORMATS:
        raise UsageError(f"There is no log format {chosen!r}. The formats are {' and '.join(LOG_FORMATS)}.")
    if trace is None:
        trace = os.environ.get("MCPLUMB_TRACE", "") not in ("", "0")
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(StderrHandler(chosen))
        logging.getLogger("mcplumb").setLevel(logging.INFO)
    if trace:
        _tracer.setLevel(logging.DEBUG)
    return trace


def trace_line(direction: Literal["in", "out"], line: bytes) -> None:
    """Log one line of the protocol."""
    shown = line[:_LONGEST_TRACE].decode("utf-8", "backslashreplace")
    more = f" … ({len(line)} bytes)" if len(line) > _LONGEST_TRACE else ""
    _tracer.debug("%s %s%s", "<--" if direction == "in" else "-->", shown, more)

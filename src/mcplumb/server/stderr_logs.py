"""Log to stderr, in one of two formats, optionally with a trace of every message.

*human* has a time, a level and a text. *plain* has no time; it marks errors with ``Error:`` and traces with
``[TRACE]``. Both are UTF-8. A stderr that is not read never blocks the server: records that do not fit are dropped.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from typing import Literal, TypeAlias

from mcplumb.errors import UsageError

__all__ = [
    "LOG_FORMATS",
    "BadLines",
    "LogFormat",
    "MessageTrace",
    "StderrHandler",
    "set_up_logs",
    "trace_line",
    "write_stderr",
]

LogFormat: TypeAlias = Literal["human", "plain"]

LOG_FORMATS: tuple[LogFormat, ...] = ("human", "plain")

_STDERR = 2
#: How many bytes a writable pipe accepts without blocking (POSIX's minimum for PIPE_BUF).
_PIECE = 512
#: How many bytes of a message a trace shows.
_MAX_TRACE = 4000
# Control characters, which could control the terminal, are escaped.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

#: How many bad lines are logged individually. After that, one is logged each time their number has doubled.
_LOGGED_LINES = 10

_logger = logging.getLogger("mcplumb.server")
_tracer = logging.getLogger("mcplumb.trace")


class StderrHandler(logging.Handler):
    """Writes records to file descriptor 2, even if ``sys.stderr`` was replaced."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_plain = log_format == "plain"
        time = "" if self._is_plain else "%(asctime)s %(levelname)-7s "
        self.setFormatter(logging.Formatter(f"{time}%(message)s", "%H:%M:%S"))
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, or drop it if stderr would block."""
        try:
            text = self.format(record).translate(_ESCAPED)
        except Exception:  # noqa: BLE001 - a record that cannot be formatted must not raise
            self.handleError(record)
            return
        if self._is_plain:
            text = self._prefix(record) + text
        if self._dropped:
            text = f"({self._dropped} log messages were dropped, because stderr was not read.)\n{text}"
        if write_stderr(text.encode("utf-8", "backslashreplace") + b"\n"):
            self._dropped = 0
        else:
            self._dropped += 1

    def _prefix(self, record: logging.LogRecord) -> str:
        if record.name == _tracer.name:
            return "[TRACE] "
        return "Error: " if record.levelno >= logging.ERROR else ""


class BadLines:
    """Logs the lines of one client that are not messages: the first ones individually, then their number."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def note(self, reason: str) -> None:
        """Record that a line was ignored for this reason."""
        self._count += 1
        if self._count <= _LOGGED_LINES:
            _logger.warning("A line from the client was ignored. %s", reason)
        elif self._count & (self._count - 1) == 0:
            _logger.warning("%d lines from the client were ignored so far. %s", self._count, reason)


def write_stderr(data: bytes) -> bool:
    """Write to stderr without blocking; return False if not everything was written."""
    try:
        while data:
            if not select.select((), (_STDERR,), (), 0)[1]:
                return False
            data = data[os.write(_STDERR, data[:_PIECE]) :]
    except (OSError, ValueError):  # stderr is closed
        return False
    return True


def set_up_logs(log_format: LogFormat | None, *, trace: bool | None) -> bool:
    """Send the process's logs to stderr, unless the program has configured logging itself.

    Arguments that are None come from the environment: ``MCPLUMB_LOG`` is the format, ``MCPLUMB_TRACE`` enables the
    trace. Returns whether messages are traced.
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


class MessageTrace:
    """Logs each protocol message, as ``mask`` returns it, and by name of the client where several share a trace."""

    __slots__ = ("_client", "_mask")

    def __init__(self, mask: Callable[[bytes], bytes] | None = None, client: str = "") -> None:
        self._mask = mask
        self._client = client

    def __call__(self, direction: Literal["in", "out"], line: bytes) -> None:
        """Log one message."""
        if self._mask is not None:
            line = self._mask(line)
        shown = line[:_MAX_TRACE].decode("utf-8", "backslashreplace")
        more = f" … ({len(line)} bytes)" if len(line) > _MAX_TRACE else ""
        _tracer.debug("%s %s%s%s", "<--" if direction == "in" else "-->", self._client, shown, more)

    def of_client(self, client: str) -> MessageTrace:
        """Return a trace that names the client in each line."""
        return MessageTrace(self._mask, f"{client} ")

    def masked_by(self, mask: Callable[[bytes], bytes]) -> MessageTrace:
        """Return a trace that shows of each message what ``mask`` returns."""
        return MessageTrace(mask, self._client)


#: Logs each protocol message as it is.
trace_line = MessageTrace()

"""Logs, the message trace and the server's stderr: on stderr as far as wanted; logs and trace completely to a file.

Trace lines are masked, as recordings are.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, TextIO

from mcplumb.cli.render.output import clean, say
from mcplumb.errors import UsageError

if TYPE_CHECKING:
    from mcplumb.cli.command_runner import GlobalOptions
    from mcplumb.types.notification_params import LogMessageParams

__all__ = ["ServerStderr", "Tracer", "logs", "masked", "show_log"]


# --- The trace ---

#: The maximum number of characters of a message.
_MAX_LENGTH = 4000


class Tracer:
    """Passes each message to ``write`` as one line with its time and direction."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._began = time.monotonic()

    def __call__(self, direction: Literal["in", "out"], line: bytes) -> None:
        """Write one message, which may be malformed."""
        since = time.monotonic() - self._began
        arrow = "<--" if direction == "in" else "-->"
        self._write(f"{since:9.3f} {arrow} {masked(line)}")


def masked(line: bytes) -> str:
    """Return a message as printable text: secrets masked, control characters escaped, and cut to a maximum length."""
    from mcplumb.recording.mask_secrets import mask_text  # most commands trace nothing

    shown = mask_text(line.decode("utf-8", "backslashreplace"))
    more = f" … ({len(line)} bytes)" if len(shown) > _MAX_LENGTH else ""
    return clean(shown[:_MAX_LENGTH]).replace("\n", "\\n").replace("\t", "\\t") + more


# --- The server's stderr ---

#: Lines of a server's stderr, and characters of a line, that are kept until the first contact.
_MAX_KEPT_LINES = 200
_MAX_KEPT_LINE = 2000
#: Lines of it that an error shows.
_MAX_TAIL = 20
#: Seconds without an answer after which the kept lines are shown, again and again.
_HANG_INTERVAL = 10.0
#: Turns of the event loop without a new line after which all that the server had written was read, and the maximum
#: number of turns, for a server that never pauses.
_QUIET_TURNS = 3
_MAX_TURNS = 100


class ServerStderr:
    """Shows the stderr of a server from the first contact on, and keeps what came before.

    Starting servers write banners, and old ones complain about the question for their era; nobody needs that while all
    is well. The kept lines are shown while the server does not answer, because they may say what it waits for, and they
    are for errors. With ``is_live``, every line is shown at once.
    """

    def __init__(self, *, is_live: bool = False) -> None:
        self._is_live = is_live
        self._kept: deque[str] = deque(maxlen=_MAX_KEPT_LINES)
        #: The number of kept lines that have not been shown, and of all lines so far.
        self._unseen = 0
        self._count = 0
        #: Whether a line was shown.
        self.has_shown = False

    def __call__(self, line: str) -> None:
        """Show or keep a line; the ``stderr`` callback of a connection."""
        self._count += 1
        if self._is_live:
            self._show(line)
        else:
            self._kept.append(line[:_MAX_KEPT_LINE])
            self._unseen = min(self._unseen + 1, _MAX_KEPT_LINES)

    @contextmanager
    def first_contact(self) -> Iterator[None]:
        """Keep lines within the block, and show them if it takes long or is cancelled."""
        import asyncio

        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def wait() -> None:
            nonlocal timer
            timer = loop.call_later(_HANG_INTERVAL, show_late)

        def show_late() -> None:
            self.show_kept("The server has not answered yet. It writes to stderr:")
            wait()

        wait()
        try:
            yield
        except asyncio.CancelledError:
            self.show_kept("The server had not answered yet. It wrote to stderr:")
            raise
        finally:
            timer.cancel()

    async def contacted(self) -> None:
        """Keep what the server wrote before its last answer, and show all that follows."""
        import asyncio

        quiet = 0
        for _ in range(0 if self._is_live else _MAX_TURNS):
            before = self._count
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._count == before else 0
            if quiet == _QUIET_TURNS:
                break
        self._is_live = True

    def show_kept(self, introduction: str) -> None:
        """Show the kept lines that have not been shown, after an introduction before the first of all."""
        if self._unseen and not self.has_shown:
            say(introduction)
        for line in list(self._kept)[len(self._kept) - self._unseen :]:
            self._show(line)
        self._unseen = 0

    @property
    def tail(self) -> str:
        """The last kept lines that have not been shown."""
        return "\n".join(list(self._kept)[-min(self._unseen, _MAX_TAIL) :]) if self._unseen else ""

    def _show(self, line: str) -> None:
        self.has_shown = True
        say(line, style="dim")


# --- Logs ---

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@contextmanager
def logs(options: GlobalOptions) -> Iterator[None]:
    """Set up logging as the options say, and ``options.tracer`` with ``--trace``, for the block."""
    logger = logging.getLogger("mcplumb")
    before = list(logger.handlers), logger.level, logger.propagate
    show: Callable[[str], object] = partial(say, style="dim")
    with ExitStack() as stack:
        handlers = [_Handler(show, _LEVELS[min(options.verbose, 2)])]
        if options.log_file is not None:
            file = stack.enter_context(_opened(options.log_file))
            show = partial(_write, file)
            handlers.append(_Handler(show, logging.DEBUG, with_time=True))
        if options.trace:
            options.tracer = Tracer(show)
        logger.handlers[:], logger.propagate = handlers, False
        logger.setLevel(logging.DEBUG)
        try:
            yield
        finally:
            logger.handlers[:], level, logger.propagate = before
            logger.setLevel(level)
            options.tracer = None


def show_log(message: LogMessageParams) -> None:
    """Show a log message of a server; an ``on_log`` callback."""
    from mcplumb.server.schema.read_value import as_text

    logger = f" {message.logger}" if message.logger else ""
    say(f"{message.level}{logger}: {as_text(message.data)}", style="dim")


class _Handler(logging.Handler):
    """Passes formatted records to a function."""

    def __init__(self, show: Callable[[str], object], level: int, *, with_time: bool = False) -> None:
        super().__init__(level)
        self._show = show
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s" if with_time else "%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Format and pass on one record."""
        try:
            self._show(self.format(record))
        except Exception:  # noqa: BLE001 - a failed log write must not fail the command
            self.handleError(record)


def _opened(path: str) -> TextIO:
    try:
        file = open(path, "a", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: PTH123, SIM115
    except OSError as error:
        raise UsageError(f"The log file {path} cannot be written: {error.strerror}.") from None
    file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} mcplumb\n")
    return file


def _write(file: TextIO, text: str) -> None:
    file.write(f"{clean(text)}\n")

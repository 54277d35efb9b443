"""Where the logs and the trace of a command go: to stderr, as far as they are wanted, and all of it to a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TextIO

from mcplumb.cli.output import clean, say
from mcplumb.errors import UsageError

if TYPE_CHECKING:
    from mcplumb.cli.running import GlobalOptions
    from mcplumb.types.log import LogMessageParams

__all__ = ["logs", "show_log"]

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@contextmanager
def logs(options: GlobalOptions) -> Iterator[None]:
    """Within the block, what the options want to see is shown, and ``options.tracer`` is made if one is wanted."""
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
            from mcplumb.cli.tracing import Tracer

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
    """Show a log message of a server: for ``on_log``."""
    from mcplumb.server.shapes.words import as_text

    logger = f" {message.logger}" if message.logger else ""
    say(f"{message.level}{logger}: {as_text(message.data)}", style="dim")


class _Handler(logging.Handler):
    """Passes records on as lines that no terminal obeys."""

    def __init__(self, show: Callable[[str], object], level: int, *, with_time: bool = False) -> None:
        super().__init__(level)
        self._show = show
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s" if with_time else "%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        try:
            self._show(self.format(record))
        except Exception:  # noqa: BLE001 - a log that cannot be written is no reason to fail
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

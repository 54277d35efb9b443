"""The progress of a request: a spinner and a bar on stderr if that is a terminal that can erase them; or lines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mcplumb.cli.render.output import clean_line, say, stderr
from mcplumb.types.base import Number

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

__all__ = ["ProgressBar", "bars_paused"]

_MAX_MESSAGE = 60
#: The maximum width of the bar, and the width of the elapsed time and the blanks, in columns.
_MAX_BAR = 40
_TIME_WIDTH = 13
#: Seconds without progress after which a spinner appears: most requests are answered before.
_SPINNER_WAIT = 0.5

#: The bars whose blocks are running.
_running: list[ProgressBar] = []


@contextmanager
def bars_paused() -> Iterator[None]:
    """Hide all bars within the block, for a prompt from code that does not know about them."""
    with ExitStack() as pauses:
        for bar in _running:
            pauses.enter_context(bar.paused())
        yield


class ProgressBar:
    """Shows the progress of one request: ``with ProgressBar(title) as bar``, and ``on_progress=bar.show``.

    On a terminal, a spinner with the elapsed time appears after a moment, and a bar with the first progress; both
    disappear at the end of the block. With ``lines``, any other stderr, and a terminal that cannot erase
    (``TERM=dumb``), gets a line for each progress. The block must be in a running event loop for the spinner.
    """

    def __init__(self, title: str, *, lines: bool = False) -> None:
        self._title = clean_line(title, _MAX_MESSAGE)
        self._lines = lines
        self._bar: tuple[Progress, TaskID] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        #: Kept, because it counts the time since it appeared.
        self._spinner: ProgressColumn | None = None

    def __enter__(self) -> Self:
        _running.append(self)
        if stderr().is_terminal:
            with suppress(RuntimeError):  # no event loop runs
                self._timer = asyncio.get_running_loop().call_later(_SPINNER_WAIT, self._spin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _running.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._bar is not None:
            self._bar[0].stop()

    def show(self, progress: Number, total: Number | None, message: str | None) -> None:
        """Show a progress report; an ``on_progress`` callback."""
        count = _figure(progress) if total is None else f"{_figure(progress)}/{_figure(total)}"
        words = clean_line(message or "", _MAX_MESSAGE)
        if _can_erase():
            bar, task = self._bar = self._bar or self._made()
            part = _part(progress, total)
            whole = None if part is None else 1.0
            said = _fitted(words or self._title, stderr().width - _bar_width() - len(count) - _TIME_WIDTH)
            bar.columns = self._columns(has_bar=True)
            bar.update(task, description=said, count=count, completed=part or 0.0, total=whole)
            if not self._is_paused:
                bar.start()
        elif self._lines:
            say(f"{self._title}: {count}{words and f', {words}'}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar within the block."""
        was_paused, self._is_paused = self._is_paused, True
        if self._bar is not None:
            self._bar[0].stop()
        try:
            yield
        finally:
            self._is_paused = was_paused
            if self._bar is not None and not was_paused and self in _running:
                self._bar[0].start()

    def _spin(self) -> None:
        """Show that the request takes its time, unless there is progress."""
        if self._bar is None and _can_erase():
            self._bar = self._made()
            if not self._is_paused:
                self._bar[0].start()

    def _made(self) -> tuple[Progress, TaskID]:
        from rich.progress import Progress

        bar = Progress(
            *self._columns(has_bar=False),
            console=stderr(),
            transient=True,
            # Results are written directly to the stream.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        return bar, bar.add_task(self._title, total=None, count="")

    def _columns(self, *, has_bar: bool) -> tuple[ProgressColumn, ...]:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._spinner = self._spinner or SpinnerColumn()
        bar = (BarColumn(_bar_width()), TextColumn("{task.fields[count]}", markup=False)) if has_bar else ()
        return self._spinner, TextColumn("{task.description}", markup=False), *bar, TimeElapsedColumn()


def _can_erase() -> bool:
    """Return whether what is drawn on stderr can be erased again."""
    return stderr().is_terminal and not stderr().is_dumb_terminal


def _bar_width() -> int:
    return min(_MAX_BAR, stderr().width // 4)


def _fitted(text: str, columns: int) -> str:
    """Cut a message to a width, so that the bar fits beside it."""
    from rich.text import Text

    fitted = Text(text)
    fitted.truncate(max(columns, 0), overflow="ellipsis")
    return fitted.plain


def _figure(number: Number) -> str:
    try:
        return f"{float(number):.10g}"
    except OverflowError:  # it has hundreds of digits
        return "∞"


def _part(progress: Number, total: Number | None) -> float | None:
    """Return the completed part, from 0 to 1; None if it is unknown."""
    if not total or total < 0:
        return None
    try:
        return min(max(progress / total, 0.0), 1.0)
    except OverflowError:
        return None

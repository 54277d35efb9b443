"""Users' functions, made fit for the loop: it never calls them itself, because they may block.

They may also call the same client again, which the loop could not wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from inspect import iscoroutinefunction
from typing import Any

from mcplumb.errors import UsageError

__all__ = ["HaveDone", "LineCarrier", "carried"]

#: Has a function called in some thread, and waits for it in the loop.
HaveDone = Callable[..., Coroutine[Any, Any, Any]]


#: Characters that wait for a function which is slower than the server. Beyond that the oldest lines are dropped.
_MAX_WAITING = 4 * 1024 * 1024

_logger = logging.getLogger("mcplumb.sync")


class LineCarrier:
    """Has a function called with each line, in another thread, in order, all that came meanwhile in one go."""

    def __init__(self, function: Callable[[str], object], have_done: HaveDone) -> None:
        self._call = carried(self._call_with_each, "stderr", have_done)
        carried(function, "stderr", have_done)  # says so if it is async
        self._function = function
        self._lines: deque[str] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    def bring(self, line: str) -> None:
        """Called in the loop with each line."""
        self._lines.append(line)
        self._size += len(line)
        while self._size > _MAX_WAITING:
            self._size -= len(self._lines.popleft())
            if not self._has_warned:
                self._has_warned = True
                _logger.warning("The function for stderr is too slow: some of the oldest lines are dropped.")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def finish(self, within: float) -> None:
        """Wait until the last line is delivered, but no longer than this many seconds; then stop."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=within)
            self._task.cancel()

    async def _deliver(self) -> None:
        while self._lines:
            lines = list(self._lines)
            self._lines.clear()
            self._size = 0
            await self._call(lines)

    def _call_with_each(self, lines: list[str]) -> None:
        for line in lines:
            try:
                self._function(line)
            except Exception:
                _logger.exception("The function for stderr raised an exception.")


def carried(function: Callable[..., Any], what: str, have_done: HaveDone) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The same as an async function, which has the plain one called in another thread."""
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise UsageError(f"{what} is an async function, which a blocking client has no loop for: give it a plain one.")

    async def call(*arguments: Any) -> Any:
        return await have_done(function, *arguments)

    return call

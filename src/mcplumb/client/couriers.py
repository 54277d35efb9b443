"""Bringing news to a user's function, which may be plain or async, slow or broken, without ever waiting for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias

from mcplumb.protocol.progress import ProgressMeter
from mcplumb.types.base import Number
from mcplumb.types.progress import ProgressParams

__all__ = ["Courier", "OnProgress", "ProgressCourier"]

#: Called with the progress, the total and a message; the latter two are None where the server does not say.
OnProgress: TypeAlias = Callable[[Number, Number | None, str | None], Awaitable[None] | None]

#: News that wait for an async function. A slower one than that does not get to see all of them.
_MAX_BACKLOG = 1000

_logger = logging.getLogger("mcplumb.client")


class Courier:
    """Calls one function for each piece of news, in order.

    A plain function is called at once. An async one runs in a task, one call after the other; when too many wait, the
    oldest is dropped and counted. What the function raises is logged, and harms nobody.
    """

    __slots__ = ("_backlog", "_context", "_function", "_task", "_what", "dropped")

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.dropped = 0
        self._function = function
        # That of whoever wants the news, and not of the task that happened to connect.
        self._context = copy_context()
        self._what = what
        self._backlog: deque[Awaitable[None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def bring(self, *news: Any) -> None:
        """Call the function with this, now or as soon as it has taken what came before. Raises nothing."""
        try:
            waiting = self._context.run(self._function, *news)
        except Exception:
            _logger.exception("The function %s raised an exception.", self._what)
            return
        if isawaitable(waiting):
            if len(self._backlog) >= _MAX_BACKLOG:
                self.dropped += 1
                _discard(self._backlog.popleft())
            self._backlog.append(waiting)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._deliver(), context=self._context)

    async def finish(self, within: float | None) -> None:
        """Wait until everything is delivered, but no longer than this many seconds; then stop."""
        try:
            if self._task is not None:
                await asyncio.wait((self._task,), timeout=within)
        finally:
            self.stop()

    def stop(self) -> None:
        """Deliver nothing more. May be called again."""
        if self._task is not None:
            self._task.cancel()
        while self._backlog:
            _discard(self._backlog.popleft())

    async def _deliver(self) -> None:
        while self._backlog:
            try:
                await self._backlog.popleft()
            except Exception:
                _logger.exception("The function %s raised an exception.", self._what)


class ProgressCourier:
    """Brings the progress of one call. A flood of it is thinned out, without losing the last value."""

    __slots__ = ("_courier", "_loop", "_meter", "_turn")

    def __init__(self, function: OnProgress, loop: asyncio.AbstractEventLoop) -> None:
        self._courier = Courier(function, "on_progress")
        self._meter = ProgressMeter()
        self._loop = loop
        self._turn: asyncio.TimerHandle | None = None

    @property
    def dropped(self) -> int:
        """How many values the function was too slow for."""
        return self._courier.dropped

    def bring(self, progress: ProgressParams) -> None:
        """Report this progress, now or a little later."""
        self._report(self._meter.offer(progress, self._loop.time()))
        self._wait_for_turn()

    async def finish(self, within: float | None) -> None:
        """The call was answered: report the last value, and wait until all are delivered, as a courier does."""
        self._forget_turn()
        self._report(self._meter.last())
        await self._courier.finish(within)

    def stop(self) -> None:
        """The call failed: report nothing more."""
        self._forget_turn()
        self._courier.stop()

    def _report(self, progress: ProgressParams | None) -> None:
        if progress is not None:
            self._courier.bring(progress.progress, progress.total, progress.message)

    def _wait_for_turn(self) -> None:
        if self._turn is None and self._meter.deadline is not None:
            self._turn = self._loop.call_at(self._meter.deadline, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._report(self._meter.due(self._loop.time()))
        self._wait_for_turn()

    def _forget_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None


def _discard(waiting: Awaitable[None]) -> None:
    if iscoroutine(waiting):
        waiting.close()

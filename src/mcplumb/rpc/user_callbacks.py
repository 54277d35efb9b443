"""User callbacks: called in order through a bounded queue, so that slow ones do not block the connection."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias

from mcplumb.types.base import Number
from mcplumb.types.notification_params import ProgressParams

__all__ = ["CallbackQueue", "OnProgress", "ProgressCallback"]

#: Called with the progress, the total and a message; the latter two are None if the peer omits them.
OnProgress: TypeAlias = Callable[[Number, Number | None, str | None], Awaitable[None] | None]

#: The number of queued calls of an async callback. Beyond it the oldest are dropped.
_MAX_BACKLOG = 1000

_logger = logging.getLogger("mcplumb.client")


class CallbackQueue:
    """Calls one callback for each event, in order.

    A plain function is called at once. The coroutines of an async function run in a task, one after the other; when too
    many wait, the oldest is dropped and counted. Exceptions of the callback are logged and go no further.
    """

    __slots__ = ("_backlog", "_context", "_function", "_name", "_task", "dropped")

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.dropped = 0
        self._function = function
        # The context of the caller that wants the events, not of the task that happened to connect.
        self._context = copy_context()
        self._name = name
        self._backlog: deque[Awaitable[None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, *event: Any) -> None:
        """Call the callback with this event, now or after the calls that wait. Raises nothing."""
        try:
            pending = self._context.run(self._function, *event)
        except Exception:
            _logger.exception("The callback %s raised an exception.", self._name)
            return
        if isawaitable(pending):
            if len(self._backlog) >= _MAX_BACKLOG:
                self.dropped += 1
                _discard(self._backlog.popleft())
            self._backlog.append(pending)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._drain(), context=self._context)

    async def finish(self, within: float | None) -> None:
        """Wait until all calls have been made, but no longer than this many seconds; then stop."""
        try:
            if self._task is not None:
                await asyncio.wait((self._task,), timeout=within)
        finally:
            self.stop()

    def stop(self) -> None:
        """Make no more calls. May be called again."""
        if self._task is not None:
            self._task.cancel()
        while self._backlog:
            _discard(self._backlog.popleft())

    async def _drain(self) -> None:
        while self._backlog:
            try:
                await self._backlog.popleft()
            except asyncio.CancelledError:
                if self._task is None or self._task.cancelling():
                    raise
                # What the callback awaited was cancelled: that is its affair, and the others are called all the same.
                _logger.exception("The callback %s was cancelled.", self._name)
            except Exception:
                _logger.exception("The callback %s raised an exception.", self._name)


class ProgressCallback:
    """Reports the progress of one request to a callback. A flood is thinned out without losing the last value."""

    __slots__ = ("_calls", "_loop", "_meter", "_timer")

    def __init__(self, function: OnProgress, loop: asyncio.AbstractEventLoop) -> None:
        self._calls = CallbackQueue(function, "on_progress")
        from mcplumb.protocol.progress import ProgressMeter  # most clients want none

        self._meter = ProgressMeter()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    @property
    def dropped(self) -> int:
        """The number of values dropped because the callback was too slow."""
        return self._calls.dropped

    def put(self, progress: ProgressParams) -> None:
        """Report this progress, now or a little later."""
        self._report(self._meter.offer(progress, self._loop.time()))
        self._set_timer()

    async def finish(self, within: float | None) -> None:
        """Report the last value, because the request was answered, and finish as `CallbackQueue` does."""
        self._cancel_timer()
        self._report(self._meter.last())
        await self._calls.finish(within)

    def stop(self) -> None:
        """Report nothing more, because the request failed."""
        self._cancel_timer()
        self._calls.stop()

    def _report(self, progress: ProgressParams | None) -> None:
        if progress is not None:
            self._calls.put(progress.progress, progress.total, progress.message)

    def _set_timer(self) -> None:
        if self._timer is None and self._meter.deadline is not None:
            self._timer = self._loop.call_at(self._meter.deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self._report(self._meter.due(self._loop.time()))
        self._set_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _discard(pending: Awaitable[None]) -> None:
    if iscoroutine(pending):
        pending.close()

"""A future for one waiter, who is woken at once and not a turn of the event loop later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, Self, TypeVar

__all__ = ["Promise"]

T = TypeVar("T")


class Promise(Generic[T]):
    """Something that one task waits for. It belongs to the thread of the event loop.

    It has what a task needs of whatever it waits for, and no more: do not pass it to the functions of ``asyncio``.
    Whatever happens to it first stays; a value that comes after that, or after a cancellation, is passed over.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_is_cancelled", "_is_done", "_loop", "_value", "_wake")

    _context: Context
    #: What was promised, or the message of the cancellation.
    _value: Any

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # By this name, asyncio knows a future, and that it is being awaited.
        self._asyncio_future_blocking = False
        self._loop = loop
        self._is_done = False
        self._is_cancelled = False
        #: Runs the next step of the task that waits. None before that, and as soon as the step runs.
        self._wake: Callable[[Promise[T]], object] | None = None

    def __repr__(self) -> str:
        state = "cancelled" if self._is_cancelled else "done" if self._is_done else "pending"
        return f"<Promise {state}>"

    def done(self) -> bool:
        """Whether it has a value, or was cancelled."""
        return self._is_done

    def set_result_now(self, value: T) -> None:
        """Give the value, and run the task that waits for it, until that waits for something else or has ended.

        What the task raises stays in the task, except that KeyboardInterrupt and SystemExit come out here as well.
        From within another task, it is woken a turn later: two cannot run at once.
        """
        if self._is_done:
            return
        self._is_done = True
        self._value = value
        wake = self._wake
        if wake is not None:
            try:
                self._context.run(wake, self)
            except RuntimeError:
                # Trying costs less than asking whether a task is being run. A step that has run is not run again.
                if self._wake is None:
                    raise
                self._loop.call_soon(wake, self, context=self._context)

    def set_result(self, value: T) -> None:
        """Give the value, as to a future: the task that waits for it runs in the next turn of the loop."""
        if not self._is_done:
            self._is_done = True
            self._value = value
            self._wake_later()

    # What a task calls

    def __await__(self) -> Generator[Self, None, T]:
        if self._is_done:
            return self.result()
        self._asyncio_future_blocking = True
        try:
            yield self
        finally:
            self._wake = None
        # Whoever ran this step has looked at the result: a cancellation would have been raised above.
        value: T = self._value
        return value

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which has to be that of the task."""
        return self._loop

    def add_done_callback(self, wake: Callable[[Promise[T]], object], *, context: Context) -> None:
        """The task waits."""
        self._wake = wake
        self._context = context

    def cancel(self, msg: Any = None) -> bool:
        """The task is cancelled, most often by another one; False if it is about to be woken anyway."""
        if self._is_done:
            return False
        # At once, and in no other function: a signal handler that cancels, too, may run where a function begins.
        self._is_done = self._is_cancelled = True
        self._value = msg
        self._wake_later()
        return True

    def result(self) -> T:
        """The value; CancelledError if it is not wanted any more."""
        if self._is_cancelled:
            raise asyncio.CancelledError if self._value is None else asyncio.CancelledError(self._value)
        value: T = self._value
        return value

    def _wake_later(self) -> None:
        if self._wake is not None:
            self._loop.call_soon(self._wake, self, context=self._context)

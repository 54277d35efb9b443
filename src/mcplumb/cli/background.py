"""An event loop in a thread of its own, for a command that waits for its user in the main thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["Background"]

_T = TypeVar("_T")
_TICK = 0.25


class Background:
    """Runs coroutines while the main thread reads what is typed, or waits for one of them.

    Signals reach the main thread only, so Ctrl-C interrupts what that does: the line that is typed, or the wait.
    ``within`` is called in the new thread before all else. At the end of the block, what still runs is cancelled.
    """

    def __init__(self, within: Callable[[], object] = lambda: None) -> None:
        self._within = within
        self._loops: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()
        # If it is left with a second Ctrl-C, nobody waits for it.
        self._thread = threading.Thread(target=self._live, name="mcplumb loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._loops.get()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a coroutine, and give what it returns.

        Ctrl-C cancels it, and is raised as `KeyboardInterrupt` when it has ended; a second one does not wait for that.
        """
        ended: SimpleQueue[asyncio.Task[_T]] = SimpleQueue()
        begun: list[asyncio.Task[_T]] = []

        def begin() -> None:
            if not begun:
                begun.append(self._loop.create_task(coroutine))
                begun[0].add_done_callback(ended.put)

        def give_up() -> None:
            begin()  # if Ctrl-C came before that
            begun[0].cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            task = _next(ended)
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(give_up)
            task = _next(ended)
            if not task.cancelled():
                task.exception()  # which nobody wants to know any more
            raise
        return task.result()

    def _live(self) -> None:
        self._within()
        asyncio.run(self._wait())

    async def _wait(self) -> None:
        self._end = asyncio.Event()
        self._loops.put(asyncio.get_running_loop())
        await self._end.wait()


def _next(queue: SimpleQueue[_T]) -> _T:
    """Wait for the next one. A Ctrl-C that comes just before the wait is noticed, too, if a little late."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=_TICK)

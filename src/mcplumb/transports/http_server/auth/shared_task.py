"""`SharedTask`: work that several requests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["SharedTask"]

T = TypeVar("T")


class SharedTask(Generic[T]):
    """A task that several callers of ``result`` share. It is cancelled when none of them waits any more.

    ``is_kept``: it goes on when nobody waits, until `release`. Such a task must be bounded in time.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], *, is_kept: bool = False) -> None:
        self._task = asyncio.get_running_loop().create_task(coroutine)
        self._task.add_done_callback(_retrieve)
        self._is_kept = is_kept
        self._waiting = 0

    @property
    def is_over(self) -> bool:
        """Whether it cannot be joined: it has ended, is cancelled, or belongs to another event loop."""
        task = self._task
        return task.done() or task.cancelling() > 0 or task.get_loop() is not asyncio.get_running_loop()

    async def result(self) -> T:
        """Wait for the end of the task; return or raise what it does. Safe to cancel."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._is_kept and not self._task.done():
                self._task.cancel()

    async def release(self) -> None:
        """Let it end with the last caller that waits. If there is none, cancel it and wait until it has ended."""
        self._is_kept = False
        if not self._waiting and self._task.get_loop() is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.wait([self._task])


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Take note of a task's error: it is no fault if all that waited for it are gone."""
    if not task.cancelled():
        task.exception()

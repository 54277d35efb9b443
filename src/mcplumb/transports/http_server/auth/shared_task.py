"""`SharedTask`: work that several requests wait for, and that ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["SharedTask"]

T = TypeVar("T")


class SharedTask(Generic[T]):
    """A task that several callers of ``result`` share. It is cancelled when none of them waits any more."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.get_running_loop().create_task(coroutine)
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
            if not self._waiting and not self._task.done():
                self._task.cancel()

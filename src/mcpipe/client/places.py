"""A bounded number of places, for which callers wait in the order they came."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Places"]


class Places:
    """Whoever finds some ``free`` may take one by counting it down; everyone gives it back with ``give_back``.

    As a semaphore, but in the common case a caller pays for nothing but that.
    """

    __slots__ = ("_queue", "free")

    def __init__(self, count: int) -> None:
        self.free = count
        self._queue: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Take a place, as soon as it is one's turn. Cancelled, none was taken."""
        if self.free:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was one's turn already
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a place to the next in the queue or, if there is none, leave it free."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1

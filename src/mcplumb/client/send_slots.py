"""Whose turn it is to send: a bounded number of callers, while the server reads; the others wait in order."""

from __future__ import annotations

import asyncio
from contextvars import Context

from mcplumb.transports.connection import Connection, Waiters

__all__ = ["Turns"]


class Turns:
    """Whoever finds a place ``free`` while nobody is ``waiting`` and the connection is not clogged may count it down.

    Everyone else waits for a turn, and everyone gives the place back. As a semaphore, but in the common case a caller
    pays for nothing but that; and those who wait, who may be thousands, share one timer and one look at the connection.
    """

    __slots__ = ("_connection", "_lookout", "_loop", "_waiters", "free", "waiting")

    def __init__(self, count: int, connection: Connection) -> None:
        self.free = count
        self.waiting = 0
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiters = Waiters(self._loop, lambda: self.free)
        #: Waits for the server to read, while somebody waits for that.
        self._lookout: asyncio.Task[None] | None = None

    async def take(self, deadline: float | None) -> bool:
        """Wait for a turn, and take a place; False if that was not to be had until then. Cancelled, none was taken."""
        self.waiting += 1
        try:
            if not await self._waiters.wait_while(self._has_to_wait, deadline):
                return False
            self.free -= 1
            return True
        finally:
            self.waiting -= 1
            if not self.waiting and self._lookout is not None:
                self._lookout.cancel()
                self._lookout = None

    def give_back(self) -> None:
        """Leave a place to the next who waits."""
        self.free += 1
        if self.waiting and not self._has_to_wait():
            self._waiters.wake()

    def _has_to_wait(self) -> bool:
        if not self._connection.is_clogged:
            return not self.free
        if self._lookout is None:
            # Not among the variables of the caller who happens to come first.
            self._lookout = Context().run(self._loop.create_task, self._connection.drained())
            self._lookout.add_done_callback(self._looked)
        return True

    def _looked(self, lookout: asyncio.Task[None]) -> None:
        if lookout is self._lookout:
            self._lookout = None
            self._waiters.wake()

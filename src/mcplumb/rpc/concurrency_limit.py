"""Send slots: the limit on our own open requests, and the callers that wait for a free slot."""

from __future__ import annotations

import asyncio
from contextvars import Context

from mcplumb.transports.connection import Connection, Waiters

__all__ = ["SendSlots"]


class SendSlots:
    """A semaphore for requests that also waits while the connection is clogged.

    The common case costs nothing but a count: a caller that finds a slot ``free``, no caller ``waiting`` and the
    connection not clogged decrements ``free``. Every other caller awaits ``take``. Every caller gives its slot back by
    incrementing ``free`` and, if callers are waiting, calling ``wake``. The waiting callers, which may be thousands,
    are served in order and share one timer and one watch on the connection.
    """

    __slots__ = ("_connection", "_draining", "_is_closed", "_loop", "_waiters", "free", "waiting")

    def __init__(self, count: int, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.free = count
        self.waiting = 0
        self._connection = connection
        self._loop = loop
        self._is_closed = False
        self._waiters = Waiters(loop, lambda: self.waiting if self._is_closed else self.free)
        #: Waits for the peer to read, while any caller waits for that.
        self._draining: asyncio.Task[None] | None = None

    async def take(self, deadline: float | None) -> bool:
        """Wait for a slot and take it; False if there is none until the deadline. If cancelled, no slot is taken."""
        self.waiting += 1
        try:
            if not await self._waiters.wait_while(self._must_wait, deadline):
                return False
            self.free -= 1
            return True
        finally:
            self.waiting -= 1
            if not self.waiting and self._draining is not None:
                self._draining.cancel()
                self._draining = None

    def close(self) -> None:
        """Send every caller to the slow way from now on, where it finds out that the connection is closed."""
        self.waiting += 1
        self._is_closed = True
        self._waiters.wake()

    def wake(self) -> None:
        """Let the next callers look for a slot, because one has become free."""
        if not self._must_wait():
            self._waiters.wake()

    def _must_wait(self) -> bool:
        if self._is_closed:
            return False
        if not self._connection.is_clogged:
            return not self.free
        if self._draining is None:
            # In an empty context: it must not inherit the variables of the caller that happens to come first.
            self._draining = Context().run(self._loop.create_task, self._connection.drained())
            self._draining.add_done_callback(self._drained)
        return True

    def _drained(self, draining: asyncio.Task[None]) -> None:
        if draining is self._draining:
            self._draining = None
            self._waiters.wake()

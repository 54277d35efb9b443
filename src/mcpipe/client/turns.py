"""Whose turn it is to send: a bounded number of callers, while the server reads; the others wait in order."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from heapq import heapify, heappop, heappush

from mcpipe.client.wakeups import give
from mcpipe.transports.connection import Connection

__all__ = ["Turns"]

#: How many are let in before it is looked again whether the server reads. What they send leaves in one write.
_AT_ONCE = 64


class Turns:
    """Whoever finds a place ``free``, while the connection is not clogged, may take it by counting it down.

    Everyone else waits for a turn, and everyone gives the place back. As a semaphore, but in the common case a caller
    pays for nothing but that; and those who wait, who may be thousands, share one timer and one look at the connection.
    """

    __slots__ = ("_connection", "_due", "_last", "_look_out", "_loop", "_queue", "_timer", "free")

    def __init__(self, count: int, connection: Connection) -> None:
        self.free = count
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        #: Those who wait. A plain dict would step over all who have left to find the first.
        self._queue: OrderedDict[asyncio.Future[bool], None] = OrderedDict()
        #: A heap of their deadlines. Some may have left.
        self._due: list[tuple[float, int, asyncio.Future[bool]]] = []
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None
        #: What waits for the server to read.
        self._look_out: asyncio.Task[None] | None = None

    async def take(self, deadline: float | None) -> bool:
        """Wait for a turn, and take a place; False if that was not to be had until then. Cancelled, none was taken."""
        turn: asyncio.Future[bool] = self._loop.create_future()
        self._queue[turn] = None
        if deadline is not None:
            self._note(deadline, turn)
        self._let_in()
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():  # it was one's turn already
                self.give_back()
            raise
        finally:
            self._queue.pop(turn, None)
            if not self._queue and self._due:
                self._due.clear()
                self._set_timer()

    def give_back(self) -> None:
        """Leave a place to the next who waits."""
        self.free += 1
        if self._queue:
            self._let_in()

    def _let_in(self) -> None:
        """Give turns to some of those who wait, if there are places, and as soon as the server reads."""
        if self._loop.is_closed() or self._look_out is not None:
            return
        if self._connection.is_clogged:
            self._look_out = self._loop.create_task(self._wait_for_server())
            return
        for _ in range(min(_AT_ONCE, self.free, len(self._queue))):
            turn, _ = self._queue.popitem(last=False)
            if not turn.done():
                self.free -= 1
                turn.set_result(True)
        if self.free and self._queue:
            # When these have sent, the connection may be clogged again.
            self._look_out = self._loop.create_task(self._wait_for_server())

    async def _wait_for_server(self) -> None:
        try:
            await self._connection.drained()
        finally:
            self._look_out = None
        self._let_in()

    # One timer for all

    def _note(self, deadline: float, turn: asyncio.Future[bool]) -> None:
        if len(self._due) > 2 * len(self._queue):
            # More than half have left: it is never much longer than there are those who wait.
            self._due = [due for due in self._due if not due[2].done()]
            heapify(self._due)
        self._last += 1
        heappush(self._due, (deadline, self._last, turn))
        if self._timer is None or deadline < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due[0][0], self._expire) if self._due else None

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._due and (self._due[0][0] <= now or self._due[0][2].done()):
            give(heappop(self._due)[2], False)
        self._set_timer()

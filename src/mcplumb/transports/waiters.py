"""Those who wait until a peer has caught up."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import islice

__all__ = ["Waiters"]

#: How many look again at once. Few: all but the first may look in vain, and that must not grow with how many wait. Not
#: one by one: what is sent in one turn of the loop leaves in one write.
_AT_ONCE = 64


class Waiters:
    """Tasks that wait for the same thing, in the order they came. They belong to one event loop.

    ``room`` says how many of them would not look in vain, if that can be known.
    """

    __slots__ = ("_due", "_loop", "_noted", "_room", "_timer", "_waiting", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop, room: Callable[[], int] | None = None) -> None:
        self._loop = loop
        self._room = room
        #: By the place of each in the order. A plain dict would step over all who have left to find the first.
        self._waiting: OrderedDict[object, asyncio.Future[None]] = OrderedDict()
        #: Those that have not looked yet since they were woken.
        self._woken: set[asyncio.Future[None]] = set()
        #: A heap of deadlines, with one timer for all. Some of those who had them may have left.
        self._due: list[tuple[float, int, object]] = []
        self._noted = 0
        self._timer: asyncio.TimerHandle | None = None

    async def wait_while(self, holds: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait as long as this is so; it is looked at again after each ``wake``. Cancelling this harms nothing.

        False if it is still so at the deadline, by the time of the loop.
        """
        if not self._waiting and not holds():  # those who wait come first
            return True
        place, has_to_wait = object(), True
        if deadline is not None:
            self._note(deadline, place)
        try:
            # Those who waited run one after the other, and each may make it so again for the next, who stays in place.
            while has_to_wait and (deadline is None or self._loop.time() < deadline):
                await self._woken_at(place)
                has_to_wait = holds()
            return not has_to_wait
        finally:
            self._waiting.pop(place, None)
            if not self._waiting and self._due:
                self._due.clear()
                self._set_timer()
            # Whoever looks last, or is cancelled instead, lets the next ones look.
            if not self._woken and not holds():
                self.wake()

    def wake(self) -> None:
        """Let them look again, a few at a time. May be called when the event loop is gone, and they with it."""
        if self._woken or self._loop.is_closed():
            return
        some = _AT_ONCE if self._room is None else min(_AT_ONCE, self._room())
        for future in islice(self._waiting.values(), some):
            if not future.done():
                future.set_result(None)
                self._woken.add(future)

    async def _woken_at(self, place: object) -> None:
        future = self._waiting[place] = self._loop.create_future()
        try:
            await future
        finally:
            self._woken.discard(future)

    # Deadlines

    def _note(self, deadline: float, place: object) -> None:
        if len(self._due) > 2 * len(self._waiting):
            # More than half have left: it is never much longer than there are those who wait.
            self._due = [due for due in self._due if due[2] in self._waiting]
            heapify(self._due)
        self._noted += 1  # of two with the same deadline, who came first is first
        heappush(self._due, (deadline, self._noted, place))
        if self._timer is None or deadline < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due[0][0], self._expire) if self._due else None

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._due and (self._due[0][0] <= now or self._due[0][2] not in self._waiting):
            future = self._waiting.get(heappop(self._due)[2])
            if future is not None and not future.done():
                future.set_result(None)
        self._set_timer()

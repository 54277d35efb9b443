"""Those who wait until a peer has caught up."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

__all__ = ["Waiters"]

#: How many look again at once. Few: all but the first may look in vain, and that must not grow with how many wait. Not
#: one by one: what is sent in one turn of the loop leaves in one write.
_AT_ONCE = 64


class Waiters:
    """Tasks that wait for the same thing, in the order they came. They belong to one event loop."""

    __slots__ = ("_loop", "_waiting", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: By the place of each in the order. A plain dict would step over all who have left to find the first.
        self._waiting: OrderedDict[object, asyncio.Future[None]] = OrderedDict()
        #: Those that have not looked yet since they were woken.
        self._woken: set[asyncio.Future[None]] = set()

    async def wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait as long as this is so; it is looked at again after each ``wake``. Cancelling this harms nothing."""
        if not holds():
            return
        place, has_to_wait = object(), True
        try:
            # Those who waited run one after the other, and each may make it so again for the next, who stays in place.
            while has_to_wait:
                await self._woken_at(place)
                has_to_wait = holds()
        finally:
            del self._waiting[place]
            # Whoever looks last, or is cancelled instead, lets the next ones look.
            if not self._woken and not holds():
                self.wake()

    def wake(self) -> None:
        """Let them look again, a few at a time. May be called when the event loop is gone, and they with it."""
        if self._woken or self._loop.is_closed():
            return
        for future in islice(self._waiting.values(), _AT_ONCE):
            if not future.done():
                future.set_result(None)
                self._woken.add(future)

    async def _woken_at(self, place: object) -> None:
        future = self._waiting[place] = self._loop.create_future()
        try:
            await future
        finally:
            self._woken.discard(future)

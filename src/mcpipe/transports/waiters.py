"""Those who wait until a peer has caught up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Waiters"]


class Waiters:
    """Tasks that wait for the same thing, in the order they came. They belong to one event loop."""

    __slots__ = ("_futures", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._futures: dict[asyncio.Future[None], None] = {}

    async def wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait as long as this is so; it is looked at again with each ``wake``. Cancelling this harms nothing."""
        # Those who waited run one after the other, and each may make it so again for the next.
        while holds():
            future = self._loop.create_future()
            self._futures[future] = None
            try:
                await future
            finally:
                del self._futures[future]

    def wake(self) -> None:
        """Let all of them look again. May be called when the event loop is gone, and they with it."""
        for future in self._futures:
            if not future.done() and not self._loop.is_closed():
                future.set_result(None)

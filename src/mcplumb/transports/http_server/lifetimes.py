"""What an application keeps open between requests: from its start to its end, or only from the first request on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

__all__ = ["Lifetime"]


class Lifetime:
    """One time of being open, in one event loop. A task of its own enters and leaves what is held,
    with the context variables of whoever makes it.
    """

    def __init__(self, held: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        #: Where it is.
        self.loop = asyncio.get_running_loop()
        #: Whether it is over, or never began.
        self.is_over = False
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._released: asyncio.Future[None] = self.loop.create_future()
        self._task = self.loop.create_task(self._hold(held))

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and is not over."""
        return self._opened.done() and not self.is_over

    async def opened(self) -> None:
        """Wait until it has begun. What went wrong is raised here. Cancelling this harms nothing."""
        await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Leave what is held. May be called again. Cancelling this harms nothing."""
        if not self._released.done():
            self._released.set_result(None)
        await asyncio.shield(self._task)

    async def _hold(self, held: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        try:
            async with held():
                self._opened.set_result(None)
                await self._released
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # whoever waited may have left
        finally:
            self.is_over = True

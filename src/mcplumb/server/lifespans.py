"""The server's own resources, such as a pool of connections: opened before the first request, closed after the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

__all__ = ["Lifespan", "Lifespans"]

#: Seconds that a lifespan has to end once it is cancelled.
_LAST_WAIT = 1.0

_logger = logging.getLogger("mcplumb.server")

#: Makes a context manager; what that gives is ``ctx.lifespan``.
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class Lifespans:
    """Runs a lifespan while anyone needs it, in a task of its own.

    Whoever comes first starts it and whoever leaves last ends it, but these may be different tasks, and a context
    manager must be left by the task that entered it.
    """

    def __init__(self, lifespan: Lifespan | None) -> None:
        self._lifespan = lifespan
        #: Whether there is anything to run.
        self.are_needed = lifespan is not None
        self._users = 0
        #: The task of a lifespan that is about to end.
        self._ending: asyncio.Task[None] | None = None
        #: The task, what it gives, and how to end it; None while nobody needs it.
        self._running: tuple[asyncio.Task[None], asyncio.Future[Any], asyncio.Event] | None = None

    @asynccontextmanager
    async def running(self, given_up: asyncio.Future[Any], *, within: float = 30.0) -> AsyncIterator[Any]:
        """Gives the lifespan's value; raises what it raises, on the way in and on the way out.

        If ``given_up`` is done before there is a value, that is None, and the lifespan is cancelled if nobody else
        waits for it. So it is when its end takes longer than ``within`` seconds.
        """
        if self._lifespan is None:
            yield None
            return
        if self._ending is not None:
            # The next one may need what this one has not let go yet.
            both = (self._ending, given_up)
            await asyncio.wait(both, timeout=within + _LAST_WAIT, return_when=asyncio.FIRST_COMPLETED)
            if given_up.done():
                yield None
                return
        if self._running is None:
            opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            unused = asyncio.Event()
            self._running = asyncio.create_task(self._run(self._lifespan, opened, unused)), opened, unused
        task, opened, unused = self._running
        self._users += 1
        try:
            if not opened.done():
                await asyncio.wait((opened, given_up), return_when=asyncio.FIRST_COMPLETED)
            yield opened.result() if opened.done() else None
        finally:
            self._users -= 1
            if not self._users:
                self._running, self._ending = None, task
                unused.set()
                if opened.done():
                    await asyncio.wait((task,), timeout=within)
                if not task.done():
                    task.cancel()
                    await asyncio.wait((task,), timeout=_LAST_WAIT)
                self._ending = None
                if not task.done():
                    _logger.warning("The lifespan of the server does not end, and is left behind.")
                elif not task.cancelled():
                    task.result()

    async def _run(self, lifespan: Lifespan, opened: asyncio.Future[Any], unused: asyncio.Event) -> None:
        try:
            async with lifespan() as value:
                opened.set_result(value)
                await unused.wait()
        except asyncio.CancelledError:
            opened.cancel()
            raise
        except BaseException as error:
            if opened.done():
                raise
            # Whoever waits for it gets this, so it is not raised here.
            opened.set_exception(error)

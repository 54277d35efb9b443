"""How and when a session ends: why, until when its work may take, and how long the client has for the last answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal, TypeAlias

from mcplumb.transports.begun import Begun
from mcplumb.transports.connection import Connection

__all__ = ["LAST_WAIT", "Ending", "Why"]

#: The client's input ended, the client cannot be reached any more, or the server was stopped.
Why: TypeAlias = Literal["ended", "broken", "stopped"]

#: Seconds that stopped work may take to notice, and the client to read the last answers, at the least.
LAST_WAIT = 0.5

_logger = logging.getLogger("mcplumb.server")


class Ending:
    """The end of one session. Its deadline may come nearer, and never goes away."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Why the session ends; done as soon as that is known.
        self.why: asyncio.Future[Why] = loop.create_future()
        #: Done when nothing is left to do, or the time is over.
        self.finished: asyncio.Future[None] = loop.create_future()
        self._deadline = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._closing: asyncio.Timeout | None = None

    def begin(self, why: Why) -> None:
        """The session is to end. The first reason counts."""
        if not self.why.done():
            self.why.set_result(why)

    def bound(self, within: float) -> None:
        """Everything is to have ended in so many seconds, the client's reading included."""
        self._deadline = min(self._deadline, self._loop.time() + within)

    def give_up_after(self, within: float) -> None:
        """What is not finished in so many seconds will not be."""
        self.bound(within)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self.finish)
        if self._closing is not None and not self._closing.expired():
            self._closing.reschedule(self._last_moment())

    def go_on_within(self, seconds: float) -> None:
        """The client sends no more, but not all that it sent has been read: something has to happen in this time.

        To be called again whenever something has, and ended by ``go_on_within(inf)``.
        """
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds == float("inf") else self._loop.call_later(seconds, self.begin, "ended")

    def finish(self) -> None:
        """Nothing is left to do."""
        if not self.finished.done():
            self.finished.set_result(None)

    async def close(self, connection: Connection) -> None:
        """Close the connection, with as much time for the client to read as there is."""
        closing = Begun(connection.close())
        if closing.is_done:
            return
        try:
            async with asyncio.timeout_at(self._last_moment()) as self._closing:
                await closing
        except TimeoutError:
            _logger.warning("The client did not read the last answers in time.")
        finally:
            self._closing = None

    def cancel(self) -> None:
        """The deadline matters no more."""
        self.go_on_within(float("inf"))
        if self._timer is not None:
            self._timer.cancel()

    def _last_moment(self) -> float:
        return max(self._deadline, self._loop.time() + LAST_WAIT)

"""What a client hears of when it listens."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Protocol, Self

from mcplumb.errors import McplumbError, UsageError
from mcplumb.protocol.listening import Change, Missed
from mcplumb.types.subscriptions import SubscriptionFilter

__all__ = ["Changes", "Source"]

#: Changes that wait for their consumer. It has to look at everything anew after so many anyway.
_MAX_WAITING = 1000


class Source(Protocol):
    """Where changes come from: the way that one era has for them."""

    async def open(self, changes: Changes) -> None:
        """Begin to bring changes, and say with ``granted`` what is honoured."""

    async def close(self, changes: Changes) -> None:
        """Bring no more. Raises nothing, and may be called again."""

    def reopen(self, changes: Changes, cause: McplumbError) -> None:
        """Begin again, because what brought them has broken off; or end them, if that is not wanted."""


class Changes:
    """An async context manager, and within it an async iterator over `Change` and `Missed`.

    It ends when the server ends the subscription, and raises when the server is gone for good. When the server is
    started again, so is the subscription: a `Missed` then stands for what may have changed meanwhile. A consumer that
    is too slow also finds a `Missed`, in the place of what it did not take in time.
    """

    def __init__(self, source: Source, wanted: SubscriptionFilter, timeout: float | None) -> None:
        self.wanted = wanted
        #: Seconds that the server has for each of its answers.
        self.timeout = timeout
        #: What the server agreed to tell, which may be less than what is wanted; None until it has.
        self.honoured: SubscriptionFilter | None = None
        #: How many changes the consumer was too slow for.
        self.dropped = 0
        #: Why nothing comes any more, if something went wrong.
        self.error: McplumbError | None = None
        self._source = source
        self._waiting: deque[Change | Missed] = deque()
        self._news = asyncio.Event()
        #: Whether nothing more comes.
        self.has_ended = False
        self._is_used = False
        self._is_lost = False

    async def __aenter__(self) -> Self:
        if self._is_used:
            raise UsageError("These changes were listened to already: call listen again.")
        self._is_used = True
        await self._source.open(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        await self._source.close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change | Missed:
        if not self._is_used:
            raise UsageError("Enter the changes first: async with client.listen(...) as changes.")
        # Cancelled here, nothing is lost: what came is taken only after the last wait.
        while not self._waiting:
            if self.error is not None:
                raise self.error
            if self.has_ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    def lose(self) -> None:
        """The connection is gone; there may be another."""
        self._is_lost = True

    def cut(self, cause: McplumbError) -> None:
        """What brought the changes has broken off, although the connection goes on."""
        if not self.has_ended:
            self.lose()
            self._source.reopen(self, cause)

    def granted(self, honoured: SubscriptionFilter) -> None:
        """The server agreed to tell so much, for the first time or after the subscription had been lost."""
        self.honoured = honoured
        if self._is_lost:
            self._is_lost = False
            self.push(Missed())

    def push(self, change: Change | Missed) -> None:
        """Something changed."""
        if self.has_ended:
            return
        if len(self._waiting) >= _MAX_WAITING:
            self.dropped += len(self._waiting)
            self._waiting.clear()
            change = Missed()
        self._waiting.append(change)
        self._news.set()

    def end(self, error: McplumbError | None = None) -> None:
        """Nothing will come any more, because of the error if there is one. The first end counts."""
        if not self.has_ended:
            self.has_ended = True
            self.error = error
            self._news.set()

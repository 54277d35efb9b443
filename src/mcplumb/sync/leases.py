"""Who uses the engine: it starts with the first connection of the process, and ends with the last one, or at exit."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty
from typing import Any, TypeVar

from mcplumb.errors import Closed, UsageError
from mcplumb.sync.engine import Engine, Errand, start_engine

__all__ = ["Lease"]

R = TypeVar("R")


class Lease:
    """The use of the engine for one connection, from before it is opened until it is closed.

    ``close_connection`` does the latter, in the loop and in at most ``patience`` seconds.
    """

    def __init__(self, close_connection: Callable[[], Coroutine[Any, Any, object]], patience: float) -> None:
        self.close_connection = close_connection
        self.patience = patience
        #: Set by ``begin``, and kept: what the connection still does, it does there.
        self.engine: Engine | None = None
        self._is_given_back = False

    def begin(self) -> None:
        """Take the engine, which is started if need be. Once."""
        _landlord.let(self)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to close: not yet, not any more, or not in this fork of its process."""
        return self.engine is None or self._is_given_back or self.engine.is_foreign

    def errand(self) -> Errand:
        """Something to do in the loop: ``Closed`` after the end, ``UsageError`` if this thread cannot wait for it."""
        if self.engine is None or self._is_given_back:
            raise Closed("The client was closed.")
        return self.engine.errand()

    def look(self, read: Callable[[], R]) -> R:
        """What ``read`` gives: in the loop, where nothing changes meanwhile, or here if the loop is not at work."""
        try:
            return self.errand().run(_called(read))
        except (Closed, UsageError):
            return read()

    async def have_done(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Called in the loop: have another thread call this function; returns what it does."""
        if self.engine is None:
            raise Closed("The client was not opened.")
        return await self.engine.have_done(function, *arguments)

    def close(self) -> None:
        """Close the connection, and give the engine back. From any thread, as often as you like."""
        if self.is_over:
            return
        errand = self.errand()
        try:
            errand.run(self.close_connection())
        except Closed:
            pass  # somebody else was faster
        finally:
            self.end()

    def end(self) -> None:
        """Give the engine back. Without any other user it ends, and with it all that it does."""
        self._is_given_back = True
        _landlord.take_back(self)


class _Landlord:
    """Has the one engine of this process, while there are users."""

    def __init__(self) -> None:
        # Reentrant, because a signal's handler may come in between, and close a client.
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._users: set[Lease] = set()
        self._inherited: list[Engine | None] = []

    def let(self, lease: Lease) -> None:
        with self._lock:
            if lease.engine is not None:
                raise UsageError("This was connected already: call connect again.")
            if self._engine is None:
                self._engine = start_engine()
            self._users.add(lease)
            lease.engine = self._engine

    def take_back(self, lease: Lease) -> None:
        with self._lock:
            if lease not in self._users:
                return
            self._users.discard(lease)
            engine = self._engine
            if engine is None or self._users:
                return
            self._engine = None
        engine.end()

    def close_all(self) -> None:
        """The interpreter exits: close what was left open, so that the servers can leave in order."""
        with self._lock:
            engine, users = self._engine, list(self._users)
        if engine is None:
            return
        try:
            with suppress(Closed, Empty):
                engine.errand().run(_close_each(users), within=max(lease.patience for lease in users))
        finally:
            for lease in users:
                lease.end()

    def forget(self) -> None:
        """This process is a fork: the engine's thread is not here, and its descriptors are also those of another."""
        # Kept, because a loop that is thrown away closes itself, and for the other process as well.
        self._inherited.append(self._engine)
        self._lock = threading.RLock()
        self._engine = None
        self._users = set()


async def _called(function: Callable[[], R]) -> R:
    return function()


async def _close_each(leases: list[Lease]) -> None:
    await asyncio.gather(*(lease.close_connection() for lease in leases), return_exceptions=True)


_landlord = _Landlord()
atexit.register(_landlord.close_all)
os.register_at_fork(after_in_child=_landlord.forget)

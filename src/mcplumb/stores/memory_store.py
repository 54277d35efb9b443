"""`MemoryStore`: a shared store for the applications of one process, and the model of all others."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from mcplumb.stores.shared_store import Entry, LogFull, Record

__all__ = ["MemoryStore"]


class _Log:
    __slots__ = ("entries", "last")

    def __init__(self, last: int) -> None:
        self.entries: deque[Entry] = deque()
        self.last = last


class MemoryStore:
    """Keeps everything in this process, in one event loop. See `SharedStore` for the methods."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._logs: dict[str, _Log] = {}
        #: When each record or log expires.
        self._ends: dict[str, float] = {}
        self._changed = asyncio.Condition()

    async def get(self, key: str) -> Record | None:
        """See `SharedStore`."""
        self._expire(key)
        return self._records.get(key)

    async def put(self, key: str, value: bytes, *, version: int, ttl: float) -> int | None:
        """See `SharedStore`."""
        self._expire(key)
        known = self._records.get(key)
        if (0 if known is None else known.version) != version:
            return None
        self._records[key] = Record(version + 1, value)
        self._live(key, ttl)
        return version + 1

    async def touch(self, key: str, *, ttl: float) -> int | None:
        """See `SharedStore`."""
        self._expire(key)
        known = self._records.get(key)
        if known is None:
            return None
        self._live(key, ttl)
        return known.version

    async def remove(self, key: str) -> bool:
        """See `SharedStore`."""
        self._expire(key)
        self._ends.pop(key, None)
        found = self._records.pop(key, None), self._logs.pop(key, None)
        return found != (None, None)

    async def open(self, key: str, *, ttl: float) -> int:
        """See `SharedStore`."""
        self._expire(key)
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = _Log(_now())
        self._live(key, ttl)
        return log.last

    async def append(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float,
        most: int,
        at: int | None = None,
        only_open: bool = False,
        refuse_full: bool = False,
    ) -> int | None:
        """See `SharedStore`."""
        self._expire(key)
        if only_open and key not in self._logs:
            return None
        log = self._logs.get(key)
        if log is None:
            log = self._logs[key] = _Log(_now() if at is None else 0)
        if not only_open:
            self._live(key, ttl)
        if at is not None and at <= log.last:
            return None
        if refuse_full and len(log.entries) >= most:
            raise LogFull
        log.last = log.last + 1 if at is None else at
        log.entries.append(Entry(log.last, value))
        while len(log.entries) > most:
            log.entries.popleft()
        async with self._changed:
            self._changed.notify_all()
        return log.last

    async def read(self, key: str, *, after: int, limit: int = 1000) -> list[Entry]:
        """See `SharedStore`."""
        self._expire(key)
        log = self._logs.get(key)
        return [] if log is None else [entry for entry in log.entries if entry.position > after][:limit]

    async def wait(self, key: str, *, after: int, within: float) -> list[Entry]:
        """See `SharedStore`."""
        try:
            async with asyncio.timeout(within), self._changed:
                while not (found := await self.read(key, after=after)):
                    await self._changed.wait()
                return found
        except TimeoutError:
            return []

    async def trim(self, key: str, *, upto: int) -> None:
        """See `SharedStore`."""
        log = self._logs.get(key)
        while log is not None and log.entries and log.entries[0].position <= upto:
            log.entries.popleft()

    async def is_open(self, key: str) -> bool:
        """See `SharedStore`."""
        self._expire(key)
        return key in self._logs

    async def close(self) -> None:
        """Do nothing: the data belongs to all users of the store."""

    def _live(self, key: str, ttl: float) -> None:
        self._ends[key] = time.monotonic() + ttl
        if len(self._ends) % 1000 == 0:
            for each in list(self._ends):
                self._expire(each)

    def _expire(self, key: str) -> None:
        if self._ends.get(key, float("inf")) <= time.monotonic():
            for part in (self._ends, self._records, self._logs):
                part.pop(key, None)


def _now() -> int:
    """Return where a new log begins: beyond all positions of an earlier one with its key."""
    return time.time_ns() // 1000

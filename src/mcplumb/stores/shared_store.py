"""`SharedStore`: the store that the replicas of a server share. It has records, and logs to exchange messages.

Keys have the form ``group/name``. A store may spread groups over machines; what belongs to one group stays together.
Everything has a time to live, in seconds, which begins anew with each write, ``touch`` and ``open``.

All methods but ``close`` raise `StoreUnavailable` within a bound if the store cannot be reached. A write may have
happened all the same. All are safe to cancel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from mcplumb.errors import UsageError

if TYPE_CHECKING:
    from mcplumb.stores.memory_store import MemoryStore
    from mcplumb.stores.redis_store import RedisStore

__all__ = ["Entry", "LogFull", "LogStore", "Record", "RecordStore", "SharedStore", "open_store"]

_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel", "unix")


class Record(msgspec.Struct, frozen=True):
    """A stored value. Its version is 1 at first, and grows by 1 with each write."""

    version: int
    value: bytes


class Entry(msgspec.Struct, frozen=True):
    """An entry of a log. Its position is one more than that of the entry before."""

    position: int
    value: bytes


class LogFull(Exception):
    """The log has reached its limit, and refuses entries beyond it."""


class RecordStore(Protocol):
    """The records of a store: each is a value with a version, and is replaced as a whole."""

    async def get(self, key: str) -> Record | None:
        """Return a record; None if there is none, or it has expired."""

    async def put(self, key: str, value: bytes, *, version: int, ttl: float) -> int | None:
        """Write a record if its version is this one, or 0 for a new record; return its new version, else None."""

    async def touch(self, key: str, *, ttl: float) -> int | None:
        """Extend the life of a record, and return its version; None if there is no such record."""

    async def remove(self, key: str) -> bool:
        """Remove a record or a log; return whether there was one."""


class LogStore(Protocol):
    """The logs of a store: many clients append and read, in one order. The oldest entries are dropped at a limit.

    A log that is created begins beyond all positions that an earlier one with its key had, for example at the time in
    microseconds. A reader that waits on a log that has expired or was lost therefore gets the entries of its
    successor, and sees the gap.
    """

    async def open(self, key: str, *, ttl: float) -> int:
        """Create the log if there is none, extend its life, and return the position that the next entry follows."""

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
        """Append an entry, and return its position. The log keeps the newest ``most`` entries.

        With ``at``, the entry gets this position; None is returned if the log has that or a later one. With
        ``only_open``, None is returned if the log does not exist, and its life is not extended. With ``refuse_full``,
        `LogFull` is raised instead of dropping an entry.
        """

    async def read(self, key: str, *, after: int, limit: int = 1000) -> list[Entry]:
        """Return the oldest entries after a position."""

    async def wait(self, key: str, *, after: int, within: float) -> list[Entry]:
        """Return the oldest entries after a position once there are any; an empty list after this many seconds."""

    async def trim(self, key: str, *, upto: int) -> None:
        """Drop the entries up to a position."""

    async def is_open(self, key: str) -> bool:
        """Return whether a log exists."""


class SharedStore(RecordStore, LogStore, Protocol):
    """Records and logs. Belongs to one event loop."""

    async def close(self) -> None:
        """Disconnect. Does not raise."""


def open_store(address: str | SharedStore) -> SharedStore | RedisStore | MemoryStore:
    """Return the store at an address, not connected yet; raise `UsageError` if the address is invalid."""
    if not isinstance(address, str):
        return address
    if address.partition("://")[0] in _SCHEMES:
        from mcplumb.stores.redis_store import RedisStore

        return RedisStore(address)
    # The address may have a password in it, so it is not quoted.
    raise UsageError(
        "The shared store needs an address such as redis://host:6379/0, rediss://…, redis+cluster://… or "
        "redis+sentinel://…; this one begins differently."
    )

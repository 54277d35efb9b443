"""The checks that any shared store must pass: records, logs, races and lifetimes.

Each check is an async function of two clients of the same store, which is empty at first; the first line of its
docstring is the rule that a failure quotes. `check_store` runs them all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import msgspec

from mcplumb.stores.shared_store import Entry, LogFull, SharedStore

__all__ = ["MakeStores", "StoreCheck", "check_store", "store_checks"]

#: Opens two clients of one store. Leaving the block closes them. The checks use keys of their own.
MakeStores: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[SharedStore, SharedStore]]]

#: Seconds that are long enough for everything to live until the end of a check, and so few that it can be awaited.
_LONG, _SHORT = 60.0, 0.05


class StoreCheck(msgspec.Struct, frozen=True):
    """One requirement on a store: await it with a `MakeStores` in a running event loop."""

    name: str
    #: The requirement, in a sentence.
    rule: str
    body: Callable[[SharedStore, SharedStore, str], Awaitable[None]]

    def __str__(self) -> str:
        return self.name

    async def __call__(self, make_stores: MakeStores) -> None:
        """Run the check; raise `AssertionError` with a sentence if the store violates the requirement."""
        async with make_stores() as (first, second):
            try:
                await self.body(first, second, f"check-{os.urandom(8).hex()}/it")
            except AssertionError as error:
                raise AssertionError(f"{self.rule} {error}") from error


def _same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r:.300} instead of {wanted!r:.300}.")


# --- Records ---


async def _records_are_kept(first: SharedStore, second: SharedStore, key: str) -> None:
    """A record that one client writes is read by the other, byte for byte, with its version."""
    value = bytes(range(256)) * 100
    _same(await second.get(key), None, "A record that was never written")
    _same(await first.put(key, value, version=0, ttl=_LONG), 1, "The version of a new record")
    record = await second.get(key)
    _same(None if record is None else (record.version, record.value), (1, value), "The record")
    _same(await second.put(key, b"", version=1, ttl=_LONG), 2, "The version of the replaced record")
    record = await first.get(key)
    _same(None if record is None else (record.version, record.value), (2, b""), "The replaced record")


async def _writes_need_the_version(first: SharedStore, second: SharedStore, key: str) -> None:
    """A write with another version than the current one changes nothing."""
    _same(await first.put(key, b"x", version=3, ttl=_LONG), None, "A write of version 3 without a record")
    await first.put(key, b"a", version=0, ttl=_LONG)
    _same(await second.put(key, b"b", version=0, ttl=_LONG), None, "A second creation")
    record = await second.get(key)
    _same(None if record is None else record.value, b"a", "The record")


async def _one_writer_wins(first: SharedStore, second: SharedStore, key: str) -> None:
    """Of many writes at once with the same version, exactly one succeeds."""
    stores = (first, second) * 25
    won = await asyncio.gather(*(store.put(key, b"%d" % n, version=0, ttl=_LONG) for n, store in enumerate(stores)))
    _same([each for each in won if each is not None], [1], "The writes that succeeded")
    record = await first.get(key)
    _same(None if record is None else record.value, b"%d" % won.index(1), "The record")


async def _records_expire(first: SharedStore, second: SharedStore, key: str) -> None:
    """A record disappears after its time to live, which begins anew with each touch."""
    await first.put(key, b"a", version=0, ttl=_SHORT)
    await first.put(f"{key}2", b"b", version=0, ttl=_LONG)
    await _until_gone(lambda: second.get(key))
    _same(await first.touch(key, ttl=_LONG), None, "Touching a record that has expired")
    _same(await second.touch(f"{key}2", ttl=_SHORT), 1, "The version of the touched record")
    await _until_gone(lambda: first.get(f"{key}2"))


async def _records_can_be_removed(first: SharedStore, second: SharedStore, key: str) -> None:
    """A removed record is gone for all, and can be created again."""
    await first.put(key, b"a", version=0, ttl=_LONG)
    _same(await second.remove(key), True, "Removing a record")
    _same(await second.remove(key), False, "Removing it again")
    _same(await first.get(key), None, "The removed record")
    _same(await first.put(key, b"b", version=0, ttl=_LONG), 1, "Creating it again")


# --- Logs ---


async def _entries_have_one_order(first: SharedStore, second: SharedStore, key: str) -> None:
    """Entries that both append get positions without gaps, and both read the same."""
    stores = (first, second) * 50
    places = await asyncio.gather(*(s.append(key, b"%d" % n, ttl=_LONG, most=1000) for n, s in enumerate(stores)))
    start = min(place or 0 for place in places)
    _same(sorted(place or 0 for place in places), list(range(start, start + 100)), "The positions")
    one, other = await first.read(key, after=0), await second.read(key, after=0)
    _same(one, other, "What the clients read")
    _same({(e.position, e.value) for e in one}, {(p, b"%d" % n) for n, p in enumerate(places)}, "The entries")
    _same(await first.read(key, after=one[96].position), one[97:], "The entries after the 97th")
    _same(await first.read(key, after=one[9].position, limit=5), one[10:15], "Five entries after the tenth")


async def _appending_in_order(first: SharedStore, second: SharedStore, key: str) -> None:
    """Entries that one client appends without waiting keep their order."""
    await asyncio.gather(*(first.append(key, b"%d" % n, ttl=_LONG, most=1000) for n in range(300)))
    _same([e.value for e in await second.read(key, after=0)], [b"%d" % n for n in range(300)], "The entries")


async def _old_entries_are_dropped(first: SharedStore, second: SharedStore, key: str) -> None:
    """A log keeps its newest entries only, up to the limit; positions go on."""
    start = await first.open(key, ttl=_LONG)
    for number in range(10):
        await first.append(key, b"%d" % number, ttl=_LONG, most=4)
    left = [e.position - start for e in await second.read(key, after=0)]
    _same(left, [7, 8, 9, 10], "The positions that are left, from the beginning of the log")
    await second.trim(key, upto=start + 9)
    _same(await first.read(key, after=0), [Entry(start + 10, b"9")], "The entries after trimming")
    await second.trim(key, upto=start + 10)
    after = await first.append(key, b"x", ttl=_LONG, most=4)
    _same(after, start + 11, "The position after everything was trimmed")


async def _full_logs_refuse(first: SharedStore, second: SharedStore, key: str) -> None:
    """A log that refuses entries beyond its limit loses none."""
    start = await first.open(key, ttl=_LONG)
    for number in range(3):
        await first.append(key, b"%d" % number, ttl=_LONG, most=3, refuse_full=True)
    try:
        await second.append(key, b"x", ttl=_LONG, most=3, refuse_full=True)
    except LogFull:
        _same([e.value for e in await first.read(key, after=0)], [b"0", b"1", b"2"], "The entries")
    else:
        raise AssertionError("LogFull was not raised.")
    await first.trim(key, upto=start + 1)
    place = await second.append(key, b"3", ttl=_LONG, most=3, refuse_full=True)
    _same(place, start + 4, "The position when there is room")


async def _given_positions(first: SharedStore, second: SharedStore, key: str) -> None:
    """An entry with a given position is appended once, and only after all others."""
    _same(await first.append(key, b"a", at=5, ttl=_LONG, most=10), 5, "The position of the first entry")
    _same(await second.append(key, b"b", at=5, ttl=_LONG, most=10), None, "Appending at the same position")
    _same(await second.append(key, b"c", at=4, ttl=_LONG, most=10), None, "Appending at an earlier position")
    _same(await second.append(key, b"d", ttl=_LONG, most=10), 6, "The position after it")
    _same([e.value for e in await first.read(key, after=0)], [b"a", b"d"], "The entries")


async def _only_open_logs(first: SharedStore, second: SharedStore, key: str) -> None:
    """A log that must be open is not created by appending, and is open from ``open`` until it expires or is removed."""
    _same(await first.append(key, b"a", ttl=_LONG, most=10, only_open=True), None, "Appending to a log that is not")
    _same(await first.is_open(key), False, "Whether it exists")
    start = await first.open(key, ttl=_LONG)
    _same(await second.is_open(key), True, "Whether the opened log exists")
    _same(await second.append(key, b"a", ttl=_LONG, most=10, only_open=True), start + 1, "The first position")
    _same(await first.open(key, ttl=_SHORT), start + 1, "The position when it is opened again")
    await _until_gone(lambda: _true_or_none(second.is_open(key)))
    _same(await second.remove(key), False, "Removing a log that has expired")
    await first.open(key, ttl=_LONG)
    _same(await second.remove(key), True, "Removing a log")
    _same(await first.is_open(key), False, "Whether the removed log exists")


async def _new_logs_go_on(first: SharedStore, second: SharedStore, key: str) -> None:
    """A log that is created again begins beyond the positions of the one before: waiting readers get its entries."""
    last = 0
    for number in range(3):
        last = await first.append(key, b"%d" % number, ttl=_LONG, most=10) or 0
    _same(await second.remove(key), True, "Removing the log")
    waiting = asyncio.ensure_future(second.wait(key, after=last, within=_LONG))
    await asyncio.sleep(0)
    place = await first.append(key, b"new", ttl=_LONG, most=10)
    _same(await waiting, [Entry(place or 0, b"new")], "What arrived after the entries of the removed log")
    await first.remove(key)
    opened = await first.open(key, ttl=_LONG)
    _same(opened > (place or 0), True, "Whether an opened log begins beyond the removed one")
    _same(await first.append(key, b"x", ttl=_LONG, most=10), opened + 1, "The first position of the opened log")


async def _waiting(first: SharedStore, second: SharedStore, key: str) -> None:
    """A client that waits gets entries of another as soon as there are any, and an empty list if there are none."""
    _same(await first.wait(key, after=0, within=_SHORT), [], "Waiting in vain")
    start = await first.open(key, ttl=_LONG)
    waiting = asyncio.ensure_future(first.wait(key, after=start, within=_LONG))
    await asyncio.sleep(0)
    await second.append(key, b"a", ttl=_LONG, most=10)
    _same(await waiting, [Entry(start + 1, b"a")], "What arrived")
    await second.append(key, b"b", ttl=_LONG, most=10)
    _same(await first.wait(key, after=start + 1, within=_LONG), [Entry(start + 2, b"b")], "What was there already")


async def _waiting_holds_up_nothing(first: SharedStore, _: SharedStore, key: str) -> None:
    """While a client waits for one log, its other operations go on; a wait can be cancelled."""
    waits = [asyncio.ensure_future(first.wait(f"{key}{n}", after=0, within=_LONG)) for n in range(2)]
    await asyncio.sleep(0)
    async with asyncio.timeout(_LONG / 2):
        await first.put(key, b"a", version=0, ttl=_LONG)
        record = await first.get(key)
    _same(None if record is None else record.value, b"a", "The record")
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)
    _same(await first.touch(key, ttl=_LONG), 1, "The version after the waits were cancelled")


async def _cancelling_loses_nothing(first: SharedStore, second: SharedStore, key: str) -> None:
    """Cancelling an operation affects no other."""
    appends = [asyncio.ensure_future(first.append(key, b"%d" % n, ttl=_LONG, most=100)) for n in range(20)]
    await asyncio.sleep(0)
    for append in appends[::2]:
        append.cancel()
    await asyncio.wait(appends)
    values = {entry.value for entry in await second.read(key, after=0)}
    _same({b"%d" % n for n in range(1, 20, 2)} - values, set(), "The entries that are missing")


async def _until_gone(get: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(_LONG):
        while await get() is not None:  # noqa: ASYNC110 - it is the store that is watched
            await asyncio.sleep(_SHORT)


async def _true_or_none(found: Awaitable[bool]) -> bool | None:
    return await found or None


_CHECKS = (
    _records_are_kept,
    _writes_need_the_version,
    _one_writer_wins,
    _records_expire,
    _records_can_be_removed,
    _entries_have_one_order,
    _appending_in_order,
    _old_entries_are_dropped,
    _full_logs_refuse,
    _given_positions,
    _only_open_logs,
    _new_logs_go_on,
    _waiting,
    _waiting_holds_up_nothing,
    _cancelling_loses_nothing,
)


def store_checks() -> list[StoreCheck]:
    """Return all checks, to be run one by one, for example as parameters of a test."""
    return [StoreCheck(each.__name__[1:], (each.__doc__ or "").strip(), each) for each in _CHECKS]


async def check_store(make_stores: MakeStores) -> None:
    """Run all checks; raise `AssertionError` at the first that fails."""
    for check in store_checks():
        await check(make_stores)

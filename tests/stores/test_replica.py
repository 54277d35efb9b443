"""A replica among others: changes, messages, and the keys that all share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mcplumb.errors import StoreUnavailable
from mcplumb.stores import memory_store
from mcplumb.stores import replica as module
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.stores.replica import EVERYTHING, Replica
from tests.kit.loop import PATIENCE, turns


class Unsteady(MemoryStore):
    """A store that is away at times; what was written then may have been written all the same."""

    is_away = False
    loses_answers = False
    refuses = b""

    async def append(self, key: str, value: bytes, **options: Any) -> int | None:
        if self.is_away:
            raise StoreUnavailable("It is away.")
        if self.refuses and self.refuses in value:
            self.refuses = b""
            raise StoreUnavailable("It is full.")
        position = await super().append(key, value, **options)
        if self.loses_answers:
            self.loses_answers = False
            raise StoreUnavailable("Its answer was lost.")
        return position

    async def wait(self, key: str, *, after: int, within: float) -> Any:
        if self.is_away:
            raise StoreUnavailable("It is away.")
        return await super().wait(key, after=after, within=min(within, 0.1))

    async def open(self, key: str, *, ttl: float) -> int:
        if self.is_away:
            raise StoreUnavailable("It is away.")
        return await super().open(key, ttl=ttl)


class Member:
    """A replica, and what it has heard."""

    def __init__(self, store: MemoryStore) -> None:
        self.heard: list[bytes] = []
        self.missed = 0
        self.keys: list[list[bytes]] = []
        self.replica = Replica(store, heard=self._heard, missed=self._missed, new_keys=self.keys.append)

    def _heard(self, _: int, body: bytes) -> None:
        self.heard.append(body)

    def _missed(self) -> None:
        self.missed += 1


@asynccontextmanager
async def members(store: MemoryStore, count: int = 2) -> AsyncIterator[list[Member]]:
    found = [Member(store) for _ in range(count)]
    for each in found:
        await each.replica.open()
    try:
        yield found
    finally:
        for each in found:
            await each.replica.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.01)


@pytest.mark.req("SCL-2")
async def test_changes_reach_all_once_and_in_order() -> None:
    async with members(MemoryStore(), 3) as all_of_them:
        for number in range(50):
            all_of_them[number % 3].replica.announce(b"%d" % number)
            await until(lambda wanted=number + 1: all(len(each.heard) == wanted for each in all_of_them))  # type: ignore[misc]
        assert all(each.heard == [b"%d" % number for number in range(50)] for each in all_of_them)
        end = all_of_them[0].replica.changes_at
        known = await all_of_them[0].replica.changes_after(end - 2)
        assert known == [(end - 1, b"48"), (end, b"49")]
        assert await all_of_them[0].replica.changes_after(end) == []


@pytest.mark.req("SCL-2", "SCL-4")
async def test_a_change_whose_answer_was_lost_is_heard_once() -> None:
    store = Unsteady()
    async with members(store) as (one, other):
        store.loses_answers = True
        one.replica.announce(b"a")
        await until(lambda: not store.loses_answers)
        one.replica.announce(b"b")
        await until(lambda: b"b" in other.heard and b"b" in one.heard)
        assert one.heard == other.heard == [b"a", b"b"]
        assert (one.missed, other.missed) == (0, 0)


@pytest.mark.req("SCL-4")
async def test_changes_wait_for_the_store_and_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING", 3)
    store = Unsteady()
    async with members(store) as (one, other):
        store.is_away = True
        await until(lambda: not one.replica.is_reachable)
        with pytest.raises(StoreUnavailable, match=r"It is away\."):  # with the reason of the store
            await one.replica.check_ready()
        one.replica.announce(b"first")
        await turns()  # it is being sent
        for body in (b"a", b"b", b"a", b"c"):
            one.replica.announce(body)
        store.is_away = False
        await until(lambda: len(other.heard) == 4)
        assert other.heard == [b"first", b"a", b"b", b"c"]
        store.is_away = True
        one.replica.announce(b"again")
        await turns()
        for number in range(5):
            one.replica.announce(b"%d" % number)
        store.is_away = False
        await until(lambda: other.missed == 1 and one.missed == 1)
        await one.replica.check_ready()


@pytest.mark.req("SCL-4")
async def test_lost_changes_are_noticed() -> None:
    store = Unsteady()
    async with members(store) as (one, other):
        one.replica.announce(b"a")
        await until(lambda: other.heard == [b"a"])
        store.is_away = True
        await until(lambda: not other.replica.is_reachable)
        await store.remove("changes/log")  # Redis has lost it
        store.is_away = False
        await until(lambda: other.missed == 1)
        one.replica.announce(b"b")
        await until(lambda: other.heard == [b"a", b"b"])


@pytest.mark.req("SCL-2", "SCL-4")
async def test_a_change_that_is_refused_between_others_is_reported_as_missed() -> None:
    store = Unsteady()
    async with members(store) as (one, other):
        store.refuses = b"change-b"
        for body in (b"change-a", b"change-b", b"change-c"):
            one.replica.announce(body)
        await until(lambda: other.missed == 1)
        assert other.heard == [b"change-a", b"change-c"]


@pytest.mark.req("SCL-2")
async def test_changes_after_the_log_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quiet log is kept alive; what is announced in a new one is heard, however long the old one was."""
    store = Unsteady()
    async with members(store) as (one, other):
        for number in range(5):
            one.replica.announce(b"%d" % number)
        await until(lambda: len(other.heard) == 5)
        # An entry lives as long as its log, and both replicas extend the life of the log while nothing happens.
        monkeypatch.setattr(module, "_CHANGES_TTL", 600.0)
        await until(lambda: store._ends["changes/log"] < time.monotonic() + 700)
        extended = store._ends["changes/log"]
        await until(lambda: store._ends["changes/log"] > extended)
        assert (one.missed, other.missed) == (0, 0)
        # Somebody empties Redis, which stays connected.
        await store.remove("changes/log")
        one.replica.announce(b"after")
        await until(lambda: one.heard[-1:] == other.heard[-1:] == [b"after"])
        assert one.missed == other.missed == 1


@pytest.mark.req("SCL-2")
async def test_a_log_that_is_lost_is_noticed_without_another_change() -> None:
    store = Unsteady()
    async with members(store) as (one, other):
        one.replica.announce(b"a")
        await until(lambda: other.heard == one.heard == [b"a"])
        await store.remove("changes/log")
        await until(lambda: one.missed == other.missed == 1)


async def test_announcing_in_another_thread_and_when_closed() -> None:
    async with members(MemoryStore()) as (one, other):
        thread = threading.Thread(target=one.replica.announce, args=(b"a",))
        thread.start()
        await until(lambda: other.heard == [b"a"])
        thread.join()
        one.replica.announce(EVERYTHING)
        await until(lambda: other.missed == 1)
        assert await other.replica.changes_after(0) is None
    one.replica.announce(b"nobody hears this")
    assert not one.replica.is_open


async def test_messages_for_one() -> None:
    async with members(MemoryStore(), 3) as (one, other, third):
        got: list[tuple[int, bytes]] = []
        other.replica.handle("hello", lambda sender, body: got.append((sender, body)))
        third.replica.handle("hello", lambda sender, body: got.append((sender, b"wrong")))
        for number in range(20):
            assert await one.replica.tell(other.replica.number, "hello", b"%d" % number)
        assert await other.replica.tell(other.replica.number, "hello", b"to itself")
        assert await one.replica.tell(other.replica.number, "unknown", b"")
        await until(lambda: len(got) == 21)
        assert [body for sender, body in got if sender == one.replica.number] == [b"%d" % n for n in range(20)]
        assert await one.replica.is_alive(other.replica.number)
        assert not await one.replica.tell(12345, "hello", b"")
        assert not await one.replica.is_alive(12345)


@pytest.mark.req("SCL-3")
async def test_a_replica_is_gone_when_it_was_missed_for_long_by_whomever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with members(MemoryStore()) as (one, other):
        assert not await one.replica.is_gone(other.replica.number)
        monkeypatch.setattr(module, "_BACK_WITHIN", 3600.0)
        assert not await one.replica.is_gone(12345)
        assert not await other.replica.is_gone(12345)
        monkeypatch.setattr(module, "_BACK_WITHIN", 0.0)
        assert await other.replica.is_gone(12345)  # the first question of the other may have been its last
        assert not await other.replica.is_gone(one.replica.number)


@pytest.mark.req("SCL-3", "SCL-4")
async def test_a_replica_that_comes_back_is_not_missed_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BEAT", 0.02)
    monkeypatch.setattr(module, "_GONE_AFTER", 0.2)
    store = Unsteady()
    async with members(store) as (one, other):
        number = other.replica.number
        store.is_away = True
        await until(lambda: store._ends[f"replica-{number}/inbox"] < time.monotonic())
        assert not await one.replica.is_gone(number)
        assert f"replica-{number}/missed" in store._records
        store.is_away = False
        await until(lambda: f"replica-{number}/missed" not in store._records)
        assert await one.replica.is_alive(number)


class WithoutKeys(MemoryStore):
    """A store that is slow to say which keys there are."""

    def __init__(self) -> None:
        super().__init__()
        self.has_keys = asyncio.Event()

    async def get(self, key: str) -> Any:
        if key == "keys/state":
            await self.has_keys.wait()
        return await super().get(key)


@pytest.mark.req("SCL-1")
async def test_a_replica_takes_no_requests_before_it_has_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OPEN_WITHIN", 3600.0)
    store = WithoutKeys()
    member = Member(store)
    opening = asyncio.create_task(member.replica.open())
    await until(lambda: member.replica.changes_at > 0)
    await turns()
    assert not opening.done()
    store.has_keys.set()
    await opening
    assert member.keys
    assert await member.replica.is_alive(member.replica.number)
    assert await store.is_open(f"replica-{member.replica.number}/inbox")
    await member.replica.close()


@pytest.mark.req("SCL-4", "SCL-5")
async def test_a_replica_that_opens_without_the_keys_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is too slow when it starts: calls that ask for input would fail there."""
    monkeypatch.setattr(module, "_OPEN_WITHIN", 0.01)
    store = WithoutKeys()
    async with members(store, 1) as (one,):
        await until(lambda: one.replica.is_reachable and one.replica.changes_at > 0)
        with pytest.raises(StoreUnavailable, match="not been reached yet"):
            await one.replica.check_ready()
        store.has_keys.set()
        await until(lambda: bool(one.keys))
        await turns()
        await one.replica.check_ready()


async def test_an_inbox_that_is_lost_while_the_clock_of_the_store_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a failover to another Redis: a new inbox begins below the last position that was read."""
    monkeypatch.setattr(module, "_BEAT", 0.02)
    store = MemoryStore()
    async with members(store) as (one, other):
        got: list[bytes] = []
        other.replica.handle("hello", lambda _, body: got.append(body))
        assert await one.replica.tell(other.replica.number, "hello", b"before")
        await until(lambda: got == [b"before"])
        now = memory_store._now()
        monkeypatch.setattr(memory_store, "_now", lambda: now - 3_600_000_000)
        await store.remove(f"replica-{other.replica.number}/inbox")
        await until(lambda: f"replica-{other.replica.number}/inbox" in store._logs)
        assert await one.replica.tell(other.replica.number, "hello", b"after")
        await until(lambda: got == [b"before", b"after"])


class Restarting(Unsteady):
    """A store whose readers notice that it has restarted."""

    is_silent = False

    def __init__(self) -> None:
        super().__init__()
        #: The logs whose readers have noticed it.
        self.noticed: set[str] = set()

    async def wait(self, key: str, *, after: int, within: float) -> Any:
        if self.is_silent:
            self.noticed.add(key)
            raise StoreUnavailable("It is away.")
        return await super().wait(key, after=after, within=within)


@pytest.mark.req("SCL-4")
async def test_messages_after_a_restart_in_which_the_store_has_lost_the_last_ones() -> None:
    """As Redis without ``appendfsync always``: the next messages get positions that have been read already."""
    store = Restarting()
    async with members(store) as (one, other):
        got: list[bytes] = []
        other.replica.handle("hello", lambda _, body: got.append(body))
        for body in (b"1", b"2", b"3"):
            assert await one.replica.tell(other.replica.number, "hello", body)
        await until(lambda: got == [b"1", b"2", b"3"])
        store.is_silent = True
        inbox = f"replica-{other.replica.number}/inbox"
        await until(lambda: inbox in store.noticed)
        store._logs[inbox].last -= 2
        for body in (b"4", b"5"):
            assert await one.replica.tell(other.replica.number, "hello", body)
        store.is_silent = False
        await until(lambda: len(got) > 4)
        assert got == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_replica_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_INBOX", 2)
    store = MemoryStore()
    async with members(store, 1) as (one,):
        await store.open("replica-7/inbox", ttl=60)
        assert await one.replica.tell(7, "hello", b"")
        assert await one.replica.tell(7, "hello", b"")
        with pytest.raises(StoreUnavailable, match="does not read"):
            await one.replica.tell(7, "hello", b"")


@pytest.mark.req("SCL-1")
async def test_all_have_the_same_keys_and_rotate_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READ_KEYS", 0.05)
    now = 1_800_000_000.0
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))
    store = MemoryStore()
    async with members(store) as (one, other):
        await until(lambda: bool(one.keys and other.keys))
        assert one.keys[-1] == other.keys[-1]
        (first,) = one.keys[-1]
        now += module._SEAL_FOR
        await until(lambda: len(one.keys[-1]) == len(other.keys[-1]) == 2)
        # A new key opens before it seals, so that all have read it by then.
        (second,) = {*one.keys[-1]} - {first}
        assert one.keys[-1] == other.keys[-1] == [first, second]
        now += 3 * module._READ_KEYS
        # The old one still opens.
        await until(lambda: one.keys[-1] == other.keys[-1] == [second, first])


@pytest.mark.req("SCL-4")
async def test_keys_that_the_store_has_lost_still_open_what_they_have_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when Redis restarts without its data. A replica that starts just then has a key of its own."""
    monkeypatch.setattr(module, "_READ_KEYS", 0.05)
    store = MemoryStore()
    async with members(store) as (one, other):
        await until(lambda: bool(one.keys and other.keys))
        (first,) = one.keys[-1]
        await store.remove("keys/state")
        async with members(store, 1) as (new,):
            await until(lambda: len(new.keys) > 0 and first in new.keys[-1])
            await until(lambda: one.keys[-1] == other.keys[-1] == new.keys[-1])
        assert all(first in keys for member in (one, other) for keys in member.keys)


async def test_opened_twice_is_closed_twice() -> None:
    async with members(MemoryStore(), 1) as (one,):
        number = one.replica.number
        await one.replica.open()
        await one.replica.close()
        assert one.replica.is_open
        assert one.replica.number == number
        one.replica.check()


async def test_a_task_that_keeps_failing_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN", 0.001)
    monkeypatch.setattr(module, "_OPEN_WITHIN", 0.01)
    store = MemoryStore()
    await store.put("keys/state", b"of another program", version=0, ttl=60)
    async with members(store, 1) as (one,):
        await until(lambda: len(caplog.records) >= 4)
        failures = [each.args for each in caplog.records if each.name == "mcplumb.store"]
        assert failures[:4] == [(0.001,), (0.002,), (0.004,), (0.008,)]
        one.replica.announce(b"a")  # the rest goes on
        await until(lambda: one.heard == [b"a"])

"""`Replica`: one process among those that share a store.

It has a number, an inbox that other replicas write to, and follows the log of changes that all announce. It sends its
inbox a heartbeat: an inbox that does not exist any more belongs to a replica that is gone.

While the store is away, announcements wait, each once; when there are too many, "everything" is announced instead. What
was announced by others is read when the store is back. If that is not complete, ``missed`` is reported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec

from mcplumb.errors import StoreUnavailable
from mcplumb.stores.shared_store import Entry, LogFull, SharedStore, open_store

__all__ = ["EVERYTHING", "KEY_BITS", "InboxFull", "Replica"]

_logger = logging.getLogger("mcplumb.store")

#: A replica's number is in the upper bits of ids that it makes: together they fit in the integers of JavaScript.
_NUMBER_BITS = 21
KEY_BITS = 32
#: Seconds between two heartbeats, and until a replica without one counts as gone.
_BEAT, _GONE_AFTER = 3.0, 12.0
#: Messages that may wait in an inbox. A replica that reads takes a few milliseconds for all of them.
_MAX_INBOX = 10_000
#: Changes that the log keeps, for replicas that were away and clients that resume their streams, and for how long.
_MAX_CHANGES, _CHANGES_TTL = 10_000, 86_400.0
#: Different changes that wait for the store at once.
_MAX_WAITING = 10_000
#: Appended at once.
_AT_ONCE = 100
#: Senders whose last messages are remembered, to recognize what was sent twice.
_MAX_SENDERS = 1000
#: Seconds before another attempt to reach the store, and at most before a task that fails begins again.
_AGAIN, _LONGEST_PAUSE = 0.2, 60.0
#: Seconds of one blocking read.
_WAIT = 10.0
#: Seconds that opening waits for the store.
_OPEN_WITHIN = 3.0
#: How long a known answer to "is it alive?" counts, in seconds.
_ALIVE_FOR = 2.0
#: Seconds that a replica without an inbox has to come back, after an outage of the store in which its inbox expired:
#: more than the longest pause between two attempts to reach the store. And how long the store knows since when it is
#: missed.
_BACK_WITHIN, _MISSED_TTL = 4.0, 3600.0

# Keys that seal request state: how often they are read, and how long one seals, in seconds.
_READ_KEYS, _SEAL_FOR, _KEYS_TTL = 30.0, 7 * 86_400.0, 30 * 86_400.0
_KEY = "keys/state"

#: The body of a change that stands for all changes.
EVERYTHING = b""

_CHANGES = "changes/log"

_NOT_YET = "The shared store has not been reached yet. Try again later."


class InboxFull(StoreUnavailable):
    """A message for another replica was not sent, since too many wait there."""


class _Message(msgspec.Struct, array_like=True, frozen=True):
    """A change or a message. Senders number theirs, so that one that was appended twice is recognized."""

    sender: int
    number: int
    kind: str
    body: bytes


class _StateKey(msgspec.Struct, array_like=True, frozen=True):
    since: float
    key: bytes


_encode = msgspec.msgpack.Encoder().encode
_read_message = msgspec.msgpack.Decoder(_Message).decode
_read_keys = msgspec.msgpack.Decoder(list[_StateKey]).decode
_read_time = msgspec.msgpack.Decoder(float).decode

#: Handles a message of another replica. Returns at once and raises nothing.
_Handle: TypeAlias = Callable[[int, bytes], None]


class Replica:
    """One process among those that share a store. Belongs to one event loop at a time, except where a method says so.

    ``heard`` is called with the position and the body of each change, in order, those of this replica included, and
    ``missed`` if changes may have been lost. ``new_keys`` gets the keys that seal request state, the one that seals
    first; a key opens states for ``state_ttl`` seconds after it has sealed its last.
    """

    def __init__(
        self,
        address: str | SharedStore,
        *,
        heard: Callable[[int, bytes], None] = lambda *_: None,
        missed: Callable[[], None] = lambda: None,
        new_keys: Callable[[list[bytes]], None] | None = None,
        state_ttl: float = 3600.0,
    ) -> None:
        self._address = address
        open_store(address)  # raises UsageError now if that cannot work
        self._heard = [heard]
        self._missed = [missed]
        self._new_keys = new_keys
        self._state_ttl = state_ttl
        #: The number of this replica; another one each time it is opened.
        self.number = 0
        self.store: SharedStore
        #: Whether the store answered the last time it was asked.
        self.is_reachable = False
        #: Why it did not.
        self._failure = _NOT_YET
        self._users = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._handlers: dict[str, _Handle] = {}
        self._sent = 0
        self._seen: OrderedDict[tuple[int, str], int] = OrderedDict()
        self._waiting: dict[bytes, None] = {}
        self._wake = asyncio.Event()
        self._started = asyncio.Event()
        #: Whether others can send it messages, and whether it has the keys that seal request state.
        self._has_inbox, self._has_keys = asyncio.Event(), asyncio.Event()
        #: The position of the last change that was heard.
        self.changes_at = 0
        self._last_change = b""
        #: The last changes, for streams that are resumed.
        self._recent: deque[tuple[int, bytes]] = deque()
        #: From which position on they are complete.
        self._recent_from = 0
        self._inbox_at = 0
        self._reading: asyncio.Task[None] | None = None
        #: The keys that seal request state, as they were last read.
        self._state_keys: list[_StateKey] = []
        self._alive: dict[int, tuple[float, bool]] = {}

    # --- Start and end ---

    async def open(self) -> None:
        """Join the replicas, now or once the store can be reached. Raises nothing. Each call needs a ``close``.

        When it returns and the store was reached, the replica can do all that others do: it has the keys as well.
        """
        self._users += 1
        if self._users > 1:
            return
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.number = 1 + secrets.randbelow(2**_NUMBER_BITS - 1)
        self.store = open_store(self._address)
        self._wake, self._started = asyncio.Event(), asyncio.Event()
        self._has_inbox, self._has_keys = asyncio.Event(), asyncio.Event()
        self._inbox_at = self.changes_at = 0
        self._recent.clear()
        self._seen.clear()
        steps = [self._follow, self._beat, self._publish]
        if self._new_keys is not None:
            steps.append(partial(self._keep_keys, self._new_keys))
        else:
            self._has_keys.set()
        self._tasks = [self._loop.create_task(_forever(step)) for step in steps]
        with suppress(TimeoutError):
            async with asyncio.timeout(_OPEN_WITHIN):
                for event in self._joining:
                    await event.wait()

    async def close(self) -> None:
        """Leave the replicas."""
        self._users -= 1
        if self._users:
            return
        if self._waiting:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_published(), _AGAIN)
        tasks = [*self._tasks, *([] if self._reading is None else [self._reading])]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        with suppress(StoreUnavailable):
            await self.store.remove(_inbox(self.number))
        if isinstance(self._address, str):
            await self.store.close()  # otherwise it belongs to the program
        self._loop = None

    @property
    def is_open(self) -> bool:
        """Whether this process has joined the replicas. May be called from any thread."""
        return self._loop is not None

    @property
    def _joining(self) -> tuple[asyncio.Event, ...]:
        """Set one by one until this replica can do all that others do."""
        return self._started, self._has_inbox, self._has_keys

    def check(self) -> None:
        """Raise `StoreUnavailable` if the store has not been reached yet."""
        if not self._started.is_set():
            raise StoreUnavailable(_NOT_YET)

    async def check_ready(self) -> None:
        """Raise `StoreUnavailable` if the store did not answer the last operation, or this replica still joins."""
        if self.is_open and not self.is_reachable:
            raise StoreUnavailable(self._failure)
        if self.is_open and not all(event.is_set() for event in self._joining):
            raise StoreUnavailable(_NOT_YET)

    # --- Changes ---

    def follow(self, heard: Callable[[int, bytes], None], missed: Callable[[], None]) -> None:
        """Call these functions as well, like those given to the constructor."""
        self._heard.append(heard)
        self._missed.append(missed)

    def unfollow(self, heard: Callable[[int, bytes], None], missed: Callable[[], None]) -> None:
        """Stop calling these functions. May be called again."""
        if heard in self._heard:
            self._heard.remove(heard)
            self._missed.remove(missed)

    def announce(self, body: bytes) -> None:
        """Announce a change to all replicas, this one included. May be called from any thread while it is open."""
        loop = self._loop
        if loop is not None:
            if threading.get_ident() == self._thread:
                self._announce(body)
            else:
                with suppress(RuntimeError):  # the loop has just been closed
                    loop.call_soon_threadsafe(self._announce, body)

    async def changes_after(self, position: int) -> list[tuple[int, bytes]] | None:
        """Return the changes after a position up to ``changes_at``; None if some of them are lost."""
        end = time.monotonic() + _OPEN_WITHIN
        while position > self.changes_at and time.monotonic() < end:  # noqa: ASYNC110 - rare
            await asyncio.sleep(0.02)  # another replica was notified earlier
        upto = self.changes_at
        if position >= upto:
            return [] if position == upto else None
        if self._recent and self._recent_from <= position + 1:
            return [change for change in self._recent if change[0] > position]
        found: list[tuple[int, bytes]] = []
        numbers: dict[int, int] = {}
        while position < upto:
            entries = await self.store.read(_CHANGES, after=position)
            if not entries or entries[0].position != position + 1:
                return None
            for entry in entries:
                position = entry.position
                message = _read_message(entry.value)
                if message.number <= numbers.get(message.sender, 0):
                    continue  # appended twice
                numbers[message.sender] = message.number
                if message.body == EVERYTHING:
                    return None
                if position <= upto:
                    found.append((position, message.body))
        return found

    def _announce(self, body: bytes) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting = {EVERYTHING: None}
        self._waiting[body] = None
        self._wake.set()

    async def _publish(self) -> None:
        """Append what is announced, in order. After a failure it may be there already: then it is recognized."""
        while True:
            await self._wake.wait()
            bodies = list(self._waiting)[:_AT_ONCE]
            messages = [self._message("", body) for body in bodies]
            for body in bodies:
                del self._waiting[body]
            if not self._waiting:
                self._wake.clear()
            while messages:
                appends = (self.store.append(_CHANGES, each, ttl=_CHANGES_TTL, most=_MAX_CHANGES) for each in messages)
                done = await asyncio.gather(*appends, return_exceptions=True)
                failed = [isinstance(each, BaseException) for each in done]
                first = failed.index(True) if True in failed else len(failed)
                messages = messages[first:]
                if not all(failed[first:]):
                    # A later one was accepted, so readers would ignore those before it.
                    messages = [self._message("", EVERYTHING)]
                if messages:
                    await asyncio.sleep(_AGAIN)

    async def _all_published(self) -> None:
        while self._waiting:  # noqa: ASYNC110 - once
            await asyncio.sleep(0.01)

    async def _follow(self) -> None:
        """Read the log of changes."""
        is_sure = False
        while True:
            try:
                if not self._started.is_set():
                    await self._begin_at_end()
                    self._started.set()
                elif not is_sure and not await self._is_continued():
                    await self._begin_at_end()
                    self._report_missed()
                is_sure = True
                entries = await self.store.wait(_CHANGES, after=self.changes_at, within=_WAIT)
                for entry in entries:
                    self._take_change(entry)
                if not entries:
                    is_sure = await self._is_still_there()
            except StoreUnavailable:
                is_sure = False
                await asyncio.sleep(_AGAIN)

    async def _begin_at_end(self) -> None:
        position = await self.store.open(_CHANGES, ttl=_CHANGES_TTL)
        last = await self.store.read(_CHANGES, after=max(0, position - 1), limit=1)
        self.changes_at, self._last_change = position, last[0].value if last else b""

    async def _is_continued(self) -> bool:
        """Return whether the log still has the last change that was heard: Redis may have lost it, or all."""
        if not self._last_change:
            return await self._is_still_there()
        found = await self.store.read(_CHANGES, after=self.changes_at - 1, limit=1)
        return bool(found) and found[0] == Entry(self.changes_at, self._last_change)

    async def _is_still_there(self) -> bool:
        """Extend the life of the log, which may be quiet for days; return False if it is another one by now."""
        last = await self.store.open(_CHANGES, ttl=_CHANGES_TTL)
        return last == self.changes_at or bool(await self.store.read(_CHANGES, after=self.changes_at, limit=1))

    def _take_change(self, entry: Entry) -> None:
        is_next = entry.position == self.changes_at + 1
        self.changes_at, self._last_change = entry.position, entry.value
        message = _read_message(entry.value)
        is_new = self._is_new(message)
        if not is_next or (is_new and message.body == EVERYTHING):
            self._report_missed()
        if not is_new or message.body == EVERYTHING:
            return
        if not self._recent:
            self._recent_from = entry.position
        self._recent.append((entry.position, message.body))
        if len(self._recent) > _MAX_CHANGES:
            self._recent_from = self._recent.popleft()[0] + 1
        for heard in self._heard:
            heard(entry.position, message.body)

    def _report_missed(self) -> None:
        self._recent.clear()
        for missed in self._missed:
            missed()

    # --- Messages for one replica ---

    def handle(self, kind: str, handle: _Handle) -> None:
        """Call this function for messages of a kind."""
        self._handlers[kind] = handle

    async def tell(self, number: int, kind: str, body: bytes) -> bool:
        """Send another replica a message; return False if it is gone.

        Raises `InboxFull` if the other replica does not read, and `StoreUnavailable` if the store cannot be reached;
        then it may have been sent all the same.
        """
        if number == self.number:
            self._dispatch(_Message(number, 0, kind, body))
            return True
        try:
            place = await self.store.append(
                _inbox(number),
                self._message(kind, body),
                ttl=_GONE_AFTER,
                most=_MAX_INBOX,
                only_open=True,
                refuse_full=True,
            )
        except LogFull:
            raise InboxFull("Another replica of the server does not read its messages. Try again later.") from None
        if place is None:
            self._alive.pop(number, None)
        return place is not None

    async def is_alive(self, number: int) -> bool:
        """Return whether a replica was alive within the last seconds."""
        now = time.monotonic()
        checked, is_alive = self._alive.get(number, (0.0, False))
        if number == self.number or (is_alive and now - checked < _ALIVE_FOR):
            return True
        is_alive = await self.store.is_open(_inbox(number))
        if len(self._alive) >= _MAX_SENDERS:
            self._alive.clear()
        self._alive[number] = now, is_alive
        return is_alive

    async def is_gone(self, number: int) -> bool:
        """Return whether a replica has not been alive for some seconds, in which it could have come back.

        The store keeps since when it is missed: whoever asks may ask only once, or be killed before it asks again.
        """
        if await self.is_alive(number):
            return False
        found = await self.store.get(_missed(number))
        if found is None:
            await self.store.put(_missed(number), _encode(time.time()), version=0, ttl=_MISSED_TTL)
            return False
        return time.time() - _read_time(found.value) >= _BACK_WITHIN

    async def _beat(self) -> None:
        """Show the others that this replica is there, and read what they send."""
        last = time.monotonic()
        while True:
            try:
                if await self.store.open(_inbox(self.number), ttl=_GONE_AFTER) < self._inbox_at:
                    # The inbox was lost, and the clock of the store went back.
                    self._inbox_at = 0
                    if self._reading is not None:
                        self._reading.cancel()
                        self._reading = None
                self.is_reachable = True
                self._has_inbox.set()
                now = time.monotonic()
                if now - last > _GONE_AFTER:
                    _logger.warning(
                        "Other replicas considered this one gone, because it did not reach the store for too long."
                    )
                    await self.store.remove(_missed(self.number))
                last = now
                if self._reading is None:
                    self._reading = asyncio.get_running_loop().create_task(_forever(self._read_inbox))
            except StoreUnavailable as error:
                self.is_reachable, self._failure = False, str(error)
            await asyncio.sleep(_BEAT if self.is_reachable else _AGAIN)

    async def _read_inbox(self) -> None:
        key = _inbox(self.number)
        while True:
            try:
                entries = await self.store.wait(key, after=self._inbox_at, within=_WAIT)
                for entry in entries:
                    self._inbox_at = entry.position
                    message = _read_message(entry.value)
                    if self._is_new(message):
                        self._dispatch(message)
                if entries:
                    await self.store.trim(key, upto=self._inbox_at)
            except StoreUnavailable:
                # The store may have lost its last writes: then the next messages get positions that were read already.
                # Those that are read again are recognized.
                self._inbox_at = 0
                await asyncio.sleep(_AGAIN)

    def _dispatch(self, message: _Message) -> None:
        handle = self._handlers.get(message.kind)
        if handle is not None:
            handle(message.sender, message.body)

    def _message(self, kind: str, body: bytes) -> bytes:
        self._sent += 1
        return _encode(_Message(self.number, self._sent, kind, body))

    def _is_new(self, message: _Message) -> bool:
        """Return whether a change or a message was not read before."""
        key = message.sender, "inbox" if message.kind else "changes"
        if message.number <= self._seen.get(key, 0):
            return False
        self._seen[key] = message.number
        self._seen.move_to_end(key)
        if len(self._seen) > _MAX_SENDERS:
            self._seen.popitem(last=False)
        return True

    # --- Keys ---

    async def _keep_keys(self, new_keys: Callable[[list[bytes]], None]) -> None:
        """Share the keys that seal request state: all replicas know a new key before one of them uses it."""
        known: list[bytes] = []
        while True:
            try:
                keys = _in_order(await self._renewed_keys(), time.time())
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN)
                continue
            if keys != known:
                known = keys
                new_keys(keys)
            self._has_keys.set()
            await asyncio.sleep(_READ_KEYS)

    async def _renewed_keys(self) -> list[_StateKey]:
        while True:
            record = await self.store.get(_KEY)
            stored = [] if record is None else _read_keys(record.value)
            # The store may have lost some, or all: what they have sealed is with clients still.
            keys = stored + [key for key in self._state_keys if key not in stored]
            now = time.time()
            wanted = [key for key in keys if now - key.since < _SEAL_FOR + self._state_ttl + 4 * _READ_KEYS]
            if not wanted or now - max(key.since for key in wanted) >= _SEAL_FOR:
                wanted.append(_StateKey(now, os.urandom(32)))
            if wanted == stored:
                await self.store.touch(_KEY, ttl=_KEYS_TTL)
                break
            version = 0 if record is None else record.version
            if await self.store.put(_KEY, _encode(wanted), version=version, ttl=_KEYS_TTL) is not None:
                break
        self._state_keys = wanted
        return wanted


async def _forever(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run an endless task. Restart it after a failure, with growing pauses if it keeps failing."""
    pause = _AGAIN
    while True:
        began = time.monotonic()
        try:
            await step()
        except Exception:
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _AGAIN
            _logger.exception("A task of this replica failed. It restarts in %.1f s.", pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _in_order(keys: list[_StateKey], now: float) -> list[bytes]:
    """Return the keys, beginning with the one that seals: the newest that all replicas have read."""
    newest = sorted(keys, key=lambda key: key.since, reverse=True)
    old = [key for key in newest if now - key.since >= 2 * _READ_KEYS]
    return [key.key for key in dict.fromkeys((*old[:1], *newest))]


def _inbox(number: int) -> str:
    return f"replica-{number}/inbox"


def _missed(number: int) -> str:
    return f"replica-{number}/missed"

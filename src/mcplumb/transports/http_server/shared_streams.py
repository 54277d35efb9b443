"""Streams of legacy sessions that replicas share: a client may resume one at any replica.

Each POST that becomes a stream belongs to the replica that works on it. That appends the messages to a log in the
shared store, besides sending them. A client that resumes elsewhere is sent what the log has, and what is appended to
it: the owner tells the replica that carries the stream now. If the owner was killed, the stream ends with an error.

The stream of the GET belongs to nobody. It consists of changes, which every replica hears of, and of messages in a log.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import StoreUnavailable
from mcplumb.protocol.session_record import encoded, everything_for, hears
from mcplumb.protocol.subscription_state import Change
from mcplumb.stores.replica import KEY_BITS, Replica
from mcplumb.stores.shared_store import Entry
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.event_streams import Channels, EventStream
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Error,
    ErrorDetail,
    RequestId,
    encode_batch,
    encode_line,
)
from mcplumb.wire.server_sent_events import encode_event

if TYPE_CHECKING:
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.http_server.shared_sessions import SharedSession

__all__ = ["Carried", "GetStream", "SharedChannel", "SharedChannels", "StreamLogs", "event_gone", "parse_position"]

_logger = logging.getLogger("mcplumb.http")

#: Seconds between two attempts to reach the store, and between two looks at a stream of another replica.
_AGAIN, _LOOK_AGAIN = 0.2, 5.0
#: Seconds that a response waits for the store to know its stream: longer than a replica pauses between two attempts.
_BEGIN_WITHIN = 5.0
#: Messages that are remembered, or read again before the position of a client, to recognize what was appended twice.
_LOOK_BACK = 100
#: What an entry of a log is: a message, the last message, the end without a message, a message too large to be kept.
_MESSAGE, _LAST, _END, _DROPPED = b"m", b"l", b"e", b"x"
_LOST = (
    "The process that worked on this request has ended before it answered, or its answer was lost: whether the request "
    "took effect is unknown."
)


def event_gone() -> Refusal:
    """Return the refusal of a client that wants to resume after an event that is not known any more."""
    return Refusal(400, ErrorDetail(INVALID_REQUEST, "The events after Last-Event-ID are no longer stored."))


class _Header(msgspec.Struct, array_like=True, frozen=True):
    """The facts about a stream that another replica needs if the owner is killed."""

    ids: tuple[RequestId, ...]
    is_batch: bool


class _Told(msgspec.Struct, array_like=True, frozen=True):
    """A message of a session that belongs to no request. Replicas number theirs: one may be appended twice."""

    replica: int
    number: int
    message: bytes


_encode = msgspec.msgpack.Encoder().encode
_read_header = msgspec.msgpack.Decoder(_Header).decode
_read_told = msgspec.msgpack.Decoder(_Told).decode


def _log_of(session_id: str, number: int) -> str:
    return f"{session_id}/stream-{number}"


def _header_of(session_id: str, number: int) -> str:
    return f"{session_id}/header-{number}"


class StreamLogs:
    """What the streams of one application need: the replica, the limits, and tasks that outlive requests."""

    def __init__(self, replica: Replica, options: HttpOptions) -> None:
        self.replica = replica
        self.options = options
        #: The numbers of messages that belong to no request.
        self.messages = itertools.count(1)
        self._opened = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def next_number(self) -> int:
        """Return the number of a new stream or the first id of requests, which no other replica uses."""
        self._opened = (self._opened + 1) % 2**20
        return (self.replica.number << KEY_BITS) | (self._opened << 12)

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine until it ends or the application does."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _logger.error("A task of a shared session failed.", exc_info=task.exception())

    async def close(self, within: float) -> None:
        """Give the tasks some seconds to write what is left, then cancel them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class SharedChannels(Channels):
    """The streams of one session at this replica."""

    def __init__(self, options: HttpOptions, logs: StreamLogs) -> None:
        super().__init__(options)
        self._logs = logs
        self.session_id = ""
        #: The streams of this replica of which the store does not have everything yet.
        self._own: dict[int, SharedChannel] = {}
        #: The streams that are sent from their logs.
        self.carried: dict[int, Carried] = {}

    def open(self, ids: Sequence[RequestId] = (), *, is_batch: bool = False) -> SharedChannel:  # type: ignore[override]
        """Open a stream for the answers to these requests."""
        number = self._logs.next_number()
        channel = self._own[number] = SharedChannel(self, self._logs, number, _Header(tuple(ids), is_batch))
        return channel

    def close(self, channel: SharedChannel) -> None:  # type: ignore[override]
        """Close a stream, and end its response."""
        channel.end()

    def settled(self, number: int) -> None:
        """Forget a stream that has ended, and that the store has completely."""
        self._own.pop(number, None)

    def owns(self, number: int) -> bool:
        """Whether more of a stream is to come from this replica."""
        return number in self._own

    def carried_by(self, number: int, replica: int) -> None:
        """Record that another replica, or another response of this one, carries a stream now."""
        if number in self._own:
            self._own[number].carried_by(replica)

    async def resume(self, request: HttpRequest, number: int, after: int) -> EventStream | None:
        """Return a response that continues a stream after an event; None if the stream is over."""
        carried = Carried(self, self._logs, self.session_id, number, after)
        return await carried.begin(request)


class SharedChannel:
    """A stream that belongs to this replica."""

    def __init__(self, channels: SharedChannels, logs: StreamLogs, number: int, header: _Header) -> None:
        self.number = number
        self._channels = channels
        self._logs = logs
        self._key = _log_of(channels.session_id, number)
        self._header = header
        self._response: EventStream | None = None
        self._carrier: int | None = None
        self._count = 0
        #: What is to be appended, and the sizes of what was.
        self._waiting: deque[Entry] = deque()
        self._waiting_bytes = 0
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._is_over = False
        self._has_header = False
        #: Done when the store has the header, or cannot be reached for long: a client can resume only what it knows.
        self._may_begin: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writing = logs.start(self._write())

    @property
    def response(self) -> EventStream | None:
        """The response of the POST, while it carries the stream."""
        if self._response is not None and self._response.is_over:
            self._response = None
        return self._response

    def begin(self, request: HttpRequest) -> EventStream:
        """Carry the stream on the response to its POST, once the store knows the stream."""
        events = [encode_event(b"", event_id=f"{self.number}-0")] if self._channels.has_priming_events else []
        self._response = self._channels.respond(request, events, hold=self._may_begin)
        return self._response

    def put(self, message: bytes, *, is_last: bool = False) -> None:
        """Send a message, and append it to the log."""
        self._count += 1
        event_id = f"{self.number}-{self._count}"
        if self.response is not None:
            self._channels.put(self.response, encode_event(message, event="message", event_id=event_id))
        is_large = len(message) > self._logs.options.max_event_bytes
        self._append(_DROPPED if is_large else (_LAST if is_last else _MESSAGE) + message)
        self._is_over = self._is_over or (is_last and not is_large)

    def release(self, retry: int) -> None:
        """End the response, and tell the client to reconnect after this many milliseconds."""
        if self.response is not None:
            self._channels.put(self.response, encode_event(b"", retry=retry))
            self.response.end()
            self._response = None

    def end(self) -> None:
        """End the stream: after its last message, or without one."""
        if not self._is_over:
            self._is_over = True
            self._count += 1
            self._append(_END)
        if self.response is not None:
            self.response.end()

    def carried_by(self, replica: int) -> None:
        """Notify a replica of each message appended from now on; it then reads those that it missed before."""
        if self.response is not None:
            self.response.end()
        self._carrier = replica
        self._has_header = False  # by now it may have expired
        if self._writing.done():
            self._writing = self._logs.start(self._write())

    def _append(self, value: bytes) -> None:
        options = self._logs.options
        self._waiting.append(Entry(self._count, value))
        self._waiting_bytes += len(value)
        self._bytes += len(value)
        self._sizes.append(len(value))
        while len(self._waiting) > options.max_events or self._waiting_bytes > options.max_event_bytes:
            # The store is away: this one can only be read at this response.
            self._waiting_bytes -= len(self._waiting.popleft().value)
        if self._writing.done():
            self._writing = self._logs.start(self._write())

    async def _write(self) -> None:
        """Write the header and append the queued messages in order. Try again while the store is unreachable."""
        store, options = self._logs.replica.store, self._logs.options
        ttl = options.session_ttl
        is_late = False
        try:
            while self._waiting or not self._has_header:
                try:
                    if not self._has_header:
                        key = _header_of(self._channels.session_id, self.number)
                        await store.put(key, _encode(self._header), version=0, ttl=ttl)
                        self._has_header = True
                        self._let_begin()
                    entries = list(self._waiting)
                    await asyncio.gather(
                        *(
                            store.append(self._key, each.value, ttl=ttl, most=options.max_events, at=each.position)
                            for each in entries
                        )
                    )
                    for each in entries:
                        if self._waiting and self._waiting[0] is each:
                            self._waiting_bytes -= len(self._waiting.popleft().value)
                    await self._trim()
                    await self._tell()
                except StoreUnavailable:
                    if not self._may_begin.done() and not is_late:
                        is_late = True
                        asyncio.get_running_loop().call_later(_BEGIN_WITHIN, self._let_begin)
                    await asyncio.sleep(_AGAIN)
        finally:
            self._let_begin()
            if self._is_over and not self._waiting:
                self._channels.settled(self.number)

    def _let_begin(self) -> None:
        if not self._may_begin.done():
            self._may_begin.set_result(None)

    async def _trim(self) -> None:
        """Drop old messages beyond the limit of bytes per session."""
        dropped = 0
        options = self._logs.options
        while len(self._sizes) > options.max_events:  # the log has dropped these by itself
            self._bytes -= self._sizes.popleft()
        while self._bytes > options.max_event_bytes and len(self._sizes) > 1:
            self._bytes -= self._sizes.popleft()
            dropped += 1
        if dropped:
            await self._logs.replica.store.trim(self._key, upto=self._count - len(self._sizes))

    async def _tell(self) -> None:
        if self._carrier is not None:
            body = f"{self._channels.session_id} {self.number}".encode()
            with suppress(StoreUnavailable):  # the other one looks again by itself
                await self._logs.replica.tell(self._carrier, "grew", body)


class Carried:
    """A stream that is sent from its log."""

    def __init__(self, channels: SharedChannels, logs: StreamLogs, session_id: str, number: int, after: int) -> None:
        self._channels = channels
        self._logs = logs
        self._session_id = session_id
        self._number = number
        self._key = _log_of(session_id, number)
        self._at = after
        self._owner = number >> KEY_BITS
        self._grew = asyncio.Event()
        #: Whether the owner knows that this replica carries the stream.
        self._is_told = False
        #: Whether the log will not grow any more: the owner has no such stream, or is gone.
        self._is_all = False

    def grew(self, *, is_all: bool = False) -> None:
        """Read on, because the log has grown, or will not grow any more."""
        self._is_all = self._is_all or is_all
        self._grew.set()

    async def begin(self, request: HttpRequest) -> EventStream | None:
        """Return a response with the events after the last one; None if there is none, and the stream is over.

        Raises `Refusal` if some of the events are not kept any more.
        """
        store = self._logs.replica.store
        # First of all, so that nothing is appended of which this replica is not told.
        self._channels.carried[self._number] = self
        is_begun = False
        try:
            is_told = await self._ask_owner()
            if not await self._has_header(is_told=is_told):
                raise event_gone()
            entries = await store.read(self._key, after=self._at)
            if entries and entries[0].position != self._at + 1:
                raise event_gone()
            if entries and entries[0].value == _END:
                return None
            if not entries and self._at and await self._is_over():
                return None
            await self._look(is_told=is_told)
            event_id = f"{self._number}-{self._at}"
            events = [encode_event(b"", event_id=event_id)] if self._channels.has_priming_events else []
            response = self._channels.respond(request, events)
            self._logs.start(self._pump(response))
            is_begun = True
            return response
        finally:
            if not is_begun:
                self._forget()

    async def _has_header(self, *, is_told: bool) -> bool:
        """Return whether the store knows the stream. An owner that has not reached the store yet writes the header."""
        key = _header_of(self._session_id, self._number)
        while True:
            is_all = self._is_all  # before the header is read
            if await self._logs.replica.store.get(key) is not None:
                return True
            if is_all or not is_told:
                return False
            if not await self._wait():
                raise StoreUnavailable("The replica that works on this request does not answer. Try again later.")

    def _forget(self) -> None:
        if self._channels.carried.get(self._number) is self:
            del self._channels.carried[self._number]

    async def _ask_owner(self) -> bool:
        """Ask the owner to tell of news, or whether there will be any; return False if it has no inbox."""
        replica = self._logs.replica
        body = f"{self._session_id} {self._number} {replica.number}".encode()
        is_told = await replica.tell(self._owner, "owns" if self._is_told else "carry", body)
        self._is_told = self._is_told or is_told
        return is_told

    async def _look(self, *, is_told: bool) -> None:
        if not is_told and await self._logs.replica.is_gone(self._owner):
            self._is_all = True

    async def _is_over(self) -> bool:
        last = await self._logs.replica.store.read(self._key, after=self._at - 1, limit=1)
        return bool(last) and last[0].value[:1] in (_LAST, _END)

    async def _pump(self, response: EventStream) -> None:
        store = self._logs.replica.store
        try:
            while not response.is_over:
                try:
                    is_all = self._is_all  # before the log is read
                    entries = await store.read(self._key, after=self._at, limit=100)
                    for entry in entries:
                        if self._put(response, entry):
                            return
                    if not entries and is_all:
                        await self._report_lost()
                    elif not entries and not await self._wait():
                        await self._look(is_told=await self._ask_owner())
                    await response.drained()
                except StoreUnavailable:
                    await asyncio.sleep(_AGAIN)
        finally:
            response.end()
            self._forget()

    def _put(self, response: EventStream, entry: Entry) -> bool:
        """Send an entry; return whether it is the last one."""
        kind, message = entry.value[:1], entry.value[1:]
        if entry.position != self._at + 1 or kind == _DROPPED:
            return True  # the client comes back, and learns that events are missing
        self._at = entry.position
        if kind != _END:
            event = encode_event(message, event="message", event_id=f"{self._number}-{self._at}")
            self._channels.put(response, event)
        return kind in (_LAST, _END)

    async def _wait(self) -> bool:
        """Wait until the log grows; return False if that is not reported for a while."""
        try:
            async with asyncio.timeout(_LOOK_AGAIN):
                await self._grew.wait()
        except TimeoutError:
            return False
        finally:
            self._grew.clear()
        return True

    async def _report_lost(self) -> None:
        """Append the answer of a request whose replica was killed, unless another replica has done so.

        Or of one whose answer the store has lost, for example because Redis restarted without its last second.
        """
        store, options = self._logs.replica.store, self._logs.options
        record = await store.get(_header_of(self._session_id, self._number))
        header = _Header((), False) if record is None else _read_header(record.value)
        errors = [Error(each, ErrorDetail(INTERNAL_ERROR, _LOST)) for each in header.ids]
        message = encode_batch(errors) if header.is_batch else b"".join(encode_line(each) for each in errors[:1])
        value = _LAST + message if message else _END
        await store.append(self._key, value, ttl=options.session_ttl, most=options.max_events, at=self._at + 1)


# --- The stream of the GET ---


def parse_position(event_id: str) -> tuple[int, int] | None:
    """Return the position in the changes and in the messages that an event id of this stream stands for."""
    changes, _, messages = event_id[1:].partition(".")
    if event_id[:1] != "g" or len(event_id) > 40 or not event_id.isascii():
        return None
    return (int(changes), int(messages)) if changes.isdigit() and messages.isdigit() else None


class GetStream:
    """The stream of messages that belong to no request, as far as this replica carries it."""

    def __init__(self, session: SharedSession, logs: StreamLogs) -> None:
        self._session = session
        self._logs = logs
        self._response: EventStream | None = None
        self._changes_at = self._messages_at = 0
        #: Whether all earlier changes were sent, so that the next one can be.
        self._is_live = False
        self._news = asyncio.Event()
        #: The messages that wait for the store.
        self._outgoing: deque[_Told] = deque()
        self._outgoing_bytes = 0
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        #: The last messages that were read, the oldest first.
        self._seen: dict[tuple[int, int], None] = {}
        self._has_looked_back = False

    @property
    def response(self) -> EventStream | None:
        """The response that carries the stream, if it is one of this replica."""
        if self._response is not None and self._response.is_over:
            self._response = None
        return self._response

    @property
    def position(self) -> tuple[int, int]:
        """Where the stream goes on."""
        return self._changes_at, self._messages_at

    @property
    def _log(self) -> str:
        return f"{self._session.session_id}/messages"

    def put(self, message: bytes) -> None:
        """Send a message on the stream, wherever it is carried, or will be. The oldest give way if too many wait."""
        options = self._logs.options
        if len(message) > options.max_event_bytes:
            _logger.warning("A message of %d bytes to a client was dropped: see max_event_bytes.", len(message))
            return
        self._outgoing.append(_Told(self._logs.replica.number, next(self._logs.messages), message))
        self._outgoing_bytes += len(message)
        while len(self._outgoing) > options.max_events or self._outgoing_bytes > options.max_event_bytes:
            self._outgoing_bytes -= len(self._outgoing.popleft().message)
            self._dropped += 1
        if self._writing is None or self._writing.done():
            self._writing = self._logs.start(self._write())

    async def _write(self) -> None:
        """Append what waits, in order, until nothing does. While the store is away, try again."""
        replica, options, session = self._logs.replica, self._logs.options, self._session
        try:
            while self._outgoing:
                told = list(self._outgoing)
                appends = (
                    replica.store.append(self._log, _encode(each), ttl=options.session_ttl, most=options.max_events)
                    for each in told
                )
                done = await asyncio.gather(*appends, return_exceptions=True)
                failed = {id(each) for each, place in zip(told, done, strict=True) if isinstance(place, Exception)}
                written = {id(each) for each in told} - failed
                self._outgoing = deque(each for each in self._outgoing if id(each) not in written)
                self._outgoing_bytes = sum(len(each.message) for each in self._outgoing)
                carrier = session.record.carrier
                if written and carrier is not None:
                    with suppress(StoreUnavailable):  # it looks again by itself
                        await replica.tell(carrier, "message", session.session_id.encode())
                if failed:
                    await asyncio.sleep(_AGAIN)
        finally:
            if self._dropped:
                _logger.warning("%d messages to a client were dropped: too many waited for the store.", self._dropped)
                self._dropped = 0

    def begin(self, response: EventStream, position: tuple[int, int] | None, *, has_missed: bool = False) -> None:
        """Carry the stream on a response from this position on, which may not be known.

        Then, or if it has missed something, everything may have changed meanwhile.
        """
        self._response = response
        self._is_live = False
        self._seen.clear()
        self._has_looked_back = False
        self._changes_at, self._messages_at = position or (0, 0)
        self._logs.start(self._pump(response, is_known=position is not None, has_missed=has_missed))

    def heard(self, position: int, change: Change, line: bytes) -> None:
        """Announce a change, if the client follows it."""
        if not self._is_live or self.response is None:
            return
        self._changes_at = position
        if hears(self._session.record, change, position):
            self._send(line)

    def missed(self) -> None:
        """Announce everything that the client follows."""
        if self._is_live and self.response is not None:
            everything = everything_for(self._session.record)
            # A client that gets only some of these and resumes gets all of them again.
            for change in everything[:-1]:
                self._send(encoded(change))
            self._changes_at = self._logs.replica.changes_at
            for change in everything[-1:]:
                self._send(encoded(change))

    def has_news(self) -> None:
        """Read the messages of the session."""
        self._news.set()

    async def subscribed(self, uris: dict[str, int]) -> None:
        """Announce changes of resources that the client has subscribed to at another replica meanwhile."""
        if not uris or not self._is_live or self.response is None:
            return
        upto = self._changes_at
        known = await self._logs.replica.changes_after(min(uris.values()))
        for uri, since in uris.items():
            wanted = Change("updates", uri)
            if known is None or any(
                since < position <= upto and self._session.change_of(body) == wanted for position, body in known
            ):
                self._send(encoded(wanted))

    async def _pump(self, response: EventStream, *, is_known: bool, has_missed: bool) -> None:
        replica = self._logs.replica
        has_missed = has_missed or not is_known
        if not is_known:
            with suppress(StoreUnavailable):
                # Some messages have not been read and must still be sent, but it is not known which.
                self._messages_at = await replica.store.open(self._log, ttl=self._logs.options.session_ttl)
        if self._session.has_priming_events:
            self._session.put(response, encode_event(b"", event_id=self._event_id))
        while not response.is_over and self._response is response:
            try:
                if self._messages_at and not self._has_looked_back:
                    for entry in await replica.store.read(self._log, after=max(0, self._messages_at - _LOOK_BACK)):
                        if entry.position <= self._messages_at:
                            self._is_new(_read_told(entry.value))
                self._has_looked_back = True
                if not self._is_live:
                    await self._catch_up(has_missed=has_missed)
                    has_missed = False
                for entry in await replica.store.read(self._log, after=self._messages_at):
                    told = _read_told(entry.value)
                    self._messages_at = entry.position
                    if self._is_new(told):
                        self._send(told.message)
                await response.drained()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._logs.options.session_ttl / 3):
                        await self._news.wait()
                self._news.clear()
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN)

    def _is_new(self, told: _Told) -> bool:
        """Return whether a message was not read before; one whose append got no answer is there twice."""
        key = told.replica, told.number
        is_new = key not in self._seen
        self._seen[key] = None
        if len(self._seen) > _LOOK_BACK:
            del self._seen[next(iter(self._seen))]
        return is_new

    async def _catch_up(self, *, has_missed: bool) -> None:
        """Send the changes up to now; from here on, each is sent as it is heard."""
        replica, session = self._logs.replica, self._session
        known = None if has_missed else await replica.changes_after(self._changes_at)
        if known is None:
            self._is_live = True
            self.missed()
            return
        for position, body in known:
            self._changes_at = position
            change = session.change_of(body)
            if change is not None and hears(session.record, change, position):
                self._send(encoded(change))
        # Without an await since the changes were read.
        self._is_live = True
        if self._changes_at != replica.changes_at:
            self._is_live = False
            await self._catch_up(has_missed=False)

    def _send(self, line: bytes) -> None:
        if self.response is not None:
            self._session.put(self.response, encode_event(line, event="message", event_id=self._event_id))

    @property
    def _event_id(self) -> str:
        return f"g{self._changes_at}.{self._messages_at}"

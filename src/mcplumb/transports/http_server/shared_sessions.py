"""Legacy sessions that replicas share: each replica serves any request of any session.

The shared store keeps a record of each session. A replica that gets a request of a session it does not know makes a
copy of the session from the record; a copy that is idle is dropped. No replica owns a session. What belongs to a
request that another replica works on is sent to that one: answers to its questions, and cancellations.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from mcplumb.errors import StoreUnavailable
from mcplumb.limits import Limits
from mcplumb.protocol.principal import Principal, identity_of
from mcplumb.protocol.session_record import SessionRecord, encoded, read_change, setup, updated
from mcplumb.stores.replica import KEY_BITS, Replica
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.event_streams import EventStream, parse_id
from mcplumb.transports.http_server.legacy_post import LegacyPost, busy, session_over
from mcplumb.transports.http_server.legacy_session import LegacySession, cancelled_request, each_of, one_stream
from mcplumb.transports.http_server.session_table import CONFIRM_WITHIN, ID_BYTES, LegacySessions
from mcplumb.transports.http_server.shared_streams import (
    GetStream,
    SharedChannels,
    StreamLogs,
    event_gone,
    parse_position,
)
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result, encode_line

if TYPE_CHECKING:
    from mcplumb.protocol.subscription_state import Change
    from mcplumb.revisions import Revision
    from mcplumb.transports.connection import Serve
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.line_connection import Trace

__all__ = ["SharedSession", "SharedSessions"]

#: Seconds after which an idle copy of a session is dropped. Another one costs a read and a handshake.
_DROP_AFTER = 60.0
#: Seconds for what is left to be written when the application ends.
_CLOSE_WITHIN = 2.0
#: Known replicas of a session above which those that are gone are sorted out.
_MAX_REPLICAS = 8
_SETUP_ID = "mcplumb-setup"

_encode = msgspec.msgpack.Encoder().encode
_read_record = msgspec.msgpack.Decoder(SessionRecord).decode
_read_told = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


def _record_key(session_id: str) -> str:
    """Return the key of the record of a session."""
    return f"{session_id}/session"


class SharedSession(LegacySession):
    """The copy of a session at this replica."""

    #: The connection announces changes by itself.
    hears_changes = True
    #: Whether the server has changes that other replicas do not know, as a bridge has.
    has_own_changes = False
    _standalone: GetStream  # type: ignore[assignment]
    _channels: SharedChannels

    def __init__(self, *, options: HttpOptions, trace: Trace | None, logs: StreamLogs, record: SessionRecord) -> None:
        self._logs = logs
        self._store = logs.replica.store
        self.session_id = ""
        self.record = record
        self.version = 0
        #: Requests to the client have ids from here on, which no other replica uses: the answer may come to any.
        self.first_request_id = logs.next_number() + 1
        #: When the life of the record was last extended, by the clock of the event loop.
        self.touched_at = asyncio.get_running_loop().time()
        self._changing = asyncio.Lock()
        self._is_leaving = False
        #: The ids of requests that set up the copy: the client has sent them before, to other replicas.
        self.repeated: set[RequestId] = set()
        super().__init__(options=options, trace=trace, channels=SharedChannels(options, logs))

    def _open_standalone(self) -> GetStream:  # type: ignore[override]
        return GetStream(self, self._logs)

    def name(self, session_id: str) -> None:
        """Give the session its id."""
        self.session_id = self._channels.session_id = session_id

    @property
    def ttl(self) -> float:
        """How long the record lives without a request."""
        return self._ttl_of(self.record)

    def _ttl_of(self, record: SessionRecord) -> float:
        ttl = self._options.session_ttl
        return ttl if record.ready_at is not None else min(ttl, CONFIRM_WITHIN)

    @property
    def is_busy(self) -> bool:
        """Whether the copy works on a request, or carries a stream."""
        return bool(self._active or self._posts)

    @property
    def may_announce(self) -> bool:
        """Whether this replica passes on the changes of servers behind a bridge: exactly one does."""
        return self.record.follower == self._logs.replica.number

    @property
    def has_priming_events(self) -> bool:
        """Whether the client's revision has priming events."""
        return self._channels.has_priming_events

    @property
    def stream(self) -> GetStream:
        """The stream of the client's GET."""
        return self._standalone

    def put(self, response: EventStream, event: bytes) -> None:
        """Queue an event on a response."""
        self._channels.put(response, event)

    def change_of(self, body: bytes) -> Change | None:
        """Return a change that was announced; None if it cannot be read."""
        return read_change(body)

    # --- The record ---

    async def update(self, change: Callable[[SessionRecord], SessionRecord]) -> None:
        """Change the record for all replicas."""
        async with self._changing:
            while (new := change(self.record)) != self.record:
                key = _record_key(self.session_id)
                version = await self._store.put(key, _encode(new), version=self.version, ttl=self._ttl_of(new))
                if version is not None:
                    self.record, self.version = new, version
                    return
                await self._read_record()

    async def touch(self) -> bool:
        """Extend the life of the record, and bring the copy up to date; return False if the session is over."""
        while True:
            ttl = self.ttl
            version = await self._store.touch(_record_key(self.session_id), ttl=ttl)
            self.touched_at = self._loop.time()
            if version is None:
                return False
            if version != self.version:
                await self.refresh()
            if self.ttl <= ttl:
                return True
            # The client was ready already, which this copy did not know: its session lives longer.

    async def refresh(self) -> None:
        """Bring the copy up to date, because another replica has changed the record."""
        async with self._changing:
            await self._read_record()

    async def _read_record(self) -> None:
        found = await self._store.get(_record_key(self.session_id))
        if found is None:
            raise session_over()
        # It may be lower: the store can have lost the last writes.
        if found.version != self.version:
            known, self.record, self.version = self.record, _read_record(found.value), found.version
            if known.initialize != self.record.initialize:
                self.hang_up()  # the session was started over: the next request makes another copy
                raise session_over()
            await self.set_up(setup(self.record, known))
            fresh = {uri: at for uri, at in self.record.subscribed.items() if uri not in known.subscribed}
            await self._standalone.subscribed(fresh)

    async def set_up(self, messages: Sequence[Message]) -> None:
        """Process messages that the client has sent to other replicas. Their answers are not sent."""
        for message in messages:
            if isinstance(message, Request):
                post = self._posts[message.id] = LegacyPost(self._channels, None, (message.id,))
                self.repeated.add(message.id)
                try:
                    await self.deliver(message)
                    with suppress(Refusal):
                        await post.text()
                finally:
                    self.repeated.discard(message.id)
            else:
                await self.deliver(message)
        self.is_confirmed = self.is_confirmed or self.record.ready_at is not None

    # --- Requests ---

    async def _take(self, request: HttpRequest, item: Message | Batch) -> None:
        for message in each_of(item):
            await self._pass_on(message)
        await super()._take(request, item)

    async def _refuse(self, bad: BadMessage) -> None:
        if bad.is_response and isinstance(bad.id, int):
            await self._tell(bad.id >> KEY_BITS, Error(bad.id, ErrorDetail(bad.code, bad.reason)))
        await super()._refuse(bad)

    async def _pass_on(self, message: Message | BadMessage) -> None:
        """Send a message to the replica that waits for it, if that is another one."""
        if isinstance(message, Result | Error) and isinstance(message.id, int):
            await self._tell(message.id >> KEY_BITS, message)
        elif isinstance(message, Notification):
            cancelled = cancelled_request(message)
            if cancelled is not None and cancelled not in self._posts:
                for number in self.record.replicas:
                    await self._tell(number, message)

    async def _tell(self, number: int, message: Message) -> None:
        replica = self._logs.replica
        if number and number != replica.number and number >> 21 == 0:
            is_told = await replica.tell(number, "deliver", _encode((self.session_id, encode_line(message))))
            is_answer = isinstance(message, Result | Error) and number in self.record.replicas
            if not is_told and is_answer and not await replica.is_gone(number):
                raise StoreUnavailable("The replica that waits for this answer is not there. Try again later.")

    async def told(self, line: bytes) -> None:
        """Process a message that the client has sent to another replica."""
        item = decode_line(line, True, 1)
        if isinstance(item, Batch | BadMessage) or self.has_hung_up:
            return
        with suppress(Refusal):
            await self.deliver(item)
            self._drop_cancelled(item)

    # --- The end of the copy ---

    def leave(self) -> None:
        """Hang up when the open requests are answered: until then, other replicas pass on the client's answers."""
        self._is_leaving = True
        if self._standalone.response is not None:
            self._standalone.response.end()
        self._leave_if_done()

    def _forget(self, post: LegacyPost) -> None:
        super()._forget(post)
        self._leave_if_done()

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._posts:
            self.hang_up()

    # --- Streams ---

    async def listen(self, request: HttpRequest, last_event_id: str | None) -> None:
        """Respond to a GET with the stream of messages that belong to no request, or resume a stream."""
        with self._working():
            self._check_active()
            position = parse_position(last_event_id) if last_event_id else None
            if last_event_id and position is None:
                await self._resume_stream(request, last_event_id)
                return
            if last_event_id is None or not last_event_id:
                position = await self._next_position()
            since = time.time()
            before = self.record.carrier
            mine = self._logs.replica.number
            # What another replica has heard of its own server meanwhile is not known here.
            has_missed = self.has_own_changes and self.record.follower != mine
            await self.update(
                lambda record: replace(record, carrier=mine, follower=mine, carried_since=since, goes_on_at=None)
            )
            if before is not None and before != mine:
                await self._logs.replica.tell(before, "stop", self.session_id.encode())
            elif self._standalone.response is not None:
                self._standalone.response.end()
            response = self._channels.respond(request, [])
            self._standalone.begin(response, position, has_missed=has_missed)
            try:
                await self._channels.finish(response)
            finally:
                self._logs.start(self._leave(since, self._standalone.position))
                self._standalone.has_news()  # so that its task notices the end

    async def _next_position(self) -> tuple[int, int] | None:
        """Return where to continue a stream whose client does not say so; raise `Refusal` if it was opened just now."""
        record = self.record
        if record.carrier is not None:
            age = time.time() - record.carried_since
            if 0 <= age < self._options.keep_alive and await self._logs.replica.is_alive(record.carrier):
                raise one_stream(ceil(self._options.keep_alive))
        return record.goes_on_at

    async def _leave(self, since: float, position: tuple[int, int]) -> None:
        """Record where the stream goes on, unless another replica carries it already."""

        def left(record: SessionRecord) -> SessionRecord:
            if (record.carrier, record.carried_since) != (self._logs.replica.number, since):
                return record
            return replace(record, carrier=None, goes_on_at=position)

        with suppress(StoreUnavailable, Refusal):
            await self.update(left)

    async def _resume_stream(self, request: HttpRequest, last_event_id: str) -> None:
        place = parse_id(last_event_id)
        if place is None:
            raise event_gone()
        response = await self._channels.resume(request, *place)
        if response is None:
            await request.respond(204)  # to a client of event streams, that means not to reconnect
        else:
            await self._channels.finish(response)

    def owns(self, number: int) -> bool:
        """Whether more of a stream is to come from this replica."""
        return self._channels.owns(number)

    def carried_by(self, number: int, replica: int) -> None:
        """Record that another replica carries one of the streams of this one."""
        self._channels.carried_by(number, replica)

    def grew(self, number: int, *, is_all: bool = False) -> None:
        """Read on in the log of a stream, which may be complete."""
        carried = self._channels.carried.get(number)
        if carried is not None:
            carried.grew(is_all=is_all)


class SharedSessions(LegacySessions[SharedSession]):
    """All legacy sessions of an application that has replicas."""

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        revisions: Sequence[Revision],
        limits: Limits,
        replica: Replica,
        stop_within: float,
        trace: Trace | None = None,
    ) -> None:
        super().__init__(serve, options=options, revisions=revisions, trace=trace)
        self._limits = limits
        self._stop_within = stop_within
        self._replica = replica
        self._logs = StreamLogs(replica, options)
        #: Copies that are being made.
        self._copying: dict[str, asyncio.Task[SharedSession]] = {}
        self._keeping: asyncio.Task[None] | None = None
        for kind, handle in {
            "deliver": self._told_deliver,
            "carry": self._told_carry,
            "owns": self._told_owns,
            "grew": self._told_grew,
            "all": self._told_all,
            "message": self._told_message,
            "session": self._told_session,
            "over": self._told_over,
            "stop": self._told_stop,
        }.items():
            replica.handle(kind, handle)
        replica.follow(self._heard, self._missed)

    async def post(
        self, request: HttpRequest, item: Message | BadMessage | Batch, principal: Principal | None = None
    ) -> None:
        """Serve a POST with this message in it; raise `Refusal` if it is refused."""
        try:
            await super().post(request, item, principal)
        except StoreUnavailable as error:
            ids = {"request_id": item.id} if isinstance(item, Request) else {}
            raise busy(str(error), seconds=1, **ids) from None

    async def _before(self, session: SharedSession, item: Message | BadMessage | Batch) -> None:
        """Record what a message changes in the session, before it is processed."""
        position = self._replica.changes_at
        change = partial(updated, item=item, position=position, limits=self._limits)
        if change(session.record) != session.record:
            await session.update(change)
            carrier = session.record.carrier
            if carrier is not None and carrier != self._replica.number:
                await self._replica.tell(carrier, "session", session.session_id.encode())

    async def delete(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a DELETE, which ends the session at all replicas."""
        session = await self._find(request, principal)
        await self._replica.store.remove(_record_key(session.session_id))
        self._table.dismiss(session)
        for number in session.record.replicas:
            if number != self._replica.number:
                with suppress(StoreUnavailable):  # they notice it at the next request
                    await self._replica.tell(number, "over", session.session_id.encode())
        await request.respond(204)

    async def close(self) -> None:
        """Close all copies; accepted requests are answered. The sessions go on at other replicas.

        A request that waits for its client, whose answer reaches another replica now, gets it within ``stop_within``.
        """
        for session in self._table.serving:
            session.leave()
        await self._table.close(within=self._stop_within)
        self._replica.unfollow(self._heard, self._missed)
        if self._keeping is not None:
            self._keeping.cancel()
        for copying in self._copying.values():
            copying.cancel()
        await self._logs.close(_CLOSE_WITHIN)

    # --- Sessions ---

    def _new_session(self, request: HttpRequest, initialize: Request, principal: Principal | None) -> SharedSession:
        self._replica.check()
        params = initialize.params if isinstance(initialize.params, msgspec.Raw) else b"{}"
        record = SessionRecord(
            identity=identity_of(principal),
            initialize=bytes(params),
            replicas=(self._replica.number,),
            follower=self._replica.number,
            goes_on_at=(self._replica.changes_at, 0),
        )
        trace = request.trace_of(self._trace)
        return SharedSession(options=self._options, trace=trace, logs=self._logs, record=record)

    async def _enter(self, session: SharedSession, principal: Principal | None) -> bytes:
        session_id = os.urandom(ID_BYTES).hex()
        session.name(session_id)
        key = _record_key(session_id)
        version = await self._replica.store.put(key, _encode(session.record), version=0, ttl=session.ttl)
        session.version = version or 0
        self._know(session, principal)
        return session_id.encode()

    def _know(self, session: SharedSession, principal: Principal | None) -> None:
        self._table.enter(session, principal, session_id=session.session_id)
        session.expire_after(_DROP_AFTER, lambda: self._table.dismiss(session), confirmed_within=_DROP_AFTER)
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    async def _look_up(self, session_id: str, principal: Principal | None, request: HttpRequest) -> SharedSession:
        """Return an up-to-date copy of a session; raise `Refusal` if there is none for this principal."""
        if len(session_id) != 2 * ID_BYTES or not session_id.isalnum():
            raise session_over()
        session = self._table.lookup(session_id)
        if session is None:
            session = await self._copy(session_id, principal, request)
        elif not await session.touch():
            self._table.dismiss(session)
            raise session_over()
        if session.record.identity != identity_of(principal):
            raise session_over()
        return session

    async def _copy(self, session_id: str, principal: Principal | None, request: HttpRequest) -> SharedSession:
        """Return the copy of a session, created if necessary. Concurrent requests get the same copy."""
        if session_id not in self._copying:
            copying = asyncio.get_running_loop().create_task(self._make_copy(session_id, principal, request))
            self._copying[session_id] = copying
            copying.add_done_callback(lambda _: self._copying.pop(session_id, None))
        copying = self._copying[session_id]
        await asyncio.wait((copying,))
        if copying.cancelled():
            raise session_over()
        error = copying.exception()
        if error is not None:
            raise error.with_traceback(None)
        return copying.result()

    async def _make_copy(self, session_id: str, principal: Principal | None, request: HttpRequest) -> SharedSession:
        self._replica.check()
        found = await self._replica.store.get(_record_key(session_id))
        record = None if found is None else _read_record(found.value)
        if found is None or record is None or record.identity != identity_of(principal):
            raise session_over()
        await self._make_room()
        session = SharedSession(
            options=self._options, trace=request.trace_of(self._trace), logs=self._logs, record=record
        )
        session.version = found.version
        session.name(session_id)
        self._table.admit(session, principal)
        try:
            session.repeated.add(_SETUP_ID)
            await session.open(Request(_SETUP_ID, "initialize", msgspec.Raw(record.initialize)))
            session.repeated.discard(_SETUP_ID)
            if session.revision is None:
                raise session_over()  # noqa: TRY301 - the replicas do not serve the same revisions
            await session.set_up(setup(record))
            if self._replica.number not in session.record.replicas:
                await session.update(partial(_joined, number=self._replica.number))
            elif not await session.touch():
                raise session_over()  # noqa: TRY301 - it ended while the copy was made
            if len(session.record.replicas) > _MAX_REPLICAS:
                known = session.record.replicas
                gone = {number for number in known if not await self._replica.is_alive(number)}
                await session.update(partial(_left, numbers=gone))
        except BaseException:
            self._table.dismiss(session)
            raise
        self._know(session, principal)
        return session

    async def _make_room(self) -> None:
        """Drop the oldest idle copy if there are too many: it can be recreated."""
        idle = next((each for each in self._table.serving if not each.is_busy), None) if self._table.is_full else None
        if idle is not None:
            await self._table.dismissed(idle)

    async def _keep(self) -> None:
        """Keep the records of sessions that have requests or streams open."""
        while True:
            await asyncio.sleep(min(self._options.session_ttl, CONFIRM_WITHIN) / 3)
            now = asyncio.get_running_loop().time()
            busy_ones = [each for each in self._table.serving if each.is_busy and each.version]
            for session in [each for each in busy_ones if now - each.touched_at >= each.ttl / 3]:
                with suppress(StoreUnavailable, Refusal):  # the next request finds it out
                    if not await session.touch():
                        self._table.dismiss(session)

    # --- What other replicas say ---

    def _told_deliver(self, _: int, body: bytes) -> None:
        session_id, line = _read_told(body)
        session = self._table.lookup(session_id)
        if session is not None:
            self._logs.start(session.told(line))

    def _told_carry(self, sender: int, body: bytes) -> None:
        session_id, number, replica = body.decode().split()
        session = self._table.lookup(session_id)
        if session is not None:
            session.carried_by(int(number), int(replica))
        self._told_owns(sender, body)

    def _told_owns(self, _: int, body: bytes) -> None:
        """Say so if the store got all of a stream: the replica that asks may wait for what was lost there."""
        session_id, number, replica = body.decode().split()
        session = self._table.lookup(session_id)
        if session is None or not session.owns(int(number)):
            self._logs.start(self._tell_all(int(replica), f"{session_id} {number}".encode()))

    async def _tell_all(self, replica: int, body: bytes) -> None:
        with suppress(StoreUnavailable):  # it asks again
            await self._replica.tell(replica, "all", body)

    def _told_grew(self, _: int, body: bytes) -> None:
        session_id, number = body.decode().split()
        session = self._table.lookup(session_id)
        if session is not None:
            session.grew(int(number))

    def _told_all(self, _: int, body: bytes) -> None:
        session_id, number = body.decode().split()
        session = self._table.lookup(session_id)
        if session is not None:
            session.grew(int(number), is_all=True)

    def _told_message(self, _: int, body: bytes) -> None:
        session = self._table.lookup(body.decode())
        if session is not None:
            session.stream.has_news()

    def _told_session(self, _: int, body: bytes) -> None:
        session = self._table.lookup(body.decode())
        if session is not None:
            self._logs.start(_quietly_refreshed(session))

    def _told_over(self, _: int, body: bytes) -> None:
        session = self._table.lookup(body.decode())
        if session is not None:
            self._table.dismiss(session)

    def _told_stop(self, _: int, body: bytes) -> None:
        session = self._table.lookup(body.decode())
        if session is not None and session.stream.response is not None:
            session.stream.response.end()

    def _heard(self, position: int, body: bytes) -> None:
        change = read_change(body)
        if change is None:
            self._missed()
        else:
            line = encoded(change)
            for session in self._table.serving:
                session.stream.heard(position, change, line)

    def _missed(self) -> None:
        for session in self._table.serving:
            session.stream.missed()


async def _quietly_refreshed(session: SharedSession) -> None:
    with suppress(StoreUnavailable, Refusal):  # the next request finds it out
        await session.refresh()


def _joined(record: SessionRecord, *, number: int) -> SessionRecord:
    return record if number in record.replicas else replace(record, replicas=(*record.replicas, number))


def _left(record: SessionRecord, *, numbers: set[int]) -> SessionRecord:
    return replace(record, replicas=tuple(number for number in record.replicas if number not in numbers))

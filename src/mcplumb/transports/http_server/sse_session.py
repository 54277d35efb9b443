"""HTTP+SSE, the transport of the first revision: the client opens one stream and posts to an endpoint."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

import msgspec
from msgspec import UNSET

from mcplumb.errors import StoreUnavailable
from mcplumb.limits import Limits
from mcplumb.protocol.principal import Principal, identity_of
from mcplumb.transports.connection import Serve
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal, stopping
from mcplumb.transports.http_server.event_streams import EventStream
from mcplumb.transports.http_server.http_options import MESSAGES_PATH, HttpOptions
from mcplumb.transports.http_server.legacy_post import PostConnection, busy, check_reads_events, session_over
from mcplumb.transports.http_server.legacy_session import TWICE, cancelled_request
from mcplumb.transports.http_server.session_table import SessionTable
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import (
    INVALID_REQUEST,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
)
from mcplumb.wire.server_sent_events import encode_event

if TYPE_CHECKING:
    from mcplumb.stores.replica import Replica

__all__ = ["SseSessions"]

_TOO_MANY = "This client has too many open requests. Send this one again when some have been answered."
#: Characters of the longest session id that is looked up.
_LONGEST_ID = 100
#: Seconds for the replica that has the stream to accept a message: it may have to reach the store again first.
_CONFIRM_WITHIN = 10.0
#: Seconds before another attempt to confirm a message, and for the last ones when the sessions are closed.
_AGAIN, _CLOSE_WITHIN = 0.2, 1.0
_UNCONFIRMED = (
    "The replica that has the stream of this session did not confirm the message: whether it was accepted is unknown."
)


class _Owner(msgspec.Struct, array_like=True, frozen=True):
    """The replica that has the stream of a session, and who opened it."""

    number: int
    identity: str | None


class _Told(msgspec.Struct, array_like=True, frozen=True):
    """A message that was posted to another replica, and its sender."""

    session_id: str
    body: bytes
    principal: Principal | None
    #: The number of the post at that replica, which waits for the outcome.
    post: int


class _Outcome(msgspec.Struct, array_like=True, frozen=True):
    """Whether such a message was accepted: the status of the response to its post, and what is in a refusal."""

    post: int
    status: int = 202
    #: The code of a JSON-RPC error; None if the refusal is text.
    code: int | None = None
    message: str = ""
    request_id: RequestId | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_read_owner = msgspec.msgpack.Decoder(_Owner).decode
_read_told = msgspec.msgpack.Decoder(_Told).decode
_read_outcome = msgspec.msgpack.Decoder(_Outcome).decode


def _key(session_id: str) -> str:
    return f"{session_id}/sse"


class SseSessions:
    """All clients of an application that use HTTP+SSE. A session lasts as long as its stream."""

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        limits: Limits,
        check: Callable[[HttpRequest, Message | BadMessage | Batch], None] = lambda *_: None,
        replica: Replica | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._replica = replica
        self._keeping: asyncio.Task[None] | None = None
        #: Tasks that deliver messages of other replicas, or confirm them.
        self._delivering: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._posts = 0
        #: The outcomes of posts whose stream is at another replica.
        self._outcomes: dict[int, asyncio.Future[_Outcome]] = {}
        if replica is not None:
            replica.handle("sse", self._told)
            replica.handle("sse-outcome", self._told_outcome)
        self._options = options
        self._limits = limits
        self._check = check
        self._trace = trace
        self._table: SessionTable[_SseConnection] = SessionTable(serve, max_sessions=options.max_sessions)

    def __len__(self) -> int:
        return len(self._table)

    async def get(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a GET with a stream, whose first event names the endpoint; raise `Refusal` if there is no room."""
        check_reads_events(request)
        connection = _SseConnection(request, options=self._options, trace=request.trace_of(self._trace))
        session_id = ""
        try:
            self._table.admit(connection, principal)
            request.when_token_ends(connection.hang_up)
            session_id = self._table.enter(connection, principal)
            if self._replica is not None:
                await self._record(self._replica, session_id, principal)
            # A path, not a URL: the client may reach the server under another name.
            endpoint = f"{quote(request.root_path)}{MESSAGES_PATH}?session_id={session_id}"
            connection.stream.put(encode_event(endpoint.encode(), event="endpoint"))
            await connection.stream.finished()
        finally:
            connection.stream.abort()
            self._table.dismiss(connection)
            if self._replica is not None and session_id:
                with suppress(StoreUnavailable):
                    await self._replica.store.remove(_key(session_id))

    async def post(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a POST for the session in its query. The answer is sent on the stream."""
        ids = parse_qs(request.query).get("session_id", [""])
        connection = self._table.lookup(ids[0]) if self._replica is not None else None
        owner = None
        if self._replica is not None and connection is None:
            owner = await self._owner(self._replica, ids[0], principal)
        else:
            connection = self._table.find(ids[0], principal)
        body = await request.body(max_bytes=self._limits.max_line, within=self._options.body_within)
        if (trace := request.trace_of(self._trace)) is not None:
            trace("in", body)
        item = decode_line(body, True, self._limits.max_batch)
        self._check(request, item)
        if not isinstance(item, BadMessage) or item.is_response:
            if connection is not None:
                await connection.accept(item, principal)
            elif self._replica is not None and owner is not None:
                await self._tell(self._replica, owner, ids[0], body, principal)
        if isinstance(item, BadMessage):
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        await request.respond(202)

    async def close(self) -> None:
        """End all sessions; accepted requests are answered. If cancelled, it aborts."""
        if self._keeping is not None:
            self._keeping.cancel()
        try:
            await self._table.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_WITHIN):
                    while self._delivering or self._outcomes:
                        waiting: list[asyncio.Future[Any]] = [*self._delivering, *self._outcomes.values()]
                        await asyncio.wait(waiting)
        finally:
            self._is_closed = True
            for task in self._delivering:
                task.cancel()
            for outcome in self._outcomes.values():
                outcome.cancel()

    # --- Replicas: the one that has the stream of a session gets the messages that are posted to others ---

    async def _record(self, replica: Replica, session_id: str, principal: Principal | None) -> None:
        """Let other replicas know where the stream of a session is."""
        replica.check()
        owner = _encode(_Owner(replica.number, identity_of(principal)))
        await replica.store.put(_key(session_id), owner, version=0, ttl=self._options.session_ttl)
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep(replica))

    async def _keep(self, replica: Replica) -> None:
        while True:
            await asyncio.sleep(self._options.session_ttl / 3)
            for session_id in self._table.ids:
                with suppress(StoreUnavailable):
                    await replica.store.touch(_key(session_id), ttl=self._options.session_ttl)

    async def _owner(self, replica: Replica, session_id: str, principal: Principal | None) -> int:
        """Return the replica that has the stream of a session; raise `Refusal` if there is none for this principal."""
        if not (session_id.isascii() and session_id.isalnum() and len(session_id) <= _LONGEST_ID):
            raise session_over()
        record = await replica.store.get(_key(session_id))
        owner = None if record is None else _read_owner(record.value)
        if owner is None or owner.identity != identity_of(principal) or owner.number == replica.number:
            raise session_over()
        return owner.number

    async def _tell(
        self, replica: Replica, owner: int, session_id: str, body: bytes, principal: Principal | None
    ) -> None:
        """Pass a message to the replica that has the stream, and wait until that has accepted it.

        Raises `Refusal` if it is refused there, or the outcome is unknown: that replica was killed, or the store has
        lost the message.
        """
        from mcplumb.stores.replica import InboxFull

        self._posts += 1
        number = self._posts
        outcome: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._outcomes[number] = outcome
        try:
            try:
                is_told = await replica.tell(owner, "sse", _encode(_Told(session_id, body, principal, number)))
            except InboxFull:
                raise
            except StoreUnavailable as error:
                # The store knew the owner a moment ago, so it may have got the message.
                raise Refusal(504, f"{error} Whether the message was accepted is unknown.") from None
            if not is_told:
                if await replica.is_gone(owner):
                    raise session_over()
                raise StoreUnavailable("The replica that has the stream of this session is not there. Try again later.")
            await asyncio.wait((outcome,), timeout=_CONFIRM_WITHIN)
            if not outcome.done() or outcome.cancelled():
                raise Refusal(504, _UNCONFIRMED)
            refusal = _refusal(outcome.result())
        finally:
            del self._outcomes[number]
        if refusal is not None:
            raise refusal

    def _told_outcome(self, _: int, body: bytes) -> None:
        outcome = _read_outcome(body)
        waiting = self._outcomes.get(outcome.post)
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome)

    def _told(self, sender: int, body: bytes) -> None:
        if self._replica is not None and not self._is_closed:
            self._start(self._deliver(self._replica, sender, _read_told(body)))

    async def _deliver(self, replica: Replica, sender: int, told: _Told) -> None:
        """Accept a message that was posted to another replica, or refuse it, and let that replica know."""
        is_confirmed = False

        def confirm(refusal: Refusal | None = None) -> None:
            nonlocal is_confirmed
            if not is_confirmed:
                is_confirmed = True
                self._start(_confirm(replica, sender, _outcome(told.post, refusal)))

        connection = self._table.lookup(told.session_id)
        if connection is None:
            confirm(stopping() if self._table.is_closing else session_over())
            return
        try:
            # A message that waits is accepted. If the session ends first, the client notices the end of its stream.
            await connection.accept(decode_line(told.body, True, self._limits.max_batch), told.principal, waits=confirm)
        except Refusal as refusal:
            confirm(refusal)
        else:
            confirm()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._delivering.add(task)
        task.add_done_callback(self._delivering.discard)


async def _confirm(replica: Replica, sender: int, outcome: _Outcome) -> None:
    """Tell the replica with the post what became of it, also after an outage of the store."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CONFIRM_WITHIN):
            is_told = False
            while not is_told:
                with suppress(StoreUnavailable):
                    is_told = await replica.tell(sender, "sse-outcome", _encode(outcome))
                if not is_told:
                    await asyncio.sleep(_AGAIN)


def _outcome(post: int, refusal: Refusal | None) -> _Outcome:
    if refusal is None:
        return _Outcome(post)
    code = refusal.error.code if isinstance(refusal.error, ErrorDetail) else None
    request_id = None if refusal.request_id is UNSET else refusal.request_id
    return _Outcome(post, refusal.status, code, str(refusal), request_id, refusal.headers)


def _refusal(outcome: _Outcome) -> Refusal | None:
    """Return the refusal of a post; None if its message was accepted."""
    if outcome.status == 202:
        return None
    message = outcome.message
    error = message if outcome.code is None else ErrorDetail(outcome.code, message)
    request_id = UNSET if outcome.request_id is None else outcome.request_id
    return Refusal(outcome.status, error, request_id=request_id, headers=outcome.headers)


class _SseConnection(PostConnection):
    """The `Connection` of one session. It is created in a running event loop."""

    def __init__(self, request: HttpRequest, *, options: HttpOptions, trace: Trace | None) -> None:
        super().__init__(max_held=options.max_streams, trace=trace)
        self._request = request
        self._max_senders = options.max_streams
        #: Who sent each open request.
        self._senders: dict[RequestId, Principal | None] = {}
        self.stream = EventStream(
            request, keep_alive=options.keep_alive, write_within=options.write_within, gone=self._disconnected
        )

    def headers_of(self, _: RequestId) -> dict[str, str]:
        """Return the headers of the GET that opened the stream."""
        return self._request.headers

    async def accept(
        self,
        item: Message | BadMessage | Batch,
        principal: Principal | None,
        *,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """Pass a posted message to the receiver; raise `Refusal` if that is not possible.

        ``waits`` is called if it has to wait, because the connection is paused.
        """
        ids = self.note_sender(item, principal)
        try:
            await self.deliver(item, waits=waits)
        except BaseException:
            for each_id in ids:
                self._senders.pop(each_id, None)
            raise

    def note_sender(self, item: Message | BadMessage | Batch, principal: Principal | None) -> list[RequestId]:
        """Note who sends these requests, and return their ids: the token of a POST may differ from that of the stream.

        Raises `Refusal` if the client has too many open requests, or one with the same id.
        """
        for each in item.items if isinstance(item, Batch) else (item,):
            if isinstance(each, Notification) and (cancelled := cancelled_request(each)) is not None:
                self._senders.pop(cancelled, None)  # it gets no answer
        ids = [each.id for each in (item.items if isinstance(item, Batch) else (item,)) if isinstance(each, Request)]
        for each_id in ids:
            if each_id in self._senders:
                raise Refusal(400, ErrorDetail(INVALID_REQUEST, TWICE), request_id=each_id)
        if ids and len(self._senders) + len(ids) > self._max_senders:
            raise busy(_TOO_MANY, seconds=1, request_id=ids[0])
        self._senders.update(dict.fromkeys(ids, principal))
        return ids

    def principal_of(self, request_id: RequestId) -> Principal | None:
        """Return who sent a request."""
        return self._senders.get(request_id, self._request.principal)

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Send one message."""
        if isinstance(message, Result | Error) and message.id is not UNSET:
            self._senders.pop(message.id, None)
        if not self._is_closing:
            self.stream.put(encode_event(self._encode(message), event="message"))

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send several messages as one batch."""
        for message in messages:
            if isinstance(message, Result | Error) and message.id is not UNSET:
                self._senders.pop(message.id, None)
        if not self._is_closing:
            self.stream.put(encode_event(self._encode(*messages, is_batch=True), event="message"))

    @property
    def is_clogged(self) -> bool:
        """Whether the stream is clogged."""
        return self.stream.is_clogged

    async def drained(self) -> None:
        """Wait until the stream is no longer clogged."""
        await self.stream.drained()

    async def close(self) -> None:
        """Write what is queued, then end the stream. If cancelled, it aborts."""
        self._shut()
        self.stream.end()
        try:
            await self.stream.finished()
        except asyncio.CancelledError:
            self.stream.abort()
            raise

    def abort(self) -> None:
        """Abort the stream."""
        self._shut()
        self.stream.abort()

    def _disconnected(self) -> None:
        self.hang_up()
        self._loop.call_soon(self._report_break)

    def _report_break(self) -> None:
        if self._receiver is not None and not self._is_closing:
            self._receiver.broke(ConnectionResetError(errno.ECONNRESET, "the client has closed its stream"))

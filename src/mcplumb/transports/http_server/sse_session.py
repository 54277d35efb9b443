"""HTTP+SSE, the transport of the first revision: the client opens one stream and posts to an endpoint."""

from __future__ import annotations

import asyncio
import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs, quote

from msgspec import UNSET

from mcplumb.limits import Limits
from mcplumb.protocol.principal import Principal
from mcplumb.transports.connection import Serve
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.event_streams import EventStream
from mcplumb.transports.http_server.http_options import MESSAGES_PATH, HttpOptions
from mcplumb.transports.http_server.legacy_post import PostConnection, check_reads_events
from mcplumb.transports.http_server.session_table import SessionTable
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import Error, ErrorDetail, Message, Request, RequestId, Result
from mcplumb.wire.server_sent_events import encode_event

__all__ = ["SseSessions"]


class SseSessions:
    """All clients of an application that use HTTP+SSE. A session lasts as long as its stream."""

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        limits: Limits,
        check: Callable[[HttpRequest, Message | BadMessage | Batch], None] = lambda *_: None,
        trace: Trace | None = None,
    ) -> None:
        self._options = options
        self._limits = limits
        self._check = check
        self._trace = trace
        self._table: SessionTable[_SseConnection] = SessionTable(serve, max_sessions=options.max_sessions)

    async def get(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a GET with a stream, whose first event names the endpoint; raise `Refusal` if there is no room."""
        check_reads_events(request)
        connection = _SseConnection(request, options=self._options, trace=request.trace_of(self._trace))
        try:
            self._table.admit(connection, principal)
            request.when_token_ends(connection.hang_up)
            session_id = self._table.enter(connection, principal)
            # A path, not a URL: the client may reach the server under another name.
            endpoint = f"{quote(request.root_path)}{MESSAGES_PATH}?session_id={session_id}"
            connection.stream.put(encode_event(endpoint.encode(), event="endpoint"))
            await connection.stream.finished()
        finally:
            connection.stream.abort()
            self._table.dismiss(connection)

    async def post(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a POST for the session in its query. The answer is sent on the stream."""
        ids = parse_qs(request.query).get("session_id", [""])
        connection = self._table.find(ids[0], principal)
        body = await request.body(max_bytes=self._limits.max_line, within=self._options.body_within)
        if (trace := request.trace_of(self._trace)) is not None:
            trace("in", body)
        item = decode_line(body, True, self._limits.max_batch)
        self._check(request, item)
        if not isinstance(item, BadMessage) or item.is_response:
            connection.note_sender(item, principal)
            await connection.deliver(item)
        if isinstance(item, BadMessage):
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        await request.respond(202)

    async def close(self) -> None:
        """End all sessions; accepted requests are answered. If cancelled, it aborts."""
        await self._table.close()


class _SseConnection(PostConnection):
    """The `Connection` of one session. It is created in a running event loop."""

    def __init__(self, request: HttpRequest, *, options: HttpOptions, trace: Trace | None) -> None:
        super().__init__(max_held=options.max_streams, trace=trace)
        self._request = request
        self._max_senders = options.max_streams
        #: Who sent the open requests, the oldest first.
        self._senders: OrderedDict[RequestId, Principal] = OrderedDict()
        self.stream = EventStream(
            request, keep_alive=options.keep_alive, write_within=options.write_within, gone=self._disconnected
        )

    def headers_of(self, _: RequestId) -> dict[str, str]:
        """Return the headers of the GET that opened the stream."""
        return self._request.headers

    def note_sender(self, item: Message | BadMessage | Batch, principal: Principal | None) -> None:
        """Note who sends these requests: the token of a POST may differ from that of the stream."""
        if principal is None or principal is self._request.principal:
            return
        for each in item.items if isinstance(item, Batch) else (item,):
            if isinstance(each, Request):
                self._senders[each.id] = principal
        while len(self._senders) > self._max_senders:  # some were cancelled
            self._senders.popitem(last=False)

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

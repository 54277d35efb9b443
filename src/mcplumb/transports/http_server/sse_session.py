"""HTTP with server-sent events as the first revision has it: one stream to the client, and a place to post to."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from urllib.parse import parse_qs, quote

from mcplumb.limits import Limits
from mcplumb.transports.connection import Serve
from mcplumb.transports.http_server.event_streams import EventStream
from mcplumb.transports.http_server.legacy_post import PostedConnection, check_reads_events
from mcplumb.transports.http_server.options import MESSAGES_PATH, HttpOptions
from mcplumb.transports.http_server.request import HttpRequest, Refusal
from mcplumb.transports.http_server.session_table import Roster
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, decode_line
from mcplumb.wire.messages import ErrorDetail, Message, RequestId
from mcplumb.wire.server_sent_events import encode_event

__all__ = ["SsePairs"]


class SsePairs:
    """All clients of an application that use HTTP+SSE. Each is there as long as its stream is."""

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        limits: Limits,
        trace: Trace | None = None,
    ) -> None:
        self._options = options
        self._limits = limits
        self._trace = trace
        self._roster: Roster[_SseConnection] = Roster(serve, max_sessions=options.max_sessions)

    async def get(self, request: HttpRequest, principal: str | None = None) -> None:
        """Answer a GET with a stream, which first says where to post messages; `Refusal` if there is no room."""
        check_reads_events(request)
        client = _SseConnection(request, options=self._options, trace=self._trace)
        try:
            self._roster.admit(client, principal)
            session_id = self._roster.enter(client, principal)
            # A path, not an address: the client may know the server by another name than the server itself.
            place = f"{quote(request.root_path)}{MESSAGES_PATH}?session_id={session_id}"
            client.stream.put(encode_event(place.encode(), event="endpoint"))
            await client.stream.finished()
        finally:
            client.stream.abort()
            self._roster.dismiss(client)

    async def post(self, request: HttpRequest, principal: str | None = None) -> None:
        """Take in a message for the client whose id is in the address. The answer to it comes on the stream."""
        ids = parse_qs(request.query).get("session_id", [""])
        client = self._roster.find(ids[0], principal)
        body = await request.body(max_bytes=self._limits.max_line, within=self._options.body_within)
        if self._trace is not None:
            self._trace("in", body)
        item = decode_line(body, True, self._limits.max_batch)
        if not isinstance(item, BadMessage) or item.is_response:
            await client.deliver(item)
        if isinstance(item, BadMessage):
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        await request.respond(202)

    async def close(self) -> None:
        """End all of them; what was accepted is answered. Cancelled, it aborts."""
        await self._roster.close()


class _SseConnection(PostedConnection):
    """The `Connection` to one client, made in a running event loop."""

    def __init__(self, request: HttpRequest, *, options: HttpOptions, trace: Trace | None) -> None:
        super().__init__(max_held=options.max_streams, trace=trace)
        self.stream = EventStream(
            request, keep_alive=options.keep_alive, write_within=options.write_within, gone=self._leave
        )

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Send one message."""
        if not self._is_closing:
            self.stream.put(encode_event(self._written(message), event="message"))

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send several messages as one batch."""
        if not self._is_closing:
            self.stream.put(encode_event(self._written(*messages, is_batch=True), event="message"))

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not keep up."""
        return self.stream.is_clogged

    async def drained(self) -> None:
        """Wait until the client has caught up."""
        await self.stream.drained()

    async def close(self) -> None:
        """Write what is queued, and then end the stream. Cancelled, it aborts."""
        self._shut()
        self.stream.end()
        try:
            await self.stream.finished()
        except asyncio.CancelledError:
            self.stream.abort()
            raise

    def abort(self) -> None:
        """End the stream at once."""
        self._shut()
        self.stream.abort()

    def _leave(self) -> None:
        """The client is gone: it can neither send nor hear anything."""
        self.hang_up()
        self._loop.call_soon(self._tell_break)

    def _tell_break(self) -> None:
        if self._receiver is not None and not self._is_closing:
            self._receiver.broke(ConnectionResetError(errno.ECONNRESET, "the client has closed its stream"))

"""One POST of a modern client, as a `Connection` for one request or notification."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import suppress

from mcplumb.errors import Closed
from mcplumb.protocol.http_headers import status_of
from mcplumb.protocol.principal import Principal
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_server.asgi_request import JSON, HttpRequest
from mcplumb.transports.http_server.event_streams import EventStream
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Error, Message, Notification, Request, RequestId, encode_line

__all__ = ["ModernPost"]


class ModernPost:
    """A `Connection` that delivers one request or notification, and sends its answer and notifications before it.

    The HTTP response is JSON if only the answer is sent. A notification makes it a stream of events; if the client does
    not accept one, notifications are dropped. The post ends with the answer, or when the client disconnects.
    """

    __slots__ = (
        "_answer",
        "_bytes_out",
        "_has_ended",
        "_is_closed",
        "_is_delivered",
        "_is_delivering",
        "_is_flowing",
        "_is_gone",
        "_is_released",
        "_loop",
        "_message",
        "_messages_out",
        "_options",
        "_receiver",
        "_request",
        "_size",
        "_status",
        "_stream",
        "_trace",
    )

    _receiver: Receiver

    def __init__(
        self,
        request: HttpRequest,
        message: Request | Notification,
        *,
        size: int,
        options: HttpOptions,
        trace: Trace | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._message = message
        self._size = size
        self._options = options
        self._trace = trace
        self._is_flowing = False
        self._is_delivering = False
        self._is_delivered = False  # the receiver got the message
        self._has_ended = False  # the receiver was told of the end
        self._is_closed = False
        self._is_gone = False
        self._is_released = False
        self._stream: EventStream | None = None
        self._status = 200
        self._answer: bytes | None = None
        self._messages_out = self._bytes_out = 0

    @property
    def is_clogged(self) -> bool:
        """Whether the stream is clogged."""
        return self._stream is not None and self._stream.is_clogged

    @property
    def is_gone(self) -> bool:
        """Whether the client disconnected before the answer."""
        return self._is_gone

    @property
    def stats(self) -> Stats:
        """Messages and bytes so far."""
        is_delivered = self._is_delivered
        return Stats(int(is_delivered), self._messages_out, self._size if is_delivered else 0, self._bytes_out, 0)

    def headers_of(self, _: RequestId) -> dict[str, str]:
        """Return the headers of the POST."""
        return self._request.headers

    def principal_of(self, _: RequestId) -> Principal | None:
        """Return who sent the POST."""
        return self._request.principal

    # Receiving

    def start(self, receiver: Receiver) -> None:
        """Start to receive."""
        if not self._is_closed:
            self._receiver = receiver
            self.resume()

    def pause(self) -> None:
        """Hold the message back, unless it was delivered already."""
        self._is_flowing = False

    def resume(self) -> None:
        """Deliver the message in the next iteration of the loop."""
        if not self._is_flowing:
            self._is_flowing = True
            if not self._is_delivered:
                self._loop.call_soon(self._deliver)

    def end_input(self) -> None:
        """Report the end of input: a subscription ends then, and any other request should finish."""
        if self._is_delivered and not self._has_ended and not self._is_closed:
            self._has_ended = True
            self._receiver.ended(clean=True)

    def _deliver(self) -> None:
        if self._is_delivered or self._is_closed or not self._is_flowing:
            return
        self._is_delivered = self._is_delivering = True
        self._receiver.received(self._message)
        self._is_delivering = False
        if self._answer is not None or type(self._message) is Notification:
            self.end_input()
        elif not self._is_closed:
            self._request.when_token_ends(self.end_input)
            if self._stream is None:
                # Only now: watching the client costs a task, which a request that is answered at once does not need.
                self._request.watch(self._disconnected)

    def _disconnected(self) -> None:
        if not self._is_closed:
            self._is_gone = True
            self._receiver.broke(ConnectionResetError(errno.ECONNRESET, "the client disconnected before the answer"))

    # Sending

    def send(self, message: Message, about: object = None) -> None:
        """Send the answer, or a notification before it."""
        if self._is_closed or self._is_gone or self._answer is not None:
            return
        line = encode_line(message)
        if isinstance(message, Request):
            # The client has no way to answer it.
            refusal = Closed(f"{message.method} was not sent: over HTTP, a modern client accepts no requests.")
            self._loop.call_soon(self._fail, message.id, refusal)
            return
        is_answer = not isinstance(message, Notification)
        if not is_answer and not self._request.accepts("text/event-stream"):
            return
        if self._trace is not None:
            self._trace("out", line)
        self._messages_out += 1
        self._bytes_out += len(line)
        if is_answer:
            self._answer = line
            self._status = status_of(message.error) if isinstance(message, Error) else 200
            if not self._is_delivering:
                self._loop.call_soon(self.end_input)
        elif self._stream is None:
            options = self._options
            self._stream = EventStream(
                self._request, keep_alive=options.keep_alive, write_within=options.write_within, gone=self._disconnected
            )
        if self._stream is not None:
            self._stream.put(b"data: %b\n\n" % line)

    def _fail(self, request_id: RequestId, refusal: Closed) -> None:
        if not self._is_closed:
            self._receiver.failed(request_id, refusal)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send several messages one after the other: the modern era has no batches."""
        for message in messages:
            self.send(message)

    async def drained(self) -> None:
        """Wait until the stream is no longer clogged."""
        if self._stream is not None:
            await self._stream.drained()

    # Closing

    async def close(self) -> None:
        """Finish the HTTP response. If cancelled, it aborts."""
        was_closed, self._is_closed = self._is_closed, True
        if self._stream is not None:
            self._stream.end()
            try:
                await self._stream.finished()
            except asyncio.CancelledError:
                self._stream.abort()
                raise
        elif not was_closed:
            self._request.unwatch()
            if self._answer is not None:
                await self._respond(self._status, self._answer)
            elif type(self._message) is Notification:
                await self._respond(202)

    def abort(self) -> None:
        """Close at once; a response that has started breaks off."""
        if self._is_released:
            return
        self._is_released = self._is_closed = True
        self._request.unwatch()
        if self._stream is not None:
            self._stream.abort()
        # Breaks the reference cycle, which would keep the answer in memory until the next garbage collection.
        with suppress(AttributeError):
            del self._receiver
        self._answer = None

    async def _respond(self, status: int, body: bytes = b"") -> None:
        try:
            await self._request.respond(status, body, content_type=JSON if body else None)
        except OSError:
            self._is_gone = True

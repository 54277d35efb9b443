"""A modern request over HTTP: one POST, which is a connection of its own to those who serve it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from contextlib import suppress

from mcplumb.errors import Closed
from mcplumb.protocol.http_headers import status_of
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_server.event_streams import EventStream
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.request import JSON, HttpRequest
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Error, Message, Notification, Request, RequestId, encode_line

__all__ = ["Exchange"]


class Exchange:
    """A `Connection` that brings one request or notification, and takes the answer and what comes before it.

    The HTTP response is JSON if the answer is all there is. A notification makes it a stream, unless the client cannot
    read one: then there are no notifications. With the answer, or with the client's leaving, the exchange is over.
    """

    __slots__ = (
        "_answer",
        "_bytes_out",
        "_has_come",
        "_has_ended",
        "_is_closed",
        "_is_delivering",
        "_is_flowing",
        "_is_gone",
        "_is_let_go",
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
        self._has_come = False  # the message has been received
        self._has_ended = False  # and so has the end
        self._is_closed = False
        self._is_gone = False
        self._is_let_go = False
        self._stream: EventStream | None = None
        self._status = 200
        self._answer: bytes | None = None
        self._messages_out = self._bytes_out = 0

    @property
    def is_clogged(self) -> bool:
        """Whether the client does not keep up with its stream."""
        return self._stream is not None and self._stream.is_clogged

    @property
    def is_gone(self) -> bool:
        """Whether the client left before its answer."""
        return self._is_gone

    @property
    def stats(self) -> Stats:
        """What went over the connection so far."""
        has_come = self._has_come
        return Stats(int(has_come), self._messages_out, self._size if has_come else 0, self._bytes_out, 0)

    # What comes

    def start(self, receiver: Receiver) -> None:
        """Begin."""
        if not self._is_closed:
            self._receiver = receiver
            self.resume()

    def pause(self) -> None:
        """Hold the message back, if it has not been received yet."""
        self._is_flowing = False

    def resume(self) -> None:
        """Bring the message, in the next turn of the loop."""
        if not self._is_flowing:
            self._is_flowing = True
            if not self._has_come:
                self._loop.call_soon(self._deliver)

    def end_input(self) -> None:
        """The client will not get to say anything more: its subscriptions end, and other requests should."""
        if self._has_come and not self._has_ended and not self._is_closed:
            self._has_ended = True
            self._receiver.ended(clean=True)

    def _deliver(self) -> None:
        if self._has_come or self._is_closed or not self._is_flowing:
            return
        self._has_come = self._is_delivering = True
        self._receiver.received(self._message)
        self._is_delivering = False
        if self._answer is not None or type(self._message) is Notification:
            self.end_input()
        elif self._stream is None and not self._is_closed:
            # Whoever answers at once is not worth a look at the client.
            self._request.watch(self._leave)

    def _leave(self) -> None:
        if not self._is_closed:
            self._is_gone = True
            self._receiver.broke(ConnectionResetError(errno.ECONNRESET, "the client left before its answer"))

    # What goes

    def send(self, message: Message, about: object = None) -> None:
        """Send the answer, or a notification before it."""
        if self._is_closed or self._is_gone or self._answer is not None:
            return
        line = encode_line(message)
        if isinstance(message, Request):
            # There is nobody who could answer.
            refusal = Closed(f"{message.method} was not sent: over HTTP, a modern client takes no requests.")
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
                self._request, keep_alive=options.keep_alive, write_within=options.write_within, gone=self._leave
            )
        if self._stream is not None:
            self._stream.put(b"data: %b\n\n" % line)

    def _fail(self, request_id: RequestId, refusal: Closed) -> None:
        if not self._is_closed:
            self._receiver.failed(request_id, refusal)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send several, one after the other: there are no batches here."""
        for message in messages:
            self.send(message)

    async def drained(self) -> None:
        """Wait until the client keeps up with its stream."""
        if self._stream is not None:
            await self._stream.drained()

    # How it ends

    async def close(self) -> None:
        """Finish the HTTP response. Cancelled, it aborts."""
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
        """Give up; a response that has begun is torn."""
        if self._is_let_go:
            return
        self._is_let_go = self._is_closed = True
        self._request.unwatch()
        if self._stream is not None:
            self._stream.abort()
        # Each of the two would keep the other, and the answer with it, until the garbage collector came by.
        with suppress(AttributeError):
            del self._receiver
        self._answer = None

    async def _respond(self, status: int, body: bytes = b"") -> None:
        try:
            await self._request.respond(status, body, content_type=JSON if body else None)
        except OSError:
            self._is_gone = True

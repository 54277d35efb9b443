"""One POST of a modern client, as a `Connection` for one request or notification.

Most requests are answered at once, or after a while, with one JSON response and nothing else. For these, the session
of a post needs no task: the post delivers the message itself (`ModernPost.begin`), and reports the answer to its
`Exchange`. When there is more to do, because the response becomes a stream, the client disconnects or the server stops,
the exchange is told to have the post served by a task, as any other connection.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from mcplumb.errors import Closed
from mcplumb.protocol.http_headers import status_of
from mcplumb.protocol.principal import Principal
from mcplumb.transports.connection import Connection, Peer, Receiver, Stats
from mcplumb.transports.http_server.asgi_request import JSON, HttpRequest
from mcplumb.transports.http_server.event_streams import EventStream
from mcplumb.transports.http_server.exchange import DirectPost, Exchange
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Error, Message, Notification, Request, RequestId, encode_line

__all__ = ["AsgiExchange", "ModernPost", "PostKeeper", "PostSessions"]


class PostSessions(Protocol):
    """The sessions of posts that no task serves."""

    def begin(self, connection: Connection, peer: Peer, loop: asyncio.AbstractEventLoop) -> Any:
        """Return a session, which is a `Receiver`; None if the connection has to be served by a task."""

    def wait(self, session: Any, on_stop: Callable[[], None]) -> None:
        """Keep a session until its request is answered. ``on_stop`` is called if a task has to serve it now."""

    def end(self, session: Any) -> bool:
        """Release a session whose request is answered; return False if a task has to serve it until its end."""

    def drop(self, session: Any) -> None:
        """Cancel all work of a session, and release it."""


class ModernPost:
    """A `Connection` that delivers one request or notification, and sends its answer and notifications before it.

    The HTTP response is JSON if only the answer is sent. A notification makes it a stream of events; if the client does
    not accept one, notifications are dropped. The post ends with the answer, or when the client disconnects.
    """

    __slots__ = (
        "_answer",
        "_bytes_out",
        "_exchange",
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
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._loop = loop
        self._request = request
        self._message = message
        self._size = size
        self._options = options
        self._trace = trace
        self._is_flowing = False
        self._is_delivering = False
        self._is_delivered = False  # the receiver got the message
        self._has_ended = False  # the end was reported to the receiver
        self._is_closed = False
        self._is_gone = False
        self._is_released = False
        self._stream: EventStream | None = None
        #: Who takes the answer; None if a task serves the post.
        self._exchange: Exchange | None = None
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
    def answer_to_send(self) -> tuple[int, bytes] | None:
        """The status and the body of the response, as soon as the request is answered."""
        return None if self._answer is None else (self._status, self._answer)

    @property
    def receiver(self) -> Any:
        """The session that the message was delivered to."""
        return self._receiver

    @property
    def stats(self) -> Stats:
        """Messages and bytes so far."""
        is_delivered = self._is_delivered
        return Stats(int(is_delivered), self._messages_out, self._size if is_delivered else 0, self._bytes_out, 0)

    def headers_of(self, _: RequestId) -> dict[str, str]:
        """Return the headers of the POST."""
        headers = self._request.headers
        if "content-length" in headers:
            headers["content-length"] = str(self._size)  # of a repeated head, all the rest is the same
        return headers

    def principal_of(self, _: RequestId) -> Principal | None:
        """Return the sender of the POST."""
        return self._request.principal

    # Receiving

    def begin(self, receiver: Receiver, exchange: Exchange) -> None:
        """Deliver the message now, in place of `start`, which then does nothing. Not to be called within a task."""
        self._receiver = receiver
        self._exchange = exchange
        self._is_flowing = True
        self._is_delivered = self._is_delivering = True
        receiver.received(self._message)
        self._is_delivering = False
        self._delivered()

    def _delivered(self) -> None:
        exchange = self._exchange
        if exchange is None:  # a task serves it already, because there is a stream
            if self._answer is not None:
                self.end_input()
            else:
                self._request.when_token_ends(self.end_input)
        elif self._answer is None:
            exchange.waits(self)
        elif exchange.answered(self):
            self._exchange = None
        else:
            self.end_input()

    def start(self, receiver: Receiver) -> None:
        """Start to receive."""
        if not self._is_closed and not self._is_delivered:
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
            self.serve()

    def serve(self) -> None:
        """Let a task serve this from now on, because there is more to do than to answer. May be called again."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._request = exchange.serve(self)
            if self._stream is None and not self._is_gone:
                self._request.watch(self.disconnected)

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
                self._request.watch(self.disconnected)

    def disconnected(self) -> None:
        """Cancel the request: its client is gone."""
        if not self._is_closed:
            self._is_gone = True
            self._receiver.broke(ConnectionResetError(errno.ECONNRESET, "the client disconnected before the answer"))
            self.serve()

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
            if self._is_delivering:
                pass  # more is done when the message is delivered
            elif self._exchange is not None and self._exchange.answered(self):
                self._exchange = None
            else:
                self._loop.call_soon(self.end_input)
        elif self._stream is None:
            self.serve()
            options = self._options
            self._stream = EventStream(
                self._request, keep_alive=options.keep_alive, write_within=options.write_within, gone=self.disconnected
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


# A post within the task of its ASGI request


class PostKeeper(Protocol):
    """Keeps the posts that no task serves."""

    def keep_waiting(self, post: DirectPost) -> None:
        """Keep a post that is not answered yet. May be called again."""

    def release(self, post: DirectPost) -> bool:
        """Release a post that is answered; return False if a task has to serve it until its end."""


class AsgiExchange:
    """Takes the answer of a `ModernPost` for the ASGI task of its request."""

    __slots__ = ("_app", "_request", "settled")

    def __init__(self, app: PostKeeper, request: HttpRequest, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._request = request
        #: Resolves to the status and the body of the response; None if the task has to serve the post.
        self.settled: asyncio.Future[tuple[int, bytes] | None] = loop.create_future()

    def waits(self, post: DirectPost) -> None:
        """Watch the client and its token."""
        self._app.keep_waiting(post)
        self._request.watch(post.disconnected)
        self._request.when_token_ends(cast("ModernPost", post).end_input)

    def answered(self, post: DirectPost) -> bool:
        """Let the task send the answer."""
        answer = post.answer_to_send
        self._request.unwatch()
        if not self._app.release(post):
            return False
        if not self.settled.done():  # the task may be cancelled
            self.settled.set_result(answer)
        return True

    def serve(self, post: DirectPost) -> HttpRequest:
        """Let the task serve the post."""
        self._app.keep_waiting(post)
        if not self.settled.done():
            self.settled.set_result(None)
        return self._request

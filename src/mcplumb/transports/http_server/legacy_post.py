"""POST requests of legacy clients: `PostConnection` receives the messages, `LegacyPost` answers the requests in one.

Most requests of an open session are answered with one JSON response and nothing else. For these, `SessionPost` needs no
task: it reports the answer to its `Exchange`. If the response becomes a stream, or there is none, or the client
disconnects, the exchange is told to have the post served by a task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb.revisions import LATEST
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_server.asgi_request import JSON, HttpRequest, Refusal
from mcplumb.transports.http_server.event_streams import Channel, Channels, EventStream
from mcplumb.transports.http_server.exchange import Exchange
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorDetail,
    Message,
    RequestId,
    encode_batch,
    encode_line,
)

__all__ = [
    "LegacyPost",
    "PostConnection",
    "SessionPost",
    "busy",
    "check_reads_events",
    "session_elsewhere",
    "session_over",
]

_EVENTS = b"text/event-stream"
#: The outcome of a post while there is none.
_PENDING: Final = msgspec.UNSET


def session_over() -> Refusal:
    """Return the refusal of a request whose session does not exist, has ended, or belongs to another client."""
    return Refusal(404, ErrorDetail(INVALID_REQUEST, "There is no such session, or it has ended: start a new one."))


def session_elsewhere() -> Refusal:
    """Return the refusal of a request whose session another process has opened."""
    sentence = (
        "This session belongs to another process of the server, or to one that has ended: start a new one. Several "
        f"processes need routing by Mcp-Session-Id, or Server(revisions=[{LATEST.name!r}])."
    )
    return Refusal(404, ErrorDetail(INVALID_REQUEST, sentence))


def busy(sentence: str, *, seconds: int, request_id: RequestId | UnsetType = UNSET) -> Refusal:
    """Return the refusal of a request that exceeds a limit; the client may retry after this many seconds."""
    headers = [(b"retry-after", b"%d" % seconds)]
    return Refusal(503, ErrorDetail(INTERNAL_ERROR, sentence), request_id=request_id, headers=headers)


def check_reads_events(request: HttpRequest) -> None:
    """Raise `Refusal` if the client does not accept a stream of events."""
    if not request.accepts("text/event-stream"):
        raise Refusal(
            406,
            ErrorDetail(
                INVALID_REQUEST, "The response to a GET is text/event-stream: the Accept header must allow that."
            ),
        )


class PostConnection:
    """The receiving half of a `Connection` whose client sends each message in a POST.

    Created in a running event loop. At most ``max_held`` messages wait in it while it is paused.
    """

    def __init__(self, *, max_held: int, trace: Trace | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._trace = trace
        self._receiver: Receiver | None = None
        # Clear while paused and before the start; always set after the end.
        self._flowing = asyncio.Event()
        self._held = 0
        self._max_held = max_held
        #: Whether the client can send nothing more.
        self.has_hung_up = False
        self._is_closing = False
        self._messages_in = self._messages_out = self._bad = 0
        self._bytes_out = 0

    @property
    def stats(self) -> Stats:
        """Messages and bytes so far; received bytes are not counted."""
        return Stats(self._messages_in, self._messages_out, 0, self._bytes_out, self._bad)

    def start(self, receiver: Receiver) -> None:
        """Start to receive."""
        self._receiver = receiver
        self._flowing.set()
        if self.has_hung_up:
            self._loop.call_soon(self._report_end)

    def pause(self) -> None:
        """Hold back messages: their POSTs wait for the HTTP response."""
        if not self.has_hung_up:
            self._flowing.clear()

    def resume(self) -> None:
        """Receive again, from the next iteration of the loop on."""
        self._flowing.set()

    async def deliver(self, item: Message | BadMessage | Batch, *, waits: Callable[[], None] = lambda: None) -> None:
        """Pass a posted message to the receiver, after waiting while paused; ``waits`` is called if it has to wait.

        Raises `Refusal` if too many messages wait, or if the session ends first.
        """
        if not self._flowing.is_set():
            if self._held >= self._max_held:
                raise busy("Too many messages of this session wait already. Send this one again later.", seconds=1)
            self._held += 1
            waits()
            try:
                while not self._flowing.is_set():
                    await self._flowing.wait()
            finally:
                self._held -= 1
        if self.has_hung_up or self._receiver is None:
            raise session_over()
        if isinstance(item, BadMessage):
            self._bad += 1
        else:
            self._messages_in += 1
        self._receiver.received(item)

    def hang_up(self) -> None:
        """Report that the client sends nothing more. May be called again."""
        if not self.has_hung_up:
            self.has_hung_up = True
            self._flowing.set()
            if self._receiver is not None:
                self._loop.call_soon(self._report_end)

    def _report_end(self) -> None:
        if self._receiver is not None and not self._is_closing:
            self._receiver.ended(clean=True)

    def _shut(self) -> None:
        """Receive and send nothing more."""
        self._is_closing = self.has_hung_up = True
        self._flowing.set()

    def _encode(self, *messages: Message, is_batch: bool = False) -> bytes:
        """Return what to send as JSON without a newline, and count and trace it."""
        line = encode_batch(messages) if is_batch else encode_line(messages[0])
        if self._trace is not None:
            self._trace("out", line)
        self._messages_out += 1
        self._bytes_out += len(line)
        return line


class LegacyPost:
    """A POST with requests in it, until they are answered: by JSON, or by a stream of events.

    The response becomes a stream if a message is sent before the answer. Created in a running event loop. Without a
    ``request``, the answer is available by ``text`` only.
    """

    __slots__ = (
        "_cancelled",
        "_channel",
        "_channels",
        "_decided",
        "_is_batch",
        "_outcome",
        "_request",
        "ids",
        "source",
    )

    def __init__(
        self, channels: Channels, request: HttpRequest | None, ids: tuple[int | str, ...], *, is_batch: bool = False
    ) -> None:
        self.ids = ids
        self._is_batch = is_batch
        self._cancelled: set[int | str] | None = None
        self._channels = channels
        #: The HTTP request that the requests came in.
        self.source = request
        #: The same; None if the response can no longer become a stream.
        self._request = request
        self._channel: Channel | None = None
        #: The response: JSON, a stream, a refusal, or None for an empty stream.
        self._outcome: bytes | EventStream | Refusal | UnsetType | None = _PENDING
        #: Done when there is an outcome; None while no task waits for it.
        self._decided: asyncio.Future[None] | None = None

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers of the HTTP request."""
        return None if self.source is None else self.source.headers

    async def respond(self, request: HttpRequest, *, keep_alive: float) -> None:
        """Send the response, in the task of the request. After ``keep_alive`` seconds it becomes a stream.

        If cancelled, a JSON answer is lost, but the messages of a stream are kept for the client.
        """
        timer = asyncio.get_running_loop().call_later(keep_alive, self.channel)
        try:
            outcome = await self._settled()
        finally:
            timer.cancel()
            self._request = None
        if isinstance(outcome, EventStream):
            await self._channels.finish(outcome)
        elif isinstance(outcome, Refusal):
            raise outcome
        elif outcome is None:
            await request.respond(200, content_type=_EVENTS)
        else:
            await request.respond(200, outcome, content_type=JSON)

    async def text(self) -> bytes:
        """Wait for the answer and return it; raise `Refusal` if there will be none."""
        outcome = await self._settled()
        if isinstance(outcome, bytes):
            return outcome
        raise outcome if isinstance(outcome, Refusal) else session_over()

    def channel(self) -> Channel | None:
        """Return the channel for messages before the answer; None if the client does not accept a stream."""
        request = self._request
        if self._channel is None and request is not None and request.accepts("text/event-stream"):
            self._channel = self._channels.open(self.ids, is_batch=self._is_batch)
            self._decide(self._channel.begin(request))
        return self._channel

    def answer(self, text: bytes) -> None:
        """Answer all requests of the POST."""
        if self._channel is not None:
            self._channel.put(text, is_last=True)
        self._end(text)

    def cancel(self, request_id: int | str) -> bool:
        """Expect no answer to this request. Return True if all requests of the POST are cancelled; it ends then."""
        if self._cancelled is None:
            self._cancelled = set()
        self._cancelled.add(request_id)
        if len(self._cancelled) < len(self.ids):
            return False
        self._end(None)
        return True

    def release(self, retry: int) -> None:
        """End the response, and tell the client to reconnect after this many milliseconds."""
        channel = self.channel()
        if channel is not None:
            channel.release(retry)

    def give_up(self) -> None:
        """End without an answer, since the session is over."""
        self._end(session_over())

    def _end(self, outcome: bytes | Refusal | None) -> None:
        if self._channel is not None:
            self._channels.close(self._channel)
        else:
            self._decide(outcome)

    async def _settled(self) -> bytes | EventStream | Refusal | None:
        """Wait for the outcome and return it."""
        if self._outcome is _PENDING:
            self._decided = asyncio.get_running_loop().create_future()
            await self._decided
        return cast("bytes | EventStream | Refusal | None", self._outcome)

    def _decide(self, outcome: bytes | EventStream | Refusal | None) -> None:
        if self._outcome is _PENDING:
            self._outcome = outcome
            if self._decided is not None and not self._decided.done():  # it is cancelled with the task that awaits it
                self._decided.set_result(None)


class SessionPost(LegacyPost):
    """A POST with one request of an open session, which needs a task only if there is more to do than to answer.

    ``request`` has the head of the POST, apart from the length of the body and the id of the session. ``ended`` is
    called when the response has ended.
    """

    __slots__ = ("_ended", "_exchange", "_is_delivered", "_session_id", "_size", "due", "is_gone")

    def __init__(
        self,
        channels: Channels,
        request: HttpRequest,
        request_id: RequestId,
        exchange: Exchange,
        *,
        size: int,
        session_id: str,
        ended: Callable[[SessionPost], None],
    ) -> None:
        super().__init__(channels, request, (request_id,))
        #: Who takes the answer; None if it was taken, or if a task serves the post.
        self._exchange: Exchange | None = exchange
        self._size = size
        self._session_id = session_id
        self._ended = ended
        self._is_delivered = False
        #: Whether the client disconnected before the answer.
        self.is_gone = False
        #: When the response becomes a stream, by the clock of the event loop.
        self.due = 0.0

    @property
    def headers(self) -> dict[str, str] | None:
        """The headers of the HTTP request."""
        found = super().headers
        if found is not None:
            found["content-length"] = str(self._size)
            found["mcp-session-id"] = self._session_id
        return found

    @property
    def answer_to_send(self) -> tuple[int, bytes] | None:
        """The status and the body of the response, if the answer is all of it."""
        return (200, self._outcome) if isinstance(self._outcome, bytes) else None

    @property
    def is_waiting(self) -> bool:
        """Whether it is neither answered nor served by a task."""
        return self._exchange is not None

    def delivered(self) -> bool:
        """Respond, if the request was answered while it was delivered. Return whether it waits for the answer."""
        self._is_delivered = True
        exchange = self._exchange
        if exchange is None:
            return False
        if self._outcome is not _PENDING:
            self._exchange = None
            exchange.answered(self)
            self._ended(self)
            return False
        exchange.waits(self)
        return True

    def serve(self) -> None:
        """Let a task serve this from now on, because there is more to do than to answer. May be called again."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self.source = self._request = exchange.serve(self)

    def disconnected(self) -> None:
        """Keep the messages, or lose the answer: a legacy client that disconnects does not cancel its request."""
        self.is_gone = True
        self.serve()

    async def finish(self, request: HttpRequest, *, keep_alive: float) -> None:
        """Send the response, in the task of the request."""
        try:
            await self.respond(request, keep_alive=keep_alive)
        finally:
            self._ended(self)

    def channel(self) -> Channel | None:
        """Return the channel for messages before the answer; None if the client does not accept a stream."""
        request = self._request
        if self._exchange is not None and request is not None and request.accepts("text/event-stream"):
            self.serve()
        return super().channel()

    def _decide(self, outcome: bytes | EventStream | Refusal | None) -> None:
        exchange = self._exchange
        if exchange is not None and isinstance(outcome, bytes):
            super()._decide(outcome)
            if self._is_delivered:
                self._exchange = None
                exchange.answered(self)
                self._ended(self)
            return
        self.serve()
        super()._decide(outcome)

"""POST requests of legacy sessions, and their answers as JSON or as a stream."""

from __future__ import annotations

import asyncio

from msgspec import UNSET, UnsetType

from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_server.event_streams import Channel, Channels, EventStream
from mcplumb.transports.http_server.request import JSON, HttpRequest, Refusal
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

__all__ = ["Post", "PostedConnection", "busy", "check_reads_events", "session_over"]


# What connections have in common whose client sends each message with an HTTP request of its own.


def session_over() -> Refusal:
    """The session that the request is for does not exist: not any more, or not for this client."""
    return Refusal(404, ErrorDetail(INVALID_REQUEST, "There is no such session, or it is over: begin a new one."))


def busy(sentence: str, *, seconds: int, request_id: RequestId | UnsetType = UNSET) -> Refusal:
    """There is no room for this at the moment, and may be after so many seconds."""
    headers = [(b"retry-after", b"%d" % seconds)]
    return Refusal(503, ErrorDetail(INTERNAL_ERROR, sentence), request_id=request_id, headers=headers)


def check_reads_events(request: HttpRequest) -> None:
    """`Refusal` if the client cannot read a stream."""
    if not request.accepts("text/event-stream"):
        raise Refusal(406, ErrorDetail(INVALID_REQUEST, "A GET is answered with text/event-stream: accept that."))


class PostedConnection:
    """The incoming half of a `Connection`, made in a running event loop. At most ``max_held`` messages wait in it."""

    def __init__(self, *, max_held: int, trace: Trace | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._trace = trace
        self._receiver: Receiver | None = None
        # Set while messages are received, and for ever when none will be any more.
        self._may_go_on = asyncio.Event()
        self._held = 0
        self._max_held = max_held
        #: Whether the client can send no more.
        self.has_hung_up = False
        self._is_closing = False
        self._messages_in = self._messages_out = self._bad = 0
        self._bytes_out = 0

    @property
    def stats(self) -> Stats:
        """What went over the connection so far. What came in with HTTP is not counted in bytes."""
        return Stats(self._messages_in, self._messages_out, 0, self._bytes_out, self._bad)

    def start(self, receiver: Receiver) -> None:
        """Begin to receive."""
        self._receiver = receiver
        self._may_go_on.set()
        if self.has_hung_up:
            self._loop.call_soon(self._tell_end)

    def pause(self) -> None:
        """Hold back what comes in: those who sent it wait for the HTTP answer."""
        if not self.has_hung_up:
            self._may_go_on.clear()

    def resume(self) -> None:
        """Go on, in the next turn of the loop."""
        self._may_go_on.set()

    async def deliver(self, item: Message | BadMessage | Batch) -> None:
        """Pass on what a client has posted, once that is wanted; `Refusal` if it will not be, or cannot wait."""
        if not self._may_go_on.is_set():
            if self._held >= self._max_held:
                raise busy("Too many messages of this session wait already. Send this one again later.", seconds=1)
            self._held += 1
            try:
                while not self._may_go_on.is_set():
                    await self._may_go_on.wait()
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
        """The client sends no more. May be called again."""
        if not self.has_hung_up:
            self.has_hung_up = True
            self._may_go_on.set()
            if self._receiver is not None:
                self._loop.call_soon(self._tell_end)

    def _tell_end(self) -> None:
        if self._receiver is not None and not self._is_closing:
            self._receiver.ended(clean=True)

    def _shut(self) -> None:
        """From now on nothing is received, and nothing more is sent."""
        self._is_closing = self.has_hung_up = True
        self._may_go_on.set()

    def _written(self, *messages: Message, is_batch: bool = False) -> bytes:
        """What goes out, as JSON without a line end."""
        line = encode_batch(messages) if is_batch else encode_line(messages[0])
        if self._trace is not None:
            self._trace("out", line)
        self._messages_out += 1
        self._bytes_out += len(line)
        return line


# A POST with requests in it, until they are answered: by one JSON text, or by a stream that ends with it.


_EVENTS = b"text/event-stream"


class Post:
    """The requests with these ids. It is a stream as soon as something is said before their answer.

    Made in a running event loop. Without a ``request`` there is only ``text``.
    """

    __slots__ = ("_cancelled", "_channel", "_channels", "_outcome", "_request", "ids")

    def __init__(self, channels: Channels, request: HttpRequest | None, ids: tuple[int | str, ...]) -> None:
        self.ids = ids
        self._cancelled: set[int | str] = set()
        self._channels = channels
        #: None if it can no longer become a stream.
        self._request = request
        self._channel: Channel | None = None
        #: How it is answered: with JSON, a stream, a refusal, or nothing.
        self._outcome: asyncio.Future[bytes | EventStream | Refusal | None] = asyncio.get_running_loop().create_future()

    async def respond(self, request: HttpRequest, *, keep_alive: float) -> None:
        """Answer, in the request's own task; after ``keep_alive`` seconds at the latest, with the head of a stream.

        Cancelled, the client gets no JSON any more, but what is on a stream is kept for it.
        """
        beginning = asyncio.get_running_loop().call_later(keep_alive, self.channel)
        try:
            outcome = await self._outcome
        finally:
            beginning.cancel()
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
        """The answer; `Refusal` if there will be none."""
        outcome = await self._outcome
        if isinstance(outcome, bytes):
            return outcome
        raise outcome if isinstance(outcome, Refusal) else session_over()

    def channel(self) -> Channel | None:
        """Where to say what comes before the answer; None if the client does not hear it here."""
        request = self._request
        if self._channel is None and request is not None and request.accepts("text/event-stream"):
            self._channel = self._channels.open()
            self._decide(self._channel.begin(request))
        return self._channel

    def answer(self, text: bytes) -> None:
        """All that was asked for is answered by this."""
        if self._channel is not None:
            self._channel.put(text)
        self._end(text)

    def cancel(self, request_id: int | str) -> bool:
        """The client wants no answer to this request; True if no other is left, and all is over."""
        self._cancelled.add(request_id)
        if len(self._cancelled) < len(self.ids):
            return False
        self._end(None)
        return True

    def release(self, retry: int) -> None:
        """End the response, and let the client come back for the rest after so many milliseconds."""
        channel = self.channel()
        if channel is not None:
            channel.release(retry)

    def give_up(self) -> None:
        """There will be no answer: the session is over."""
        self._end(session_over())

    def _end(self, outcome: bytes | Refusal | None) -> None:
        if self._channel is not None:
            self._channels.close(self._channel)
        else:
            self._decide(outcome)

    def _decide(self, outcome: bytes | EventStream | Refusal | None) -> None:
        if not self._outcome.done():  # by the end of whoever waited
            self._outcome.set_result(outcome)

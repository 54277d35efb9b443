"""POST requests of legacy clients: `PostConnection` receives the messages, `LegacyPost` answers the requests in one."""

from __future__ import annotations

import asyncio

from msgspec import UNSET, UnsetType

from mcplumb.revisions import LATEST
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_server.asgi_request import JSON, HttpRequest, Refusal
from mcplumb.transports.http_server.event_streams import Channel, Channels, EventStream
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

__all__ = ["LegacyPost", "PostConnection", "busy", "check_reads_events", "session_elsewhere", "session_over"]

_EVENTS = b"text/event-stream"


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

    async def deliver(self, item: Message | BadMessage | Batch) -> None:
        """Pass a posted message to the receiver, after waiting while paused.

        Raises `Refusal` if too many messages wait, or if the session ends first.
        """
        if not self._flowing.is_set():
            if self._held >= self._max_held:
                raise busy("Too many messages of this session wait already. Send this one again later.", seconds=1)
            self._held += 1
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

    __slots__ = ("_cancelled", "_channel", "_channels", "_is_batch", "_outcome", "_request", "ids", "source")

    def __init__(
        self, channels: Channels, request: HttpRequest | None, ids: tuple[int | str, ...], *, is_batch: bool = False
    ) -> None:
        self.ids = ids
        self._is_batch = is_batch
        self._cancelled: set[int | str] = set()
        self._channels = channels
        #: The HTTP request that the requests came in.
        self.source = request
        #: The same; None if the response can no longer become a stream.
        self._request = request
        self._channel: Channel | None = None
        #: The response: JSON, a stream, a refusal, or None for an empty stream.
        self._outcome: asyncio.Future[bytes | EventStream | Refusal | None] = asyncio.get_running_loop().create_future()

    async def respond(self, request: HttpRequest, *, keep_alive: float) -> None:
        """Send the response, in the task of the request. After ``keep_alive`` seconds it becomes a stream.

        If cancelled, a JSON answer is lost, but the messages of a stream are kept for the client.
        """
        timer = asyncio.get_running_loop().call_later(keep_alive, self.channel)
        try:
            outcome = await self._outcome
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
        outcome = await self._outcome
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

    def _decide(self, outcome: bytes | EventStream | Refusal | None) -> None:
        if not self._outcome.done():  # it is cancelled with the task that awaits it
            self._outcome.set_result(outcome)

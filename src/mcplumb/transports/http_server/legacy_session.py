"""One legacy session: a `Connection` whose messages are spread over many HTTP requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb.protocol.principal import Principal
from mcplumb.revisions import Revision, find_revision
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.event_streams import Channel, Channels, EventStream
from mcplumb.transports.http_server.exchange import Exchange
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.legacy_post import LegacyPost, PostConnection, SessionPost, busy, session_over
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import (
    INVALID_REQUEST,
    BoundedId,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
)

__all__ = ["TWICE", "LegacySession", "cancelled_request", "each_of", "one_stream"]

_NO_BATCHES = "The body is a batch, and the protocol revision in use has none: post each message separately."
#: Why a request is refused whose id another one has.
TWICE = "The id of this request is that of another one that has not been answered yet."
_ONE_STREAM = (
    "This session has opened its stream only a few seconds ago. Send Last-Event-ID to resume it, or open a new one "
    "later."
)
_TOO_MANY = "This session has too many open HTTP requests. Send this one again when some have been answered."
_EVENT_GONE = "The events after Last-Event-ID are no longer stored."


def one_stream(seconds: int) -> Refusal:
    """Return the refusal of a second stream, which may be opened after this many seconds."""
    return Refusal(409, ErrorDetail(INVALID_REQUEST, _ONE_STREAM), headers=[(b"retry-after", b"%d" % seconds)])


#: The longest reconnection time that a client gets, in seconds: events are not kept for ever.
_LONGEST_RETRY = 3600.0


class LegacySession(PostConnection):
    """The `Connection` of one session. It is created in a running event loop.

    A message that belongs to a request is sent on the response to its POST, every other on the stream that the client
    opens with GET. Messages are kept, within limits, while there is no response to send them on.
    """

    def __init__(self, *, options: HttpOptions, trace: Trace | None, channels: Channels | None = None) -> None:
        super().__init__(max_held=options.max_streams, trace=trace)
        self._options = options
        #: The negotiated revision; None before ``initialize`` is answered.
        self.revision: Revision | None = None
        #: The id of the ``initialize`` that is not answered yet.
        self._initialize_id: RequestId | None = None
        #: Whether the client has sent ``notifications/initialized``.
        self.is_confirmed = False
        self._channels = channels or Channels(options)
        #: The channel of messages that belong to no request.
        self._standalone = self._open_standalone()
        #: The open posts by the ids of their requests.
        self._posts: dict[RequestId, LegacyPost] = {}
        #: The number of HTTP requests in progress, and the future that ``close`` waits for.
        self._active = 0
        self._idle: asyncio.Future[None] | None = None
        self._used_at = self._loop.time()
        self._expiry: asyncio.TimerHandle | None = None
        #: Turns responses into streams that no task does that for; None while no post waits.
        self._streaming: asyncio.TimerHandle | None = None

    def _open_standalone(self) -> Channel:
        return self._channels.open()

    def expire_after(self, seconds: float, expired: Callable[[], None], *, confirmed_within: float) -> None:
        """Call ``expired`` from the loop when the session has been idle for this many seconds.

        Until the session is confirmed, ``confirmed_within`` seconds count if they are fewer.
        """
        if self._is_closing:
            return
        now = self._loop.time()
        is_busy = self._active or self._posts
        idle = seconds if self.is_confirmed else min(seconds, confirmed_within)
        end = (now if is_busy else self._used_at) + idle
        if end <= now:
            expired()
        else:
            again = partial(self.expire_after, seconds, expired, confirmed_within=confirmed_within)
            self._expiry = self._loop.call_at(end, again)

    # Receiving

    async def open(self, initialize: Request) -> bytes:
        """Pass ``initialize`` on and return the answer. It was a success if ``revision`` is set then."""
        with self._working():
            self._initialize_id = initialize.id
            post = self._posts[initialize.id] = LegacyPost(self._channels, None, (initialize.id,))
            await self.deliver(initialize)
            return await post.text()

    async def post(self, request: HttpRequest, item: Message | BadMessage | Batch) -> None:
        """Pass a posted message on and respond; raise `Refusal` if it is refused.

        If this is cancelled or the client disconnects, a message that was passed on is processed all the same.
        """
        with self._working():
            if isinstance(item, BadMessage):
                await self._refuse(item)
            elif isinstance(item, Batch) and not (self.revision is not None and self.revision.has_batches):
                raise Refusal(400, ErrorDetail(INVALID_REQUEST, _NO_BATCHES))
            else:
                await self._take(request, item)

    def begin(self, request: HttpRequest, item: Request, session_id: str, exchange: Exchange, *, size: int) -> bool:
        """Pass a posted request on now; return False if it has to be posted in a task. Not to be called within a task.

        ``exchange`` takes the answer. ``request`` has the head of the POST, and ``size`` is that of its body.
        """
        if (
            self.has_hung_up
            or self._receiver is None
            or not self._flowing.is_set()
            or self._active >= self._options.max_streams
            or item.id in self._posts
            or item.method == "initialize"
        ):
            return False
        post = SessionPost(
            self._channels, request, item.id, exchange, size=size, session_id=session_id, ended=self._served
        )
        self._posts[item.id] = post
        self._active += 1
        self._messages_in += 1
        try:
            self._receiver.received(item)
        except BaseException:
            self._forget(post)
            self._served(post)
            raise
        if post.delivered():
            post.due = self._loop.time() + self._options.keep_alive
            if self._streaming is None:
                self._streaming = self._loop.call_at(post.due, self._open_streams)
        return True

    def _served(self, _: SessionPost) -> None:
        self._active -= 1
        self._check_idle()

    def _open_streams(self) -> None:
        """Turn the responses of posts into streams that have waited for long enough."""
        self._streaming = None
        now = self._loop.time()
        waiting = [post for post in self._posts.values() if isinstance(post, SessionPost) and post.is_waiting]
        for post in waiting:
            if post.due <= now:
                post.channel()
        left = min((post.due for post in waiting if post.due > now), default=None)
        if left is not None:
            self._streaming = self._loop.call_at(left, self._open_streams)

    async def listen(self, request: HttpRequest, last_event_id: str | None) -> None:
        """Respond to a GET with the stream of messages that belong to no request, or resume a stream."""
        with self._working():
            self._check_active()
            if last_event_id:
                response = self._resume(request, last_event_id)
            elif self._standalone.may_begin:
                response = self._standalone.begin(request)
            else:
                raise one_stream(ceil(self._options.keep_alive))
            if response is None:
                # To a client of event streams, 204 means not to reconnect.
                await request.respond(204)
            else:
                await self._channels.finish(response)

    def hang_up(self) -> None:
        """Report that the client sends nothing more; only the answers to its requests are still sent."""
        super().hang_up()
        if self._standalone.response is not None:
            self._standalone.response.end()

    async def _take(self, request: HttpRequest, item: Message | Batch) -> None:
        ids = tuple({each.id: None for each in each_of(item) if isinstance(each, Request)})
        if not ids:
            await self.deliver(item)
            self.is_confirmed = self.is_confirmed or any(map(_is_initialized, each_of(item)))
            self._drop_cancelled(item)
            await request.respond(202)
            return
        self._check_active(ids[0])
        for each in ids:
            if each in self._posts:
                raise Refusal(400, ErrorDetail(INVALID_REQUEST, TWICE), request_id=each)
        if isinstance(item, Request) and item.method == "initialize":
            self._initialize_id = item.id  # of a client that starts the session over
        post = LegacyPost(self._channels, request, ids, is_batch=isinstance(item, Batch))
        self._posts.update(dict.fromkeys(ids, post))
        try:
            await self.deliver(item)
        except BaseException:
            self._forget(post)
            raise
        self._drop_cancelled(item)
        await post.respond(request, keep_alive=self._options.keep_alive)

    async def _refuse(self, bad: BadMessage) -> None:
        if bad.is_response:
            # A request of the server waits for this response.
            await self.deliver(bad)
        raise Refusal(400, ErrorDetail(bad.code, bad.reason), request_id=UNSET if bad.is_response else bad.id)

    def _resume(self, request: HttpRequest, last_event_id: str) -> EventStream | None:
        """Return a response that continues a stream after this event; None if the stream is over."""
        replay = self._channels.store.after(last_event_id)
        if replay is None:
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, _EVENT_GONE))
        if not replay.is_over:
            return self._channels.get(replay.stream).resume(request, last_event_id, replay.events)
        if not replay.events:
            return None
        response = self._channels.respond(request, replay.events)
        response.end()
        return response

    def _check_active(self, request_id: RequestId | UnsetType = UNSET) -> None:
        if self._active > self._options.max_streams:
            raise busy(_TOO_MANY, seconds=1, request_id=request_id)

    def _drop_cancelled(self, item: Message | Batch) -> None:
        """Stop waiting for the answers of requests that this message cancels: none will be sent."""
        for each in each_of(item):
            request_id = cancelled_request(each)
            post = None if request_id is None else self._posts.get(request_id)
            if request_id is not None and post is not None and post.cancel(request_id):
                self._forget(post)

    def _forget(self, post: LegacyPost) -> None:
        for each in post.ids:
            self._posts.pop(each, None)
        # The idle time starts now: the client may still have to reconnect for the answer.
        self._used_at = self._loop.time()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Count an HTTP request as active; raise `Refusal` if the session is over."""
        if self.has_hung_up:
            raise session_over()
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._used_at = self._loop.time()
            self._check_idle()

    def _check_idle(self) -> None:
        if self._idle is not None and not self._active and not self._idle.done():
            self._idle.set_result(None)

    # Sending

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Send one message on the stream to which it belongs."""
        if self._is_closing:
            return
        line = self._encode(message)
        if isinstance(message, Result | Error):
            if self._initialize_id is not None and message.id == self._initialize_id:
                self._initialize_id = None
                if isinstance(message, Result):
                    self._read_revision(line)
            self._answer([message], line)
            return
        post = None if about is None else self._posts.get(about)
        channel = self._standalone if post is None else post.channel()
        (channel or self._standalone).put(line)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send the answers to a batch as one batch."""
        if not self._is_closing:
            self._answer(messages, self._encode(*messages, is_batch=True))

    def release(self, request_id: RequestId, retry: float) -> None:
        """End the response to a request before its answer; the client reconnects for it after ``retry`` seconds.

        Does nothing if the request is not open, or if the revision has no such reconnection.
        """
        post = self._posts.get(request_id)
        if post is not None and self._channels.has_priming_events:
            post.release(round(min(retry, _LONGEST_RETRY) * 1000))

    def headers_of(self, request_id: RequestId) -> dict[str, str] | None:
        """Return the headers of the POST with this request; None if it is not open."""
        post = self._posts.get(request_id)
        return None if post is None else post.headers

    def principal_of(self, request_id: RequestId) -> Principal | None:
        """Return the sender of the POST with this request; None if it is not open, or not authenticated."""
        post = self._posts.get(request_id)
        return None if post is None or post.source is None else post.source.principal

    def _read_revision(self, line: bytes) -> None:
        self.revision = find_revision(_decode_initialize_response(line).result.protocol_version)
        self._channels.has_priming_events = self.revision is not None and self.revision.has_priming_events

    def _answer(self, messages: Sequence[Message], line: bytes) -> None:
        for message in messages:
            request_id = _answered_request(message)
            post = None if request_id is None else self._posts.get(request_id)
            if post is not None:
                self._forget(post)
                post.answer(line)
                return

    # Backpressure and closing

    @property
    def is_clogged(self) -> bool:
        """Whether one of the responses is clogged."""
        return self._channels.is_clogged

    async def drained(self) -> None:
        """Wait until no response is clogged."""
        await self._channels.drained()

    async def close(self) -> None:
        """End all streams, and wait until they are written. If cancelled, it aborts."""
        self._shut()
        self._channels.end_all()
        if self._active:
            if self._idle is None:
                self._idle = self._loop.create_future()
            try:
                await asyncio.shield(self._idle)
            except asyncio.CancelledError:
                self.abort()
                raise

    def abort(self) -> None:
        """Abort all streams."""
        self._shut()
        self._channels.abort_all()

    def _shut(self) -> None:
        super()._shut()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._streaming is not None:
            self._streaming.cancel()
        for post in set(self._posts.values()):
            post.give_up()
        self._posts.clear()


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str


class _InitializeResponse(msgspec.Struct):
    result: _InitializeResult


class _CancelledParams(msgspec.Struct, rename="camel"):
    request_id: BoundedId


_decode_initialize_response = msgspec.json.Decoder(_InitializeResponse).decode
_decode_cancelled_params = msgspec.json.Decoder(_CancelledParams).decode


def each_of(item: Message | Batch) -> tuple[Message | BadMessage, ...]:
    """Return the messages of a batch, or the message."""
    return item.items if isinstance(item, Batch) else (item,)


def _answered_request(message: Message) -> RequestId | None:
    """Return the id of the request that a message answers, if it answers one."""
    if isinstance(message, Request | Notification) or message.id is UNSET:
        return None
    return message.id


def _is_initialized(item: Message | BadMessage) -> bool:
    return isinstance(item, Notification) and item.method == "notifications/initialized"


def cancelled_request(item: Message | BadMessage) -> RequestId | None:
    """Return the id of the request that a message cancels, if it cancels one."""
    if not isinstance(item, Notification) or item.method != "notifications/cancelled":
        return None
    try:
        return _decode_cancelled_params(item.params).request_id
    except (TypeError, msgspec.DecodeError):
        return None

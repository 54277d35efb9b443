"""One legacy session: a connection whose messages travel over many HTTP requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb.revisions import Revision, find_revision
from mcplumb.transports.http_server.event_streams import Channels, EventStream
from mcplumb.transports.http_server.legacy_post import Post, PostedConnection, busy, session_over
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.request import HttpRequest, Refusal
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

__all__ = ["SessionConnection"]

_NO_BATCHES = "The body is a batch, and the protocol revision in use has none: post each message by itself."
_TWICE = "The id of this request is that of another one that has not been answered yet."
_ONE_STREAM = (
    "This session has had its stream for a few seconds only. To go on with it after a break, send Last-Event-ID; "
    "without that, a new stream takes its place later."
)
_TOO_MANY = "This session has as many HTTP requests open as it may. Send this one again when some have been answered."
_EVENT_GONE = "What came after the event in Last-Event-ID is not known any more."

#: Seconds after which a client comes back at the latest. What is kept for it is not kept for ever.
_LONGEST_RETRY = 3600.0


class SessionConnection(PostedConnection):
    """A `Connection`, made in a running event loop.

    What belongs to a request of the client's goes on the response to the POST that brought it, and everything else on
    the stream that the client opens with GET. What is said while nobody reads it is kept, within bounds.
    """

    def __init__(self, *, options: HttpOptions, trace: Trace | None) -> None:
        super().__init__(max_held=options.max_streams, trace=trace)
        self._options = options
        #: What was agreed upon; None until then.
        self.revision: Revision | None = None
        #: Whether the client has said that it will use the session.
        self.is_confirmed = False
        self._channels = Channels(options)
        #: What belongs to no request goes here.
        self._standalone = self._channels.open()
        #: By the ids of their requests.
        self._posts: dict[RequestId, Post] = {}
        #: How many HTTP requests are at work, and who waits for their end.
        self._at_work = 0
        self._at_rest: asyncio.Future[None] | None = None
        self._used_at = self._loop.time()
        self._expiry: asyncio.TimerHandle | None = None

    def expire_after(self, seconds: float, expired: Callable[[], None], *, confirmed_within: float) -> None:
        """Call ``expired``, from the loop, when nothing has been going on for so many seconds.

        Before the session is confirmed, for ``confirmed_within`` seconds, if these are fewer.
        """
        if self._is_closing:
            return
        now = self._loop.time()
        is_busy = self._at_work or self._posts
        idle = seconds if self.is_confirmed else min(seconds, confirmed_within)
        end = (now if is_busy else self._used_at) + idle
        if end <= now:
            expired()
        else:
            again = partial(self.expire_after, seconds, expired, confirmed_within=confirmed_within)
            self._expiry = self._loop.call_at(end, again)

    # What comes in

    async def open(self, initialize: Request) -> bytes:
        """Pass on ``initialize``, and give the answer. It was a good one if there is a ``revision`` then."""
        with self._work():
            post = self._posts[initialize.id] = Post(self._channels, None, (initialize.id,))
            await self.deliver(initialize)
            return await post.text()

    async def post(self, request: HttpRequest, item: Message | BadMessage | Batch) -> None:
        """Take in what a client has posted, and answer it; `Refusal` if it is refused.

        Cancelled, or left by the client, what was taken in is worked on all the same.
        """
        with self._work():
            if isinstance(item, BadMessage):
                await self._refuse(item)
            elif isinstance(item, Batch) and not (self.revision is not None and self.revision.has_batches):
                raise Refusal(400, ErrorDetail(INVALID_REQUEST, _NO_BATCHES))
            else:
                await self._take(request, item)

    async def listen(self, request: HttpRequest, last_event_id: str | None) -> None:
        """Answer a GET: with the stream of what belongs to no request, or with the rest of one that broke off."""
        with self._work():
            self._check_room()
            if last_event_id:
                response = self._resumed(request, last_event_id)
            elif self._standalone.may_begin:
                response = self._standalone.begin(request)
            else:
                retry = b"%d" % ceil(self._options.keep_alive)
                raise Refusal(409, ErrorDetail(INVALID_REQUEST, _ONE_STREAM), headers=[(b"retry-after", retry)])
            if response is None:
                # For whoever reads event streams, this means not to come back.
                await request.respond(204)
            else:
                await self._channels.finish(response)

    def hang_up(self) -> None:
        """The client sends no more, and has nothing to hear but the answers to its requests."""
        super().hang_up()
        if self._standalone.response is not None:
            self._standalone.response.end()

    async def _take(self, request: HttpRequest, item: Message | Batch) -> None:
        ids = tuple({each.id: None for each in _each(item) if isinstance(each, Request)})
        if not ids:
            await self.deliver(item)
            self.is_confirmed = self.is_confirmed or any(map(_is_initialized, _each(item)))
            self._drop_cancelled(item)
            await request.respond(202)
            return
        self._check_room(ids[0])
        for each in ids:
            if each in self._posts:
                raise Refusal(400, ErrorDetail(INVALID_REQUEST, _TWICE), request_id=each)
        post = Post(self._channels, request, ids)
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
            # Somebody waits for it.
            await self.deliver(bad)
        raise Refusal(400, ErrorDetail(bad.code, bad.reason), request_id=UNSET if bad.is_response else bad.id)

    def _resumed(self, request: HttpRequest, last_event_id: str) -> EventStream | None:
        """The rest of a stream; None if there is nothing more."""
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

    def _check_room(self, request_id: RequestId | UnsetType = UNSET) -> None:
        if self._at_work > self._options.max_streams:
            raise busy(_TOO_MANY, seconds=1, request_id=request_id)

    def _drop_cancelled(self, item: Message | Batch) -> None:
        """Nothing is sent for a request that was cancelled, so nobody need wait for that."""
        for each in _each(item):
            request_id = _cancelled(each)
            post = None if request_id is None else self._posts.get(request_id)
            if request_id is not None and post is not None and post.cancel(request_id):
                self._forget(post)

    def _forget(self, post: Post) -> None:
        for each in post.ids:
            self._posts.pop(each, None)
        # The client may still have to come for the answer.
        self._used_at = self._loop.time()

    @contextmanager
    def _work(self) -> Iterator[None]:
        if self.has_hung_up:
            raise session_over()
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self._used_at = self._loop.time()
            if not self._at_work and self._at_rest is not None and not self._at_rest.done():
                self._at_rest.set_result(None)

    # What goes out

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Send one message, on the stream where it belongs."""
        if self._is_closing:
            return
        line = self._written(message)
        if isinstance(message, Result | Error):
            if self.revision is None and isinstance(message, Result):
                self._agree(line)
            self._answer([message], line)
            return
        post = None if about is None else self._posts.get(about)
        channel = self._standalone if post is None else post.channel()
        (channel or self._standalone).put(line)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send the answers to a batch, as one."""
        if not self._is_closing:
            self._answer(messages, self._written(*messages, is_batch=True))

    def release(self, request_id: RequestId, retry: float) -> None:
        """End the response to a request before its answer. The client comes back for the rest after ``retry`` seconds.

        Nothing happens if the request is not open, or the revision does not know of such clients.
        """
        post = self._posts.get(request_id)
        if post is not None and self._channels.has_priming_events:
            post.release(round(min(retry, _LONGEST_RETRY) * 1000))

    def _agree(self, line: bytes) -> None:
        self.revision = find_revision(_read_opened(line).result.protocol_version)
        self._channels.has_priming_events = self.revision is not None and self.revision.has_priming_events

    def _answer(self, messages: Sequence[Message], line: bytes) -> None:
        for message in messages:
            request_id = _answered(message)
            post = None if request_id is None else self._posts.get(request_id)
            if post is not None:
                self._forget(post)
                post.answer(line)
                return

    # Back pressure, closing

    @property
    def is_clogged(self) -> bool:
        """Whether the client should catch up with one of its streams."""
        return self._channels.is_clogged

    async def drained(self) -> None:
        """Wait until the client has caught up."""
        await self._channels.drained()

    async def close(self) -> None:
        """End all streams, and wait until the client has read them. Cancelled, it aborts."""
        self._shut()
        self._channels.end_all()
        if self._at_work:
            if self._at_rest is None:
                self._at_rest = self._loop.create_future()
            try:
                await asyncio.shield(self._at_rest)
            except asyncio.CancelledError:
                self.abort()
                raise

    def abort(self) -> None:
        """End all streams at once."""
        self._shut()
        self._channels.abort_all()

    def _shut(self) -> None:
        super()._shut()
        if self._expiry is not None:
            self._expiry.cancel()
        for post in set(self._posts.values()):
            post.give_up()
        self._posts.clear()


class _Agreement(msgspec.Struct, rename="camel"):
    protocol_version: str


class _Opened(msgspec.Struct):
    result: _Agreement


class _Cancellation(msgspec.Struct, rename="camel"):
    request_id: BoundedId


_read_opened = msgspec.json.Decoder(_Opened).decode
_read_cancellation = msgspec.json.Decoder(_Cancellation).decode


def _each(item: Message | Batch) -> tuple[Message | BadMessage, ...]:
    return item.items if isinstance(item, Batch) else (item,)


def _answered(message: Message) -> RequestId | None:
    """The request that a message answers, if it does."""
    if isinstance(message, Request | Notification) or message.id is UNSET:
        return None
    return message.id


def _is_initialized(item: Message | BadMessage) -> bool:
    return isinstance(item, Notification) and item.method == "notifications/initialized"


def _cancelled(item: Message | BadMessage) -> RequestId | None:
    """The request that a message cancels, if it does."""
    if not isinstance(item, Notification) or item.method != "notifications/cancelled":
        return None
    try:
        return _read_cancellation(item.params).request_id
    except (TypeError, msgspec.DecodeError):
        return None

"""A `Connection` to a server over HTTP: chooses the binding for each message, posts it, reports failures."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from mcplumb.errors import Closed, ConnectError, HttpError, McplumbError, RequestLost
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.http_sse import SseBinding
from mcplumb.transports.http_client.post_queue import Binding, Post, PostQueue
from mcplumb.transports.http_client.response import POST_REFUSED, Inbox
from mcplumb.transports.http_client.streamable_http import LegacyBinding, ModernBinding, ParamsOf
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import BoundedId, Message, Notification, Request, RequestId, encode_batch, encode_line

__all__ = ["HttpConnection"]

#: Seconds for the server to accept a notification or a response.
_NOTIFICATION_TIMEOUT = 30.0
#: Seconds before a message that may be lost is posted again: at first, doubled each time, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
#: How often ``notifications/initialized`` is posted if it may be lost.
_MOST_TRIES = 4
#: Seconds to post the last ones and to end the session when the connection is closed.
_CLOSE_TIMEOUT = 5.0
#: Warnings of one connection; later ones are logged at the debug level.
_MOST_WARNINGS = 20

_CANCELLED = "notifications/cancelled"

_logger = logging.getLogger("mcplumb.client")


class HttpConnection:
    """A `Connection` over a pool that it does not own. It is created in a running event loop.

    It starts with the modern binding. Sending ``initialize`` switches to the legacy binding, and to HTTP+SSE if the
    server does not accept the POST; ``http_sse`` selects HTTP+SSE from the start (True) or rules it out (False). On
    the modern binding, ``notifications/cancelled`` is not sent: the response to the request is closed instead. Requests
    without an answer are abandoned when the connection is closed.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        limits: Limits = DEFAULT_LIMITS,
        http_sse: bool | None = None,
        params_of: ParamsOf | None = None,
        trace: Trace | None = None,
    ) -> None:
        #: Why the server could not be reached; None while it could.
        self.failure: ConnectError | None = None
        #: The response with which the server has ended the session, if it did.
        self.end_cause: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._inbox = Inbox(limits, trace)
        self._post_queue = PostQueue(self._send_post, self._end_if_done)
        self._http_sse = http_sse
        self._modern = ModernBinding(pool, self._inbox, params_of or (lambda _: None))
        self._binding: Binding = SseBinding(pool, self._inbox, self._spawn) if http_sse else self._modern
        self._streams: set[asyncio.Task[None]] = set()
        self._is_over = False  # nothing more can be sent
        self._is_closing = False
        self._warnings = 0

    @property
    def stats(self) -> Stats:
        """Messages and bytes so far, without HTTP headers."""
        return self._inbox.stats

    @property
    def server_place(self) -> tuple[str, int]:
        """The host and the port of the server's URL."""
        return self._pool.url.host or "", self._pool.url.port or 0

    @property
    def is_sse(self) -> bool:
        """Whether the messages go over HTTP+SSE."""
        return isinstance(self._binding, SseBinding)

    @property
    def is_clogged(self) -> bool:
        """Whether the queue of messages to post is above its high-water mark."""
        return self._post_queue.is_clogged

    def start(self, receiver: Receiver) -> None:
        """Start to post and to receive."""
        if not self._is_closing:
            self._inbox.open(receiver)
            self._post_queue.start()

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Queue one message."""
        if self._is_over:
            return
        data = encode_line(message)
        if isinstance(message, Notification) and message.method == _CANCELLED:
            self._cancel(message, data)
        else:
            self._put(Post([message], data, self._choose(message)), data)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Queue several messages as one POST."""
        if not self._is_over:
            data = encode_batch(messages)
            self._put(Post(messages, data, self._binding), data)

    async def drained(self) -> None:
        """Wait until the connection is no longer clogged, or is closed or broken."""
        await self._post_queue.drained()

    def pause(self) -> None:
        """Stop reading. A message that is being decoded may still be received."""
        self._inbox.pause()

    def resume(self) -> None:
        """Read again."""
        self._inbox.resume()

    async def close(self) -> None:
        """Post the queued notifications and responses, end the session, and close. Bounded in time.

        If cancelled, it aborts.
        """
        if not self._is_closing:
            self._is_closing = self._is_over = True
            self._inbox.shut()
            try:
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    await self._post_queue.notifications_posted()
                    if self.failure is None:
                        await self._binding.end_session()
            except TimeoutError:
                _logger.debug("The server did not accept the last messages in time.")
            finally:
                self.abort()
        await self.gone()

    def abort(self) -> None:
        """Close at once. The tasks in progress end in the next iterations of the loop."""
        self._is_closing = self._is_over = True
        self._inbox.shut()
        if not self._loop.is_closed():
            self._post_queue.abort()
            for stream in self._streams:
                stream.cancel()

    async def gone(self) -> None:
        """Wait until all tasks have ended, after ``abort``."""
        while tasks := [*self._post_queue.tasks, *self._streams]:
            await asyncio.wait(tasks)

    # Sending

    def _choose(self, message: Message) -> Binding:
        """Return the binding for a message. The requests of a handshake also select it for the messages that follow."""
        if isinstance(message, Request) and not isinstance(self._binding, SseBinding):
            if message.method == "initialize":
                self._binding = LegacyBinding(self._pool, self._inbox, self._spawn)
            elif message.method == "server/discover":
                self._binding = self._modern
        return self._binding

    def _cancel(self, notification: Notification, data: bytes) -> None:
        post = self._post_queue.find(_decode_cancellation(data).params.request_id or 0)
        if post is not None and self._post_queue.withdraw(post):
            return
        binding = self._binding if post is None else post.binding
        if binding is not self._modern:
            cancellation = Post([notification], data, binding)
            cancellation.cancels = post
            self._put(cancellation, data)
        elif post is not None:
            post.cancel()

    def _put(self, post: Post, data: bytes) -> None:
        if self._inbox.trace is not None:
            self._inbox.trace("out", data)
        self._inbox.stats.messages_out += 1
        self._inbox.stats.bytes_out += post.size
        self._post_queue.put(post)

    async def _send_post(self, post: Post) -> None:
        """Post one item of the queue, and report its failure."""
        failure: McplumbError | None = None
        try:
            if post.lane == "one_way":
                async with asyncio.timeout(_NOTIFICATION_TIMEOUT):
                    await self._exchange_until_taken(post)
            else:
                await self._exchange(post)
        except Closed as closed:
            failure = RequestLost(f"The response broke off. {closed}") if post.is_accepted else closed
            self._finish(closed)
        except ConnectError as error:
            failure = Closed(str(error))
            self._break(error)
        except McplumbError as error:
            failure = error
        except TimeoutError:
            failure = RequestLost(f"The server did not accept it within {_NOTIFICATION_TIMEOUT:g} s.")
        except Exception as error:
            _logger.exception("A message could not be posted.")
            failure = RequestLost(f"Posting it failed with {type(error).__name__}: {error}.")
        for request_id in list(post.waiting):
            self._inbox.fail(request_id, failure or RequestLost("The response ended without the answer."))
        if failure is not None and post.lane == "one_way":
            self._warn(f"{post.method or 'A response'} did not reach the server. {failure}")

    async def _exchange_until_taken(self, post: Post) -> None:
        """Post notifications and responses, and again if the server cannot take them at present.

        Those that may arrive twice are also posted again if they may be lost, for instance with a replica that was
        killed. Nobody else would do so, and the server waits for a response to its question. Requests fail instead.
        """
        for tries in itertools.count(1):
            try:
                await self._exchange(post)
            except McplumbError as error:
                pause = post.retry_after
                if pause is None:
                    is_lost = isinstance(error, RequestLost) and post.may_arrive_twice
                    # Other messages wait for this one, and it may be that the server never responds to it.
                    is_enough = post.is_initialized and tries == _MOST_TRIES
                    if not is_lost or is_enough or self._is_over:
                        raise
                    pause = min(_FIRST_PAUSE * 2 ** (tries - 1), _LONGEST_PAUSE)
            else:
                return
            post.retry_after = None
            await asyncio.sleep(pause)

    async def _exchange(self, post: Post) -> None:
        if post.is_initialize and isinstance(post.binding, LegacyBinding):
            await self._initialize(post, post.binding)
        elif post.cancels is not None:
            try:
                await post.cancels.body.written.wait()
                await post.binding.exchange(post)
            finally:
                post.cancels.cancel()
        else:
            await post.binding.exchange(post)

    async def _initialize(self, post: Post, legacy: LegacyBinding) -> None:
        try:
            await legacy.exchange(post)
        except HttpError as refusal:
            if self._http_sse is False or refusal.status not in POST_REFUSED:
                raise
            sse = SseBinding(self._pool, self._inbox, self._spawn)
            try:
                await sse.open()
            except McplumbError as error:
                if isinstance(error, HttpError) and error.status == refusal.status:
                    raise refusal from None  # There is nothing more to say.
                raise HttpError(refusal.status, f"{refusal} It does not speak HTTP+SSE either: {error}") from error
            self._binding = sse
            await sse.exchange(post)
        finally:
            if self._binding is legacy and not legacy.is_open:
                self._binding = self._modern  # The next attempt may be a handshake of the modern era.

    def _spawn(self, stream: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(self._watch(stream))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        # A task that is cancelled before it begins never awaits it.
        task.add_done_callback(lambda _: stream.close())
        return task

    async def _watch(self, stream: Coroutine[Any, Any, None]) -> None:
        try:
            await stream
        except Closed as closed:
            self._finish(closed)
        except ConnectError as error:
            self._break(error)
        except McplumbError as error:
            self._warn(f"Messages of the server that belong to no request are not received. {error}")

    # Ending

    def _finish(self, why: Closed) -> None:
        """Report the end of the connection: the server has ended the session, or the stream of HTTP+SSE."""
        self._is_over = True
        self.end_cause = self.end_cause or why.__cause__
        self._inbox.end(clean=True)
        self._fail_queued(Closed(str(why)))  # A copy: ``why`` has the cause of another request.

    def _break(self, error: ConnectError) -> None:
        """Report that the server cannot be reached. Requests in progress may still be answered."""
        self.failure = self.failure or error
        self._is_over = True
        self._inbox.break_off(OSError(_errno_of(error), str(error)))
        self._fail_queued(Closed(str(error)))
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self.failure is not None and not self._post_queue.is_waiting:
            self._inbox.end(clean=True)

    def _fail_queued(self, why: Closed) -> None:
        for post in self._post_queue.withdraw_all():
            for request_id in post.waiting:
                self._inbox.fail(request_id, why)

    def _warn(self, sentence: str) -> None:
        self._warnings += 1
        _logger.log(logging.WARNING if self._warnings <= _MOST_WARNINGS else logging.DEBUG, "%s", sentence)


class _CancelledParams(msgspec.Struct, frozen=True, rename="camel"):
    request_id: BoundedId | None = None


class _Cancellation(msgspec.Struct):
    """The part of ``notifications/cancelled`` that is needed here."""

    params: _CancelledParams = _CancelledParams()


_decode_cancellation = msgspec.json.Decoder(_Cancellation).decode


def _errno_of(error: ConnectError) -> int:
    return getattr(error.__cause__, "errno", None) or errno.ECONNREFUSED

"""The queue of messages to POST: in order, with a limit on concurrent POSTs and a high-water mark.

`Body` is the body of one POST, `Post` one message or batch with the requests in it that wait for a response, `Binding`
the interface of what sends a post, and `PostQueue` the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from mcplumb.transports.connection import Backpressure
from mcplumb.transports.line_connection import HIGH_WATER
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result

__all__ = ["Binding", "Body", "Lane", "Post", "PostQueue", "Spawn"]


# The body of a POST


#: Bytes per write, so that a large message does not block the others.
_PIECE = 256 * 1024


class Body(aiohttp.Payload):
    """A JSON payload for aiohttp that tells when it has been written."""

    _autoclose = True  # it has nothing to close

    def __init__(self, data: bytes) -> None:
        super().__init__(data, content_type="application/json")
        self._size = len(data)
        #: Set when all of it was passed to the transport.
        self.written = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the payload in pieces."""
        # All writers of aiohttp have this attribute, although their base class does not.
        self._transport = getattr(writer, "transport", None)
        data = memoryview(self._value)
        for start in range(0, len(data), _PIECE):
            await writer.write(data[start : start + _PIECE])
        self.written.set()

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the payload in pieces; the length is always that of the data."""
        await self.write(writer)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the payload as text."""
        return bytes(self._value).decode(encoding, errors)

    def drop(self) -> None:
        """Abort the transport if it has unsent bytes: it would wait for the peer to read them, perhaps forever."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()


# One message or batch to post


#: Requests, requests whose response stays open, and messages without a response. Lanes do not wait for each other.
Lane: TypeAlias = Literal["calls", "listens", "one_way"]

#: Runs a coroutine in a task that belongs to the connection. Of the exceptions of an exchange, it may raise those that
#: concern the whole connection: `ConnectError` and `Closed`.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

#: The request whose response is a stream that stays open.
_LISTEN = "subscriptions/listen"
#: The methods of messages that may arrive twice; empty for a response.
_REPEATABLE = frozenset(("", "notifications/initialized", "notifications/cancelled"))


class Binding(Protocol):
    """One way to exchange messages with a server over HTTP."""

    async def exchange(self, post: Post) -> None:
        """Post it, and pass the messages of the response to the inbox.

        An exception fails the requests in the post that have no answer yet: `ConnectError` if the server cannot be
        reached, `Closed` if it has ended the session (the cause is its response to this post), any other if only this
        post failed. A normal return means that the response has ended. If cancelled, it closes the response.
        """

    async def end_session(self) -> None:
        """End the session. Bounded in time; raises nothing."""


class Post:
    """One message or one batch, to be posted through one binding."""

    __slots__ = (
        "binding", "body", "cancels", "first", "ids", "is_accepted", "lane", "method", "on_refusal", "on_result",
        "retry_after", "size", "task", "waiting",
    )  # fmt: skip

    def __init__(self, messages: Sequence[Message], data: bytes, binding: Binding) -> None:
        self.binding = binding
        self.body = Body(data)
        self.size = len(data)
        #: The message, or the first one of the batch.
        self.first = messages[0]
        #: The method of that message; empty for a response.
        self.method = self.first.method if isinstance(self.first, Request | Notification) else ""
        #: The ids of the requests in it, and of those that have no answer yet.
        self.ids: tuple[RequestId, ...] = tuple(each.id for each in messages if isinstance(each, Request))
        self.waiting = set(self.ids)
        self.lane: Lane = "one_way" if not self.ids else "listens" if self.method == _LISTEN else "calls"
        #: The post that this one cancels, if it is such a notification.
        self.cancels: Post | None = None
        #: Called with the result before the receiver gets it.
        self.on_result: Callable[[Result], None] | None = None
        #: Called with a JSON-RPC error of an HTTP error response. An exception that it raises replaces the error.
        self.on_refusal: Callable[[ErrorDetail], None] | None = None
        #: Whether the server answered with a success status: the request may have been executed.
        self.is_accepted = False
        #: Seconds after which it may be posted again, if the server cannot take it at present (503).
        self.retry_after: float | None = None
        #: The task that posts it; None while it is queued.
        self.task: asyncio.Task[None] | None = None

    @property
    def is_initialize(self) -> bool:
        """Whether it is the request that starts a session."""
        return self.method == "initialize"

    @property
    def is_initialized(self) -> bool:
        """Whether it is the notification that completes a handshake, which later messages must not overtake."""
        return self.method == "notifications/initialized"

    @property
    def may_arrive_twice(self) -> bool:
        """Whether it has no other effect if the server gets it twice: a response, or a notification of this kind."""
        return not self.ids and self.method in _REPEATABLE

    def cancel(self) -> None:
        """Cancel its task, if it has started."""
        if self.task is not None:
            self.task.cancel()

    def settle(self, item: Message | BadMessage | Batch) -> None:
        """Remove the requests that a received message answers from those that wait."""
        if isinstance(item, Batch):
            for each in item.items:
                self.settle(each)
        elif isinstance(item, Result):
            if item.id in self.waiting and self.on_result is not None:
                self.on_result(item)
            self.waiting.discard(item.id)
        elif isinstance(item, Error) or (isinstance(item, BadMessage) and item.is_response):
            self.waiting -= {item.id}


# The queue


#: Concurrent posts per lane, each on its own HTTP connection. The lanes are independent, since a server may need a
#: response from the client before it can answer a request. The caller limits the number of subscriptions.
_MOST_CONCURRENT: dict[Lane, float] = {"calls": 100, "one_way": 100, "listens": float("inf")}
#: How many bytes a queued request counts at least: a thousand requests clog the queue, however small they are. The
#: high-water mark is the one of lines.
_LEAST_SIZE = HIGH_WATER // 1000 + 1


class PostQueue(Backpressure):
    """Runs ``send`` in a task for each post, in order and with limited concurrency. Nothing runs before ``start``."""

    def __init__(self, carry: Callable[[Post], Coroutine[Any, Any, None]], on_end: Callable[[], None]) -> None:
        self._send_post = carry
        #: Called whenever a post has ended.
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        super().__init__(self._loop, HIGH_WATER)
        self._has_started = False
        self._queues: dict[Lane, deque[Post]] = {lane: deque() for lane in _MOST_CONCURRENT}
        self._queued = 0  # bytes
        self._running: dict[Lane, set[Post]] = {lane: set() for lane in _MOST_CONCURRENT}
        self._by_id: dict[RequestId, Post] = {}
        #: No other post starts while this one runs.
        self._barrier: Post | None = None

    def start(self) -> None:
        """Start to post."""
        self._has_started = True
        self._start_queued()

    def put(self, post: Post) -> None:
        """Queue a post at the end of its lane."""
        self._queues[post.lane].append(post)
        self._queued += post.size
        if len(post.ids) == 1:  # A request in a batch cannot be cancelled by itself.
            self._by_id[post.ids[0]] = post
        self._start_queued()
        self._rose_to(self._level)

    def find(self, request_id: RequestId) -> Post | None:
        """Return the queued or running post of this request, if there is one."""
        return self._by_id.get(request_id)

    def withdraw(self, post: Post) -> bool:
        """Remove a post from the queue. Return False if it has started already."""
        if post.task is not None:
            return False
        self._queues[post.lane].remove(post)
        self._queued -= post.size
        self._forget(post)
        return True

    def withdraw_all(self) -> list[Post]:
        """Remove and return all posts that have not started."""
        posts = [post for queue in self._queues.values() for post in queue]
        for queue in self._queues.values():
            queue.clear()
        self._queued = 0
        for post in posts:
            self._forget(post)
        return posts

    @property
    def is_waiting(self) -> bool:
        """Whether a request runs whose answer may still arrive."""
        return bool(self._running["calls"])

    @property
    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """The tasks of all running posts."""
        return (post.task for posts in self._running.values() for post in posts if post.task is not None)

    async def notifications_posted(self) -> None:
        """Wait until all running posts of notifications and responses have ended."""
        while notes := self._running["one_way"]:
            await asyncio.wait([post.task for post in notes if post.task is not None])

    def abort(self) -> None:
        """Drop what is queued, and cancel what runs. The tasks end in the next iterations of the loop."""
        self.withdraw_all()
        for task in self.tasks:
            task.cancel()

    @property
    def _level(self) -> int:
        return max(self._queued, len(self._queues["calls"]) * _LEAST_SIZE)

    def _start_queued(self) -> None:
        if not self._has_started:
            return
        for lane, queue in self._queues.items():
            while queue and self._barrier is None and len(self._running[lane]) < _MOST_CONCURRENT[lane]:
                self._start_post(queue.popleft())

    def _start_post(self, post: Post) -> None:
        self._queued -= post.size
        self._running[post.lane].add(post)
        if post.is_initialized:
            self._barrier = post
        post.task = self._loop.create_task(self._send_post(post))
        # A callback, not a ``finally`` in the task: a task that is cancelled before it runs never gets there.
        post.task.add_done_callback(lambda _: self._end_post(post))

    def _end_post(self, post: Post) -> None:
        self._running[post.lane].discard(post)
        if self._barrier is post:
            self._barrier = None
        post.body.written.set()  # a waiting cancellation must not wait forever
        self._start_queued()
        self._forget(post)
        self._on_end()

    def _forget(self, post: Post) -> None:
        if len(post.ids) == 1:
            self._by_id.pop(post.ids[0], None)
        self._fell_to(self._level)

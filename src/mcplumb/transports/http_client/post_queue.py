"""The messages to POST, in order and with a bound on how many at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from mcplumb.transports.connection import Waiters
from mcplumb.transports.line_connection import HIGH_WATER, LOW_WATER
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result

__all__ = ["Binding", "Body", "Lane", "Outbox", "Post", "Spawn"]


# The body of a POST: what aiohttp is given to write.


#: Bytes that are written at a time, so that a large message does not hold up the others.
_PIECE = 256 * 1024


class Body(aiohttp.Payload):
    """JSON that tells when it has been written."""

    _autoclose = True  # there is nothing to close

    def __init__(self, data: bytes) -> None:
        super().__init__(data, content_type="application/json")
        self._size = len(data)
        #: Set when all of it was handed to the system, or to what waits for the system to take it.
        self.written = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all of it."""
        # Known to all of aiohttp's writers, though not to their common base.
        self._transport = getattr(writer, "transport", None)
        data = memoryview(self._value)
        for start in range(0, len(data), _PIECE):
            await writer.write(data[start : start + _PIECE])
        self.written.set()

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """The same: the length is that of the data."""
        await self.write(writer)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The data as text."""
        return bytes(self._value).decode(encoding, errors)

    def drop(self) -> None:
        """Give up what is left to write: a connection that waits for a peer to read might never close."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()


# What is to be posted: one message or one batch, and which answers it waits for.


#: Requests, requests that stay open, and what gets no answer: they do not wait for each other.
Lane: TypeAlias = Literal["calls", "listens", "notes"]

#: Runs something beside the posts of a connection, for as long as that lasts. What it may raise is what an exchange
#: may, of what concerns the whole connection: `ConnectError` and `Closed`.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

#: The request whose response is a stream that stays open.
_LISTEN = "subscriptions/listen"


class Binding(Protocol):
    """One way to speak to a server over HTTP."""

    async def exchange(self, post: Post) -> None:
        """Post this, and pass on what comes in answer to it.

        What is raised is told to those requests in it that still wait: `ConnectError` if the server cannot be
        reached, `Closed` if it has ended the session (its cause is what the server said to this post), and any other
        for what became of this post alone. If nothing is raised, the response has ended without their answers.
        Cancelled, it gives up the response.
        """

    async def leave(self) -> None:
        """Say goodbye to the server. Bounded; what goes wrong does no harm."""


class Post:
    """One message or one batch, on its way through one binding."""

    __slots__ = (
        "binding", "body", "cancels", "first", "ids", "is_accepted", "lane", "method", "on_refusal", "on_result",
        "size", "task", "waiting",
    )  # fmt: skip

    def __init__(self, messages: Sequence[Message], data: bytes, binding: Binding) -> None:
        self.binding = binding
        self.body = Body(data)
        self.size = len(data)
        #: The message, or the first one of the batch.
        self.first = messages[0]
        #: What it asks or tells; empty for an answer.
        self.method = self.first.method if isinstance(self.first, Request | Notification) else ""
        #: The requests in it, and those of them that have no answer yet.
        self.ids: tuple[RequestId, ...] = tuple(each.id for each in messages if isinstance(each, Request))
        self.waiting = set(self.ids)
        self.lane: Lane = "notes" if not self.ids else "listens" if self.method == _LISTEN else "calls"
        #: What this gives up, if it is a notice of that.
        self.cancels: Post | None = None
        #: Is called with the result before anybody else sees it.
        self.on_result: Callable[[Result], None] | None = None
        #: The same with an error that it was refused with. What this raises takes its place.
        self.on_refusal: Callable[[ErrorDetail], None] | None = None
        #: Whether the server has begun with it: then it may have been done, although there is no answer.
        self.is_accepted = False
        #: Carries it, once its turn has come.
        self.task: asyncio.Task[None] | None = None

    @property
    def is_initialize(self) -> bool:
        """Whether it opens a session."""
        return self.method == "initialize"

    @property
    def is_initialized(self) -> bool:
        """Whether it says that the session is open: what is sent after it must not overtake it."""
        return self.method == "notifications/initialized"

    def give_up(self) -> None:
        """Stop carrying it, if that has begun."""
        if self.task is not None:
            self.task.cancel()

    def settle(self, item: Message | BadMessage | Batch) -> None:
        """This came: strike out the requests that it answers."""
        if isinstance(item, Batch):
            for each in item.items:
                self.settle(each)
        elif isinstance(item, Result):
            if item.id in self.waiting and self.on_result is not None:
                self.on_result(item)
            self.waiting.discard(item.id)
        elif isinstance(item, Error) or (isinstance(item, BadMessage) and item.is_response):
            self.waiting -= {item.id}


# What is to be posted, in the order in which it was sent, and so much of it at a time.


#: Posts of one lane under way at once, each on an HTTP connection of its own. More of them wait, but not for those of
#: other lanes: a server may need an answer to go on with what it was asked. Whoever listens bounds how often.
_MOST: dict[Lane, float] = {"calls": 100, "notes": 100, "listens": float("inf")}
#: Posts that wait from which on the outbox is clogged, and at which it no longer is.
_MANY_WAITING = 1000
_FEW_WAITING = _MANY_WAITING // 4


class Outbox:
    """Runs ``carry`` in a task for each post, once its turn has come. Before ``start`` everything waits."""

    def __init__(self, carry: Callable[[Post], Coroutine[Any, Any, None]], on_end: Callable[[], None]) -> None:
        self._carry = carry
        #: Is called whenever a post has ended.
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._has_started = False
        self._queues: dict[Lane, deque[Post]] = {lane: deque() for lane in _MOST}
        self._queued = 0  # bytes
        self._running: dict[Lane, set[Post]] = {lane: set() for lane in _MOST}
        self._by_id: dict[RequestId, Post] = {}
        #: While this is under way nothing else begins.
        self._first: Post | None = None
        self.is_clogged = False
        self._waiters = Waiters(self._loop)

    def start(self) -> None:
        """Begin with what waits."""
        self._has_started = True
        self._pump()

    def put(self, post: Post) -> None:
        """Have this posted after what was put in before."""
        self._queues[post.lane].append(post)
        self._queued += post.size
        if len(post.ids) == 1:  # A batch cannot be given up in parts.
            self._by_id[post.ids[0]] = post
        self._pump()
        if self._queued > HIGH_WATER or len(self._queues["calls"]) >= _MANY_WAITING:
            self.is_clogged = True

    def find(self, request_id: RequestId) -> Post | None:
        """The post that is this request, if it waits or is under way."""
        return self._by_id.get(request_id)

    def take_back(self, post: Post) -> bool:
        """Whether this has not begun; then it never will."""
        if post.task is not None:
            return False
        self._queues[post.lane].remove(post)
        self._queued -= post.size
        self._forget(post)
        return True

    def take_all_back(self) -> list[Post]:
        """The same for all that have not begun."""
        posts = [post for queue in self._queues.values() for post in queue]
        for queue in self._queues.values():
            queue.clear()
        self._queued = 0
        for post in posts:
            self._forget(post)
        return posts

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is under way."""
        return bool(self._running["calls"])

    @property
    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """What is under way."""
        return (post.task for posts in self._running.values() for post in posts if post.task is not None)

    async def notes_gone(self) -> None:
        """Wait until all notifications and answers have been posted."""
        while notes := self._running["notes"]:
            await asyncio.wait([post.task for post in notes if post.task is not None])

    async def drained(self) -> None:
        """Wait until it is no longer clogged."""
        await self._waiters.wait_while(lambda: self.is_clogged)

    def abort(self) -> None:
        """Give up everything. The tasks end in the next turns of the loop."""
        self.take_all_back()
        for task in self.tasks:
            task.cancel()

    def _pump(self) -> None:
        if not self._has_started:
            return
        for lane, queue in self._queues.items():
            while queue and self._first is None and len(self._running[lane]) < _MOST[lane]:
                self._begin(queue.popleft())

    def _begin(self, post: Post) -> None:
        self._queued -= post.size
        self._running[post.lane].add(post)
        if post.is_initialized:
            self._first = post
        post.task = self._loop.create_task(self._carry(post))
        # Not in the task: one that is cancelled early never gets there.
        post.task.add_done_callback(lambda _: self._end(post))

    def _end(self, post: Post) -> None:
        self._running[post.lane].discard(post)
        if self._first is post:
            self._first = None
        post.body.written.set()  # or never will be
        self._pump()
        self._forget(post)
        self._on_end()

    def _forget(self, post: Post) -> None:
        if len(post.ids) == 1:
            self._by_id.pop(post.ids[0], None)
        if self._queued <= LOW_WATER and len(self._queues["calls"]) <= _FEW_WAITING:
            self._unclog()

    def _unclog(self) -> None:
        self.is_clogged = False
        self._waiters.wake()

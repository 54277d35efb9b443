"""What is to be posted, in the order in which it was sent, and so much of it at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from mcplumb.transports.framed import HIGH_WATER, LOW_WATER
from mcplumb.transports.http_client.posts import Lane, Post
from mcplumb.transports.waiters import Waiters
from mcplumb.wire.messages import RequestId

__all__ = ["Outbox"]

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

"""The transport interface: a connection, its receiver, and flow control.

Messages are pushed, not awaited: a connection calls its receiver for each message, in the event loop's thread and
never from within a call that the receiver makes. So a message costs no task and no turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.revisions import Era
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Message, RequestId

if TYPE_CHECKING:
    from mcplumb.protocol.principal import Principal

__all__ = [
    "ANYONE",
    "STRANGER",
    "Backpressure",
    "Connection",
    "Peer",
    "Receiver",
    "Serve",
    "StartedAwait",
    "Stats",
    "Waiters",
]

T = TypeVar("T")


# --- The interface ---


class Peer(msgspec.Struct, frozen=True):
    """What a transport knows about the client before the first message."""

    #: The only era allowed on this connection; None if the client chooses.
    era: Era | None = None
    #: Who the client is, if it is authenticated.
    principal: Principal | None = None
    #: Whether it may be anybody who reaches the address. Without a principal, it may not use what needs scopes.
    is_remote: bool = False


#: A client about which nothing is known.
ANYONE = Peer()
#: A client about which nothing is known but that it came over the network.
STRANGER = Peer(is_remote=True)


class Stats(msgspec.Struct):
    """The counters of a connection. A batch counts as one message."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    #: Lines that are not messages; they were ignored.
    bad_lines: int = 0


class Receiver(Protocol):
    """The owner of a connection. Its methods return at once and raise nothing."""

    def received(self, item: Message | BadMessage | Batch) -> None:
        """Handle a message, a batch (in any revision), or a line that is not a message."""

    def ended(self, *, clean: bool) -> None:
        """Handle the end of input: after a complete message (``clean``), or in the middle of one.

        The part of a torn last message was already passed to ``received`` (``BadMessage.is_torn``). Sending still
        works. Called at most once.
        """

    def hung_up(self) -> None:
        """Handle the end of input while reading is paused and messages are left to be read.

        ``ended`` follows after the last message. Called at most once, where the system can detect it.
        """

    def broke(self, error: OSError) -> None:
        """Handle a broken connection: nothing can be sent any more, for example because the peer is gone.

        Called at most once.
        """

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """Handle the failure of one request that was sent and gets no response, while the connection stays open.

        For transports that carry each request separately. `Closed`: it cannot have reached the peer. `RequestLost`:
        it may have. Any other error: it was refused.
        """


class Connection(Protocol):
    """One connection to one peer.

    All methods belong to the thread of the event loop in which ``start`` was called. After ``close`` or ``abort`` the
    receiver is not called any more.
    """

    @property
    def is_clogged(self) -> bool:
        """Whether the write queue is above its high-water mark. Senders that can wait should await ``drained``."""

    @property
    def stats(self) -> Stats:
        """The counters of this connection."""

    def start(self, receiver: Receiver) -> None:
        """Start reading. To be called once."""

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Queue one message. Messages sent in one turn of the loop leave in one write.

        ``about`` is the peer's request that a notification or request belongs to, if any: where a transport has
        several streams, it selects the stream. A response is matched by its own id.

        Raises `EncodeError`, and queues nothing, if the message cannot be encoded as JSON. Does nothing on a connection
        that is closed or broken.
        """

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Queue several messages as one batch, as ``send`` queues one message."""

    async def drained(self) -> None:
        """Wait until the connection is no longer clogged, or is closed or broken. May be cancelled safely."""

    def pause(self) -> None:
        """Stop reading, as far as the transport can; messages already read may still be delivered."""

    def resume(self) -> None:
        """Resume reading."""

    async def close(self) -> None:
        """Write the queue, then close. May be called again. If cancelled, it aborts."""

    def abort(self) -> None:
        """Close at once and drop the queue. May be called again, and after ``close``."""


#: Serves one connection from its start until it is closed.
Serve: TypeAlias = Callable[[Connection, Peer], Coroutine[Any, Any, None]]


# --- Flow control ---

#: How many waiters are woken at once. Few, because all but the first may have to wait again, and that cost must not
#: grow with their number. More than one, because messages sent in one turn of the loop leave in one write.
_AT_ONCE = 64


class Waiters:
    """Tasks that wait for the same condition, first come, first served. They belong to one event loop.

    ``room`` returns how many of them could proceed, if that can be known.
    """

    __slots__ = ("_due", "_loop", "_noted", "_room", "_timer", "_waiting", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop, room: Callable[[], int] | None = None) -> None:
        self._loop = loop
        self._room = room
        #: The futures of the waiters, in order. Not a plain dict: finding its first key steps over all deleted ones.
        self._waiting: OrderedDict[object, asyncio.Future[None]] = OrderedDict()
        #: The waiters that were woken and have not checked the condition yet.
        self._woken: set[asyncio.Future[None]] = set()
        #: A heap of deadlines, with one timer for all. It may contain waiters that have left.
        self._due: list[tuple[float, int, object]] = []
        self._noted = 0
        self._timer: asyncio.TimerHandle | None = None

    async def wait_while(self, holds: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait while the condition holds; it is checked again after each ``wake``. May be cancelled safely.

        Returns False if the condition still holds at the deadline, by the loop's clock.
        """
        if not self._waiting and not holds():  # earlier waiters come first
            return True
        place, has_to_wait = object(), True
        if deadline is not None:
            self._note(deadline, place)
        try:
            # Woken tasks run one after the other. Each may restore the condition for the next, which keeps its place.
            while has_to_wait and (deadline is None or self._loop.time() < deadline):
                await self._woken_at(place)
                has_to_wait = holds()
            return not has_to_wait
        finally:
            self._waiting.pop(place, None)
            if not self._waiting and self._due:
                self._due.clear()
                self._set_timer()
            # The last woken waiter, even if it is cancelled, wakes the next ones.
            if not self._woken and not holds():
                self.wake()

    def wake(self) -> None:
        """Wake some waiters to check the condition again. Does nothing if the event loop is closed."""
        if self._woken or self._loop.is_closed():
            return
        some = _AT_ONCE if self._room is None else min(_AT_ONCE, self._room())
        for future in islice(self._waiting.values(), some):
            if not future.done():
                future.set_result(None)
                self._woken.add(future)

    async def _woken_at(self, place: object) -> None:
        future = self._waiting[place] = self._loop.create_future()
        try:
            await future
        finally:
            self._woken.discard(future)

    # --- Deadlines ---

    def _note(self, deadline: float, place: object) -> None:
        if len(self._due) > 2 * len(self._waiting):
            # More than half have left: rebuild the heap, so that it stays proportional to the number of waiters.
            self._due = [due for due in self._due if due[2] in self._waiting]
            heapify(self._due)
        self._noted += 1  # breaks ties: first come, first served
        heappush(self._due, (deadline, self._noted, place))
        if self._timer is None or deadline < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due[0][0], self._expire) if self._due else None

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._due and (self._due[0][0] <= now or self._due[0][2] not in self._waiting):
            future = self._waiting.get(heappop(self._due)[2])
            if future is not None and not future.done():
                future.set_result(None)
        self._set_timer()


class Backpressure:
    """What holds senders back while a queue is too long; the base of connections and other queues.

    Above its high-water mark a queue is clogged, until it has come down to its low-water mark. That is a quarter, so
    that whoever waited can do some work before waiting again. A base class, because ``is_clogged`` is read for every
    message.
    """

    __slots__ = ("_high_water", "_waiters", "is_clogged")

    def __init__(self, loop: asyncio.AbstractEventLoop, high_water: int) -> None:
        self._high_water = high_water
        self._waiters = Waiters(loop)
        self.is_clogged = False

    async def drained(self) -> None:
        """Wait until the queue is no longer clogged, or has ended. May be cancelled safely."""
        await self._waiters.wait_while(lambda: self.is_clogged)

    def _rose_to(self, queued: int) -> None:
        if queued > self._high_water:
            self.is_clogged = True

    def _fell_to(self, queued: int) -> None:
        if queued <= self._high_water // 4:
            self._unclog()

    def _unclog(self) -> None:
        if self.is_clogged:
            self.is_clogged = False
            self._waiters.wake()


# --- Awaiting what is mostly done at once ---


class StartedAwait(Generic[T]):
    """An awaitable that runs at once, until it has to wait for the first time or is done.

    ``is_done`` says which, and ``value`` is its result. A caller that finds it done needs no timeout, and a timeout is
    a good part of a small HTTP request; any other caller awaits this, in the same task. What it raises at once is
    raised here.
    """

    __slots__ = ("_awaited", "_rest", "is_done", "value")

    value: T

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._rest = awaitable.__await__()
        try:
            self._awaited: Any = next(self._rest)
        except StopIteration as done:
            self.value = done.value
            self.is_done = True
        else:
            self.is_done = False

    def __await__(self) -> Generator[Any, Any, T]:
        if self.is_done:
            return self.value
        awaited, rest = self._awaited, self._rest
        try:
            while True:
                try:
                    yield awaited
                except BaseException as error:  # noqa: BLE001 - it is meant for what is awaited
                    awaited = rest.throw(error)
                else:
                    awaited = next(rest)
        except StopIteration as done:
            value: T = done.value
            return value

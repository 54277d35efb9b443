"""The transport interface: a connection, its receiver, and flow control.

Messages are pushed, not awaited: a connection calls its receiver for each message, on the event loop's thread and
never from within a call of the receiver's own. That way a message costs no task and no turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Protocol, TypeAlias

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.revisions import Era
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Message, RequestId

__all__ = ["ANYONE", "Connection", "Peer", "Receiver", "Serve", "Stats", "Waiters"]


# What every transport gives: a connection, and what it asks of whoever owns one.


class Peer(msgspec.Struct, frozen=True):
    """What a transport knows of the client at the other end before the first message."""

    #: The only era that is spoken on this connection; None if that is for the client to choose.
    era: Era | None = None
    #: Who the client is, if it has proved that.
    principal: str | None = None


#: Of whom nothing is known.
ANYONE = Peer()


class Stats(msgspec.Struct):
    """What went over a connection so far. A batch counts as one message."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    #: Lines that were no message and were passed over.
    bad_lines: int = 0


class Receiver(Protocol):
    """The owner of a connection. Its methods return at once and raise nothing."""

    def received(self, item: Message | BadMessage | Batch) -> None:
        """One message came, or a line that is none. Batches come as such whatever the revision."""

    def ended(self, *, clean: bool) -> None:
        """The peer sends no more: at the end of a message (``clean``) or in the middle of one.

        What came of a torn last message has been received already. Sending still works. Called at most once.
        """

    def hung_up(self) -> None:
        """The peer sends no more, but what it sent has not been received yet, because reading is paused.

        ``ended`` comes when all of that has been received. Called at most once, where the system can tell.
        """

    def broke(self, error: OSError) -> None:
        """Nothing can be sent any more, for instance because the peer is gone. Called at most once."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """This request, which was sent, gets no answer, for this reason, although the connection goes on.

        For transports that carry each request by itself. `Closed`: it cannot have reached the peer. `RequestLost`:
        nobody knows. Any other error: it was refused.
        """


class Connection(Protocol):
    """One connection to one peer.

    All methods belong to the thread of the event loop that ``start`` was called on. After ``close`` or ``abort`` the
    receiver is not called any more.
    """

    @property
    def is_clogged(self) -> bool:
        """Whether more is queued than the peer should be made to catch up with. Whoever can wait should."""

    @property
    def stats(self) -> Stats:
        """What went over the connection so far."""

    def start(self, receiver: Receiver) -> None:
        """Begin to read. To be called once."""

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Queue one message. What one turn of the loop sends goes out in one write.

        ``about`` is the request of the peer's that a notification or a request belongs to, if it belongs to one: where
        a transport has several streams, that decides which one it goes on. A response says so by its id.

        `EncodeError` if it cannot be written as JSON; then nothing was queued. Nothing happens on a connection that
        is closed or broken.
        """

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Queue several messages as one batch; otherwise as ``send``."""

    async def drained(self) -> None:
        """Wait until the connection is no longer clogged, or is closed or broken. Cancelling this harms nothing."""

    def pause(self) -> None:
        """Stop reading, as far as the transport can; what was read already may still be received."""

    def resume(self) -> None:
        """Read again."""

    async def close(self) -> None:
        """Write what is queued, then close. May be called again. Cancelled, it aborts."""

    def abort(self) -> None:
        """Close at once; what is queued is lost. May be called again, and after ``close``."""


#: Serves one connection to its end: starts it, and closes it.
Serve: TypeAlias = Callable[[Connection, Peer], Coroutine[Any, Any, None]]


# Those who wait until a peer has caught up.


#: How many look again at once. Few: all but the first may look in vain, and that must not grow with how many wait. Not
#: one by one: what is sent in one turn of the loop leaves in one write.
_AT_ONCE = 64


class Waiters:
    """Tasks that wait for the same thing, in the order they came. They belong to one event loop.

    ``room`` says how many of them would not look in vain, if that can be known.
    """

    __slots__ = ("_due", "_loop", "_noted", "_room", "_timer", "_waiting", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop, room: Callable[[], int] | None = None) -> None:
        self._loop = loop
        self._room = room
        #: By the place of each in the order. A plain dict would step over all who have left to find the first.
        self._waiting: OrderedDict[object, asyncio.Future[None]] = OrderedDict()
        #: Those that have not looked yet since they were woken.
        self._woken: set[asyncio.Future[None]] = set()
        #: A heap of deadlines, with one timer for all. Some of those who had them may have left.
        self._due: list[tuple[float, int, object]] = []
        self._noted = 0
        self._timer: asyncio.TimerHandle | None = None

    async def wait_while(self, holds: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait as long as this is so; it is looked at again after each ``wake``. Cancelling this harms nothing.

        False if it is still so at the deadline, by the time of the loop.
        """
        if not self._waiting and not holds():  # those who wait come first
            return True
        place, has_to_wait = object(), True
        if deadline is not None:
            self._note(deadline, place)
        try:
            # Those who waited run one after the other, and each may make it so again for the next, who stays in place.
            while has_to_wait and (deadline is None or self._loop.time() < deadline):
                await self._woken_at(place)
                has_to_wait = holds()
            return not has_to_wait
        finally:
            self._waiting.pop(place, None)
            if not self._waiting and self._due:
                self._due.clear()
                self._set_timer()
            # Whoever looks last, or is cancelled instead, lets the next ones look.
            if not self._woken and not holds():
                self.wake()

    def wake(self) -> None:
        """Let them look again, a few at a time. May be called when the event loop is gone, and they with it."""
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

    # Deadlines

    def _note(self, deadline: float, place: object) -> None:
        if len(self._due) > 2 * len(self._waiting):
            # More than half have left: it is never much longer than there are those who wait.
            self._due = [due for due in self._due if due[2] in self._waiting]
            heapify(self._due)
        self._noted += 1  # of two with the same deadline, who came first is first
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

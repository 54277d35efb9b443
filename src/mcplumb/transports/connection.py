"""What every transport gives: a connection, and what it asks of whoever owns one.

Messages are pushed, not awaited: a connection calls its receiver for each message, on the event loop's thread and
never from within a call of the receiver's own. That way a message costs no task and no turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.revisions import Era
from mcplumb.wire.decoding import BadMessage, Batch
from mcplumb.wire.messages import Message, RequestId

__all__ = ["ANYONE", "Connection", "Peer", "Receiver", "Serve", "Stats"]


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

"""One end of a pair of connections that records what it receives, and checks that the receiver's contract is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from mcplumb.errors import McplumbError
from mcplumb.transports.connection import Connection
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Message, Notification, Request, RequestId

__all__ = ["End", "Item", "require", "settle"]

#: An item that a connection delivers.
Item: TypeAlias = Message | BadMessage | Batch

T = TypeVar("T")

#: Iterations of the loop, and then seconds, that `settle` waits.
_LOOP_TURNS = 50
_SETTLE_TIME = 0.01


class End:
    """One end of a pair: a connection and everything that it delivered.

    It is the receiver of its connection, and records each violation of the receiver's contract as a fault. Its methods
    forward to the connection; every wait is bounded.
    """

    def __init__(self, name: str, connection: Connection, patience: float, spoil: Callable[[], None]) -> None:
        self.name = name
        self.connection = connection
        #: Sends the other end input that is not a message.
        self.spoil = spoil
        self.items: list[Item] = []
        #: The argument of each call of ``ended``.
        self.ends: list[bool] = []
        #: The argument of each call of ``broke``.
        self.errors: list[OSError] = []
        self.hang_ups = 0
        self.failures: dict[RequestId, McplumbError] = {}
        #: Violations of the receiver's contract, in sentences.
        self.faults: list[str] = []
        #: A callback for each item.
        self.on_item: Callable[[Item], None] | None = None
        #: A callback for the end.
        self.on_end: Callable[[], None] | None = None
        self._patience = patience
        self._changed = asyncio.Event()
        self._thread = threading.get_ident()
        self._calling: str | None = None
        self._closed_by: str | None = None

    def __repr__(self) -> str:
        return (
            f"the {self.name} end, which has received {len(self.items)} messages, {len(self.ends)} ends and "
            f"{len(self.errors)} errors"
        )

    # --- The receiver's methods, which the connection calls ---

    def received(self, item: Item) -> None:
        """Record an item."""
        self._called("received")
        if self.ends:
            self._fault("received a message after its end was reported")
        self.items.append(item)
        if self.on_item is not None:
            self.on_item(item)

    def ended(self, *, clean: bool) -> None:
        """Record how the connection ended."""
        self._called("ended")
        self.ends.append(clean)
        if len(self.ends) > 1:
            self._fault("got the report of its end more than once")
        if self.on_end is not None:
            self.on_end()

    def hung_up(self) -> None:
        """Count that the peer hung up."""
        self._called("hung_up")
        self.hang_ups += 1
        if self.hang_ups > 1:
            self._fault("got the report that the peer hung up more than once")
        if self.ends:
            self._fault("got the report that the peer hung up after its end was reported")

    def broke(self, error: OSError) -> None:
        """Record why nothing can be sent any more."""
        self._called("broke")
        self.errors.append(error)
        if len(self.errors) > 1:
            self._fault("got the report that nothing can be sent more than once")

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """Record why a request failed."""
        self._called("failed")
        self.failures[request_id] = error

    def _called(self, what: str) -> None:
        self._changed.set()
        if threading.get_ident() != self._thread:
            self._fault(f"had {what} called by a thread that is not its event loop's")
        if self._calling is not None:
            self._fault(f"had {what} called from within its own call of {self._calling}")
        if self._closed_by is not None:
            self._fault(f"had {what} called after its own {self._closed_by}")

    def _fault(self, what: str) -> None:
        fault = f"The {self.name} end {what}."
        if fault not in self.faults:
            self.faults.append(fault)

    # --- Calls that are forwarded to the connection ---

    def start(self) -> None:
        """Start reading."""
        with self._call("start"):
            self.connection.start(self)

    def send(self, *messages: Message) -> None:
        """Send the messages one by one."""
        with self._call("send"):
            for message in messages:
                self.connection.send(message)

    def send_names(self, names: Sequence[str]) -> None:
        """Send a notification with each name as its method."""
        self.send(*map(Notification, names))

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send the messages as one batch."""
        with self._call("send_batch"):
            self.connection.send_batch(messages)

    def pause(self) -> None:
        """Pause reading."""
        with self._call("pause"):
            self.connection.pause()

    def resume(self) -> None:
        """Resume reading."""
        with self._call("resume"):
            self.connection.resume()

    def abort(self) -> None:
        """Abort the connection."""
        with self._call("abort"):
            self.connection.abort()
        self._closed_by = self._closed_by or "abort"

    async def close(self) -> None:
        """Close the connection."""
        await self.within(self._close(), "close returns")

    def closing(self) -> asyncio.Task[None]:
        """Start a task that closes the connection."""
        return asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        self._closed_by = self._closed_by or "close"
        await self.connection.close()

    def draining(self) -> asyncio.Task[None]:
        """Start a task that waits for ``drained``, and fails if the connection is still clogged afterwards."""
        return asyncio.get_running_loop().create_task(self._drained())

    async def _drained(self) -> None:
        await self.connection.drained()
        require(not self.is_clogged, "drained has returned, and the connection is still clogged.")

    @property
    def is_clogged(self) -> bool:
        """Whether the connection is clogged."""
        return self.connection.is_clogged

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        outer, self._calling = self._calling, what
        try:
            yield
        finally:
            self._calling = outer

    # --- What the checks read and wait for ---

    @property
    def names(self) -> list[str]:
        """The methods of the received requests and notifications."""
        return [item.method for item in self.items if isinstance(item, Request | Notification)]

    @property
    def is_told_of_the_end(self) -> bool:
        """Whether ``ended`` or ``broke`` was called."""
        return bool(self.ends or self.errors)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds that only a call of this receiver can change; ``what`` describes it."""
        try:
            async with asyncio.timeout(self._patience):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what}: that did not happen within {self._patience:g} seconds at {self}.") from None

    async def until_count(self, count: int) -> None:
        """Wait until ``count`` items have been received."""
        await self.until(lambda: len(self.items) >= count, f"{count} messages arrive")

    async def until_end(self) -> None:
        """Wait until ``ended`` is called."""
        await self.until(lambda: self.ends, "the end is reported")

    async def within(self, awaitable: Awaitable[T], what: str) -> T:
        """Await with a timeout; ``what`` describes the expected event."""
        try:
            async with asyncio.timeout(self._patience):
                return await awaitable
        except TimeoutError:
            raise AssertionError(f"{what}: that did not happen within {self._patience:g} seconds at {self}.") from None


def require(condition: object, sentence: str) -> None:
    """Raise `AssertionError` with the sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)


async def settle() -> None:
    """Give unwanted events time to happen before a check that they did not."""
    for _ in range(_LOOP_TURNS):
        await asyncio.sleep(0)
    await asyncio.sleep(_SETTLE_TIME)

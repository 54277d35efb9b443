"""Transports with one fault each, for the kit to find."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import msgspec

from mcplumb.errors import EncodeError, McplumbError
from mcplumb.testing import Pair, memory_pair
from mcplumb.transports.connection import Connection, Receiver, Stats
from mcplumb.transports.line_connection import LineConnection
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Message, Notification, RequestId
from tests.transports.ends import Item


class Sound:
    """A connection in memory, with a place for a fault at every step of the way."""

    receiver: Receiver

    def __init__(self, inner: Connection) -> None:
        self.inner = inner
        self.count = 0

    @property
    def is_clogged(self) -> bool:
        return self.inner.is_clogged

    @property
    def stats(self) -> Stats:
        return self.inner.stats

    def start(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.inner.start(self)

    def send(self, message: Message, about: RequestId | None = None) -> None:
        self.count += 1
        self.inner.send(message, about)

    def send_batch(self, messages: Sequence[Message]) -> None:
        self.inner.send_batch(messages)

    async def drained(self) -> None:
        await self.inner.drained()

    def pause(self) -> None:
        self.inner.pause()

    def resume(self) -> None:
        self.inner.resume()

    async def close(self) -> None:
        await self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def received(self, item: Item) -> None:
        self.receiver.received(item)

    def ended(self, *, clean: bool) -> None:
        self.receiver.ended(clean=clean)

    def hung_up(self) -> None:
        self.receiver.hung_up()

    def broke(self, error: OSError) -> None:
        self.receiver.broke(error)

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        self.receiver.failed(request_id, error)


class Loses(Sound):
    def send(self, message: Message, about: RequestId | None = None) -> None:
        self.count += 1
        if self.count != 50:
            self.inner.send(message)


class Doubles(Sound):
    def received(self, item: Item) -> None:
        self.count += 1
        self.receiver.received(item)
        if self.count == 50:
            self.receiver.received(item)


class Adds(Sound):
    def received(self, item: Item) -> None:
        self.receiver.received(item)
        if isinstance(item, Notification) and item.method == "behind":
            self.receiver.received(Notification("one more"))


class Mixes(Sound):
    held: Item | None = None

    def received(self, item: Item) -> None:
        self.count += 1
        if self.count == 50:
            self.held = item
            return
        self.receiver.received(item)
        if self.held is not None:
            held, self.held = self.held, None
            self.receiver.received(held)


class Miscounts(Sound):
    @property
    def stats(self) -> Stats:
        return Stats(messages_out=self.count // 2)


class Forges(Sound):
    def received(self, item: Item) -> None:
        if isinstance(item, Notification) and isinstance(item.params, msgspec.Raw):
            item = Notification(item.method, msgspec.Raw(bytes(item.params)[:1000].rstrip(b'"}') + b'"}'))
        self.receiver.received(item)


class Unpacks(Sound):
    def send_batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.inner.send(message)


class Swallows(Sound):
    def send(self, message: Message, about: RequestId | None = None) -> None:
        with suppress(EncodeError):
            self.inner.send(message)


class PassesJunk(Sound):
    def received(self, item: Item) -> None:
        self.receiver.received(Notification("junk") if isinstance(item, BadMessage) else item)


class Hurries(Sound):
    def send(self, message: Message, about: RequestId | None = None) -> None:
        super().send(message)
        if self.count == 3:
            self.receiver.received(Notification("at once"))


class Strays(Sound):
    """Passes what comes on in another thread."""

    def received(self, item: Item) -> None:
        thread = threading.Thread(target=self.receiver.received, args=(item,))
        thread.start()
        thread.join()


class NeverClogged(Sound):
    @property
    def is_clogged(self) -> bool:
        return False


class NeverPauses(Sound):
    def pause(self) -> None:
        pass


class NeverWaits(Sound):
    async def drained(self) -> None:
        pass


class WaitsForEver(Sound):
    async def drained(self) -> None:
        while self.inner.is_clogged:
            await self.inner.drained()
        if self.count:
            await asyncio.Event().wait()


class LosesInPauses(Sound):
    is_paused = False

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def received(self, item: Item) -> None:
        if not self.is_paused:
            self.receiver.received(item)


class EndsTwice(Sound):
    def ended(self, *, clean: bool) -> None:
        self.receiver.ended(clean=clean)
        self.receiver.ended(clean=clean)


class EndsEarly(Sound):
    def received(self, item: Item) -> None:
        self.count += 1
        if self.count == 50:
            self.receiver.ended(clean=True)
        self.receiver.received(item)

    def ended(self, *, clean: bool) -> None:
        pass


class EndsDirty(Sound):
    def ended(self, *, clean: bool) -> None:
        self.receiver.ended(clean=False)


class EndsClean(Sound):
    def ended(self, *, clean: bool) -> None:
        self.receiver.ended(clean=True)


class Mends(Sound):
    """Passes on what is left of a message as if it were one."""

    def received(self, item: Item) -> None:
        self.receiver.received(Notification("huge", msgspec.Raw(b"{}")) if isinstance(item, BadMessage) else item)


class NeverEnds(Sound):
    def ended(self, *, clean: bool) -> None:
        pass

    def broke(self, error: OSError) -> None:
        pass


class GoesOn(Sound):
    """Does not stop when it is told to."""

    async def close(self) -> None:
        asyncio.get_running_loop().call_later(0.005, self.receiver.received, Notification("late"))
        await self.inner.close()


class ClosesAtOnce(Sound):
    async def close(self) -> None:
        self.inner.abort()


class ClosesBehindOnesBack(Sound):
    closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self.closing is None:
            self.closing = asyncio.create_task(self.inner.close())
        await asyncio.sleep(0)


class ClosesOnRegardless(Sound):
    closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self.closing is None:
            self.closing = asyncio.create_task(self.inner.close())
        await asyncio.shield(self.closing)


class NeverAborts(Sound):
    def abort(self) -> None:
        pass


class RaisesAtTheEnd(Sound):
    async def close(self) -> None:
        await self.inner.close()
        asyncio.get_running_loop().call_soon(int, "no number")


class LeavesTask(Sound):
    def start(self, receiver: Receiver) -> None:
        super().start(receiver)
        self.task = asyncio.create_task(asyncio.sleep(3600))


class LeavesDescriptors(Sound):
    def start(self, receiver: Receiver) -> None:
        super().start(receiver)
        LEFT.extend(os.pipe())


class LeavesFile(Sound):
    def start(self, receiver: Receiver) -> None:
        super().start(receiver)
        open(os.devnull)  # noqa: PTH123, SIM115 - that is the fault


#: What a fault has left, for the test to clean up.
LEFT: list[int] = []


def faulty_pair(kind: type[Sound]) -> AbstractAsyncContextManager[Pair]:
    @asynccontextmanager
    async def make() -> AsyncIterator[Pair]:
        first, second = memory_pair()
        assert isinstance(first, LineConnection)

        def spoil() -> None:
            first._sink.write([b"no message\n"])

        try:
            yield Pair(kind(first), kind(second), spoil)
        finally:
            first.abort()
            second.abort()

    return make()

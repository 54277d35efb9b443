"""What the tests of connections share: a receiver that keeps all, and pairs of connected ends."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol, TypeAlias

from mcplumb.errors import McplumbError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.connection import Connection
from mcplumb.transports.descriptors import open_sink
from mcplumb.transports.fd_connection import StreamConnection, ThreadSource
from mcplumb.transports.line_connection import LineConnection, Trace
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.decode import BadMessage, Batch
from mcplumb.wire.messages import Message, Notification, Request, RequestId
from tests.kit.loop import Watched

Item: TypeAlias = Message | BadMessage | Batch


class Recorder(Watched):
    """A receiver that keeps what it is given, and calls ``on_item`` with it."""

    def __init__(self, on_item: Callable[[Item], None] | None = None) -> None:
        super().__init__()
        self.items: list[Item] = []
        self.ends: list[bool] = []
        self.errors: list[OSError] = []
        self.hang_ups = 0
        self.on_item = on_item

    def received(self, item: Item) -> None:
        self.items.append(item)
        self._changed.set()
        if self.on_item is not None:
            self.on_item(item)

    def ended(self, *, clean: bool) -> None:
        self.ends.append(clean)
        self._changed.set()

    def hung_up(self) -> None:
        self.hang_ups += 1
        self._changed.set()

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        self.errors.append(error)
        self._changed.set()

    @property
    def names(self) -> list[str]:
        """The methods of the requests and notifications that came."""
        return [item.method for item in self.items if isinstance(item, Request | Notification)]

    async def until_count(self, count: int) -> None:
        await self.until(lambda: len(self.items) >= count)

    async def until_end(self) -> None:
        await self.until(lambda: self.ends)


# --- Pairs ---


def pipe_pair(*, limits: Limits = DEFAULT_LIMITS, trace: Trace | None = None) -> tuple[Connection, Connection]:
    (far_in, near_out), (near_in, far_out) = os.pipe(), os.pipe()
    return StreamConnection(near_in, near_out, limits=limits, trace=trace), StreamConnection(far_in, far_out)


def socket_pair(*, limits: Limits = DEFAULT_LIMITS, trace: Trace | None = None) -> tuple[Connection, Connection]:
    near, far = (end.detach() for end in socket.socketpair())
    return StreamConnection(near, near, limits=limits, trace=trace), StreamConnection(far, far)


def thread_pair(*, limits: Limits = DEFAULT_LIMITS, trace: Trace | None = None) -> tuple[Connection, Connection]:
    """As the first, but read by threads."""
    (far_in, near_out), (near_in, far_out) = os.pipe(), os.pipe()

    def end(read_fd: int, write_fd: int, limits: Limits, trace: Trace | None) -> Connection:
        source, sink = ThreadSource(read_fd), open_sink(write_fd)
        return LineConnection(source, sink, limits=limits, expect=Request, trace=trace)

    return end(near_in, near_out, limits, trace), end(far_in, far_out, DEFAULT_LIMITS, None)


class Maker(Protocol):
    """Makes a pair; the limits are those of its first end at least."""

    def __call__(self, *, limits: Limits = ...) -> tuple[Connection, Connection]: ...


PAIRS: dict[str, Maker] = {
    "pipe": pipe_pair,
    "socket": socket_pair,
    "thread": thread_pair,
    "memory": memory_pair,
}


async def in_callback(function: Callable[[], object]) -> None:
    """Call a function as a connection does it: from the loop, outside of all tasks."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def callback() -> None:
        assert asyncio.current_task() is None
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again where pytest sees it
            done.set_exception(error)
        else:
            done.set_result(None)

    loop.call_soon(callback)
    await done

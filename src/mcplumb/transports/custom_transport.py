"""Custom transports in four methods: implement `Carrier`, and `CarrierConnection` makes it a `Connection`.

A carrier sends and receives whole messages, for instance over a WebSocket or a message queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.line_connection import LineConnection, Source, Trace
from mcplumb.wire.message_decoder import Expected
from mcplumb.wire.messages import Request

__all__ = ["Carrier", "CarrierConnection"]

_logger = logging.getLogger("mcplumb")


class Carrier(Protocol):
    """Sends messages to one peer and receives them from it, in order. A message is a bytes object.

    ``send`` and ``receive`` run concurrently, but neither runs twice at the same time. Both may be cancelled; neither
    is called again after it was cancelled or has raised. They raise `OSError`; any other exception is treated as one.
    """

    async def send(self, message: bytes) -> None:
        """Send one message. Return when there is room for the next."""

    async def receive(self) -> bytes:
        """Return the next message, or empty bytes when the peer has closed the connection."""

    async def close(self) -> None:
        """Flush what was sent, then release everything. Called at most once; it may be cancelled."""

    def abort(self) -> None:
        """Release everything at once. Called at most once: instead of ``close``, or while ``close`` runs."""


class CarrierConnection(LineConnection):
    """A `Connection` over a carrier, which it owns. It is created in a running event loop.

    The connection adds queues, limits, batches, flow control and an orderly close. While reading is paused, it holds
    at most one message.
    """

    __slots__ = ("_carrier", "_closing", "_is_released", "_reader")

    def __init__(
        self,
        carrier: Carrier,
        *,
        limits: Limits = DEFAULT_LIMITS,
        expect: Expected = Request,
        trace: Trace | None = None,
    ) -> None:
        self._carrier = carrier
        self._is_released = False
        self._closing: asyncio.Task[None] | None = None
        self._reader = _CarrierSource(carrier)
        super().__init__(self._reader, _CarrierSink(carrier), limits=limits, expect=expect, trace=trace)

    async def close(self) -> None:
        """Send what is queued, then close. If cancelled, it aborts."""
        await super().close()
        if self._is_released:
            return
        if self._closing is None:
            self._closing = self._loop.create_task(self._close_carrier())
        try:
            await asyncio.wait((self._closing,))
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once and drop what is queued."""
        super().abort()
        if not self._is_released:
            self._is_released = True
            self._reader.stop()
            self._carrier.abort()
            if self._closing is not None:
                self._closing.cancel()

    async def _close_carrier(self) -> None:
        self._reader.stop()
        try:
            await self._carrier.close()
        except Exception as error:  # noqa: BLE001 - usually the peer has closed first, which is no failure
            _logger.debug("A carrier could not be closed. %s", _as_os_error(error))
        self._is_released = True


class _CarrierSource(Source):
    """A task that receives one message after the other."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._flowing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def _begin(self) -> None:
        self._flowing.set()
        self._task = self._loop.create_task(self._read())

    def pause(self) -> None:
        """Deliver nothing but a hang-up."""
        self._flowing.clear()

    def resume(self) -> None:
        """Deliver again."""
        self._flowing.set()

    def close(self) -> None:
        """Deliver nothing more. Messages are still received and dropped, so that a closing peer can flush its own."""
        self._is_closed = True
        self._flowing.set()

    def stop(self) -> None:
        """Cancel the task: nothing more is received."""
        if self._task is not None and not self._loop.is_closed():
            self._task.cancel()

    async def _read(self) -> None:
        error: OSError | None = None
        try:
            while message := await self._next():
                if await self._wait_until_resumed():
                    # In JSON, a raw newline can only be whitespace between tokens, and a space means the same.
                    self._deliver(message.replace(b"\n", b" ") + b"\n")
        except Exception as failure:  # noqa: BLE001 - any failure of the carrier is reported to the connection
            error = _as_os_error(failure)
        if not self._flowing.is_set():
            self._hung_up()
        if await self._wait_until_resumed():
            self._ran_out(error)

    async def _next(self) -> bytes:
        # Yield once: a carrier that always has the next message ready must not starve the loop.
        await asyncio.sleep(0)
        return await self._carrier.receive()

    async def _wait_until_resumed(self) -> bool:
        """Wait while paused. Return False if the source was closed."""
        while not self._flowing.is_set():
            await self._flowing.wait()
        return not self._is_closed

    def _deliver(self, line: bytes) -> None:
        try:
            self._arrived(line)
        except Exception as error:  # noqa: BLE001 - a failing receiver must not lose the messages that follow
            self._loop.call_exception_handler({"message": "A receiver raised an error.", "exception": error})


class _CarrierSink:
    """The `Sink`: a task that sends what is queued. Bytes count as written once they have been sent."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        #: Bytes sent that ``write`` has not reported yet.
        self._sent = 0
        self._error: OSError | None = None
        self._then: Callable[[], None] | None = None

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Return the number of bytes sent since the last call, and start to send unless a task already does."""
        if self._error is not None:
            raise self._error
        sent, self._sent = self._sent, 0
        if self._task is None:  # so everything sent was reported before, and none of these pieces was sent
            self._task = self._loop.create_task(self._send(tuple(pieces)))
        return sent

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then`` whenever something has been sent."""
        self._then = then

    def unwatch(self) -> None:
        """Stop calling."""
        self._then = None

    def close(self) -> None:
        """Stop sending."""
        if self._task is not None and not self._loop.is_closed() and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _send(self, pieces: Sequence[bytes | memoryview]) -> None:
        try:
            for piece in pieces:
                # A piece is a whole line, or a newline alone: pieces are never split, since each is sent as one.
                line = bytes(piece).removesuffix(b"\n")
                if line:
                    await asyncio.sleep(0)
                    await self._carrier.send(line)
                self._sent += len(piece)
                self._notify()
        except Exception as failure:  # noqa: BLE001 - any failure of the carrier is reported to the connection
            self._error = _as_os_error(failure)
        finally:
            self._task = None
        self._notify()

    def _notify(self) -> None:
        if self._then is not None:
            self._then()


def _as_os_error(failure: Exception) -> OSError:
    if isinstance(failure, OSError):
        return failure
    error = OSError(f"{type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error

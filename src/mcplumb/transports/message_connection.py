"""Connections over whatever can send and receive a piece of bytes: the short way to a transport of one's own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.line_connection import LineConnection, Trace
from mcplumb.wire.message_decoder import Expected
from mcplumb.wire.messages import Request

__all__ = ["Carrier", "CarrierConnection"]

_logger = logging.getLogger("mcplumb")


class Carrier(Protocol):
    """Carries messages, each a piece of bytes, to one peer and from it, in order.

    ``send`` and ``receive`` are awaited at the same time, but neither of them twice at once. Both may be cancelled, and
    are not called again then, nor after they have raised. They raise `OSError`; anything else counts as one.
    """

    async def send(self, message: bytes) -> None:
        """Send one message. Return when there is room for the next."""

    async def receive(self) -> bytes:
        """The next message; empty when the peer has closed the connection and there will be none."""

    async def close(self) -> None:
        """Let everything go, once all that was sent has left. Called at most once; it may be cancelled."""

    def abort(self) -> None:
        """Let everything go at once. Called at most once: in place of ``close``, or during it."""


class CarrierConnection(LineConnection):
    """A `Connection` over a carrier, made in a running event loop. The carrier belongs to it from then on.

    Queues, limits, batches, pauses and closing are its part. While reading is paused, one message may be held here.
    """

    __slots__ = ("_carrier", "_ending", "_is_let_go", "_reader")

    def __init__(
        self,
        carrier: Carrier,
        *,
        limits: Limits = DEFAULT_LIMITS,
        expect: Expected = Request,
        trace: Trace | None = None,
    ) -> None:
        self._carrier = carrier
        self._is_let_go = False
        self._ending: asyncio.Task[None] | None = None
        self._reader = _Reader(carrier)
        super().__init__(self._reader, _Writer(carrier), limits=limits, expect=expect, trace=trace)

    async def close(self) -> None:
        """Send what is queued, then close. Cancelled, it aborts."""
        await super().close()
        if self._is_let_go:
            return
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        try:
            await asyncio.wait((self._ending,))
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        super().abort()
        if not self._is_let_go:
            self._is_let_go = True
            self._reader.stop()
            self._carrier.abort()
            if self._ending is not None:
                self._ending.cancel()

    async def _end(self) -> None:
        self._reader.stop()
        try:
            await self._carrier.close()
        except Exception as error:  # noqa: BLE001 - whoever closes need not know that the peer was faster
            _logger.debug("A carrier could not be closed. %s", _as_os_error(error))
        self._is_let_go = True


class _Reader:
    """The source of such a connection: a task that asks for one message after the other."""

    _arrived: Callable[[bytes], int]
    _ran_out: Callable[[OSError | None], None]
    _hung_up: Callable[[], None]

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._flowing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(
        self,
        arrived: Callable[[bytes], int],
        ran_out: Callable[[OSError | None], None],
        hung_up: Callable[[], None],
    ) -> None:
        """Begin."""
        self._arrived = arrived
        self._ran_out = ran_out
        self._hung_up = hung_up
        self._flowing.set()
        self._task = self._loop.create_task(self._read())

    def pause(self) -> None:
        """Bring nothing but the end."""
        self._flowing.clear()

    def resume(self) -> None:
        """Bring more."""
        self._flowing.set()

    def close(self) -> None:
        """Bring nothing more. What comes is dropped, so that a peer which closes, too, gets rid of what it has."""
        self._is_closed = True
        self._flowing.set()

    def stop(self) -> None:
        """Ask for nothing more."""
        if self._task is not None and not self._loop.is_closed():
            self._task.cancel()

    async def _read(self) -> None:
        error: OSError | None = None
        try:
            while message := await self._next():
                if await self._is_wanted():
                    # A line end can only be between the parts of a JSON value, and there a blank does as well.
                    self._pass_on(message.replace(b"\n", b" ") + b"\n")
        except Exception as failure:  # noqa: BLE001 - of the carrier's, which is told to whoever owns the connection
            error = _as_os_error(failure)
        if not self._flowing.is_set():
            self._hung_up()
        if await self._is_wanted():
            self._ran_out(error)

    async def _next(self) -> bytes:
        # A carrier that has the next message already, each time, leaves the loop to others all the same.
        await asyncio.sleep(0)
        return await self._carrier.receive()

    async def _is_wanted(self) -> bool:
        """Wait while nothing is; False if nothing will be any more."""
        while not self._flowing.is_set():
            await self._flowing.wait()
        return not self._is_closed

    def _pass_on(self, line: bytes) -> None:
        try:
            self._arrived(line)
        except Exception as error:  # noqa: BLE001 - of the receiver's: the messages behind this one are not lost
            self._loop.call_exception_handler({"message": "A receiver raised an error.", "exception": error})


class _Writer:
    """The sink of such a connection: a task that sends what is queued. What counts as written has been sent."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        #: Bytes that were sent, and of which that has not been told.
        self._sent = 0
        self._error: OSError | None = None
        self._then: Callable[[], None] | None = None

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Tell how many bytes have been sent since the last time, and begin to send unless that is under way."""
        if self._error is not None:
            raise self._error
        sent, self._sent = self._sent, 0
        if self._task is None:  # then all that was sent has been told, and none of these is among it
            self._task = self._loop.create_task(self._send(tuple(pieces)))
        return sent

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then`` whenever something has been sent."""
        self._then = then

    def unwatch(self) -> None:
        """Do so no more."""
        self._then = None

    def close(self) -> None:
        """Send nothing more."""
        if self._task is not None and not self._loop.is_closed() and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _send(self, pieces: Sequence[bytes | memoryview]) -> None:
        try:
            for piece in pieces:
                # A line, or its newline alone: none of them was cut, since each counts when it has been sent.
                line = bytes(piece).removesuffix(b"\n")
                if line:
                    await asyncio.sleep(0)
                    await self._carrier.send(line)
                self._sent += len(piece)
                self._tell()
        except Exception as failure:  # noqa: BLE001 - of the carrier's, which is told to whoever owns the connection
            self._error = _as_os_error(failure)
        finally:
            self._task = None
        self._tell()

    def _tell(self) -> None:
        if self._then is not None:
            self._then()


def _as_os_error(failure: Exception) -> OSError:
    if isinstance(failure, OSError):
        return failure
    error = OSError(f"{type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error

"""Requests of this side: how many are open at once, when they time out, and the errors of those without a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb.errors import (
    AuthorizationError,
    Closed,
    DecodeError,
    HttpError,
    McplumbError,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    RequestTimeout,
)
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.transports.connection import Connection, Waiters
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Error, Result

__all__ = ["DeadlineTimer", "Deferred", "Response", "SendSlots", "describe", "failure"]

#: How a request ended: with a response, a malformed one, or none (then the state of the request says why).
Response: TypeAlias = Result | Error | BadMessage | None

_LONGEST_NAME = 100


def failure(request: OutgoingRequest, response: Response, what: str, peer: str) -> McplumbError:
    """Return the error for a request that ended with anything but a result. ``peer`` is "server" or "client"."""
    if isinstance(response, Error):
        detail = response.error
        return RemoteError(detail.code, detail.message, _data_of(detail.data), request=what, peer=peer)
    if isinstance(response, BadMessage):
        return ProtocolError(f"The {peer}'s answer to {what} cannot be read. {response.reason}")
    if request.state == "expired":
        return RequestTimeout(f"{what} {_reason_of_timeout(request)}")
    if request.state == "failed" and not isinstance(request.cause, RequestLost):
        return _refused(request, what, peer)
    if request.state == "lost" and peer == "client":
        return Closed(f"{what} was not answered. {request.cause}")
    if request.state in ("failed", "lost"):
        lost = RequestLost(
            f"The connection ended before {what} was answered: whether it took effect is unknown. {request.cause}"
        )
        lost.__cause__ = request.cause
        lost.deadline = request.deadline
        return lost
    return RequestCancelled(f"{what} was given up before it was answered, because the client was closed.")


def _refused(request: OutgoingRequest, what: str, peer: str) -> McplumbError:
    """Return the error for a request that did not reach the peer, or that the peer's HTTP endpoint refused."""
    cause = request.cause
    if isinstance(cause, HttpError):
        error: McplumbError = HttpError(
            cause.status,
            f"{what} was refused. {cause}",
            www_authenticate=cause.www_authenticate,
            token_id=cause.token_id,
            answered=cause.answered,
        )
    elif isinstance(cause, AuthorizationError):
        sentence = f"{what} was not authorized. {cause}"
        error = AuthorizationError(cause.reason, sentence, issuer=cause.issuer, resource=cause.resource)
    elif isinstance(cause, Closed):
        error = Closed(f"{what} was not sent. {cause}")
    else:
        error = ProtocolError(f"The {peer}'s answer to {what} cannot be used. {cause}")
    error.__cause__ = cause
    return error


def describe(method: str, params: Any) -> str:
    """Name a request in an error message: its method, and the tool, prompt or resource that it is about."""
    subject = params.get("name", params.get("uri")) if isinstance(params, dict) else None
    return f"{method} {subject[:_LONGEST_NAME]!r}" if isinstance(subject, str) else method


def _data_of(raw: msgspec.Raw | UnsetType) -> Any:
    """Return the data of an error; as text if it cannot be decoded, because the error is worth reporting anyway."""
    if raw is UNSET:
        return None
    try:
        return read(object, raw)
    except DecodeError:
        return bytes(raw).decode(errors="replace")


def _reason_of_timeout(request: OutgoingRequest) -> str:
    longer = "timeout"
    if request.timeout is None or (request.progress is not None and request.deadline == request.latest):
        what, longer = "was not done within its max_timeout", "max_timeout"
    elif request.progress is not None:
        what = f"made no progress for {request.timeout:g} s"
    else:
        what = f"was not answered in time ({request.timeout:g} s)"
    return f"{what}, and has been cancelled. If it needs longer, give it a longer {longer}."


class SendSlots:
    """A semaphore for requests that also waits while the connection is clogged.

    The common case costs nothing but a count: a caller that finds a slot ``free``, no caller ``waiting`` and the
    connection not clogged decrements ``free``. Every other caller awaits ``take``. Every caller gives its slot back by
    incrementing ``free`` and, if callers are waiting, calling ``wake``. The waiting callers, which may be thousands,
    are served in order and share one timer and one watch on the connection.
    """

    __slots__ = ("_connection", "_draining", "_is_closed", "_loop", "_waiters", "free", "waiting")

    def __init__(self, count: int, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.free = count
        self.waiting = 0
        self._connection = connection
        self._loop = loop
        self._is_closed = False
        self._waiters = Waiters(loop, lambda: self.waiting if self._is_closed else self.free)
        #: Waits for the peer to read, while any caller waits for that.
        self._draining: asyncio.Task[None] | None = None

    async def take(self, deadline: float | None) -> bool:
        """Wait for a slot and take it; False if there is none until the deadline. If cancelled, no slot is taken."""
        self.waiting += 1
        try:
            if not await self._waiters.wait_while(self._must_wait, deadline):
                return False
            self.free -= 1
            return True
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._stop_draining()

    def close(self) -> None:
        """Make every later call of ``take`` find that the connection is closed."""
        self.waiting += 1
        self._is_closed = True
        self._stop_draining()
        self._waiters.wake()

    def wake(self) -> None:
        """Let the next callers look for a slot, because one has become free."""
        if not self._must_wait():
            self._waiters.wake()

    def _must_wait(self) -> bool:
        if self._is_closed:
            return False
        if not self._connection.is_clogged:
            return not self.free
        if self._draining is None:
            # In an empty context: it must not inherit the variables of the caller that happens to come first.
            self._draining = Context().run(self._loop.create_task, self._connection.drained())
            self._draining.add_done_callback(self._drained)
        return True

    def _stop_draining(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None

    def _drained(self, draining: asyncio.Task[None]) -> None:
        if draining is self._draining:
            self._draining = None
            self._waiters.wake()


# --- Timeouts ---

_NEVER = float("inf")
#: Looks, one in a turn of the loop, that find nothing new before all that had arrived is taken to be read. Over HTTP a
#: message takes several turns from the socket to its receiver.
_QUIET_LOOKS = 8
#: Seconds by which the timer is late if the loop was blocked. Then these seconds pass between two looks: the peer may
#: have had to wait until its responses, or our requests, are read.
_LATE = 0.05
_LATE_INTERVAL = 0.01
#: Seconds of reading at most, while more keeps arriving: as long as the timer was late, within these bounds. A peer
#: that never stops writing must not put off every timeout.
_SHORTEST_CATCH_UP = 0.05
_LONGEST_CATCH_UP = 5.0


class DeadlineTimer:
    """One timer for all deadlines, which calls ``expire`` when everything that has arrived by then is read.

    A program may block its event loop for longer than its requests may take. Their responses have arrived meanwhile,
    and only the loop was late.
    """

    __slots__ = ("_connection", "_expire", "_handle", "_interval", "_looks", "_loop", "_seen", "_until", "at")

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, expire: Callable[[], None]) -> None:
        self._connection = connection
        self._loop = loop
        self._expire = expire
        self._handle: asyncio.Handle | None = None
        #: When it is due; infinite if it is not set.
        self.at = _NEVER
        # What had been read at the last look, how many more looks there are if they find nothing new, and until when.
        self._seen = (0, 0)
        self._looks = 0
        self._interval = 0.0
        self._until = 0.0

    def set(self, when: float) -> None:
        """Set the timer to this time, in place of the previous one."""
        self.stop()
        self.at = when
        self._handle = self._loop.call_at(when, self._catch_up)

    def stop(self) -> None:
        """Stop the timer."""
        self.at = _NEVER
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _catch_up(self) -> None:
        now = self._loop.time()
        late = now - self.at
        self._interval = _LATE_INTERVAL if late > _LATE else 0.0
        self._until = now + min(max(late, _SHORTEST_CATCH_UP), _LONGEST_CATCH_UP)
        self._looks = _QUIET_LOOKS
        self._look()

    def _look(self) -> None:
        stats = self._connection.stats
        seen = stats.messages_in, stats.bytes_in
        if seen != self._seen and self._loop.time() < self._until:
            self._seen = seen
            self._looks = _QUIET_LOOKS
        self._looks -= 1
        if self._looks > 0:
            self._handle = self._loop.call_later(self._interval, self._look)
        else:
            self.stop()
            self._expire()


class Deferred(asyncio.Future[Response]):
    """A response that no task awaits directly, so no task has to be resumed when it arrives."""

    def set_result(self, response: Response) -> None:
        """Set the response, unless nobody wants it any more."""
        if not self.done():
            super().set_result(response)

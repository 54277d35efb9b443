"""The requests of this side on one connection, each with the future that its caller waits on.

The rules are those of ``protocol.outgoing``. Here is what they need of the event loop: one future for each call,
and one timer for all of them. An answer wakes its caller at once: what that one sends next is then written in the same
turn of the loop, together with what the callers of the other answers send.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb._fast.eager_futures import give, give_now
from mcplumb.client.callbacks import OnProgress, ProgressCourier
from mcplumb.client.send_slots import Turns
from mcplumb.errors import (
    Closed,
    DecodeError,
    EncodeError,
    HttpError,
    McplumbError,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    RequestTimeout,
)
from mcplumb.limits import Limits
from mcplumb.protocol.in_flight import Call, Outgoing
from mcplumb.transports.connection import Connection
from mcplumb.types.meta import PROGRESS_TOKEN
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import ProgressParams
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Error, Notification, Request, RequestId, Result

__all__ = ["Calls", "Outcome", "describe", "failure"]

#: How a call ended: with an answer, a bad one or an unreadable one, or with none (then its state says why).
Outcome: TypeAlias = Result | Error | BadMessage | None

_NEVER = float("inf")
_LONGEST_NAME = 100
_MAY_NEED_INPUT = frozenset(name for name, method in METHODS.items() if method.may_need_input)


class _InNoHurry(asyncio.Future[Outcome]):
    """What somebody else waits for than a task that would go on with it."""


class Calls:
    """Sends requests, and ends each of them exactly once: answered, given up, timed out or lost."""

    def __init__(self, connection: Connection, limits: Limits, *, first_id: int = 1) -> None:
        self.dropped = 0
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        # Subscriptions stay open, and do not take the place of other requests.
        self._outgoing = Outgoing(max_in_flight=limits.max_in_flight + limits.max_subscriptions, first_id=first_id)
        self._turns = Turns(limits.max_in_flight, connection)
        self._couriers: dict[int, ProgressCourier] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._held = 0
        #: Why nothing can be sent any more.
        self._cause: McplumbError | None = None

    @property
    def late(self) -> int:
        """Answers and progress that came for calls which had ended."""
        return self._outgoing.late

    @property
    def unknown(self) -> int:
        """Answers and progress that came for no call of this side's."""
        return self._outgoing.unknown

    @property
    def next_id(self) -> int:
        """The id of the next call, with which the next connection goes on."""
        return self._outgoing.next_id

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,  # noqa: ASYNC109 - it cancels the request on the server, which asyncio's could not
        max_timeout: float | None,
        on_progress: OnProgress | None = None,
        start: float | None = None,
    ) -> msgspec.Raw:
        """Send a request and wait for its result, as raw JSON. Cancelled, it is given up on the wire as well.

        The timeouts run from ``start``, or from now, and cover the wait for a place and for a server that does not
        read. With ``on_progress``, the dict ``params["_meta"]`` gets the progress token.
        """
        if start is None:
            start = self._loop.time()
        turns = self._turns
        if turns.free and not turns.waiting and not self._connection.is_clogged:
            turns.free -= 1
        else:
            waits = [start + wait for wait in (timeout, max_timeout) if wait is not None]
            if not await turns.take(min(waits, default=None)):
                raise RequestTimeout(
                    f"{describe(method, params)} was not sent in time: the server does not read, or too many requests "
                    "are open."
                )
        try:
            if self._cause is not None:
                raise self._closed(method) from self._cause
            answer: asyncio.Future[Outcome] = asyncio.Future(loop=self._loop)
            call = self._outgoing.open(method, start, timeout, max_timeout, answer)
            if on_progress is not None:
                params["_meta"][PROGRESS_TOKEN] = call.id
                self._couriers[call.id] = ProgressCourier(on_progress, self._loop)
            try:
                self._send(call, params)
                outcome = await answer
                if on_progress is not None and type(outcome) is Result:
                    await self._couriers[call.id].finish(self._time_left(call))
            except asyncio.CancelledError:
                self.give_up(call, "The caller does not wait for the answer any more.")
                raise
            finally:
                if on_progress is not None:
                    self._retire(self._couriers.pop(call.id))
        finally:
            turns.give_back()
        if type(outcome) is Result:
            result: msgspec.Raw = outcome.result
            return result
        raise failure(call, outcome, describe(method, params))

    def open(self, method: str, params: Any) -> tuple[Call, asyncio.Future[Outcome]]:
        """Send a request that waits as long as its owner wants to; ``Closed`` if it cannot be sent any more."""
        self._check_open(method)
        answer: asyncio.Future[Outcome] = _InNoHurry(loop=self._loop)
        call = self._outgoing.open(method, self._loop.time(), None, waiter=answer)
        self._send(call, params)
        return call, answer

    async def notify(self, notification: Notification, within: float | None) -> None:
        """Send a notification, as soon as the server reads; ``Closed`` if it cannot be sent any more."""
        try:
            async with asyncio.timeout(within):
                await self._connection.drained()
        except TimeoutError:
            raise RequestTimeout(f"{notification.method} was not sent in time: the server does not read.") from None
        self._check_open(notification.method)
        self._connection.send(notification)

    def give_up(self, call: Call, reason: str) -> None:
        """Nobody waits for this answer any more: tell the server, unless the call has ended already."""
        note = self._outgoing.cancel(call, reason)
        give(call.waiter, None)
        self._tell(note)

    def forget(self, call: Call) -> None:
        """The same, without a word to the server."""
        self._outgoing.cancel(call)
        give(call.waiter, None)

    def answered(self, response: Result | Error) -> None:
        """An answer came. Its caller goes on before this returns, and may do anything in there."""
        call = self._outgoing.answer(response)
        if call is not None:
            (give_now if type(call.waiter) is asyncio.Future else give)(call.waiter, response)

    def broken(self, bad: BadMessage) -> None:
        """An answer came that cannot be read."""
        call = self._outgoing.break_off(bad.id)
        if call is not None:
            give(call.waiter, bad)

    def failed(self, request_id: RequestId, cause: McplumbError) -> None:
        """No answer will come to this call, for this reason, although the connection goes on."""
        call = self._outgoing.fail(request_id, cause)
        if call is not None:
            give(call.waiter, None)

    def progressed(self, progress: ProgressParams) -> None:
        """Progress came."""
        call = self._outgoing.advance(progress.progress_token, progress.progress, self._loop.time())
        courier = None if call is None else self._couriers.get(call.id)
        if courier is not None:
            courier.bring(progress)

    def ended(self, request_id: Any) -> None:
        """The server cancelled a subscription of ours."""
        call = self._outgoing.end(request_id)
        if call is not None:
            give(call.waiter, None)

    def hold(self) -> None:
        """The server waits for this side: until ``resume``, the calls that it may be working on get more time.

        A legacy server does not say for which call it asks, so it may be any that can need input. None of them gets
        more than its ``max_timeout``.
        """
        self._held += 1

    def resume(self) -> None:
        """The server has got what it waited for."""
        self._extend()
        self._held -= 1

    @property
    def is_open(self) -> bool:
        """Whether anything can be sent."""
        return self._cause is None

    def refuse(self, cause: McplumbError) -> None:
        """Nothing can be sent any more, for this reason; the open calls still wait for their answers."""
        self._cause = self._cause or cause

    def lose(self, cause: McplumbError) -> None:
        """The connection is gone, for this reason: every open call is lost, and none can begin."""
        self._cause = cause
        for call in self._outgoing.close(cause):
            give(call.waiter, None)
        self._stop_timer()

    def give_up_all(self, reason: str) -> None:
        """Give up every open call."""
        for call in self._outgoing.all():
            self.give_up(call, reason)

    def _check_open(self, method: str) -> None:
        if self._cause is not None:
            raise self._closed(method) from self._cause

    def _closed(self, method: str) -> Closed:
        return Closed(f"{method} was not sent: the connection is closed. {self._cause}")

    def _send(self, call: Call, params: Any) -> None:
        try:
            self._connection.send(Request(call.id, call.method, params))
        except EncodeError:
            self._outgoing.cancel(call)
            raise
        if call.deadline is not None and call.deadline < self._timer_at:
            self._set_timer(call.deadline)

    def _tell(self, note: Notification | None) -> None:
        if note is not None:
            self._connection.send(note)

    def _time_left(self, call: Call) -> float | None:
        return None if call.deadline is None else max(0.0, call.deadline - self._loop.time())

    def _retire(self, courier: ProgressCourier) -> None:
        courier.stop()
        self.dropped += courier.dropped

    def _set_timer(self, when: float) -> None:
        self._stop_timer()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._expire)

    def _stop_timer(self) -> None:
        self._timer_at = _NEVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._stop_timer()
        if self._held:
            self._extend()
        for call, note in self._outgoing.expire(self._loop.time()):
            give(call.waiter, None)
            self._tell(note)
        deadline = self._outgoing.deadline
        if deadline is not None:
            self._set_timer(deadline)

    def _extend(self) -> None:
        now = self._loop.time()
        for call in self._outgoing.all():
            if call.method in _MAY_NEED_INPUT:
                self._outgoing.extend(call, now)


def failure(call: Call, outcome: Outcome, what: str) -> McplumbError:
    """The error for a call that ended like this, with nothing or with something else than a result."""
    if isinstance(outcome, Error):
        detail = outcome.error
        return RemoteError(detail.code, detail.message, _data_of(detail.data), request=what)
    if isinstance(outcome, BadMessage):
        return ProtocolError(f"The server's answer to {what} cannot be read. {outcome.reason}")
    if call.state == "expired":
        return RequestTimeout(f"{what} {_what_took_long(call)}")
    if call.state == "failed" and not isinstance(call.cause, RequestLost):
        return _refused(call, what)
    if call.state in ("failed", "lost"):
        lost = RequestLost(
            f"The connection ended before {what} was answered: whether it took effect is unknown. {call.cause}"
        )
        lost.__cause__ = call.cause
        lost.deadline = call.deadline
        return lost
    return RequestCancelled(f"{what} was given up before it was answered, because the client was closed.")


def _refused(call: Call, what: str) -> McplumbError:
    """The error for a call that did not reach the server, or that it refused."""
    cause = call.cause
    if isinstance(cause, HttpError):
        error: McplumbError = HttpError(
            cause.status, f"{what} was refused. {cause}", www_authenticate=cause.www_authenticate
        )
    elif isinstance(cause, Closed):
        error = Closed(f"{what} was not sent. {cause}")
    else:
        error = ProtocolError(f"The server's answer to {what} cannot be used. {cause}")
    error.__cause__ = cause
    return error


def _data_of(raw: msgspec.Raw | UnsetType) -> Any:
    """What an error carries; as text if Python cannot read it, since an error is worth knowing all the same."""
    if raw is UNSET:
        return None
    try:
        return read(object, raw)
    except DecodeError:
        return bytes(raw).decode(errors="replace")


def describe(method: str, params: Any) -> str:
    """The request in words: its method, and the tool, prompt or resource that it is about."""
    subject = params.get("name", params.get("uri")) if isinstance(params, dict) else None
    return f"{method} {subject[:_LONGEST_NAME]!r}" if isinstance(subject, str) else method


def _what_took_long(call: Call) -> str:
    longer = "timeout"
    if call.timeout is None or (call.progress is not None and call.deadline == call.latest):
        what, longer = "was not done within its max_timeout", "max_timeout"
    elif call.progress is not None:
        what = f"made no progress for {call.timeout:g} s"
    else:
        what = f"was not answered in time ({call.timeout:g} s)"
    return f"{what}, and has been cancelled. If it needs longer, give it a longer {longer}."

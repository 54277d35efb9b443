"""The requests that this side has sent: ids, matching, deadlines, giving up.

One record a call, and one table that changes it. Every call ends exactly once. Ids count up and are never used again on
a connection, so an answer to an id that is no longer open is late, and an answer to one that was never given out is
unknown; neither harms.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.protocol.tables import Table
from mcplumb.wire.messages import Error, Notification, RequestId, Result

__all__ = ["CALL", "Call", "Outgoing", "check_seconds"]

_State: TypeAlias = Literal["open", "answered", "broken", "ended", "cancelled", "expired", "failed", "lost"]
_Event: TypeAlias = Literal["progress", "answer", "break", "end", "cancel", "expire", "fail", "lose"]

CALL: Table[_State, _Event] = Table(
    "call",
    "open",
    {
        ("open", "progress"): "open",
        ("open", "answer"): "answered",
        ("open", "break"): "broken",
        ("open", "end"): "ended",
        ("open", "cancel"): "cancelled",
        ("open", "expire"): "expired",
        ("open", "fail"): "failed",
        ("open", "lose"): "lost",
    },
    final=("answered", "broken", "ended", "cancelled", "expired", "failed", "lost"),
    doc=(
        "One request that this side has sent. *Broken*: the answer came but breaks the protocol. *Ended*: a "
        "subscription that the server cancelled. *Failed*: this one gets no answer, although the connection goes on. "
        "*Lost*: the connection ended first."
    ),
)


#: How almost every call ends, looked up once.
_ANSWERED = CALL.after("open", "answer")


class Call(msgspec.Struct, eq=False):
    """One request of ours. Read it; only ``Outgoing`` changes it."""

    id: int
    method: str
    #: None: this call waits for ever (a subscription).
    deadline: float | None
    timeout: float | None
    #: Progress never moves the deadline beyond this.
    latest: float | None
    #: Who waits for the answer: for the owner's use.
    waiter: Any = None
    state: _State = "open"
    progress: float | None = None
    #: Why it failed, or why the connection ended, if that is what ended the call.
    cause: McplumbError | None = None

    @property
    def may_be_cancelled(self) -> bool:
        """``initialize`` is never cancelled."""
        return self.method != "initialize"


class Outgoing:
    """The open requests of this side on one connection. ``late`` and ``unknown`` count what matched none of them."""

    def __init__(self, *, max_in_flight: int, first_id: int = 1) -> None:
        self.late = 0
        self.unknown = 0
        self._calls: dict[int, Call] = {}
        self._first_id = self._next_id = first_id
        #: None can begin if that many are open: none at all when the connection is gone.
        self._enough = max_in_flight
        #: A heap of deadlines and ids. Nobody looks after it on the way of a request: the calls from an id on are not
        #: in it yet, and those in it may have ended, or got more time, which shows when it is theirs.
        self._due: list[tuple[float, int]] = []
        self._not_due_from = first_id
        self._cause: McplumbError | None = None

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def is_full(self) -> bool:
        """Whether another call has to wait until one of the open ones has ended."""
        return len(self._calls) >= self._enough

    @property
    def deadline(self) -> float | None:
        """When to call ``expire`` next: never later than the first deadline, sometimes earlier, None for never."""
        self._note_due()
        while self._due:
            deadline, number = self._due[0]
            call = self._calls.get(number)
            if call is not None and call.deadline is not None:
                return deadline
            heappop(self._due)
        return None

    @property
    def next_id(self) -> int:
        """The id that the next call gets; after a restart, the counting goes on from here."""
        return self._next_id

    def open(
        self,
        method: str,
        now: float,
        timeout: float | None,
        max_timeout: float | None = None,
        waiter: Any = None,
    ) -> Call:
        """Begin a call. The timeout runs from now, so that it covers the writing too.

        Progress extends it to ``timeout`` after that progress, but never beyond ``max_timeout`` from now. The id is
        also the call's progress token. The two timeouts are None, or have passed ``check_seconds``.
        """
        # On the way of each request, so all in one place.
        if len(self._calls) >= self._enough:
            raise self._refusal(method)
        deadline = latest = None if max_timeout is None else now + max_timeout
        if timeout is not None:
            deadline = now + timeout
            if latest is not None and latest < deadline:
                deadline = latest
        number = self._next_id
        self._next_id = number + 1
        call = self._calls[number] = Call(number, method, deadline, timeout, latest, waiter)
        return call

    def _refusal(self, method: str) -> McplumbError:
        if self._cause is not None:
            closed = Closed(f"{method} was not sent: the connection is closed. {self._cause}")
            closed.__cause__ = self._cause
            return closed
        return UsageError(f"{method} was not sent: {self._enough} requests are open already. Wait for one to end.")

    def answer(self, response: Result | Error) -> Call | None:
        """The call that this response ends, or None if it is late, unknown or has no id."""
        number = response.id
        call = self._calls.pop(number, None) if type(number) is int else None
        if call is None:
            self._count(number)
        else:
            call.state = _ANSWERED
        return call

    def break_off(self, request_id: RequestId | msgspec.UnsetType) -> Call | None:
        """The call that a malformed response ends, as for ``answer``."""
        return self._end(request_id, "break")

    def end(self, request_id: Any) -> Call | None:
        """The subscription that the server cancelled, or None: it may cancel nothing else of ours."""
        call = self.find(request_id)
        if call is None or call.method != "subscriptions/listen":
            self.unknown += 1
            return None
        return self._end(call.id, "end")

    def fail(self, request_id: RequestId, cause: McplumbError) -> Call | None:
        """The call that gets no answer, for this reason, although the connection goes on, as for ``answer``."""
        call = self._end(request_id, "fail")
        if call is not None:
            call.cause = cause
        return call

    def all(self) -> list[Call]:
        """The open calls."""
        return list(self._calls.values())

    def find(self, request_id: Any) -> Call | None:
        """The open call with this id."""
        return self._calls.get(request_id) if type(request_id) is int else None

    def advance(self, token: Any, progress: float, now: float) -> Call | None:
        """The call that this progress belongs to, its deadline moved; None if it belongs to none or does not grow."""
        call = self.find(token)
        if call is None:
            self._count(token)
            return None
        if not progress > (-math.inf if call.progress is None else call.progress):
            return None
        call.state = CALL.after(call.state, "progress")
        call.progress = progress
        self.extend(call, now)
        return call

    def extend(self, call: Call, now: float) -> None:
        """The peer is known to work on this call: its deadline moves as by progress, up to ``max_timeout``."""
        if call.timeout is not None:
            call.deadline = _earlier(now + call.timeout, call.latest)

    def cancel(self, call: Call, reason: str | None = None) -> Notification | None:
        """Give a call up. Returns what to tell the peer; None if the call has ended or must not be cancelled."""
        if call.state != "open":
            return None
        return self._give_up(call, "cancel", reason)

    def expire(self, now: float) -> list[tuple[Call, Notification | None]]:
        """Give up the calls whose time is over; each comes with what to tell the peer."""
        notes = []
        self._note_due()
        while self._due:
            deadline, number = self._due[0]
            call = self._calls.get(number)
            if call is None or call.deadline is None:
                heappop(self._due)
            elif call.deadline > deadline:
                heapreplace(self._due, (call.deadline, number))
            elif deadline <= now:
                heappop(self._due)
                notes.append((call, self._give_up(call, "expire", "The request timed out.")))
            else:
                break
        return notes

    def close(self, cause: McplumbError) -> list[Call]:
        """The connection is gone, and this is why: returns the calls that are lost with it.

        No call can begin after that. Closed again, the first cause stays.
        """
        self._cause = self._cause or cause
        self._enough = 0
        lost = self.all()
        for call in lost:
            call.cause = self._cause
            self._end(call.id, "lose")
        return lost

    def _note_due(self) -> None:
        if len(self._due) > 2 * len(self._calls):
            # More than half have ended: it is made anew, so that it is never much longer than there are calls.
            self._due.clear()
            self._not_due_from = self._first_id
        for call in reversed(self._calls.values()):
            if call.id < self._not_due_from:
                break
            if call.deadline is not None:
                heappush(self._due, (call.deadline, call.id))
        self._not_due_from = self._next_id

    def _give_up(self, call: Call, event: Literal["cancel", "expire"], reason: str | None) -> Notification | None:
        self._end(call.id, event)
        if not call.may_be_cancelled:
            return None
        params: dict[str, Any] = {"requestId": call.id}
        if reason is not None:
            params["reason"] = reason
        return Notification("notifications/cancelled", params)

    def _end(self, request_id: RequestId | msgspec.UnsetType, event: _Event) -> Call | None:
        call = self.find(request_id)
        if call is None:
            self._count(request_id)
            return None
        del self._calls[call.id]
        call.state = CALL.after(call.state, event)
        return call

    def _count(self, request_id: Any) -> None:
        if type(request_id) is int and self._first_id <= request_id < self._next_id:
            self.late += 1
        else:
            self.unknown += 1


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def check_seconds(name: str, seconds: Any) -> None:
    """`UsageError` if this is no timeout: neither a number of seconds nor None."""
    if seconds is not None and not (isinstance(seconds, int | float) and 0 <= seconds < math.inf):
        raise UsageError(f"{name} is {seconds!r}: give it a number of seconds, or None for no limit.")

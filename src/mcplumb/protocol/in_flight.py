"""Requests in flight, in both directions: ids, deadlines, cancellation, progress and batches.

Values pass at once while there is allowance: a burst, then a steady rate. What comes faster replaces the value that is
held back, so that the newest one is never lost: it goes out when its turn comes, or just before the answer.

Everything that goes out for a request passes through its record here, so that nothing is ever sent for one that has
ended: no second answer, no progress after the answer, nothing at all after a cancellation.

One record a call, and one table that changes it. Every call ends exactly once. Ids count up and are never used again on
a connection, so an answer to an id that is no longer open is late, and an answer to one that was never given out is
unknown; neither harms.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.protocol.state_table import Table
from mcplumb.types.base import Number
from mcplumb.types.notification_params import ProgressParams
from mcplumb.wire.messages import INVALID_REQUEST, Error, ErrorDetail, Notification, Request, RequestId, Result

__all__ = [
    "CALL",
    "WORK",
    "BatchAnswers",
    "Batches",
    "Call",
    "Incoming",
    "Outgoing",
    "ProgressMeter",
    "Work",
    "check_seconds",
]


# Progress of one request, on its way to the peer or to a callback: it grows, and a flood of it is thinned out.


class ProgressMeter:
    """Decides which progress of one request passes. ``rate`` is per second, after a ``burst``."""

    __slots__ = ("_allowance", "_asked_at", "_burst", "_held", "_highest", "_rate")

    def __init__(self, *, burst: int = 32, rate: float = 20.0) -> None:
        if burst < 1 or not rate > 0:
            raise UsageError(f"A burst of {burst} and a rate of {rate:g} per second would let no progress pass.")
        self._burst = float(burst)
        self._rate = rate
        self._allowance = self._burst
        self._asked_at: float | None = None
        self._highest: Number = -math.inf
        self._held: ProgressParams | None = None

    @property
    def deadline(self) -> float | None:
        """When to call ``due`` for the value that is held back; None if none is."""
        if self._held is None or self._asked_at is None:
            return None
        return self._asked_at + (1.0 - self._allowance) / self._rate

    def offer(self, progress: ProgressParams, now: float) -> ProgressParams | None:
        """The progress, if it may go out now; None if it is held back, or does not grow and is dropped."""
        return self.due(now) if self.hold(progress) else None

    def hold(self, progress: ProgressParams) -> bool:
        """Hold the progress back, in place of an older one; False if it does not grow and is dropped."""
        if not _is_finite(progress.progress) or progress.progress <= self._highest:
            return False
        if progress.total is not None and not _is_finite(progress.total):
            progress = replace(progress, total=None)
        self._highest = progress.progress
        self._held = progress
        return True

    def due(self, now: float) -> ProgressParams | None:
        """The value that was held back, if its time has come."""
        elapsed = 0.0 if self._asked_at is None else max(0.0, now - self._asked_at)
        self._asked_at = now
        self._allowance = min(self._burst, self._allowance + elapsed * self._rate)
        if self._held is None or self._allowance < 1.0 - _ROUNDING:
            return None
        self._allowance -= 1.0
        return self.last()

    def last(self) -> ProgressParams | None:
        """The value that was held back, whatever the time: the request is about to be answered."""
        held, self._held = self._held, None
        return held


def _is_finite(number: Number) -> bool:
    # Integers may have hundreds of digits, more than isfinite can take.
    return not isinstance(number, float) or math.isfinite(number)


#: A wait until exactly ``deadline`` must be enough, whatever floating point makes of it.
_ROUNDING = 1e-6


# The answers to one batch, which go back together (2025-03-26).


class BatchAnswers:
    """Collects the answers to a batch of ``expected`` requests. It is complete once each was answered or skipped."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._answers: list[Result | Error] = []
        #: Those under which it is found in ``Batches``.
        self.ids: set[RequestId] = set()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing any more."""
        return self._missing == 0

    def answer(self, response: Result | Error) -> list[Result | Error] | None:
        """Take one answer; returns all of them if it was the last one."""
        self._answers.append(response)
        return self.skip()

    def skip(self) -> list[Result | Error] | None:
        """One request stays without an answer, because it was cancelled; as for ``answer``.

        If none is left to send, the list is empty: then nothing is sent at all.
        """
        self._missing -= 1
        return self._answers if self.is_complete else None


class Batches(dict[RequestId, BatchAnswers]):
    """The batches that are not complete, by the ids of their requests: until its answer is sent, an id is in use."""

    __slots__ = ()

    def enter(self, request_id: RequestId, batch: BatchAnswers) -> None:
        """This request of a batch has been taken in."""
        self[request_id] = batch
        batch.ids.add(request_id)

    def leave(self, request_id: RequestId) -> BatchAnswers | None:
        """This request gets no answer: returns its batch, if it was part of one."""
        batch = self.pop(request_id, None)
        if batch is not None:
            batch.ids.remove(request_id)
        return batch

    def forget(self, batch: BatchAnswers) -> None:
        """All answers to this batch have been sent."""
        while batch.ids:
            del self[batch.ids.pop()]


# The requests that the peer has sent: taking them in, cancelling them, and keeping silent about those cancelled.


_WorkState: TypeAlias = Literal["running", "answered", "cancelled", "dropped"]
_WorkEvent: TypeAlias = Literal["notify", "answer", "cancel", "drop"]

WORK: Table[_WorkState, _WorkEvent] = Table(
    "work",
    "running",
    {
        ("running", "notify"): "running",
        ("running", "answer"): "answered",
        ("running", "cancel"): "cancelled",
        ("running", "drop"): "dropped",
    },
    final=("answered", "cancelled", "dropped"),
    doc=(
        "One request that the peer has sent. *Cancelled*: the peer does not want the answer any more. *Dropped*: the "
        "connection ended first. Nothing is sent in a final state."
    ),
)


#: How almost every request ends, looked up once.
_WORK_ANSWERED = WORK.after("running", "answer")


class _Progress(msgspec.Struct, eq=False, gc=False, kw_only=True):
    state: _WorkState = "running"


class Work(_Progress, eq=False, gc=False):
    """One request of the peer's, and how far it is. Whoever works on it may add more; only ``Incoming`` changes it."""

    id: RequestId
    request: Request

    @property
    def method(self) -> str:
        """What is asked for."""
        return self.request.method

    @property
    def is_running(self) -> bool:
        """Whether the peer still wants to hear of it."""
        return self.state == "running"


W = TypeVar("W", bound=Work)


class Incoming(Generic[W]):
    """The peer's open requests on one connection."""

    def __init__(self, *, max_in_flight: int) -> None:
        self._works: dict[RequestId, W] = {}
        #: With that many open requests there is no room for more.
        self._enough = max_in_flight
        #: Those that do not count.
        self._exempt: set[RequestId] = set()
        #: Whether another request has to wait until one of the open ones has ended. Notifications and responses have
        #: to be read all the same: a cancellation, or the answer to a question of ours, may be what ends a request.
        self.is_full = False

    def __len__(self) -> int:
        return len(self._works)

    def accept(self, work: W) -> Error | None:
        """Take a request in; an ``Error`` to send instead, if its id is that of a request still open."""
        works, request_id = self._works, work.id
        if works.setdefault(request_id, work) is not work:
            sentence = f"The id {_shown(request_id)} is that of a request that has not been answered yet."
            return Error(request_id, ErrorDetail(INVALID_REQUEST, sentence))
        if len(works) >= self._enough:
            self.is_full = True
        return None

    def exempt(self, request_id: RequestId) -> None:
        """Do not count this open request: a subscription, which stays open. Those have a limit of their own."""
        self._exempt.add(request_id)
        self._enough += 1
        self.is_full = len(self._works) >= self._enough

    def open(self) -> list[W]:
        """All that have not ended."""
        return list(self._works.values())

    def find(self, request_id: Any) -> W | None:
        """The open request with this id, which may be anything that a peer can name."""
        return self._works.get(request_id) if type(request_id) in (int, str) else None

    def notify(self, work: W, notification: Notification) -> Notification | None:
        """The notification, if it may still be sent for this request, else None."""
        if not work.is_running:
            return None
        work.state = WORK.after(work.state, "notify")
        return notification

    def answer(self, work: W) -> bool:
        """Whether this request still waits for its answer, which is about to be sent."""
        if work.state != "running":
            return False
        # On the way of each request: what is in `_end`, without a call of it.
        work.state = _WORK_ANSWERED
        del self._works[work.id]
        if self.is_full or self._exempt:
            self._make_room(work)
        return True

    def cancel(self, request_id: Any) -> W | None:
        """The peer cancelled a request: returns the work to stop, or None if there is nothing to cancel.

        What the peer names may be anything: unknown, ended or malformed ids are passed over, and so is
        ``initialize``, which is never cancelled.
        """
        work = self.find(request_id)
        if work is None or work.method == "initialize":
            return None
        self._end(work, WORK.after(work.state, "cancel"))
        return work

    def close(self) -> list[W]:
        """The connection is gone: returns the works to stop."""
        works = self.open()
        for work in works:
            self._end(work, WORK.after(work.state, "drop"))
        return works

    def _end(self, work: W, state: _WorkState) -> None:
        work.state = state
        del self._works[work.id]
        self._make_room(work)

    def _make_room(self, work: W) -> None:
        if work.id in self._exempt:
            self._exempt.remove(work.id)
            self._enough -= 1
        self.is_full = len(self._works) >= self._enough


def _shown(request_id: RequestId) -> str:
    return repr(request_id)[:80]


# The requests that this side has sent: ids, matching, deadlines, giving up.


_CallState: TypeAlias = Literal["open", "answered", "broken", "ended", "cancelled", "expired", "failed", "lost"]
_CallEvent: TypeAlias = Literal["progress", "answer", "break", "end", "cancel", "expire", "fail", "lose"]

CALL: Table[_CallState, _CallEvent] = Table(
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
_CALL_ANSWERED = CALL.after("open", "answer")


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
    state: _CallState = "open"
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
            call.state = _CALL_ANSWERED
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

    def _end(self, request_id: RequestId | msgspec.UnsetType, event: _CallEvent) -> Call | None:
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

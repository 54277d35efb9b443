"""Requests in flight, in both directions: ids, deadlines, cancellation and batches.

`Incoming` holds the requests that the peer has sent, `Outgoing` those that this side has sent. Each request is one
record, each record follows one transition table, and every request ends exactly once. Nothing is sent for a request
that has ended: no second response, no progress after the response, nothing at all after a cancellation.

Both keep their records in the dict ``requests``. The endpoint reads and writes it directly for the two transitions that
every request makes (opened or accepted, then answered); all others go through the methods here.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.protocol.transition_table import Table
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Error,
    ErrorDetail,
    Notification,
    Request,
    RequestId,
    Result,
)

__all__ = [
    "ANSWERED",
    "DUPLICATE_ID",
    "INCOMING",
    "NOT_ENCODABLE",
    "NOT_IN_BATCH",
    "OUTGOING",
    "OUT_ANSWERED",
    "STOPPING",
    "TOO_MANY_OPEN",
    "TOO_MANY_QUEUED",
    "BatchAnswers",
    "Batches",
    "Incoming",
    "IncomingRequest",
    "Outgoing",
    "OutgoingRequest",
    "check_seconds",
]


# --- Batches (2025-03-26) ---


class BatchAnswers:
    """Collect the responses to a batch of ``expected`` requests. It is complete once each is answered or skipped."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._answers: list[Result | Error] = []
        #: The ids of its requests that ``Batches`` knows.
        self.ids: set[RequestId] = set()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing any more."""
        return self._missing == 0

    def answer(self, response: Result | Error) -> list[Result | Error] | None:
        """Add one response; return all of them if it was the last one."""
        self._answers.append(response)
        return self.skip()

    def skip(self) -> list[Result | Error] | None:
        """Expect one response less, because a request was cancelled; return the responses if none is missing.

        The list is empty if all requests were cancelled: then nothing is sent.
        """
        self._missing -= 1
        return self._answers if self.is_complete else None


class Batches(dict[RequestId, BatchAnswers]):
    """The incomplete batches, by the ids of their requests: an id is in use until its response is sent."""

    __slots__ = ()

    def enter(self, request_id: RequestId, batch: BatchAnswers) -> None:
        """Record that this accepted request belongs to a batch."""
        self[request_id] = batch
        batch.ids.add(request_id)

    def leave(self, request_id: RequestId) -> BatchAnswers | None:
        """Forget a request that gets no response, and return its batch; None if it was in none."""
        batch = self.pop(request_id, None)
        if batch is not None:
            batch.ids.remove(request_id)
        return batch

    def forget(self, batch: BatchAnswers) -> None:
        """Forget a batch whose responses have been sent."""
        while batch.ids:
            del self[batch.ids.pop()]


# --- Incoming requests ---


_IncomingState: TypeAlias = Literal["running", "answered", "cancelled", "dropped"]
_IncomingEvent: TypeAlias = Literal["notify", "answer", "cancel", "drop"]

INCOMING: Table[_IncomingState, _IncomingEvent] = Table(
    "incoming request",
    "running",
    {
        ("running", "notify"): "running",
        ("running", "answer"): "answered",
        ("running", "cancel"): "cancelled",
        ("running", "drop"): "dropped",
    },
    final=("answered", "cancelled", "dropped"),
    doc=(
        "One request that the peer has sent. *Cancelled*: the peer no longer wants the response. *Dropped*: the "
        "connection ended first. Nothing is sent in a final state."
    ),
)


#: The response to a request with the id of another open request.
DUPLICATE_ID = ErrorDetail(
    INVALID_REQUEST, "The id of this request is that of another one that has not been answered yet."
)
#: The responses to requests that are not served for other reasons.
STOPPING = ErrorDetail(INTERNAL_ERROR, "The server is stopping, and does not finish this request.")
TOO_MANY_QUEUED = ErrorDetail(
    INTERNAL_ERROR, "Too many requests wait already. Send this one again when some are answered."
)
TOO_MANY_OPEN = ErrorDetail(INTERNAL_ERROR, "This client is busy with too many requests already.")
NOT_IN_BATCH = ErrorDetail(INVALID_REQUEST, "A subscription cannot be part of a batch, whose answers come together.")
NOT_ENCODABLE = ErrorDetail(INTERNAL_ERROR, "The answer cannot be written as JSON.")

#: The state of almost every request at its end, looked up once.
ANSWERED = INCOMING.after("running", "answer")


class _State(msgspec.Struct, eq=False, gc=False, kw_only=True):
    state: _IncomingState = "running"


class IncomingRequest(_State, eq=False, gc=False):
    """A request of the peer. Subclasses add what they need to handle it; only ``Incoming`` and ``Endpoint`` end it."""

    id: RequestId
    request: Request

    @property
    def method(self) -> str:
        """The method of the request."""
        return self.request.method

    @property
    def is_running(self) -> bool:
        """Whether the peer still expects a response."""
        return self.state == "running"


I = TypeVar("I", bound=IncomingRequest)  # noqa: E741 - the other direction has an O


class Incoming(Generic[I]):
    """The peer's open requests on one connection."""

    def __init__(self, *, max_in_flight: int) -> None:
        #: The open requests, by id.
        self.requests: dict[RequestId, I] = {}
        #: How many requests may be open: the cap, and one more for each exempt request.
        self.limit = max_in_flight
        #: The ids of open requests that do not count towards the cap.
        self.exempt_ids: set[RequestId] = set()

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def is_full(self) -> bool:
        """Whether another request has to wait until one of the open ones has ended.

        Notifications and responses are read all the same: a cancellation, or the answer to a request of this side, may
        be what ends one of the open requests.
        """
        return len(self.requests) >= self.limit

    def accept(self, request: I) -> bool:
        """Add a request; False if its id is that of another open request."""
        return self.requests.setdefault(request.id, request) is request

    def exempt(self, request_id: RequestId) -> None:
        """Do not count this open request: it is a subscription, which has a cap of its own."""
        self.exempt_ids.add(request_id)
        self.limit += 1

    def find(self, request_id: Any) -> I | None:
        """Return the open request with this id. The id comes from the peer and may be anything."""
        return self.requests.get(request_id) if type(request_id) in (int, str) else None

    def notify(self, request: I, notification: Notification) -> Notification | None:
        """Return the notification if it may still be sent for this request, else None."""
        if not request.is_running:
            return None
        request.state = INCOMING.after(request.state, "notify")
        return notification

    def answer(self, request: I) -> bool:
        """End a request that is about to be answered; False if it has ended already."""
        if request.state != "running":
            return False
        self._end(request, ANSWERED)
        return True

    def cancel(self, request_id: Any) -> I | None:
        """End a request that the peer cancelled, and return it; None if there is nothing to cancel.

        Unknown, ended and malformed ids are ignored, and so is ``initialize``, which cannot be cancelled.
        """
        request = self.find(request_id)
        if request is None or request.method == "initialize":
            return None
        self._end(request, INCOMING.after(request.state, "cancel"))
        return request

    def close(self) -> list[I]:
        """End all requests, because the connection is gone, and return them."""
        requests = list(self.requests.values())
        for request in requests:
            self._end(request, INCOMING.after(request.state, "drop"))
        return requests

    def _end(self, request: I, state: _IncomingState) -> None:
        request.state = state
        del self.requests[request.id]
        self.count_again(request.id)

    def count_again(self, request_id: RequestId) -> None:
        """Take back the exemption of a request that has ended, if it had one."""
        if request_id in self.exempt_ids:
            self.exempt_ids.remove(request_id)
            self.limit -= 1


# --- Outgoing requests ---


_OutgoingState: TypeAlias = Literal["open", "answered", "broken", "ended", "cancelled", "expired", "failed", "lost"]
_OutgoingEvent: TypeAlias = Literal["progress", "answer", "break", "end", "cancel", "expire", "fail", "lose"]

OUTGOING: Table[_OutgoingState, _OutgoingEvent] = Table(
    "outgoing request",
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
        "One request that this side has sent. *Broken*: the response violates the protocol. *Ended*: a subscription "
        "that the server cancelled. *Failed*: no response will come, although the connection goes on. *Lost*: the "
        "connection ended first."
    ),
)


#: The state of almost every request at its end, looked up once.
OUT_ANSWERED = OUTGOING.after("open", "answer")


class OutgoingRequest(msgspec.Struct, eq=False):
    """A request of this side. Only ``Outgoing`` and ``Endpoint`` change it."""

    id: int
    method: str
    #: When the request times out; None if it never does (a subscription).
    deadline: float | None
    timeout: float | None
    #: Progress never moves the deadline beyond this time.
    latest: float | None
    #: The future that the caller awaits; for the owner's use.
    waiter: Any = None
    state: _OutgoingState = "open"
    progress: float | None = None
    #: Why the request failed, or why the connection ended, if that ended the request.
    cause: McplumbError | None = None

    @property
    def may_be_cancelled(self) -> bool:
        """Whether the protocol allows a cancellation: ``initialize`` is never cancelled."""
        return self.method != "initialize"


class Outgoing:
    """The open requests of this side on one connection. ``late`` and ``unknown`` count responses that matched none.

    Ids count up and are never used again on a connection. So a response to an id that is no longer open is late, and a
    response to an id that was never given out is unknown; both are harmless.
    """

    def __init__(self, *, max_in_flight: int, first_id: int = 1) -> None:
        self.late = 0
        self.unknown = 0
        #: The open requests, by id.
        self.requests: dict[int, OutgoingRequest] = {}
        #: The id of the next request; after a restart, the next connection counts on from here.
        self.next_id = first_id
        self._first_id = first_id
        #: How many requests may be open: 0 once the connection is gone.
        self._limit = max_in_flight
        #: A heap of deadlines and ids, updated only when a deadline is needed: requests from ``_not_due_from`` on are
        #: not in it yet, and those in it may have ended or got a later deadline.
        self._due: list[tuple[float, int]] = []
        self._not_due_from = first_id
        self._cause: McplumbError | None = None

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def is_full(self) -> bool:
        """Whether another request has to wait until one of the open ones has ended."""
        return len(self.requests) >= self._limit

    @property
    def deadline(self) -> float | None:
        """When to call ``expire`` next: never later than the first deadline, sometimes earlier, None for never."""
        self._note_due()
        while self._due:
            deadline, number = self._due[0]
            request = self.requests.get(number)
            if request is not None and request.deadline is not None:
                return deadline
            heappop(self._due)
        return None

    def open(
        self,
        method: str,
        now: float,
        timeout: float | None,
        max_timeout: float | None = None,
        waiter: Any = None,
    ) -> OutgoingRequest:
        """Begin a request. The timeout runs from now, so it covers the writing too.

        Progress moves the deadline to ``timeout`` after that progress, but never beyond ``max_timeout`` from now. The
        id is also the progress token. The two timeouts are None, or have passed ``check_seconds``.
        """
        if self.is_full:
            raise self._refusal(method)
        latest = None if max_timeout is None else now + max_timeout
        deadline = _earlier(None if timeout is None else now + timeout, latest)
        number = self.next_id
        self.next_id = number + 1
        request = self.requests[number] = OutgoingRequest(number, method, deadline, timeout, latest, waiter)
        return request

    def _refusal(self, method: str) -> McplumbError:
        if self._cause is not None:
            closed = Closed(f"{method} was not sent: the connection is closed. {self._cause}")
            closed.__cause__ = self._cause
            return closed
        return UsageError(f"{method} was not sent: {self._limit} requests are open already. Wait for one to end.")

    def answer(self, response: Result | Error) -> OutgoingRequest | None:
        """End the request that this response answers, and return it; None if the response is late or unknown."""
        number = response.id
        request = self.requests.pop(number, None) if type(number) is int else None
        if request is None:
            self.count_stray(number)
        else:
            request.state = OUT_ANSWERED
        return request

    def break_off(self, request_id: RequestId | msgspec.UnsetType) -> OutgoingRequest | None:
        """End the request that a malformed response answers, as ``answer`` does."""
        return self._end(request_id, "break")

    def end(self, request_id: Any) -> OutgoingRequest | None:
        """End the subscription that the server cancelled; None if it is none: the server may cancel nothing else."""
        request = self.find(request_id)
        if request is None or request.method != "subscriptions/listen":
            self.unknown += 1
            return None
        return self._end(request.id, "end")

    def fail(self, request_id: RequestId, cause: McplumbError) -> OutgoingRequest | None:
        """End a request that will get no response although the connection goes on, as ``answer`` does."""
        request = self._end(request_id, "fail")
        if request is not None:
            request.cause = cause
        return request

    def all(self) -> list[OutgoingRequest]:
        """Return the open requests."""
        return list(self.requests.values())

    def find(self, request_id: Any) -> OutgoingRequest | None:
        """Return the open request with this id."""
        return self.requests.get(request_id) if type(request_id) is int else None

    def advance(self, token: Any, progress: float, now: float) -> OutgoingRequest | None:
        """Note progress, move the deadline, and return the request; None if there is none or the value did not grow."""
        request = self.find(token)
        if request is None:
            self.count_stray(token)
            return None
        if not progress > (-math.inf if request.progress is None else request.progress):
            return None
        request.state = OUTGOING.after(request.state, "progress")
        request.progress = progress
        self.extend(request, now)
        return request

    def extend(self, request: OutgoingRequest, now: float) -> None:
        """Move the deadline as progress does, because the peer is known to be working on the request."""
        if request.timeout is not None:
            request.deadline = _earlier(now + request.timeout, request.latest)

    def cancel(self, request: OutgoingRequest, reason: str | None = None) -> Notification | None:
        """Give a request up, and return the notification for the peer; None if there is nothing to tell."""
        if request.state != "open":
            return None
        return self._give_up(request, "cancel", reason)

    def expire(self, now: float) -> list[tuple[OutgoingRequest, Notification | None]]:
        """Give up the requests that have timed out; each comes with the notification for the peer."""
        notes = []
        self._note_due()
        while self._due:
            deadline, number = self._due[0]
            request = self.requests.get(number)
            if request is None or request.deadline is None:
                heappop(self._due)
            elif request.deadline > deadline:
                heapreplace(self._due, (request.deadline, number))
            elif deadline <= now:
                heappop(self._due)
                notes.append((request, self._give_up(request, "expire", "The request timed out.")))
            else:
                break
        return notes

    def close(self, cause: McplumbError) -> list[OutgoingRequest]:
        """End all requests, because the connection is gone, and return them. None can begin after that.

        If it is closed again, the first cause stays.
        """
        self._cause = self._cause or cause
        self._limit = 0
        lost = self.all()
        for request in lost:
            request.cause = self._cause
            self._end(request.id, "lose")
        return lost

    def _note_due(self) -> None:
        if len(self._due) > 2 * len(self.requests):
            # More than half have ended: rebuild the heap, so that it is never much longer than there are requests.
            self._due.clear()
            self._not_due_from = self._first_id
        for request in reversed(self.requests.values()):
            if request.id < self._not_due_from:
                break
            if request.deadline is not None:
                heappush(self._due, (request.deadline, request.id))
        self._not_due_from = self.next_id

    def _give_up(
        self, request: OutgoingRequest, event: Literal["cancel", "expire"], reason: str | None
    ) -> Notification | None:
        self._end(request.id, event)
        if not request.may_be_cancelled:
            return None
        params: dict[str, Any] = {"requestId": request.id}
        if reason is not None:
            params["reason"] = reason
        return Notification("notifications/cancelled", params)

    def _end(self, request_id: RequestId | msgspec.UnsetType, event: _OutgoingEvent) -> OutgoingRequest | None:
        request = self.find(request_id)
        if request is None:
            self.count_stray(request_id)
            return None
        del self.requests[request.id]
        request.state = OUTGOING.after(request.state, event)
        return request

    def count_stray(self, request_id: Any) -> None:
        """Count a response or progress that matches no open request."""
        if type(request_id) is int and self._first_id <= request_id < self.next_id:
            self.late += 1
        else:
            self.unknown += 1


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def check_seconds(name: str, seconds: Any) -> None:
    """Raise `UsageError` unless this is a timeout: a number of seconds, or None."""
    if seconds is not None and not (isinstance(seconds, int | float) and 0 <= seconds < math.inf):
        raise UsageError(f"{name} is {seconds!r}: give it a number of seconds, or None for no limit.")

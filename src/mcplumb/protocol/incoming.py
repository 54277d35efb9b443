"""The requests that the peer has sent: taking them in, cancelling them, and keeping silent about those cancelled.

Everything that goes out for a request passes through its record here, so that nothing is ever sent for one that has
ended: no second answer, no progress after the answer, nothing at all after a cancellation.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from mcplumb.protocol.tables import Table
from mcplumb.wire.messages import INVALID_REQUEST, Error, ErrorDetail, Notification, Request, RequestId

__all__ = ["WORK", "Incoming", "Work"]

_State: TypeAlias = Literal["running", "answered", "cancelled", "dropped"]
_Event: TypeAlias = Literal["notify", "answer", "cancel", "drop"]

WORK: Table[_State, _Event] = Table(
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
_ANSWERED = WORK.after("running", "answer")


class _Progress(msgspec.Struct, eq=False, gc=False, kw_only=True):
    state: _State = "running"


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
        work.state = _ANSWERED
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

    def _end(self, work: W, state: _State) -> None:
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

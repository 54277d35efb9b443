"""The requests that the peer has sent: taking them in, cancelling them, and keeping silent about those cancelled.

Everything that goes out for a request passes through its record here, so that nothing is ever sent for one that has
ended: no second answer, no progress after the answer, nothing at all after a cancellation.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, final

import msgspec

from mcpipe.protocol.tables import Table
from mcpipe.wire.messages import INVALID_REQUEST, Error, ErrorDetail, Notification, Request, RequestId, Result

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


@final
class Work(msgspec.Struct, eq=False, gc=False):
    """One request of the peer's. Read it; only ``Incoming`` changes it."""

    id: RequestId
    method: str
    #: Whether it counts as work in flight.
    is_counted: bool
    state: _State = "running"

    @property
    def is_running(self) -> bool:
        """Whether the peer still wants to hear of it."""
        return self.state == "running"


class Incoming:
    """The peer's open requests on one connection."""

    def __init__(self, *, max_in_flight: int) -> None:
        self._works: dict[RequestId, Work] = {}
        self._counted = 0
        self._max_in_flight = max_in_flight
        #: Whether another request has to wait until one of the open ones has ended. Notifications and responses have
        #: to be read all the same: a cancellation, or the answer to a question of ours, may be what ends a request.
        #: Subscriptions do not count; they stay open, and have a limit of their own.
        self.is_full = False

    def __len__(self) -> int:
        return len(self._works)

    def accept(self, request: Request) -> Work | Error:
        """Take a request in; an ``Error`` to send instead, if its id is that of a request still open."""
        request_id, method = request.id, request.method
        if request_id in self._works:
            sentence = f"The id {_shown(request_id)} is that of a request that has not been answered yet."
            return Error(request_id, ErrorDetail(INVALID_REQUEST, sentence))
        is_counted = method != "subscriptions/listen"
        work = self._works[request_id] = Work(request_id, method, is_counted)
        if is_counted:
            self._counted += 1
            self.is_full = self._counted >= self._max_in_flight
        return work

    def find(self, request_id: Any) -> Work | None:
        """The open request with this id, which may be anything that a peer can name."""
        return self._works.get(request_id) if type(request_id) in (int, str) else None

    def notify(self, work: Work, notification: Notification) -> Notification | None:
        """The notification, if it may still be sent for this request, else None."""
        if not work.is_running:
            return None
        work.state = WORK.after(work.state, "notify")
        return notification

    def answer(self, work: Work, response: Result | Error) -> Result | Error | None:
        """The response, if this request still waits for one, else None."""
        return response if self._end(work, _ANSWERED) else None

    def cancel(self, request_id: Any) -> Work | None:
        """The peer cancelled a request: returns the work to stop, or None if there is nothing to cancel.

        What the peer names may be anything: unknown, ended or malformed ids are passed over, and so is
        ``initialize``, which is never cancelled.
        """
        work = self.find(request_id)
        if work is None or work.method == "initialize":
            return None
        self._end(work, WORK.after(work.state, "cancel"))
        return work

    def close(self) -> list[Work]:
        """The connection is gone: returns the works to stop."""
        works = list(self._works.values())
        for work in works:
            self._end(work, WORK.after(work.state, "drop"))
        return works

    def _end(self, work: Work, state: _State) -> bool:
        if work.state != "running":
            return False
        work.state = state
        del self._works[work.id]
        if work.is_counted:
            self._counted -= 1
            self.is_full = self._counted >= self._max_in_flight
        return True


def _shown(request_id: RequestId) -> str:
    return repr(request_id)[:80]

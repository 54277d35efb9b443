"""Requests beyond the limit of those that are worked on. They wait until others have ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from mcplumb.protocol.admission import Admitted, WithMeta
from mcplumb.protocol.in_flight import BatchAnswers, Incoming
from mcplumb.server.dispatch.call import Call
from mcplumb.server.dispatch.client_input import Inquiries
from mcplumb.server.dispatch.methods import Method
from mcplumb.server.outbox import Outbox
from mcplumb.wire.messages import Request, RequestId

__all__ = ["Asked", "Waiting"]


class Asked(NamedTuple):
    """A request that can be begun. Without params, they are yet to be read."""

    request: Request
    method: Method
    params: WithMeta | None
    admitted: Admitted
    batch: BatchAnswers | None


# A plain dict would step over all that have left to find the first.
class Waiting(OrderedDict[RequestId, Asked]):
    """The requests that wait, by their ids, in the order they came.

    With ``most`` of them nothing more is read from the client, unless it has to answer a question.
    """

    __slots__ = ("_inquiries", "_is_releasing", "_most", "_outbox")

    def __init__(self, outbox: Outbox, inquiries: Inquiries, most: int) -> None:
        super().__init__()
        self._outbox = outbox
        self._inquiries = inquiries
        self._most = most
        self._is_releasing = False

    def hold(self, asked: Asked) -> bool:
        """Let a request wait; False if there is no room for it."""
        # A batch has been read as a whole already.
        if len(self) >= self._most and (asked.batch is None or self._inquiries):
            return False
        self[asked.request.id] = asked
        self.pause_if_full()
        return True

    def release(self, incoming: Incoming[Call], begin: Callable[..., None]) -> None:
        """Begin those for which there is room again."""
        # A request may end as soon as it has begun, and so ask for the next while that is being looked for.
        if self._is_releasing:
            return
        self._is_releasing = True
        while self and not incoming.is_full:
            begin(*self.popitem(last=False)[1])
        self._is_releasing = False
        self.pause_if_full()

    def pause_if_full(self) -> None:
        """Stop reading while no more can wait, and no longer."""
        # Whoever waits for the client's answers must go on reading, or wait for ever.
        if len(self) < self._most or self._inquiries:
            self._outbox.unpause("full")
        else:
            self._outbox.pause("full")

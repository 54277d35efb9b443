"""What a client or a server adds to an endpoint: the handler, and the records that pass between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import msgspec

from mcplumb.protocol.in_flight import IncomingRequest
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Error, ErrorDetail, Notification, Request

if TYPE_CHECKING:
    from mcplumb.rpc.user_callbacks import OnProgress

__all__ = ["NO_OPTIONS", "CallOptions", "Handled", "Handler", "Outcome", "Reply"]

#: What a request is answered with: an error, or a result as ``msgspec`` can encode it.
Outcome: TypeAlias = ErrorDetail | Any


class CallOptions(msgspec.Struct, frozen=True):
    """The caller's options for one request of this side."""

    #: Seconds until the request times out; None for no limit. Progress extends it, up to ``max_timeout``.
    timeout: float | None = None
    max_timeout: float | None = None
    #: Is called with the progress that the peer reports. The params must be a dict with a dict ``_meta``.
    on_progress: OnProgress | None = None
    #: Is added to the request's ``_meta``.
    meta: dict[str, Any] | None = None


NO_OPTIONS = CallOptions()


class Handled(IncomingRequest, eq=False, gc=True):
    """A request of the peer that a handler has admitted."""

    #: Begins the work. Returns the outcome, a coroutine that returns it, or None if the request stays open.
    begin: Callable[[Any], Outcome | Coroutine[Any, Any, Outcome] | None]
    #: The task that runs the coroutine, once that had to wait for something.
    task: asyncio.Task[Any] | None = None
    #: Whether it is answered at once, even while other requests wait in the queue.
    is_quick: bool = False
    #: Whether it stays open after ``begin``: a subscription. Such requests do not count towards the cap.
    stays_open: bool = False
    #: Whether ``flush`` has to be called before the response is sent.
    has_told: bool = False

    def flush(self) -> None:
        """Send held-back progress, because the response is about to be sent."""

    def stop(self) -> None:
        """Stop the work, because the response is not wanted any more."""
        if self.task is not None:
            self.task.cancel()


@final
class Reply(msgspec.Struct, frozen=True):
    """The answer to a request that the handler does not admit; None for no answer at all."""

    outcome: Outcome | None


class Handler(Protocol):
    """What a client or a server adds to an endpoint. Its methods return at once and raise nothing."""

    def admit(self, request: Request) -> Handled | Reply:
        """Return the record of a request to handle, or the reply to one that is refused."""

    def explain(self, request: Any, error: Exception) -> Outcome:
        """Return the outcome of a request whose ``begin`` raised this."""

    def notified(self, notification: Notification) -> None:
        """Handle a notification."""

    def malformed(self, bad: BadMessage) -> Error | None:
        """Log a line that is not a message; return the reply for it, or None."""

    def malformed_batch(self) -> None:
        """Note a batch in a revision that has none."""

    def rejected(self, error: ErrorDetail) -> None:
        """Record that the peer could not read a message of this side."""

    @property
    def has_batches(self) -> bool:
        """Whether the revision in use has batches."""

    def idle(self) -> None:
        """Record that no request of the peer is open or queued any more, while the endpoint is closing."""

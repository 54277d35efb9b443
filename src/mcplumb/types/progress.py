"""What is told about a request while it runs: how far it is, or that it is not wanted any more."""

from __future__ import annotations

from mcplumb.types.base import Number, Params, RequestId

__all__ = ["CancelledParams", "ProgressParams"]


class ProgressParams(Params, frozen=True):
    """How far a request is; the token is the one that came with it."""

    progress_token: RequestId
    #: Grows with every notification.
    progress: Number
    total: Number | None = None
    message: str | None = None


class CancelledParams(Params, frozen=True):
    """The answer to a request is not wanted any more."""

    #: One revision allows to leave it out (where a task is meant); nothing can be cancelled by it then.
    request_id: RequestId | None = None
    reason: str | None = None

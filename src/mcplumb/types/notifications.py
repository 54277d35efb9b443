"""Payloads of log messages, progress, cancellation and subscriptions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from mcplumb.types.base import Number, Params, Payload, RequestId, Result

__all__ = [
    "LOGGING_LEVELS",
    "AcknowledgedParams",
    "CancelledParams",
    "ListenParams",
    "ListenResult",
    "LogMessageParams",
    "LoggingLevel",
    "ProgressParams",
    "SetLevelParams",
    "SubscriptionFilter",
]


# Log messages that a server sends to its client.


LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

#: All levels, the least severe first.
LOGGING_LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)


class SetLevelParams(Params, frozen=True):
    """Asks for messages of this level and the more severe ones only."""

    level: LoggingLevel


class _LoggerName(Params, frozen=True, kw_only=True):
    logger: str | None = None


class LogMessageParams(_LoggerName, frozen=True):
    """One message; its data may be any JSON value, null too."""

    level: LoggingLevel
    data: Any


# What is told about a request while it runs: how far it is, or that it is not wanted any more.


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


# Subscriptions: one long request, and the notifications that it lets through.


class SubscriptionFilter(Payload, frozen=True, kw_only=True):
    """Which changes are wanted, or granted."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    #: The addresses of the resources whose updates are wanted.
    resource_subscriptions: list[str] | None = None


class ListenParams(Params, frozen=True):
    """Opens a subscription."""

    notifications: SubscriptionFilter


class AcknowledgedParams(Params, frozen=True):
    """The subscription is open, and this much of it is granted. ``meta`` has the subscription's id."""

    notifications: SubscriptionFilter


class ListenResult(Result, frozen=True):
    """The subscription has ended in good order. ``meta`` has the subscription's id."""

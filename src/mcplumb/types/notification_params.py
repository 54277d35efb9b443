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


# Log messages from a server to its client.

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

#: All levels, least severe first.
LOGGING_LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)


class SetLevelParams(Params, frozen=True):
    """The params of ``logging/setLevel``: send only messages of this level or a more severe one."""

    level: LoggingLevel


class _LoggerName(Params, frozen=True, kw_only=True):
    logger: str | None = None


class LogMessageParams(_LoggerName, frozen=True):
    """One log message. Its data may be any JSON value, including null."""

    level: LoggingLevel
    data: Any


# Progress and cancellation of a request.


class ProgressParams(Params, frozen=True):
    """The progress of a request; the token is the one that the request had."""

    progress_token: RequestId
    #: Increases with every notification.
    progress: Number
    total: Number | None = None
    message: str | None = None


class CancelledParams(Params, frozen=True):
    """The sender of a request no longer needs the response."""

    #: One revision allows this to be absent (to refer to a task); then nothing is cancelled.
    request_id: RequestId | None = None
    reason: str | None = None


# Subscriptions: one long-running request, and the notifications that it enables.


class SubscriptionFilter(Payload, frozen=True, kw_only=True):
    """The changes that a client subscribes to, or that a server granted."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    #: The URIs of the resources whose updates are included.
    resource_subscriptions: list[str] | None = None


class ListenParams(Params, frozen=True):
    """The params of ``subscriptions/listen``: open a subscription."""

    notifications: SubscriptionFilter


class AcknowledgedParams(Params, frozen=True):
    """The subscription is open, with these changes granted. ``meta`` has the subscription's id."""

    notifications: SubscriptionFilter


class ListenResult(Result, frozen=True):
    """The server ended the subscription. ``meta`` has the subscription's id."""

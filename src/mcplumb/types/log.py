"""Log messages that a server sends to its client."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from mcplumb.types.base import Params

__all__ = ["LOGGING_LEVELS", "LogMessageParams", "LoggingLevel", "SetLevelParams"]

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

"""What one client is set to, and what it counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from mcplumb.client.input_handlers import InputHandlers
from mcplumb.client.tool_registry import OutputChecker
from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.era import DEFAULT_WAITS, EraWaits
from mcplumb.protocol.in_flight import check_seconds
from mcplumb.protocol.restart import ResendPolicy, RestartPolicy, may_resend
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.revisions import REVISIONS, Revision
from mcplumb.types.base import Implementation
from mcplumb.types.notification_params import LogMessageParams

__all__ = ["ANONYMOUS", "DEFAULT_MAX_TIMEOUT", "DEFAULT_TIMEOUT", "ClientSettings", "ClientStats", "OnLog"]

#: Seconds that a server has for an answer. Most other clients wait as long.
DEFAULT_TIMEOUT = 60.0
#: Seconds that progress can extend that to.
DEFAULT_MAX_TIMEOUT = 600.0

#: Who asks, where the protocol wants a name and the user does not.
ANONYMOUS = Implementation("client", "0")

#: Called with each log message of the server.
OnLog: TypeAlias = Callable[[LogMessageParams], Awaitable[None] | None]


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The choices that hold for everything that one client does."""

    input_handlers: InputHandlers
    timeout: float | None = DEFAULT_TIMEOUT
    max_timeout: float | None = DEFAULT_MAX_TIMEOUT
    revisions: tuple[Revision, ...] = REVISIONS
    #: None: modern requests do not say who asks.
    client_info: Implementation | None = None
    on_log: OnLog | None = None
    limits: Limits = DEFAULT_LIMITS
    waits: EraWaits = DEFAULT_WAITS
    restart: RestartPolicy = RestartPolicy()
    retry: ResendPolicy = "safe"
    checker: OutputChecker = OutputChecker(False)
    cache: bool = True
    stop: StopLadder = StopLadder()

    def __post_init__(self) -> None:
        for name in ("timeout", "max_timeout"):
            check_seconds(name, getattr(self, name))
        for name, kind in (("restart", RestartPolicy), ("stop", StopLadder), ("limits", Limits), ("waits", EraWaits)):
            if not isinstance(getattr(self, name), kind):
                raise UsageError(f"{name} is a {type(getattr(self, name)).__name__}: give it a {kind.__name__}.")
        may_resend("ping", policy=self.retry)  # says so if there is no such policy


class ClientStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has seen so far, over all its connections. Nothing in here was fatal."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    #: Lines that were no message and were passed over.
    bad_lines: int
    #: Answers to requests that had been given up.
    late_answers: int
    #: Answers and progress that belong to no request of this client's.
    unknown_answers: int
    #: Messages that the server must not send, such as requests from a modern one.
    violations: int
    #: Changes that belong to no subscription, for instance to one that has just been closed.
    strays: int
    #: News that a function or an iterator of the user's was too slow for.
    dropped: int

    def __add__(self, other: ClientStats) -> ClientStats:
        return ClientStats(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

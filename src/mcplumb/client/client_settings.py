"""The settings of a client, and its counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mcplumb.client.input_handlers import InputHandlers
from mcplumb.client.known_tools import OutputChecker
from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.era import DEFAULT_WAITS, EraWaits
from mcplumb.protocol.in_flight import check_seconds
from mcplumb.protocol.restart import ResendPolicy, RestartPolicy, may_resend
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.revisions import REVISIONS, Revision
from mcplumb.types.base import Implementation
from mcplumb.types.notification_params import LogMessageParams

__all__ = [
    "ANONYMOUS",
    "DEFAULT_MAX_TIMEOUT",
    "DEFAULT_TIMEOUT",
    "ClientSettings",
    "ClientStats",
    "NewSession",
    "OnLog",
]

#: Seconds to wait for a response. Most other clients use the same value.
DEFAULT_TIMEOUT = 60.0
#: The limit up to which progress extends the timeout, in seconds.
DEFAULT_MAX_TIMEOUT = 600.0

#: The client info where the protocol requires one and the user gives none.
ANONYMOUS = Implementation("client", "0")

if TYPE_CHECKING:
    from mcplumb.client.client_session import ClientSession
    from mcplumb.rpc.observed_endpoint import Observer

    NewSession: TypeAlias = Callable[..., ClientSession]
else:
    NewSession = Callable[..., Any]

#: Called with each log message of the server.
OnLog: TypeAlias = Callable[[LogMessageParams], Awaitable[None] | None]


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one client. They apply to all its connections."""

    input_handlers: InputHandlers
    timeout: float | None = DEFAULT_TIMEOUT
    max_timeout: float | None = DEFAULT_MAX_TIMEOUT
    revisions: tuple[Revision, ...] = REVISIONS
    #: None leaves the client info out of modern requests.
    client_info: Implementation | None = None
    on_log: OnLog | None = None
    limits: Limits = DEFAULT_LIMITS
    waits: EraWaits = DEFAULT_WAITS
    restart: RestartPolicy = RestartPolicy()
    retry: ResendPolicy = "safe"
    checker: OutputChecker = OutputChecker(False)
    cache: bool = True
    stop: StopLadder = StopLadder()
    #: Makes the session of each connection; None for the usual one.
    new_session: NewSession | None = None
    #: Observes the requests of new sessions, if they are counted or traced.
    observer: Observer | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "max_timeout"):
            check_seconds(name, getattr(self, name))
        for name, kind in (("restart", RestartPolicy), ("stop", StopLadder), ("limits", Limits), ("waits", EraWaits)):
            if not isinstance(getattr(self, name), kind):
                raise UsageError(f"{name} is a {type(getattr(self, name)).__name__}: give it a {kind.__name__}.")
        may_resend("ping", policy=self.retry)  # raises UsageError if there is no such policy


class ClientStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a client, over all its connections. None of the events counted is fatal."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    #: Lines that are not messages; they were ignored.
    bad_lines: int
    #: Responses to requests that were cancelled or had timed out.
    late_answers: int
    #: Responses and progress for requests that this client never sent.
    unknown_answers: int
    #: Messages that the server must not send, such as requests from a modern one.
    violations: int
    #: Changes without a subscription, for example because it was just closed.
    strays: int
    #: Notifications dropped because a callback or an iterator of the user was too slow.
    dropped: int

    def __add__(self, other: ClientStats) -> ClientStats:
        return ClientStats(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

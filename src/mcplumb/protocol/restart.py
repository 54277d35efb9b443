"""Restart rules: when a server that exited is started again, and which of its requests may be sent again.

Users configure :class:`RestartPolicy`; :class:`Restarter` applies it. Time and randomness are arguments: the owner of
the process passes a monotonic ``now`` and a random number, and acts on the returned decision.

Each consecutive early exit lengthens the wait before the next start (exponential backoff with jitter). Too many of them
open a circuit breaker: calls then fail at once until a trial start is due. A long uptime (``healthy_after``) resets the
backoff.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.protocol.transition_table import Table

__all__ = [
    "MAX_SENDS",
    "RESTART",
    "BreakerOpen",
    "Decision",
    "GiveUp",
    "ResendPolicy",
    "RestartPolicy",
    "Restarter",
    "StartAgain",
    "may_resend",
]

#: The minimum wait, whatever the policy and the jitter say: restarting without a wait would occupy a processor.
_SHORTEST_WAIT = 0.01


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a server that exited is started again. All times are in seconds."""

    #: Whether it is started again at all.
    enabled: bool = True
    #: The wait after the first early exit.
    first_wait: float = 0.1
    #: The factor by which each next wait is longer.
    factor: float = 2.0
    #: The longest wait before a start, jitter included.
    max_wait: float = 30.0
    #: The fraction of a wait that is randomly subtracted, so that many clients do not restart at the same time.
    jitter: float = 0.5
    #: The uptime after which a server counts as healthy: its next exit counts as the first.
    healthy_after: float = 60.0
    #: The number of consecutive early exits that opens the breaker.
    breaker_after: int = 5
    #: How long the breaker stays open before a trial start; longer by ``factor`` after each failed trial.
    breaker_wait: float = 60.0
    #: The longest time that the breaker stays open, jitter included.
    breaker_max_wait: float = 600.0

    def __post_init__(self) -> None:
        _check("first_wait", self.first_wait, at_least=_SHORTEST_WAIT)
        _check("factor", self.factor, at_least=1.0)
        _check("max_wait", self.max_wait, at_least=self.first_wait, why="first_wait")
        _check("jitter", self.jitter, at_least=0.0, at_most=1.0)
        _check("healthy_after", self.healthy_after, at_least=0.0)
        _check("breaker_after", self.breaker_after, at_least=1)
        _check("breaker_wait", self.breaker_wait, at_least=_SHORTEST_WAIT)
        _check("breaker_max_wait", self.breaker_max_wait, at_least=self.breaker_wait, why="breaker_wait")


class StartAgain(msgspec.Struct, frozen=True):
    """Start the server again at the time ``at``."""

    at: float


class BreakerOpen(msgspec.Struct, frozen=True):
    """The server exits too often: fail calls at once, and try to start it at the time ``until``."""

    until: float


class GiveUp(msgspec.Struct, frozen=True):
    """Do not start the server again: restarts are disabled, or it was stopped on purpose."""

    because: Literal["disabled", "stopped"]


Decision: TypeAlias = StartAgain | BreakerOpen | GiveUp

_State = Literal["idle", "running", "waiting", "open", "trial", "stopped"]
_Event = Literal["start", "connect", "lived", "crash", "trip", "give_up", "stop"]

RESTART: Table[_State, _Event] = Table(
    "restart",
    "idle",
    {
        ("idle", "start"): "running",
        ("idle", "stop"): "stopped",
        ("running", "connect"): "running",
        ("running", "lived"): "running",
        ("running", "crash"): "waiting",
        ("running", "trip"): "open",
        ("running", "give_up"): "stopped",
        ("running", "stop"): "stopped",
        ("waiting", "start"): "running",
        ("waiting", "stop"): "stopped",
        ("open", "start"): "trial",
        ("open", "stop"): "stopped",
        ("trial", "connect"): "running",
        ("trial", "trip"): "open",
        ("trial", "stop"): "stopped",
        ("stopped", "give_up"): "stopped",
        ("stopped", "stop"): "stopped",
    },
    final=("stopped",),
    doc="Whether and when a server that exited is started again. `crash` is an early exit, `trip` the early exit that "
    "opens the breaker, `connect` the end of its handshake, and `lived` means that it has run for long enough to count "
    "as healthy.",
)


class Restarter:
    """The state machine that applies a :class:`RestartPolicy` to one server."""

    __slots__ = ("_breaker_wait", "_deadline", "_policy", "_up_since", "_wait", "failures", "starts", "state")

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._deadline: float | None = None
        self._up_since: float | None = None
        self.state: _State = RESTART.initial
        #: How often the server was started.
        self.starts = 0
        #: Consecutive early exits.
        self.failures = 0
        self._wait = policy.first_wait
        self._breaker_wait = policy.breaker_wait

    @property
    def restarts(self) -> int:
        """How often the server was restarted."""
        return max(0, self.starts - 1)

    @property
    def fails_fast(self) -> bool:
        """Whether a call should fail at once instead of waiting for the server to come back."""
        return self.state in ("open", "trial", "stopped")

    @property
    def deadline(self) -> float | None:
        """When the next start is due; None if none is planned."""
        return self._deadline

    def due(self, now: float) -> bool:
        """Return whether a planned restart is due. The caller decides about the first start."""
        return self._deadline is not None and now >= self._deadline

    def started(self, now: float) -> None:
        """Record that the server is being started. A start that fails counts as an exit: call :meth:`exited`."""
        self._take("start")
        self._deadline = None
        self._up_since = None
        self.starts += 1

    def connected(self, now: float) -> None:
        """Record that the handshake has ended. After a trial start, calls may be sent again."""
        self._take("connect")
        self._up_since = now

    def tick(self, now: float) -> None:
        """Reset the backoff if the server has become healthy. Optional: :meth:`exited` calls it first."""
        if self._up_since is not None and now - self._up_since >= self._policy.healthy_after:
            self._take("lived")
            self.failures = 0
            self._wait = self._policy.first_wait
            self._breaker_wait = self._policy.breaker_wait

    def exited(self, now: float, random: float) -> Decision:
        """Record an unexpected exit, and return what to do. ``random`` is uniform in [0, 1).

        A second call for the same exit (its output ends, then its process is reaped) returns the same decision.
        """
        if not 0.0 <= random < 1.0:
            raise UsageError(f"The random number {random} is not in the range [0, 1).")
        if self.state == "stopped":
            self._take("give_up")
            return GiveUp("stopped")
        if self._deadline is not None:
            return BreakerOpen(self._deadline) if self.state == "open" else StartAgain(self._deadline)
        if not self._policy.enabled:
            self._take("give_up")
            return GiveUp("disabled")
        self.tick(now)
        self._up_since = None
        failures = self.failures + 1
        # Always true in a trial: the failures that opened the breaker count until the server is healthy.
        trips = failures >= self._policy.breaker_after
        self._take("trip" if trips else "crash")
        self.failures = failures
        wait = self._breaker_wait if trips else self._wait
        self._deadline = now + max(_SHORTEST_WAIT, wait * (1.0 - self._policy.jitter * random))
        if trips:
            self._breaker_wait = min(self._policy.breaker_max_wait, wait * self._policy.factor)
            return BreakerOpen(self._deadline)
        self._wait = min(self._policy.max_wait, wait * self._policy.factor)
        return StartAgain(self._deadline)

    def stop(self) -> None:
        """Record that the server is stopped on purpose: it is not started again. May be called repeatedly."""
        self._take("stop")
        self._deadline = self._up_since = None

    def _take(self, event: _Event) -> None:
        self.state = RESTART.after(self.state, event)


# Resending requests after a lost connection.

#: How often a request is sent at most, including the first time.
MAX_SENDS = 3

ResendPolicy: TypeAlias = Literal["safe", "always", "never"]

# Reading changes nothing. Setting a level or a subscription changes only state that was lost with the old process.
_SAFE = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "tools/list",
    }
)

# Their own state machines send these again after a restart: resending the old request would do it twice.
_REOPENED = frozenset({"initialize", "subscriptions/listen"})


def may_resend(
    method: str,
    *,
    policy: ResendPolicy = "safe",
    read_only: bool | None = None,
    idempotent: bool | None = None,
    sent: int = 1,
) -> bool:
    """Return whether a request may be sent again after its connection was lost.

    ``safe`` allows methods that only read, and ``tools/call`` of a tool that its server marks as read-only or
    idempotent (None means that there is no such hint). ``always`` allows all other methods as well: the caller accepts
    that they may take effect twice. ``initialize`` and ``subscriptions/listen`` are never resent: a new connection
    makes its own handshake, and subscriptions are opened again with new ids.

    ``sent`` is how often the request was sent already. After :data:`MAX_SENDS` times, the request itself may be what
    makes the server exit.
    """
    if policy not in ("safe", "always", "never"):
        raise UsageError(f"There is no resend policy {policy!r}. Use 'safe', 'always' or 'never'.")
    if policy == "never" or method in _REOPENED or sent >= MAX_SENDS:
        return False
    if policy == "always" or method in _SAFE:
        return True
    return method == "tools/call" and (read_only is True or idempotent is True)


def _check(name: str, value: float, *, at_least: float, at_most: float = float("inf"), why: str | None = None) -> None:
    if not (at_least <= value <= at_most and value < float("inf")):
        low = f"at least {at_least}" + (f", as {why} is" if why else "")
        high = f" and at most {at_most}" if at_most < float("inf") else ""
        raise UsageError(f"The restart policy's {name} is {value}: it must be a number, {low}{high}.")

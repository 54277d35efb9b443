"""When a server that exited is started again, and which of its requests may be sent again.

:class:`RestartPolicy` is what a user sets; :class:`Restarter` applies it. Time and chance are arguments: the owner
of the process passes a monotonic ``now`` and a random number, and acts on the decision that it gets back.

Each early exit in a row makes the next wait longer. Too many of them open the breaker: calls then fail at once,
until a trial start is due. One long life (``healthy_after``) forgets everything that went before it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.protocol.state_table import Table

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

#: No wait is shorter than this, whatever the policy and the jitter say: a loop without a wait burns a processor.
_SHORTEST_WAIT = 0.01


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How a server that exited is started again. All times are in seconds."""

    #: Whether it is started again at all.
    enabled: bool = True
    #: The wait after the first early exit.
    first_wait: float = 0.1
    #: How much longer each next wait is.
    factor: float = 2.0
    #: No wait before a start is longer, jitter included.
    max_wait: float = 30.0
    #: The part of a wait that chance may take away, so that many clients do not start their servers in step.
    jitter: float = 0.5
    #: A server that could be used for this long was healthy: its exit counts as the first.
    healthy_after: float = 60.0
    #: The number of early exits in a row that opens the breaker.
    breaker_after: int = 5
    #: How long the breaker stays open before a trial start; longer by ``factor`` after each trial that fails.
    breaker_wait: float = 60.0
    #: The breaker never stays open longer than this, jitter included.
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
    """The server exits too often: fail calls at once, and make a trial start at the time ``until``."""

    until: float


class GiveUp(msgspec.Struct, frozen=True):
    """Do not start the server again: restarts are switched off, or it was stopped on purpose."""

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
    doc="Whether and when a server that exited is started again. `crash` is an early exit, `trip` the one too many "
    "that opens the breaker, `connect` the end of its handshake, `lived` the news that it has run for long enough to "
    "count as healthy.",
)


class Restarter:
    """The machine that applies a :class:`RestartPolicy` to one server."""

    __slots__ = ("_breaker_wait", "_deadline", "_policy", "_up_since", "_wait", "failures", "starts", "state")

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._deadline: float | None = None
        self._up_since: float | None = None
        self.state: _State = RESTART.initial
        #: How often the server was started.
        self.starts = 0
        #: Early exits in a row.
        self.failures = 0
        self._wait = policy.first_wait
        self._breaker_wait = policy.breaker_wait

    @property
    def restarts(self) -> int:
        """How often the server was started again."""
        return max(0, self.starts - 1)

    @property
    def fails_fast(self) -> bool:
        """Whether a call should fail at once instead of waiting for the server to come back."""
        return self.state in ("open", "trial", "stopped")

    @property
    def deadline(self) -> float | None:
        """When the next start is due, or None when none is planned."""
        return self._deadline

    def due(self, now: float) -> bool:
        """Whether a planned start should happen now. The first start is the owner's own decision."""
        return self._deadline is not None and now >= self._deadline

    def started(self, now: float) -> None:
        """The server is being started. A start that fails is an exit: tell it to :meth:`exited`."""
        self._take("start")
        self._deadline = None
        self._up_since = None
        self.starts += 1

    def connected(self, now: float) -> None:
        """The server that was started has answered: after a trial, calls may go to it again."""
        self._take("connect")
        self._up_since = now

    def tick(self, now: float) -> None:
        """Notice a long life. Optional: :meth:`exited` does it first."""
        if self._up_since is not None and now - self._up_since >= self._policy.healthy_after:
            self._take("lived")
            self.failures = 0
            self._wait = self._policy.first_wait
            self._breaker_wait = self._policy.breaker_wait

    def exited(self, now: float, random: float) -> Decision:
        """The server exited when it should not have. ``random`` is evenly spread over 0 to 1, without 1.

        Said again of the same exit (its output ends, then its process is reaped), it gives the same decision again.
        """
        if not 0.0 <= random < 1.0:
            raise UsageError(f"The random number {random} is not in the range from 0 to 1, without 1.")
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
        # Always so in a trial: the failures that opened the breaker count until a long life forgets them.
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
        """The server is stopped on purpose: whatever comes after this starts nothing. May be called again."""
        self._take("stop")
        self._deadline = self._up_since = None

    def _take(self, event: _Event) -> None:
        self.state = RESTART.after(self.state, event)


#: How often a request is sent at the most, the first time included.
MAX_SENDS = 3

ResendPolicy: TypeAlias = Literal["safe", "always", "never"]

# Reading changes nothing. Setting a level or a subscription changes only what the old process took with it.
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

# Both are begun anew by their own machines after a restart: sending the old request too would do it twice.
_BEGUN_ANEW = frozenset({"initialize", "subscriptions/listen"})


def may_resend(
    method: str,
    *,
    policy: ResendPolicy = "safe",
    read_only: bool | None = None,
    idempotent: bool | None = None,
    sent: int = 1,
) -> bool:
    """Whether a request whose connection was lost may be sent again on the next one.

    ``safe`` allows methods that only read, and ``tools/call`` for a tool marked as read-only or idempotent (the two
    marks are hints of the server; None means that it gave none). ``always`` allows the rest as well: the caller
    accepts that something may happen twice. ``initialize`` and ``subscriptions/listen`` are never sent again as
    they are: a new connection makes its own handshake, and subscriptions are opened again with their own ids.

    ``sent`` is how often it was sent already. After :data:`MAX_SENDS` times it may be what the server dies of.
    """
    if policy not in ("safe", "always", "never"):
        raise UsageError(f"There is no resend policy {policy!r}. Use 'safe', 'always' or 'never'.")
    if policy == "never" or method in _BEGUN_ANEW or sent >= MAX_SENDS:
        return False
    if policy == "always" or method in _SAFE:
        return True
    return method == "tools/call" and (read_only is True or idempotent is True)


def _check(name: str, value: float, *, at_least: float, at_most: float = float("inf"), why: str | None = None) -> None:
    if not (at_least <= value <= at_most and value < float("inf")):
        low = f"at least {at_least}" + (f", as {why} is" if why else "")
        high = f" and at most {at_most}" if at_most < float("inf") else ""
        raise UsageError(f"The restart policy's {name} is {value}: it must be a number, {low}{high}.")

"""How a server's process is stopped: a ladder of three rungs, each with a bounded wait.

Its input is closed, which asks it to leave; then it is told to end; then it is killed. What is stopped is the
whole process group: a server that leaves while its children stay is not stopped yet, and the ladder goes on.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.protocol.state_table import Table

__all__ = ["STOP", "Action", "Step", "StopLadder", "Stopper"]

Action: TypeAlias = Literal["close_input", "terminate", "kill"]


class Step(msgspec.Struct, frozen=True):
    """One rung: what to do, and how long to wait before the next one."""

    action: Action
    wait: float


class StopLadder(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of the three rungs, in seconds. A wait of zero goes on to the next rung at once."""

    #: After closing the server's input.
    close_wait: float = 2.0
    #: After asking the process group to end (SIGTERM).
    term_wait: float = 2.0
    #: After killing the process group (SIGKILL): only a process stuck inside the kernel outlives that.
    kill_wait: float = 2.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            wait = getattr(self, name)
            if not 0 <= wait < float("inf"):
                raise UsageError(f"The stop ladder's {name} is {wait}: it must be a number of seconds, 0 or more.")

    def steps(self) -> tuple[Step, ...]:
        """The rungs, in order."""
        return (
            Step("close_input", self.close_wait),
            Step("terminate", self.term_wait),
            Step("kill", self.kill_wait),
        )

    @property
    def total(self) -> float:
        """The longest that a stop takes."""
        return sum(step.wait for step in self.steps())


_State = Literal["idle", "closing", "terminating", "killing", "done", "given_up"]
_Event = Literal["begin", "gone", "child_gone", "late"]

STOP: Table[_State, _Event] = Table(
    "stop",
    "idle",
    {
        ("idle", "begin"): "closing",
        ("idle", "gone"): "done",
        ("idle", "child_gone"): "terminating",
        ("closing", "begin"): "closing",
        ("closing", "gone"): "done",
        ("closing", "child_gone"): "terminating",
        ("closing", "late"): "terminating",
        ("terminating", "begin"): "terminating",
        ("terminating", "gone"): "done",
        ("terminating", "child_gone"): "terminating",
        ("terminating", "late"): "killing",
        ("killing", "begin"): "killing",
        ("killing", "gone"): "done",
        ("killing", "child_gone"): "killing",
        ("killing", "late"): "given_up",
        ("done", "begin"): "done",
        ("done", "gone"): "done",
        ("done", "child_gone"): "done",
        ("given_up", "begin"): "given_up",
        ("given_up", "gone"): "given_up",
        ("given_up", "child_gone"): "given_up",
    },
    final=("done", "given_up"),
    doc="How a server's process is stopped. `gone` means that nothing of its process group is left, `child_gone` "
    "that the server itself has exited but others of its group live, `late` that a rung's wait is over.",
)

_RUNGS: dict[_State, int] = {"closing": 0, "terminating": 1, "killing": 2}


class Stopper:
    """The machine that climbs a :class:`StopLadder` once.

    Each method that may ask for something returns the action to take now, or None. A wait begins when its action is
    returned, so an owner that comes late never cuts the next wait short.
    """

    __slots__ = ("_deadline", "_steps", "state")

    def __init__(self, ladder: StopLadder) -> None:
        self._steps = ladder.steps()
        self._deadline: float | None = None
        self.state: _State = STOP.initial

    @property
    def deadline(self) -> float | None:
        """When to call :meth:`due`, or None when nothing is being waited for."""
        return self._deadline

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to do: the group is gone, or even killing it did not help."""
        return self.state in STOP.final

    def begin(self, now: float) -> Action | None:
        """Stop the server. None if it was already gone, or is being stopped already."""
        return self._take("begin", now)

    def exited(self, now: float) -> None:
        """Nothing of the process group is left."""
        self._take("gone", now)

    def child_exited(self, now: float) -> Action | None:
        """The server itself exited, but others of its group live. May also be the very first event."""
        return self._take("child_gone", now)

    def due(self, now: float) -> Action | None:
        """Climb to the next rung if this one's wait is over."""
        if self._deadline is None or now < self._deadline:
            return None
        return self._take("late", now)

    def _take(self, event: _Event, now: float) -> Action | None:
        before, self.state = self.state, STOP.after(self.state, event)
        if self.state == before:
            return None
        rung = _RUNGS.get(self.state)
        if rung is None:
            self._deadline = None
            return None
        step = self._steps[rung]
        self._deadline = now + step.wait
        return step.action

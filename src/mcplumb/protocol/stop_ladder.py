"""Stop a server's process in three steps, each with a bounded wait: close its input, SIGTERM, SIGKILL.

The whole process group is stopped: if the server exits while its children keep running, the next step follows.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.protocol.transition_table import Table

__all__ = ["STOP", "Action", "Step", "StopLadder", "Stopper"]

Action: TypeAlias = Literal["close_input", "terminate", "kill"]

#: Seconds after closing the input of a server that has closed its own output: it has nothing more to say.
_HUNG_UP_WAIT = 0.25


class Step(msgspec.Struct, frozen=True):
    """One step: the action, and how long to wait before the next step."""

    action: Action
    wait: float


class StopLadder(msgspec.Struct, frozen=True, kw_only=True):
    """The waits of the three steps, in seconds. After a wait of zero the next step follows at once."""

    #: After closing the server's input. A server that has closed its output gets a quarter of a second at most.
    close_wait: float = 1.0
    #: After terminating the process group (SIGTERM).
    term_wait: float = 2.0
    #: After killing the process group (SIGKILL): only a process stuck inside the kernel survives that.
    kill_wait: float = 2.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            wait = getattr(self, name)
            if not 0 <= wait < float("inf"):
                raise UsageError(f"The stop ladder's {name} is {wait}: it must be a number of seconds, 0 or more.")

    def steps(self) -> tuple[Step, ...]:
        """Return the three steps, in order."""
        return (
            Step("close_input", self.close_wait),
            Step("terminate", self.term_wait),
            Step("kill", self.kill_wait),
        )

    @property
    def total(self) -> float:
        """The longest time that a stop takes."""
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
    doc="How a server's process is stopped. `gone` means that no process of its group is left, `child_gone` that the "
    "server itself has exited but other processes of its group still run, `late` that a step's wait is over.",
)

_STEP_OF_STATE: dict[_State, int] = {"closing": 0, "terminating": 1, "killing": 2}


class Stopper:
    """The state machine that goes through a :class:`StopLadder` once.

    Methods return the action to take now, or None. A wait begins when its action is returned, so a caller that is late
    never shortens the next wait.
    """

    __slots__ = ("_deadline", "_steps", "state")

    def __init__(self, ladder: StopLadder) -> None:
        self._steps = ladder.steps()
        self._deadline: float | None = None
        self.state: _State = STOP.initial

    @property
    def deadline(self) -> float | None:
        """When to call :meth:`due`; None if no wait is in progress."""
        return self._deadline

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to do: the process group is gone, or even killing it had no effect."""
        return self.state in STOP.final

    def begin(self, now: float, *, has_hung_up: bool = False) -> Action | None:
        """Begin to stop the server; None if it is gone already, or being stopped already.

        ``has_hung_up`` says that the server has closed its output, which shortens the first wait.
        """
        action = self._take("begin", now)
        if action is not None and has_hung_up and self._deadline is not None:
            self._deadline = min(self._deadline, now + _HUNG_UP_WAIT)
        return action

    def exited(self, now: float) -> None:
        """Record that no process of the group is left."""
        self._take("gone", now)

    def child_exited(self, now: float) -> Action | None:
        """Record that the server itself exited while other processes of its group run. May be the first event."""
        return self._take("child_gone", now)

    def due(self, now: float) -> Action | None:
        """Go to the next step if the wait of the current one is over."""
        if self._deadline is None or now < self._deadline:
            return None
        return self._take("late", now)

    def _take(self, event: _Event, now: float) -> Action | None:
        before, self.state = self.state, STOP.after(self.state, event)
        if self.state == before:
            return None
        index = _STEP_OF_STATE.get(self.state)
        if index is None:
            self._deadline = None
            return None
        step = self._steps[index]
        self._deadline = now + step.wait
        return step.action

"""The transition table: every machine of this layer is one, plus the data that it keeps.

A machine asks ``TABLE.after(state, event)`` for its next state, and nothing else changes its state. What the
table does not list cannot happen: the lookup fails with a sentence. The docs' diagrams are drawn from it.

Declare the states and events as ``Literal`` types, and the type checker finds a misspelt one::

    State = Literal["shut", "open"]
    Event = Literal["push", "pull"]
    DOOR: Table[State, Event] = Table("door", "shut", {("shut", "push"): "open", ("open", "pull"): "shut"})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from mcplumb.errors import UsageError

__all__ = ["Table"]

_S = TypeVar("_S", bound=str)
_E = TypeVar("_E", bound=str)


class Table(msgspec.Struct, Generic[_S, _E], frozen=True, eq=False):
    """The rows of one machine: from a state, by an event, to a state."""

    name: str
    initial: _S
    rows: Mapping[tuple[_S, _E], _S]
    #: The states that nothing leads out of; an event that comes too late may lead from one to itself.
    final: tuple[_S, ...] | frozenset[_S] = ()
    #: One paragraph for the docs: what the machine is for.
    doc: str = ""

    def after(self, state: _S, event: _E) -> _S:
        """The state that ``event`` leads to from ``state``; ``UsageError`` if the table has no such row."""
        following = self.rows.get((state, event))
        if following is None:
            raise UsageError(
                f"The machine '{self.name}' in state '{state}' cannot take the event '{event}'; "
                f"possible here: {', '.join(self.events(state)) or 'nothing, it has ended'}."
            )
        return following

    def events(self, state: _S) -> tuple[_E, ...]:
        """The events that may happen in ``state``, in the order of the table."""
        return tuple(event for (source, event) in self.rows if source == state)

    def states(self) -> tuple[_S, ...]:
        """Every state that the table names, in the order of first mention."""
        named = [self.initial]
        for (source, _), target in self.rows.items():
            named += (source, target)
        return tuple(dict.fromkeys((*named, *sorted(self.final))))

    def faults(self) -> list[str]:
        """What is wrong with the rows, a sentence each: states out of reach, dead ends, ends that go on."""
        reached = [self.initial]
        for state in reached:  # grows while it is walked
            reached += [t for (s, _), t in self.rows.items() if s == state and t not in reached]
        left = {source for (source, _), target in self.rows.items() if target != source}
        stuck = [state for state in self.states() if state not in self.final and not self.events(state)]
        said = [f"Nothing leads to the state '{state}'." for state in self.states() if state not in reached]
        said += [f"The state '{state}' is final, but has a way out." for state in sorted(left & {*self.final})]
        said += [f"The state '{state}' is not final, but nothing can happen in it." for state in stuck]
        return said

    def mermaid(self) -> str:
        """The rows as a Mermaid state diagram; events that join the same two states share an arrow."""
        arrows: dict[tuple[_S, _S], list[_E]] = {}
        for (source, event), target in self.rows.items():
            arrows.setdefault((source, target), []).append(event)
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {source} --> {target}: {', '.join(by)}" for (source, target), by in arrows.items()]
        lines += [f"    {state} --> [*]" for state in sorted(self.final)]
        return "\n".join(lines) + "\n"

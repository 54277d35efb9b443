"""Transition tables: every state machine of this layer is one table plus its own data.

A machine calls ``TABLE.after(state, event)`` for its next state, and changes its state in no other way. A transition
that the table does not list is an error. The diagrams in the documentation are generated from the tables.

Declare states and events as ``Literal`` types, so that the type checker finds a misspelt one::

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
    """The transition table of one machine: from a state, by an event, to a state."""

    name: str
    initial: _S
    rows: Mapping[tuple[_S, _E], _S]
    #: The states without a transition to another state; a late event may lead from one to itself.
    final: tuple[_S, ...] | frozenset[_S] = ()
    #: One paragraph for the documentation: the purpose of the machine.
    doc: str = ""

    def after(self, state: _S, event: _E) -> _S:
        """Return the state that ``event`` leads to from ``state``; raise ``UsageError`` if there is no such row."""
        following = self.rows.get((state, event))
        if following is None:
            raise UsageError(
                f"The machine '{self.name}' in state '{state}' cannot take the event '{event}'; "
                f"possible here: {', '.join(self.events(state)) or 'nothing, it has ended'}."
            )
        return following

    def events(self, state: _S) -> tuple[_E, ...]:
        """Return the events that may occur in ``state``, in the order of the table."""
        return tuple(event for (source, event) in self.rows if source == state)

    def states(self) -> tuple[_S, ...]:
        """Return every state in the table, in the order of first mention."""
        named = [self.initial]
        for (source, _), target in self.rows.items():
            named += (source, target)
        return tuple(dict.fromkeys((*named, *sorted(self.final))))

    def faults(self) -> list[str]:
        """Return the faults of the table, one sentence each: unreachable states, dead ends, final states with exits."""
        reached = [self.initial]
        for state in reached:  # the list grows during the iteration
            reached += [t for (s, _), t in self.rows.items() if s == state and t not in reached]
        left = {source for (source, _), target in self.rows.items() if target != source}
        stuck = [state for state in self.states() if state not in self.final and not self.events(state)]
        said = [f"Nothing leads to the state '{state}'." for state in self.states() if state not in reached]
        said += [f"The state '{state}' is final, but has a way out." for state in sorted(left & {*self.final})]
        said += [f"The state '{state}' is not final, but nothing can happen in it." for state in stuck]
        return said

    def mermaid(self) -> str:
        """Return the table as a Mermaid state diagram; events between the same two states share an arrow."""
        arrows: dict[tuple[_S, _S], list[_E]] = {}
        for (source, event), target in self.rows.items():
            arrows.setdefault((source, target), []).append(event)
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [f"    {source} --> {target}: {', '.join(by)}" for (source, target), by in arrows.items()]
        lines += [f"    {state} --> [*]" for state in sorted(self.final)]
        return "\n".join(lines) + "\n"

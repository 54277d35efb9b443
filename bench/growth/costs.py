"""What one of many costs, and what a process is asked to do for that."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["WARMING", "WARMING_SIZE", "Cost", "Costs", "calls_for", "echoes_for", "lists_for"]

#: Calls that are measured at once, where they are small.
CALLS = 2000
#: Tools that are listed, and bytes that are echoed, at least, where there are few at a time.
LISTED = 10_000
ECHOED = 10_000_000
#: Calls that come first, so that whatever is made once is made; and how large they are at most.
WARMING = 500
WARMING_SIZE = 10_000_000


class Cost(NamedTuple):
    """Seconds for each call, each listed tool, or each echoed byte."""

    #: Of the CPU, for the process that is measured.
    cpu: float
    #: On the clock, for all that takes part.
    time: float


#: By the name of the figure.
Costs = dict[str, Cost]


def calls_for(size: int, least: int = CALLS) -> int:
    """How many calls make a figure, if they come in groups of this size."""
    return -(-least // size) * size


def lists_for(size: int) -> int:
    """How many lists of so many tools do."""
    return max(1, LISTED // size)


def echoes_for(size: int) -> int:
    """How many echoes of so many bytes do."""
    return max(1, min(CALLS, ECHOED // size))

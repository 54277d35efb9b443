"""Whether a cost grows with the number of others, or with the size."""

from __future__ import annotations

from itertools import combinations
from statistics import median
from typing import NamedTuple

from bench.figures import moments
from bench.measure import Row
from bench.results import Table

__all__ = ["AIM", "Growth", "growth", "judged"]

#: How much dearer something may be at one size than at a smaller one, where the floor is not. The sizes differ by
#: factors of a hundred to a hundred thousand, so what really grows misses this by far, and a noisy machine hardly does.
AIM = 2.0


class Growth(NamedTuple):
    """How much dearer one size is than a smaller one."""

    ratio: float
    small: str
    large: str


def judged(title: str, table: Table) -> list[Row]:
    """A line for servers, and one for clients."""
    rows = []
    for side in ("server", "client"):
        ratio, *ends = growth(table, side)
        measure = ", ".join(f"{moments(table.median(size, side) or 0)} ({size})" for size in ends)
        rows.append(Row(f"{side}: {title}", measure, ratio, AIM, less_is_better=True))
    return rows


def growth(table: Table, side: str) -> Growth:
    """The two sizes of which the larger is dearest in comparison, by the median of all rounds.

    What the floor becomes dearer by between the two is forgiven; that it becomes cheaper is not held against anyone.
    """
    pairs = combinations(table.rounds, 2)
    return max(Growth(rise(table, side, small, large), small, large) for small, large in pairs)


def rise(table: Table, side: str, small: str, large: str) -> float:
    rises = []
    for before, after in zip(table.rounds[small], table.rounds[large], strict=True):
        forgiven = max(1.0, after[f"{side}_bare"] / before[f"{side}_bare"])
        rises.append(after[side] / before[side] / forgiven)
    return median(rises)

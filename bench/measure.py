"""How things are timed and shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Row", "best_of", "show"]


class Row(NamedTuple):
    """One line of a table: a measure, its ratio to the baseline of the same run, and what that should be."""

    name: str
    measure: str
    ratio: float
    #: At least this, or at most this where less is better; None if nothing is aimed at.
    aim: float | None = None
    less_is_better: bool = False

    @property
    def verdict(self) -> str:
        """Whether it is what it should be."""
        if self.aim is None:
            return ""
        reached = self.ratio <= self.aim if self.less_is_better else self.ratio >= self.aim
        return "reached" if reached else "MISSED"


def best_of(rounds: int, *work: Callable[[], object]) -> list[float]:
    """The shortest time of each, in seconds. They take turns, so that a busy machine slows all of them alike."""
    best = [float("inf")] * len(work)
    for _ in range(rounds):
        for number, each in enumerate(work):
            started = time.perf_counter()
            each()
            best[number] = min(best[number], time.perf_counter() - started)
    return best


def show(title: str, rows: Sequence[Row]) -> None:
    print(f"==> {title}")
    for row in rows:
        line = f"  {row.name:<38} {row.measure:>34}   ratio {row.ratio:5.2f}"
        if row.aim is not None:
            line += f"   aim {'<=' if row.less_is_better else '>='} {row.aim:g}: {row.verdict}"
        print(line, flush=True)

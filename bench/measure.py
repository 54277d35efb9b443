"""How things are timed and shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

__all__ = ["Row", "best_of", "show", "versus"]

Figures = TypeVar("Figures")


class Row(NamedTuple):
    """One line of a table: a measure, its ratio to the baseline of the same run, and what that should be."""

    name: str
    measure: str
    ratio: float
    #: At least this, or at most this where less is better; None if nothing is aimed at.
    aim: float | None = None
    less_is_better: bool = False


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
            reached = row.ratio <= row.aim if row.less_is_better else row.ratio >= row.aim
            line += f"   aim {'<=' if row.less_is_better else '>='} {row.aim:g}: {'reached' if reached else 'MISSED'}"
        print(line, flush=True)


def versus(
    name: str,
    rounds: Mapping[str, Sequence[Figures]],
    us: str,
    them: str,
    figure: Callable[[Figures], float],
    aim: float | None = None,
    *,
    less_is_better: bool = False,
) -> Row:
    """One contender against another: the median of the ratios, of which both sides are of the same round."""
    ratios = [figure(ours) / figure(theirs) for ours, theirs in zip(rounds[us], rounds[them], strict=True)]
    spread = f"{min(ratios):,.2f} to {max(ratios):,.2f}"
    return Row(f"{name}, against {them}", spread, median(ratios), aim, less_is_better)

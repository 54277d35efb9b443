"""The rounds in which contenders take turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from bench.figures import as_text
from bench.lineup import Contender
from bench.machine import pinned
from bench.results import Round, Table

__all__ = ["Measure", "Work", "in_rounds", "load_tables", "start_table"]


class Times(NamedTuple):
    """How often something is measured. Peers are far enough from the others that fewer rounds will do."""

    all: int
    peers: int


#: The headline figures come from more rounds than those that are shown beside them.
ROUNDS = {
    ("modern", "one core"): Times(7, peers=3),
    ("modern", "any core"): Times(3, peers=1),
    ("legacy", "one core"): Times(3, peers=2),
    ("legacy", "any core"): Times(3, peers=1),
}
#: A start is so short that whatever else the machine does shows in it.
STARTS = Times(15, peers=4)

Work: TypeAlias = Mapping[str, Callable[[], Round]]
Measure: TypeAlias = Callable[[Contender, str], Round]
NOT_FEWER: Mapping[str, int] = MappingProxyType({})


def in_rounds(title: str, work: Work, rounds: int, *, fewer: Mapping[str, int] = NOT_FEWER) -> Table:
    """Each once in each round; those with fewer rounds take part in the first ones. The table is printed, too."""
    table = Table(title, {name: [] for name in work})
    for number in range(rounds):
        for name, measure in work.items():
            if number < fewer.get(name, rounds):
                table.rounds[name].append({figure: shortened(value) for figure, value in measure().items()})
    print(as_text(table), flush=True)
    return table


def shortened(value: float) -> float:
    """To five digits: more are noise."""
    return float(f"{value:.5g}")


def start_table(subject: str, contenders: Sequence[Contender], measure: Measure) -> Table:
    """What each costs until it is there, in the era that it speaks first."""
    work = {each.name: partial(measure, each, each.eras[0]) for each in contenders}
    with pinned():
        return in_rounds(f"{subject}: starts on one core", work, STARTS.all, fewer=fewer(contenders, STARTS))


def fewer(contenders: Sequence[Contender], times: Times) -> dict[str, int]:
    return {each.name: times.peers for each in contenders if each.is_peer}


def load_tables(subject: str, contenders: Callable[[str], Sequence[Contender]], measure: Measure) -> dict[str, Table]:
    """What calls cost, in each era, with both processes on one core and on any."""
    tables = {}
    for (era, place), times in ROUNDS.items():
        takers = contenders(era)
        work = {each.name: partial(measure, each, era) for each in takers}
        title = f"{subject}: calls of echo, {era}, on {place}"
        with pinned() if place == "one core" else nullcontext():
            tables[f"{era}, {place}"] = in_rounds(title, work, times.all, fewer=fewer(takers, times))
    return tables

"""The rounds in which contenders take turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from bench.figures import as_text
from bench.lineup import Contender
from bench.machine import pinned
from bench.results import Round, Table
from bench.traffic import Failed

__all__ = ["Measure", "Work", "able", "in_rounds", "load_tables", "peers_among", "start_table"]


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


def in_rounds(
    title: str,
    work: Work,
    rounds: int,
    *,
    fewer: Mapping[str, int] = NOT_FEWER,
    peers: Collection[str] = (),
) -> Table:
    """Each once in each round; those with fewer rounds take part in the first ones. The table is printed, too.

    A peer that fails is left out of the table; `Failed` if another one fails.
    """
    table = Table(title, {name: [] for name in work})
    for number in range(rounds):
        for name, measure in work.items():
            if name not in table.rounds or number >= fewer.get(name, rounds):
                continue
            try:
                figures = measure()
            except (Failed, OSError) as error:
                _leave_out(name, error, f"round {number + 1} of {title}", may_fail=name in peers)
                del table.rounds[name]
            else:
                table.rounds[name].append({figure: shortened(value) for figure, value in figures.items()})
    print(as_text(table), flush=True)
    return table


def able(contenders: Sequence[Contender], try_out: Callable[[Contender], object]) -> list[Contender]:
    """Those that pass; a peer that fails is left out, and `Failed` if another one fails."""
    passed = []
    for each in contenders:
        try:
            try_out(each)
        except (Failed, OSError) as error:
            _leave_out(each.name, error, "a trial before the clock runs", may_fail=each.is_peer)
        else:
            passed.append(each)
    return passed


def _leave_out(name: str, error: Exception, what: str, *, may_fail: bool) -> None:
    sentence = f"{name} failed in {what}: {str(error) or type(error).__name__}"
    if not may_fail:
        raise Failed(sentence) from error
    print(f"==> {sentence}; it is left out", flush=True)


def shortened(value: float) -> float:
    """To five digits: more are noise."""
    return float(f"{value:.5g}")


def start_table(subject: str, contenders: Sequence[Contender], measure: Measure) -> Table:
    """What each costs until it is there, in the era that it speaks first."""
    work = {each.name: partial(measure, each, each.eras[0]) for each in contenders}
    with pinned():
        return in_rounds(
            f"{subject}: starts on one core",
            work,
            STARTS.all,
            fewer=fewer(contenders, STARTS),
            peers=peers_among(contenders),
        )


def peers_among(contenders: Sequence[Contender]) -> set[str]:
    return {each.name for each in contenders if each.is_peer}


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
            tables[f"{era}, {place}"] = in_rounds(
                title, work, times.all, fewer=fewer(takers, times), peers=peers_among(takers)
            )
    return tables

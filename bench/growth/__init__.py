"""What grows with what: calls in flight, clients, tools and bytes may be many, and each still costs what it did.

A floor takes part in every round: the same server, or client, written by hand on asyncio. Ten thousand tasks do not fit
into a processor's cache, nor do a hundred megabytes: where the floor becomes dearer, too, that is the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.environments import CONTENDERS, python_with
from bench.figures import as_text
from bench.growth import clients, servers
from bench.growth.costs import Costs
from bench.growth.judging import judged
from bench.lineup import Lineup
from bench.machine import pinned
from bench.measure import show
from bench.results import Part, Round, Table
from bench.rounds import shortened

__all__ = ["TITLES", "run"]

ROUNDS = 3
#: What there is more and more of.
SIZES: Mapping[str, Sequence[int]] = {
    "flight": (1, 10, 100, 1000, 10_000),
    "clients": (1, 3, 10, 30, 100),
    "tools": (10, 100, 1000, 10_000),
    "messages": (1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000),
}
#: What each table shows: the cost of one, and what there is more and more of. Some are measured together.
TITLES: Mapping[str, str] = {
    "flight": "a call, by calls in flight",
    "turns": "a call, by clients in turns",
    "together": "a call, by clients at once",
    "calls": "a call, by tools",
    "lists": "a tool in a list, by tools",
    "messages": "an echoed byte, by bytes",
}


def run(lineup: Lineup) -> Part:
    """Measure everything in turns, and judge it."""
    tables = {name: Table(f"growth: {title}", {}) for name, title in TITLES.items()}
    with pinned():
        for _ in range(ROUNDS):
            for axis, sizes in SIZES.items():
                for size in sizes:
                    for name, figures in measured(axis, size).items():
                        tables[name].rounds.setdefault(f"{size:,}", []).append(figures)
    for table in tables.values():
        print(as_text(table), flush=True)
    rows = [row for name, table in tables.items() for row in judged(TITLES[name], table)]
    show("how much dearer each becomes at most, where the floor does not", rows)
    return Part(tables, rows)


def measured(axis: str, size: int) -> dict[str, Round]:
    """One round of one size: by table, the figures of servers and clients, ours and the floor's next to each other."""
    rounds: dict[str, Round] = {}
    for figure, costs in contenders(axis, size):
        for name, cost in costs.items():
            figures = rounds.setdefault(name, {})
            figures[figure] = shortened(cost.cpu)
            figures[f"{figure}_time"] = shortened(cost.time)
    return rounds


def contenders(axis: str, size: int) -> Iterator[tuple[str, Costs]]:
    bare = program("loop")
    yield "server", servers.MEASURES[axis](program("growth_ours"), size)
    yield "server_bare", servers.MEASURES[axis](bare, size)
    yield "client", clients.measures(bare)[axis](program("growth_ours_client"), size)
    yield "client_bare", clients.measures(bare)[axis](program("growth_loop_client"), size)


def program(name: str) -> list[str]:
    return [python_with("mcplumb"), str(CONTENDERS / f"{name}.py")]

"""What each speed trick of ``mcplumb._fast`` buys: mcplumb without it, against mcplumb, in the same rounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median

from bench import client, server
from bench.environments import CONTENDERS, python_with
from bench.lineup import OURS, PLAIN, Contender, Lineup, without
from bench.machine import pinned
from bench.measure import Row, show
from bench.results import Part, Table
from bench.rounds import Measure, Work, in_rounds
from mcplumb._fast import TRICKS

__all__ = ["run"]

STARTS, LOADS = 15, 7
#: The figures that a trick may improve, and what they are called.
SHOWN = {
    "cold": "first answer",
    "idle": "idle memory",
    "p50": "one at a time",
    "in_flight": "64 in flight",
    "large": "10 MB echo",
}


def run(_: Lineup) -> Part:
    """Starts and calls of servers, and calls of clients, on one core."""
    team = [without("0", OURS), *(without(trick, f"no {trick}") for trick in TRICKS), without("1", PLAIN)]
    raw = [python_with("mcplumb"), str(CONTENDERS / "raw_server.py")]
    clients = [each._replace(server=raw) for each in team]
    for each in team:
        server.try_out(each)
    with pinned():
        tables = {
            "server, starts": in_rounds("servers: starts", _work(server.start, team), STARTS),
            "server": in_rounds("servers: calls of echo, modern", _work(server.load, team), LOADS),
            "client": in_rounds(
                "clients: calls of echo, modern", _work(partial(client.load, family_counts=False), clients), LOADS
            ),
        }
    rows = [row for name, table in tables.items() for row in _rows(name.partition(",")[0], table)]
    show("what mcplumb needs without a trick, as a ratio to mcplumb", rows)
    return Part(tables, rows)


def _work(measure: Measure, team: Sequence[Contender]) -> Work:
    return {each.name: partial(measure, each, "modern") for each in team}


def _rows(side: str, table: Table) -> list[Row]:
    rows = []
    for name in table.rounds:
        for figure, words in SHOWN.items():
            if name != OURS and (ratios := table.ratios(figure, name, OURS)):
                rows.append(Row(f"{side}, {words}: {name}", f"{min(ratios):.2f} to {max(ratios):.2f}", median(ratios)))
    return rows

"""Servers whose peer leaves nothing of theirs in the caches of the core that they share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median

from bench.driver import driven
from bench.lineup import BARE, LOOP, OURS, Contender, Lineup
from bench.machine import pinned
from bench.measure import Row, show
from bench.results import Part
from bench.traffic import MODERN, Calls

__all__ = ["run"]

#: Bytes that are written between two calls: none, and more than the caches of a core hold.
MEMORY = (0, 2_000_000)
CALLS = 1000
ROUNDS = 5


def run(lineup: Lineup) -> Part:
    """What a call takes right after others, and what it takes when the caches are full of something else."""
    servers = [each for each in lineup.contenders if each.name in (BARE, LOOP, OURS)]
    times: dict[tuple[str, int], list[float]] = {}
    with pinned():
        for _ in range(ROUNDS):
            for server in servers:
                for size in MEMORY:
                    times.setdefault((server.name, size), []).append(one(server, size))
    usual, full = MEMORY
    rows = [row(each.name, times[each.name, usual], times[each.name, full]) for each in servers]
    show("a call, one at a time, after the driver has written 2 MB of memory", rows)
    return Part(rows=rows)


def one(server: Contender, size: int) -> float:
    """The seconds that a call takes, by the median."""
    ids = range(1, 2 * CALLS + 1)
    with driven(server.server, MODERN) as process:
        process.one_at_a_time(Calls.echo(MODERN, ids[:CALLS]))
        return median(process.one_at_a_time(Calls.echo(MODERN, ids[CALLS:]), before_each=writing(size)))


def writing(size: int) -> Callable[[], None]:
    """Writes that many bytes of memory."""
    memory, other = bytearray(size), bytes(size)
    return partial(memory.__setitem__, slice(None), other)


def row(name: str, usual: list[float], full: list[float]) -> Row:
    ratio = median(there / here for here, there in zip(usual, full, strict=True))
    return Row(name, f"{median(full) * 1e6:.1f} µs instead of {median(usual) * 1e6:.1f} µs", ratio)

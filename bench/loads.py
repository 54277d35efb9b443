"""What calls cost, of servers as of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

__all__ = ["WINDOW", "Load", "load_of", "show_loads"]

#: Calls in flight.
WINDOW = 64


class Load(NamedTuple):
    """What calls cost."""

    #: Seconds, one at a time.
    p50: float
    p99: float
    #: Calls a second.
    alone: float
    in_flight: float
    #: CPU seconds, of what is measured, for 10,000 calls in flight.
    cpu: float
    #: Memory at the end.
    megabytes: float


def load_of(times: Sequence[float], *, count: int, seconds: float, cpu: float, megabytes: float) -> Load:
    """From the times of calls one at a time, and what so many calls in flight took together."""
    times = sorted(times)
    return Load(
        p50=median(times),
        p99=times[len(times) * 99 // 100],
        alone=len(times) / sum(times),
        in_flight=count / seconds,
        cpu=cpu / count * 10_000,
        megabytes=megabytes,
    )


def show_loads(title: str, loads: Mapping[str, Sequence[Load]]) -> None:
    """The medians of all rounds, as a table."""
    rounds = max(map(len, loads.values()))
    print(f"==> calls of echo, {title}, the median of {rounds} rounds")
    print(f"  {'':<20}{'one at a time: p50':>20}{'p99':>13}{'calls/s':>11}", end="")
    print(f"{f'{WINDOW} in flight: calls/s':>24}{'CPU s/10,000':>14}{'memory':>11}")
    for name, figures in loads.items():
        each = Load(*map(median, zip(*figures, strict=True)))
        print(f"  {name:<20}{each.p50 * 1e6:>17,.1f} µs{each.p99 * 1e6:>10,.1f} µs{each.alone:>11,.0f}", end="")
        print(f"{each.in_flight:>24,.0f}{each.cpu:>14.3f}{each.megabytes:>8.1f} MB", flush=True)

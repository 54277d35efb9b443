"""What calls cost, of servers as of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, Protocol

from bench.machine import cpu_seconds, resident_megabytes
from bench.traffic import Calls

__all__ = ["WINDOW", "Load", "Measured", "Supply", "load_of", "measured", "show_loads"]

#: Calls in flight.
WINDOW = 64
#: How long each figure is measured in each round, and with how many calls at most.
SECONDS = 0.3
MOST_CALLS = 100_000


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


class Measured(Protocol):
    """A server process, and a way to it."""

    @property
    def pid(self) -> int: ...

    def one_at_a_time(self, calls: Calls) -> list[float]:
        """The seconds that each call took, sent when the one before it has been answered."""

    def in_flight(self, calls: Calls, window: int) -> float:
        """The seconds that all calls took together, with as many open at a time as the window is wide."""


class Supply:
    """Calls with ids that never come again."""

    def __init__(self, make: Callable[[range], Calls]) -> None:
        self._make = make
        self._next = 1_000_000

    def calls(self, count: float) -> Calls:
        """So many, within reason."""
        first, self._next = self._next, self._next + min(MOST_CALLS, max(WINDOW, round(count)))
        return self._make(range(first, self._next))


def measured(server: Measured, supply: Supply) -> Load:
    """A few calls each time say how many there can be, and warm the server up."""
    one = median(server.one_at_a_time(supply.calls(WINDOW)))
    times = server.one_at_a_time(supply.calls(SECONDS / one))

    few = supply.calls(SECONDS / 3 / one)
    calls = supply.calls(SECONDS * len(few) / server.in_flight(few, WINDOW))
    used = cpu_seconds(server.pid)
    seconds = server.in_flight(calls, WINDOW)
    used = cpu_seconds(server.pid) - used
    return load_of(times, count=len(calls), seconds=seconds, cpu=used, megabytes=resident_megabytes(server.pid))


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

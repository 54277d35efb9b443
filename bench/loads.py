"""What calls cost, of servers as of clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

from bench.machine import cpu_seconds, resident_megabytes
from bench.results import Round
from bench.traffic import Calls

__all__ = ["WINDOW", "Caller", "Driver", "Server", "cost_of_calls", "cost_of_large_calls"]

#: Calls in flight.
WINDOW = 64
#: How long a contender warms up, and how long each figure is measured then, in each round.
WARM_SECONDS = 0.15
SECONDS = 0.2
MOST_CALLS = 100_000

MEGABYTE = 1_000_000
SIZES = {"small": MEGABYTE, "large": 10 * MEGABYTE}
LARGE_SECONDS = 0.3
MOST_LARGE_CALLS = 9


class Caller(Protocol):
    """Something that calls a tool, and checks what comes back: a client, or the driver of a server."""

    def alone(self, count: int) -> list[float]:
        """The seconds that each of so many calls took, one after the other."""

    def in_flight(self, count: int, window: int) -> float:
        """The seconds that so many calls took together, with as many open at a time as the window is wide."""

    def large(self, size: int) -> float:
        """The seconds that it took to echo so many bytes."""


class Server(Protocol):
    """A server process, and a way to it."""

    def one_at_a_time(self, calls: Calls) -> list[float]:
        """The seconds that each call took, sent when the one before it has been answered."""

    def in_flight(self, calls: Calls, window: int) -> float:
        """The seconds that all calls took together, with as many open at a time as the window is wide."""


class Driver:
    """A caller of a server, with ids that never come again."""

    def __init__(self, server: Server, echo: Callable[..., Calls]) -> None:
        self._server = server
        self._echo = echo
        self._next = 1_000_000

    def alone(self, count: int) -> list[float]:
        return self._server.one_at_a_time(self._echo(self._ids(count)))

    def in_flight(self, count: int, window: int) -> float:
        return self._server.in_flight(self._echo(self._ids(count)), window)

    def large(self, size: int) -> float:
        return self._server.in_flight(self._echo(self._ids(1), size=size), 1)

    def _ids(self, count: int) -> range:
        first, self._next = self._next, self._next + count
        return range(first, self._next)


def cost_of_calls(caller: Caller, pids: Sequence[int]) -> Round:
    """Of small ones; CPU time and memory are those of these processes. First it warms up, and says how fast it is."""
    one = median(caller.alone(WINDOW))
    one = median(caller.alone(within_reason(WARM_SECONDS / one)))
    times = sorted(caller.alone(within_reason(SECONDS / one)))

    few = within_reason(WARM_SECONDS / one)
    caller.in_flight(few, WINDOW)
    count = within_reason(SECONDS * few / caller.in_flight(few, WINDOW))
    used = sum(map(cpu_seconds, pids))
    seconds = caller.in_flight(count, WINDOW)
    used = sum(map(cpu_seconds, pids)) - used
    return {
        "p50": median(times),
        "p99": times[len(times) * 99 // 100],
        "alone": len(times) / sum(times),
        "in_flight": count / seconds,
        "cpu": used / count * 10_000,
        "loaded": sum(map(resident_megabytes, pids)),
    }


def within_reason(count: float) -> int:
    return min(MOST_CALLS, max(WINDOW, round(count)))


def cost_of_large_calls(caller: Caller) -> Round:
    """Megabytes a second, by the size of the text. The first call warms up, and counts only if it is slow."""
    figures = {}
    for name, size in SIZES.items():
        first = caller.large(size)
        more = min(MOST_LARGE_CALLS, round(LARGE_SECONDS / first))
        figures[name] = size / MEGABYTE / median([caller.large(size) for _ in range(more)] or [first])
    return figures

"""What is aimed at, and whether a run has reached it: ratios to others in the same rounds of the same run."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

from bench.lineup import BARE, GO, OFFICIAL, OURS, RUST
from bench.results import Results

__all__ = ["AIMS", "ANY_CORE", "GOALS", "ONE_CORE", "Goal", "Verdict", "judged"]

ONE_CORE, ANY_CORE = "modern, one core", "modern, any core"


class Goal(NamedTuple):
    """One figure of one contender, against the same figure of another."""

    name: str
    part: str
    table: str
    figure: str
    at_most: float | None = None
    at_least: float | None = None
    us: str = OURS
    them: str = BARE

    @property
    def words(self) -> str:
        """What is aimed at."""
        bound = f"at least {self.at_least:g}" if self.at_most is None else f"at most {self.at_most:g}"
        return f"{bound} {'of' if (self.at_least or 1) < 1 else 'times'} {self.them}"

    def ratios(self, results: Results, contender: str) -> list[float]:
        """Of all rounds. Whoever speaks only the legacy era is measured against what others do there."""
        part = results.parts.get(self.part)
        tables = (
            [part.tables.get(name) for name in (self.table, self.table.replace("modern", "legacy"))] if part else []
        )
        found = [table.ratios(self.figure, contender, self.them) for table in tables if table]
        return next(filter(None, found), [])

    def is_reached(self, ratio: float) -> bool:
        return ratio <= self.at_most if self.at_most is not None else ratio >= (self.at_least or 0)


class Verdict(NamedTuple):
    """How far a goal was reached in one run."""

    goal: Goal
    ratio: float
    lowest: float
    highest: float

    @property
    def is_reached(self) -> bool:
        return self.goal.is_reached(self.ratio)

    @property
    def word(self) -> str:
        return "reached" if self.is_reached else "MISSED"

    def __str__(self) -> str:
        spread = f"{self.lowest:.2f} to {self.highest:.2f}"
        return f"{self.goal.name:<34} {spread:>18}   median {self.ratio:6.2f}   {self.goal.words}: {self.word}"


def judged(results: Results, goal: Goal) -> Verdict | None:
    """None if the run did not measure it."""
    ratios = goal.ratios(results, goal.us)
    return Verdict(goal, median(ratios), min(ratios), max(ratios)) if ratios else None


GOALS = [
    Goal("server, 64 in flight", "server", ONE_CORE, "in_flight", at_least=0.40),
    Goal("client, 64 in flight", "client", ONE_CORE, "in_flight", at_least=0.35),
    Goal("both, one at a time, p50", "both", ONE_CORE, "p50", at_most=5.5),
    Goal("cold start of a server", "server", "starts", "cold", at_most=2.4),
    Goal("idle memory of a server", "server", "starts", "idle", at_most=1.9),
    Goal("10 MB echo, server", "server", ONE_CORE, "large", at_least=0.9),
    Goal("bridge, one at a time, p50, one core", "bridge", ONE_CORE, "p50", at_most=2.2, us="bridge", them="direct"),
    Goal("bridge, one at a time, p50, any core", "bridge", ANY_CORE, "p50", at_most=2.2, us="bridge", them="direct"),
    Goal("tap, 64 in flight", "tap", ANY_CORE, "in_flight", at_least=0.6, us="tap", them="direct"),
    Goal("bridge, 64 in flight", "bridge", ONE_CORE, "in_flight", at_least=0.40, us="bridge", them="direct"),
]
#: What else is aimed at, beside the goals.
AIMS = [
    Goal("server, one at a time", "server", ONE_CORE, "alone", at_least=20, them=OFFICIAL),
    Goal("server, 64 in flight", "server", ONE_CORE, "in_flight", at_least=20, them=OFFICIAL),
    Goal("client, one at a time", "client", ONE_CORE, "alone", at_least=15, them=OFFICIAL),
    Goal("client, 64 in flight", "client", ONE_CORE, "in_flight", at_least=15, them=OFFICIAL),
    Goal("server, one at a time", "server", ONE_CORE, "alone", at_least=1, them=GO),
    Goal("server, 64 in flight", "server", ONE_CORE, "in_flight", at_least=1, them=GO),
    Goal("server, CPU time", "server", ONE_CORE, "cpu", at_most=1, them=GO),
    Goal("server, CPU time", "server", ONE_CORE, "cpu", at_most=3, them=RUST),
    Goal("client, one at a time", "client", ONE_CORE, "alone", at_least=1, them=GO),
    Goal("client, 64 in flight", "client", ONE_CORE, "in_flight", at_least=1, them=GO),
    Goal("client, CPU time", "client", ONE_CORE, "cpu", at_most=1, them=GO),
    Goal("client, CPU time", "client", ONE_CORE, "cpu", at_most=3, them=RUST),
    Goal("cold start of a server", "server", "starts", "cold", at_most=3, them=GO),
    Goal("HTTP server, 64 connections", "http", ONE_CORE, "in_flight", at_least=7, them=OFFICIAL),
    Goal("bridge, HTTP to stdio", "bridge", "http", "in_flight", at_least=10, us="bridge", them="mcp-proxy 0.13.0"),
    Goal("bridge, HTTP to stdio", "bridge", "http", "in_flight", at_least=10, us="bridge", them="supergateway 4.0.0"),
    Goal(
        "bridge, HTTP to stdio, legacy client",
        "bridge",
        "http",
        "in_flight",
        at_least=10,
        us="bridge, legacy client",
        them="mcp-proxy 0.13.0",
    ),
    Goal("mcplumb --help", "starting", "starts", "seconds", at_most=3, us="mcplumb --help", them="python -c pass"),
]

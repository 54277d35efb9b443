"""Runs one target: inputs in, outcomes counted, the first failure kept, memory watched."""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import msgspec

from fuzz.mutation import Mutator
from fuzz.targets import Target

__all__ = ["MAX_BLOCKS", "MAX_PART", "PARTS", "Failure", "Report", "run"]

#: Inputs between two looks at the memory, at most.
MAX_PART = 10_000
#: How many looks there are at least: also a short run can compare the last with the first.
PARTS = 4
#: How many more blocks of memory may be alive after a part than after the first one: the counters and the corpus grow a
#: little. A leak of one object in every third input would pass this in a run of some thousand inputs.
MAX_BLOCKS = 1_500
#: How much the most memory ever held may grow after the first part, in KiB.
MAX_GROWTH = 16 * 1024


class Failure(msgspec.Struct, frozen=True):
    """An input, and what must not have happened with it."""

    target: str
    data: bytes
    why: str


class Report(msgspec.Struct):
    """What a part of a run gave."""

    target: str
    inputs: int = 0
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    failure: Failure | None = None


def run(
    target: Target,
    inputs: int,
    *,
    seed: str,
    deadline: float = float("inf"),
    before_each: Callable[[str, bytes], None] | None = None,
) -> Iterator[Report]:
    """A report for each part of the run; the last one may have a failure in it.

    ``before_each`` is told the target and the input, in case that nobody hears of it again.
    """
    rng = Random(f"{target.name}/{seed}")
    mutator = Mutator(target.seeds, target.tokens, rng, target.members, target.shapes)
    part = max(1, min(MAX_PART, inputs // PARTS))
    known: set[str] = set()
    first: tuple[int, int] | None = None
    while inputs > 0 and time.monotonic() < deadline:
        report = Report(target.name)
        for _ in range(min(part, inputs)):
            if time.monotonic() >= deadline:
                break
            data = mutator.next()
            if before_each:
                before_each(target.name, data)
            try:
                outcome = target.check(data, rng)
            except Exception as error:  # noqa: BLE001 - anything that is raised here is what is looked for
                report.failure = Failure(target.name, data, f"{type(error).__name__}: {error}")
                yield report
                return
            report.inputs += 1
            report.outcomes[outcome] += 1
            if outcome not in known:
                known.add(outcome)
                mutator.learn(data)
        inputs -= report.inputs
        now = memory()
        first = first or now
        if now[0] - first[0] > MAX_BLOCKS or now[1] - first[1] > MAX_GROWTH:
            why = f"memory grows: from {first} to {now} (blocks alive, most KiB ever)"
            report.failure = Failure(target.name, b"", why)
        yield report


def memory() -> tuple[int, int]:
    """The blocks of memory that are alive, and the most memory that the process ever had, in KiB."""
    gc.collect()
    return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

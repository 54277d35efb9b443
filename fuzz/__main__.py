# The invariant: whatever bytes come in, in whatever chunks, the wire layer gives one of its documented outcomes and
# raises nothing, gives the same for any chunking, agrees with an independent judge, answers no answer, and keeps
# nothing: after a million inputs it holds as much memory as after a few thousand.
"""``python -m fuzz``: random inputs, bent from good ones and guided by what is new in the outcomes."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import RawArray, RawValue
from pathlib import Path
from queue import Empty
from zlib import crc32

from fuzz.runner import Failure, Report, run
from fuzz.targets import TARGETS, Target

FAILURES = Path(".fuzz")
#: Messages have the most to get wrong.
SHARES = {"lines": 0.25, "messages": 0.5, "events": 0.25}
WORKERS = 2
#: A run that was not told how long it may take, and takes longer than this, has failed.
SECONDS = 600.0
#: No input takes a second; a worker that spends this long on one does not come back.
PATIENCE = 60.0

Make = Callable[[], Target]


class Progress:
    """What a worker is at, in memory that others can read, also when the worker hangs."""

    SIZE = 2**20

    def __init__(self) -> None:
        self._target = RawArray("c", 32)
        self._data = RawArray("c", self.SIZE)
        self._size = RawValue("Q", 0)
        self._tried = RawValue("Q", 0)

    def note(self, target: str, data: bytes) -> None:
        """Another input is tried."""
        kept = data[: self.SIZE]
        self._target.value = target.encode()
        self._data[: len(kept)] = kept
        self._size.value = len(kept)
        self._tried.value += 1

    @property
    def tried(self) -> int:
        """How many inputs were begun."""
        return int(self._tried.value)

    def now(self) -> tuple[str, bytes]:
        """The target and the input."""
        return self._target.value.decode(), bytes(self._data[: self._size.value])


class Watch:
    """Finds out that a worker hangs: from its first input on, it has to come to another within ``patience`` seconds."""

    def __init__(self, worker: BaseProcess, progress: Progress, patience: float) -> None:
        self.worker = worker
        self.progress = progress
        self.patience = patience
        self._tried = 0
        self._since = 0.0

    def failure(self) -> Failure | None:
        """What the worker hangs at, if it does."""
        tried, now = self.progress.tried, time.monotonic()
        if tried != self._tried:
            self._tried, self._since = tried, now
        if not tried or now - self._since < self.patience or not self.worker.is_alive():
            return None
        target, data = self.progress.now()
        return Failure(target, data, f"The input did not come to an end within {self.patience:g} seconds.")


def share(target: Target, inputs: int) -> int:
    """How many of the inputs one worker tries on one target."""
    return ceil(inputs * SHARES[target.name] / WORKERS)


def work(
    number: int,
    inputs: int,
    seed: int,
    deadline: float,
    targets: Sequence[Make],
    progress: Progress,
    queue: Queue[Report],
) -> None:
    """One worker's share of every target; a report for each part of it."""
    for target in (make() for make in targets):
        reports = run(
            target,
            share(target, inputs),
            seed=f"{seed}/{number}",
            deadline=deadline,
            before_each=progress.note,
        )
        for report in reports:
            queue.put(report)
            if report.failure:
                return
    queue.put(Report(""))


def save(failure: Failure) -> Path:
    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{failure.target}-{crc32(failure.data):08x}.bin"
    path.write_bytes(failure.data)
    return path


def shortened(data: bytes) -> str:
    return data.hex() if len(data) <= 1000 else f"{data[:1000].hex()}… ({len(data)} bytes)"


def show_failure(failure: Failure, seed: int) -> None:
    print(f"FAILED: {failure.target}: {failure.why[:4000]}")
    print(f"  input: {shortened(failure.data)}\n  saved: {save(failure)}\n  seed:  {seed}")


class Tally:
    """What the workers have reported so far."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.done = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._started = time.monotonic()
        self._next_line = 0.1

    def add(self, report: Report) -> None:
        self.done += report.inputs
        self.outcomes.update({(report.target, outcome): count for outcome, count in report.outcomes.items()})
        if report.inputs and self.done >= self._next_line * self.inputs:
            self._next_line += 0.1
            print(f"  {self.done:>9} inputs, {self.seconds():.0f} s", flush=True)

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def show(self) -> None:
        print("==> outcomes")
        for (target, outcome), count in sorted(self.outcomes.items()):
            print(f"  {target:<9} {outcome:<52} {count:>8}")
        speed = self.done / max(self.seconds(), 0.001)
        print(
            f"==> {self.done} inputs in {self.seconds():.0f} s ({speed:.0f} a second), no failure, no growth of memory"
        )


def collect(watches: Sequence[Watch], queue: Queue[Report], tally: Tally, seed: int) -> bool:
    """Waits for the workers; whether all of them came to their end without a failure."""
    running = len(watches)
    wait = min(1.0, watches[0].patience)
    while running:
        try:
            report = queue.get(timeout=wait)
        except Empty:
            if any(watch.worker.exitcode for watch in watches):
                print(f"FAILED: a worker died; the seed is {seed}")
                return False
            report = None
        failures = [report.failure if report else None, *(watch.failure() for watch in watches)]
        for failure in filter(None, failures):
            show_failure(failure, seed)
            return False
        if report:
            running -= not report.target
            tally.add(report)
    return True


def main(arguments: Sequence[str] | None = None, targets: Sequence[Make] = TARGETS) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_200_000, help="how many inputs in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="for the same inputs again")
    parser.add_argument("--seconds", type=float, help="stop after this time, whatever was tried by then")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="the longest that one input may take (default: %(default)s s)"
    )
    options = parser.parse_args(arguments)
    seconds = SECONDS if options.seconds is None else options.seconds
    planned = WORKERS * sum(share(make(), options.inputs) for make in targets)
    print(f"==> fuzzing lines, messages and events: {planned} inputs, seed {options.seed}", flush=True)

    # Workers inherit the targets, which may be functions that cannot be pickled.
    processes = multiprocessing.get_context("fork")
    queue: Queue[Report] = processes.Queue()
    deadline = time.monotonic() + seconds
    tally = Tally(planned)
    watches = []
    for number in range(WORKERS):
        progress = Progress()
        parts = (number, options.inputs, options.seed, deadline, targets, progress, queue)
        worker = processes.Process(target=work, args=parts, daemon=True)
        worker.start()
        watches.append(Watch(worker, progress, options.patience))
    try:
        if not collect(watches, queue, tally, options.seed):
            return 1
    finally:
        for watch in watches:
            watch.worker.kill()
            watch.worker.join()

    tally.show()
    if tally.done < planned:
        print(f"STOPPED after {seconds:g} seconds: only {tally.done} of {planned} inputs were tried.")
        return 0 if options.seconds is not None else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

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
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from zlib import crc32

from fuzz.runner import Failure, Report, run
from fuzz.targets import TARGETS

FAILURES = Path(".fuzz")
#: Messages have the most to get wrong.
SHARES = {"lines": 0.25, "messages": 0.5, "events": 0.25}
WORKERS = 2


def work(number: int, inputs: int, seed: int, deadline: float, queue: Queue[Report]) -> None:
    """One worker's share of every target; a report for each part of it."""
    for target in (make() for make in TARGETS):
        share = int(inputs * SHARES[target.name])
        for report in run(target, share, seed=f"{seed}/{number}", deadline=deadline):
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_200_000, help="how many inputs in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="for the same inputs again")
    parser.add_argument("--seconds", type=float, default=600, help="stop after this time (default: %(default)s)")
    options = parser.parse_args()
    print(f"==> fuzzing lines, messages and events: {options.inputs} inputs, seed {options.seed}", flush=True)

    started = time.monotonic()
    queue: Queue[Report] = multiprocessing.Queue()
    arguments = [
        (number, options.inputs // WORKERS, options.seed, started + options.seconds, queue) for number in range(WORKERS)
    ]
    workers = [multiprocessing.Process(target=work, args=each, daemon=True) for each in arguments]
    for worker in workers:
        worker.start()
    outcomes: Counter[tuple[str, str]] = Counter()
    done, running, next_line = 0, WORKERS, 0.1
    while running:
        try:
            report = queue.get(timeout=5)
        except Empty:
            if any(worker.exitcode for worker in workers):
                print(f"FAILED: a worker died; the seed is {options.seed}")
                return 1
            continue
        if report.failure:
            path = save(report.failure)
            print(f"FAILED: {report.failure.target}: {report.failure.why}")
            print(f"  input: {shortened(report.failure.data)}\n  saved: {path}\n  seed:  {options.seed}")
            return 1
        running -= not report.target
        done += report.inputs
        outcomes.update({(report.target, outcome): count for outcome, count in report.outcomes.items()})
        if done >= next_line * options.inputs:
            next_line += 0.1
            print(f"  {done:>9} inputs, {time.monotonic() - started:.0f} s", flush=True)
    for worker in workers:
        worker.join()

    print("==> outcomes")
    for (target, outcome), count in sorted(outcomes.items()):
        print(f"  {target:<9} {outcome:<52} {count:>8}")
    seconds = time.monotonic() - started
    print(f"==> {done} inputs in {seconds:.0f} s ({done / seconds:.0f} a second), no failure, no growth of memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())

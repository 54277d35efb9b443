"""Run servers that fail in every way, and count what a client loses, mistakes, is late with and leaves behind.

The faults are committed over stdio and over HTTP, and both again behind a bridge between the clients and the server.

lost         a call that got neither an answer nor an error that says why; or a call of a read-only tool that failed
             before its timeout because its connection was lost, although it could have been sent again
wrong        an answer that is not the call's own; or a call that may have an effect each time, and was sent twice
late         an outcome later than the call's timeout plus a margin
left behind  a process of a server, or a descriptor, thread or child of the client, after the client was closed

All of them must be 0. ``python -m chaos replicas`` does the same with several replicas of a server.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from chaos import replicas
from chaos.closes import run_closes
from chaos.faults import run_bridged_http_faults, run_bridged_stdio_faults, run_http_faults, run_stdio_faults
from chaos.report import Belongings, Report, living

Part = Callable[[int, int, Report], Awaitable[None]]


async def run_part(name: str, part: Part, count: int, seed: int, report: Report) -> None:
    """Run one part, and count what it leaves behind."""
    began, before = time.monotonic(), Belongings()
    await part(count, seed, report)
    deadline = time.monotonic() + 60
    while (more := Belongings().more_than(before)) and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0.05)
    report.left += [*more, *await living(report.folder)]
    print(f"  {name:<23} {count:>5}, {time.monotonic() - began:.0f} s", flush=True)


async def run_all(options: argparse.Namespace, report: Report) -> None:
    """Run all parts."""
    parts: tuple[tuple[str, Part, int], ...] = (
        ("closes", run_closes, options.closes),
        ("faults over stdio", run_stdio_faults, options.faults),
        ("faults over HTTP", run_http_faults, options.faults // 2),
        ("behind a bridge, stdio", run_bridged_stdio_faults, options.faults // 2),
        ("behind a bridge, HTTP", run_bridged_http_faults, options.faults // 4),
    )
    # The first use opens and loads what the process keeps.
    await asyncio.create_task(asyncio.sleep(0))
    process = await asyncio.create_subprocess_exec("/bin/true")
    await process.wait()
    for name, part, count in parts:
        await run_part(name, part, count, options.seed, report)


def main_replicas(words: list[str]) -> int:
    """Run the part with replicas of a server, print the counts, and return 1 if one is not 0."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos replicas",
        description=replicas.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replicas.add_options(parser)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run's choices")
    options = parser.parse_args(words)
    print(f"==> chaos with replicas, seed {options.seed}", flush=True)
    logging.getLogger("mcplumb").setLevel(logging.CRITICAL)
    return show(asyncio.run(replicas.run_soak(options)))


def show(failures: Mapping[str, Sequence[object]]) -> int:
    """Print what failed; return 1 if anything did."""
    print("==> " + ", ".join(f"{name}: {len(cases)}" for name, cases in failures.items()))
    for name, cases in failures.items():
        for case in cases[:30]:
            print(f"  {name}: {case}")
    return int(any(failures.values()))


def main() -> int:
    """Run everything, print the counts, and return 1 if one is not 0."""
    if sys.argv[1:2] == ["replicas"]:
        return main_replicas(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="python -m chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--closes", type=int, default=1000, help="closes of servers that daemonise (default: %(default)s)"
    )
    parser.add_argument(
        "--faults",
        type=int,
        default=2000,
        help="faults over stdio; half as many over HTTP and behind a bridge (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run's choices")
    parser.add_argument("-v", "--verbose", action="store_true", help="print how often each fault had each outcome")
    options = parser.parse_args()
    print(f"==> chaos, seed {options.seed}", flush=True)
    logging.getLogger("mcplumb").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="mcplumb-chaos-") as folder:
        report = Report(folder)
        asyncio.run(run_all(options, report))
    if options.verbose:
        for outcome, count in sorted(report.outcomes.items()):
            print(f"  {outcome:<60} {count:>6}")
    return show(report.failures)


if __name__ == "__main__":
    sys.exit(main())

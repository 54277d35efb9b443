"""``python -m bench [--peers] [PART ...]``: the benchmarks, one part after the other; the usual ones if none is named.

All figures go to ``.bench/results.json``. ``python -m bench page [RESULTS]`` writes them into the documentation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench import (
    behaviour,
    bridge,
    caches,
    client,
    growth,
    http,
    page,
    profiles,
    replicas,
    server,
    starting,
    tap,
    tricks,
    wire,
    workers,
)
from bench.environments import HOME, ROOT
from bench.goals import AIMS, GOALS, judged
from bench.lineup import Lineup, lineup
from bench.results import Part, Results, begun, save, timed

PARTS: dict[str, Callable[[Lineup], Part]] = {
    "starting": starting.run,
    "wire": wire.run,
    "server": server.run,
    "client": client.run,
    "both": client.run_both,
    "caches": caches.run,
    "http": http.run,
    "workers": workers.run,
    "bridge": bridge.run,
    "tap": tap.run,
    "growth": growth.run,
    "profiles": profiles.run,
    "tricks": tricks.run,
}
#: What takes long, and runs if it is named, or with the peers.
LONG = {"growth", "profiles"}
#: What is for working on the tricks, and runs if it is named.
NAMED = {"tricks"}
#: What needs no figures that only Linux gives.
ANYWHERE = {"wire"}


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench")
    arguments.add_argument(
        "part",
        nargs="*",
        help=f"of {', '.join(PARTS)}: all if none is named; or behaviour, replicas, or page",
    )
    arguments.add_argument("--peers", action="store_true", help="measure other libraries, too, and install them first")
    given = arguments.parse_args()
    match given.part:
        case ["page", *files] if len(files) < 2:
            page.write(*map(Path, files))
        case ["behaviour"]:
            behaviour.run()
        case ["replicas"]:
            replicas.run()
        case chosen if unknown := sorted(set(chosen) - set(PARTS)):
            arguments.error(f"there is no part {', '.join(unknown)}: the parts are {', '.join(PARTS)}")
        case chosen:
            usual = [name for name in PARTS if name not in NAMED and (given.peers or name not in LONG)]
            measure(chosen or usual, peers=given.peers, named=chosen)
    return 0


def measure(names: Sequence[str], *, peers: bool, named: Sequence[str]) -> None:
    """Run these parts, keep what they find, and say whether that is what is aimed at."""
    team = lineup(peers=peers)
    command = " ".join(["python -m bench", *(["--peers"] if peers else []), *named])
    results = begun(command, {each.name: each.versions for each in team.contenders}, team.absent)
    file = HOME / "results.json"
    print(f"==> Python {results.python} on {results.machine}")
    for name in names:
        if sys.platform != "linux" and name not in ANYWHERE:
            print(f"==> {name} is measured on Linux only, which says what processes cost and can pin them to a core")
            continue
        part = results.parts[name] = timed(partial(PARTS[name], team))
        print(f"==> {name} took {part.seconds:.0f} s; other processes had {part.foreign:.0%} of the machine meanwhile")
        save(results, file)
    show_verdicts(results)
    print(f"==> all figures of all rounds are in {file.relative_to(ROOT)}")


def show_verdicts(results: Results) -> None:
    for title, goals in (("goals", GOALS), ("aims", AIMS)):
        if verdicts := list(filter(None, (judged(results, goal) for goal in goals))):
            print(f"==> {title}: ratios of all rounds, in the order lowest to highest")
            for verdict in verdicts:
                print(f"  {verdict}")


if __name__ == "__main__":
    sys.exit(main())

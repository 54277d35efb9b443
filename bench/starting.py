"""How long it takes to begin: an import, and the help of the command line, against a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

from bench.machine import ForeignWork, pinned
from bench.measure import show, versus

__all__ = ["run"]

ROUNDS = 21
NOTHING = "python -c pass"
WORK: Mapping[str, Sequence[str]] = {
    NOTHING: ["-c", "pass"],
    "import msgspec": ["-c", "import msgspec"],
    "import mcpipe": ["-c", "import mcpipe"],
    "mcpipe --help": ["-m", "mcpipe", "--help"],
    "mcpipe --version": ["-m", "mcpipe", "--version"],
    "mcpipe tools --help": ["-m", "mcpipe", "tools", "--help"],
}


def run() -> None:
    """Measure all of them, in turns."""
    times: dict[str, list[float]] = {name: [] for name in WORK}
    foreign = ForeignWork()
    with pinned():
        for _ in range(ROUNDS):
            for name, words in WORK.items():
                started = time.perf_counter()
                subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
                times[name].append(time.perf_counter() - started)
    print(f"==> from start to end, on one core, the median of {ROUNDS}")
    for name, each in times.items():
        print(f"  {name:<24} {median(each) * 1000:8.1f} ms")
    rows = [
        versus(name, times, name, NOTHING, float, 3.0 if name == "mcpipe --help" else None, less_is_better=True)
        for name in WORK
        if name != NOTHING
    ]
    show("the median ratio of all rounds", rows)
    print(f"==> {foreign.share():.0%} of the machine's CPU time went to other processes meanwhile")

"""A tap between a client and a server, against the two without it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

from bench.environments import CONTENDERS, python_with
from bench.hosts import Host, hosted
from bench.lineup import Lineup
from bench.loads import cost_of_calls
from bench.machine import cpu_seconds, family, pinned
from bench.measure import Row, show
from bench.results import Part, Round, Table
from bench.rounds import in_rounds

__all__ = ["DIRECT", "TAPPED", "run"]

DIRECT, TAPPED = "direct", "tap"
ROUNDS = 5
#: The seconds that a tap may add to each message.
PER_MESSAGE = 15e-6
#: Calls whose CPU time is counted, and the seconds without any after which the recorder has written them.
COUNTED = 10_000
QUIET = 0.1


def run(lineup: Lineup) -> Part:
    """What a tap costs: the time of calls, one at a time and many at once, on one core and on any."""
    client = [python_with("mcplumb"), str(CONTENDERS / "ours_client.py")]
    server = [python_with("mcplumb"), str(CONTENDERS / "ours.py")]
    tables = {}
    with tempfile.TemporaryDirectory() as folder:
        tap = [python_with("mcplumb"), "-m", "mcplumb", "tap", "--record", str(Path(folder)), "--"]
        for place in ("one core", "any core"):
            work = {
                DIRECT: partial(load, [*client, "modern", *server]),
                TAPPED: partial(load, [*client, "modern", *tap, *server]),
            }
            title = f"through a tap: calls of echo, modern client and server, on {place}"
            with pinned() if place == "one core" else nullcontext():
                tables[f"modern, {place}"] = in_rounds(title, work, ROUNDS)
    rows = [a_message(name, table) for name, table in tables.items()]
    # On any core, the time that a core takes to wake up is part of the CPU time.
    one_core = "modern, one core"
    rows.append(a_message(f"{one_core}, CPU time with the recorder", tables[one_core], "cpu_alone"))
    show("what a tap adds to a message", rows)
    return Part(tables, rows)


def load(command: Sequence[str]) -> Round:
    with hosted(command) as host:
        members = family(host.pid)
        return {**cost_of_calls(host, members), "cpu_alone": cpu_of_calls(host, members)}


def cpu_of_calls(host: Host, pids: Sequence[int]) -> float:
    """Return the CPU time of 10,000 calls, one at a time, with all that is done for them afterwards."""

    def settled() -> float:
        used = -1.0
        while used != (now := sum(map(cpu_seconds, pids))):
            used = now
            time.sleep(QUIET)
        return used

    before = settled()
    host.alone(COUNTED)
    return (settled() - before) / COUNTED * 10_000


def a_message(name: str, table: Table, figure: str = "p50") -> Row:
    """Return what a tap adds to the time of a message, of which a call has two, as a ratio to what it may add."""
    calls = 10_000 if figure == "cpu_alone" else 1
    times = zip(table.rounds[TAPPED], table.rounds[DIRECT], strict=True)
    added = median((tapped[figure] - direct[figure]) / 2 / calls for tapped, direct in times)
    measure = f"{added * 1e6:.1f} µs, of {PER_MESSAGE * 1e6:.0f} µs"
    return Row(f"added to a message, {name}", measure, added / PER_MESSAGE, 1.0, less_is_better=True)

"""A tap between a client and a server, against the two without it."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

from bench.bridge import load
from bench.environments import CONTENDERS, python_with
from bench.lineup import Lineup
from bench.machine import pinned
from bench.measure import Row, show
from bench.results import Part, Table
from bench.rounds import in_rounds

__all__ = ["DIRECT", "TAPPED", "run"]

DIRECT, TAPPED = "direct", "tap"
ROUNDS = 5
#: The seconds that a tap may add to each message.
PER_MESSAGE = 15e-6


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
    show("what a tap adds to a message", rows)
    return Part(tables, rows)


def a_message(name: str, table: Table) -> Row:
    """Return what a tap adds to the time of a message, of which a call has two, as a ratio to what it may add."""
    times = zip(table.rounds[TAPPED], table.rounds[DIRECT], strict=True)
    added = median((tapped["p50"] - direct["p50"]) / 2 for tapped, direct in times)
    measure = f"{added * 1e6:.1f} µs, of {PER_MESSAGE * 1e6:.0f} µs"
    return Row(f"added to a message, {name}", measure, added / PER_MESSAGE, 1.0, less_is_better=True)

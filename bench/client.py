"""Clients over stdio: ours, the official SDK's and one written by hand, each of which launches the same raw server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import NamedTuple, TypeVar

from bench.driver import TooSlow
from bench.environments import CONTENDERS, pin, python_with
from bench.hosts import Host, hosted
from bench.loads import WINDOW, Load, load_of, show_loads
from bench.machine import ForeignWork, cpu_seconds, peak_megabytes, pinned, resident_megabytes
from bench.measure import Row, show, versus

__all__ = ["run"]

ERAS = ("modern", "legacy")
#: The headline figures come from more rounds than those that are shown beside them.
ROUNDS, FEWER_ROUNDS = 5, 3
START_ROUNDS = 9
#: How long each figure is measured in each round, and with how many calls at most.
SECONDS = 0.3
MOST_CALLS = 100_000

MEGABYTE = 1_000_000
SMALL, LARGE = 5 * MEGABYTE, 50 * MEGABYTE
#: How often each large result is fetched in each round.
FETCHES = 5
#: Seconds in which a client should have received one result, and is given up otherwise.
ENOUGH = 60.0


class Contender(NamedTuple):
    """A client that takes part, and the server that it is to launch."""

    name: str
    program: Sequence[str]
    server: Sequence[str]

    def speaking(self, era: str) -> list[str]:
        """The command that starts it."""
        return [*self.program, era, *self.server]


class Start(NamedTuple):
    """What a client has cost when it has the result of its first call."""

    #: Seconds from the start of the program.
    cold: float
    #: Seconds from when it has loaded all that it needs, and is about to launch the server.
    connect: float
    #: CPU seconds of the program, without the server's.
    cpu: float
    megabytes: float


class Bulk(NamedTuple):
    """What large results cost: seconds for each size, and the most memory that the client took meanwhile."""

    small: float
    large: float
    megabytes: float


Figures = TypeVar("Figures", Start, Load, Bulk)
Rounds = Mapping[str, Sequence[Figures]]

BARE, OURS, OFFICIAL = "bare", f"mcpipe {version('mcpipe')}", "mcp 2.3.0"
BLOCKING = f"{OURS}, sync"


def run() -> None:
    """Prints the tables."""
    if sys.platform != "linux":
        print("==> clients are measured on Linux only, which says what processes cost and can pin them to a core")
        return
    if not (ours := python_with("mcpipe")):
        return
    server = [ours, str(CONTENDERS / "raw_server.py")]
    bare = Contender(BARE, [ours, str(CONTENDERS / "bare_client.py")], server)
    awaited = Contender(OURS, [ours, str(CONTENDERS / "ours_client.py")], server)
    blocking = Contender(BLOCKING, [ours, str(CONTENDERS / "ours_sync_client.py")], server)
    clients = [bare, awaited, blocking]
    if official := python_with("mcp-2.3.0"):
        clients.append(Contender(OFFICIAL, [official, str(CONTENDERS / "official_client.py")], server))
    print(f"==> clients: bare and mcpipe with {pin('mcpipe', 'msgspec')}, ", end="")
    print(f"mcp with {pin('mcp-2.3.0', 'pydantic')} and {pin('mcp-2.3.0', 'anyio')}")
    foreign = ForeignWork()
    for client in clients:
        try_out(client)

    with pinned():
        starts = in_turns(clients, "modern", START_ROUNDS, start)
    show_starts(starts)
    loads = {}
    for era, rounds in zip(ERAS, (ROUNDS, FEWER_ROUNDS), strict=True):
        with pinned():
            loads[era] = in_turns(clients, era, rounds, load)
        show_loads(f"{era}, client and server on one core", loads[era])
        show_loads(f"{era}, on any core", in_turns(clients, era, FEWER_ROUNDS, load))
    with pinned():
        bulks = in_turns([bare, awaited], "modern", FEWER_ROUNDS, bulk)
        # Once, and not in turns: it takes long, and ours is not compared with it, but with itself.
        bulks.update((client.name, [patient_bulk(client)]) for client in clients if client.name == OFFICIAL)
    show_bulks(bulks)
    rows = [*start_rows(starts), *load_rows(loads), *bulk_rows(bulks)]
    show(f"{OURS} on one core, the median ratio of all rounds", rows)
    print(f"==> {foreign.share():.0%} of the machine's CPU time went to other processes meanwhile")


def try_out(client: Contender) -> None:
    """It gets the right results, in both eras. After that the system has all files at hand that a start reads."""
    for era in ERAS:
        with hosted(client.speaking(era)) as host:
            host.in_flight(WINDOW, WINDOW)


def in_turns(
    clients: Sequence[Contender], era: str, rounds: int, measure: Callable[[Host], Figures]
) -> dict[str, list[Figures]]:
    """The clients take turns, so that a busy machine slows all of them alike."""
    figures: dict[str, list[Figures]] = {client.name: [] for client in clients}
    for _ in range(rounds):
        for client in clients:
            with hosted(client.speaking(era)) as host:
                figures[client.name].append(measure(host))
    return figures


def start(host: Host) -> Start:
    return Start(host.cold_start, host.connect, cpu_seconds(host.pid), resident_megabytes(host.pid))


def load(host: Host) -> Load:
    """A few calls each time say how many there can be, and warm everything up."""
    one = median(host.alone(WINDOW))
    times = host.alone(within_reason(SECONDS / one))

    few = within_reason(SECONDS / 3 / one)
    count = within_reason(SECONDS * few / host.in_flight(few, WINDOW))
    used = cpu_seconds(host.pid)
    seconds = host.in_flight(count, WINDOW)
    used = cpu_seconds(host.pid) - used
    return load_of(times, count=count, seconds=seconds, cpu=used, megabytes=resident_megabytes(host.pid))


def within_reason(count: float) -> int:
    return min(MOST_CALLS, max(WINDOW, round(count)))


def bulk(host: Host) -> Bulk:
    """The sizes take turns, too. The first result of all finds small pipes and no memory at hand; it does not count."""
    host.large(SMALL)
    small, large = zip(*[(host.large(SMALL), host.large(LARGE)) for _ in range(FETCHES)], strict=True)
    return Bulk(median(small), median(large), peak_megabytes(host.pid))


def patient_bulk(client: Contender) -> Bulk:
    """The same once, for a client that may take too long: then its seconds are infinitely many."""
    with hosted(client.speaking("modern")) as host:
        small = median([host.large(SMALL) for _ in range(FETCHES + 1)][1:])
        megabytes = peak_megabytes(host.pid)
    try:
        with hosted(client.speaking("modern"), patience=ENOUGH) as host:
            return Bulk(small, host.large(LARGE), peak_megabytes(host.pid))
    except TooSlow:
        return Bulk(small, float("inf"), megabytes)


def show_starts(starts: Rounds[Start]) -> None:
    print(f"==> starts on one core, the median of {len(starts[OURS])}")
    print(f"  {'':<20}{'from nothing to a result':>26}{'from connect to a result':>26}{'CPU':>11}{'memory':>12}")
    for name, rounds in starts.items():
        each = Start(*map(median, zip(*rounds, strict=True)))
        print(f"  {name:<20}{each.cold * 1000:>23.1f} ms{each.connect * 1000:>23.1f} ms", end="")
        print(f"{each.cpu * 1000:>8.1f} ms{each.megabytes:>9.1f} MB", flush=True)


def show_bulks(bulks: Rounds[Bulk]) -> None:
    print(f"==> one large result on one core, the median of {len(bulks[OURS])} rounds; {OFFICIAL} has one")
    print(f"  {'':<20}{f'{SMALL // MEGABYTE} MB':>14}{f'{LARGE // MEGABYTE} MB':>14}{'peak memory':>16}")
    for name, rounds in bulks.items():
        each = Bulk(*map(median, zip(*rounds, strict=True)))
        print(f"  {name:<20}{milliseconds(each.small):>14}{milliseconds(each.large):>14}", end="")
        print(f"{each.megabytes:>13.1f} MB", flush=True)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < ENOUGH else f"over {ENOUGH:.0f} s"


def start_rows(starts: Rounds[Start]) -> list[Row]:
    rows = [versus("from connect", starts, OURS, BARE, lambda start: start.connect, less_is_better=True)]
    if OFFICIAL in starts:
        rows.append(versus("from connect", starts, OURS, OFFICIAL, lambda start: start.connect))
        rows.append(versus("from nothing", starts, OURS, OFFICIAL, lambda start: start.cold))
        rows.append(versus("memory", starts, OURS, OFFICIAL, lambda start: start.megabytes))
    return rows


def load_rows(loads: Mapping[str, Rounds[Load]]) -> list[Row]:
    rows = []
    for era, rounds in loads.items():
        one_by_one, in_flight = f"{era} one by one", f"{era} {WINDOW} in flight"
        rows.append(versus(one_by_one, rounds, OURS, BARE, lambda load: load.alone))
        rows.append(versus(in_flight, rounds, OURS, BARE, lambda load: load.in_flight))
        if OFFICIAL in rounds:
            rows.append(versus(one_by_one, rounds, OURS, OFFICIAL, lambda load: load.alone, 15))
            rows.append(versus(in_flight, rounds, OURS, OFFICIAL, lambda load: load.in_flight, 15))
            rows.append(versus(f"{era} sync", rounds, BLOCKING, OFFICIAL, lambda load: load.alone))
    return rows


def bulk_rows(bulks: Rounds[Bulk]) -> list[Row]:
    """Ten times the bytes should take ten times as long."""
    rows = []
    for name, rounds in bulks.items():
        small, large = (median(sizes) for sizes in list(zip(*rounds, strict=True))[:2])
        measure = f"{milliseconds(large)} against {milliseconds(small)}"
        ratio = median(each.large / each.small for each in rounds)
        rows.append(Row(f"50 MB against 5 MB, {name}", measure, ratio, 12 if name == OURS else None, name == OURS))
    return rows

"""Servers over stdio: ours, the official SDK's and a loop written by hand, driven with raw bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import NamedTuple, TypeVar

import msgspec

from bench.driver import driven
from bench.environments import CONTENDERS, pin, python_with
from bench.loads import WINDOW, Load, Supply, measured, show_loads
from bench.machine import ForeignWork, cpu_seconds, pinned, resident_megabytes
from bench.measure import Row, show, versus
from bench.traffic import LEGACY, MODERN, Calls, Era, Failed, Mirrored

__all__ = ["run"]

#: The headline figures come from more rounds than those that are shown beside them.
ROUNDS, FEWER_ROUNDS = 5, 3
#: A start is so short that whatever else the machine does shows in it.
START_ROUNDS = 21


class Contender(NamedTuple):
    """Something that takes part."""

    name: str
    command: Sequence[str]
    calls: Callable[[Era, range], Calls] = Calls.echo


class Start(NamedTuple):
    """What a server has cost when it has answered its first line."""

    seconds: float
    #: CPU seconds, which other work on the machine lengthens less.
    cpu: float
    megabytes: float


Figures = TypeVar("Figures", Start, Load)
Rounds = Mapping[str, Sequence[Figures]]

MINIMAL, BARE, OURS, OFFICIAL = "minimal Python", "bare", f"mcpipe {version('mcpipe')}", "mcp 2.3.0"
#: No server: it shows what the driver and the pipes take by themselves.
MIRROR = Contender("cat", ["cat"], Mirrored.echo)


def run() -> None:
    """Prints the tables."""
    if sys.platform != "linux":
        print("==> servers are measured on Linux only, which says what processes cost and can pin them to a core")
        return
    if not (ours := python_with("mcpipe")):
        return
    light = [script(BARE, ours, "bare"), script(OURS, ours, "ours")]
    official = python_with("mcp-2.3.0")
    heavy = [script(OFFICIAL, official, "official")] if official else []
    servers = [*light, *heavy]
    print(f"==> servers: bare and mcpipe with {pin('mcpipe', 'msgspec')}, ", end="")
    print(f"mcp with {pin('mcp-2.3.0', 'pydantic')} and {pin('mcp-2.3.0', 'anyio')}")
    foreign = ForeignWork()
    for server in servers:
        try_out(server)

    starts = {
        **start_rounds([script(MINIMAL, ours, "minimal"), *light], START_ROUNDS),
        **start_rounds(heavy, ROUNDS),
    }
    show_starts(starts)
    loads = {}
    for era, rounds in ((MODERN, ROUNDS), (LEGACY, FEWER_ROUNDS)):
        with pinned():
            loads[era.name] = load_rounds(servers, era, rounds)
        show_loads(f"{era.name}, driver and server on one core", loads[era.name])
        show_loads(f"{era.name}, on any core", load_rounds(servers, era, FEWER_ROUNDS))
    show(f"{OURS} on one core, the median ratio of all rounds", [*start_rows(starts), *load_rows(loads)])
    print(f"==> {foreign.share():.0%} of the machine's CPU time went to other processes meanwhile")


def script(name: str, interpreter: str, file: str) -> Contender:
    return Contender(name, [interpreter, str(CONTENDERS / f"{file}.py")])


def try_out(server: Contender) -> None:
    """Both tools answer rightly, in both eras. After that the system has all files at hand that a start reads."""
    for era in (MODERN, LEGACY):
        with driven(server.command, era) as process:
            if "result" not in msgspec.json.decode(process.greeting):
                raise Failed(f"{server.name} does not take {era.name} clients: {process.greeting!r}")
            process.in_flight(Calls.echo(era, range(1, 100)), WINDOW)
            process.in_flight(Calls.add(era, range(100, 200)), WINDOW)


def start_rounds(servers: Sequence[Contender], rounds: int) -> Rounds[Start]:
    """The servers take turns, here and below, so that a busy machine slows all of them alike."""
    starts: dict[str, list[Start]] = {server.name: [] for server in servers}
    with pinned():
        for _ in range(rounds):
            for server in servers:
                with driven(server.command, MODERN) as process:
                    used = cpu_seconds(process.pid)
                    starts[server.name].append(Start(process.cold_start, used, resident_megabytes(process.pid)))
    return starts


def load_rounds(servers: Sequence[Contender], era: Era, rounds: int) -> Rounds[Load]:
    servers = [*servers, MIRROR] if era is MODERN else servers
    loads: dict[str, list[Load]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            with driven(server.command, era) as process:
                supply = Supply(partial(server.calls, era))
                loads[server.name].append(measured(process, supply))
    return loads


def show_starts(starts: Rounds[Start]) -> None:
    print(f"==> starts on one core, the median of {len(starts[OURS])}")
    print(f"  {'':<16}{'first answer':>14}{'CPU':>11}{'idle memory':>14}")
    for name, rounds in starts.items():
        start = Start(*map(median, zip(*rounds, strict=True)))
        print(f"  {name:<16}{start.seconds * 1000:>11.1f} ms{start.cpu * 1000:>8.1f} ms", end="")
        print(f"{start.megabytes:>11.1f} MB", flush=True)


def start_rows(starts: Rounds[Start]) -> list[Row]:
    idle = median(start.megabytes for start in starts[OURS])
    return [
        versus("first answer", starts, OURS, MINIMAL, lambda start: start.seconds),
        versus("first answer", starts, OURS, BARE, lambda start: start.seconds, 3, less_is_better=True),
        versus("idle memory", starts, OURS, BARE, lambda start: start.megabytes, 1.9, less_is_better=True),
        Row("idle memory, against 26 MB", f"{idle:.1f} MB", idle / 26, 1, less_is_better=True),
    ]


def load_rows(loads: Mapping[str, Rounds[Load]]) -> list[Row]:
    rows = []
    for era, rounds in loads.items():
        in_flight = f"{era} {WINDOW} in flight"
        rows.append(versus(f"{era} p50", rounds, OURS, BARE, lambda load: load.p50, 2.5, less_is_better=True))
        rows.append(versus(in_flight, rounds, OURS, BARE, lambda load: load.in_flight, 0.4))
        if OFFICIAL in rounds:
            rows.append(versus(f"{era} one by one", rounds, OURS, OFFICIAL, lambda load: load.alone, 20))
            rows.append(versus(in_flight, rounds, OURS, OFFICIAL, lambda load: load.in_flight, 20))
    return rows

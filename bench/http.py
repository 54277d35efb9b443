"""Servers over HTTP: ours, the official SDK's and an application written by hand, driven with raw bytes."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from socket import socket
from statistics import median
from typing import NamedTuple

from bench.environments import CONTENDERS, pin, python_with
from bench.loads import WINDOW, Load, Supply, measured, show_loads
from bench.machine import ForeignWork, pinned, resident_megabytes
from bench.measure import Row, show, versus
from bench.posts import Visited, read_some, visited
from bench.traffic import MODERN, Calls, Failed

__all__ = ["run"]

ROUNDS, FEWER_ROUNDS = 5, 3
#: Open subscriptions in one process.
STREAMS = 1000
#: Seconds in which a subscription should have heard something.
ENOUGH = 60.0
THING = "bench://thing"
READ = (
    b'{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{' + MODERN.meta + b'"uri":"' + THING.encode() + b'"}}'
)


class Contender(NamedTuple):
    """Something that takes part."""

    name: str
    command: Sequence[str]
    #: Whether it can be listened to.
    has_streams: bool = True


class Crowd(NamedTuple):
    """What many open subscriptions cost."""

    #: Kilobytes for each.
    memory: float
    #: Seconds until all have heard of one change.
    heard: float


BARE, OURS, OFFICIAL = "bare", f"mcpipe {version('mcpipe')}", "mcp 2.3.0"
#: With the parser that ours has, too, although `pip install mcp` does not bring it.
PARSING = "mcp, httptools"


def run() -> None:
    """Prints the tables."""
    if sys.platform != "linux":
        print("==> servers over HTTP are measured on Linux only, which says what processes cost and can pin them")
        return
    if not (ours := python_with("mcpipe-http")):
        return
    servers = [
        Contender(BARE, [ours, str(CONTENDERS / "bare_http.py")], has_streams=False),
        Contender(OURS, [ours, str(CONTENDERS / "ours_http.py")]),
    ]
    for name, environment in ((OFFICIAL, "mcp-2.3.0"), (PARSING, "mcp-2.3.0-httptools")):
        if official := python_with(environment):
            servers.append(Contender(name, [official, str(CONTENDERS / "official_http.py")]))
    print(f"==> servers over HTTP, all with {pin('mcpipe-http', 'uvicorn')}: ", end="")
    print(f"bare, mcpipe and the last one with {pin('mcpipe-http', 'httptools')}, mcp with {pin('mcp-2.3.0', 'h11')}")
    foreign = ForeignWork()
    for server in servers:
        try_out(server)

    with pinned():
        loads = load_rounds(servers, ROUNDS)
    show_loads("modern over HTTP, driver and server on one core", loads)
    apart = load_rounds(servers, FEWER_ROUNDS)
    show_loads("modern over HTTP, on any core", apart)
    crowds = crowd_rounds([server for server in servers if server.has_streams], FEWER_ROUNDS)
    show_crowds(crowds)
    show(f"{OURS} on one core, the median ratio of all rounds", load_rows(loads))
    show(f"{OURS} on any core, the median ratio of all rounds", load_rows(apart))
    print(f"==> {foreign.share():.0%} of the machine's CPU time went to other processes meanwhile")


def try_out(server: Contender) -> None:
    """Both tools answer rightly."""
    with visited(server.command) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 100)), WINDOW)
        process.one_at_a_time(Calls.add(MODERN, range(100, 200)))


def load_rounds(servers: Sequence[Contender], rounds: int) -> Mapping[str, Sequence[Load]]:
    """The servers take turns, here and below, so that a busy machine slows all of them alike."""
    loads: dict[str, list[Load]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            with visited(server.command) as process:
                loads[server.name].append(measured(process, Supply(partial(Calls.echo, MODERN))))
    return loads


def crowd_rounds(servers: Sequence[Contender], rounds: int) -> Mapping[str, Sequence[Crowd]]:
    crowds: dict[str, list[Crowd]] = {server.name: [] for server in servers}
    for _ in range(rounds):
        for server in servers:
            with visited(server.command) as process:
                crowds[server.name].append(crowd(process))
    return crowds


def crowd(server: Visited) -> Crowd:
    """The first subscription and the first change load what all others need; they do not count."""
    heard(server, server.listen(1, THING))
    before = resident_megabytes(server.pid)
    streams = server.listen(STREAMS, THING)
    after = resident_megabytes(server.pid)
    return Crowd(memory=(after - before) * 1000 / STREAMS, heard=heard(server, streams))


def heard(server: Visited, streams: Sequence[socket]) -> float:
    """The seconds until all streams have brought the change that reading the resource makes; `Failed` if not all do."""
    waiting = {stream.fileno(): (stream, b"") for stream in streams}
    with select.epoll() as poll:
        for number in waiting:
            poll.register(number, select.EPOLLIN)
        started = time.perf_counter()
        server.ask(READ)
        while waiting:
            if not (ready := poll.poll(ENOUGH)):
                raise Failed(f"{len(waiting)} of {len(streams)} subscriptions have not heard of the change")
            for number, _ in ready:
                stream, torn = waiting.pop(number)
                data = torn + read_some(stream)
                if b"notifications/resources/updated" not in data:
                    waiting[number] = stream, data
                else:
                    poll.unregister(number)
        return time.perf_counter() - started


def show_crowds(crowds: Mapping[str, Sequence[Crowd]]) -> None:
    print(f"==> {STREAMS:,} open subscriptions in one process, the median of {len(crowds[OURS])} rounds")
    print(f"  {'':<20}{'memory for each':>20}{'until all have heard of a change':>36}")
    for name, rounds in crowds.items():
        each = Crowd(*map(median, zip(*rounds, strict=True)))
        print(f"  {name:<20}{each.memory:>17.1f} kB{each.heard * 1000:>33.1f} ms", flush=True)


def load_rows(rounds: Mapping[str, Sequence[Load]]) -> list[Row]:
    alone, together = "1 connection", f"{WINDOW} connections"
    rows = [versus(together, rounds, OURS, BARE, lambda load: load.in_flight)]
    for them, aim in ((OFFICIAL, 5), (PARSING, None)):
        if them in rounds:
            rows.append(versus(alone, rounds, OURS, them, lambda load: load.alone))
            rows.append(versus(together, rounds, OURS, them, lambda load: load.in_flight, aim))
    return rows

"""Servers over HTTP with several processes: ours, and the official SDK's under uvicorn, with the same numbers of them.

The driver is one process, and needs a core of its own to be no limit. So this says what a machine allows, and no more.
"""

from __future__ import annotations

import time
from functools import partial

from bench.driver import PATIENCE
from bench.environments import NotInstalled
from bench.http import PARSING
from bench.lineup import OURS, Contender, Lineup, program
from bench.loads import WINDOW, Driver
from bench.machine import cpu_seconds, family, proportional_megabytes
from bench.posts import visited
from bench.results import Part, Round
from bench.rounds import in_rounds, peers_among
from bench.traffic import MODERN, Calls, Failed

__all__ = ["run"]

WORKERS = (1, 2, 4)
ROUNDS = 3
#: Seconds for which calls are in flight, in each round.
SECONDS = 1.0
WARM_CALLS = 2000
#: Seconds in which processes do nothing when all of them have started.
CALM = 0.5


def run(lineup: Lineup) -> Part:
    """How many calls a second so many processes answer, over 64 connections."""
    servers = contenders(with_peers=lineup.with_peers)
    title = f"HTTP servers with workers: calls of echo, modern, over {WINDOW} connections, on any core"
    work = {each.name: partial(load, each) for each in servers}
    return Part({"workers": in_rounds(title, work, ROUNDS, peers=peers_among(servers))})


def contenders(*, with_peers: bool) -> list[Contender]:
    files = {OURS: ("mcplumb-http", "ours_workers")}
    if with_peers:
        files[PARSING] = "mcp-2.3.0-httptools", "official_workers"
    servers = []
    for name, (environment, file) in files.items():
        try:
            command = program(environment, file)
        except NotInstalled as error:
            print(f"==> {name} does not take part: {error}", flush=True)
            continue
        for count in WORKERS:
            words = "1 worker" if count == 1 else f"{count} workers"
            servers.append(Contender(f"{name}, {words}", [*command, str(count)]))
    return servers


def load(server: Contender) -> Round:
    with visited(server.server) as process:
        settle(process.pid)  # the first worker that is there would get all connections
        driver = Driver(process, partial(Calls.echo, MODERN))
        count = round(SECONDS * WARM_CALLS / driver.in_flight(WARM_CALLS, WINDOW))
        pids = family(process.pid)
        used = sum(map(cpu_seconds, pids))
        seconds = driver.in_flight(count, WINDOW)
        used = sum(map(cpu_seconds, pids)) - used
        memory = sum(map(proportional_megabytes, pids))
    return {"in_flight": count / seconds, "cpu": used / count * 10_000, "loaded": memory}


def settle(pid: int) -> None:
    """Wait until a process and all that it has started do nothing."""
    deadline, before = time.monotonic() + PATIENCE, -1.0
    while (now := sum(map(cpu_seconds, family(pid)))) - before > CALM / 50:
        if time.monotonic() > deadline:
            raise Failed("the workers do not come to rest")
        before = now
        time.sleep(CALM)

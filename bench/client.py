"""Clients over stdio: ours, peers' and one written by hand, each of which launches the same raw server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.environments import CONTENDERS, python_with
from bench.hosts import hosted
from bench.lineup import OFFICIAL, OURS, Contender, Lineup
from bench.loads import cost_of_calls, cost_of_large_calls
from bench.machine import cpu_seconds, family, resident_megabytes
from bench.results import Part, Round, Table
from bench.rounds import able, in_rounds, load_tables, peers_among, start_table

__all__ = ["run", "run_both"]

#: The seconds before a server reads anything: launchers such as ``npx`` take that long.
LATE = (0, 1, 2, 5)
#: Seconds are many times longer than what a busy machine adds to them.
SLOW_ROUNDS = 2


def run(lineup: Lineup) -> Part:
    """What clients cost, each by itself."""
    raw = [python_with("mcplumb"), str(CONTENDERS / "raw_server.py")]
    clients = [each._replace(server=raw) for each in lineup.contenders if each.client]
    part = _measured("clients", lineup._replace(contenders=clients), family_counts=False)
    finders = [each for each in clients if each.name in (OURS, OFFICIAL)]
    part.tables |= {f"slow, {era}": _slow_starts(finders, era) for era in ("modern", "legacy")}
    return part


def run_both(lineup: Lineup) -> Part:
    """What clients and servers cost together, each library's with its own."""
    pairs = [each for each in lineup.contenders if each.client and each.server]
    return _measured("client and server", lineup._replace(contenders=pairs), family_counts=True)


def _measured(subject: str, lineup: Lineup, *, family_counts: bool) -> Part:
    lineup = lineup._replace(contenders=able(lineup.contenders, try_out))
    starts = start_table(subject, lineup.contenders, partial(start, family_counts=family_counts))
    loads = load_tables(subject, lineup.clients, partial(load, family_counts=family_counts))
    return Part({"starts": starts, **loads})


def _slow_starts(clients: Sequence[Contender], era: str) -> Table:
    """Measure the time to the first result of servers that read late, whose era the clients have to find out."""
    title = f"clients: time to the first result of a {era} server that reads nothing for some seconds"
    work = {each.name: partial(slow_start, each, era) for each in clients}
    return in_rounds(title, work, SLOW_ROUNDS, peers=peers_among(clients))


def slow_start(client: Contender, era: str) -> Round:
    figures = {}
    for seconds in LATE:
        with hosted([*client.client, "auto", *client.server, str(seconds), era]) as host:
            figures[f"after_{seconds}"] = host.connect
    return figures


def command(client: Contender, era: str) -> list[str]:
    return [*client.client, era, *client.server]


def try_out(client: Contender) -> None:
    """It gets the right results in each era. After that the system has all files at hand that a start reads."""
    for era in client.eras:
        with hosted(command(client, era)) as host:
            host.in_flight(64, 64)


def start(client: Contender, era: str, *, family_counts: bool) -> Round:
    with hosted(command(client, era)) as host:
        pids = family(host.pid) if family_counts else [host.pid]
        return {
            "cold": host.cold_start,
            "connect": host.connect,
            "start_cpu": sum(map(cpu_seconds, pids)),
            "idle": sum(map(resident_megabytes, pids)),
        }


def load(client: Contender, era: str, *, family_counts: bool) -> Round:
    with hosted(command(client, era)) as host:
        pids = family(host.pid) if family_counts else [host.pid]
        return {**cost_of_calls(host, pids), **cost_of_large_calls(host)}

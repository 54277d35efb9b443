"""Servers over stdio: ours, peers' and floors, driven with the same raw bytes."""

from __future__ import annotations

from functools import partial

import msgspec

from bench.driver import driven
from bench.environments import CONTENDERS, python_with
from bench.lineup import MINIMAL, Contender, Lineup
from bench.loads import WINDOW, Driver, cost_of_calls, cost_of_large_calls
from bench.machine import cpu_seconds, resident_megabytes
from bench.results import Part, Round
from bench.rounds import able, load_tables, start_table
from bench.traffic import ERAS, Calls, Failed

__all__ = ["run"]


def run(lineup: Lineup) -> Part:
    """What servers cost: starts, small calls and large ones."""
    servers = able([each for each in lineup.contenders if each.server], try_out)
    lineup = lineup._replace(contenders=servers)
    minimal = Contender(MINIMAL, [python_with("mcplumb"), str(CONTENDERS / "minimal.py")])
    starts = start_table("servers", [minimal, *servers], start)
    return Part({"starts": starts, **load_tables("servers", lineup.servers, load)})


def try_out(server: Contender) -> None:
    """Both tools answer rightly in each era. After that the system has all files at hand that a start reads."""
    for era in map(ERAS.__getitem__, server.eras):
        with driven(server.server, era) as process:
            if "result" not in msgspec.json.decode(process.greeting):
                raise Failed(f"{server.name} does not take {era.name} clients: {process.greeting!r}")
            process.in_flight(Calls.echo(era, range(1, 100)), WINDOW)
            process.in_flight(Calls.add(era, range(100, 200)), WINDOW)


def start(server: Contender, era: str) -> Round:
    with driven(server.server, ERAS[era]) as process:
        used, idle = cpu_seconds(process.pid), resident_megabytes(process.pid)
        return {"cold": process.cold_start, "start_cpu": used, "idle": idle}


def load(server: Contender, era: str) -> Round:
    with driven(server.server, ERAS[era]) as process:
        driver = Driver(process, partial(Calls.echo, ERAS[era]))
        return {**cost_of_calls(driver, [process.pid]), **cost_of_large_calls(driver)}

"""How long it takes to begin, against a Python that does nothing; what is loaded, and which of that takes the time."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from bench.driver import ENVIRONMENT
from bench.environments import CONTENDERS, python_with
from bench.figures import as_text
from bench.lineup import Lineup
from bench.machine import pinned
from bench.results import Part, Round, Table
from bench.rounds import in_rounds
from bench.traffic import MODERN, Calls, Failed

__all__ = ["by_package", "run"]

ROUNDS, LOADING_ROUNDS = 15, 5
#: How many packages are named that take the time.
MOST_PACKAGES = 10
WHOLE: Mapping[str, Sequence[str]] = {
    "python -c pass": ["-c", "pass"],
    "import msgspec": ["-c", "import msgspec"],
    "import mcplumb": ["-c", "import mcplumb"],
    "mcplumb --help": ["-m", "mcplumb", "--help"],
    "mcplumb --version": ["-m", "mcplumb", "--version"],
    "mcplumb tools --help": ["-m", "mcplumb", "tools", "--help"],
}
CLIENT = """
import asyncio, sys
from mcplumb import connect
async def main():
    async with connect(sys.argv[1:]) as client:
        await client.call_tool("echo", {"text": "hello"})
asyncio.run(main())
"""
ONE_CALL = MODERN.opening + bytes(Calls.echo(MODERN, range(1, 2)).data)


class Program(NamedTuple):
    """What Python is told to run, and what that reads."""

    words: Sequence[str]
    reads: bytes = b""


def run(_: Lineup) -> Part:
    """Whole processes, and their imports."""
    cli, plain = python_with("mcplumb-cli"), python_with("mcplumb")
    with pinned():
        work = {name: partial(from_start_to_end, [cli, *words]) for name, words in WHOLE.items()}
        starts = in_rounds("processes from start to end, on one core", work, ROUNDS)
        imports = import_tables(plain)
    for table in imports.values():
        print(as_text(table), flush=True)
    return Part({"starts": starts, **imports})


def from_start_to_end(command: Sequence[str]) -> Round:
    started = time.perf_counter()
    subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    return {"seconds": time.perf_counter() - started}


def import_tables(python: str) -> dict[str, Table]:
    """What programs load: all modules together, and the packages of a server and a client that take longest."""
    programs = {
        "python -c pass": Program(["-c", "pass"]),
        "import mcplumb": Program(["-c", "import mcplumb"]),
        "server": Program([str(CONTENDERS / "ours.py")], ONE_CALL),
        "client": Program(["-c", CLIENT, python, str(CONTENDERS / "bare.py")]),
    }
    rounds: dict[str, list[dict[str, Round]]] = {name: [] for name in programs}
    for _ in range(LOADING_ROUNDS):
        for name, program in programs.items():
            rounds[name].append(by_package(imports_of(python, program)))
    tables = {
        "modules": Table(
            "modules loaded, one call included, on one core",
            {name: list(map(total, rounds[name])) for name in programs},
        )
    }
    for name in ("server", "client"):
        tables[name] = Table(f"what a {name} loads, by package", slowest(rounds[name]))
    return tables


def imports_of(python: str, program: Program) -> str:
    """What Python says about the time of each import."""
    command = [python, "-X", "importtime", *program.words]
    done = subprocess.run(command, input=program.reads, env=ENVIRONMENT, capture_output=True, check=False)
    if done.returncode:
        raise Failed(f"{command} failed: {done.stderr[-2000:]!r}")
    return done.stderr.decode()


def by_package(report: str) -> dict[str, Round]:
    """How many modules each package has brought, and the seconds that their code took, without what it imports."""
    packages: dict[str, Round] = {}
    for line in report.splitlines():
        match line.removeprefix("import time:").split("|"):
            case [own, _, name] if line.startswith("import time:") and own.strip().isdecimal():
                package = packages.setdefault(name.strip().partition(".")[0], {"modules": 0, "importing": 0.0})
                package["modules"] += 1
                package["importing"] += int(own) / 1e6
    return packages


def total(packages: Mapping[str, Round]) -> Round:
    return {figure: sum(each[figure] for each in packages.values()) for figure in ("modules", "importing")}


def slowest(rounds: Sequence[Mapping[str, Round]]) -> dict[str, list[Round]]:
    """The packages that take longest, by their medians. What only some runs load is too little to be named."""
    always = (name for name in rounds[0] if all(name in each for each in rounds))
    names = sorted(always, key=lambda name: -median(each[name]["importing"] for each in rounds))
    return {name: [each[name] for each in rounds] for name in names[:MOST_PACKAGES]}

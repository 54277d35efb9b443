"""What a run found, as data: every figure of every round, from which all that is shown is worked out."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import TypeAlias

import msgspec

from bench.machine import ForeignWork
from bench.measure import Row

__all__ = ["Part", "Results", "Round", "Table", "begun", "load", "save", "timed", "updated"]

INNERMOST = re.compile(rb"\{[^{}\[\]]*\}")

#: The figures of one round, by their names in `bench.figures.FIGURES`.
Round: TypeAlias = dict[str, float]


class Table(msgspec.Struct):
    """Figures that belong side by side."""

    title: str
    #: Of each contender, round by round. Rounds with the same number were next to each other in time.
    rounds: dict[str, list[Round]]

    def figures(self) -> list[str]:
        """Their names, in the order in which they were measured."""
        return list(dict.fromkeys(name for rounds in self.rounds.values() for each in rounds for name in each))

    def median(self, contender: str, figure: str) -> float | None:
        """Of all rounds; None if it was not measured."""
        values = [each[figure] for each in self.rounds.get(contender, ()) if figure in each]
        return median(values) if values else None

    def ratios(self, figure: str, us: str, them: str) -> list[float]:
        """One contender against another, both from the same round each time; none if one did not take part."""
        pairs = zip(self.rounds.get(us, ()), self.rounds.get(them, ()), strict=False)
        return [ours[figure] / theirs[figure] for ours, theirs in pairs if figure in ours and theirs.get(figure)]


class Part(msgspec.Struct):
    """What one part of the benchmarks found."""

    tables: dict[str, Table] = {}
    #: What is compared with something that is no contender.
    rows: list[Row] = []
    #: How long it took, and the share of the machine's CPU time that went to other processes meanwhile.
    seconds: float = 0.0
    foreign: float = 0.0
    #: The date and the command of the run, if that was not the run of the other parts.
    own_run: str = ""


class Results(msgspec.Struct):
    """What one run found, and where."""

    date: str
    command: str
    machine: str
    python: str
    node: str
    #: What the contenders came with, and why others are missing.
    versions: dict[str, str]
    absent: dict[str, str]
    parts: dict[str, Part] = {}


def begun(command: str, versions: Mapping[str, str], absent: Mapping[str, str]) -> Results:
    """Results without parts so far."""
    date = time.strftime("%Y-%m-%d")
    machine = f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release().partition('-')[0]}"
    node = ""
    if program := shutil.which("node"):
        node = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()[1:]
    return Results(date, command, machine, platform.python_version(), node, dict(versions), dict(absent))


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def updated(kept: Results, later: Results) -> Results:
    """Return the kept figures with those of a later run, which may have measured some parts only, in their place."""
    if kept.parts.keys() <= later.parts.keys():
        return later
    if (kept.machine, kept.python) != (later.machine, later.python):
        raise ValueError(
            f"The parts {', '.join(later.parts)} were measured on {later.machine}, CPython {later.python}, and the "
            f"others on {kept.machine}, CPython {kept.python}: measure all parts."
        )
    own = {
        name: msgspec.structs.replace(part, own_run=f"{later.date}, `{later.command}`")
        for name, part in later.parts.items()
    }
    return msgspec.structs.replace(kept, parts={**kept.parts, **own})


def timed(work: Callable[[], Part]) -> Part:
    """What a part finds, with how long that took and how much of the machine others had."""
    started, others = time.monotonic(), ForeignWork()
    part = work()
    part.seconds, part.foreign = round(time.monotonic() - started, 1), round(others.share(), 4)
    return part


def save(results: Results, file: Path) -> None:
    """So that people can read it, too: a line for each round."""
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(INNERMOST.sub(lambda match: b" ".join(match[0].split()), text) + b"\n")


def load(file: Path) -> Results:
    return msgspec.json.decode(file.read_bytes(), type=Results)

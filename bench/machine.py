"""What the machine says about processes: their CPU time and memory, which core they run on, and who else is at work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "ForeignWork",
    "cpu_seconds",
    "family",
    "peak_megabytes",
    "pinned",
    "proportional_megabytes",
    "resident_megabytes",
]

TICK = 1 / os.sysconf("SC_CLK_TCK")


@contextmanager
def pinned() -> Iterator[None]:
    """On one core: this process, and those that it starts meanwhile."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, all its threads together, to the nanosecond."""
    # Linux numbers the clock of each process so; /proc counts only in hundredths of a second.
    return time.clock_gettime((~pid << 3) | 2)


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]
    return [pid, *(each for child in children for each in family(child))]


def family_cpu_seconds(pid: int) -> float:
    """What a process, all that descend from it, and those of them that have ended have used so far, in hundredths."""
    children: list[str] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += _words(task / "children")
        # What comes after the name: the times of the process, and of its children that it has waited for.
        _, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has ended, and counts as a child of its parent
    return sum(map(int, rest.split()[11:15])) * TICK + sum(family_cpu_seconds(int(child)) for child in children)


def _words(file: Path) -> list[str]:
    return file.read_text(encoding="ascii").split()


def resident_megabytes(pid: int) -> float:
    """The memory that a process holds now, in megabytes of a million bytes."""
    return _megabytes(pid, "VmRSS")


def proportional_megabytes(pid: int) -> float:
    """The memory that a process holds now; of what it shares with others, its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"process {pid} has ended: it holds no memory any more")


def peak_megabytes(pid: int) -> float:
    """The most that it has held so far."""
    return _megabytes(pid, "VmHWM")


def _megabytes(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"process {pid} has ended: it holds no memory any more")


class ForeignWork:
    """The share of the machine's CPU time that went to others since this was made."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds since some moment: of all cores together, thereof busy, and thereof for us and our children."""
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        # The two columns after these eight, for guests, are counted in the first two already.
        user, nice, system, idle, waiting, *rest = (int(column) * TICK for column in first.split()[1:9])
        busy = user + nice + system + sum(rest)
        own = os.times()
        return busy + idle + waiting, busy, sum(own[:4])

    def share(self) -> float:
        """From 0 to 1. Children count as ours once they have ended."""
        all_time, busy, own = (now - then for now, then in zip(self._now(), self._start, strict=True))
        return max(0.0, busy - own) / all_time if all_time else 0.0

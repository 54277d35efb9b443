"""Programs with a client in them: each launches the raw server itself, does what it is told, and stops the time.

See ``contenders/orders.py`` for what they are told.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.driver import CHUNK, ENVIRONMENT, PATIENCE, Ended, launched, read_line
from bench.environments import ROOT
from bench.traffic import Failed

__all__ = ["Host", "hosted"]

#: The programs find what they share.
HOST_ENVIRONMENT = {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}


@contextmanager
def hosted(command: Sequence[str], *, patience: float = PATIENCE) -> Iterator[Host]:
    """A program whose client is connected, until it is left; `Failed` if it fails at anything, its end included."""
    started = time.perf_counter()
    with launched(command, patience=patience, environment=HOST_ENVIRONMENT) as process:
        yield (host := Host(process, started))
        host.finish()


class Host:
    """A client under measurement."""

    def __init__(self, process: subprocess.Popen[bytes], started: float) -> None:
        self._process = process
        self.pid = process.pid
        #: The seconds that it took to launch the server, connect to it and get the result of one call.
        [self.connect] = self._seconds()
        #: The same, together with the start of the program and all its imports.
        self.cold_start = time.perf_counter() - started

    def alone(self, count: int) -> list[float]:
        """The seconds that each of so many calls took, one after the other."""
        return self._told("alone", count)

    def in_flight(self, count: int, window: int) -> float:
        """The seconds that so many calls took together, with as many open at a time as the window is wide."""
        [seconds] = self._told("in_flight", count, window)
        return seconds

    def large(self, size: int) -> float:
        """The seconds that it took to echo so many bytes."""
        [seconds] = self._told("large", size)
        return seconds

    def finish(self) -> None:
        """Ends the program; `Failed` if it has more to say than its answers, or does not end well."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        if rest := os.read(self._process.stdout.fileno(), CHUNK):
            raise Failed(f"after its last answer the program said: {rest[:200]!r}")
        if self._process.wait():
            raise Ended

    def _told(self, what: str, *numbers: int) -> list[float]:
        assert self._process.stdin
        self._process.stdin.write(" ".join([what, *map(str, numbers)]).encode() + b"\n")
        return self._seconds()

    def _seconds(self) -> list[float]:
        assert self._process.stdout
        return [float(word) for word in read_line(self._process.stdout.fileno()).split()]

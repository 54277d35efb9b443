"""The raw driver: starts a server, speaks bytes with it over pipes, and stops the time.

It does as little as it can while the clock runs: requests are made in advance, answers are counted by their newlines,
and read properly only afterwards.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from bench.traffic import Calls, Era, Failed

__all__ = ["CHUNK", "ENVIRONMENT", "PATIENCE", "Driven", "Ended", "TooSlow", "driven", "launched", "read_line"]

CHUNK = 64 * 1024
#: A process that takes longer than this, all in all, hangs. It is killed, which ends every wait for it.
PATIENCE = 120.0

#: Without the settings of whoever runs this, such as to write no bytecode, which would compile every module each time.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


class Ended(Exception):
    """The process sends no more, though it should."""


class TooSlow(Failed):
    """A process was killed, because it took longer than it may."""


@contextmanager
def launched(
    command: Sequence[str],
    *,
    patience: float = PATIENCE,
    environment: Mapping[str, str] = ENVIRONMENT,
    stdout: int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with pipes, until it is left; `Failed`, with its last words, if it ends before.

    What serves at an address gets `subprocess.DEVNULL` as ``stdout``: it may log there, and a pipe that nobody reads
    would stop it when it is full.
    """
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, bufsize=0, env=environment
        )
        is_too_slow = threading.Event()

        def give_up() -> None:
            is_too_slow.set()
            process.kill()

        watchdog = threading.Timer(patience, give_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            with process:
                try:
                    yield process
                except (Failed, Ended, OSError):
                    if is_too_slow.is_set():
                        raise TooSlow(f"{command} was not done after {patience:g} s") from None
                    raise
        except (Ended, BrokenPipeError):
            stderr.seek(0)
            last_words = stderr.read()[-2000:].decode(errors="replace").strip()
            raise Failed(f"{command} ended instead of answering. Its last words: {last_words or 'none'}") from None
        finally:
            watchdog.cancel()


def read_some(fd: int) -> bytes:
    """What there is, as soon as there is something."""
    if chunk := os.read(fd, CHUNK):
        return chunk
    raise Ended


def read_line(fd: int) -> bytes:
    """One line, with its newline. Nothing may follow it."""
    line = read_some(fd)
    while not line.endswith(b"\n"):
        line += read_some(fd)
    return line


@contextmanager
def driven(command: Sequence[str], era: Era) -> Iterator[Driven]:
    """A server that has been opened in that era, until it is left; `Failed` if it dies before, or says more after."""
    started = time.perf_counter()
    with launched(command) as process:
        yield (server := Driven(process, era, started))
        server.finish()


class Driven:
    """A server process under measurement."""

    def __init__(self, process: subprocess.Popen[bytes], era: Era, started: float) -> None:
        assert process.stdin
        assert process.stdout
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()
        self._finish = process.stdin.close
        self.pid = process.pid
        #: What the server said to the first line.
        self.greeting = self.ask(era.opening)
        #: The seconds from the start of the process until then.
        self.cold_start = time.perf_counter() - started
        os.write(self._stdin, era.opened)
        os.set_blocking(self._stdin, False)

    def ask(self, line: bytes) -> bytes:
        """The answer to one line."""
        os.write(self._stdin, line)
        return read_line(self._stdout)

    def finish(self) -> None:
        """Ends the conversation; `Failed` if the server has more to say than its answers."""
        self._finish()
        if rest := os.read(self._stdout, CHUNK):
            raise Failed(f"after its last answer the server said: {rest[:200]!r}")

    def one_at_a_time(self, calls: Calls, before_each: Callable[[], None] = lambda: None) -> list[float]:
        """The seconds that each call took, sent when the one before it has been answered."""
        clock = time.perf_counter
        answers, times = [], []
        for begin, end in pairwise(calls.bounds):
            request = calls.data[begin:end]
            before_each()
            started = clock()
            os.write(self._stdin, request)
            answers.append(read_line(self._stdout))
            times.append(clock() - started)
        calls.check(b"".join(answers))
        return times

    def in_flight(self, calls: Calls, window: int) -> float:
        """The seconds that all calls took together, with as many open at a time as the window is wide."""
        data, bounds, count = calls.data, calls.bounds, len(calls)
        answers = []
        answered = written = 0
        allowed = bounds[min(window, count)]
        started = time.perf_counter()
        while answered < count:
            if written < allowed:
                written += self._write(data[written:allowed])
                if written < allowed and not select.select([self._stdout], [self._stdin], [])[0]:
                    continue
            chunk = read_some(self._stdout)
            answers.append(chunk)
            answered += chunk.count(b"\n")
            allowed = bounds[min(answered + window, count)]
        seconds = time.perf_counter() - started
        calls.check(b"".join(answers))
        return seconds

    def _write(self, data: memoryview) -> int:
        """As much as the pipe takes now."""
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0

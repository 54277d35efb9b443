"""A server in a process of its own, which nothing looks into, and a driver that speaks bytes with it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.costs.measuring import PATIENCE, PROGRAMS, environment
from tests.costs.messages import opening

__all__ = ["Driven", "driven"]


class Driven:
    """The server, to be asked."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()

    def ask(self, requests: bytes, answers: int = 1) -> bytes:
        """Send this, which a pipe has room for, and take so many answers."""
        assert os.write(self._stdin, requests) == len(requests)
        came = b""
        while came.count(b"\n") < answers:
            assert select.select([self._stdout], [], [], PATIENCE)[0], f"no answer within {PATIENCE:g} s"
            chunk = os.read(self._stdout, 65536)
            assert chunk, "the server has ended"
            came += chunk
        return came


@contextmanager
def driven(program: Path = PROGRAMS / "ten_lines.py", *arguments: str) -> Iterator[Driven]:
    """Start a server, ask it its first question, and stop it in the end, which must succeed."""
    command = [sys.executable, str(program), *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, env=environment()) as process:
        server = Driven(process)
        server.ask(opening("modern"))
        yield server
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0

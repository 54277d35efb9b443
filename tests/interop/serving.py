"""Servers that are reached over HTTP, each in a process of its own: those of others, and ours."""

from __future__ import annotations

import asyncio
import os
import random
import re
import socket
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from mcplumb import Client, connect
from tests.interop.visiting import MARK, VISIT_SECONDS, processes_with

#: What a server says when it can be connected to.
READY = re.compile(r"(running|listening) on .*\b\d+|Serving at ", re.IGNORECASE)
#: Below those that systems choose for who does not care.
PORTS = (16_000, 32_000)
#: A port that was free may be taken by somebody else in the meantime.
MOST_PORTS = 5


class NoPort(Exception):
    """The server has ended instead of listening; the message has what it said."""


class HttpServer:
    """A server that can be killed, and started again at the same port. ``{port}`` in its command is where it goes."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.port = 0
        self._command = command
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._starts = 0
        self._is_killed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def said(self) -> str:
        """All that it has written, over all its starts."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log")))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def start(self) -> None:
        """Start it, at a free port the first time, and wait until it listens."""
        if self.port:
            self._start()
            return
        for last in [False] * (MOST_PORTS - 1) + [True]:
            self.port = free_port()
            try:
                self._start()
            except NoPort:
                if last:
                    raise
            else:
                return

    def kill(self) -> None:
        assert self._process is not None
        self._is_killed = True
        self._process.kill()
        self._process.wait(VISIT_SECONDS)

    def stop(self) -> None:
        """Ask it to end, which it does unless somebody is still connected. It may not have ended before."""
        ended = None if self._process is None else self._process.poll()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(VISIT_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(VISIT_SECONDS)
                raise
        left = processes_with(self._mark)
        assert left == [], f"These are left: {left}"
        assert ended is None or self._is_killed, f"The server ended before it was asked to, with the status {ended}."

    def _start(self) -> None:
        self._starts += 1
        self._is_killed = False
        log = self._folder / f"{self._starts:03}.log"
        command = [part.format(port=self.port) for part in self._command]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self._mark, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
            )
        bound = time.monotonic() + VISIT_SECONDS
        while READY.search(log.read_text(errors="replace")) is None:
            if self._process.poll() is not None or time.monotonic() > bound:
                self.kill()
                raise NoPort(f"{' '.join(command)} does not listen:\n{log.read_text(errors='replace')}")
            time.sleep(0.02)


def free_port() -> int:
    """A port that nobody has now, and that no system gives away by itself, not even while its server is down."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@contextmanager
def serving(command: Sequence[str], folder: Path) -> Iterator[HttpServer]:
    """The server, listening; it is gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    server = HttpServer(command, folder)
    try:
        server.start()
        yield server
    finally:
        try:
            server.stop()
        finally:
            print(server.said)  # pytest shows it if the test fails


@contextmanager
def served(
    command: Sequence[str], way: Literal["stdio", "http", "sse"], stderr: IO[str] | None = None
) -> Iterator[list[str]]:
    """Where a client finds a server of ours: the command itself, or the address of the process that runs it."""
    if way == "stdio":
        yield list(command)
        return
    with subprocess.Popen(
        [*command, "http://127.0.0.1:0/mcp"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            yield [address if way == "http" else address.removesuffix("/mcp") + "/sse"]
        finally:
            process.terminate()
            process.wait(VISIT_SECONDS)


@asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncIterator[Client]:
    """``connect``, with a bound for all of the visit."""
    async with asyncio.timeout(VISIT_SECONDS), connect(url, **options) as client:
        yield client

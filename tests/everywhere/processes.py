"""The server in a process of its own, which can be killed and started again, whichever way leads to it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcplumb import Client, connect
from mcplumb.client import Connecting
from tests.everywhere.ways import LEGACY, MODERN, OLDEST
from tests.kit.products import sampled
from tests.repo.source import ROOT

COMMAND = [sys.executable, "-m", "tests.everywhere.server"]

#: The address to serve at, and the options to connect with.
PLACES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "stdio": (None, {"revisions": [MODERN]}),
    "stdio, legacy": (None, {"revisions": [LEGACY]}),
    "unix": ("unix:{folder}/s", {"revisions": [MODERN]}),
    "tcp": ("tcp://127.0.0.1:0", {"revisions": [MODERN]}),
    "http": ("http://127.0.0.1:0/mcp", {"revisions": [MODERN]}),
    "http, legacy": ("http://127.0.0.1:0/mcp", {"revisions": [LEGACY]}),
    "http+sse": ("http://127.0.0.1:0/mcp", {"revisions": [OLDEST], "http_sse": True}),
}

everywhere = pytest.mark.parametrize("place", sampled(PLACES, ("stdio", "tcp", "http, legacy")))


class Process:
    """One server. On stdio it is its client that starts it."""

    def __init__(self, address: str | None, options: dict[str, Any]) -> None:
        self._address = address
        self.options = {**options, "cwd": ROOT} if address is None else options
        self._process: asyncio.subprocess.Process | None = None

    @property
    def target(self) -> str | list[str]:
        """What to connect to."""
        if self._address is None:
            return COMMAND
        return self._address.replace("/mcp", "/sse") if self.options.get("http_sse") else self._address

    async def start(self) -> None:
        """Start it, if nobody else does; at the same address as before."""
        if self._address is not None:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, self._address, cwd=ROOT, stdout=asyncio.subprocess.PIPE
            )
            assert self._process.stdout is not None
            self._address = (await self._process.stdout.readline()).decode().strip()

    def connect(self, **options: Any) -> Connecting:
        return connect(self.target, **self.options, **options)

    async def kill(self, client: Client, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end if that is ours to see."""
        if self._process is not None:
            self._process.send_signal(number)
            await self._process.wait()
        else:
            assert client.process is not None
            assert client.process.pid is not None
            os.kill(client.process.pid, number)

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running(place: str) -> AsyncIterator[Process]:
    address, options = PLACES[place]
    with tempfile.TemporaryDirectory(prefix="mcp") as folder:
        process = Process(address and address.format(folder=folder), options)
        try:
            await process.start()
            yield process
        finally:
            await process.end()

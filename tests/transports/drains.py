"""What the tests of stderr share: a server that is nothing but the other end of the pipe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

from mcplumb.transports.process.stderr import StderrDrain, StderrMode, open_output


class Server:
    """The writing end of a drain."""

    def __init__(self, mode: StderrMode) -> None:
        read_end, self.fd = os.pipe()
        self.drain = StderrDrain(read_end, open_output(mode))

    def say(self, data: bytes) -> None:
        os.write(self.fd, data)

    async def flood(self, data: bytes, times: int) -> None:
        """Write a lot, as a server does that waits whenever the pipe is full."""
        for _ in range(times):
            await asyncio.to_thread(self._write_all, data)

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.fd, rest) :]

    def close(self) -> None:
        self.drain.close()
        os.close(self.fd)


@contextmanager
def served(mode: StderrMode) -> Iterator[Server]:
    server = Server(mode)
    try:
        yield server
    finally:
        server.close()

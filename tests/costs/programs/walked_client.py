"""A client that records the functions which its calls pass, and writes them to a file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcplumb import connect
from tests.costs.walk import CALLS, WARM_UP, Recorder


async def main(file: Path, server: list[str]) -> None:
    recorder = Recorder()
    async with connect(server) as client:
        for _ in range(WARM_UP):
            await client.call_tool("echo", {"text": "hello"})
        recorder.on()
        for _ in range(CALLS):
            recorder.next_call()
            await client.call_tool("echo", {"text": "hello"})
        recorder.off()
    recorder.write(file)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))

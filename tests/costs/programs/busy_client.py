"""A client that makes so many rounds of so many calls at once, and tells what the kernel saw of them."""

from __future__ import annotations

import asyncio
import os
import sys

from mcplumb import Client, connect
from tests.costs.kernel import seen
from tests.costs.measuring import raw_server, tell


async def main(rounds: int, at_once: int) -> None:
    async with connect(raw_server()) as client:
        await call(client, rounds, at_once)
        before = seen(os.getpid())
        await call(client, rounds, at_once)
        after = seen(os.getpid())
    tell(after.since(before))


async def call(client: Client, rounds: int, at_once: int) -> None:
    for _ in range(rounds):
        await asyncio.gather(*[client.call_tool("echo", {"text": "hello"}) for _ in range(at_once)])


asyncio.run(main(*map(int, sys.argv[1:])))

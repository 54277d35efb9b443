"""A floor: a relay on asyncio that hands on the bytes between its pipes and those of the command that follows.

It reads nothing into them, so whatever a bridge takes beyond this is for what a bridge is there for.
"""

import asyncio
import os
import subprocess
import sys

CHUNK = 64 * 1024


async def relay(*ways: tuple[int, int]) -> None:
    """Hand on bytes until one of the sources ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def hand_on(source: int, target: int) -> None:
        """Waits for the peer, who always reads."""
        data = memoryview(os.read(source, CHUNK))
        if not data:
            ended.set()
        while data:
            data = data[os.write(target, data) :]

    for source, target in ways:
        loop.add_reader(source, hand_on, source, target)
    await ended.wait()


with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as server:
    assert server.stdin
    assert server.stdout
    asyncio.run(relay((0, server.stdin.fileno()), (server.stdout.fileno(), 1)))
    server.stdin.close()

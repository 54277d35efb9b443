"""Closes of servers that daemonise a child while they stop, on a machine that is busy with other processes."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from chaos.report import Report, living
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.process.child import Child
from mcplumb.transports.process.command import read_command

__all__ = ["run_closes"]

KINDS = ("stays", "execs", "moves", "early")
#: Servers that are closed at once.
AT_ONCE = 8
#: Closes between two looks for processes that were left behind.
ROUND = 40
#: What keeps the machine busy: processes that start and exit all the time, so that no two looks at /proc are the same.
BUSY = "while :; do /bin/true; done"
STOP = StopLadder(close_wait=30.0, term_wait=30.0, kill_wait=30.0)
SERVERS = Path(__file__).with_name("servers.py")


async def run_closes(count: int, seed: int, report: Report) -> None:
    """Start and close so many servers; count what they leave behind."""
    chance = random.Random(seed)
    busy = [await asyncio.create_subprocess_exec("/bin/sh", "-c", BUSY) for _ in range(2)]
    try:
        for begin in range(0, count, ROUND):
            gate = asyncio.Semaphore(AT_ONCE)
            kinds = [chance.choice(KINDS) for _ in range(min(ROUND, count - begin))]
            await asyncio.gather(*(_close_one(kind, chance.random(), gate, report) for kind in kinds))
            report.left += await living(report.folder)
    finally:
        for process in busy:
            process.kill()
            await process.wait()


async def _close_one(kind: str, delay: float, gate: asyncio.Semaphore, report: Report) -> None:
    async with gate:
        command = read_command([sys.executable, "-S", str(SERVERS), "daemon", report.options(kind=kind)])
        child = Child.start(command, stderr="capture", stop=STOP)
        await asyncio.sleep(delay * 0.1)
        await child.stop()
        report.outcomes[f"close: {kind}"] += 1

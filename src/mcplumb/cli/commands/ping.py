"""``mcplumb ping``: measure how fast a server answers."""

from __future__ import annotations

import asyncio
import time

import click

from mcplumb.cli.render.output import print_json, print_text
from mcplumb.cli.server_target import Target, seconds, server_command

__all__ = ["ping"]

_MS_PER_SECOND = 1000.0


@server_command()
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="NUMBER", default=1, help="Number of pings; 1 by default."
)
@click.option("--interval", type=seconds, default=1.0, metavar="SECONDS", help="Time between two pings; 1 by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the times, in seconds, as one JSON document at the end.")
async def ping(target: Target, *, count: int, interval: float, as_json: bool) -> None:
    """Find out whether a server answers, and how fast.

    A legacy server is sent a ping; a modern server, which has no ping, is sent server/discover.

    \b
    mcplumb ping -- python weather.py
    mcplumb ping -n 5 --interval 0.2 -s http://127.0.0.1:8000/mcp
    """
    times = []
    async with target.connect() as client:
        for number in range(1, count + 1):
            began = time.perf_counter()
            await client.ping()
            times.append(time.perf_counter() - began)
            if not as_json:
                print_text(f"{number}: answered in {times[-1] * _MS_PER_SECOND:.1f} ms")
            if number < count:
                await asyncio.sleep(interval)
    if as_json:
        print_json({"revision": str(client.revision), "seconds": times})
    elif count > 1:
        low, middle, high = min(times), sorted(times)[count // 2], max(times)
        print_text(
            f"{count} answers: {low * _MS_PER_SECOND:.1f} ms at best, {middle * _MS_PER_SECOND:.1f} ms median, "
            f"{high * _MS_PER_SECOND:.1f} ms at worst"
        )

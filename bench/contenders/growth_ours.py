"""A server of mcplumb that can be made large: ``growth_ours.py TOOLS [ADDRESS]``."""

import asyncio
import sys

from mcplumb import Server
from mcplumb.limits import Limits

#: Larger than the largest message that is measured.
MAX_LINE = 256 * 1024 * 1024

server = Server("growth", limits=Limits(max_line=MAX_LINE))
waiting: list[asyncio.Future[None]] = []


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def meet(text: str, party: int) -> str:
    """Waits until so many calls are in flight, and lets all of them go."""
    loop = asyncio.get_running_loop()
    waiting.append(turn := loop.create_future())
    if len(waiting) == party:
        loop.call_soon(release)
    await turn
    return text


def release() -> None:
    for turn in waiting:
        turn.set_result(None)
    waiting.clear()


def another(number: int) -> None:
    """Each tool has a function of its own, as an author's would."""

    @server.tool(name=f"tool_{number}")
    async def tool(text: str) -> str:
        return text


for number in range(int(sys.argv[1])):
    another(number)
server.run(*sys.argv[2:])

"""Clients of mcplumb, as many as are asked for: ``growth_ours_client.py CLIENTS SERVER``."""

import asyncio
import sys
from contextlib import AsyncExitStack

from bench.contenders.growth_orders import obey, target
from mcplumb import connect
from mcplumb.limits import Limits

#: Larger than the largest message that is measured.
MAX_LINE = 256 * 1024 * 1024


async def main() -> None:
    async with AsyncExitStack() as stack:
        limits = Limits(max_line=MAX_LINE)
        opened = [connect(target(), limits=limits) for _ in range(int(sys.argv[1]))]
        await obey([await stack.enter_async_context(client) for client in opened])


asyncio.run(main())

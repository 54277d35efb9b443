"""The floor of growth: clients on asyncio, by hand, without a check: ``growth_loop_client.py CLIENTS SERVER``."""

import asyncio
import sys
from contextlib import ExitStack

from bench.contenders.growth_orders import obey, target
from bench.contenders.loop_client import connected


async def main() -> None:
    with ExitStack() as stack:
        await obey([stack.enter_context(connected(target())) for _ in range(int(sys.argv[1]))])


asyncio.run(main())

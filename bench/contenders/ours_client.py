"""The client of mcplumb."""

import asyncio

from bench.contenders.async_orders import clock, obey
from bench.contenders.orders import asked
from mcplumb import connect


async def main() -> None:
    era, command = asked()
    started = clock()
    async with connect(command, revisions=["2025-11-25"] if era == "legacy" else None) as client:
        await obey(client, started)


asyncio.run(main())

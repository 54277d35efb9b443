"""The client of the official Python SDK."""

import asyncio

from mcp import Client, StdioServerParameters

from bench.contenders.async_orders import clock, obey
from bench.contenders.orders import asked


async def main() -> None:
    era, [program, *arguments] = asked()
    started = clock()
    server = StdioServerParameters(command=program, args=arguments)
    async with Client(server, mode="legacy" if era == "legacy" else "auto") as client:
        await obey(client, started)


asyncio.run(main())

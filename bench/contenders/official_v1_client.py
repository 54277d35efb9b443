"""The client of version 1 of the official Python SDK."""

import asyncio

from mcp import ClientSession, StdioServerParameters, stdio_client

from bench.contenders.async_orders import clock, obey
from bench.contenders.orders import asked


async def main() -> None:
    _, [program, *arguments] = asked()
    started = clock()
    server = StdioServerParameters(command=program, args=arguments)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        await obey(client, started)


asyncio.run(main())

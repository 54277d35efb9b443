"""The client of FastMCP."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from bench.contenders.async_orders import clock, obey
from bench.contenders.orders import asked


async def main() -> None:
    era, [program, *arguments] = asked()
    started = clock()
    server = StdioTransport(program, arguments, keep_alive=False)
    async with Client(server, mode="legacy" if era == "legacy" else "auto") as client:
        await obey(client, started)


asyncio.run(main())

"""Tries each feature with version 4 of FastMCP, and prints what it observed.

fastmcp_4.py MODE SECONDS COMMAND [ARGUMENT ...], where MODE is legacy or the modern revision; instead of a command, the
address of a server over HTTP.
"""

import asyncio
import sys
import warnings
from typing import Any

from fastmcp_client import FastMCPFeatures
from mcp import MCPDeprecationWarning, MCPError
from mcp.client.subscriptions import listen
from steps import NOTES, observe

LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class FastMCP4(FastMCPFeatures):
    error = MCPError
    is_modern = False

    async def introduction(self) -> Any:
        return [self.client.server_info.name, self.client.instructions]

    async def logs(self) -> Any:
        if not self.is_modern:
            return await super().logs()
        await self.call("announce", {"text": "Dinner is served."}, meta={LOG_LEVEL: "info"})
        return await self.log.get()

    async def subscriptions(self) -> Any:
        if not self.is_modern:
            return await super().subscriptions()
        async with listen(self.client.session, resource_subscriptions=[NOTES]) as changes:
            await self.call("rewrite", {"text": "Bring a hat."})
            return [(await anext(changes)).uri, await self.read(NOTES)]

    async def list_changes(self) -> Any:
        if not self.is_modern:
            return await super().list_changes()
        before = await self.has_drink()
        async with listen(self.client.session, tools_list_changed=True) as changes:
            await self.call("open_bar")
            await anext(changes)
        return [before, await self.has_drink()]


async def main() -> None:
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    mode, seconds, *place = sys.argv[1:]
    features = FastMCP4()
    features.is_modern = mode != "legacy"
    # A client that is told the modern revision asks the server nothing, and so does not know what it is called.
    async with features.connect(place, mode="auto" if features.is_modern else mode) as features.client:
        if features.is_modern and features.client.protocol_version != mode:
            raise RuntimeError(f"Error: agreed on {features.client.protocol_version} instead of {mode}")
        await observe(features, float(seconds))


asyncio.run(main())

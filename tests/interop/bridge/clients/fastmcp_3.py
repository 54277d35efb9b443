"""Tries each feature with version 3 of FastMCP, and prints what it observed.

fastmcp_3.py legacy SECONDS COMMAND [ARGUMENT ...]; instead of a command, the address of a server over HTTP.
"""

import asyncio
import sys
from typing import Any

from fastmcp_client import FastMCPFeatures
from mcp import McpError
from steps import observe


class FastMCP3(FastMCPFeatures):
    error = McpError
    next_cursor = "nextCursor"
    template_names = ("resourceTemplates", "uriTemplate")

    def code_of(self, error: McpError) -> int:
        return error.error.code

    async def introduction(self) -> Any:
        opened = self.client.initialize_result
        return [opened.serverInfo.name, opened.instructions]

    async def cancellation(self) -> Any:
        # It does not tell the server when it gives up; its users can.
        self._id_of_hike = self.client.session._request_id
        return await super().cancellation()

    async def before_cancelling(self) -> None:
        await self.client.cancel(self._id_of_hike)


async def main() -> None:
    _, seconds, *place = sys.argv[1:]
    features = FastMCP3()
    async with features.connect(place) as features.client:
        await observe(features, float(seconds))


asyncio.run(main())

"""Lists the tools of a server with the official Python client, and prints them as they are on the wire.

list_tools.py COMMAND [ARGUMENT ...] starts the server in the current folder, with the environment of this program.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

LONGEST_SECONDS = 220


async def tools(command: str, arguments: list[str]) -> list[dict[str, Any]]:
    server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ), cwd=Path.cwd())
    found: list[dict[str, Any]] = []
    async with Client(server) as client:
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(tools(sys.argv[1], sys.argv[2:]), LONGEST_SECONDS))))

"""Uses a server through the OpenAI Agents SDK, and reports what it saw.

openai_agents_sdk.py COMMAND [ARGUMENT ...], or the address of a server over Streamable HTTP instead of a command.
"""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, RunContextWrapper, set_tracing_disabled
from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp, MCPUtil

LONGEST_SECONDS = 50


def make_server(place: list[str]) -> MCPServer:
    if place[0].startswith("http"):
        return MCPServerStreamableHttp({"url": place[0]}, use_structured_content=True)
    return MCPServerStdio({"command": place[0], "args": place[1:]}, use_structured_content=True)


def said(result: Any) -> dict[str, Any]:
    return {"text": [block.text for block in result.content], "error": bool(result.is_error)}


async def visit(place: list[str]) -> dict[str, Any]:
    set_tracing_disabled(True)
    async with make_server(place) as server:
        agent = Agent("interop", mcp_servers=[server])
        tools = {
            tool.name: tool for tool in await MCPUtil.get_function_tools(server, False, RunContextWrapper(None), agent)
        }
        return {
            "tools": sorted(tools),
            "greeting": said(await server.call_tool("greet", {"name": "Åse"})),
            "forecast": (await server.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content,
            "refusal": said(await server.call_tool("refuse", {"reason": "The inn is full."})),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(visit(sys.argv[1:]), LONGEST_SECONDS))))

"""Uses a server through langchain-mcp-adapters, and reports what it saw.

langchain_adapters.py COMMAND [ARGUMENT ...], or the address of a server over Streamable HTTP instead of a command.
"""

import asyncio
import json
import sys
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.callbacks import CallbackContext, Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

LONGEST_SECONDS = 50


async def called(tool: BaseTool, **arguments: Any) -> ToolMessage:
    """Call a tool as an agent does, which gets a message back."""
    return await tool.ainvoke({"type": "tool_call", "id": "1", "name": tool.name, "args": arguments})


def said(message: ToolMessage) -> dict[str, Any]:
    return {"text": [block["text"] for block in message.content_blocks], "error": message.status == "error"}


async def visit(place: list[str]) -> dict[str, Any]:
    if place[0].startswith("http"):
        connection: dict[str, Any] = {"transport": "streamable_http", "url": place[0]}
    else:
        connection = {"transport": "stdio", "command": place[0], "args": place[1:]}
    steps: list[list[Any]] = []
    last_step = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None, _context: CallbackContext) -> None:
        steps.append([progress, total, message])
        if progress == total:
            last_step.set()

    client = MultiServerMCPClient({"interop": connection})
    async with client.session("interop") as session:
        found = await load_mcp_tools(session, callbacks=Callbacks(on_progress=on_progress))
        tools = {tool.name: tool for tool in found}
        report = {
            "tools": sorted(tools),
            "greeting": said(await called(tools["greet"], name="Åse")),
            "forecast": (await called(tools["forecast"], city="Oslo", days=2)).artifact["structured_content"],
            "refusal": said(await called(tools["refuse"], reason="The inn is full.")),
        }
        climb = asyncio.create_task(called(tools["climb"], steps=3))
        await last_step.wait()
        await called(tools["release"])
        report["climb"] = said(await climb)
        report["progress"] = steps
    # Without a session of its own, each call opens one.
    alone = {tool.name: tool for tool in await client.get_tools()}
    report["alone"] = said(await called(alone["greet"], name="again"))
    return report


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(visit(sys.argv[1:]), LONGEST_SECONDS))))

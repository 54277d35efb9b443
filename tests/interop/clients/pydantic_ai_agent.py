"""Uses a server through the toolset of Pydantic AI, also with an agent, and reports what it saw.

pydantic_ai_agent.py COMMAND [ARGUMENT ...], or the address of a server over Streamable HTTP instead of a command.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

LONGEST_SECONDS = 50


async def visit(place: list[str]) -> dict[str, Any]:
    steps: list[list[Any]] = []
    last_step = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append([progress, total, message])
        if progress == total:
            last_step.set()

    # Without this, the server of a command stays until the process ends.
    where = place[0] if place[0].startswith("http") else StdioTransport(place[0], place[1:], keep_alive=False)
    async with MCPToolset(where, progress_handler=on_progress) as toolset:
        report: dict[str, Any] = {
            "tools": sorted(tool.name for tool in await toolset.list_tools()),
            "greeting": {"text": [await toolset.direct_call_tool("greet", {"name": "Åse"})], "error": False},
            "forecast": await toolset.direct_call_tool("forecast", {"city": "Oslo", "days": 2}),
        }
        try:
            report["refusal"] = {
                "text": [await toolset.direct_call_tool("refuse", {"reason": "The inn is full."})],
                "error": False,
            }
        except ModelRetry as error:
            report["refusal"] = {"text": [error.message], "error": True}
        climb = asyncio.create_task(toolset.direct_call_tool("climb", {"steps": 3}))
        await last_step.wait()
        await toolset.direct_call_tool("release", {})
        report["climb"] = {"text": [await climb], "error": False}
        report["progress"] = steps
        report["agent"] = (await Agent(FunctionModel(think), toolsets=[toolset]).run("Greet Åse.")).output
    return report


def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call a tool, and then repeat what it returned."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(str(last.content))])
    assert "greet" in [tool.name for tool in info.function_tools]
    return ModelResponse([ToolCallPart("greet", {"name": "Åse"})])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(visit(sys.argv[1:]), LONGEST_SECONDS))))

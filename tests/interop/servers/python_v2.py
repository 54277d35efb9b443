"""The test server, written with version 2 of the official Python SDK."""

from typing import Annotated

import common
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Completion

server = MCPServer(common.NAME, version="1.0.0", instructions=common.INSTRUCTIONS)
common.add_features(server, Context, ToolError, lambda ctx: ctx.notify_resource_updated(common.NOTES))


def ask(room: str) -> Elicit[common.Stay]:
    return Elicit(common.question(room), common.Stay)


@server.tool()
async def book(room: str, stay: Annotated[ElicitationResult[common.Stay], Resolve(ask)]) -> str:
    return common.booked(room, stay.data) if isinstance(stay, AcceptedElicitation) else f"{room}: {stay.action}"


@server.completion()
async def complete(_reference, argument, _context) -> Completion:
    return Completion(values=common.complete(argument.value))


match common.way:
    case "stdio":
        server.run()
    case "sse":
        server.run("sse", port=common.port)
    case _:
        server.run("streamable-http", port=common.port, **common.http_options)

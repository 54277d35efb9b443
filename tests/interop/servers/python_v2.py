"""The inn, written with version 2 of the official Python SDK."""

from typing import Annotated

import inn
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Completion

server = MCPServer(inn.NAME, version="1.0.0", instructions=inn.INSTRUCTIONS)
inn.furnish(server, Context, ToolError, lambda ctx: ctx.notify_resource_updated(inn.NOTES))


def ask(room: str) -> Elicit[inn.Stay]:
    return Elicit(inn.question(room), inn.Stay)


@server.tool()
async def book(room: str, stay: Annotated[ElicitationResult[inn.Stay], Resolve(ask)]) -> str:
    return inn.booked(room, stay.data) if isinstance(stay, AcceptedElicitation) else f"{room}: {stay.action}"


@server.completion()
async def complete(_reference, argument, _context) -> Completion:
    return Completion(values=inn.complete(argument.value))


match inn.way:
    case "stdio":
        server.run()
    case "sse":
        server.run("sse", port=inn.port)
    case _:
        server.run("streamable-http", port=inn.port, **inn.http_options)

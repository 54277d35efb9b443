"""The inn, written with version 1 of the official Python SDK."""

import inn
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import Completion

server = FastMCP(inn.NAME, instructions=inn.INSTRUCTIONS, port=inn.port, **inn.http_options)
inn.furnish(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(inn.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(inn.question(room), inn.Stay)
    return inn.booked(room, stay.data) if stay.action == "accept" else f"{room}: {stay.action}"


@server.completion()
async def complete(_reference, argument, _context) -> Completion:
    return Completion(values=inn.complete(argument.value))


server.run("streamable-http" if inn.way.startswith("http") else inn.way)

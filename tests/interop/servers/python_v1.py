"""The test server, written with version 1 of the official Python SDK."""

import common
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import Completion

server = FastMCP(common.NAME, instructions=common.INSTRUCTIONS, port=common.port, **common.http_options)
common.add_features(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(common.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(common.question(room), common.Stay)
    return common.booked(room, stay.data) if stay.action == "accept" else f"{room}: {stay.action}"


@server.completion()
async def complete(_reference, argument, _context) -> Completion:
    return Completion(values=common.complete(argument.value))


server.run("streamable-http" if common.way.startswith("http") else common.way)

"""The test server, written with version 3 of FastMCP. It has no completions."""

import common
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP(common.NAME, version="1.0.0", instructions=common.INSTRUCTIONS)
common.add_features(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(common.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(common.question(room), common.Stay)
    return common.booked(room, stay.data) if stay.action == "accept" else f"{room}: {stay.action}"


match common.way:
    case "stdio":
        server.run(show_banner=False)
    case "sse":
        server.run("sse", show_banner=False, port=common.port)
    case _:
        server.run("http", show_banner=False, port=common.port, **common.http_options)

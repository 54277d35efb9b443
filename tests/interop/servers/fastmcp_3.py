"""The inn, written with version 3 of FastMCP. It has no completions."""

import inn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP(inn.NAME, version="1.0.0", instructions=inn.INSTRUCTIONS)
inn.furnish(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(inn.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(inn.question(room), inn.Stay)
    return inn.booked(room, stay.data) if stay.action == "accept" else f"{room}: {stay.action}"


match inn.way:
    case "stdio":
        server.run(show_banner=False)
    case "sse":
        server.run("sse", show_banner=False, port=inn.port)
    case _:
        server.run("http", show_banner=False, port=inn.port, **inn.http_options)

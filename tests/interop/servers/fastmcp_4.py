"""The inn, written with version 4 of FastMCP. It has no completions, and a modern question is a result of its tool."""

import inn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

server = FastMCP(inn.NAME, version="1.0.0", instructions=inn.INSTRUCTIONS)
inn.furnish(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(inn.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str | InputRequiredResult:
    if ctx.request_context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        stay = await ctx.elicit(inn.question(room), inn.Stay)
        data = stay.data if stay.action == "accept" else None
    elif ctx.input_responses is None:
        form = ElicitRequestFormParams(message=inn.question(room), requested_schema=inn.Stay.model_json_schema())
        return InputRequiredResult(input_requests={"stay": ElicitRequest(params=form)})
    else:
        stay = ctx.input_responses["stay"]
        data = inn.Stay.model_validate(stay.content) if stay.action == "accept" else None
    return inn.booked(room, data) if data else f"{room}: {stay.action}"


match inn.way:
    case "stdio":
        server.run(show_banner=False)
    case "sse":
        server.run("sse", show_banner=False, port=inn.port)
    case _:
        server.run("http", show_banner=False, port=inn.port, **inn.http_options)

"""The test server, written with version 4 of FastMCP. It has no completions; a modern question is a tool result."""

import common
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

server = FastMCP(common.NAME, version="1.0.0", instructions=common.INSTRUCTIONS)
common.add_features(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(common.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str | InputRequiredResult:
    if ctx.request_context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        stay = await ctx.elicit(common.question(room), common.Stay)
        data = stay.data if stay.action == "accept" else None
    elif ctx.input_responses is None:
        form = ElicitRequestFormParams(message=common.question(room), requested_schema=common.Stay.model_json_schema())
        return InputRequiredResult(input_requests={"stay": ElicitRequest(params=form)})
    else:
        stay = ctx.input_responses["stay"]
        data = common.Stay.model_validate(stay.content) if stay.action == "accept" else None
    return common.booked(room, data) if data else f"{room}: {stay.action}"


match common.way:
    case "stdio":
        server.run(show_banner=False)
    case "sse":
        server.run("sse", show_banner=False, port=common.port)
    case _:
        server.run("http", show_banner=False, port=common.port, **common.http_options)

"""The test server, written with version 3 of FastMCP. It has no completions."""

import common
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from mcp import types

pages = {"list_page_size": 1} if common.is_full else {}
server = FastMCP(common.NAME, version="1.0.0", instructions=common.INSTRUCTIONS, **pages)
common.add_features(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(common.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(common.question(room), common.Stay)
    return common.booked(room, stay.data) if stay.action == "accept" else f"{room}: {stay.action}"


def add_more() -> None:
    """Add what the matrix needs, too."""

    @server.tool()
    async def pay(ctx: Context) -> str:
        answer = await ctx.session.elicit_url(common.PAY, common.PAY_URL, "payment-1", ctx.request_id)
        return f"payment: {answer.action}"

    @server.tool()
    async def summarize(text: str, ctx: Context) -> str:
        said = types.TextContent(type="text", text=common.SUMMARIZE + text)
        message = types.SamplingMessage(role="user", content=said)
        answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def look_around(ctx: Context) -> str:
        return " ".join(str(root.uri) for root in await ctx.list_roots())

    @server.tool()
    async def open_bar(ctx: Context) -> str:
        server.tool(common.drink)
        await ctx.send_notification(types.ToolListChangedNotification())
        return "open"

    @server.tool()
    async def sign(ctx: Context) -> ToolResult:
        trace = getattr(ctx.request_context.meta, common.TRACE, None)
        return ToolResult(content=[], meta={common.TRACE: trace})

    @server.prompt()
    def pack() -> str:
        return "Pack a bag."


if common.is_full:
    add_more()
match common.way:
    case "stdio":
        server.run(show_banner=False)
    case "sse":
        server.run("sse", show_banner=False, port=common.port)
    case _:
        server.run("http", show_banner=False, port=common.port, **common.http_options)

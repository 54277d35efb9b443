"""The test server, written with version 1 of the official Python SDK."""

import common
from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.lowlevel import NotificationOptions
from mcp.server.models import InitializationOptions

server = FastMCP(common.NAME, instructions=common.INSTRUCTIONS, port=common.port, **common.http_options)
common.add_features(server, Context, ToolError, lambda ctx: ctx.session.send_resource_updated(common.NOTES))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    stay = await ctx.elicit(common.question(room), common.Stay)
    return common.booked(room, stay.data) if stay.action == "accept" else f"{room}: {stay.action}"


@server.completion()
async def complete(_reference, argument, _context) -> types.Completion:
    return types.Completion(values=common.complete(argument.value))


def add_more() -> None:
    """Add what the table of the bridge needs, too. This SDK cannot add methods."""
    lowlevel = server._mcp_server
    make_options = lowlevel.create_initialization_options

    def options_with_changes() -> InitializationOptions:
        options = make_options(NotificationOptions(tools_changed=True))
        options.capabilities.resources.subscribe = True  # which this SDK never declares by itself
        return options

    lowlevel.create_initialization_options = options_with_changes

    @lowlevel.set_logging_level()
    async def set_level(_level) -> None: ...

    @lowlevel.subscribe_resource()
    async def subscribe(_uri) -> None: ...

    @lowlevel.unsubscribe_resource()
    async def unsubscribe(_uri) -> None: ...

    @server.tool()
    async def pay(ctx: Context) -> str:
        answer = await ctx.elicit_url(common.PAY, common.PAY_URL, "payment-1")
        return f"payment: {answer.action}"

    @server.tool()
    async def summarize(text: str, ctx: Context) -> str:
        said = types.TextContent(type="text", text=common.SUMMARIZE + text)
        message = types.SamplingMessage(role="user", content=said)
        answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def look_around(ctx: Context) -> str:
        return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)

    @server.tool()
    async def open_bar(ctx: Context) -> str:
        server.add_tool(common.drink)
        await ctx.session.send_tool_list_changed()
        return "open"

    @server.tool()
    async def sign(ctx: Context) -> types.CallToolResult:
        trace = getattr(ctx.request_context.meta, common.TRACE, None)
        return types.CallToolResult(content=[], _meta={common.TRACE: trace})

    @lowlevel.list_prompts()
    async def list_prompts(request: types.ListPromptsRequest) -> types.ListPromptsResult:
        if request.params is not None and request.params.cursor == "page 2":
            return types.ListPromptsResult(prompts=[types.Prompt(name="pack")])
        return types.ListPromptsResult(prompts=await server.list_prompts(), nextCursor="page 2")


if common.is_full:
    add_more()
server.run("streamable-http" if common.way.startswith("http") else common.way)

"""The test server, written with version 4 of FastMCP. A modern question is a tool result."""

import common
import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.tools import ToolResult
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

pages = {"list_page_size": 1} if common.is_full else {}
server = FastMCP(common.NAME, version="1.0.0", instructions=common.INSTRUCTIONS, **pages)
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


@server.completion
def complete(_reference, argument, _context) -> list[str]:
    return common.complete(argument.value)


class EchoParams(types.RequestParams):
    text: str


class Echo(ServerExtension):
    """An extension with a method of its own."""

    identifier = "example.inn/echo"

    def methods(self):
        return [MethodBinding("interop/echo", EchoParams, self.echo)]

    async def echo(self, _context, params: EchoParams) -> dict[str, str]:
        return {"echo": params.text}


def add_more() -> None:
    """Add what the matrix needs, too, for modern clients."""
    server.add_extension(Echo())

    @server.tool()
    async def pay(ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            page = types.ElicitRequestURLParams(message=common.PAY, url=common.PAY_URL)
            return InputRequiredResult(input_requests={"page": ElicitRequest(params=page)})
        return f"payment: {ctx.input_responses['page'].action}"

    @server.tool()
    async def summarize(text: str, ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            said = types.TextContent(type="text", text=common.SUMMARIZE + text)
            message = types.SamplingMessage(role="user", content=said)
            question = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
            return InputRequiredResult(input_requests={"summary": types.CreateMessageRequest(params=question)})
        answer = ctx.input_responses["summary"]
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def look_around(ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            return InputRequiredResult(input_requests={"roots": types.ListRootsRequest()})
        return " ".join(str(root.uri) for root in ctx.input_responses["roots"].roots)

    @server.tool()
    async def open_bar() -> str:
        server.tool(common.drink)
        return "open"

    @server.tool()
    async def sign(ctx: Context) -> ToolResult:
        return ToolResult(content=[], meta={common.TRACE: ctx.request_context.meta.get(common.TRACE)})

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

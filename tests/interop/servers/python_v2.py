"""The test server, written with version 2 of the official Python SDK."""

from typing import Annotated

import common
from mcp import MCPError, types
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

server = MCPServer(common.NAME, version="1.0.0", instructions=common.INSTRUCTIONS)
common.add_features(server, Context, ToolError, lambda ctx: ctx.notify_resource_updated(common.NOTES))


def ask(room: str) -> Elicit[common.Stay]:
    return Elicit(common.question(room), common.Stay)


@server.tool()
async def book(room: str, stay: Annotated[ElicitationResult[common.Stay], Resolve(ask)]) -> str:
    return common.booked(room, stay.data) if isinstance(stay, AcceptedElicitation) else f"{room}: {stay.action}"


@server.completion()
async def complete(_reference, argument, _context) -> types.Completion:
    return types.Completion(values=common.complete(argument.value))


def ask_for_summary(text: str) -> Sample:
    said = types.TextContent(type="text", text=common.SUMMARIZE + text)
    return Sample([types.SamplingMessage(role="user", content=said)], max_tokens=100)


def ask_for_roots() -> ListRoots:
    return ListRoots()


class EchoParams(types.RequestParams):
    text: str


def add_more() -> None:
    """Add what the table of the bridge needs, too. The full server is modern only."""
    lowlevel = server._lowlevel_server

    async def refuse_legacy(context, call_next):
        if context.method == "initialize":
            data = {"supported": MODERN_PROTOCOL_VERSIONS, "requested": context.params.get("protocolVersion")}
            raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "This server is modern only.", data)
        return await call_next(context)

    server.middleware.append(refuse_legacy)

    @server.tool()
    async def pay(ctx: Context) -> str | types.InputRequiredResult:
        if ctx.input_responses is None:
            page = types.ElicitRequestURLParams(message=common.PAY, url=common.PAY_URL)
            return types.InputRequiredResult(input_requests={"page": types.ElicitRequest(params=page)})
        return f"payment: {ctx.input_responses['page'].action}"

    @server.tool()
    async def summarize(text: str, answer: Annotated[types.CreateMessageResult, Resolve(ask_for_summary)]) -> str:
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def look_around(found: Annotated[types.ListRootsResult, Resolve(ask_for_roots)]) -> str:
        return " ".join(str(root.uri) for root in found.roots)

    @server.tool()
    async def open_bar(ctx: Context) -> str:
        server.add_tool(common.drink)
        await ctx.notify_tools_changed()
        return "open"

    @server.tool()
    async def sign(ctx: Context) -> types.CallToolResult:
        return types.CallToolResult(content=[], _meta={common.TRACE: ctx.request_context.meta.get(common.TRACE)})

    async def list_prompts(_context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        if params.cursor == "page 2":
            return types.ListPromptsResult(prompts=[types.Prompt(name="pack")])
        return types.ListPromptsResult(prompts=await server.list_prompts(), next_cursor="page 2")

    async def echo(_context, params: EchoParams) -> dict[str, str]:
        return {"echo": params.text}

    lowlevel.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    lowlevel.add_request_handler("interop/echo", EchoParams, echo)


if common.is_full:
    add_more()
match common.way:
    case "stdio":
        server.run()
    case "sse":
        server.run("sse", port=common.port)
    case _:
        server.run("streamable-http", port=common.port, **common.http_options)

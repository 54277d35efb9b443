"""The two tools with the official Python SDK: without sessions, with answers in JSON, and without log lines."""

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("bench", log_level="WARNING")


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.resource("bench://{name}")
async def read(name: str, context: Context) -> str:
    await context.notify_resource_updated(f"bench://{name}")
    return name


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]), stateless_http=True, json_response=True)

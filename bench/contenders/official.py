"""The two tools with the official Python SDK, without a log line for each call."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench", log_level="WARNING")


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


server.run()

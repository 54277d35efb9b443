"""The two tools with version 1 of the official Python SDK, without a log line for each call."""

from mcp.server.fastmcp import FastMCP

server = FastMCP("bench", log_level="WARNING")


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


server.run()

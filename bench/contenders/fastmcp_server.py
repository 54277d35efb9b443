"""The two tools with FastMCP, without a log line for each call."""

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


server.run(show_banner=False, log_level="WARNING")

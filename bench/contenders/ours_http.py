"""The two tools with mcplumb over HTTP, at the port that the command line names.

Beside them are resources, each of which changes whenever it is read.
"""

import sys

from mcplumb import Server

server = Server("bench")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.resource("bench://{name}")
async def read(name: str) -> str:
    server.resource_changed(f"bench://{name}")
    return name


server.run(f"http://127.0.0.1:{sys.argv[1]}/mcp")

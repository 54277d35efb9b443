"""The two tools with mcplumb."""

from mcplumb import Server

server = Server("bench")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


server.run()

import sys

from mcplumb import Server

server = Server("ten lines")


@server.tool
async def echo(text: str) -> str:
    return " ".join(sys.modules) if text == "modules" else text


server.run()

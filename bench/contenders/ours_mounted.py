"""The two tools with mcplumb as an ASGI application, under the server and at the port that the command line names."""

import asyncio
import sys

from mcplumb import Server

server = Server("bench")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


def under_uvicorn(port: int) -> None:
    import uvicorn  # noqa: PLC0415 - each has its own environment

    uvicorn.run(server.asgi(), port=port, http="httptools", log_level="warning")


def under_granian(port: int) -> None:
    from granian.constants import Interfaces  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415
    from granian.server.embed import Server as Granian  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    asyncio.run(Granian(server.asgi(), port=port, interface=Interfaces.ASGI, log_enabled=False).serve())


{"uvicorn": under_uvicorn, "granian": under_granian}[sys.argv[1]](int(sys.argv[2]))

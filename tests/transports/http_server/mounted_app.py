"""Applications with a server mounted in them, for uvicorn to run. The lifespan writes to the file in ``DIARY``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import fastapi
import msgspec
from starlette.applications import Starlette
from starlette.routing import Mount

from mcplumb import Context, Server


class Name(msgspec.Struct):
    name: str


def _note(what: str) -> None:
    with Path(os.environ["DIARY"]).open("a") as diary:
        diary.write(f"{what}\n")


@asynccontextmanager
async def _database(server: Server) -> AsyncIterator[str]:
    _note(f"open {server.name}")
    yield "database"
    # No try and finally: a lifespan is closed, not cancelled.
    _note("closed")


server = Server("mounted", lifespan=_database)


@server.tool
async def look(ctx: Context) -> str:
    value: str = ctx.lifespan
    return value


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Name)
    return answer.data.name if answer.data is not None else "nobody"


app = server.asgi()
with_lifespan = Starlette(routes=[Mount("/", app=app)], lifespan=app.lifespan)
without_lifespan = Starlette(routes=[Mount("/", app=app)])
api = fastapi.FastAPI(lifespan=app.lifespan)
api.mount("/", app)
api_without_lifespan = fastapi.FastAPI()
api_without_lifespan.mount("/", app)

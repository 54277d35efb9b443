"""The application within those of others, run by uvicorn itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fastapi
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount, Route

from mcplumb import HttpOptions, Server
from mcplumb.transports.address import HttpAddress
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.transports.http_server.callers import Caller
from tests.transports.http_server.visits import Site, Visitor
from tests.transports.http_server.workshop import Workshop


@asynccontextmanager
async def _running(app: Any, **settings: Any) -> AsyncIterator[Site]:
    """Run any application, as its user would."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, http="httptools", ws="none", **settings))
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    running = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE):
        while not server.started:
            assert not running.done(), running.exception()
            await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    site = Site(HttpAddress("http", "127.0.0.1", port, "/mcp"), app)
    try:
        yield site
    finally:
        site.leave()
        server.should_exit = True
        await running


def _no_signals() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_a_stream_that_is_given_up_is_no_error_of_the_application(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        workshop = Workshop()
        async with _running(workshop.server.asgi()) as site:
            visitor = Visitor(site)
            await visitor.open()
            listening = await visitor.listen()
            streamed = await visitor.call("tell", gate="a", request_id=2)
            await workshop.at("a")
            closing = asyncio.create_task(site.app.close())
            assert await listening.messages() == []
            closing.cancel()
            assert [message["method"] for message in await streamed.messages()] == ["notifications/message"]

    asyncio.run(main())
    assert caplog.records == []


class _Diary:
    """A server that writes down when it begins and ends."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        shop = Workshop(lifespan=self._lifespan)
        self.server: Server = shop.server

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        self.steps.append("begin")
        try:
            yield
        finally:
            self.steps.append("end")


async def _try_out(site: Site, path: str) -> None:
    """Both eras, and a stream."""
    caller = Caller(site, path)
    assert text_of(await (await caller.call("double", n=2)).json()) == "4"
    *_, last = await (await caller.call("chat", meta={"progressToken": 1})).messages()
    assert text_of(last) == "hello, done"
    visitor = Visitor(site)
    if path == "/mcp":
        await visitor.open()
        assert text_of(await (await visitor.call("double", n=3)).json()) == "6"


@pytest.mark.parametrize("lifespan", ["on", "off"])
async def test_it_runs_by_itself(lifespan: str) -> None:
    diary = _Diary()
    app = diary.server.asgi()
    async with _running(app, lifespan=lifespan) as site:
        await _try_out(site, "/mcp")
        assert diary.steps == ["begin"]
    await app.close()
    assert diary.steps == ["begin", "end"]


async def test_it_is_mounted_in_starlette() -> None:
    diary = _Diary()
    app = diary.server.asgi()
    async with _running(Starlette(routes=[Mount("/tools", app=app)])) as site:
        await _try_out(site, "/tools/mcp")
        answer = await site.ask("GET", "/tools/other", {})
        assert b"/tools/mcp" in await answer.body()
    await app.close()
    assert diary.steps == ["begin", "end"]


def test_it_closes_with_the_event_loop_if_nothing_else_closes_it() -> None:
    diary = _Diary()

    async def main() -> None:
        async with _running(Starlette(routes=[Mount("/tools", app=diary.server.asgi())])) as site:
            await _try_out(site, "/tools/mcp")
        assert diary.steps == ["begin"]

    asyncio.run(main())
    assert diary.steps == ["begin", "end"]


@pytest.mark.parametrize("framework", [Starlette, fastapi.FastAPI])
async def test_its_lifespan_is_that_of_the_application_that_mounts_it(framework: Any) -> None:
    diary = _Diary()
    app = diary.server.asgi()
    parent = framework(lifespan=app.lifespan)
    parent.mount("/tools", app)
    async with _running(parent) as site:
        assert diary.steps == ["begin"]
        await _try_out(site, "/tools/mcp")
    assert diary.steps == ["begin", "end"]


async def test_it_is_a_route_of_starlette_behind_a_middleware() -> None:
    async def pass_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    diary = _Diary()
    app = diary.server.asgi()
    middleware = [Middleware(BaseHTTPMiddleware, dispatch=pass_on)]
    async with _running(Starlette(routes=[Route("/mcp", endpoint=app)], middleware=middleware)) as site:
        await _try_out(site, "/mcp")
    await app.close()


@pytest.mark.req("HTP-3")
async def test_it_is_mounted_in_fastapi_whose_lifespan_opens_it() -> None:
    shop = Workshop()
    app = shop.server.asgi(HttpOptions(path="/"))

    @asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        await app.open()
        yield
        await app.close()

    api = fastapi.FastAPI(lifespan=lifespan)

    @api.get("/hello")
    async def hello() -> str:
        return "hello"

    api.mount("/mcp", app)
    async with _running(api) as site:
        assert (await site.ask("GET", "/hello", {})).status == 200
        await _try_out(site, "/mcp/")
        leaving = await Caller(site, "/mcp/").begin_call("wait", gate="a")
        await shop.at("a")
        leaving.leave()
        async with asyncio.timeout(PATIENCE):
            await shop.cancelled["a"].wait()


async def test_a_root_path_is_no_part_of_the_path() -> None:
    app = Workshop().server.asgi()
    async with _running(app, root_path="/api") as site:
        await _try_out(site, "/mcp")
    await app.close()

"""The ways to one and the same server. Whoever uses one gets a function that connects, and cannot tell them apart."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias

import pytest

from mcplumb import Client, connect
from mcplumb.client import Connecting
from tests.everywhere.server import make_server
from tests.kit.loop import run
from tests.kit.products import sampled
from tests.repo.source import ROOT
from tests.transports.socket_ends import tls_of_client, tls_of_server

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
OLDEST = "2024-11-05"


class Reach(Protocol):
    """Connects to the server, as ``connect`` does with the same options."""

    def __call__(self, **options: Any) -> Connecting: ...


Way: TypeAlias = Callable[[], AbstractAsyncContextManager[Reach]]


def in_memory(revision: str) -> Way:
    @asynccontextmanager
    async def way() -> AsyncIterator[Reach]:
        server = make_server()
        yield lambda **options: connect(server, revisions=[revision], **options)

    return way


def over_stdio(revision: str) -> Way:
    @asynccontextmanager
    async def way() -> AsyncIterator[Reach]:
        command = [sys.executable, "-m", "tests.everywhere.server"]
        yield lambda **options: connect(command, cwd=ROOT, revisions=[revision], **options)

    return way


def at_address(address: str, revision: str, *, is_sse: bool = False, has_tls: bool = False) -> Way:
    """Served in this event loop; and again, at the same address, whenever it has been stopped."""

    @asynccontextmanager
    async def way() -> AsyncIterator[Reach]:
        with tempfile.TemporaryDirectory(prefix="mcp") as folder:
            server = make_server()
            ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

            async def serve() -> None:
                tls = tls_of_server() if has_tls else None
                await server.serve(address.format(folder=folder), tls=tls, on_ready=ready.set_result)
                while True:
                    await server.serve(ready.result(), tls=tls)

            serving = asyncio.create_task(serve())
            try:
                await asyncio.wait((serving, ready), return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    await serving
                url = ready.result().replace("/mcp", "/sse") if is_sse else ready.result()
                fixed: dict[str, Any] = {"revisions": [revision]}
                if is_sse:
                    fixed["http_sse"] = True
                if has_tls:
                    fixed["tls"] = tls_of_client()
                yield lambda **options: connect(url, **fixed, **options)
            finally:
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving

    return way


def with_eager_tasks(way: Way) -> Way:
    """The same on a loop that runs the first step of a task at once, as programs may choose."""

    @asynccontextmanager
    async def eager() -> AsyncIterator[Reach]:
        if sys.version_info >= (3, 12):
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with way() as reach:
            yield reach

    return eager


WAYS: dict[str, Way] = {
    "memory": in_memory(MODERN),
    "memory, legacy": in_memory(LEGACY),
    "stdio": over_stdio(MODERN),
    "stdio, legacy": over_stdio(OLDEST),
    "unix": at_address("unix:{folder}/s", MODERN),
    "tcp": at_address("tcp://127.0.0.1:0", MODERN),
    "tcp, legacy": at_address("tcp://127.0.0.1:0", LEGACY),
    "tls": at_address("tcp://127.0.0.1:0", MODERN, has_tls=True),
    "http": at_address("http://127.0.0.1:0/mcp", MODERN),
    "https": at_address("https://127.0.0.1:0/mcp", MODERN, has_tls=True),
    "http, legacy": at_address("http://127.0.0.1:0/mcp", LEGACY),
    "http+sse": at_address("http://127.0.0.1:0/mcp", OLDEST, is_sse=True),
}

#: The ways of every run: both eras, in memory, with a process, over a socket and over HTTP.
USUAL_WAYS = ["memory", "memory, legacy", "stdio", "tcp", "http", "http, legacy"]

if sys.version_info >= (3, 12):
    WAYS["memory, eager tasks"] = with_eager_tasks(in_memory(MODERN))
    WAYS["http, eager tasks, legacy"] = with_eager_tasks(at_address("http://127.0.0.1:0/mcp", LEGACY))
    USUAL_WAYS += ["memory, eager tasks", "http, eager tasks, legacy"]

everywhere = pytest.mark.parametrize("way", sampled(WAYS, USUAL_WAYS))


def meet(way: str, body: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    """Run something with a client that has come this way; at its end nothing odd must have been seen on it."""

    async def main() -> None:
        async with WAYS[way]() as reach, reach(**options) as client:
            await body(client)
            stats = client.stats
            assert (stats.bad_lines, stats.violations, stats.unknown_answers) == (0, 0, 0)

    run(main())

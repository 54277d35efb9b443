"""A page that is served, and a visitor that asks it for things."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
from yarl import URL

from mcplumb.view.api_routes import Route, Section
from mcplumb.view.event_hub import EventHub
from mcplumb.view.run_view import ServedView, serve_view


class Got(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Visitor:
    """Asks a served page, as a browser or as somebody else."""

    def __init__(self, served: ServedView, http: aiohttp.ClientSession) -> None:
        self.served = served
        self.http = http

    async def ask(self, path: str, method: str = "GET", *, at: str | None = None, **more: Any) -> Got:
        """Ask for a path below the secret, or below another address."""
        url = URL((self.served.url if at is None else at) + path, encoded=True)
        async with self.http.request(method, url, allow_redirects=False, **more) as response:
            return Got(response.status, response.headers, await response.read())

    @property
    def root(self) -> str:
        """The address without the secret."""
        return f"http://127.0.0.1:{self.served.port}/"


class TestSection:
    """A section with these routes."""

    __test__ = False

    def __init__(self, *routes: Route) -> None:
        self._routes = routes
        self.states: list[str] = []

    def routes(self) -> Sequence[Route]:
        return self._routes

    async def open(self) -> None:
        self.states.append("open")

    async def close(self) -> None:
        self.states.append("closed")


@asynccontextmanager
async def visiting(
    sections: Callable[[EventHub], Sequence[Section]] = lambda _: (),
) -> AsyncIterator[Visitor]:
    """Serve a page, and visit it."""
    async with serve_view(sections) as served, aiohttp.ClientSession() as http:
        yield Visitor(served, http)

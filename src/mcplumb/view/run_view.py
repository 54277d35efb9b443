"""Serve the page: put its sections together, listen on loopback, and open the browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from mcplumb.transports.address import HttpAddress
from mcplumb.transports.http_server.uvicorn_server import HttpListener
from mcplumb.view.access import Access
from mcplumb.view.api_routes import Section
from mcplumb.view.event_hub import EventHub
from mcplumb.view.view_app import OPEN_PATH, ViewApp

__all__ = ["ServedView", "serve_view"]

#: Seconds for requests to finish when the program ends: nothing that the page asks for is worth a wait.
_FINISH_WITHIN = 2.0


class ServedView:
    """A page that is being served."""

    def __init__(self, access: Access, port: int) -> None:
        self._access = access
        #: The port that it is served at.
        self.port = port
        #: The address of the page, with its secret.
        self.url = f"http://127.0.0.1:{port}/{access.secret}/"

    def one_time_url(self) -> str:
        """Return an address that leads to the page once, for the arguments of a browser."""
        return f"http://127.0.0.1:{self.port}{OPEN_PATH}{self._access.new_ticket()}"


@asynccontextmanager
async def serve_view(
    make_sections: Callable[[EventHub], Sequence[Section]], *, port: int = 0
) -> AsyncIterator[ServedView]:
    """Serve the page within the block, on this port of loopback; 0 takes a free port.

    Raises `ConnectError` if the port cannot be used.
    """
    access = Access()
    hub = EventHub()
    sections = make_sections(hub)
    app = ViewApp(access, hub, sections)
    listener = await HttpListener.open(app, HttpAddress("http", "127.0.0.1", port, "/"))
    try:
        yield ServedView(access, listener.address.port)
    finally:
        await asyncio.shield(_end(listener, sections))


async def _end(listener: HttpListener, sections: Sequence[Section]) -> None:
    await listener.close(within=_FINISH_WITHIN)
    # The listener does not wait for long, but nothing may be left behind that a section has started.
    for section in sections:
        await section.close()

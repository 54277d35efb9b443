"""The ASGI application of the page: its files, and the API of its sections."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.transports.http_server.asgi_request import (
    JSON,
    ClientDisconnected,
    HttpRequest,
    Receive,
    Refusal,
    Scope,
    Send,
)
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.view.access import HEADERS, Access
from mcplumb.view.api_routes import ApiCall, ApiError, Download, Gone, Routes, Section
from mcplumb.view.event_hub import EventHub

__all__ = ["OPEN_PATH", "ViewApp", "page_files"]

_logger = logging.getLogger("mcplumb.view")

_PAGE = Path(__file__).parent / "page"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
#: Where a browser that `mcplumb view` opens goes first, with a ticket.
OPEN_PATH = "/open/"
#: Connections of the browsers of one user: each page has one stream, and asks for several things at once.
_OPTIONS = HttpOptions(max_connections=256)


def page_files() -> dict[str, tuple[bytes, bytes]]:
    """Return the files of the page by their path: the content type and the content of each."""
    return {
        file.relative_to(_PAGE).as_posix(): (_TYPES[file.suffix], file.read_bytes())
        for file in sorted(_PAGE.rglob("*"))
        if file.suffix in _TYPES
    }


class ViewApp:
    """Serves the page to clients that know its secret."""

    def __init__(self, access: Access, hub: EventHub, sections: Sequence[Section]) -> None:
        #: For the listener.
        self.options = _OPTIONS
        self._access = access
        self._hub = hub
        self._sections = sections
        self._files = page_files()
        self._routes = Routes([*hub.routes(), *(route for section in sections for route in section.routes())])

    async def open(self) -> None:
        """Open the sections."""
        for section in self._sections:
            await section.open()

    async def close(self) -> None:
        """End all streams, and close the sections. May be called again."""
        self._hub.close()
        for section in reversed(self._sections):
            await section.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        request = HttpRequest(scope, receive, send)
        request.common_headers = HEADERS
        try:
            await self._answer(request)
        except Refusal as refusal:
            await request.refuse(refusal)
        except (ClientDisconnected, OSError):
            return  # no client waits for an answer
        finally:
            _logger.debug("%s -> %s", request.method, request.status)  # not the path, which has the secret

    async def _answer(self, request: HttpRequest) -> None:
        if request.method == "GET" and request.path.startswith(OPEN_PATH):
            self._access.check_source(request)
            self._access.use_ticket(request.path.removeprefix(OPEN_PATH))
            await request.respond(303, headers=[(b"location", f"/{self._access.secret}/".encode())])
            return
        path = self._access.admit(request)
        if path.startswith("api/"):
            self._access.check_api(request)
            await self._answer_api(request)
        elif request.method not in ("GET", "HEAD"):
            raise Refusal(405, "The files of the page can only be read.", headers=[(b"allow", b"GET, HEAD")])
        elif path == "" and not request.path.endswith("/"):
            # Relative addresses in the page need the slash.
            await request.respond(308, headers=[(b"location", request.path.encode() + b"/")])
        elif (file := self._files.get(path or "index.html")) is not None:
            content_type, content = file
            await request.respond(200, content if request.method == "GET" else b"", content_type=content_type)
        else:
            raise Refusal(404, "There is nothing at this address.")

    async def _answer_api(self, request: HttpRequest) -> None:
        # As it was sent: a part of the path may contain an encoded slash.
        raw: bytes = request.scope["raw_path"]
        try:
            handler, params = self._routes.find(request.method, raw.decode("latin-1").partition("/api/")[2])
            answer = await handler(ApiCall(request, params))
        except ApiError as error:
            await _respond(request, error.status, {"error": str(error)})
        except Gone as gone:
            await _respond(request, 200, {"gone": str(gone)})
        except McplumbError as error:
            # The server that is looked at, or what the user asked of it, not this program. No HTTP error, as `Gone`.
            await _respond(request, 200, {"failed": str(error), "kind": type(error).__name__})
        except (Refusal, ClientDisconnected, OSError):
            raise
        except Exception:
            _logger.exception("A request of the page failed.")
            sentence = "This is a bug in mcplumb: the terminal that runs mcplumb view shows more."
            await _respond(request, 500, {"error": sentence})
        else:
            if request.has_responded:
                return
            if isinstance(answer, Download):
                await request.respond(200, answer.data, content_type=answer.content_type.encode())
            else:
                await _respond(request, 200, answer)


async def _respond(request: HttpRequest, status: int, answer: Any) -> None:
    if request.has_responded:
        return
    await request.respond(status, msgspec.json.encode(answer), content_type=JSON)

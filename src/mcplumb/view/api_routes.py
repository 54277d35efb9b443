"""The table of the JSON API: the handlers by path, and the call that a handler gets.

The API is for the page alone, which is always of the same version: it has none of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.transports.http_server.asgi_request import HttpRequest
from mcplumb.types.payload_decoder import UNREADABLE

__all__ = ["ApiCall", "ApiError", "Download", "Gone", "Handler", "Route", "Routes", "Section"]

T = TypeVar("T")

_JSON = "application/json"
#: Bytes in the body of a request: the arguments of a tool may carry a file.
_MAX_BODY = 64 * 1024 * 1024
#: Seconds for it to arrive.
_BODY_WITHIN = 30.0


class ApiError(McplumbError):
    """Raised by a handler to answer with this HTTP status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gone(McplumbError):
    """Raised by a handler if the requested object no longer exists: another page may just have closed it.

    That is no HTTP error, which browsers would write on the console. The answer is this sentence, as ``gone``.
    """


class ApiCall:
    """One request of the page to the API."""

    __slots__ = ("params", "query", "request")

    def __init__(self, request: HttpRequest, params: dict[str, str]) -> None:
        self.request = request
        #: The parts of the path that the route names: ``{name}``.
        self.params = params
        self.query = dict(parse_qsl(request.query, keep_blank_values=True))

    async def body(self, kind: type[T]) -> T:
        """Return the JSON body as this type; raise `ApiError` if it does not match."""
        data = await self.request.body(max_bytes=_MAX_BODY, within=_BODY_WITHIN)
        try:
            return msgspec.json.decode(data, type=kind)
        except UNREADABLE as error:
            raise ApiError(400, f"The body of the request is not as expected: {error}.") from None

    async def json_body(self, kind: type[T]) -> T:
        """Return the body of a request that changes something: browsers let no page of another origin send JSON."""
        content_type = (self.request.header("content-type") or "").partition(";")[0].strip().lower()
        if content_type != _JSON:
            raise ApiError(415, f"The body must be {_JSON}.")
        return await self.body(kind)

    def number(self, name: str, default: int, *, most: int | None = None) -> int:
        """Return a whole number of the query, at least 0; raise `ApiError` if it is not one."""
        text = self.query.get(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdecimal() or len(text) > 15:
            raise ApiError(400, f"{name} must be a whole number.")
        return int(text) if most is None else min(int(text), most)


class Download(msgspec.Struct, frozen=True):
    """A response that is not JSON: bytes that the page reads, or offers as a file."""

    data: bytes
    content_type: str = "application/octet-stream"


#: Answers a call: the result is encoded as JSON, unless it is a `Download`; None if the handler has responded itself.
Handler: TypeAlias = Callable[[ApiCall], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True):
    """The handler of a method and a path below ``api/``, such as ``sessions/{session}/rows``."""

    method: str
    path: str
    handler: Handler


class Routes:
    """Finds the handler of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [(tuple(route.path.split("/")), route) for route in routes]

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]]:
        """Return the handler for a path below ``api/``, and the named parts of the path; raise `ApiError`."""
        words = [unquote(word) for word in path.split("/")]
        allowed = set()
        for pattern, route in self._routes:
            if len(pattern) == len(words) and (params := _match(pattern, words)) is not None:
                if route.method == method:
                    return route.handler, params
                allowed.add(route.method)
        if allowed:
            raise ApiError(405, f"This can be asked for with {' or '.join(sorted(allowed))}.")
        raise ApiError(404, "There is nothing at this address.")


def _match(pattern: tuple[str, ...], words: list[str]) -> dict[str, str] | None:
    params = {}
    for part, word in zip(pattern, words, strict=True):
        if part.startswith("{"):
            params[part[1:-1]] = word
        elif part != word:
            return None
    return params


class Section(Protocol):
    """One section of the page, as the application knows it."""

    def routes(self) -> Iterable[Route]:
        """Return the routes of the section."""

    async def open(self) -> None:
        """Start the section, in the event loop that serves the page."""

    async def close(self) -> None:
        """Stop everything that the section has started. May be called again."""

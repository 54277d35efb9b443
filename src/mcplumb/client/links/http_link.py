"""The way to a server over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcplumb.client.links.link import Phase
from mcplumb.client.tool_registry import Toolbox
from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.http_headers import ParamHeaders, is_token
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Request

if TYPE_CHECKING:
    import ssl

    from mcplumb.transports.http_client.http_connection import HttpConnection
    from mcplumb.transports.http_client.session_pool import ClientPool

__all__ = ["HttpLink"]

#: Headers that say what a message is, or how it is carried. They are not for users to set.
_OURS = frozenset((
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
))  # fmt: skip
_OUR_BEGINNING = "mcp-"
_LONGEST_QUOTE = 80
#: Where the library comes from that is needed here.
_LIBRARY = ("aiohttp", "multidict", "yarl")


class HttpLink:
    """The way to a server that has an ``http://`` or ``https://`` address.

    ``headers`` and the bearer ``token`` go with every request to its origin, and to no other. ``proxy`` is the address
    of an HTTP proxy; the environment is not asked for one. ``http_sse``: True for HTTP+SSE from the start, False for
    never, None to find out. ``trace`` is shown every message.
    """

    can_restart = True
    mirrors = True
    process = None

    def __init__(
        self,
        address: HttpAddress,
        *,
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
        proxy: str | None = None,
        http_sse: bool | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.key = str(address)
        #: Over HTTP every request has a response. Over HTTP+SSE that only says that it was read.
        self.may_be_silent = http_sse is True
        self._limits = limits
        self._http_sse = http_sse
        self._trace = trace
        self._toolbox: Toolbox | None = None
        self._connection: HttpConnection | None = None
        self._pool = _make_pool(self.key, _checked_headers(headers or {}, token), proxy, tls)

    def use(self, toolbox: Toolbox) -> None:
        """Learn from this which arguments of tools are told in headers, too."""
        self._toolbox = toolbox

    async def open(self) -> Connection:
        """A new connection. Whether the server can be reached is seen with the first request."""
        from mcplumb.transports.http_client.http_connection import HttpConnection

        await self.close()
        self._connection = HttpConnection(
            self._pool, limits=self._limits, http_sse=self._http_sse, params_of=self._params_of, trace=self._trace
        )
        return self._connection

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Why the server cannot be reached, or else what was seen."""
        failure = None if self._connection is None else self._connection.failure
        return failure or Closed(f"{how} {self.describe()}")

    def describe(self) -> str:
        """The address, without its query: a secret may be in that."""
        return f"The server is at {self.key.partition('?')[0]}."

    async def close(self) -> None:
        """Close all HTTP connections."""
        try:
            if self._connection is not None:
                self._connection.abort()
                await self._connection.gone()
            await self._pool.close()
        finally:
            self._pool.kill()  # if it was cancelled

    def kill(self) -> None:
        """The same at once."""
        if self._connection is not None:
            self._connection.abort()
        self._pool.kill()

    def _params_of(self, request: Request) -> ParamHeaders | None:
        if self._toolbox is None or request.method != "tools/call":
            return None
        return self._toolbox.param_headers(request.params["name"])


def _make_pool(url: str, headers: dict[str, str], proxy: str | None, tls: ssl.SSLContext | None) -> ClientPool:
    try:
        from mcplumb.transports.http_client.session_pool import ClientPool
    except ModuleNotFoundError as error:
        if error.name not in _LIBRARY:
            raise
        raise UsageError("To reach a server over HTTP, aiohttp is needed: pip install 'mcplumb[http]'") from error
    return ClientPool(url, headers=headers, proxy=proxy, tls=tls)


def _checked_headers(headers: Mapping[Any, Any], token: Any) -> dict[str, str]:
    """What goes with every request. The values are secrets, and appear in no message."""
    names = {str(name).lower() for name in headers}
    for name, value in headers.items():
        if not (isinstance(name, str) and is_token(name)):
            raise UsageError(f"{str(name)[:_LONGEST_QUOTE]!r} is not the name of an HTTP header.")
        if not isinstance(value, str) or not value.replace("\t", " ").isprintable():
            raise UsageError(f"The value of the header {name} has to be a text, without control characters.")
        if name.lower() in _OURS or name.lower().startswith(_OUR_BEGINNING):
            raise UsageError(f"The header {name} cannot be set: it says what a message is, or how it is carried.")
    if len(names) < len(headers):
        raise UsageError("A header is there twice: names that differ in upper and lower case are the same.")
    if token is None:
        return dict(headers)
    if "authorization" in names:
        raise UsageError("A token goes into the header Authorization: give one of the two.")
    if not (isinstance(token, str) and token and token.isascii() and token.isprintable() and " " not in token):
        raise UsageError("A token has to be a text of visible ASCII characters, without blanks.")
    return {**headers, "Authorization": f"Bearer {token}"}

"""The link to a server over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mcplumb.client.known_tools import ToolRegistry
from mcplumb.client.link import Phase
from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.http_headers import ParamHeaders, is_token
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Request

if TYPE_CHECKING:
    import ssl

    from mcplumb.client.auth.authorizer import Authorizer
    from mcplumb.client.auth.oauth import Auth
    from mcplumb.transports.http_client.connection_pool import ConnectionPool
    from mcplumb.transports.http_client.http_connection import HttpConnection

__all__ = ["HttpLink"]

#: Headers that the transport itself sets, and users may not.
_RESERVED_HEADERS = frozenset((
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
))  # fmt: skip
_RESERVED_PREFIX = "mcp-"
_LONGEST_QUOTE = 80
#: The modules of the optional dependency.
_HTTP_MODULES = ("aiohttp", "multidict", "yarl")


class HttpLink:
    """A link to a server at an ``http://`` or ``https://`` URL.

    ``headers`` and the bearer ``token`` are sent with every request to the server's origin, and to no other. ``auth``
    gets tokens, and new ones when they expire. ``proxy`` is the URL of an HTTP proxy; the environment's proxy variables
    are ignored. ``http_sse``: True uses HTTP+SSE from the start, False never, None detects it. ``trace`` sees every
    message.
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
        auth: Auth | None = None,
        proxy: str | None = None,
        http_sse: bool | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.key = str(address)
        #: Over Streamable HTTP every request gets a response. Over HTTP+SSE, that only confirms that it was read.
        self.may_be_silent = http_sse is True
        self._limits = limits
        self._http_sse = http_sse
        self._trace = trace
        self._registry: ToolRegistry | None = None
        self._connection: HttpConnection | None = None
        checked = _checked_headers(headers or {}, token)
        self.authorizer: Authorizer | None = None
        if auth is not None:
            from mcplumb.client.auth.authorizer import Authorizer

            if "authorization" in {name.lower() for name in checked}:
                raise UsageError("auth= sets the Authorization header: give neither that header nor a token.")
            self.authorizer = Authorizer(auth, self.key, proxy=proxy, tls=tls)
        self._pool = _make_pool(self.key, checked, proxy, tls, self.authorizer)

    @property
    def is_sse(self) -> bool:
        """Whether the server was reached over HTTP+SSE, and not over Streamable HTTP."""
        return self._connection is not None and self._connection.is_sse

    def use(self, registry: ToolRegistry) -> None:
        """Use this registry to find the tool arguments that are also sent as headers."""
        self._registry = registry

    async def open(self) -> Connection:
        """Return a new connection. The first request shows whether the server can be reached."""
        from mcplumb.transports.http_client.http_connection import HttpConnection

        await self.close()
        self._connection = HttpConnection(
            self._pool, limits=self._limits, http_sse=self._http_sse, params_of=self._params_of, trace=self._trace
        )
        return self._connection

    def has_read(self) -> None:
        """Return None: only a response to the POST shows it, and a proxy may have sent that."""

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return the error that says why the server cannot be reached, or else how the connection ended."""
        connection = self._connection
        if connection is not None and connection.failure is not None:
            return connection.failure
        if connection is not None and connection.end_cause is not None:
            how = f"The server has ended the session. {connection.end_cause}"
        return Closed(f"{how} {self.describe()}")

    def describe(self) -> str:
        """Return the URL without its query, which may contain a secret."""
        return f"The server is at {self.key.partition('?')[0]}."

    async def close(self) -> None:
        """Close all HTTP connections."""
        try:
            if self._connection is not None:
                self._connection.abort()
                await self._connection.gone()
            await self._pool.close()
        finally:
            self._pool.kill()  # for the case of a cancellation

    def kill(self) -> None:
        """Close all HTTP connections at once, without an event loop."""
        if self._connection is not None:
            self._connection.abort()
        self._pool.kill()

    def _params_of(self, request: Request) -> ParamHeaders | None:
        # A request may be written by the user, who decides what is in its params.
        name = request.params.get("name") if isinstance(request.params, dict) else None
        if self._registry is None or request.method != "tools/call" or not isinstance(name, str):
            return None
        return self._registry.param_headers(name)


def _make_pool(
    url: str, headers: dict[str, str], proxy: str | None, tls: ssl.SSLContext | None, authorizer: Authorizer | None
) -> ConnectionPool:
    try:
        from mcplumb.transports.http_client.connection_pool import ConnectionPool
    except ModuleNotFoundError as error:
        if error.name not in _HTTP_MODULES:
            raise
        raise UsageError("Connecting over HTTP needs aiohttp: pip install 'mcplumb[http]'") from error
    return ConnectionPool(url, headers=headers, proxy=proxy, tls=tls, authorizer=authorizer)


def _checked_headers(headers: Mapping[Any, Any], token: Any) -> dict[str, str]:
    """Return the headers of every request, or raise `UsageError`. No message quotes a value, which may be secret."""
    names = {str(name).lower() for name in headers}
    for name, value in headers.items():
        if not (isinstance(name, str) and is_token(name)):
            raise UsageError(f"{str(name)[:_LONGEST_QUOTE]!r} is not the name of an HTTP header.")
        if not isinstance(value, str) or not value.replace("\t", " ").isprintable():
            raise UsageError(f"The value of the header {name} must be a string without control characters.")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith(_RESERVED_PREFIX):
            raise UsageError(f"The header {name} cannot be set: the transport sets it.")
    if len(names) < len(headers):
        raise UsageError("A header is given twice: header names are case-insensitive.")
    if token is None:
        return dict(headers)
    if "authorization" in names:
        raise UsageError("A token is sent in the Authorization header: give only one of them.")
    if not (isinstance(token, str) and token and token.isascii() and token.isprintable() and " " not in token):
        raise UsageError("A token must be a string of visible ASCII characters, without spaces.")
    return {**headers, "Authorization": f"Bearer {token}"}

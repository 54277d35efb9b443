"""`HttpOptions`: the settings of a server over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.protocol.principal import Principal, scope_set
from mcplumb.stores.shared_store import SharedStore, open_store

__all__ = ["HEALTH_PATH", "MESSAGES_PATH", "METRICS_PATH", "READY_PATH", "SSE_PATH", "Authenticate", "HttpOptions"]

#: The paths at which a server says that it lives, whether it takes requests, and what it has counted.
HEALTH_PATH = "/health"
READY_PATH = "/ready"
METRICS_PATH = "/metrics"
#: The paths of HTTP+SSE, if it is served.
SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"

#: Options that are not shown.
_SECRET = ("tokens", "shared")

#: Returns the principal of an access token, or None if the token is invalid. May be a coroutine function. It may raise
#: `AuthorizationError`: with ``invalid_token``, its sentence says why; any other reason means that the token could not
#: be checked.
Authenticate: TypeAlias = Callable[[str], Awaitable[Principal | None] | Principal | None]


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The paths, access control, timeouts and limits of a server over HTTP. All times are in seconds."""

    # Paths
    #: The path of the MCP endpoint within the application.
    path: str = "/mcp"
    #: Whether HTTP+SSE is served to clients of 2024-11-05, at ``/sse`` and ``/messages``.
    sse: bool = True

    # Replicas
    #: The store that several processes share, so that each may serve any request: ``redis://host:6379/0``,
    #: ``redis+cluster://host,host`` or ``redis+sentinel://host,host/name/0``, each with ``rediss`` for TLS, or a
    #: `SharedStore`.
    shared: str | SharedStore | None = None

    # Access control
    #: Origins of web pages that may use the server, as ``https://host:port``; ``*`` allows all, and needs tokens then.
    #: Always allowed are pages of the server itself, at an IP address or at one of ``hosts``, and local pages over the
    #: loopback interface.
    origins: tuple[str, ...] = ()
    #: Accepted names in the ``Host`` header; ``*`` accepts all. Over the loopback interface, local names are always
    #: accepted. None accepts no others there, and all elsewhere.
    hosts: tuple[str, ...] | None = None
    #: Bearer tokens that grant access. Their principals have all ``scopes``.
    tokens: tuple[str, ...] = ()
    #: Authenticates all other tokens: a `JwtVerifier`, an `Introspection`, or a function that takes the token and
    #: returns its `Principal`, or None. It runs in the event loop, so a function that waits must be async.
    auth: Authenticate | None = None
    #: The URL of the MCP endpoint as clients know it. None derives it from the request.
    resource: str | None = None
    #: URLs of the authorization servers; by default the issuer of ``auth``. With any, the metadata of the protected
    #: resource is published.
    authorization_servers: tuple[str, ...] = ()
    #: The scopes that clients should request, besides those that ``auth`` needs.
    scopes: tuple[str, ...] = ()
    #: For a scope, those that it includes: ``{"notes:write": ("notes:read",)}``.
    included_scopes: Mapping[str, tuple[str, ...]] = {}

    # Operation
    #: Whether ``/metrics`` is served, for Prometheus. It needs a token if the MCP endpoint does; ``"open"`` needs none.
    metrics: bool | Literal["open"] = False

    # Timeouts: long enough for bad networks, short enough that slow clients do not use up the connections.
    #: To receive the head of a request, from its first byte or from the start of the connection.
    header_within: float = 10.0
    #: To receive the body.
    body_within: float = 30.0
    #: To receive the next request on a connection. Longer than clients keep idle connections, so that they close first.
    next_within: float = 75.0
    #: For a client to read some part of a response while more is queued.
    write_within: float = 60.0
    #: Between two comments on a silent stream. Many proxies close it after 60.
    keep_alive: float = 15.0

    # Limits
    #: Bytes in the head of a request. Other servers allow between 8 and 64 KiB.
    max_head: int = 64 * 1024
    #: Connections at one address, or fewer if the descriptors of the process (``ulimit -n``) do not suffice. At the
    #: limit, the connection that has been without a request for the longest time makes room for a new one.
    max_connections: int = 10_000
    #: Legacy sessions; clients of HTTP+SSE have a limit of their own of the same size.
    max_sessions: int = 10_000
    #: How long an idle legacy session is kept; at most a minute before its client has sent ``initialized``.
    session_ttl: float = 1800.0
    #: Concurrent requests and streams of one legacy session.
    max_streams: int = 1000
    #: Events of a legacy session that are kept for clients that reconnect, in number and in bytes.
    max_events: int = 1000
    max_event_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not self.path.isascii() or {"?", "#", "%", " "} & set(self.path):
            raise UsageError(
                f"The path {self.path!r} cannot be used: it must be '/' and plain ASCII characters, like '/mcp'."
            )
        if self.sse and self.path.rstrip("/") in (SSE_PATH, MESSAGES_PATH):
            raise UsageError(f"The path {self.path!r} belongs to HTTP+SSE. Choose another one, or set sse=False.")
        if self.metrics not in (True, False, "open"):
            raise UsageError(f"The option metrics is {self.metrics!r}: it must be True, False or 'open'.")
        for name in ("origins", "hosts", "tokens", "authorization_servers", "scopes"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) and text for text in texts or ()):
                # The message does not quote the value, which may be a secret.
                raise UsageError(f"The option {name} must be a tuple of non-empty strings.")
        if self.shared is not None:
            open_store(self.shared)  # raises UsageError
        if any(not token.isascii() or not token.isprintable() or " " in token for token in self.tokens):
            raise UsageError(
                "One of the tokens cannot be sent in a header: use visible ASCII characters without spaces."
            )
        for name in ("authorization_servers", "scopes"):
            if getattr(self, name) and not self.needs_tokens:
                raise UsageError(f"The option {name} needs tokens to be checked: set auth or tokens.")
        if self.auth is not None and not callable(self.auth):
            raise UsageError("The option auth must be a JwtVerifier, an Introspection or a function of a token.")
        scope_set(self.scopes, "The option scopes")
        for scope, included in self.included_scopes.items():
            scope_set([scope], "The option included_scopes")
            scope_set(included, f"The option included_scopes for {scope!r}")
        for name in ("header_within", "body_within", "next_within", "write_within", "keep_alive", "session_ttl"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"The option {name} is {getattr(self, name)!r}: it must be a number of seconds.")
        for name in ("max_head", "max_connections", "max_sessions", "max_streams", "max_events", "max_event_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"The option {name} is {value!r}: it must be an integer of at least 1.")

    def __repr__(self) -> str:
        # Neither tokens nor the password of a store belong into a log.
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _SECRET}
        return f"HttpOptions({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    @property
    def needs_tokens(self) -> bool:
        """Whether requests need a token."""
        return bool(self.tokens) or self.auth is not None

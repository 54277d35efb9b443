"""What can be set for a server over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from mcplumb.errors import UsageError

__all__ = ["MESSAGES_PATH", "SSE_PATH", "HttpOptions", "Verify"]

#: Where HTTP+SSE is, if it is served.
SSE_PATH = "/sse"
MESSAGES_PATH = "/messages"

#: Who the owner of a bearer token is; None if it is not a good one. May be a coroutine function.
Verify: TypeAlias = Callable[[str], Awaitable[str | None] | str | None]


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a server answers over HTTP, whom, and within which bounds. All times are in seconds."""

    # Where
    #: Of the MCP endpoint, within the application.
    path: str = "/mcp"
    #: Whether clients of 2024-11-05 find HTTP+SSE, at ``/sse`` and ``/messages``.
    sse: bool = True

    # Whom
    #: Web pages that may use the server, as ``https://host:port``, besides its own, at an address or at one of
    #: ``hosts``, and, on this machine, local ones. ``*`` are all of them: give clients tokens then.
    origins: tuple[str, ...] = ()
    #: The names under which the server is asked for (``Host``); ``*`` are all. Over the loopback interface the local
    #: names always work. None: no others do there, and all do elsewhere.
    hosts: tuple[str, ...] | None = None
    #: With one of these bearer tokens, everybody is let in.
    tokens: tuple[str, ...] = ()
    #: Otherwise this is asked about the token. It runs in the event loop: a function that waits should be async.
    verify: Verify | None = None
    #: The address of the MCP endpoint as clients know it. None: what the request itself says.
    resource: str | None = None
    #: Who gives out tokens. With any, the metadata of the protected resource is published.
    authorization_servers: tuple[str, ...] = ()
    #: What a token has to be good for, as clients are told.
    scopes: tuple[str, ...] = ()

    # Slow clients. People on bad networks need some seconds for each; those who hold what others need want all of them.
    #: For the head of a request, from its first byte, or from the beginning of the connection.
    header_within: float = 10.0
    #: For the body.
    body_within: float = 30.0
    #: For the next request on the same connection. Longer than clients keep one, so that it is they who close it.
    next_within: float = 75.0
    #: For some part of a response, if more of it waits.
    write_within: float = 60.0
    #: Between two comments on a stream that is silent. Many proxies give up after 60.
    keep_alive: float = 15.0

    # Many clients
    #: Bytes in the head of a request. Other servers stop between 8 and 64 KiB.
    max_head: int = 64 * 1024
    max_connections: int = 10_000
    #: Legacy sessions, and clients of HTTP+SSE.
    max_sessions: int = 10_000
    #: How long a legacy session is kept for a client from which nothing comes: a minute, if it never said that it
    #: is initialized.
    session_ttl: float = 1800.0
    #: Requests and streams of one legacy session that are open at once.
    max_streams: int = 1000
    #: What is kept of a legacy session's streams, for a client that comes back for it.
    max_events: int = 1000
    max_event_bytes: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or not self.path.isascii() or {"?", "#", "%", " "} & set(self.path):
            raise UsageError(f"The path {self.path!r} cannot be used: it is '/' and plain characters, like '/mcp'.")
        if self.sse and self.path.rstrip("/") in (SSE_PATH, MESSAGES_PATH):
            raise UsageError(f"The path {self.path!r} is one of HTTP+SSE's. Choose another one, or set sse=False.")
        for name in ("origins", "hosts", "tokens", "authorization_servers", "scopes"):
            texts = getattr(self, name)
            if isinstance(texts, str) or not all(isinstance(text, str) and text for text in texts or ()):
                # Not repeated: it may be a secret.
                raise UsageError(f"The option {name} is to be a tuple of texts, none of which is empty.")
        if any(not token.isascii() or not token.isprintable() or " " in token for token in self.tokens):
            raise UsageError("One of the tokens cannot be sent in a header: only ASCII characters can, and no blanks.")
        for name in ("authorization_servers", "scopes"):
            if getattr(self, name) and not self.tokens and self.verify is None:
                raise UsageError(f"The option {name} is about tokens, and nobody checks them: set verify, or tokens.")
        for name in ("header_within", "body_within", "next_within", "write_within", "keep_alive", "session_ttl"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"The option {name} is {getattr(self, name)!r}: it must be a number of seconds.")
        for name in ("max_head", "max_connections", "max_sessions", "max_streams", "max_events", "max_event_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"The option {name} is {value!r}: it must be an integer of at least 1.")

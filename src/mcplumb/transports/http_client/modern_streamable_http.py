"""Streamable HTTP of the modern era: each request is one POST, and its response has all messages that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mcplumb.protocol.http_headers import ParamHeaders, encode_field, headers_of
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.inbox import Inbox
from mcplumb.transports.http_client.post_queue import Post
from mcplumb.transports.http_client.response import JSON_OR_EVENTS, Stream, receive
from mcplumb.wire.messages import Request

__all__ = ["ModernBinding", "ParamsOf"]

#: Returns the arguments of a request that are also sent as headers.
ParamsOf: TypeAlias = Callable[[Request], ParamHeaders | None]

_VERSION = "MCP-Protocol-Version"


class ModernBinding:
    """The `Binding` of the modern era. To cancel a request, cancel its exchange, which closes the response."""

    def __init__(self, pool: ConnectionPool, inbox: Inbox, params_of: ParamsOf) -> None:
        self._pool = pool
        self._inbox = inbox
        self._params_of = params_of
        #: The revision in the last request, which notifications repeat in their header.
        self._version: str | None = None

    async def exchange(self, post: Post) -> None:
        """Post it and receive the messages of its response."""
        async with self._pool.request("POST", self._pool.url, self._headers(post), post.body) as response:
            await receive(response, post, self._inbox, Stream(self._inbox))

    async def end_session(self) -> None:
        """Do nothing: there is no session."""

    def _headers(self, post: Post) -> dict[str, str]:
        headers = {"Accept": JSON_OR_EVENTS, "Content-Type": "application/json"}
        if isinstance(post.first, Request):
            headers.update(headers_of(post.first, self._params_of(post.first)))
            self._version = headers.get(_VERSION, self._version)
        else:
            headers["Mcp-Method"] = encode_field(post.method)
            if self._version is not None:
                headers[_VERSION] = self._version
        return headers

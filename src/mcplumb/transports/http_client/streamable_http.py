"""Streamable HTTP at the client: the bindings of both eras.

Modern: each request is one POST, and its response has all messages that belong to it. Legacy: one session over many
HTTP requests, and streams that can be resumed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn, TypeAlias

import aiohttp
import msgspec

from mcplumb.errors import (
    AuthorizationError,
    Closed,
    ConnectError,
    HttpError,
    McplumbError,
    ProtocolError,
    RemoteError,
    RequestLost,
)
from mcplumb.protocol.http_headers import ParamHeaders, encode_field, headers_of
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.post_queue import Post, Spawn
from mcplumb.transports.http_client.response import (
    EVENTS,
    JSON_OR_EVENTS,
    Inbox,
    Stream,
    has_words,
    is_stream,
    is_success,
    read_refusal,
    receive,
    refusal,
)
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail, Request, Result

__all__ = ["LegacyBinding", "ModernBinding", "ParamsOf"]

_logger = logging.getLogger("mcplumb.client")


# --- The legacy era ---

#: Consecutive attempts to resume a stream without receiving anything, before it counts as lost.
_MOST_TRIES = 5
#: Seconds for the DELETE request that ends the session.
_DELETE_TIMEOUT = 5.0
#: The longest revision name, in characters, that is sent back to the server as a header.
_LONGEST_VERSION = 64

#: Statuses that mean that the server offers no stream, or that it has ended.
_NO_STREAM = frozenset((204, 405))
_SESSION_ID = "Mcp-Session-Id"

#: Phrases for an unknown session, for instance after a restart of the server. Many servers answer 400 instead of 404,
#: with one of these phrases in a text, or in a JSON-RPC error with one of `_SESSION_LOST_CODES`.
_SESSION_LOST_PHRASES = (
    "no valid session id",
    "invalid session id",
    "missing session id",
    "mcp-session-id",
    "session not found",
    "server not initialized",
)
_SESSION_LOST_CODES = frozenset((-32000, -32001, INVALID_REQUEST))


class LegacyBinding:
    """The `Binding` of one session, which starts with ``initialize``.

    ``spawn`` runs the stream of messages that belong to no request. To cancel a request, post a notification, and then
    cancel its exchange.
    """

    def __init__(self, pool: ConnectionPool, inbox: Inbox, spawn: Spawn) -> None:
        self._pool = pool
        self._inbox = inbox
        self._spawn = spawn
        #: Whether ``initialize`` was answered with a result.
        self.is_open = False
        self._is_over = False
        #: Headers of all requests after ``initialize``.
        self._session: dict[str, str] = {}

    async def exchange(self, post: Post) -> None:
        """Post it and receive the messages of its response, resuming the stream as often as needed."""
        stream = Stream(self._inbox)
        headers = {"Accept": JSON_OR_EVENTS, "Content-Type": "application/json", **self._session}
        async with self._pool.request("POST", self._pool.url, headers, post.body) as response:
            await self._check(response)
            post.is_accepted = is_success(response)
            if post.is_initialize and is_success(response):
                self._read_session_id(response)
                post.on_result = self._read_version
            elif response.status == 400 and _SESSION_ID in self._session:
                post.on_refusal = self._check_error
            try:
                await receive(response, post, self._inbox, stream)
            except RequestLost:
                if not stream.last_event_id:
                    raise
            except HttpError as error:
                if post.on_refusal is not None and has_words(response) and _is_about_session(str(error)):
                    self._end(error)
                raise
        if post.is_initialized:
            self._spawn(self._listen())
        if post.waiting and stream.last_event_id:
            await self._resume(stream, post)

    async def end_session(self) -> None:
        """End the session with a DELETE request."""
        if _SESSION_ID not in self._session or self._is_over:
            return
        try:
            async with (
                asyncio.timeout(_DELETE_TIMEOUT),
                self._pool.request("DELETE", self._pool.url, self._session) as response,
            ):
                _logger.debug("The session was ended: HTTP %d.", response.status)
        except (McplumbError, TimeoutError) as error:
            _logger.debug("The session could not be ended, and will expire. %s", error)

    def _read_session_id(self, response: aiohttp.ClientResponse) -> None:
        session_id = response.headers.get(_SESSION_ID)
        if session_id is not None:
            if not _is_visible(session_id):
                raise ProtocolError("The server sent a session id with invalid characters.")
            self._session[_SESSION_ID] = session_id

    def _read_version(self, result: Result) -> None:
        self.is_open = True
        try:
            version = _decode_initialize_result(result.result).protocol_version
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # The handshake reports the invalid result.
        if _is_visible(version) and len(version) <= _LONGEST_VERSION:
            self._session["MCP-Protocol-Version"] = version

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 404 and _SESSION_ID in self._session:
            self._end(await read_refusal(response))

    def _check_error(self, error: ErrorDetail) -> None:
        if error.code in _SESSION_LOST_CODES and _is_about_session(error.message):
            self._end(RemoteError(error.code, error.message, peer="server"))

    def _end(self, because: McplumbError) -> NoReturn:
        self._is_over = True
        raise Closed("The server has ended the session.") from because

    async def _resume(self, stream: Stream, post: Post) -> None:
        """Resume the stream until the post is answered; raise `RequestLost` if that fails."""
        why: McplumbError | None = None
        while stream.failures < _MOST_TRIES:
            await stream.wait()
            try:
                async with self._get(stream) as response:
                    await self._check(response)
                    if is_stream(response):
                        await stream.read(response, post)
                        if not post.waiting:
                            return
                    else:
                        why = refusal(response)
                        if response.status < 500:
                            break
            except (ConnectError, RequestLost) as error:
                why = error
        raise RequestLost(f"The response broke off, and could not be resumed. {why or ''}".rstrip()) from why

    async def _listen(self) -> None:
        """Receive the messages that belong to no request until the session ends, if the server offers the stream."""
        stream = Stream(self._inbox)
        was_open = False
        while True:
            try:
                async with self._get(stream) as response:
                    if was_open:
                        await self._check(response)
                    if is_stream(response):
                        was_open = True
                        await stream.read(response)
                    elif response.status in _NO_STREAM or (response.status < 500 and not was_open):
                        return
                    elif response.status == 400 and not stream.last_event_id:
                        self._end(refusal(response))  # The request has nothing but the session that could be wrong.
                    else:
                        stream.last_event_id = ""  # The server may have forgotten that event.
            except ConnectError:
                if stream.failures >= _MOST_TRIES:
                    raise
            except RequestLost as error:
                _logger.debug("The stream of the session is opened again. %s", error)
            except AuthorizationError as error:
                if error.reason != "unreachable":
                    raise
                _logger.debug("The stream of the session is opened again, once there is a token. %s", error)
            await stream.wait()

    def _get(self, stream: Stream) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {"Accept": EVENTS, **self._session}
        if stream.last_event_id:
            headers["Last-Event-ID"] = stream.last_event_id
        return self._pool.request("GET", self._pool.url, headers)


class _InitializeResult(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


_decode_initialize_result = msgspec.json.Decoder(_InitializeResult).decode


def _is_about_session(sentence: str) -> bool:
    """Return whether an error message says that the session is unknown."""
    words = sentence.lower()
    return any(phrase in words for phrase in _SESSION_LOST_PHRASES)


def _is_visible(text: str) -> bool:
    """Return whether the text consists of visible ASCII characters, at least one."""
    return text.isascii() and text.isprintable() and bool(text) and " " not in text


# --- The modern era ---

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

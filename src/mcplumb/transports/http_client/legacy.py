"""Streamable HTTP of the legacy era: one session over many requests, and streams that can be resumed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

import aiohttp
import msgspec

from mcplumb.errors import Closed, ConnectError, HttpError, McplumbError, ProtocolError, RemoteError, RequestLost
from mcplumb.transports.http_client.post_queue import Post, Spawn
from mcplumb.transports.http_client.receive_queue import Inbox
from mcplumb.transports.http_client.response import EVENTS, JSON_OR_EVENTS, Stream, is_good, is_stream, receive, refusal
from mcplumb.transports.http_client.session_pool import ClientPool
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail, Result

__all__ = ["LegacyBinding"]

#: Attempts one after the other to go on with a stream that bring nothing, before it is taken for lost.
_MOST_TRIES = 5
#: Seconds for the server to hear that the session is not needed any more.
_LEAVE_WITHIN = 5.0
#: Characters in the name of a revision that is sent back: it is the server's, and becomes a header.
_LONGEST_VERSION = 64

#: What says that there is no stream to open again.
_NO_STREAM = frozenset((204, 405))
_SESSION_ID = "Mcp-Session-Id"

#: Many servers do not know a session any more, after a restart for instance, and say so with 400 in place of 404: in
#: one of these ways, as a text or as an error with one of the codes that are used for what is wrong with a session.
_LOST = (
    "no valid session id",
    "invalid session id",
    "missing session id",
    "mcp-session-id",
    "session not found",
    "server not initialized",
)
_LOST_CODES = frozenset((-32000, -32001, INVALID_REQUEST))

_logger = logging.getLogger("mcplumb.client")


class LegacyBinding:
    """A `Binding` to one session, which begins with ``initialize``.

    ``spawn`` is given what runs beside the posts: the stream of what the server has to say by itself. To give up a
    request takes a notice, and then its exchange can be cancelled.
    """

    def __init__(self, pool: ClientPool, inbox: Inbox, spawn: Spawn) -> None:
        self._pool = pool
        self._inbox = inbox
        self._spawn = spawn
        #: Whether ``initialize`` was answered with a result.
        self.is_open = False
        self._is_over = False
        #: Headers of everything that follows ``initialize``.
        self._session: dict[str, str] = {}

    async def exchange(self, post: Post) -> None:
        """Post it, and pass on what comes in answer to it, over as many responses as that takes."""
        stream = Stream(self._inbox)
        headers = {"Accept": JSON_OR_EVENTS, "Content-Type": "application/json", **self._session}
        async with self._pool.request("POST", self._pool.url, headers, post.body) as response:
            self._check(response)
            post.is_accepted = is_good(response)
            if post.is_initialize and is_good(response):
                self._begin(response)
                post.on_result = self._agree
            elif response.status == 400 and _SESSION_ID in self._session:
                post.on_refusal = self._check_error
            try:
                await receive(response, post, self._inbox, stream)
            except RequestLost:
                if not stream.last_event_id:
                    raise
            except HttpError as error:
                if post.on_refusal is not None and _is_about_session(str(error)):
                    self._end(error)
                raise
        if post.is_initialized:
            self._spawn(self._listen())
        if post.waiting and stream.last_event_id:
            await self._resume(stream, post)

    async def leave(self) -> None:
        """End the session."""
        if _SESSION_ID not in self._session or self._is_over:
            return
        try:
            async with (
                asyncio.timeout(_LEAVE_WITHIN),
                self._pool.request("DELETE", self._pool.url, self._session) as response,
            ):
                _logger.debug("The session was ended: HTTP %d.", response.status)
        except (McplumbError, TimeoutError) as error:
            _logger.debug("The session could not be ended, and will expire. %s", error)

    def _begin(self, response: aiohttp.ClientResponse) -> None:
        session_id = response.headers.get(_SESSION_ID)
        if session_id is not None:
            if not _is_visible(session_id):
                raise ProtocolError("The server gave a session id with characters that it may not have.")
            self._session[_SESSION_ID] = session_id

    def _agree(self, result: Result) -> None:
        self.is_open = True
        try:
            version = _decode_agreement(result.result).protocol_version
        except (msgspec.DecodeError, UnicodeDecodeError):
            return  # Whoever asked will say what is wrong with it.
        if _is_visible(version) and len(version) <= _LONGEST_VERSION:
            self._session["MCP-Protocol-Version"] = version

    def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 404 and _SESSION_ID in self._session:
            self._end(refusal(response))

    def _check_error(self, error: ErrorDetail) -> None:
        if error.code in _LOST_CODES and _is_about_session(error.message):
            self._end(RemoteError(error.code, error.message))

    def _end(self, because: McplumbError) -> NoReturn:
        self._is_over = True
        raise Closed("The server has ended the session.") from because

    async def _resume(self, stream: Stream, post: Post) -> None:
        """Go on with the stream on which the answer to this post will come; `RequestLost` if that is in vain."""
        why: McplumbError | None = None
        while stream.failures < _MOST_TRIES:
            await stream.wait()
            try:
                async with self._get(stream) as response:
                    self._check(response)
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
        """Hear what the server has to say by itself, for as long as the session lasts, if it offers that."""
        stream = Stream(self._inbox)
        was_open = False
        while True:
            try:
                async with self._get(stream) as response:
                    if was_open:
                        self._check(response)
                    if is_stream(response):
                        was_open = True
                        await stream.read(response)
                    elif response.status in _NO_STREAM or (response.status < 500 and not was_open):
                        return
                    elif response.status == 400 and not stream.last_event_id:
                        self._end(refusal(response))  # It is about the session: nothing else was said.
                    else:
                        stream.last_event_id = ""  # Perhaps that is no longer known.
            except ConnectError:
                if stream.failures >= _MOST_TRIES:
                    raise
            except RequestLost as error:
                _logger.debug("The stream of the session is opened again. %s", error)
            await stream.wait()

    def _get(self, stream: Stream) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {"Accept": EVENTS, **self._session}
        if stream.last_event_id:
            headers["Last-Event-ID"] = stream.last_event_id
        return self._pool.request("GET", self._pool.url, headers)


class _Agreement(msgspec.Struct, rename="camel"):
    protocol_version: str = ""


_decode_agreement = msgspec.json.Decoder(_Agreement).decode


def _is_about_session(refusal: str) -> bool:
    """Whether this says that the session is not known."""
    words = refusal.lower()
    return any(phrase in words for phrase in _LOST)


def _is_visible(text: str) -> bool:
    """Whether it has nothing but visible ASCII characters, and at least one."""
    return text.isascii() and text.isprintable() and bool(text) and " " not in text

"""HTTP+SSE, the transport of the first revision: one stream has all messages from the server, POSTs those to it.

The first event on the stream names the endpoint to post to.
"""

from __future__ import annotations

import asyncio

import aiohttp
from yarl import URL

from mcplumb.errors import Closed, ConnectError, ConnectTimeout, McplumbError
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.masking import masked
from mcplumb.transports.http_client.post_queue import Post, Spawn
from mcplumb.transports.http_client.response import (
    EVENTS,
    Inbox,
    Stream,
    discard,
    is_stream,
    is_success,
    read_refusal,
    refuse,
)
from mcplumb.wire.server_sent_events import Event, EventTooLong

__all__ = ["SseBinding"]

#: Seconds for the event that names the endpoint.
_ENDPOINT_TIMEOUT = 30.0
_LONGEST_QUOTE = 200


class SseBinding:
    """The `Binding` of HTTP+SSE. ``spawn`` runs its stream; the session lasts as long as that."""

    def __init__(self, pool: ConnectionPool, inbox: Inbox, spawn: Spawn) -> None:
        self._pool = pool
        self._inbox = inbox
        self._spawn = spawn
        self._stream: asyncio.Task[None] | None = None
        #: The URL to post to, or why there is none; done once that is known.
        self._endpoint: asyncio.Future[URL | McplumbError] | None = None

    async def open(self) -> URL:
        """Open the stream unless it is open, wait for the endpoint, and return it.

        Raises `ConnectError` or `HttpError` if the server names none, or one at another origin.
        """
        if self._endpoint is None or self._stream is None:
            self._endpoint = asyncio.get_running_loop().create_future()
            self._stream = self._spawn(self._listen(self._endpoint))
        await asyncio.wait((self._endpoint,), timeout=_ENDPOINT_TIMEOUT)
        if not self._endpoint.done():
            self._stream.cancel()
            sentence = f"The server opened a stream, but named no endpoint within {_ENDPOINT_TIMEOUT:g} s."
            self._endpoint.set_result(ConnectTimeout(sentence))
        endpoint = self._endpoint.result()
        if isinstance(endpoint, McplumbError):
            raise endpoint
        return endpoint

    async def exchange(self, post: Post) -> None:
        """Post it. The answer arrives on the stream."""
        endpoint = await self.open()
        async with self._pool.request("POST", endpoint, {"Content-Type": "application/json"}, post.body) as response:
            if is_success(response):
                post.waiting.clear()
                await discard(response)
            elif response.status == 404:
                raise Closed("The server has ended the session.") from await read_refusal(response)
            else:
                await refuse(response, post, self._inbox)

    async def end_session(self) -> None:
        """Do nothing: closing the stream ends the session."""

    async def _listen(self, endpoint: asyncio.Future[URL | McplumbError]) -> None:
        def take(event: Event | EventTooLong) -> bool:
            if isinstance(event, EventTooLong):
                self._inbox.report_too_long(event, response.request_info)
            elif endpoint.done():
                if event.event == "message" and event.data:
                    self._inbox.take(event.data, response.request_info)
            elif event.event == "endpoint":
                endpoint.set_result(self._read_endpoint(event.data, response.request_info))
                return not _is_usable(endpoint)
            return False

        is_clean = False
        why: McplumbError = ConnectError("The server opened a stream, but ended it before naming an endpoint.")
        try:
            async with self._pool.request("GET", self._pool.url, {"Accept": EVENTS}) as response:
                if not is_stream(response):
                    raise await read_refusal(response, is_first=True)
                is_clean = await Stream(self._inbox).read_events(response, take)
        except McplumbError as error:
            why = error
        if not endpoint.done():
            endpoint.set_result(why)
        if _is_usable(endpoint):
            self._inbox.end(clean=is_clean)
            raise Closed("The server has ended its stream.")

    def _read_endpoint(self, data: bytes, request: aiohttp.RequestInfo) -> URL | McplumbError:
        text = data.decode(errors="replace")
        try:
            endpoint = self._pool.url.join(URL(text))
        except ValueError:
            endpoint = URL()
        if self._pool.is_own(endpoint):
            return endpoint
        return ConnectError(
            f"The server names the endpoint {masked(request, text)[:_LONGEST_QUOTE]!a}, which is not at "
            f"{self._pool.url.origin()} or contains a user name. Nothing was sent there."
        )


def _is_usable(endpoint: asyncio.Future[URL | McplumbError]) -> bool:
    return isinstance(endpoint.result(), URL)

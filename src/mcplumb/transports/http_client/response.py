"""One HTTP response: JSON, a stream of server-sent events, or a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from mcplumb.errors import HttpError, McplumbError, ProtocolError, RequestLost
from mcplumb.transports.http_client.post_queue import Post
from mcplumb.transports.http_client.receive_queue import Inbox
from mcplumb.wire.message_decoder import BadMessage, decode_line
from mcplumb.wire.messages import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION, Error
from mcplumb.wire.server_sent_events import Event, EventDecoder, EventTooLong

__all__ = [
    "EVENTS",
    "JSON_OR_EVENTS",
    "NO_POST_HERE",
    "Stream",
    "discard",
    "is_good",
    "is_stream",
    "next_chunk",
    "receive",
    "refusal",
    "refuse",
]


# One HTTP response: is it JSON, a stream of events, or a refusal, and how it is read, within bounds.


_JSON = "application/json"
EVENTS = "text/event-stream"
#: What a client has to accept in answer to a POST.
JSON_OR_EVENTS = f"{_JSON}, {EVENTS}"

#: Seconds, and bytes, for a response to end of which nothing more is needed: then its connection can be used again.
_END_WITHIN = 0.1
_MOST_DISCARDED = 64 * 1024
_LONGEST_QUOTE = 200

#: What a gateway says if it got no answer, or a bad one. Whether the server has got the request is not known.
_GATEWAY = frozenset((502, 503, 504))
#: Who is there has to be known: an error with a JSON-RPC body, too, says so in its headers.
_DENIED = frozenset((401, 403, 407))

#: What a server of HTTP+SSE may answer a POST with at the place of its stream.
NO_POST_HERE = frozenset((400, 404, 405))
#: What a modern server may refuse a message of another era with.
_MODERN_ERRORS = frozenset((HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION))

_HINTS = {
    401: " Give a token that it accepts: connect(…, token=…).",
    403: " Perhaps it wants another token: connect(…, token=…).",
    404: " Is the path of the address right?",
    405: " Is the path of the address right?",
    413: " The message is too large for it.",
    429: " It wants fewer requests at a time.",
}


def is_good(response: aiohttp.ClientResponse) -> bool:
    """Whether the server has accepted the request."""
    return 200 <= response.status < 300


def is_stream(response: aiohttp.ClientResponse) -> bool:
    """Whether it has, and carries events."""
    return is_good(response) and _kind(response) == EVENTS and _is_plain(response)


async def receive(response: aiohttp.ClientResponse, post: Post, inbox: Inbox, stream: Stream) -> None:
    """Pass on what the server answers a post with. Raises if it was refused, or if the answer cannot be read."""
    if not is_good(response):
        await refuse(response, post, inbox)
    elif not post.waiting:
        await discard(response)
    elif not _is_plain(response):
        raise ProtocolError("The server has compressed its response, although it was asked not to.")
    elif _kind(response) == _JSON:
        data = await _read(response, inbox.limits.max_line)
        await inbox.flow()
        item = inbox.take(data, post)
        if post.waiting:
            said = ". It is no answer to what was asked."
            if isinstance(item, BadMessage):
                said = f": {item.quoted}. {item.reason}"
            elif isinstance(item, Error):
                said += f" It is error {item.error.code}: {item.error.message[:_LONGEST_QUOTE]!a}."
            raise ProtocolError(f"The server's response cannot be used{said}")
    elif _kind(response) == EVENTS:
        await stream.read(response, post)
        if not post.waiting:
            await discard(response)
    else:
        raise refusal(response)


async def refuse(response: aiohttp.ClientResponse, post: Post, inbox: Inbox) -> None:
    """Pass on the JSON-RPC error that a post was refused with; if it is none, raise another error for it."""
    is_json = _kind(response) == _JSON and _is_plain(response)
    try:
        data = await _read(response, inbox.limits.max_line if is_json else _MOST_DISCARDED)
    except McplumbError:
        data = b""  # The status says enough.
    # A server of HTTP+SSE may refuse to be posted to in JSON-RPC, too: with some error, but not with a modern one.
    codes = _MODERN_ERRORS if post.is_initialize and response.status in NO_POST_HERE else None
    if not is_json or response.status in _DENIED or not inbox.refuse(data, post, codes):
        raise refusal(response, data)


def refusal(response: aiohttp.ClientResponse, data: bytes = b"") -> McplumbError:
    """The error for a response that is not what was asked for; ``data`` is what it says."""
    status, reason = response.status, response.reason or ""
    sentence = f"The server answered with HTTP {f'{status} {ascii(reason)[1:-1]}'.strip()}"
    kind = response.headers.get("Content-Type", "")
    if is_good(response):
        sentence += f", of the type {kind[:_LONGEST_QUOTE]!a}," if kind else ", and nothing else,"
        sentence += " which is no answer to a message"
    elif _is_plain(response) and kind.startswith(("text/plain", _JSON)):
        sentence += _said(data)
    sentence += "" if sentence.endswith((".", "!", "?")) else "."
    if status in _GATEWAY:
        return RequestLost(sentence)
    if 300 <= status < 400:
        target = ascii(response.headers.get("Location", "")[:_LONGEST_QUOTE])
        sentence += f" It points to {target}, where a message cannot be sent: connect to the right address."
    asked = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    return HttpError(status, sentence + _HINTS.get(status, ""), www_authenticate=asked or None)


def _said(data: bytes) -> str:
    """What the body of a refusal says, in the words of its error if it is one."""
    item = decode_line(data)
    if isinstance(item, Error):
        words = repr(item.error.message[:_LONGEST_QUOTE])[1:-1]
    else:
        text = data[:_LONGEST_QUOTE].decode(errors="replace").strip()
        words = repr(text) if text else ""
    return words and f": {words}"


async def discard(response: aiohttp.ClientResponse) -> None:
    """Read the rest, if it comes at once and is small, so that the connection can be used again."""
    size = 0
    try:
        async with asyncio.timeout(_END_WITHIN):
            while size <= _MOST_DISCARDED and (chunk := await next_chunk(response)):
                size += len(chunk)
    except (TimeoutError, RequestLost):
        return  # It was not needed, and its connection will be closed.


def _kind(response: aiohttp.ClientResponse) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_plain(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Encoding", "identity").lower() == "identity"


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await next_chunk(response):
        size += len(chunk)
        if size > most:
            raise ProtocolError(f"The server's response is longer than the cap of {most} bytes, and was not read.")
        chunks.append(chunk)
    return b"".join(chunks)


# Server-sent events over HTTP, as one stream: it may go on in another response when one breaks off.


#: Seconds before a stream is opened again, if the server has not said how many; twice as many each time that it
#: brought nothing, but not more than the last.
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
#: The least of them, whatever the server has said; twice as many each time that there was no message, up to the first.
_SHORTEST_WAIT = 0.1
#: Seconds after which a silent response is looked at. If the length of a chunk is garbage, aiohttp closes the
#: connection, and does not tell whoever reads.
_LOOK_EVERY = 5.0


class Stream:
    """What is known of one stream, from one response to the next."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        #: The id of the last event, to go on from; empty if the stream cannot go on.
        self.last_event_id = ""
        #: How often in a row it was opened and brought nothing.
        self.failures = 0
        #: The same, and brought no more than empty events: it is there, and has no news.
        self._empty = 0
        self._retry: int | None = None

    async def read(self, response: aiohttp.ClientResponse, post: Post | None = None) -> None:
        """Pass on the messages, until this post is answered or the response ends.

        `RequestLost` if it ends in the middle; `ProtocolError` if, in answer to a post, an event is too long.
        """

        def take(event: Event | EventTooLong) -> bool:
            if isinstance(event, EventTooLong):
                self._inbox.pass_over(event)
                if post is not None:
                    raise ProtocolError(f"The server sent an event longer than the cap of {event.max_event} bytes.")
            elif event.event == "message" and event.data:
                self._inbox.take(event.data, post)
            return post is not None and not post.waiting

        await self.read_events(response, take)

    async def read_events(self, response: aiohttp.ClientResponse, take: Callable[[Event | EventTooLong], bool]) -> bool:
        """Hand each event to ``take`` until that has got enough. Whether the end came between two events."""
        decoder = EventDecoder(self._inbox.limits.max_event)
        now = asyncio.get_running_loop().time
        began = now()
        try:
            while chunk := await next_chunk(response):
                for event in decoder.feed(chunk):
                    self.failures = 0
                    if isinstance(event, EventTooLong) or event.data:
                        self._empty = 0
                    await self._inbox.flow()
                    if take(event):
                        return True
        finally:
            if now() - began > _LONGEST_WAIT:
                self.failures = 0  # It was open, and there was nothing to say.
            self.last_event_id = decoder.last_event_id or self.last_event_id
            self._retry = self._retry if decoder.retry is None else decoder.retry
        return decoder.end()

    async def wait(self) -> None:
        """Wait for the time to open it again: as long as the server has said, and longer each time in vain."""
        seconds = min(_FIRST_WAIT * 2 ** min(self.failures, 10), _LONGEST_WAIT)
        if self._retry is not None:
            if not self.failures:
                seconds = min(_SHORTEST_WAIT * 2 ** min(self._empty, 10), _FIRST_WAIT)
            seconds = max(seconds, self._retry / 1000)
        self.failures += 1
        self._empty += 1
        await asyncio.sleep(seconds)


async def next_chunk(response: aiohttp.ClientResponse) -> bytes:
    """Some more of the body; nothing at its end. `RequestLost` if it breaks off."""
    while True:
        try:
            async with asyncio.timeout(_LOOK_EVERY):
                return await response.content.readany()
        except TimeoutError as error:
            if response.connection is None or response.connection.closed:
                raise RequestLost("The HTTP response broke off: something in it was no HTTP.") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RequestLost(f"The HTTP response broke off: {error}.") from error

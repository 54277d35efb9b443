"""Read HTTP responses, and pass their messages to the receiver.

A response is a JSON message, a stream of server-sent events, or an error response. `Inbox` decodes the messages of all
responses of one connection and delivers them in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from contextlib import suppress

import aiohttp

from mcplumb.errors import HttpError, McplumbError, ProtocolError, RequestLost
from mcplumb.limits import Limits
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_client.connection_pool import fault
from mcplumb.transports.http_client.masking import masked, masked_message
from mcplumb.transports.http_client.post_queue import Post
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch, as_torn, decode_line, too_long
from mcplumb.wire.messages import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    Error,
    Message,
    RequestId,
    Result,
)
from mcplumb.wire.server_sent_events import Event, EventDecoder, EventTooLong

__all__ = [
    "EVENTS",
    "JSON_OR_EVENTS",
    "POST_REFUSED",
    "Inbox",
    "Stream",
    "discard",
    "has_words",
    "is_stream",
    "is_success",
    "next_chunk",
    "read_refusal",
    "receive",
    "refusal",
    "refuse",
    "token_id",
]


# --- Responses ---

_JSON = "application/json"
EVENTS = "text/event-stream"
#: The Accept header of a POST, as the protocol demands it.
JSON_OR_EVENTS = f"{_JSON}, {EVENTS}"

#: Seconds and bytes within which the unneeded rest of a response is read, so that its connection can be reused.
_DISCARD_TIMEOUT = 0.1
_MOST_DISCARDED = 64 * 1024
_LONGEST_QUOTE = 200
#: Bytes of a refusal's body that are searched for its words: an HTML page begins with a head.
_MOST_READ = 8 * 1024
#: Seconds that the body of a refusal may take, if its status alone is enough.
_QUOTE_TIMEOUT = 1.0

#: Statuses of a gateway without a usable response. Whether the server received the request is unknown.
_GATEWAY = frozenset((502, 503, 504))
#: The status of a server that cannot take a message at present.
_UNAVAILABLE = 503
#: Seconds before such a message is posted again: at least, if the server does not say, and at most.
_LEAST_PAUSE, _USUAL_PAUSE, _LONGEST_PAUSE = 0.1, 1.0, 30.0
#: Statuses that concern authentication. They are HTTP errors even with a JSON-RPC body: the headers say what to do.
_DENIED = frozenset((401, 403, 407))

#: Statuses with which a server of HTTP+SSE may refuse a POST to the URL of its stream.
POST_REFUSED = frozenset((400, 404, 405))
#: Codes with which a modern server may refuse a message of the legacy era.
_MODERN_ERRORS = frozenset((HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY, UNSUPPORTED_VERSION))

#: The methods of the first request to an address.
_HANDSHAKE = frozenset(("server/discover", "initialize"))
#: Statuses of a web server that has nothing at this path, and those of a server that does not accept the Host header.
_WRONG_PATH = frozenset((404, 405))
_WRONG_HOST = frozenset((403, 421))

_HINTS = {
    401: " Give a token that it accepts: connect(…, token=…). Or sign in: connect(…, auth=OAuth()).",
    403: " Perhaps it requires another token: connect(…, token=…), or another sign-in: connect(…, auth=OAuth()).",
    413: " The message is too large for it.",
    429: " Send fewer requests at a time.",
}


def is_success(response: aiohttp.ClientResponse) -> bool:
    """Return whether the status is a success."""
    return 200 <= response.status < 300


def is_stream(response: aiohttp.ClientResponse) -> bool:
    """Return whether the response is a success with a stream of events."""
    return is_success(response) and _kind(response) == EVENTS and _is_plain(response)


def has_words(response: aiohttp.ClientResponse) -> bool:
    """Return whether the body is for programs, as JSON or plain text, and not a page for people."""
    return _kind(response) in (_JSON, "text/plain") and _is_plain(response)


async def receive(response: aiohttp.ClientResponse, post: Post, inbox: Inbox, stream: Stream) -> None:
    """Pass the messages in the response to a post to the inbox. Raises if it is an error, or cannot be read."""
    if not is_success(response):
        await refuse(response, post, inbox)
    elif not post.waiting:
        await discard(response)
    elif not _is_plain(response):
        raise ProtocolError("The server has compressed its response, although it was asked not to.")
    elif _kind(response) == _JSON:
        data = await _read(response, inbox.limits.max_line)
        await inbox.wait_until_resumed()
        if _ends_by_closing(response) and inbox.is_torn(data):
            raise RequestLost("The HTTP response broke off in the middle of a message.")
        item = inbox.take(data, response.request_info, post)
        if post.waiting:
            detail = ". It does not answer the request."
            if isinstance(item, BadMessage):
                detail = f": {item.quoted}. {item.reason}"
            elif isinstance(item, Error):
                words = masked(response.request_info, item.error.message)[:_LONGEST_QUOTE]
                detail += f" It is error {item.error.code}: {words!a}."
            raise ProtocolError(f"The server's response cannot be used{detail}")
    elif _kind(response) == EVENTS:
        await stream.read(response, post)
        if not post.waiting:
            await discard(response)
    else:
        raise refusal(response)


async def refuse(response: aiohttp.ClientResponse, post: Post, inbox: Inbox) -> None:
    """Pass on the JSON-RPC error in an error response to the requests in a post; raise if it has none of either."""
    if response.status == _UNAVAILABLE:
        post.retry_after = _retry_after(response)
    is_json = _kind(response) == _JSON and _is_plain(response)
    try:
        data = await _read(response, inbox.limits.max_line if is_json else _MOST_DISCARDED)
    except McplumbError:
        data = b""  # The status is enough.
    # A server of HTTP+SSE may also refuse the POST with a JSON-RPC error, but not with one of the modern era.
    codes = _MODERN_ERRORS if post.is_initialize and response.status in POST_REFUSED else None
    is_error = is_json and response.status not in _DENIED and inbox.refuse(data, post, codes)
    if not (is_error and post.ids):
        raise refusal(response, data, is_first=post.method in _HANDSHAKE)


async def read_refusal(response: aiohttp.ClientResponse, *, is_first: bool = False) -> McplumbError:
    """Return the error for an error response, with the words in its body."""
    data = b""
    with suppress(McplumbError, TimeoutError):  # the status is enough
        async with asyncio.timeout(_QUOTE_TIMEOUT):
            data = b"" if is_success(response) else await _read(response, _MOST_DISCARDED)
    return refusal(response, data, is_first=is_first)


def refusal(response: aiohttp.ClientResponse, data: bytes = b"", *, is_first: bool = False) -> McplumbError:
    """Return the error for a response that is not the expected one; ``data`` is its body.

    ``is_first``: it refuses the first request to this address, so the address may be wrong.
    """
    status, reason = response.status, masked(response.request_info, response.reason or "")[:_LONGEST_QUOTE]
    sentence = f"The server answered with HTTP {f'{status} {ascii(reason)[1:-1]}'.strip()}"
    kind = masked(response.request_info, response.headers.get("Content-Type", ""))
    rpc_error = None
    if is_success(response):
        sentence += f", of the type {kind[:_LONGEST_QUOTE]!a}," if kind else ", and nothing else,"
        sentence += " which does not answer a message"
    elif _is_plain(response):
        item = decode_line(data) if _kind(response) == _JSON else None
        rpc_error = item.error if isinstance(item, Error) else None
        words = _body_words(response, data)
        if rpc_error is not None:
            words = repr(masked(response.request_info, rpc_error.message)[:_LONGEST_QUOTE])[1:-1]
        sentence += words and f": {words}"
    sentence += "" if sentence.endswith((".", "!", "?")) else "."
    if status in _GATEWAY:
        return RequestLost(sentence)
    if 300 <= status < 400:
        target = ascii(masked(response.request_info, response.headers.get("Location", ""))[:_LONGEST_QUOTE])
        sentence += f" It points to {target}, where a message cannot be sent: connect to the right address."
    elif is_first and status in _WRONG_PATH and rpc_error is None:
        sentence += " Is the path of the address right?"
    asked = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    hint = _HINTS.get(status, "")
    if status in _WRONG_HOST and not asked:
        hint = _host_hint(response) or hint
    sent = response.request_info.headers.get("Authorization")
    return HttpError(
        status,
        sentence + hint,
        www_authenticate=asked or None,
        token_id=None if sent is None else token_id(sent.partition(" ")[2]),
        answered=sentence,
    )


def token_id(access_token: str) -> str:
    """Return a text that tells tokens apart, without revealing them."""
    from hashlib import sha256

    return sha256(access_token.encode()).hexdigest()[:16]


def _host_hint(response: aiohttp.ClientResponse) -> str:
    """Name the host of the request if it is this machine: many local servers accept only one of its names."""
    from mcplumb.transports.http_server.origin import is_loopback  # only for this sentence

    host, sent = response.url.host or "", response.request_info.headers.get("Host", "")
    if not is_loopback(host):
        return ""
    other = "127.0.0.1" if host == "localhost" else "localhost"
    return f" The request named the Host {sent}, which it may not allow: try {other} in the address."


def _body_words(response: aiohttp.ClientResponse, data: bytes) -> str:
    """Return the text in the body of an error response, quoted; empty if there is none.

    Control characters are escaped, and what the request had to keep secret is masked: some servers echo the request.
    """
    import re

    text = data[:_MOST_READ].decode(errors="replace")
    if "\0" in text:
        return ""  # It is not a text.
    if "html" in _kind(response) or text.lstrip()[:1] == "<":
        text = re.sub(r"(?is)<(script|style|head)\b.*?(</\1\s*>|$)|<!--.*?(-->|$)|<[^>]*(>|$)", " ", text)
    text = " ".join(masked(response.request_info, text).split())
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…") if text else ""


def _retry_after(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _USUAL_PAUSE
    return min(max(seconds, _LEAST_PAUSE), _LONGEST_PAUSE)


async def discard(response: aiohttp.ClientResponse) -> None:
    """Read the rest if it is small and arrives at once, so that the connection can be reused."""
    size = 0
    try:
        async with asyncio.timeout(_DISCARD_TIMEOUT):
            while size <= _MOST_DISCARDED and (chunk := await next_chunk(response)):
                size += len(chunk)
    except (TimeoutError, RequestLost):
        return  # The connection is closed instead.


def _kind(response: aiohttp.ClientResponse) -> str:
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _is_plain(response: aiohttp.ClientResponse) -> bool:
    return response.headers.get("Content-Encoding", "identity").lower() == "identity"


def _ends_by_closing(response: aiohttp.ClientResponse) -> bool:
    """Return whether only the end of the connection ends the body, so that a part of it looks like the whole."""
    return "Content-Length" not in response.headers and "Transfer-Encoding" not in response.headers


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await next_chunk(response):
        size += len(chunk)
        if size > most:
            raise ProtocolError(f"The server's response is longer than the cap of {most} bytes, and was not read.")
        chunks.append(chunk)
    return b"".join(chunks)


# Streams of server-sent events


#: Seconds before a stream is opened again, unless the server has set a time; doubled after each attempt without an
#: event, up to the longest.
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
#: The shortest wait, whatever time the server has set; doubled after each attempt without a message, up to the first.
_SHORTEST_WAIT = 0.1
#: The longest wait that a server can set, in seconds. Without a bound it could end the stream for good.
_LONGEST_RETRY = 3600.0
#: Seconds between two checks of a silent response. After an invalid chunk length, aiohttp closes the connection
#: without waking the reader.
_CHECK_INTERVAL = 5.0


class Stream:
    """The state of one stream of events, which may continue in another response when one breaks off."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        #: The id of the last event, to resume from; empty if the stream cannot be resumed.
        self.last_event_id = ""
        #: The number of consecutive attempts without an event.
        self.failures = 0
        #: The number of consecutive attempts without a message; there may have been empty events.
        self._empty = 0
        #: The time that the server has set, in milliseconds.
        self._retry: int | None = None

    async def read(self, response: aiohttp.ClientResponse, post: Post | None = None) -> None:
        """Pass messages on until the post is answered or the response ends.

        Raises `RequestLost` if the response breaks off, and `ProtocolError` if an event in answer to a post is too
        long.
        """

        def take(event: Event | EventTooLong) -> bool:
            if isinstance(event, EventTooLong):
                self._inbox.report_too_long(event, response.request_info)
                if post is not None:
                    raise ProtocolError(f"The server sent an event longer than the cap of {event.max_event} bytes.")
            elif event.event == "message" and event.data:
                self._inbox.take(event.data, response.request_info, post)
            return post is not None and not post.waiting

        await self.read_events(response, take)

    async def read_events(self, response: aiohttp.ClientResponse, take: Callable[[Event | EventTooLong], bool]) -> bool:
        """Call ``take`` with each event until it returns True. Return whether the stream ended between two events."""
        decoder = EventDecoder(self._inbox.limits.max_event)
        now = asyncio.get_running_loop().time
        began = now()
        try:
            while chunk := await next_chunk(response):
                for event in decoder.feed(chunk):
                    self.failures = 0
                    if isinstance(event, EventTooLong) or event.data:
                        self._empty = 0
                    await self._inbox.wait_until_resumed()
                    if take(event):
                        return True
        finally:
            if now() - began > _LONGEST_WAIT:
                self.failures = 0  # It was open for long, only without events.
            self.last_event_id = decoder.last_event_id or self.last_event_id
            self._retry = self._retry if decoder.retry is None else decoder.retry
        return decoder.end()

    async def wait(self) -> None:
        """Wait before the next attempt: the time that the server has set, and longer after each failed attempt."""
        seconds = min(_FIRST_WAIT * 2 ** min(self.failures, 10), _LONGEST_WAIT)
        if self._retry is not None:
            if not self.failures:
                seconds = min(_SHORTEST_WAIT * 2 ** min(self._empty, 10), _FIRST_WAIT)
            seconds = max(seconds, min(self._retry / 1000, _LONGEST_RETRY))
        self.failures += 1
        self._empty += 1
        await asyncio.sleep(seconds)


async def next_chunk(response: aiohttp.ClientResponse) -> bytes:
    """Return the next bytes of the body, empty at its end; raise `RequestLost` if it breaks off."""
    while True:
        try:
            async with asyncio.timeout(_CHECK_INTERVAL):
                return await response.content.readany()
        except TimeoutError as error:
            # The loop may have been blocked for longer than that, and the rest of the body may be there.
            content = response.content
            if content.is_eof() or content.exception() is not None:
                continue
            if rest := content.read_nowait():
                return rest
            if response.connection is None or response.connection.closed:
                raise RequestLost("The HTTP response broke off: it is not valid HTTP.") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RequestLost(f"The HTTP response broke off: {fault(error)}.") from None


# --- The inbox ---


class Inbox:
    """Decodes and counts messages and passes them to the receiver in order, until ``shut``.

    The receiver is called from the loop, not from the task that has read a message: only there can it resume a waiting
    task at once.
    """

    def __init__(self, limits: Limits, trace: Trace | None) -> None:
        self._loop = asyncio.get_running_loop()
        self.limits = limits
        self.stats = Stats()
        self.trace = trace
        self._receiver: Receiver | None = None
        self._has_broken = self._has_ended = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    def open(self, receiver: Receiver) -> None:
        """Pass messages to this receiver from now on."""
        self._receiver = receiver

    def shut(self) -> None:
        """Drop messages from now on."""
        self._receiver = None
        self._flowing.set()

    def pause(self) -> None:
        """Make ``wait_until_resumed`` wait."""
        self._flowing.clear()

    def resume(self) -> None:
        """Make ``wait_until_resumed`` return at once."""
        self._flowing.set()

    async def wait_until_resumed(self) -> None:
        """Wait while the connection is paused. To be awaited before each ``take``."""
        if not self._flowing.is_set():
            await self._flowing.wait()

    def take(self, data: bytes, request: aiohttp.RequestInfo, post: Post | None = None) -> Message | BadMessage | Batch:
        """Decode one message in the response to a request and pass it on. Return the message.

        ``post`` is what it answers, if known.
        """
        if self.trace is not None:
            self.trace("in", data)
        self.stats.bytes_in += len(data)
        item = decode_line(data, True, self.limits.max_batch, Result)
        if isinstance(item, BadMessage | Batch):
            item = masked_message(request, item)
        self._pass_on(item, post)
        return item

    def is_torn(self, data: bytes) -> bool:
        """Return whether a body that may have been cut off is only a part of a message."""
        item = decode_line(data, True, self.limits.max_batch, Result)
        return isinstance(item, BadMessage) and as_torn(item).is_torn

    def refuse(self, data: bytes, post: Post, codes: Container[int] | None = None) -> bool:
        """Pass on the JSON-RPC error in the body of an HTTP error response. Return False if the body is none.

        With ``codes``, only these error codes count. The error is passed on for all requests of the post that wait,
        whatever its id: some servers omit it or send a placeholder.
        """
        item = decode_line(data, True, self.limits.max_batch, Result)
        if not isinstance(item, Error) or (codes is not None and item.error.code not in codes):
            return False
        if self.trace is not None:
            self.trace("in", data)
        self.stats.bytes_in += len(data)
        if post.on_refusal is not None:
            post.on_refusal(item.error)
        for request_id in list(post.waiting):
            self._pass_on(Error(request_id, item.error), post)
        return True

    def report_too_long(self, event: EventTooLong, request: aiohttp.RequestInfo) -> None:
        """Report an event in the response to a request that is too long."""
        if self.trace is not None:
            self.trace("in", event.head)
        self._pass_on(masked_message(request, too_long(event)), None)

    def fail(self, request_id: RequestId, error: McplumbError) -> None:
        """Report that a request gets no answer."""
        self._call_soon(lambda receiver: receiver.failed(request_id, error))

    def break_off(self, error: OSError) -> None:
        """Report, once, that nothing more can be sent."""
        if not self._has_broken:
            self._has_broken = True
            self._call_soon(lambda receiver: receiver.broke(error))

    def end(self, *, clean: bool) -> None:
        """Report, once, that nothing more will be received."""
        if not self._has_ended:
            self._has_ended = True
            self._call_soon(lambda receiver: receiver.ended(clean=clean))

    def _pass_on(self, item: Message | BadMessage | Batch, post: Post | None) -> None:
        if isinstance(item, BadMessage):
            self.stats.bad_lines += 1
        else:
            self.stats.messages_in += 1
        if post is not None:
            post.settle(item)
        self._call_soon(lambda receiver: receiver.received(item))

    def _call_soon(self, call: Callable[[Receiver], None]) -> None:
        self._loop.call_soon(self._call, call)

    def _call(self, call: Callable[[Receiver], None]) -> None:
        if self._receiver is not None:
            call(self._receiver)

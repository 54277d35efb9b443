"""One HTTP request and its response over ASGI."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, UnsetType

from mcplumb.transports.connection import StartedAwait
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import INVALID_REQUEST, Error, ErrorDetail, RequestId, encode_line

if TYPE_CHECKING:
    from mcplumb.protocol.principal import Principal

__all__ = [
    "JSON",
    "TEXT",
    "ClientDisconnected",
    "Event",
    "HttpRequest",
    "Receive",
    "Refusal",
    "Scope",
    "Send",
    "stopping",
]

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

_logger = logging.getLogger("mcplumb.http")

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

#: Seconds that a client has to take the end of a response that was broken off.
_FINISH_WITHIN = 1.0
#: Characters of a subject that are logged.
_LONGEST_LOGGED = 100
#: The digits of the largest Content-Length that is parsed.
_LONGEST_NUMBER = 18


class Refusal(Exception):
    """Raised to answer a request with this HTTP status, and with an error as its body: text, or JSON-RPC."""

    def __init__(
        self,
        status: int,
        error: ErrorDetail | str,
        *,
        request_id: RequestId | UnsetType = UNSET,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.status = status
        self.error = error
        self.request_id = request_id
        self.headers = tuple(headers)
        super().__init__(error if isinstance(error, str) else error.message)


def stopping() -> Refusal:
    """Return the refusal of a request while the server is stopping."""
    return Refusal(503, "The server is stopping.", headers=[(b"retry-after", b"1")])


class ClientDisconnected(Exception):
    """The client disconnected before it had sent its whole request."""


class HttpRequest:
    """One HTTP request, used by the task that the ASGI server started for it.

    ``path`` is the path within the application, which may be mounted below ``root_path``.
    """

    __slots__ = (
        "_body_timeout",
        "_expiry",
        "_gone",
        "_headers",
        "_is_complete",
        "_is_cut",
        "_receive",
        "_send",
        "_trace",
        "_watcher",
        "about",
        "common_headers",
        "has_responded",
        "method",
        "path",
        "principal",
        "root_path",
        "scope",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.root_path: str = scope.get("root_path", "")
        self.path = _within(scope["path"], self.root_path)
        self._headers: dict[bytes, bytes] = _gathered(scope["headers"])
        self._receive = receive
        self._send = send
        #: The timeout of the body, while it is being read.
        self._body_timeout: asyncio.Timeout | None = None
        self._is_cut = False
        self._trace: Trace | None = None
        self._gone: Callable[[], None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        #: Headers of every response to this request.
        self.common_headers: tuple[tuple[bytes, bytes], ...] = ()
        #: Whether a response has started.
        self.has_responded = False
        self._is_complete = False
        #: The authenticated user.
        self.principal: Principal | None = None
        #: For the access log: the message in the body, and the status of the response.
        self.about = ""
        self.status: int | None = None
        self._expiry: asyncio.TimerHandle | None = None

    # The request

    @property
    def client(self) -> str:
        """The address of the client, or of the proxy through which it came."""
        return ":".join(map(str, self.scope.get("client") or ("unknown",)))

    def trace_of(self, trace: Trace | None) -> Trace | None:
        """Return the trace for messages of this client; it names the client, if the trace can do that."""
        if self._trace is None:
            of_client = getattr(trace, "of_client", None)
            self._trace = trace if of_client is None else of_client(self.client)
        return self._trace

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None. Names are case-insensitive; several values are joined by commas."""
        value = self._headers.get(_KEYS.get(name) or _key(name))
        return None if value is None else value.decode("latin-1").strip(" \t")

    @property
    def headers(self) -> dict[str, str]:
        """All headers: names in lower case, several values of one name joined by commas."""
        return {name.decode("latin-1"): value.decode("latin-1").strip(" \t") for name, value in self._headers.items()}

    def accepts(self, media_type: str) -> bool:
        """Return whether the client accepts this media type; without an Accept header it accepts any."""
        accept = self.header("accept")
        if not accept or media_type in accept:
            # A client that names the type only to forbid it (q=0) does not occur.
            return True
        ranges = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
        return not ranges.isdisjoint((media_type, f"{media_type.partition('/')[0]}/*", "*/*"))

    @property
    def query(self) -> str:
        """The query string as it was sent, without the question mark."""
        return bytes(self.scope.get("query_string", b"")).decode("latin-1")

    async def body(self, *, max_bytes: int, within: float) -> bytes:
        """Return the whole body.

        Raises `Refusal` if it is too large or does not arrive in time, or `ClientDisconnected`.
        """
        length = self._headers.get(b"content-length", b"")
        if len(length) > _LONGEST_NUMBER or (length.isdigit() and int(length) > max_bytes):
            raise _too_large(max_bytes)
        # Mostly the whole body has arrived already, and needs no timer.
        first = StartedAwait(self._receive())
        if first.is_done and not first.value.get("more_body", False):
            return _chunk_of(first.value, max_bytes, 0)
        try:
            async with asyncio.timeout(within) as self._body_timeout:
                event = await first
                chunk = _chunk_of(event, max_bytes, 0)
                return await self._read_rest(chunk, max_bytes) if event.get("more_body", False) else chunk
        except TimeoutError:
            if self._is_cut:
                raise stopping() from None
            reason = f"The body of the request did not arrive within {within:g} s."
            raise Refusal(408, ErrorDetail(INVALID_REQUEST, reason)) from None
        finally:
            self._body_timeout = None

    def cut(self) -> None:
        """Refuse the request if its body is still being read, since the server is stopping."""
        if self._body_timeout is not None and not self._is_cut:
            self._is_cut = True
            self._body_timeout.reschedule(asyncio.get_running_loop().time())

    async def _read_rest(self, chunk: bytes, max_bytes: int) -> bytes:
        """Return the body that begins with this chunk, once all of it has arrived."""
        chunks = [chunk]
        size = len(chunk)
        while True:
            event = await self._receive()
            chunks.append(_chunk_of(event, max_bytes, size))
            size += len(chunks[-1])
            if not event.get("more_body", False):
                return b"".join(chunks)

    async def disconnected(self) -> None:
        """Wait until the client has disconnected, and discard what it still sends. Safe to cancel."""
        while (await self._receive())["type"] == "http.request":
            pass

    def watch(self, gone: Callable[[], None]) -> None:
        """Call ``gone`` once, from the loop, if the client disconnects before ``unwatch``.

        To be called after the body was read. Another call replaces the function.
        """
        self._gone = gone
        if self._watcher is None:
            # Not by `create_task`: an eager task would call `gone` here, if the client has disconnected already.
            self._watcher = asyncio.Task(self._watch(), loop=asyncio.get_running_loop())

    def unwatch(self) -> None:
        """Stop watching. May be called at any time."""
        self._gone = None
        if self._watcher is not None:
            self._watcher.cancel()

    def when_token_ends(self, end: Callable[[], None]) -> None:
        """Call ``end`` once, from the loop, when the token of the request ends; not after ``forget_token``.

        Does nothing if there is no such time. Another call replaces the function.
        """
        self.forget_token()
        principal = self.principal
        if principal is None or principal.expires_at is None or principal.expires_at == float("inf"):
            return
        left = max(principal.expires_at - time.time(), 0.0)
        self._expiry = asyncio.get_running_loop().call_later(left, self._end_with_token, end)

    def forget_token(self) -> None:
        """Do not watch the end of the token any more. May be called at any time."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _end_with_token(self, end: Callable[[], None]) -> None:
        self._expiry = None
        who = "a client" if self.principal is None else ascii(self.principal.subject[:_LONGEST_LOGGED])
        _logger.info("The access token of %s has ended, and so does its stream (%s %s).", who, self.method, self.path)
        end()

    async def _watch(self) -> None:
        await self.disconnected()
        if self._gone is not None:
            self._gone()

    # The response

    async def respond(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: bytes | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send a whole response; raise `OSError` if the client is known to have disconnected."""
        fields = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
        if content_type is not None:
            fields.append((b"content-type", content_type))
        fields.extend(headers)
        await self.begin(status, fields)
        await self.write(body, more=False)

    async def refuse(self, refusal: Refusal) -> None:
        """Send a refusal as the response."""
        error = refusal.error
        if isinstance(error, str):
            body, content_type = error.encode() + b"\n", TEXT
        else:
            body, content_type = encode_line(Error(refusal.request_id, error)), JSON
        await self.respond(refusal.status, body, content_type=content_type, headers=refusal.headers)

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the head of a response."""
        self.has_responded = True
        self.status = status
        fields = [*headers, *self.common_headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    @property
    def is_streaming(self) -> bool:
        """Whether the response has begun and not ended."""
        return self.has_responded and not self._is_complete

    async def write(self, data: bytes, *, more: bool) -> None:
        """Send a part of the body; wait while the ASGI server applies backpressure."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._is_complete = not more

    async def finish(self) -> None:
        """End a response that was broken off, since ASGI servers report unfinished ones. Bounded in time."""
        if self.has_responded and not self._is_complete:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_FINISH_WITHIN):
                    await self.write(b"", more=False)


def _chunk_of(event: Event, max_bytes: int, size: int) -> bytes:
    """Return the part of the body in an event; ``size`` bytes were read before it."""
    if event["type"] != "http.request":
        raise ClientDisconnected
    chunk: bytes = event.get("body", b"")
    if size + len(chunk) > max_bytes:
        raise _too_large(max_bytes)
    return chunk


def _key(name: str) -> bytes:
    """Return a header's name in the form of an ASGI scope."""
    return name.lower().encode("latin-1", "replace")


#: The keys of headers that are read in each request, encoded in advance.
_KEYS = {
    name: _key(name)
    for name in (
        "accept",
        "authorization",
        "content-type",
        "host",
        "origin",
        "mcp-name",
        "mcp-protocol-version",
        "MCP-Protocol-Version",
        "Mcp-Method",
        "Mcp-Name",
    )
}


def _too_large(max_bytes: int) -> Refusal:
    reason = f"The body of the request is larger than the cap of {max_bytes} bytes."
    return Refusal(413, ErrorDetail(INVALID_REQUEST, reason))


def _within(path: str, root_path: str) -> str:
    """Return the path below ``root_path``; ASGI servers differ in whether the path includes that prefix."""
    if root_path and path.startswith(root_path) and path[len(root_path) : len(root_path) + 1] in ("", "/"):
        return path[len(root_path) :]
    return path


def _gathered(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    pairs = list(headers)
    gathered = dict(pairs)
    if len(gathered) != len(pairs):
        # Joined, so that all code sees the same value and not the first in one place and the last in another.
        gathered.clear()
        for name, value in pairs:
            gathered[name] = gathered[name] + b", " + value if name in gathered else value
    return gathered

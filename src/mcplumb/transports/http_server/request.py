"""One HTTP request, and its answer, through the three things that ASGI gives: a scope, receive and send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType

from mcplumb.wire.messages import INVALID_REQUEST, Error, ErrorDetail, RequestId, encode_line

__all__ = ["JSON", "TEXT", "Event", "Gone", "HttpRequest", "Receive", "Refusal", "Scope", "Send", "stopping"]

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"


class Refusal(Exception):
    """This request is answered with this status, and with an error as its body: a text, or JSON-RPC."""

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
    """The server takes no more requests."""
    return Refusal(503, "The server is stopping.", headers=[(b"retry-after", b"1")])


class Gone(Exception):
    """The client went away before it had sent all of its request: there is nobody to answer."""


class HttpRequest:
    """One HTTP request. It belongs to the task that the ASGI server started for it.

    ``path`` is the path within the application, which may be mounted somewhere below ``root_path``.
    """

    __slots__ = (
        "_deadline",
        "_gone",
        "_headers",
        "_is_complete",
        "_is_cut",
        "_receive",
        "_send",
        "_watcher",
        "common_headers",
        "has_responded",
        "method",
        "path",
        "root_path",
        "scope",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.root_path: str = scope.get("root_path", "")
        self.path = _within(scope["path"], self.root_path)
        self._headers: dict[bytes, bytes] = _gathered(scope["headers"])
        self._receive = receive
        self._send = send
        #: Of the body, while somebody waits for it.
        self._deadline: asyncio.Timeout | None = None
        self._is_cut = False
        self._gone: Callable[[], None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        #: What any answer to this request has among its headers.
        self.common_headers: tuple[tuple[bytes, bytes], ...] = ()
        #: Whether an answer has begun.
        self.has_responded = False
        self._is_complete = False

    # What came

    def header(self, name: str) -> str | None:
        """The value of a header, whatever the case of its name; several of the same name as one, with commas."""
        value = self._headers.get(_KEYS.get(name) or _key(name))
        return None if value is None else value.decode("latin-1").strip(" \t")

    def accepts(self, media_type: str) -> bool:
        """Whether the client can read this type; one that says nothing about that can read any."""
        accept = self.header("accept")
        if not accept or media_type in accept:
            # Who names it and forbids it (q=0) has no reason to talk to this server.
            return True
        ranges = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
        return not ranges.isdisjoint((media_type, f"{media_type.partition('/')[0]}/*", "*/*"))

    @property
    def query(self) -> str:
        """What stands behind the question mark, as it was sent."""
        return bytes(self.scope.get("query_string", b"")).decode("latin-1")

    async def body(self, *, max_bytes: int, within: float) -> bytes:
        """The whole body. `Refusal` if it is too large or does not come in time, `Gone` if the client has left."""
        length = self._headers.get(b"content-length", b"")
        if len(length) > _LONGEST_NUMBER or (length.isdigit() and int(length) > max_bytes):
            raise _too_large(max_bytes)
        try:
            async with asyncio.timeout(within) as self._deadline:
                event = await self._receive()
                chunk = _chunk_of(event, max_bytes, 0)
                return await self._gather(chunk, max_bytes) if event.get("more_body", False) else chunk
        except TimeoutError:
            if self._is_cut:
                raise stopping() from None
            reason = f"The body of the request did not come within {within:g} s."
            raise Refusal(408, ErrorDetail(INVALID_REQUEST, reason)) from None
        finally:
            self._deadline = None

    def cut(self) -> None:
        """Whoever waits for the body waits no more: the server is stopping. Nothing happens if nobody does."""
        if self._deadline is not None and not self._is_cut:
            self._is_cut = True
            self._deadline.reschedule(asyncio.get_running_loop().time())

    async def _gather(self, chunk: bytes, max_bytes: int) -> bytes:
        """Return the body that begins with this, once all of it has come."""
        chunks = [chunk]
        size = len(chunk)
        while True:
            event = await self._receive()
            chunks.append(_chunk_of(event, max_bytes, size))
            size += len(chunks[-1])
            if not event.get("more_body", False):
                return b"".join(chunks)

    async def disconnected(self) -> None:
        """Wait until the client is gone. What it still sends is thrown away. Cancelling this harms nothing."""
        while (await self._receive())["type"] == "http.request":
            pass

    def watch(self, gone: Callable[[], None]) -> None:
        """Call ``gone``, once, from the loop, when the client goes away before ``unwatch``.

        Not before the body has been read. Called again, it replaces what is called.
        """
        self._gone = gone
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._watch())

    def unwatch(self) -> None:
        """Do so no more. May be called at any time."""
        self._gone = None
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self) -> None:
        await self.disconnected()
        if self._gone is not None:
            self._gone()

    # What goes back

    async def respond(
        self,
        status: int,
        body: bytes = b"",
        *,
        content_type: bytes | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer with a whole response. `OSError` if the client is known to be gone."""
        fields = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
        if content_type is not None:
            fields.append((b"content-type", content_type))
        fields.extend(headers)
        await self.begin(status, fields)
        await self.write(body, more=False)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with what a refusal says."""
        error = refusal.error
        if isinstance(error, str):
            body, content_type = error.encode() + b"\n", TEXT
        else:
            body, content_type = encode_line(Error(refusal.request_id, error)), JSON
        await self.respond(refusal.status, body, content_type=content_type, headers=refusal.headers)

    async def begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send the head of a response."""
        self.has_responded = True
        fields = [*headers, *self.common_headers]
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def write(self, data: bytes, *, more: bool) -> None:
        """Send some of the body of a response, and wait until the client has caught up so far as the server asks."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._is_complete = not more

    async def finish(self) -> None:
        """End a response that was given up before its end, which HTTP servers would complain about otherwise.

        A client that does not even take that gets no end.
        """
        if self.has_responded and not self._is_complete:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_FINISH_WITHIN):
                    await self.write(b"", more=False)


#: Seconds that a client has to take the end of a response that was given up.
_FINISH_WITHIN = 1.0
#: The digits of the largest content length that is looked at.
_LONGEST_NUMBER = 18


def _chunk_of(event: Event, max_bytes: int, size: int) -> bytes:
    """The next part of a body of which there are so many bytes already."""
    if event["type"] != "http.request":
        raise Gone
    chunk: bytes = event.get("body", b"")
    if size + len(chunk) > max_bytes:
        raise _too_large(max_bytes)
    return chunk


def _key(name: str) -> bytes:
    """A header's name as a server gives it."""
    return name.lower().encode("latin-1", "replace")


#: Of the headers that are looked for in each request.
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
    """A path without the prefix where the application is mounted; servers differ in whether it is part of it."""
    if root_path and path.startswith(root_path) and path[len(root_path) : len(root_path) + 1] in ("", "/"):
        return path[len(root_path) :]
    return path


def _gathered(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    pairs = list(headers)
    gathered = dict(pairs)
    if len(gathered) != len(pairs):
        # As one list, so that nobody sees the first of them here and another one there.
        gathered.clear()
        for name, value in pairs:
            gathered[name] = gathered[name] + b", " + value if name in gathered else value
    return gathered

"""``mcplumb tap --http``: stand in front of a server over HTTP, pass everything on, and record it.

Requests and responses pass with their headers, except those that belong to one connection. A request's body is passed
on when it is complete; a response as it comes, piece by piece, and its end, or that the client is gone, at once. Two
headers change. ``Host`` becomes that of the server; as that would defeat the server's own check of it, the tap checks
which names it is called by. ``Accept-Encoding`` keeps only the compressions that the recorder can read.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from mcplumb.limits import DEFAULT_LIMITS, MAX_RECORDED_LINE
from mcplumb.recording.recorder import Recorder
from mcplumb.recording.recording_format import Http, Record, Side, Target, line_record
from mcplumb.tap.request_spans import configured_spans
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.http_client.connection_pool import fault
from mcplumb.transports.http_server.asgi_request import HttpRequest, Receive, Refusal, Scope, Send
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.origin import OriginCheck
from mcplumb.transports.http_server.uvicorn_server import HttpListener
from mcplumb.wire.server_sent_events import Event, EventDecoder

if TYPE_CHECKING:
    import ssl

__all__ = ["HttpTap", "http_tap", "serve_http_tap"]

#: Headers of one connection, which are not passed on.
_OF_CONNECTION = frozenset((
    b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"host",
    b"content-length",
))  # fmt: skip
_EVENT_STREAM = "text/event-stream"
#: The compressions that are read for the recording.
_READABLE = frozenset(("gzip", "x-gzip", "deflate", "identity"))
#: Bytes of a compressed body that are expanded at once.
_PIECE = 1 << 20
#: Bytes of a request's body. A batch may have more than one line.
_MAX_BODY = 2 * DEFAULT_LIMITS.max_line
#: Seconds to reach the server.
_CONNECT_TIMEOUT = 30.0
_FINISH_WITHIN = 2.0


class HttpTap:
    """An ASGI application that passes requests on to a server, and records them."""

    def __init__(
        self,
        server: str,
        recorder: Recorder,
        headers: Iterable[tuple[str, str]] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        url = URL(server)
        self._tls = tls
        self._origin = f"{url.scheme}://{url.raw_authority}"
        self._recorder = recorder
        #: Headers that are added to each request.
        self._added = list(headers)
        self.options = HttpOptions()
        self._check = OriginCheck(self.options)
        self._session: aiohttp.ClientSession | None = None
        self._exchanges = 0
        self._running: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Open the connections to the server."""
        self._session = aiohttp.ClientSession(
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or True),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_TIMEOUT),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            read_bufsize=1 << 20,
            max_line_size=1 << 16,
            max_field_size=1 << 16,
        )

    async def close(self) -> None:
        """End all exchanges."""
        for task in self._running:
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and its response back."""
        try:
            self._check.check_host(HttpRequest(scope, receive, send))
        except Refusal as refusal:
            await _respond(send, refusal.status, str(refusal))
            return
        body, is_whole = await _read_body(receive)
        if len(body) > _MAX_BODY:
            await _respond(send, 413, f"The tap passes bodies of at most {_MAX_BODY} bytes.")
            return
        self._exchanges += 1
        exchange = _Exchange(self._recorder, self._exchanges)
        path = _path(scope)
        exchange.request(scope["method"], path, scope["headers"], body, is_whole=is_whole)
        if not is_whole:
            exchange.end("client")
            return
        passing = asyncio.ensure_future(self._pass_on(scope, path, body, send, exchange))
        gone = asyncio.ensure_future(_until_gone(receive))
        self._running.add(passing)
        try:
            await asyncio.wait((passing, gone), return_when=asyncio.FIRST_COMPLETED)
            if passing.cancelled():
                exchange.fail("The tap was ended.", None)
            elif passing.done():
                passing.result()
            else:
                exchange.end("client")
        finally:
            self._running.discard(passing)
            for task in (passing, gone):
                task.cancel()
            with suppress(asyncio.CancelledError, aiohttp.ClientError, OSError):
                await passing

    async def _pass_on(self, scope: Scope, path: str, body: bytes, send: Send, exchange: _Exchange) -> None:
        if self._session is None:
            raise RuntimeError("The tap is not open.")
        headers = CIMultiDict(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name.lower() not in _OF_CONNECTION
        )
        if "Accept-Encoding" in headers:
            headers["Accept-Encoding"] = _readable(headers.getall("Accept-Encoding"))
        for name, value in self._added:
            headers[name] = value
        has_body = bool(body) or any(name.lower() == b"content-length" for name, _ in scope["headers"])
        url = URL(f"{self._origin}{path}", encoded=True)
        begun = False
        try:
            async with self._session.request(
                scope["method"], url, headers=headers, data=body if has_body else None, allow_redirects=False
            ) as response:
                exchange.response(response.status, response.raw_headers)
                kept = [(name, value) for name, value in response.raw_headers if name.lower() not in _OF_CONNECTION]
                length = response.headers.get("Content-Length")
                if length is not None:
                    kept.append((b"content-length", length.encode()))
                await send(
                    {
                        "type": "http.response.start",
                        "status": response.status,
                        "headers": [(name.lower(), value) for name, value in kept],
                    }
                )
                begun = True
                async for chunk in response.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    exchange.chunk(chunk)
            exchange.end("server")
            await send({"type": "http.response.body", "body": b""})
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            exchange.fail(f"The server could not be reached, or ended the connection: {fault(error)}.")
            # A response that has begun is not completed, so the connection to the client is cut off, too.
            if not begun:
                await _respond(send, 502, f"The tap cannot reach the server: {fault(error)}.")


class _Exchange:
    """Records one request and its response."""

    def __init__(self, recorder: Recorder, number: int) -> None:
        self._recorder = recorder
        self._number = number
        self._events: EventDecoder | None = None
        self._head: Http | None = None
        self._body: list[bytes] = []
        self._kept = 0
        self._size = 0
        self._decode: Callable[[bytes], tuple[bytes, bytes]] | None = None
        self._has_ended = False

    def request(
        self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, is_whole: bool = True
    ) -> None:
        http = Http(exchange=self._number, method=method, path=path, headers=_pairs(headers))
        self._put("client", http, body, torn=not is_whole)

    def response(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        pairs = _pairs(headers)
        self._head = Http(exchange=self._number, status=status, headers=pairs)
        encoding = (self._head.header("content-encoding") or "").strip().lower()
        if encoding in ("gzip", "deflate", "x-gzip"):
            inflater = zlib.decompressobj(wbits=47 if "gzip" in encoding else 15)
            self._decode = lambda chunk: (inflater.decompress(chunk, _PIECE), inflater.unconsumed_tail)
        kind = (self._head.header("content-type") or "").partition(";")[0].strip().lower()
        if kind == _EVENT_STREAM:
            self._events = EventDecoder(DEFAULT_LIMITS.max_event)
            self._put("server", self._head)

    def chunk(self, chunk: bytes) -> None:
        """Record a part of the body."""
        while self._decode is not None:
            # In pieces: a compressed chunk may stand for a thousand times its size.
            try:
                piece, chunk = self._decode(chunk)
            except zlib.error:
                self._decode = None
                break
            self._take(piece)
            if not chunk and len(piece) < _PIECE:
                return
        self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        if self._events is not None:
            for event in self._events.feed(chunk):
                if isinstance(event, Event):
                    name = None if event.event == "message" else event.event
                    http = Http(exchange=self._number, event=name, event_id=event.id)
                    self._put("server", http, event.data, has_text=True)
            return
        self._size += len(chunk)
        if self._kept < MAX_RECORDED_LINE:
            self._body.append(chunk[: MAX_RECORDED_LINE - self._kept])
            self._kept += len(self._body[-1])

    def end(self, side: Side) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._put_body(torn=side == "client")
        if self._events is not None or side == "client":
            self._recorder.event("end_of_stream", sender=side, http=Http(exchange=self._number))

    def fail(self, reason: str, side: Side | None = "server") -> None:
        """Record that the exchange broke off, and which side caused it."""
        if self._has_ended:
            return
        self._has_ended = True
        self._put_body(torn=True)
        event = "disconnected" if self._head is None else "end_of_stream"
        self._recorder.event(event, sender=side, http=Http(exchange=self._number), reason=reason)

    def _put_body(self, *, torn: bool) -> None:
        """Record a response that is no stream."""
        if self._events is None and self._head is not None:
            body = b"".join(self._body)
            self._put("server", self._head, body, cut=self._size if self._size > len(body) else None, torn=torn)

    def _put(
        self,
        side: Side,
        http: Http,
        body: bytes = b"",
        *,
        has_text: bool = False,
        cut: int | None = None,
        torn: bool = False,
    ) -> None:
        t = self._recorder.now()
        if len(body) > MAX_RECORDED_LINE:
            body, cut = body[:MAX_RECORDED_LINE], len(body)
        if body or has_text:
            self._recorder.put(line_record(t, side, body, http=http, cut=cut, torn=torn), len(body))
        else:
            self._recorder.put(Record(t=t, sender=side, http=http), 0)


def _pairs(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def _path(scope: Scope) -> str:
    raw = scope.get("raw_path") or scope["path"].encode()
    query = scope.get("query_string", b"")
    path: str = raw.decode("latin-1").partition("?")[0]
    return f"{path}?{query.decode('latin-1')}" if query else path


def _readable(accepted: Iterable[str]) -> str:
    """Return the value of ``Accept-Encoding`` without the compressions that cannot be read."""
    given = [each.strip() for value in accepted for each in value.split(",")]
    return ", ".join(each for each in given if each.partition(";")[0].strip().lower() in _READABLE) or "identity"


async def _read_body(receive: Receive) -> tuple[bytes, bool]:
    """Return the body of a request, and whether it is complete; reading stops once it exceeds the limit."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(pieces), False
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > _MAX_BODY or not message.get("more_body"):
            return b"".join(pieces), True


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _respond(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sentence.encode()})


async def serve_http_tap(app: HttpTap, address: HttpAddress, on_ready: Callable[[str], object]) -> None:
    """Serve a tap at an address until this is cancelled; call ``on_ready`` with the address when it listens."""
    listener = await HttpListener.open(app, address)
    try:
        on_ready(str(listener.address))
        await asyncio.Event().wait()
    finally:
        await asyncio.shield(listener.close(within=_FINISH_WITHIN))


def http_tap(
    server: str,
    *,
    place: str | Path | None = None,
    masks: bool = True,
    keep: int | None = None,
    name: str = "",
    headers: Iterable[tuple[str, str]] = (),
    tls: ssl.SSLContext | None = None,
) -> tuple[HttpTap, Recorder]:
    """Return a tap in front of a server over HTTP, and its recorder, which the caller closes.

    ``headers`` are added to each request; ``tls`` is for a server with certificates of its own.
    """
    from mcplumb.config.entry import mask_url

    target = Target(url=mask_url(server) if masks else server)
    made = Recorder(
        "tap",
        "http",
        name=name or URL(server).host or "",
        target=target,
        place=place,
        masks=masks,
        keep=keep,
        watch=configured_spans("http", time.time()),
    )
    return HttpTap(server, made, headers, tls), made

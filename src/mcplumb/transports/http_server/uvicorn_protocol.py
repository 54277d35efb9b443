"""uvicorn's HTTP protocol, made wary: deadlines for slow clients, and caps on what one of them may take."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mcplumb.transports.http_server.options import HttpOptions

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

__all__ = ["WaryProtocol"]

_logger = logging.getLogger("mcplumb.http.uvicorn")
# It says so of every stream that was broken off, which is done on purpose.
_logger.addFilter(lambda record: "without completing response" not in str(record.msg))

#: Requests on one connection that wait for the answer to an earlier one. Hardly any client sends a second.
_MOST_PIPELINED = 16
#: Bytes of a body that are not worth being copied to save a write.
_WORTH_JOINING = 64 * 1024
#: Connections beyond the cap that are told so, all at once.
_MOST_REFUSED = 100
#: Seconds that a client that was refused has to read why.
_LINGER = 2.0
#: Headers of one request.
_MOST_HEADERS = 200


class WaryProtocol(HttpToolsProtocol):
    """One HTTP connection."""

    def __init__(self, config: Config, state: ServerState, options: HttpOptions) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _logger
        self.access_log = False
        self.timeout_keep_alive = options.next_within  # type: ignore[assignment] # any number of seconds will do
        self._options = options
        #: Done when the connection is closed.
        self.closed: asyncio.Future[None] = self.loop.create_future()
        #: The request that is being answered, or was the last to be.
        self._served: RequestResponseCycle | None = None
        #: Whether what comes is thrown away.
        self._is_deaf = False
        #: What is being read of a request.
        self._reading: Literal["nothing", "head", "body"] = "nothing"
        self._head_bytes = 0
        self._chunk_bytes = 0
        #: Of a request that wants an upgrade, the head without that wish, until it is read instead.
        self._plain_head = b""
        #: Until when something has to come, and until when something has to go.
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as above it
        """Take a connection, unless there are too many."""
        excess = len(self.connections) - self._options.max_connections
        super().connection_made(transport)
        if excess >= _MOST_REFUSED:
            transport.abort()
            return
        if excess >= 0:
            self._refuse(503, "There are too many connections. Try again later.")
            return
        self._corked = cast("asyncio.Transport", _Corked(transport, self.loop))
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with suppress(OSError):  # it may be gone again
                # So that a client is missed whose network is gone.
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._expect_within(self._options.header_within)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        if self._served is not None and not self._served.response_complete:
            # It may not be the latest request, which is the only one that is told.
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._stop_expecting()
        self._stop_watching_writes()
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Close when the last bytes have been written, or have not been in time."""
        self.transport.close()
        self._watch_writes()

    # What comes

    def data_received(self, data: bytes) -> None:
        """Read some of a request, or several of them."""
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        self._chunk_bytes = len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            reason = error.__context__
            if isinstance(reason, _Excess):
                self._refuse(431, str(reason))
            else:
                self._refuse(400, "This is not HTTP, or not as it should be.")
            return
        if self._reading == "head":
            self._head_bytes += len(data)
            if self._head_bytes > self._options.max_head:
                self._refuse(431, self._too_large())
            else:
                self._expect_within(self._options.header_within)
        elif self._reading == "nothing" and self._is_unused:
            # Such as an empty line.
            self._expect_within(self._options.header_within)

    def _parse(self, data: bytes) -> None:
        """Read on. A request that would rather speak something else than HTTP is read as one that would not."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as error:
                # The parser has stopped in front of the body, and begins anew.
                data, self._plain_head = self._plain_head + data[error.args[0] :], b""
            else:
                data = b""

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._reading = "head"
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """The head of a request is complete."""
        self._reading = "body"
        self._stop_expecting()
        if len(self.headers) > _MOST_HEADERS:
            raise _Excess(f"A request may have no more than {_MOST_HEADERS} headers.")
        if self._head_bytes + self._chunk_bytes > self._options.max_head:
            # Perhaps: something of the body may be in this chunk.
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self._options.max_head:
                raise _Excess(self._too_large())
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _Excess(f"No more than {_MOST_PIPELINED} requests may wait on one connection.")
        if self.parser.should_upgrade():
            self._plain_head = self._without_upgrade()
            return
        super().on_headers_complete()
        self.cycle.transport = self._corked
        # What looks like a header from now on stands behind the body.
        self.headers = _Trailers(self._options.max_head)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._reading = "nothing"
        if self._plain_head:
            return
        self._stop_expecting()
        super().on_message_complete()

    def _without_upgrade(self) -> bytes:
        """The head of the request as of one that wants to speak nothing but HTTP."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserInvalidMethodError("Nobody is connected to others here.")
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_unused(self) -> bool:
        return self._served is None or self._served.response_complete

    def _too_large(self) -> str:
        return f"The head of a request may have no more than {self._options.max_head} bytes."

    def _expect_within(self, seconds: float) -> None:
        """The request has to go on in this time. An earlier deadline stays."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._give_up)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self._reading == "head" and not self._is_deaf:
            self._refuse(408, "The head of the request did not come in time.")
        else:
            self.close()

    def _refuse(self, status: int, sentence: str) -> None:
        """Say why nothing more is read, unless that would be in the middle of a response, and close."""
        self._is_deaf = True
        self._stop_expecting()
        if not self._is_unused:
            self.close()
            return
        body = sentence.encode() + b"\n"
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        if self.transport.can_write_eof():
            # If the client is still sending, then to close would make the system take back what was just written.
            self.transport.write_eof()
            self._expect_within(_LINGER)
        else:
            self.close()

    # What goes

    def on_response_complete(self) -> None:
        """A response has been handed over to the transport."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_writes()
        elif self._reading == "body":
            # Somebody was refused before the end of the body, which is still read, so that the answer will be, too.
            self._expect_within(self._options.body_within)

    def timeout_keep_alive_handler(self) -> None:
        """No other request came in time."""
        self.close()

    def pause_writing(self) -> None:
        """Much waits to be read by the client."""
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        self._stop_watching_writes()

    def _watch_writes(self) -> None:
        """The client has to read something of what waits, again and again, until little or nothing does."""
        self._stop_watching_writes()
        waiting = self.transport.get_write_buffer_size()
        if waiting:
            self._write_deadline = self.loop.call_later(self._options.write_within, self._check_writes, waiting)

    def _stop_watching_writes(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _check_writes(self, waiting: int) -> None:
        if self.transport.get_write_buffer_size() < waiting:
            self._watch_writes()
        else:
            self.transport.abort()


class _Corked:
    """What a response is written to. Its head is held until the body comes, for no longer than a turn of the loop.

    Each write to a socket costs as much as a good part of a request.
    """

    __slots__ = ("_head", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write, or hold what is the first of several."""
        if self._head and len(data) < _WORTH_JOINING:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif self._head:
            self._flush()
            self._transport.write(data)
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close when all has been written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class _Trailers(list[tuple[bytes, bytes]]):
    """Headers behind a body, which are thrown away, and cannot be many."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._room = max_bytes

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Throw it away."""
        self._room -= len(header[0]) + len(header[1])
        if self._room < 0:
            raise _Excess("There are too many headers behind the body.")


class _Excess(Exception):
    """A request has more of something than it may."""

"""uvicorn's HTTP protocol, hardened: timeouts for slow clients, and limits on connections, headers and pipelining."""

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

from mcplumb.transports.http_server.http_options import HttpOptions

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

__all__ = ["HardenedProtocol"]

_logger = logging.getLogger("mcplumb.http.uvicorn")
# uvicorn logs this for every stream that breaks off, which is normal here.
_logger.addFilter(lambda record: "without completing response" not in str(record.msg))

#: Pipelined requests that may wait on one connection. Hardly any client sends a second.
_MOST_PIPELINED = 16
#: Bytes of a body from which on copying it costs more than a second write.
_WORTH_JOINING = 64 * 1024
#: Concurrent connections above the limit that get a response; others are closed at once.
_MOST_REFUSED = 100
#: Seconds that a refused client has to read the response.
_LINGER = 2.0
#: The most headers of one request.
_MOST_HEADERS = 200


class HardenedProtocol(HttpToolsProtocol):
    """One HTTP connection, with timeouts and limits."""

    def __init__(self, config: Config, state: ServerState, options: HttpOptions) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _logger
        self.access_log = False
        self.timeout_keep_alive = options.next_within  # type: ignore[assignment] # a float works as well
        self._options = options
        #: Done when the connection is closed.
        self.closed: asyncio.Future[None] = self.loop.create_future()
        #: The request that is being served, or was the last one.
        self._served: RequestResponseCycle | None = None
        #: Whether further input is discarded.
        self._ignores_input = False
        #: The part of a request that is being read.
        self._reading: Literal["nothing", "head", "body"] = "nothing"
        self._head_bytes = 0
        self._chunk_bytes = 0
        #: The head of a request that asked for an upgrade, without the Upgrade header, to be parsed instead.
        self._plain_head = b""
        #: The timers for input and for output.
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as above it
        """Accept the connection, unless there are too many."""
        excess = len(self.connections) - self._options.max_connections
        super().connection_made(transport)
        if excess >= _MOST_REFUSED:
            transport.abort()
            return
        if excess >= 0:
            self._refuse(503, "There are too many connections. Try again later.")
            return
        self._corked = cast("asyncio.Transport", _CorkedTransport(transport, self.loop))
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with suppress(OSError):  # it may be closed again
                # Notices clients whose network is gone.
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._expect_input(self._options.header_within)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the request that is being served, and release everything."""
        if self._served is not None and not self._served.response_complete:
            # uvicorn notifies only the latest request, which may be another, pipelined one.
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._stop_expecting_input()
        self._stop_watching_output()
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Close when the last bytes are written, or after the write timeout."""
        self.transport.close()
        self._watch_output()

    # Input

    def data_received(self, data: bytes) -> None:
        """Parse a chunk of input, which may contain a part of a request or several requests."""
        if self._ignores_input:
            return
        self._unset_keepalive_if_required()
        self._chunk_bytes = len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            reason = error.__context__
            if isinstance(reason, _LimitExceeded):
                self._refuse(431, str(reason))
            else:
                self._refuse(400, "This is not valid HTTP.")
            return
        if self._reading == "head":
            self._head_bytes += len(data)
            if self._head_bytes > self._options.max_head:
                self._refuse(431, self._too_large())
            else:
                self._expect_input(self._options.header_within)
        elif self._reading == "nothing" and self._is_idle:
            # Empty lines, for instance, must not extend the time.
            self._expect_input(self._options.header_within)

    def _parse(self, data: bytes) -> None:
        """Parse a chunk. Requests for an upgrade to another protocol are parsed as ordinary ones."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as error:
                # The parser has stopped before the body, and starts anew with the next head.
                data, self._plain_head = self._plain_head + data[error.args[0] :], b""
            else:
                data = b""

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._reading = "head"
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Check the head of a request, which is complete, and serve the request."""
        self._reading = "body"
        self._stop_expecting_input()
        if len(self.headers) > _MOST_HEADERS:
            raise _LimitExceeded(f"A request may have no more than {_MOST_HEADERS} headers.")
        if self._head_bytes + self._chunk_bytes > self._options.max_head:
            # Count exactly: the chunk may contain some of the body.
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self._options.max_head:
                raise _LimitExceeded(self._too_large())
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _LimitExceeded(f"No more than {_MOST_PIPELINED} requests may wait on one connection.")
        if self.parser.should_upgrade():
            self._plain_head = self._without_upgrade()
            return
        super().on_headers_complete()
        self.cycle.transport = self._corked
        # Headers that are parsed from now on are trailers.
        self.headers = _Trailers(self._options.max_head)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._reading = "nothing"
        if self._plain_head:
            return
        self._stop_expecting_input()
        super().on_message_complete()

    def _without_upgrade(self) -> bytes:
        """Return the head of the request without its Upgrade header."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserInvalidMethodError("CONNECT is not supported.")
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        version = self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_idle(self) -> bool:
        return self._served is None or self._served.response_complete

    def _too_large(self) -> str:
        return f"The head of a request may have no more than {self._options.max_head} bytes."

    def _expect_input(self, within: float) -> None:
        """Start the timer for input, unless it runs already."""
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(within, self._input_timed_out)

    def _stop_expecting_input(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _input_timed_out(self) -> None:
        if self._reading == "head" and not self._ignores_input:
            self._refuse(408, "The head of the request did not arrive in time.")
        else:
            self.close()

    def _refuse(self, status: int, sentence: str) -> None:
        """Send an error response, unless another response is in progress, and close. Input is discarded."""
        self._ignores_input = True
        self._stop_expecting_input()
        if not self._is_idle:
            self.close()
            return
        body = sentence.encode() + b"\n"
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % len(body) + body)
        if self.transport.can_write_eof():
            # If the socket were closed while the client still sends, the system could discard the response.
            self.transport.write_eof()
            self._expect_input(_LINGER)
        else:
            self.close()

    # Output

    def on_response_complete(self) -> None:
        """Start the timers that apply after a response."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch_output()
        elif self._reading == "body":
            # The request was refused before its end. Its body is still read, so that the client reads the response.
            self._expect_input(self._options.body_within)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection."""
        self.close()

    def pause_writing(self) -> None:
        """Apply backpressure, and start the write timeout."""
        super().pause_writing()
        self._watch_output()

    def resume_writing(self) -> None:
        """Release backpressure, and stop the write timeout."""
        super().resume_writing()
        self._stop_watching_output()

    def _watch_output(self) -> None:
        """Abort the connection if the client reads nothing within ``write_within`` seconds, repeatedly."""
        self._stop_watching_output()
        buffered = self.transport.get_write_buffer_size()
        if buffered:
            self._write_timer = self.loop.call_later(self._options.write_within, self._check_output, buffered)

    def _stop_watching_output(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_output(self, buffered: int) -> None:
        if self.transport.get_write_buffer_size() < buffered:
            self._watch_output()
        else:
            self.transport.abort()


class _CorkedTransport:
    """A transport that joins the head of a response with its body, so that both are sent by one system call.

    The head is held back for one iteration of the loop at most.
    """

    __slots__ = ("_head", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write the data; hold it back if it is the head of a response."""
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
        """Close after all data is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class _Trailers(list[tuple[bytes, bytes]]):
    """Headers after a body, which are dropped, and limited in size."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._room = max_bytes

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Count the header and drop it."""
        self._room -= len(header[0]) + len(header[1])
        if self._room < 0:
            raise _LimitExceeded("There are too many headers after the body.")


class _LimitExceeded(Exception):
    """A request exceeds a limit."""

"""uvicorn's HTTP protocol, hardened: timeouts for slow clients, and limits on connections, headers and pipelining.

A POST that comes in one piece, with a head that was accepted before, is not parsed, and the application gets it without
a task and without ASGI events. Most are answered at once, with one write. If there is more to do, a request is made for
it as the parser makes one, and it goes on as any other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mcplumb.transports.http_server.asgi_request import HttpRequest
from mcplumb.transports.http_server.exchange import DirectPost
from mcplumb.transports.http_server.origin import is_loopback
from mcplumb.transports.http_server.repeated_heads import CheckedHead, RepeatedHeads

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

    from mcplumb.transports.http_server.asgi_app import HttpApp
    from mcplumb.transports.http_server.uvicorn_server import ListenedApp

__all__ = ["HardenedProtocol"]

_logger = logging.getLogger("mcplumb.http.uvicorn")
# uvicorn logs this for every stream that breaks off, which is normal here.
_logger.addFilter(lambda record: "without completing response" not in str(record.msg))

#: Pipelined requests that may wait on one connection. Further ones are not parsed until one of these is answered.
_MOST_PIPELINED = 16
#: Bytes of a chunk of input that are parsed at once. The parser cannot stop after a request, so this bounds how many
#: more may wait: the shortest has 18 bytes. A body of known length is parsed in one go.
_SLICE = 1024
#: Bytes of a body from which on copying it costs more than a second write.
_WORTH_JOINING = 64 * 1024
#: Seconds that a refused client has to read the response.
_LINGER = 2.0
#: The most headers of one request.
_MOST_HEADERS = 200


class HardenedProtocol(HttpToolsProtocol):
    """One HTTP connection, with timeouts and limits.

    ``made`` is called when it is open, and returns whether it is refused. ``idle`` has the connections that serve no
    request, and since when, the longest idle first; the owner may `shed` them. ``heads`` has the heads of requests that
    were accepted before, by whether their connections came over the loopback interface.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        app: ListenedApp,
        idle: dict[HardenedProtocol, float],
        heads: dict[bool, RepeatedHeads],
        made: Callable[[], bool],
    ) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _logger
        self.access_log = False
        self._options = app.options
        self.timeout_keep_alive = app.options.next_within  # type: ignore[assignment] # a float works as well
        #: The application. Others than `HttpApp` get ASGI events only.
        self._app = cast("HttpApp", app)
        self._idle = idle
        self._heads_by_locality = heads
        self._heads: RepeatedHeads | None = None
        #: The head of the latest request that was served without ASGI events, and the request while it waits.
        self._head: CheckedHead | None = None
        self._post: DirectPost | None = None
        self._made = made
        #: Done when the connection is closed.
        self.closed: asyncio.Future[None] = self.loop.create_future()
        #: The request that is being served, or was the last one.
        self._served: RequestResponseCycle | None = None
        #: Whether further input is discarded.
        self._ignores_input = False
        #: The error response that follows the other responses, before the connection is closed.
        self._refusal: tuple[int, str] | None = None
        #: Input after as many requests as may wait.
        self._unparsed = b""
        #: The part of a request that is being read.
        self._reading: Literal["nothing", "head", "body"] = "nothing"
        self._head_bytes = 0
        self._slice_bytes = 0
        self._body_bytes = 0
        #: The head of a request that asked for an upgrade, without the Upgrade header, to be parsed instead.
        self._plain_head = b""
        #: The timers for input and for output.
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as above it
        """Accept the connection, unless there are too many."""
        is_refused = self._made()
        super().connection_made(transport)
        self.flow = self._flow = _HoldableFlow(transport)
        self._corked = _CorkedTransport(transport, self.loop)
        if is_refused:
            self._refuse(503, "There are too many connections. Try again later.")
            return
        self._idle[self] = self.loop.time()
        # An answer to a repeated head has no headers of the server's, which are none until it drains.
        if self.server is not None and hasattr(self._app, "check_head") and not self.server_state.default_headers:
            # Whether a head is accepted depends on nothing else of the connection.
            is_local = is_loopback(self.server[0])
            self._heads = self._heads_by_locality.setdefault(is_local, RepeatedHeads(self._app.check_head))
        connected = transport.get_extra_info("socket")
        if connected is not None:
            with suppress(OSError):  # it may be closed again
                # Notices clients whose network is gone.
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._expect_input(self._options.header_within)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the request that is being served, and release everything."""
        post, self._post = self._post, None
        if post is not None:
            post.disconnected()
        if self._served is not None and not self._served.response_complete:
            # uvicorn notifies only the latest request, which may be another, pipelined one.
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)
        self._idle.pop(self, None)
        self._unparsed = b""
        self._unset_keepalive_if_required()
        self._stop_expecting_input()
        self._stop_watching_output()
        if not self.closed.done():
            self.closed.set_result(None)

    def close(self) -> None:
        """Close when the last bytes are written, or after the write timeout."""
        self.transport.close()
        self._watch_output()

    def shed(self) -> None:
        """Close an idle connection at once, to make room for another."""
        self.connections.discard(self)
        self._idle.pop(self, None)
        self.transport.abort()

    # Input

    def data_received(self, data: bytes) -> None:
        """Parse a chunk of input, which may contain a part of a request or several requests."""
        if self._ignores_input:
            return
        heads = self._heads
        if self._post is not None:
            self._post.serve()  # a request that follows waits for its response
        elif heads is not None and self._reading == "nothing" and self._is_idle and not self._unparsed:
            found = heads.find(data)
            if found is not None:
                head, body, session = found
                self._head = head
                if not self.flow.write_paused and (
                    self._app.begin_in_session(head, body, session, self, self.loop)
                    if session
                    else self._app.begin_post(head, body, self, self.loop)
                ):
                    return
                heads = None
        else:
            heads = None
        self._unset_keepalive_if_required()
        if self._unparsed:
            self._unparsed += data
            return
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            reason = error.__context__
            if isinstance(reason, _Refused):
                self._refuse(reason.status, str(reason))
            else:
                self._refuse(400, "This is not valid HTTP.")
            return
        if heads is not None and self._reading == "nothing" and self._served is not None and self.cycle is self._served:
            heads.learn(data, cast("Any", self.scope))
        if self._reading == "head" or (self._reading == "nothing" and self._is_idle):
            # Empty lines, for instance, must not extend the time.
            self._expect_input(self._options.header_within)

    def _parse(self, data: bytes) -> None:
        """Parse a chunk, as far as its requests may wait.

        Requests for an upgrade to another protocol are parsed as ordinary ones.
        """
        start, end = 0, len(data)
        while start < end:
            if len(self.pipeline) >= _MOST_PIPELINED:
                self._unparsed = data[start:]
                self._flow.hold()
                return
            stop = min(end, start + self._slice_size()) if end - start > _SLICE else end
            self._slice_bytes = stop - start
            try:
                self.parser.feed_data(data if stop - start == end else memoryview(data)[start:stop])
            except httptools.HttpParserUpgrade as error:
                # The parser has stopped before the body, and starts anew with the next head.
                data, self._plain_head = self._plain_head + data[start + error.args[0] :], b""
                start, end = 0, len(data)
                continue
            if self._reading == "head":
                self._head_bytes += stop - start
                if self._head_bytes > self._options.max_head:
                    self._refuse(431, self._too_large())
                    return
            start = stop

    def _slice_size(self) -> int:
        """Return how many of the next bytes may be parsed at once."""
        if self._reading == "body":
            length = dict(self.scope["headers"]).get(b"content-length", b"0")
            return max(int(length) - self._body_bytes, 0) or _SLICE
        return _SLICE

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._reading = "head"
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Check the head of a request, which is complete, and serve the request."""
        self._stop_expecting_input()
        if len(self.headers) > _MOST_HEADERS:
            raise _Refused(431, f"A request may have no more than {_MOST_HEADERS} headers.")
        if self._head_bytes + self._slice_bytes > self._options.max_head:
            # Count exactly: the slice may contain some of the body.
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self._options.max_head:
                raise _Refused(431, self._too_large())
        if b"transfer-encoding" in dict(self.headers):
            self._check_transfer_codings()
        if self.parser.should_upgrade():
            self._plain_head = self._without_upgrade()
            return
        super().on_headers_complete()
        self._reading = "body"
        self._body_bytes = 0
        self._idle.pop(self, None)
        self.cycle.transport = cast("asyncio.Transport", self._corked)
        # Headers that are parsed from now on are trailers.
        self.headers = _Trailers(self._options.max_head)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record the end of a request."""
        self._reading = "nothing"
        if self._plain_head:
            return
        self._stop_expecting_input()
        super().on_message_complete()

    def _check_transfer_codings(self) -> None:
        """Raise `_Refused` unless the body is chunked and nothing else."""
        values = [value for name, value in self.headers if name == b"transfer-encoding"]
        codings = [coding.strip(b" \t").lower() for coding in b",".join(values).split(b",")]
        if codings[-1] != b"chunked":
            raise _Refused(400, "The end of the body cannot be known: its last transfer coding must be chunked.")
        if len(codings) > 1:
            raise _Refused(501, "The only transfer coding that is supported is chunked.")

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

    # Requests without ASGI events: the exchange of a `DirectPost`

    def waits(self, post: DirectPost) -> None:
        """Record that the connection serves a request."""
        self._post = post
        self._idle.pop(self, None)
        self._stop_expecting_input()
        self._app.keep_waiting(post)

    def answered(self, post: DirectPost) -> bool:
        """Write the answer."""
        status, body = cast("tuple[int, bytes]", post.answer_to_send)
        if not self._app.release(post):
            return False
        self._post = None
        head = b"%bcontent-length: %d%b" % (STATUS_LINE[status], len(body), cast("CheckedHead", self._head).fields)
        if len(body) < _WORTH_JOINING:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)
        self._idle.pop(self, None)
        self._idle[self] = self.loop.time()
        if self._read_timer is not None:
            self._stop_expecting_input()
        if self.timeout_keep_alive_task is None:
            self._keep_alive_for(self.timeout_keep_alive)
        return True

    def serve(self, post: DirectPost) -> HttpRequest:
        """Go on with a request as if it had been parsed."""
        self._post = None
        self._app.keep_waiting(post)
        head = cast("CheckedHead", self._head)
        self._idle.pop(self, None)
        self._stop_expecting_input()
        self._unset_keepalive_if_required()
        scope = head.request.scope
        self.scope = cast("Any", {**scope, "server": self.server, "client": self.client, "state": {}})
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=cast("asyncio.Transport", self._corked),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        self.cycle.more_body = False
        self.cycle.disconnected = self.closed.done() or post.is_gone
        cycle = cast("Any", self.cycle)
        request = HttpRequest(cycle.scope, cycle.receive, cycle.send)
        request.common_headers = head.request.common_headers
        self._start_asgi_task(self.cycle, cast("Any", partial(self._go_on, request, post)))
        return request

    async def _go_on(self, request: HttpRequest, post: DirectPost, *_: object) -> None:
        await self._app.serve_begun(request, post)

    def drain(self) -> None:
        """Let all responses have the headers that the server adds from now on."""
        self._heads = None
        if self._post is not None:
            self._post.serve()

    def shutdown(self) -> None:
        """Close the connection after the response to the request that it serves."""
        if self._post is not None:
            self._post.serve()
        super().shutdown()

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
        """Send an error response after the responses to earlier requests, and close. Input is discarded."""
        self._ignores_input = True
        self._unparsed = b""
        self._flow.release()
        self._stop_expecting_input()
        self._idle.pop(self, None)
        self._refusal = status, sentence
        if self._reading == "body":
            self._give_up_body()
        if self._is_idle:
            self._send_refusal()

    def _give_up_body(self) -> None:
        """End the request whose body cannot be read, and leave its response to `_send_refusal`."""
        broken = self.cycle
        if self.pipeline and self.pipeline[0][0] is broken:
            self.pipeline.popleft()
        elif broken.response_started:
            self._refusal = None  # a second response would be taken for that to another request
        else:
            broken.disconnected = broken.response_complete = True
            broken.message_event.set()

    def _send_refusal(self) -> None:
        if self._refusal is None:
            self.close()
            return
        status, sentence = self._refusal
        self._refusal = None
        self._corked.flush()
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
        elif self._ignores_input:
            if self._is_idle:
                self._unset_keepalive_if_required()
                self._send_refusal()
        else:
            if self._unparsed:
                data, self._unparsed = self._unparsed, b""
                self._flow.release()
                self.data_received(data)
            if self._is_idle and not self._ignores_input:
                self._idle[self] = self.loop.time()
                if self._reading == "body":
                    # The request was refused before its end. Its body is read, so that the client reads the response.
                    self._expect_input(self._options.body_within)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that has been idle for long enough."""
        # Requests without ASGI events leave the timer as it is: to set it again for each would cost more than to look.
        left = self._idle.get(self, self.loop.time()) + self.timeout_keep_alive - self.loop.time()
        if self._post is not None or left > 0:
            self._keep_alive_for(left)
        else:
            self.close()

    def _keep_alive_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

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
            self.flush()
            self._transport.write(data)
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self.flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close after all data is written."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Write a head that is held back."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class _HoldableFlow(FlowControl):
    """Flow control that can be held: nothing is read then, even if a request waits for input."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_held = False

    def hold(self) -> None:
        """Stop reading until `release`."""
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Read again."""
        self._is_held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Read again, unless held."""
        if not self._is_held:
            super().resume_reading()


class _Trailers(list[tuple[bytes, bytes]]):
    """Headers after a body, which are dropped, and limited in size."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._room = max_bytes

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Count the header and drop it."""
        self._room -= len(header[0]) + len(header[1])
        if self._room < 0:
            raise _Refused(431, "There are too many headers after the body.")


class _Refused(Exception):
    """A request is refused with this status, because it exceeds a limit or cannot be served."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status

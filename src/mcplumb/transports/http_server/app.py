"""What an application keeps open between requests: from its start to its end, or only from the first request on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import copy_context
from typing import TypeAlias

import msgspec

from mcplumb.errors import DecodeError, UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.http_headers import ParamHeaders, check_headers, decode_field
from mcplumb.revisions import Revision, find_revision, newest_first
from mcplumb.transports.connection import Peer, Serve
from mcplumb.transports.http_server.bearer import WELL_KNOWN, Tokens
from mcplumb.transports.http_server.modern_post import Exchange
from mcplumb.transports.http_server.options import MESSAGES_PATH, SSE_PATH, HttpOptions
from mcplumb.transports.http_server.origin import Guards
from mcplumb.transports.http_server.request import JSON, Gone, HttpRequest, Receive, Refusal, Scope, Send, stopping
from mcplumb.transports.http_server.session_table import Sessions
from mcplumb.transports.http_server.sse_session import SsePairs
from mcplumb.transports.line_connection import Trace
from mcplumb.types.base import Payload
from mcplumb.types.meta import PROTOCOL_VERSION, UnsupportedVersionData
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    Message,
    Notification,
    Request,
)

__all__ = ["HttpApp", "Lifetime"]

_logger = logging.getLogger("mcplumb.http")


# What an application keeps open between requests: from its start to its end, or only from the first request on.


class Lifetime:
    """One time of being open, in one event loop. A task of its own enters and leaves what is held,
    with the context variables of whoever makes it.
    """

    def __init__(self, held: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        #: Where it is.
        self.loop = asyncio.get_running_loop()
        #: Whether it is over, or never began.
        self.is_over = False
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._released: asyncio.Future[None] = self.loop.create_future()
        self._task = self.loop.create_task(self._hold(held))

    @property
    def is_open(self) -> bool:
        """Whether it has begun, and is not over."""
        return self._opened.done() and not self.is_over

    async def opened(self) -> None:
        """Wait until it has begun. What went wrong is raised here. Cancelling this harms nothing."""
        await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Leave what is held. May be called again. Cancelling this harms nothing."""
        if not self._released.done():
            self._released.set_result(None)
        await asyncio.shield(self._task)

    async def _hold(self, held: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        try:
            async with held():
                self._opened.set_result(None)
                await self._released
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # whoever waited may have left
        finally:
            self.is_over = True


# The ASGI application: where each HTTP request is checked, and brought to those who serve its era.


#: Serves a request that has been let in, and whose sender, if that had to be said, is this one.
_Handler: TypeAlias = Callable[[HttpRequest, str | None], Awaitable[None]]

#: A modern client of which nothing else is known.
_MODERN = Peer(era="modern")
_STREAM = "text/event-stream"


class _Place(msgspec.Struct, frozen=True):
    """What is at one path."""

    methods: tuple[str, ...]
    handler: _Handler
    #: Whether anybody may ask.
    is_public: bool = False

    @property
    def allowed(self) -> str:
        return ", ".join((*self.methods, "OPTIONS"))


class HttpApp:
    """An ASGI 3 application that serves all its clients with ``serve``. It runs in one event loop at a time.

    ``held`` keeps open what all requests share: from the host's lifespan event on or, where there is none, from the
    first request on. ``param_headers`` says, by the name of a tool, what it wants to see in headers.
    """

    _sessions: Sessions
    _pairs: SsePairs

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        limits: Limits,
        revisions: Sequence[Revision],
        held: Callable[[], AbstractAsyncContextManager[None]],
        param_headers: Callable[[str], ParamHeaders | None],
        trace: Trace | None = None,
    ) -> None:
        #: What was set for it.
        self.options = options
        self._serve = serve
        self._limits = limits
        self._revisions = newest_first(revisions)
        self._modern = [revision.name for revision in self._revisions if revision.is_modern]
        self._has_sessions = any(revision.has_session_ids for revision in self._revisions)
        self._held = held
        self._param_headers = param_headers
        self._trace = trace
        self._guards = Guards(options)
        self._tokens = Tokens(options)
        self._places = self._find_places()
        self._context = copy_context()
        self._lifetime: Lifetime | None = None
        self._is_closing = False
        #: What is being answered.
        self._requests: set[HttpRequest] = set()
        self._exchanges: set[Exchange] = set()
        #: Set when the last exchange has ended, if somebody waits for that.
        self._emptied: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or follow the host's lifespan."""
        kind = scope["type"]
        if kind == "http":
            await self._answer(HttpRequest(scope, receive, send))
        elif kind == "lifespan":
            await self._live(receive, send)
        else:
            raise UsageError(f"mcplumb serves HTTP, and not {kind!r}.")

    # From its start to its end

    async def open(self) -> None:
        """Open what all requests share. What goes wrong is raised, and tried again by the next request."""
        lifetime = self._lifetime
        if lifetime is None or lifetime.is_over or lifetime.loop is not asyncio.get_running_loop():
            # What outlives a request does not run among the variables of that request.
            lifetime = self._lifetime = self._context.copy().run(self._begin)
        await lifetime.opened()

    def _begin(self) -> Lifetime:
        self._is_closing = False
        self._exchanges = set()
        self._sessions = Sessions(self._serve, options=self.options, revisions=self._revisions, trace=self._trace)
        self._pairs = SsePairs(self._serve, options=self.options, limits=self._limits, trace=self._trace)
        return Lifetime(self._held)

    async def close(self) -> None:
        """End all streams and sessions, and finish what was accepted; what comes meanwhile is refused, and so is what
        has not come in full. A request after the end opens everything again.

        Cancelled, it leaves that to be done: it may be called again, also by several at once.
        """
        lifetime = self._lifetime
        if lifetime is None or lifetime.loop is not asyncio.get_running_loop():
            return
        self._is_closing = True
        for request in self._requests:
            request.cut()
        for exchange in list(self._exchanges):
            exchange.end_input()
        await asyncio.gather(self._sessions.close(), self._pairs.close())
        if self._exchanges:
            if self._emptied is None or self._emptied.done():
                self._emptied = lifetime.loop.create_future()
            await asyncio.shield(self._emptied)
        await lifetime.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Follow the host: it says when to start and when to stop."""
        for event, step in (("startup", self.open), ("shutdown", self.close)):
            await receive()
            try:
                await step()
            except Exception as error:
                _logger.exception("The %s of the server failed.", event)
                await send({"type": f"lifespan.{event}.failed", "message": str(error)})
                return
            await send({"type": f"lifespan.{event}.complete"})

    # One HTTP request

    def _find_places(self) -> dict[str, _Place]:
        """By its path without the last slash, what is served."""
        options = self.options
        path = options.path.rstrip("/")
        places = {path: _Place(("GET", "POST", "DELETE") if self._has_sessions else ("POST",), self._serve_endpoint)}
        if options.sse and any(revision.has_http_sse for revision in self._revisions):
            places[SSE_PATH] = _Place(("GET",), self._open_pair)
            places[MESSAGES_PATH] = _Place(("POST",), self._post_to_pair)
        if options.authorization_servers:
            places[WELL_KNOWN] = places[f"{WELL_KNOWN}{path}"] = _Place(("GET",), self._tell_metadata, is_public=True)
        return places

    async def _answer(self, request: HttpRequest) -> None:
        try:
            await self._route(request)
        except Gone:
            return
        except Refusal as error:
            refusal = error
        except Exception as error:
            if isinstance(error, OSError) and request.has_responded:
                return  # the client has left
            _logger.exception("%s %s failed.", request.method, request.path)
            refusal = Refusal(500, ErrorDetail(INTERNAL_ERROR, "The server failed, and its log says how."))
        else:
            await request.finish()
            return
        if not request.has_responded:
            with suppress(OSError):  # nobody is there to be told
                await request.refuse(refusal)

    async def _route(self, request: HttpRequest) -> None:
        place = self._places.get(request.path.rstrip("/"))
        if place is None:
            raise Refusal(404, f"There is nothing here: the MCP endpoint is at {request.root_path}{self.options.path}.")
        self._guards.check_host(request)
        principal = None
        if place.is_public:
            request.common_headers = ((b"access-control-allow-origin", b"*"),)
        else:
            self._guards.check_origin(request)
        if request.method == "OPTIONS":
            await self._guards.answer_preflight(request, place.allowed.encode())
            return
        if self._tokens.are_needed and not place.is_public:
            principal = await self._tokens.principal(request)
        if request.method not in place.methods:
            sentence = f"{request.method} is not answered here: only {place.allowed}."
            raise Refusal(405, ErrorDetail(INVALID_REQUEST, sentence), headers=[(b"allow", place.allowed.encode())])
        lifetime = self._lifetime
        if lifetime is None or not lifetime.is_open or lifetime.loop is not asyncio.get_running_loop():
            await self.open()
        self._check_open()
        self._requests.add(request)
        try:
            await place.handler(request, principal)
        finally:
            self._requests.discard(request)

    def _check_open(self) -> None:
        if self._is_closing:
            raise stopping()

    async def _open_pair(self, request: HttpRequest, principal: str | None) -> None:
        await self._pairs.get(request, principal)

    async def _post_to_pair(self, request: HttpRequest, principal: str | None) -> None:
        await self._pairs.post(request, principal)

    async def _tell_metadata(self, request: HttpRequest, _: str | None) -> None:
        await request.respond(200, self._tokens.metadata(request), content_type=JSON)

    # The MCP endpoint

    async def _serve_endpoint(self, request: HttpRequest, principal: str | None) -> None:
        if request.method == "GET":
            await self._sessions.get(request, principal)
            return
        if request.method == "DELETE":
            await self._sessions.delete(request, principal)
            return
        _check_media_types(request)
        body = await request.body(max_bytes=self._limits.max_line, within=self.options.body_within)
        self._check_open()
        if self._trace is not None:
            self._trace("in", body)
        item = decode_line(body, True, self._limits.max_batch, Request)
        if self._is_modern(request, item):
            await self._serve_modern(request, item, principal, len(body))
        else:
            await self._sessions.post(request, item, principal)

    def _is_modern(self, request: HttpRequest, item: Message | BadMessage | Batch) -> bool:
        if not self._modern or not self._has_sessions:
            return bool(self._modern)
        revision = find_revision(request.header("mcp-protocol-version"))
        return (revision is not None and revision.is_modern) or _has_modern_meta(item)

    async def _serve_modern(
        self, request: HttpRequest, item: Message | BadMessage | Batch, principal: str | None, size: int
    ) -> None:
        if isinstance(item, BadMessage):
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        if not isinstance(item, Request | Notification):
            what = "a batch" if isinstance(item, Batch) else "a response"
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, f"A request or a notification may be posted, not {what}."))
        if isinstance(item, Request):
            self._check_request(request, item)
        exchange = Exchange(request, item, size=size, options=self.options, trace=self._trace)
        self._exchanges.add(exchange)
        try:
            await self._serve(exchange, _MODERN if principal is None else Peer("modern", principal))
        finally:
            exchange.abort()
            self._exchanges.discard(exchange)
            if self._emptied is not None and not self._exchanges and not self._emptied.done():
                self._emptied.set_result(None)
        if not (request.has_responded or exchange.is_gone):
            raise Refusal(503, "The server stopped before there was an answer.")

    def _check_request(self, request: HttpRequest, message: Request) -> None:
        """`Refusal` if the headers do not fit the body, or the answer could not be read."""
        if message.method == "initialize" and not self._has_sessions and not _has_modern_meta(message):
            # The sentence may be all that the user of an old client gets to see.
            sentence = (
                f"This server takes requests in protocol version {', '.join(self._modern)} only, without initialize."
            )
            detail = ErrorDetail(UNSUPPORTED_VERSION, sentence, UnsupportedVersionData(self._modern))
            raise Refusal(400, detail, request_id=message.id)
        params = None
        if message.method == "tools/call":
            with suppress(DecodeError):  # which is found again below
                params = self._param_headers(decode_field(request.header("mcp-name") or ""))
        error = check_headers(request.header, message, params)
        if error is not None:
            raise Refusal(400, error, request_id=message.id)
        if message.method == "subscriptions/listen" and not request.accepts(_STREAM):
            error = ErrorDetail(INVALID_REQUEST, f"A subscription needs a client that accepts {_STREAM}.")
            raise Refusal(406, error, request_id=message.id)


def _check_media_types(request: HttpRequest) -> None:
    media_type = request.header("content-type") or ""
    if media_type.partition(";")[0].strip().lower() != "application/json":
        # Also if it is missing: a web page can send that to any server without asking.
        sentence = f"The body must be application/json, and its type is {media_type[:100]!r}."
        raise Refusal(415, ErrorDetail(INVALID_REQUEST, sentence))
    if not request.accepts("application/json"):
        sentence = f"The client must accept application/json, and should accept {_STREAM}."
        raise Refusal(406, ErrorDetail(INVALID_REQUEST, sentence))


class _Meta(Payload, frozen=True):
    version: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=PROTOCOL_VERSION)


class _Params(Payload, frozen=True):
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


_decode_params = msgspec.json.Decoder(_Params).decode


def _has_modern_meta(item: object) -> bool:
    """Whether a request says itself which version it is in, as only modern ones do."""
    if not isinstance(item, Request):
        return False
    try:
        meta = _decode_params(item.params).meta
    except (TypeError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return meta is not None and meta.version is not msgspec.UNSET

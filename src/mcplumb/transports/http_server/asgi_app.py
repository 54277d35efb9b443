"""The ASGI application: checks each HTTP request and routes it to the connection that serves its era."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import msgspec

from mcplumb._fast import is_switched_off
from mcplumb.errors import DecodeError, StoreUnavailable, UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.http_headers import ParamHeaders, RepeatedHeaders, check_headers, decode_field
from mcplumb.protocol.principal import Principal
from mcplumb.revisions import Revision, find_revision, newest_first
from mcplumb.transports.connection import Peer, Serve
from mcplumb.transports.http_server.app_lifetime import Lifetime, SignalWatch
from mcplumb.transports.http_server.asgi_request import (
    JSON,
    ClientDisconnected,
    HttpRequest,
    Receive,
    Refusal,
    Scope,
    Send,
    stopping,
)
from mcplumb.transports.http_server.auth.bearer import WELL_KNOWN, BearerAuth, NeededScopes
from mcplumb.transports.http_server.exchange import DirectPost, Exchange
from mcplumb.transports.http_server.http_options import (
    HEALTH_PATH,
    MESSAGES_PATH,
    METRICS_PATH,
    READY_PATH,
    SSE_PATH,
    HttpOptions,
)
from mcplumb.transports.http_server.legacy_post import SessionPost, busy
from mcplumb.transports.http_server.modern_post import AsgiExchange, ModernPost, PostSessions
from mcplumb.transports.http_server.origin import OriginCheck, names_address
from mcplumb.transports.http_server.repeated_heads import CheckedHead
from mcplumb.transports.http_server.session_table import LegacySessions
from mcplumb.transports.http_server.sse_session import SseSessions
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

if TYPE_CHECKING:
    from mcplumb.stores.replica import Replica

__all__ = ["HttpApp", "HttpMetrics"]

_logger = logging.getLogger("mcplumb.http")
_access = logging.getLogger("mcplumb.http.access")
#: The level of the access log at which the start of a request is logged as well.
_DETAIL = 5
#: Headers that are logged there. None of them is a secret; a session's id is.
_LOGGED_HEADERS = ("host", "origin", "user-agent", "accept", "content-length", "mcp-protocol-version", "last-event-id")
#: Characters of a client's text that are logged.
_LONGEST_LOGGED = 100


# The application


#: Seconds after a signal in which no request opens the application again: the process is about to end.
_ENDING = 30.0

#: Serves a request that has passed all checks; the second argument is its principal, if it is authenticated.
_Handler: TypeAlias = Callable[[HttpRequest, Principal | None], Awaitable[None]]

#: A modern client that is not authenticated.
_MODERN = Peer(era="modern", is_remote=True)
_STREAM = "text/event-stream"
#: The text format of Prometheus.
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"


async def _no_events(*_: object) -> Any:
    """Stand in for the ASGI events of a request of which only the head is used."""


class _Route(msgspec.Struct, frozen=True):
    """The handler of one path."""

    methods: tuple[str, ...]
    handler: _Handler
    #: Whether it needs no token.
    is_open: bool = False
    #: Whether it needs no token, and web pages of all origins may use it.
    is_public: bool = False
    #: Whether it is answered while the application is closed or closing as well.
    is_probe: bool = False
    #: Whether the Host may be any IP address. Orchestrators and Prometheus ask by address.
    takes_addresses: bool = False

    @property
    def allowed(self) -> str:
        return ", ".join((*self.methods, "OPTIONS"))


class HttpMetrics(Protocol):
    """Counts for ``/metrics``."""

    async def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""

    def refused_http(self, status: int) -> None:
        """Count an HTTP request that was refused."""


class HttpApp:
    """An ASGI 3 application that serves each connection with ``serve``. It runs in one event loop at a time.

    ``held`` is the context manager of what all requests share. It is entered by ``lifespan``, at the lifespan event of
    the ASGI server or, without these, at the first request; it is left at their end, when a signal ends the process, or
    with the event loop. ``param_headers`` returns, for the name of a tool, the arguments that
    clients also send as headers, ``needed_scopes`` returns the scopes that a request needs, ``health`` more to
    tell at ``/health`` than that the process lives, and ``readiness`` why the server cannot take requests, if so.
    With a ``replica``, legacy requests that wait for their clients have ``stop_within`` seconds when it closes.
    """

    _sessions: LegacySessions[Any]
    _sse_sessions: SseSessions

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        limits: Limits,
        revisions: Sequence[Revision],
        held: Callable[[], AbstractAsyncContextManager[None]],
        param_headers: Callable[[str], ParamHeaders | None],
        needed_scopes: NeededScopes = lambda _: (),
        health: Callable[[], Mapping[str, Any]] = dict,
        readiness: Callable[[], Awaitable[Mapping[str, str]]] | None = None,
        metrics: HttpMetrics | None = None,
        replica: Replica | None = None,
        stop_within: float = 0.0,
        trace: Trace | None = None,
    ) -> None:
        #: The options it was created with.
        self.options = options
        #: This process among those that share a store, if there is one.
        self.replica = replica
        self._stop_within = stop_within
        self._serve = serve
        self._post_sessions: PostSessions | None = None
        self._limits = limits
        self._revisions = newest_first(revisions)
        self._modern = [revision.name for revision in self._revisions if revision.is_modern]
        self._has_sessions = any(revision.has_session_ids for revision in self._revisions)
        self._held = held
        self._param_headers = param_headers
        self._health = health
        self._readiness = readiness
        self._metrics = metrics
        self._trace = trace
        self._is_logged = _access.isEnabledFor(logging.DEBUG)
        self._origin_check = OriginCheck(options)
        self._needed_scopes = needed_scopes
        self._bearer = BearerAuth(options, needed_scopes)
        self._routes = self._make_routes()
        self._context = copy_context()
        self._lifetime: Lifetime | None = None
        self._is_closing = False
        self._watch: SignalWatch | None = None
        #: Until when no request opens the application again, by the clock of the event loop.
        self._ending_until = 0.0
        #: The requests that are being served.
        self._requests: set[HttpRequest] = set()
        self._modern_posts: set[ModernPost] = set()
        #: Done when the last post has ended; None while no task waits for that.
        self._idle: asyncio.Future[None] | None = None

    def answer_with(self, sessions: PostSessions) -> None:
        """Let these sessions answer modern requests; ``serve`` gets only those that need a task.

        ``MCPLUMB_PLAIN=taskless_posts`` turns this off, and with it all that depends on it: ``serve`` gets all of them.
        """
        if not is_switched_off("taskless_posts"):
            self._post_sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, or the lifespan of the ASGI server."""
        kind = scope["type"]
        if kind == "http":
            request = HttpRequest(scope, receive, send)
            await (self._answer_logged(request) if self._is_logged else self._answer(request))
        elif kind == "lifespan":
            await self._serve_lifespan(receive, send)
        else:
            raise UsageError(f"mcplumb serves HTTP, not {kind!r}.")

    # Start and end

    @asynccontextmanager
    async def lifespan(self, _parent: object = None) -> AsyncIterator[None]:
        """Keep the application open, as the lifespan of a framework: ``Starlette(lifespan=app.lifespan)``."""
        await self.open()
        self._watch_signals(comes_first=False)
        try:
            yield
        finally:
            await self.close()

    async def open(self) -> None:
        """Open what all requests share. If that raises, the next request tries again."""
        lifetime = self._lifetime
        if lifetime is None or lifetime.is_over or lifetime.loop is not asyncio.get_running_loop():
            # It outlives the request that opens it, so it must not run with the context variables of that request.
            lifetime = self._lifetime = self._context.copy().run(self._begin)
        await lifetime.opened()

    def _begin(self) -> Lifetime:
        self._is_logged = _access.isEnabledFor(logging.DEBUG)
        self._is_closing = False
        self._watch = None
        self._ending_until = 0.0
        self._modern_posts = set()
        if self.replica is None:
            self._sessions = LegacySessions(
                self._serve, options=self.options, revisions=self._revisions, trace=self._trace
            )
        else:
            from mcplumb.transports.http_server.shared_sessions import SharedSessions

            self._sessions = SharedSessions(
                self._serve,
                options=self.options,
                revisions=self._revisions,
                limits=self._limits,
                replica=self.replica,
                stop_within=self._stop_within,
                trace=self._trace,
            )
        self._sse_sessions = SseSessions(
            self._serve,
            options=self.options,
            limits=self._limits,
            check=self._bearer.check_scopes,
            replica=self.replica,
            trace=self._trace,
        )
        return Lifetime(self._held if self.replica is None else partial(self._joined, self.replica))

    @asynccontextmanager
    async def _joined(self, replica: Replica) -> AsyncIterator[None]:
        """Hold the state that all requests share, as one of the replicas."""
        await replica.open()
        self._bearer.share(replica.store)
        try:
            async with self._held():
                yield
        finally:
            self._bearer.share(None)
            await replica.close()

    async def close(self) -> None:
        """End all streams and sessions, and finish the accepted requests.

        New requests, and those whose body is incomplete, are refused meanwhile. A later request opens the application
        again. Safe to cancel; may be called again, and by several tasks at once.
        """
        try:
            await self._close()
        finally:
            await self._bearer.close()

    async def _close(self) -> None:
        lifetime = self._lifetime
        if lifetime is None or lifetime.loop is not asyncio.get_running_loop():
            return
        self._is_closing = True
        for request in self._requests:
            request.cut()
        for post in list(self._modern_posts):
            post.end_input()
        await asyncio.gather(self._sessions.close(), self._sse_sessions.close())
        if self._modern_posts:
            if self._idle is None or self._idle.done():
                self._idle = lifetime.loop.create_future()
            await asyncio.shield(self._idle)
        if self._watch is not None:
            self._watch.release()
        await lifetime.close()

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        """Open and close when the ASGI server says so."""
        event = "startup"
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                event = "shutdown"
                await receive()
        except Exception as error:
            _logger.exception("The %s of the server failed.", event)
            await send({"type": f"lifespan.{event}.failed", "message": str(error)})
        else:
            await send({"type": "lifespan.shutdown.complete"})

    async def _open_by_request(self) -> None:
        if asyncio.get_running_loop().time() < self._ending_until:
            raise stopping()
        await self.open()
        if self._watch is None:
            self._watch_signals(comes_first=True)

    def _watch_signals(self, *, comes_first: bool) -> None:
        self._watch = SignalWatch(self._close_for_good, comes_first=comes_first)

    async def _close_for_good(self) -> None:
        self._ending_until = asyncio.get_running_loop().time() + _ENDING
        await self.close()

    @property
    def open_streams(self) -> int:
        """How many responses are streams of events that have not ended."""
        return sum(request.is_streaming for request in self._requests)

    @property
    def legacy_sessions(self) -> dict[str, int]:
        """How many legacy sessions there are, by their transport."""
        if self._lifetime is None:
            return {}
        return {"streamable_http": len(self._sessions), "http_sse": len(self._sse_sessions)}

    # One HTTP request

    def _make_routes(self) -> dict[str, _Route]:
        """Return the routes by their paths, without a trailing slash."""
        options = self.options
        path = options.path.rstrip("/")
        routes = {path: _Route(("GET", "POST", "DELETE") if self._has_sessions else ("POST",), self._serve_endpoint)}
        if options.sse and any(revision.has_http_sse for revision in self._revisions):
            routes[SSE_PATH] = _Route(("GET",), self._open_sse)
            routes[MESSAGES_PATH] = _Route(("POST",), self._post_to_sse)
        routes.setdefault(
            HEALTH_PATH, _Route(("GET", "HEAD"), self._serve_health, is_open=True, is_probe=True, takes_addresses=True)
        )
        routes.setdefault(
            READY_PATH, _Route(("GET", "HEAD"), self._serve_ready, is_open=True, is_probe=True, takes_addresses=True)
        )
        if self._metrics is not None:
            is_open = options.metrics == "open"
            routes.setdefault(METRICS_PATH, _Route(("GET",), self._serve_metrics, is_open, takes_addresses=True))
        if self._bearer.issuers:
            routes[WELL_KNOWN] = routes[f"{WELL_KNOWN}{path}"] = _Route(("GET",), self._serve_metadata, is_public=True)
        return routes

    async def _answer_logged(self, request: HttpRequest) -> None:
        """Serve a request, and log it: at its start with details, if these are wanted, and at its end."""
        if _access.isEnabledFor(_DETAIL):
            fields = {name: request.header(name) for name in _LOGGED_HEADERS}
            details = ", ".join(f"{name} {_quoted(value)}" for name, value in fields.items() if value is not None)
            _access.log(_DETAIL, "%s %s %s began: %s", request.client, request.method, _quoted(request.path), details)
        began = time.perf_counter()
        try:
            await self._answer(request)
        finally:
            _access.debug(
                "%s %s %s %s %s %.1f ms",
                request.client,
                "-" if request.principal is None else _quoted(request.principal.subject),
                request.method,
                request.about or _quoted(request.path),
                request.status or "disconnected",
                (time.perf_counter() - began) * 1000,
            )

    async def _answer(self, request: HttpRequest, serving: Coroutine[Any, Any, None] | None = None) -> None:
        """Serve a request, and respond with the refusal if one is raised."""
        try:
            await (self._route(request) if serving is None else serving)
        except ClientDisconnected:
            return
        except Refusal as error:
            refusal = error
        except StoreUnavailable as error:
            refusal = busy(str(error), seconds=1)
        except Exception as error:
            if isinstance(error, OSError) and request.has_responded:
                return  # the client has disconnected
            _logger.exception("%s %s failed.", request.method, request.path)
            refusal = Refusal(500, ErrorDetail(INTERNAL_ERROR, "The server failed; see its log."))
        else:
            await request.finish()
            return
        if self._metrics is not None:
            self._metrics.refused_http(refusal.status)
        if not request.has_responded:
            with suppress(OSError):  # the client has disconnected
                await request.refuse(refusal)

    async def _route(self, request: HttpRequest) -> None:
        route = self._routes.get(request.path.rstrip("/"))
        if route is None or not (route.takes_addresses and names_address(request)):
            self._origin_check.check_host(request)
        principal = None
        if route is not None and route.is_public:
            request.common_headers = ((b"access-control-allow-origin", b"*"),)
        else:
            self._origin_check.check_origin(request)
        if route is None:
            raise Refusal(404, f"There is nothing here: the MCP endpoint is at {request.root_path}{self.options.path}.")
        if request.method == "OPTIONS":
            await self._origin_check.answer_preflight(request, route.allowed.encode())
            return
        if self._bearer.are_needed and not (route.is_public or route.is_open):
            principal = request.principal = await self._bearer.principal(request)
        if request.method not in route.methods:
            sentence = f"{request.method} is not allowed here. Use {route.allowed}."
            raise Refusal(405, ErrorDetail(INVALID_REQUEST, sentence), headers=[(b"allow", route.allowed.encode())])
        if route.is_probe:
            await route.handler(request, principal)
            return
        lifetime = self._lifetime
        if lifetime is None or not lifetime.is_open or lifetime.loop is not asyncio.get_running_loop():
            await self._open_by_request()
        self._check_open()
        self._requests.add(request)
        try:
            await route.handler(request, principal)
        finally:
            request.forget_token()
            self._requests.discard(request)

    def _check_open(self) -> None:
        if self._is_closing:
            raise stopping()

    async def _open_sse(self, request: HttpRequest, principal: Principal | None) -> None:
        await self._sse_sessions.get(request, principal)

    async def _post_to_sse(self, request: HttpRequest, principal: Principal | None) -> None:
        await self._sse_sessions.post(request, principal)

    async def _serve_metadata(self, request: HttpRequest, _: Principal | None) -> None:
        await request.respond(200, self._bearer.metadata(request), content_type=JSON)

    async def _serve_health(self, request: HttpRequest, _: Principal | None) -> None:
        # Details are for those who may use the server.
        details = {} if self._bearer.are_needed else self._health()
        await request.respond(200, msgspec.json.encode({"status": "ok", **details}), content_type=JSON)

    async def _serve_ready(self, request: HttpRequest, _: Principal | None) -> None:
        """Answer whether the server is ready. Like any request, this opens an application that is not open yet."""
        failures: Mapping[str, str]
        try:
            self._check_open()
            if self._lifetime is None or self._lifetime.loop is not asyncio.get_running_loop():
                await self._open_by_request()
            else:
                await self._lifetime.opened()
            self._check_open()
        except Refusal as refusal:
            failures = {"server": str(refusal)}
        except Exception as error:  # noqa: BLE001 - the lifespan of the server failed, whatever with
            failures = {"lifespan": str(error) or type(error).__name__}
        else:
            failures = {} if self._readiness is None else await self._readiness()
        details = {"checks": failures} if failures and not self._bearer.are_needed else {}
        body = msgspec.json.encode({"status": "not ready" if failures else "ready", **details})
        await request.respond(503 if failures else 200, body, content_type=JSON)

    async def _serve_metrics(self, request: HttpRequest, _: Principal | None) -> None:
        assert self._metrics is not None  # noqa: S101 - there is no route without them
        await request.respond(200, await self._metrics.text(), content_type=_METRICS)

    # The MCP endpoint

    async def _serve_endpoint(self, request: HttpRequest, principal: Principal | None) -> None:
        if request.method == "GET":
            await self._sessions.get(request, principal)
            return
        if request.method == "DELETE":
            await self._sessions.delete(request, principal)
            return
        _check_media_types(request)
        body = await request.body(max_bytes=self._limits.max_line, within=self.options.body_within)
        self._check_open()
        if self._trace is not None and (trace := request.trace_of(self._trace)) is not None:
            trace("in", body)
        item = decode_line(body, True, self._limits.max_batch, Request)
        if self._is_logged:
            request.about = _described(item)
        self._bearer.check_scopes(request, item)
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
        self, request: HttpRequest, item: Message | BadMessage | Batch, principal: Principal | None, size: int
    ) -> None:
        if isinstance(item, BadMessage):
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        if not isinstance(item, Request | Notification):
            what = "a batch" if isinstance(item, Batch) else "a response"
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, f"A request or a notification may be posted, not {what}."))
        if isinstance(item, Request):
            self._check_request(request, item)
        trace = None if self._trace is None else request.trace_of(self._trace)
        loop = asyncio.get_running_loop()
        post = ModernPost(request, item, size=size, options=self.options, trace=trace, loop=loop)
        peer = _MODERN if principal is None else Peer("modern", principal, True)
        sessions = self._post_sessions
        session = None
        if sessions is not None and isinstance(item, Request):
            session = sessions.begin(post, peer, loop)
        self._modern_posts.add(post)
        if sessions is not None and session is not None:
            waiting = AsgiExchange(self, request, loop)
            # Not here: a task that runs cannot start another one at once.
            loop.call_soon(post.begin, session, waiting)
            try:
                answer = await waiting.settled
            except asyncio.CancelledError:
                if post in self._modern_posts:  # if not, it is answered, and its session may serve another one
                    sessions.drop(session)
                    self._end_post(post)
                raise
            if answer is not None:
                await request.respond(answer[0], answer[1], content_type=JSON)
                return
        await self._serve_post(request, post, peer)

    async def _serve_post(self, request: HttpRequest, post: ModernPost, peer: Peer) -> None:
        """Serve a post until its end, with the session that it has or with a new one."""
        try:
            await self._serve(post, peer)
        finally:
            self._end_post(post)
        if not (request.has_responded or post.is_gone):
            raise Refusal(503, "The server stopped before there was an answer.")

    def _end_post(self, post: ModernPost) -> None:
        post.abort()
        self._modern_posts.discard(post)
        if self._idle is not None and not self._modern_posts and not self._idle.done():
            self._idle.set_result(None)

    # Posts whose bytes come straight from the HTTP server, with a head that was checked before

    def check_head(self, scope: Scope) -> CheckedHead | None:
        """Return the result of checking this head, if all POSTs with it can be served without checking it again."""
        request = HttpRequest(scope, _no_events, _no_events)
        route = self._routes.get(request.path.rstrip("/"))
        if self._post_sessions is None or self._bearer.are_needed or self._trace is not None:
            return None
        if route is None or route.handler != self._serve_endpoint or request.method != "POST":
            return None
        try:
            self._origin_check.check_host(request)
            self._origin_check.check_origin(request)
            _check_media_types(request)
        except Refusal:
            return None
        version = request.header("mcp-protocol-version")
        revision = find_revision(version)
        if revision is None or not revision.is_modern:
            is_in_session = self.replica is None and request.header("mcp-session-id") is not None
            return CheckedHead(request, None) if is_in_session and self._sessions.accepts(version) else None
        method = request.header("mcp-method")
        if not self._modern or method is None or method == "subscriptions/listen":
            return None
        name = request.header("mcp-name")
        try:
            repeated = RepeatedHeaders(revision.name, method, None if name is None else decode_field(name))
        except DecodeError:
            return None
        if method == "tools/call" and self._param_headers(repeated.name or "") is not None:
            return None
        return CheckedHead(request, repeated)

    def begin_post(self, head: CheckedHead, body: bytes, exchange: Exchange, loop: asyncio.AbstractEventLoop) -> bool:
        """Serve a POST with a checked head; return False if it must be served like any other request."""
        sessions, repeated = self._post_sessions, head.repeated
        if sessions is None or repeated is None or not self._may_begin(body, loop):
            return False
        item = decode_line(body, False)
        if not isinstance(item, Request) or not repeated.match(item):
            return False
        name = repeated.name
        if self._needed_scopes(item) or (name is not None and self._param_headers(name) is not None):
            return False
        post = ModernPost(head.request, item, size=len(body), options=self.options, trace=None, loop=loop)
        session = sessions.begin(post, _MODERN, loop)
        if session is None:
            return False
        post.begin(session, exchange)
        return True

    def begin_in_session(
        self, head: CheckedHead, body: bytes, session: bytes, exchange: Exchange, loop: asyncio.AbstractEventLoop
    ) -> bool:
        """Serve a POST of a legacy session with a checked head; return False if it must be served like any other."""
        if not self._may_begin(body, loop):
            return False
        item = decode_line(body, False)
        if not isinstance(item, Request) or (self._modern and _has_modern_meta(item)) or self._needed_scopes(item):
            return False
        return self._sessions.begin(head.request, item, session.decode("latin-1"), exchange, size=len(body))

    def _may_begin(self, body: bytes, loop: asyncio.AbstractEventLoop) -> bool:
        lifetime = self._lifetime
        return (
            lifetime is not None
            and lifetime.loop is loop
            and lifetime.is_open
            and not self._is_closing
            and not self._is_logged
            and len(body) <= self._limits.max_line
        )

    async def serve_begun(self, request: HttpRequest, post: DirectPost) -> None:
        """Serve a post that was begun, in the task of its request, because there is more to do than to answer."""
        self._requests.add(request)
        try:
            if isinstance(post, SessionPost):
                serving = post.finish(request, keep_alive=self.options.keep_alive)
            else:
                serving = self._serve_post(request, cast("ModernPost", post), _MODERN)
            await self._answer(request, serving)
        finally:
            self._requests.discard(request)

    def keep_waiting(self, post: DirectPost) -> None:
        """Keep a post that was begun, and is not answered yet. May be called again."""
        if isinstance(post, ModernPost):  # its session keeps any other
            self._modern_posts.add(post)
            cast("PostSessions", self._post_sessions).wait(post.receiver, post.serve)

    def release(self, post: DirectPost) -> bool:
        """Release the session of a post that is answered; return False if a task has to serve it until its end."""
        if not isinstance(post, ModernPost):
            return True
        if not cast("PostSessions", self._post_sessions).end(post.receiver):
            return False
        self._end_post(post)
        return True

    def _check_request(self, request: HttpRequest, message: Request) -> None:
        """Raise `Refusal` if the headers do not match the body, or the client could not read the response."""
        if message.method == "initialize" and not self._has_sessions and not _has_modern_meta(message):
            # The message may be all that the user of an old client sees.
            sentence = (
                f"This server takes requests in protocol version {', '.join(self._modern)} only, without initialize."
            )
            detail = ErrorDetail(UNSUPPORTED_VERSION, sentence, UnsupportedVersionData(self._modern))
            raise Refusal(400, detail, request_id=message.id)
        params = None
        if message.method == "tools/call":
            with suppress(DecodeError):  # check_headers reports it
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
        # Also if it is missing: without this header, a web page can send a request without a preflight.
        sentence = f"The body must be application/json, but its type is {media_type[:100]!r}."
        raise Refusal(415, ErrorDetail(INVALID_REQUEST, sentence))
    if not request.accepts("application/json"):
        sentence = f"The client must accept application/json, and should accept {_STREAM}."
        raise Refusal(406, ErrorDetail(INVALID_REQUEST, sentence))


# The access log


class _Named(msgspec.Struct):
    name: str | None = None
    uri: str | None = None


_decode_named = msgspec.json.Decoder(_Named).decode


def _described(item: Message | BadMessage | Batch) -> str:
    """Describe a posted message for the log: its method, and the tool, prompt or resource that it names."""
    if isinstance(item, Batch):
        return f"batch of {len(item.items)}"
    if isinstance(item, BadMessage):
        return "bad message"
    if not isinstance(item, Request | Notification):
        return "response"
    words = [_quoted(item.method)]
    with suppress(TypeError, msgspec.DecodeError, UnicodeDecodeError):
        named = _decode_named(item.params)
        words += [_quoted(name) for name in (named.name, named.uri) if name is not None]
    return " ".join(words)


def _quoted(text: str) -> str:
    """Return a client's text for the log: quoted, escaped and cut."""
    text = text[:_LONGEST_LOGGED]
    return text if text.isascii() and text.isprintable() and text and " " not in text else ascii(text)


# The era of a message


class _Meta(Payload, frozen=True):
    version: msgspec.Raw | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name=PROTOCOL_VERSION)


class _Params(Payload, frozen=True):
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


_decode_params = msgspec.json.Decoder(_Params).decode


def _has_modern_meta(item: object) -> bool:
    """Return whether a request names its protocol version in ``_meta``, as only modern ones do."""
    if not isinstance(item, Request):
        return False
    try:
        meta = _decode_params(item.params).meta
    except (TypeError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return meta is not None and meta.version is not msgspec.UNSET

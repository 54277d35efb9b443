"""``Server``: the class with which authors write a server, and run it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.revisions import allowed_revisions
from mcplumb.rpc.thread_pool import ThreadPool
from mcplumb.server.active_sessions import ActiveSessions, Lifespan, LifespanRunner, bind_lifespan
from mcplumb.server.catalog import (
    Catalog,
    CompletionEntry,
    EntryOptions,
    HandlerEntry,
    PromptEntry,
    ResourceEntry,
    ToolEntry,
)
from mcplumb.server.results import Structured
from mcplumb.server.server_state import SharedState
from mcplumb.types.base import Annotations, CacheScope, Icon, Implementation
from mcplumb.types.tools import ToolAnnotations

if TYPE_CHECKING:
    import ssl

    from mcplumb.protocol.http_headers import ParamHeaders
    from mcplumb.protocol.subscription_state import Change, ListTopic
    from mcplumb.recording.recorded_trace import Place
    from mcplumb.recording.recording_format import By
    from mcplumb.server.address_host import OnReady
    from mcplumb.server.readiness import Readiness, ReadyCheck
    from mcplumb.server.stderr_logs import LogFormat
    from mcplumb.stores.replica import Replica
    from mcplumb.stores.shared_store import SharedStore
    from mcplumb.telemetry.metric_families import Family
    from mcplumb.telemetry.request_metrics import ServerMetrics
    from mcplumb.transports.connection import Connection, Peer, Serve
    from mcplumb.transports.http_server.asgi_app import HttpApp
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.line_connection import Trace

__all__ = ["Server"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound="ReadyCheck")


class Server:
    """An MCP server: functions that clients can call, with their descriptions.

    Functions may be async, or plain functions, which run in threads. Every method may be called from any thread. Added
    and removed entries are announced to connected clients.

    - ``revisions`` are the protocol revisions to offer, as dates; by default all.
    - ``lifespan`` returns an async context manager that is open while the server runs; its value is ``ctx.lifespan``.
      It is called without arguments, or with the server if it needs one.
    - ``threads`` is the number of plain functions that run at once; further calls wait. A cancelled call holds its
      thread until its function returns, and another thread makes up for it. There are at most ``max_threads``, by
      default eight times ``threads``; if cancelled calls hold them all, calls of plain functions fail at once.
    - ``structured`` is the default of that option of ``add_tool``; ``object`` gives what other servers give.
    - ``page_size`` is the number of entries on a page of a list.
    - ``ttl`` is how many seconds clients may cache lists and resources (a resource may override it), and
      ``cache_scope`` whether for all users (``public``) or for one (``private``).
    - ``narrow_lists`` leaves out of the lists what the caller's access token does not allow (``scopes``).
    - ``finish_within`` is how many seconds accepted requests may take after the client's input has ended, and
      ``stop_within`` after a signal or ``stop``.
    - ``state_keys`` seal the state that a client keeps for a call that asked for input: pass the same keys (32 random
      bytes each) to all processes that share their clients. The first key seals, all keys open. By default, each
      process creates its own. ``state_ttl`` is how many seconds the user may take to answer.
    - ``record`` is a file to record all messages to, with secrets masked, or a folder for a file of its own; True is
      the folder of ``mcplumb sessions``.
    """

    #: What recordings call who has made them.
    _recorded_by: ClassVar[By] = "server"

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] | None = None,
        instructions: str | None = None,
        revisions: Sequence[str] | None = None,
        lifespan: Lifespan | None = None,
        limits: Limits = DEFAULT_LIMITS,
        threads: int = 32,
        max_threads: int | None = None,
        structured: Literal["object"] | None = None,
        page_size: int = 1000,
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        narrow_lists: bool = False,
        finish_within: float = 30.0,
        stop_within: float = 1.5,
        state_keys: Sequence[bytes] = (),
        state_ttl: float = 3600.0,
        extensions: dict[str, Any] | None = None,
        experimental: dict[str, Any] | None = None,
        record: Place = None,
    ) -> None:
        if not name or {type(name), type(version)} != {str}:
            raise UsageError(f"A server needs a name and a version, both strings, not {name!r} and {version!r}.")
        if page_size < 1:
            raise UsageError(f"The page size is {page_size}: it must be at least 1.")
        if not (0 <= finish_within < float("inf") and 0 <= stop_within < float("inf")):
            raise UsageError("finish_within and stop_within must be finite numbers of seconds, at least 0.")
        #: This process among those that share a store, by store.
        self._replicas: dict[str | SharedStore, Replica] = {}
        self._catalog = Catalog(self._list_changed)
        if structured not in (None, "object"):
            raise UsageError(f"The server's default for structured is {structured!r}: it may be 'object' or None.")
        self._structured = structured
        #: In seconds, as in the constructor.
        self.finish_within = finish_within
        self.stop_within = stop_within
        self._shared = SharedState(
            identity=Implementation(
                name,
                version,
                title=title,
                description=description,
                website_url=website_url,
                icons=None if icons is None else list(icons),
            ),
            instructions=instructions,
            revisions=allowed_revisions(revisions),
            limits=limits,
            catalog=self._catalog,
            thread_pool=ThreadPool(threads, max_threads),
            page_size=page_size,
            ttl_ms=_milliseconds(ttl),
            cache_scope=cache_scope,
            narrow_lists=narrow_lists,
            extensions=extensions,
            experimental=experimental,
            state_keys=list(state_keys),
            state_ttl=state_ttl,
        )
        #: The open sessions.
        self.active_sessions = ActiveSessions(self._shared, LifespanRunner(bind_lifespan(lifespan, self)))
        if state_keys:
            self._shared.check_keys()
        #: Where messages are recorded; None if they are not.
        self.record = record
        self._readiness: Readiness | None = None
        self._metrics: ServerMetrics | None = None

    @property
    def name(self) -> str:
        """The server's name."""
        return self._shared.identity.name

    @property
    def limits(self) -> Limits:
        """The limits of each connection."""
        return self._shared.limits

    def __repr__(self) -> str:
        return f"Server({self.name!r})"

    # Tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        annotations: ToolAnnotations | None = ...,
        structured: Structured = ...,
        input_schema: dict[str, Any] | None = ...,
        output_schema: dict[str, Any] | None = ...,
        timeout: float | None = ...,
        icons: Sequence[Icon] | None = ...,
        meta: dict[str, Any] | None = ...,
        scopes: Sequence[str] = ...,
    ) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Register a function as a tool: ``@server.tool``, or ``@server.tool(title=…)``; see ``add_tool``."""
        return _decorated(function, options, self.add_tool)

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        structured: Structured = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        timeout: float | None = None,
        icons: Sequence[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        """Add a tool. Its arguments, and by default its name and description, are those of the function.

        The return value becomes content, depending on its type; ``structured`` forces, or forbids, structured content.
        With ``object`` it is an object for modern clients as well: another value becomes its member ``result``, as
        legacy clients get it in any case.

        With an ``input_schema``, which clients receive unchanged, the function takes all arguments as one dict. With an
        ``output_schema``, the return value is structured content. Values are validated against both schemas if
        jsonschema-rs is installed.

        A client over HTTP needs an access token with all ``scopes``; without them, the error names the missing ones.

        After ``timeout`` seconds, the call ends with an error that says so, even if it waits for the user. An async
        function is cancelled. A plain function cannot be stopped: it should look at ``ctx.cancelled``.
        """
        entry = ToolEntry(
            function,
            EntryOptions(name=name, title=title, description=description, icons=icons, meta=meta, scopes=scopes),
            annotations=annotations,
            structured=self._structured if structured is None else structured,
            input_schema=input_schema,
            output_schema=output_schema,
            timeout=timeout,
        )
        self._catalog.tools.add(entry)

    def remove_tool(self, name: str) -> None:
        """Remove a tool."""
        self._catalog.tools.remove(name)

    # Resources

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        size: int | None = None,
        ttl: float | None = None,
        cache_scope: CacheScope | None = None,
        icons: Sequence[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
    ) -> Callable[[F], F]:
        """Register a function as a resource: ``@server.resource("notes://all")``; see ``add_resource``."""
        if not isinstance(uri, str):
            raise UsageError("A resource needs a URI: write @server.resource('scheme://path') above its function.")

        def decorate(function: F) -> F:
            self.add_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                annotations=annotations,
                size=size,
                ttl=ttl,
                cache_scope=cache_scope,
                icons=icons,
                meta=meta,
                scopes=scopes,
            )
            return function

        return decorate

    def add_resource(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        size: int | None = None,
        ttl: float | None = None,
        cache_scope: CacheScope | None = None,
        icons: Sequence[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        """Add a resource, or a resource template if ``uri`` has variables in braces: the function takes their values.

        The function returns text, bytes, a file or any value that can be written as JSON; None if the resource does not
        exist. A client over HTTP needs an access token with all ``scopes``.
        """
        entry = ResourceEntry(
            uri,
            function,
            EntryOptions(name=name, title=title, description=description, icons=icons, meta=meta, scopes=scopes),
            mime_type=mime_type,
            annotations=annotations,
            size=size,
            ttl_ms=None if ttl is None else _milliseconds(ttl),
            cache_scope=cache_scope,
        )
        registry = self._catalog.templates if entry.template.is_template else self._catalog.resources
        registry.add(entry)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template."""
        if self._catalog.templates.get(uri) is not None:
            self._catalog.templates.remove(uri)
        else:
            from mcplumb.server.uri_templates import normalize_uri

            self._catalog.resources.remove(normalize_uri(uri))

    def resource_changed(self, uri: str) -> None:
        """Notify the clients that subscribed to a resource that it has changed."""
        from mcplumb.protocol.subscription_state import Change  # most servers announce nothing

        self._announce(Change("updates", uri))

    # Prompts, completions

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        icons: Sequence[Icon] | None = ...,
        meta: dict[str, Any] | None = ...,
        scopes: Sequence[str] = ...,
    ) -> Callable[[F], F]: ...
    def prompt(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Register a function as a prompt: ``@server.prompt``, or ``@server.prompt(title=…)``; see ``add_prompt``."""
        return _decorated(function, options, self.add_prompt)

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
    ) -> None:
        """Add a prompt. Its arguments are those of the function; clients send them as text, which is converted.

        The function returns a text, a message, or a list of these. A client over HTTP needs an access token with all
        ``scopes``.
        """
        described = EntryOptions(name=name, title=title, description=description, icons=icons, meta=meta, scopes=scopes)
        self._catalog.prompts.add(PromptEntry(function, described))

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt."""
        self._catalog.prompts.remove(name)

    def completion(self, of: str, argument: str) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or a variable of a resource template.

        ``of`` is the prompt's name or the template. The function takes the text typed so far and, if it has a second
        parameter, the values that other arguments already have (a dict); it returns the suggestions, best first.
        """

        def decorate(function: F) -> F:
            self._catalog.completions[of, argument] = CompletionEntry(of, argument, function)
            return function

        return decorate

    # Extensions

    def on_request(self, method: str) -> Callable[[F], F]:
        """Register the handler of an extension method: ``@server.on_request("example.com/reset")``.

        The function takes the params and returns the result. The params are a dict, or an instance of the type of the
        function's parameter. To answer with an error, raise ``RequestError``.
        """
        return self._handler(method, is_notification=False)

    def on_notification(self, method: str) -> Callable[[F], F]:
        """Register the handler of an extension notification; it takes the params, as for ``on_request``."""
        return self._handler(method, is_notification=True)

    # The shorter names read like methods that send; they are accepted, but not documented.
    request = on_request
    notification = on_notification

    def _handler(self, method: str, *, is_notification: bool) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            self._catalog.add_handler(HandlerEntry(method, function, is_notification=is_notification))
            return function

        return decorate

    # Running

    def run(
        self,
        *addresses: str,
        log_format: LogFormat | None = None,
        trace: bool | None = None,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve until SIGINT or SIGTERM. For a process whose only purpose is to run the server.

        The addresses are ``stdio``, ``unix:/path``, ``tcp://host:port`` and ``http://host:port/path``, any number of
        them. Without an address, the server runs on standard input and output until the client's input ends. These are
        reserved for the protocol until the process ends: everything else that is printed goes to stderr.

        Logs go to stderr in the format ``log_format`` (``human`` or ``plain``); with ``trace``, every message is
        logged. ``tls`` is for ``tcp://`` and ``https://``, and ``http`` has the HTTP options. ``on_ready`` is called
        with each address once all are open, with the actual port in place of 0.
        """
        from mcplumb._fast.late_collection import collect_later
        from mcplumb._fast.lazy_modules import load_asyncio

        with collect_later():
            load_asyncio()
            from mcplumb.server import server_session  # noqa: F401 - the first client will need it
            from mcplumb.server.run import run_on_stdio, run_process
            from mcplumb.transports.stdio import take_stdio

        _check_no_loop()
        if _is_stdio_only(addresses, tls, http):
            run_on_stdio(self, take_stdio(), log_format=log_format, trace=trace)
            return
        from mcplumb.server.address_host import AddressHost

        host = AddressHost(self, addresses, tls=tls, http=http, on_ready=on_ready)
        if "stdio" in addresses:
            host.stdio = take_stdio()
        run_process(self, host.run, log_format=log_format, trace=trace)

    async def serve(
        self,
        *addresses: str,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve inside a running event loop; the arguments are as for ``run``.

        Signals and logs are left to the program. ``stop`` or cancellation ends it, and then standard input and output
        are restored.
        """
        if _is_stdio_only(addresses, tls, http):
            from mcplumb.transports.stdio import take_stdio

            with take_stdio() as stdio, self._recorded("stdio", None) as trace:
                await self.serve_connection(stdio.connection(limits=self.limits, trace=trace))
            return
        from mcplumb.server.address_host import AddressHost

        host = AddressHost(self, addresses, tls=tls, http=http, on_ready=on_ready)
        if "stdio" not in addresses:
            await host.run()
            return
        from mcplumb.transports.stdio import take_stdio

        with take_stdio() as host.stdio:
            await host.run()

    @contextmanager
    def _recorded(self, transport: str, trace: Trace | None) -> Iterator[Trace | None]:
        """Yield a trace that records each message and calls ``trace``; ``trace`` itself if ``record`` is not set."""
        if self.record is None or self.record is False:
            yield trace
            return
        from mcplumb.recording.recorded_trace import record_session

        recorded = record_session(self.record, self._recorded_by, transport, trace, name=self.name)
        try:
            yield recorded
        finally:
            recorded.recorder.close()

    def asgi(
        self, http: HttpOptions | None = None, *, serve: Serve | None = None, trace: Trace | None = None
    ) -> HttpApp:
        """Return an ASGI application that serves this server over HTTP, to be run or mounted by any ASGI server.

        ``serve`` is called for each connection, by default ``serve_connection``; ``trace`` is called with every
        message.
        """
        from mcplumb.server.dispatch.scope_check import needed_scopes
        from mcplumb.transports.http_server.asgi_app import HttpApp
        from mcplumb.transports.http_server.http_options import HttpOptions

        options = http or HttpOptions()
        app = HttpApp(
            serve or self.serve_connection,
            options=options,
            limits=self.limits,
            revisions=self._shared.revisions,
            held=self.held,
            param_headers=self._param_headers,
            needed_scopes=partial(needed_scopes, self._catalog),
            health=self._health,
            readiness=self._readiness_checks.failures,
            metrics=self.metrics if options.metrics else None,
            replica=None if options.shared is None else self._replica(options.shared),
            stop_within=self.stop_within,
            trace=trace,
        )
        if serve is None:
            app.answer_with(self.active_sessions)
        if options.metrics:
            from mcplumb.telemetry.request_metrics import http_gauges

            self.metrics.registry.read_gauges(app, partial(http_gauges, app))
        return app

    def _param_headers(self, tool: str) -> ParamHeaders | None:
        """Return the arguments of a tool that clients over HTTP repeat in headers."""
        return self._catalog.param_headers(tool)

    def _health(self) -> dict[str, Any]:
        """Return the members that ``/health`` adds to its answer."""
        return {}

    # Operation

    def ready_check(self, function: C) -> C:
        """Register a function as a readiness check: ``@server.ready_check``.

        While it raises an exception, or takes too long, ``/ready`` answers 503, and load balancers send no requests.
        """
        self._readiness_checks.checks[getattr(function, "__name__", repr(function))] = function
        return function

    @property
    def _readiness_checks(self) -> Readiness:
        if self._readiness is None:
            from mcplumb.server.readiness import Readiness

            self._readiness = Readiness(self._shared.thread_pool)
        return self._readiness

    def _offer_state_keys(self, keys: Sequence[bytes]) -> None:
        """Seal request state with these keys, which other workers use as well, unless the author gave some."""
        if not self._shared.state_keys:
            self._shared.state_keys = list(keys)

    @property
    def _has_metrics(self) -> bool:
        return self._metrics is not None

    @property
    def metrics(self) -> ServerMetrics:
        """The metrics of all sessions. They are collected from the first use of this property on."""
        if self._metrics is None:
            from mcplumb.rpc.observed_endpoint import combined

            self._metrics = self._new_metrics()
            self._metrics.registry.read_gauges(self, self._gauges)
            self._shared.observer = combined(self._shared.observer, self._metrics)
        return self._metrics

    def _new_metrics(self) -> ServerMetrics:
        from mcplumb.telemetry.request_metrics import ServerMetrics

        catalog = self._catalog
        return ServerMetrics(has_tool=lambda name: catalog.tools.get(name) is not None, custom=catalog.request_handlers)

    def _gauges(self) -> list[Family]:
        from mcplumb.telemetry.request_metrics import gauge

        in_flight, subscriptions = self.active_sessions.count_requests()
        return [
            gauge("mcplumb_requests_in_flight", "Requests that are being answered.", {(): in_flight}),
            gauge("mcplumb_subscriptions", "Open subscriptions of modern clients.", {(): subscriptions}),
        ]

    async def serve_connection(self, connection: Connection, peer: Peer | None = None) -> None:
        """Serve one connection until it ends. Several may be served at once, all in the same event loop."""
        from mcplumb.transports.connection import ANYONE

        await self.active_sessions.serve(
            connection, peer or ANYONE, finish_within=self.finish_within, stop_within=self.stop_within
        )

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the lifespan and the threads of the server alive, even while no client is connected."""
        import asyncio

        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with self.active_sessions.held(never, within=self.finish_within):
            yield

    def stop(self) -> bool:
        """Accept no more requests, finish the accepted ones, and return from ``serve`` or ``run``.

        Returns False if there is nothing to stop. May be called from any thread.
        """
        return self.active_sessions.stop(self.stop_within)

    def _list_changed(self, topic: ListTopic) -> None:
        if self._replicas:
            from mcplumb.protocol.subscription_state import Change

            self._announce(Change(topic))
        else:
            self.active_sessions.for_each_session(lambda session: session.subscriptions.list_changed(topic))

    # Replicas

    def _replica(self, address: str | SharedStore) -> Replica:
        """Return this process among those that share the store at an address."""
        from mcplumb.stores.replica import Replica

        shared = self._shared
        if address not in self._replicas:
            shared.awaits_keys = not shared.state_keys
            self._replicas[address] = Replica(
                address,
                heard=self._heard,
                missed=self._missed,
                new_keys=shared.use_keys if shared.awaits_keys else None,
                state_ttl=shared.state_ttl,
            )
            self._readiness_checks.checks["shared store"] = self._replicas[address].check_ready
        return self._replicas[address]

    def _announce(self, change: Change) -> None:
        """Notify the subscribers of a change: those of all replicas, if there are any."""
        replicas = [replica for replica in self._replicas.values() if replica.is_open]
        for replica in replicas:
            from mcplumb.protocol.session_record import write_change

            replica.announce(write_change(change))
        if not replicas:
            self._notify(change)

    def _heard(self, _: int, body: bytes) -> None:
        from mcplumb.protocol.session_record import read_change

        change = read_change(body)
        if change is None:
            self._missed()
        else:
            self._notify(change)

    def _notify(self, change: Change) -> None:
        topic, uri = change.topic, change.uri
        if topic != "updates":
            self.active_sessions.for_each_session(lambda session: session.subscriptions.list_changed(topic))
        elif uri is not None:
            self.active_sessions.for_each_session(lambda session: session.subscriptions.resource_changed(uri))

    def _missed(self) -> None:
        self.active_sessions.for_each_session(lambda session: session.subscriptions.everything_changed())


def _decorated(function: F | None, options: dict[str, Any], add: Callable[..., None]) -> F | Callable[[F], F]:
    if function is not None and not callable(function):
        raise UsageError(f"{function!r} is not a function. To give a name, write (name={function!r}).")
    if function is not None:
        add(function, **options)
        return function

    def decorate(decorated: F) -> F:
        add(decorated, **options)
        return decorated

    return decorate


def _milliseconds(seconds: float) -> int:
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"Results cannot be cached for {seconds} seconds: give a finite number, at least 0.")
    return round(seconds * 1000)


def _is_stdio_only(addresses: Sequence[str], tls: object, http: object) -> bool:
    """Return whether stdio is the only address, so that no socket code has to be imported."""
    return addresses in ((), ("stdio",)) and tls is None and http is None


def _check_no_loop() -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("server.run() creates its own event loop, but one is running already: await server.serve().")

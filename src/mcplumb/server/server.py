"""The server that authors write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.subscriptions import ListTopic
from mcplumb.revisions import allowed_revisions
from mcplumb.rpc.thread_pool import Workers
from mcplumb.server.catalog import (
    Catalog,
    CompletionEntry,
    Described,
    HandlerEntry,
    PromptEntry,
    ResourceEntry,
    ToolEntry,
)
from mcplumb.server.hosting.active_sessions import Lifespan, Lifespans, Presence
from mcplumb.server.hosting.stderr_logs import LogFormat
from mcplumb.server.shared_state import Shared
from mcplumb.server.uri_templates import folded
from mcplumb.transports.connection import ANYONE, Connection, Peer, Serve
from mcplumb.types.base import Annotations, CacheScope, Icon, Implementation
from mcplumb.types.tools import ToolAnnotations

if TYPE_CHECKING:
    import ssl

    from mcplumb.server.hosting.serve import OnReady
    from mcplumb.transports.http_server.asgi_app import HttpApp
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.line_connection import Trace

__all__ = ["Server"]

F = TypeVar("F", bound=Callable[..., Any])


class Server:
    """An MCP server: functions that clients can call, and what clients are told about them.

    The functions are async, or plain: those run in threads. Every method may be called from any thread; adding and
    removing is announced to the clients that are connected.

    - ``revisions`` are the protocol revisions to speak, as dates; all of them if not given.
    - ``lifespan`` makes an async context manager that is open while the server runs; its value is ``ctx.lifespan``.
    - ``threads`` is how many plain functions run at once; more of them wait.
    - ``page_size`` is how many entries a page of a list has.
    - ``ttl`` is for how many seconds clients may keep lists and resources (a resource may say otherwise), and
      ``cache_scope`` whether for everyone (``public``) or for one caller (``private``).
    - ``finish_within`` is how many seconds accepted requests may take after the client's input has ended, and
      ``stop_within`` after a signal or ``stop``.
    - ``state_keys`` seal what a client keeps for a call that asked for input: give the same ones (32 random bytes
      each) to all processes that share their clients. The first seals, all open. Without any, a process makes its own.
      ``state_ttl`` is how many seconds the user may take to answer.
    """

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
        page_size: int = 1000,
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        finish_within: float = 30.0,
        stop_within: float = 1.5,
        state_keys: Sequence[bytes] = (),
        state_ttl: float = 3600.0,
        extensions: dict[str, Any] | None = None,
        experimental: dict[str, Any] | None = None,
    ) -> None:
        if not name or {type(name), type(version)} != {str}:
            raise UsageError(f"A server has a name and a version, both texts, and not {name!r} and {version!r}.")
        if page_size < 1:
            raise UsageError(f"The page size is {page_size}: it must be at least 1.")
        if not (0 <= finish_within < float("inf") and 0 <= stop_within < float("inf")):
            raise UsageError("finish_within and stop_within must be finite numbers of seconds, at least 0.")
        self._catalog = Catalog(self._list_changed)
        #: In seconds; see above.
        self.finish_within = finish_within
        self.stop_within = stop_within
        self._shared = Shared(
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
            workers=Workers(threads),
            page_size=page_size,
            ttl_ms=_milliseconds(ttl),
            cache_scope=cache_scope,
            extensions=extensions,
            experimental=experimental,
            state_keys=list(state_keys),
            state_ttl=state_ttl,
        )
        #: Whom it serves at the moment.
        self.presence = Presence(self._shared, Lifespans(lifespan))
        if state_keys:
            self._shared.check_keys()

    @property
    def name(self) -> str:
        """The server's name."""
        return self._shared.identity.name

    @property
    def limits(self) -> Limits:
        """The caps of each connection."""
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
        structured: bool | None = ...,
        input_schema: dict[str, Any] | None = ...,
        output_schema: dict[str, Any] | None = ...,
        icons: Sequence[Icon] | None = ...,
        meta: dict[str, Any] | None = ...,
    ) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Make a function a tool: ``@server.tool``, or with options ``@server.tool(title=…)``; see ``add_tool``."""
        return _decorated(function, options, self.add_tool)

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        structured: bool | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        icons: Sequence[Icon] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        """Add a tool. Its arguments are the function's, and its name and description, too, if none are given.

        What the function returns becomes content, by its type; ``structured`` forces, or forbids, structured content.

        With an ``input_schema``, which clients get as it is, the function takes all the arguments as one dict; with an
        ``output_schema``, what it returns is structured content. Both are checked if jsonschema-rs is installed.
        """
        entry = ToolEntry(
            function,
            Described(name=name, title=title, description=description, icons=icons, meta=meta),
            annotations=annotations,
            structured=structured,
            input_schema=input_schema,
            output_schema=output_schema,
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
    ) -> Callable[[F], F]:
        """Make a function a resource: ``@server.resource("notes://all")``; see ``add_resource``."""
        if not isinstance(uri, str):
            raise UsageError("A resource has an address: write @server.resource('scheme://path') above its function.")

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
    ) -> None:
        """Add a resource or, if ``uri`` has variables in braces, a template for many: the function takes their values.

        The function returns text, bytes, a file or anything that can be written as JSON; None if there is no such
        resource.
        """
        entry = ResourceEntry(
            uri,
            function,
            Described(name=name, title=title, description=description, icons=icons, meta=meta),
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
            self._catalog.resources.remove(folded(uri))

    def resource_changed(self, uri: str) -> None:
        """Tell the clients that subscribed to it that a resource has changed."""
        self.presence.tell(lambda session: session.changes.resource_changed(uri))

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
    ) -> Callable[[F], F]: ...
    def prompt(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Make a function a prompt: ``@server.prompt``, or with options; see ``add_prompt``."""
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
    ) -> None:
        """Add a prompt. Its arguments are the function's; clients give them as text, which is converted.

        The function returns a text, a message, or a list of such.
        """
        described = Described(name=name, title=title, description=description, icons=icons, meta=meta)
        self._catalog.prompts.add(PromptEntry(function, described))

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt."""
        self._catalog.prompts.remove(name)

    def completion(self, of: str, argument: str) -> Callable[[F], F]:
        """Make a function propose values for an argument of a prompt, or for a variable of a resource template.

        ``of`` is the prompt's name or the template. The function takes what was typed so far and, if it has a second
        parameter, the values that other arguments already have (a dict); it returns the proposals, the best first.
        """

        def decorate(function: F) -> F:
            self._catalog.completions[of, argument] = CompletionEntry(of, argument, function)
            return function

        return decorate

    # Extensions

    def request(self, method: str) -> Callable[[F], F]:
        """Make a function answer a method of its own, as extensions have: it takes the params and returns the result.

        The params come as a dict, or as what the function's parameter is annotated with. ``RequestError`` answers
        with an error.
        """
        return self._handler(method, is_notification=False)

    def notification(self, method: str) -> Callable[[F], F]:
        """Make a function hear a notification; it takes the params, as for ``request``."""
        return self._handler(method, is_notification=True)

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
        """Serve until SIGINT or SIGTERM comes. For a process that is nothing but a server.

        Without an address that is on standard input and output, until the client's input ends. From now on until the
        process ends these belong to the protocol, and whatever else is printed goes to stderr. The addresses are
        ``stdio``, ``unix:/path``, ``tcp://host:port`` and ``http://host:port/path``, any number of them.

        Logs go to stderr, as ``log_format`` says (``human`` or ``plain``); with ``trace``, every message does. ``tls``
        is for ``tcp://`` and ``https://``, and ``http`` has the options of HTTP. ``on_ready`` is called with each
        address once all are served, with the port that the system chose in place of 0.
        """
        from mcplumb.server.hosting.run import run_on_stdio, run_process
        from mcplumb.transports.stdio import take_stdio

        _check_no_loop()
        if _is_stdio_alone(addresses, tls, http):
            run_on_stdio(self, take_stdio(), log_format=log_format, trace=trace)
            return
        from mcplumb.server.hosting.serve import AddressHost

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
        """The same inside a running event loop. Standard input and output are given back at the end.

        Signals and logs are left to the program; ``stop`` ends it, and so does cancelling.
        """
        if _is_stdio_alone(addresses, tls, http):
            from mcplumb.transports.stdio import take_stdio

            with take_stdio() as stdio:
                await self.serve_connection(stdio.connection(limits=self.limits))
            return
        from mcplumb.server.hosting.serve import AddressHost

        host = AddressHost(self, addresses, tls=tls, http=http, on_ready=on_ready)
        if "stdio" not in addresses:
            await host.run()
            return
        from mcplumb.transports.stdio import take_stdio

        with take_stdio() as host.stdio:
            await host.run()

    def asgi(
        self, http: HttpOptions | None = None, *, serve: Serve | None = None, trace: Trace | None = None
    ) -> HttpApp:
        """An ASGI application that serves this server over HTTP, to be run or mounted by any ASGI server.

        ``serve`` is what serves each connection, if not ``serve_connection``; ``trace`` is shown every message.
        """
        from mcplumb.transports.http_server.asgi_app import HttpApp
        from mcplumb.transports.http_server.http_options import HttpOptions

        return HttpApp(
            serve or self.serve_connection,
            options=http or HttpOptions(),
            limits=self.limits,
            revisions=self._shared.revisions,
            held=self.held,
            param_headers=self._catalog.param_headers,
            trace=trace,
        )

    async def serve_connection(self, connection: Connection, peer: Peer = ANYONE) -> None:
        """Serve one connection, until it ends. Several may be served at once, all in the same event loop."""
        await self.presence.serve(connection, peer, finish_within=self.finish_within, stop_within=self.stop_within)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keep the lifespan and the threads of the server, also while nobody is connected."""
        import asyncio

        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with self.presence.held(never, within=self.finish_within):
            yield

    def stop(self) -> bool:
        """Take no more requests, finish those that were accepted, and return from ``serve`` or ``run``.

        False if there is nothing to stop. From any thread.
        """
        return self.presence.stop(self.stop_within)

    def _list_changed(self, topic: ListTopic) -> None:
        self.presence.tell(lambda session: session.changes.list_changed(topic))


def _decorated(function: F | None, options: dict[str, Any], add: Callable[..., None]) -> F | Callable[[F], F]:
    if function is not None and not callable(function):
        raise UsageError(f"{function!r} is no function. To give a name, write (name={function!r}).")
    if function is not None:
        add(function)
        return function

    def decorate(decorated: F) -> F:
        add(decorated, **options)
        return decorated

    return decorate


def _milliseconds(seconds: float) -> int:
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"Results cannot be kept for {seconds} seconds: give a finite number, at least 0.")
    return round(seconds * 1000)


def _is_stdio_alone(addresses: Sequence[str], tls: object, http: object) -> bool:
    """Whether nothing of sockets has to be loaded."""
    return addresses in ((), ("stdio",)) and tls is None and http is None


def _check_no_loop() -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("server.run() makes an event loop of its own, and one is running already: await server.serve().")

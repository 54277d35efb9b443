"""The blocking client: ``connect``, its requests, its subscriptions and its callbacks.

It wraps the async client, which runs in the shared event loop of ``loop_thread``; each method waits for its coroutine.
A user's callback may block, and may use the client that called it; the event loop therefore never calls one itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from inspect import isawaitable, iscoroutine, iscoroutinefunction, signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar

from mcplumb.client import client as async_client
from mcplumb.client import connector as async_connecting
from mcplumb.client import subscriptions as async_changes
from mcplumb.client.client_settings import ClientStats
from mcplumb.errors import Closed, McplumbError, UsageError
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.revisions import Revision
from mcplumb.sync.loop_thread import LoopHandle
from mcplumb.types.base import Implementation
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.notification_params import SubscriptionFilter

if TYPE_CHECKING:
    from mcplumb.client.process_link import ServerProcess

__all__ = [
    "EXIT_GRACE",
    "LAST_LINES_TIMEOUT",
    "Blocking",
    "Changes",
    "Client",
    "Connecting",
    "LineDispatcher",
    "blocking",
    "connect",
    "parameters_of",
    "thread_callbacks",
    "threaded_callback",
]

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
_Async = async_client.Client

#: Options of ``connect`` that may be callbacks.
_CALLBACKS = ("on_elicit", "on_sample", "on_log", "roots")
#: Seconds beyond the stop ladder's total that closing may take when the process exits.
EXIT_GRACE = 2.0
#: Seconds that the stderr callback has for the last lines.
LAST_LINES_TIMEOUT = 1.0
#: Characters of stderr that are queued for a callback slower than the server. Beyond that the oldest lines are dropped.
_MAX_QUEUED = 4 * 1024 * 1024

#: Calls a function in another thread and returns its result; awaited in the loop.
_CallInThread = Callable[..., Coroutine[Any, Any, Any]]

_logger = logging.getLogger("mcplumb.sync")


# --- Subscriptions ---


class Changes:
    """A subscription: a context manager, and within it a blocking iterator over `Change` and `Missed`.

    The iteration ends when the server ends the subscription or any thread calls ``close``, and raises when the server
    is gone for good. Several threads may iterate: each change goes to one of them.
    """

    def __init__(self, changes: async_changes.Changes, handle: LoopHandle) -> None:
        self._changes = changes
        self._handle = handle
        self._is_closed = False

    @property
    def wanted(self) -> SubscriptionFilter:
        """The changes that were asked for."""
        return self._changes.wanted

    @property
    def timeout(self) -> float | None:
        """Seconds that the server has for each response."""
        return self._changes.timeout

    @property
    def honoured(self) -> SubscriptionFilter | None:
        """The changes that the server agreed to report, maybe fewer than ``wanted``; None until it has agreed."""
        return self._changes.honoured

    @property
    def dropped(self) -> int:
        """The number of changes that were dropped because the consumer was too slow."""
        return self._changes.dropped

    @property
    def error(self) -> McplumbError | None:
        """The error that ended the subscription, if one did."""
        return self._changes.error

    @property
    def has_ended(self) -> bool:
        """Whether the subscription has ended."""
        return self._changes.has_ended

    def __enter__(self) -> Self:
        self._handle.new_call().run(self._changes.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change | Missed:
        try:
            return self._handle.new_call().run(self._changes.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        except Closed:
            if self._is_closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """End the subscription and any iteration over it. Idempotent, and may be called from any thread."""
        self._is_closed = True
        if not self._handle.is_inactive:
            with suppress(Closed):  # the client was closed meanwhile
                self._handle.new_call().run(self._changes.__aexit__(None, None, None))


# --- The client ---


class Blocking(Generic[A]):
    """An object whose async methods run in the shared loop."""

    def __init__(self, wrapped: A, handle: LoopHandle) -> None:
        self._client = wrapped
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._client)


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Blocking[A], P], R]:
    """Return a blocking version of an async method, with the same parameters."""

    @wraps(method)
    def blocking_method(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        call = self._handle.new_call()
        on_progress: Any = kwargs.get("on_progress")
        if on_progress is not None:
            kwargs["on_progress"] = threaded_callback(on_progress, "on_progress", call.call_in_thread)
        return call.run(method(self._client, *args, **kwargs))

    return blocking_method


def _listening(
    method: Callable[Concatenate[_Async, P], async_changes.Changes],
) -> Callable[Concatenate[Client, P], Changes]:
    @wraps(method)
    def listen(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Changes:
        return Changes(method(self._client, *args, **kwargs), self._handle)

    listen.__doc__ = """Subscribe to changes of the three lists, and of the resources with these URIs.

        ``with client.listen(tools=True) as changes``, and then ``for change in changes``. The block is entered when
        the server has agreed, within ``timeout``; ``changes.honoured`` says to what.
        """
    return listen


class Client(Blocking[_Async]):
    """A connected server, for code without ``await``. Several threads may use it at the same time.

    The methods and errors are those of ``mcplumb.Client``. Interrupting a thread that waits for a response, for
    instance by Ctrl-C, cancels the request on the server, too.

    ``on_progress`` is called in the thread that waits for the response. The callbacks given to ``connect`` are called
    in threads of their own. All of them may block, and may use this client.
    """

    @property
    def revision(self) -> Revision:
        """The protocol revision that both sides speak; ``str`` of it is its date."""
        return self._client.revision

    @property
    def server_info(self) -> Implementation | None:
        """The server's name and version. A modern server may omit them."""
        return self._client.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """Instructions for a model on how to use the server."""
        return self._client.instructions

    @property
    def stats(self) -> ClientStats:
        """Counters over all connections of this client."""
        return self._handle.read_in_loop(lambda: self._client.stats)

    @property
    def process(self) -> ServerProcess | None:
        """The server's process: pid, uptime, restarts and their reasons. None if the client did not start it."""
        return self._client.process

    def close(self) -> None:
        """Cancel open requests and disconnect. Idempotent, and may be called from any thread at any time."""
        self._handle.close()

    list_tools = blocking(_Async.list_tools)
    tools_page = blocking(_Async.tools_page)
    call_tool = blocking(_Async.call_tool)
    list_resources = blocking(_Async.list_resources)
    resources_page = blocking(_Async.resources_page)
    list_resource_templates = blocking(_Async.list_resource_templates)
    resource_templates_page = blocking(_Async.resource_templates_page)
    read_resource = blocking(_Async.read_resource)
    list_prompts = blocking(_Async.list_prompts)
    prompts_page = blocking(_Async.prompts_page)
    get_prompt = blocking(_Async.get_prompt)
    complete = blocking(_Async.complete)
    ping = blocking(_Async.ping)
    set_log_level = blocking(_Async.set_log_level)
    roots_changed = blocking(_Async.roots_changed)
    request = blocking(_Async.request)
    notify = blocking(_Async.notify)
    listen = _listening(_Async.listen)


# --- Callbacks ---


def threaded_callback(
    function: Callable[..., Any], what: str, call_in_thread: _CallInThread
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return an async function that calls the plain one in another thread; ``what`` names it in the `UsageError`."""
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise UsageError(f"{what} is an async function, which a blocking client cannot call: give it a plain one.")

    async def call(*arguments: Any) -> Any:
        return await call_in_thread(_call, function, *arguments)

    return call


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    value = function(*arguments)
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise UsageError("A callback of a blocking client returned an awaitable: give it a plain function.")
    return value


class LineDispatcher:
    """Calls a function with each line of stderr, in order, in another thread; lines that queue up share one job."""

    def __init__(self, function: Callable[[str], object], call_in_thread: _CallInThread) -> None:
        self._call = threaded_callback(self._call_with_each, "stderr", call_in_thread)
        threaded_callback(function, "stderr", call_in_thread)  # raises if the function is async
        self._function = function
        self._lines: deque[str] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    def feed(self, line: str) -> None:
        """Queue a line. Must be called in the loop."""
        self._lines.append(line)
        self._size += len(line)
        while self._size > _MAX_QUEUED:
            self._size -= len(self._lines.popleft())
            if not self._has_warned:
                self._has_warned = True
                _logger.warning("The function for stderr is too slow: some of the oldest lines are dropped.")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def finish(self, within: float) -> None:
        """Wait up to ``within`` seconds until the last line is delivered, then stop."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=within)
            self._task.cancel()

    async def _deliver(self) -> None:
        while self._lines:
            lines = list(self._lines)
            self._lines.clear()
            self._size = 0
            await self._call(lines)

    def _call_with_each(self, lines: list[str]) -> None:
        for line in lines:
            try:
                self._function(line)
            except Exception:
                _logger.exception("The function for stderr raised an exception.")


def thread_callbacks(options: dict[str, Any], handle: LoopHandle) -> LineDispatcher | None:
    """Replace the callbacks in options of ``connect``; return the dispatcher for stderr, if that is one of them."""
    for name in _CALLBACKS:
        if callable(options.get(name)):
            options[name] = threaded_callback(options[name], name, handle.call_in_thread)
    if not callable(options.get("stderr")):
        return None
    dispatcher = LineDispatcher(options["stderr"], handle.call_in_thread)
    options["stderr"] = dispatcher.feed
    return dispatcher


# --- Connecting ---


def parameters_of(model: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the signature of another, for type checkers and editors as well as at runtime."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        own, others = signature(function), signature(model)
        function.__signature__ = others.replace(return_annotation=own.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate


@parameters_of(async_connecting.connect)
def connect(target: Any, **options: Any) -> Connecting:
    """Connect to a server: ``with connect(["python", "weather.py"]) as client``.

    The target and the options are those of ``mcplumb.connect``, but callbacks must be plain functions. They are called
    in threads of their own, may block, and may use the client.
    """
    return Connecting(target, options)


class Connecting:
    """A connection that is not open yet: enter it with ``with``, or ``open`` it and close the client yourself.

    Connections that are still open when the process exits are closed then.
    """

    def __init__(self, target: Any, options: dict[str, Any]) -> None:
        stop: StopLadder = options.get("stop") or StopLadder()
        self._handle = handle = LoopHandle(self._close, stop.total + EXIT_GRACE)
        self._stderr = thread_callbacks(options, handle)
        self._connecting = async_connecting.connect(target, **options)

    def open(self) -> Client:
        """Connect, and wait until the client is ready. A failed or interrupted attempt leaves nothing open."""
        self._handle.acquire()
        try:
            client = self._handle.new_call().run(self._connecting.__aenter__())
        except BaseException:
            self._handle.release()
            raise
        return Client(client, self._handle)

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.close()

    def __getattr__(self, name: str) -> NoReturn:
        use = ". Use the client that it gives: with connect(...) as client, or client = connect(...).open()"
        hint = use if hasattr(Client, name) else ""
        raise AttributeError(f"The return value of connect has no {name!r}{hint}.", name=name, obj=self)

    async def _close(self) -> None:
        await self._connecting.__aexit__(None, None, None)
        if self._stderr is not None:
            await self._stderr.finish(LAST_LINES_TIMEOUT)

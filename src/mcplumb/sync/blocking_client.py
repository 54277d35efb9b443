"""The blocking client: ``connect``, its requests and its subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from mcplumb.client import client as async_client
from mcplumb.client import connector as async_connecting
from mcplumb.client import subscriptions as async_changes
from mcplumb.client.options import ClientStats
from mcplumb.errors import Closed, McplumbError
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.revisions import Revision
from mcplumb.sync.callback_threads import LineCarrier, carried
from mcplumb.sync.loop_thread import Lease
from mcplumb.types.base import Implementation
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.notification_params import SubscriptionFilter

if TYPE_CHECKING:
    from mcplumb.client.links.process_link import ServerProcess

__all__ = ["Changes", "Client", "Connecting", "connect"]


# What a blocking client hears of when it listens.


class Changes:
    """A context manager, and within it an iterator over `Change` and `Missed`, which waits for each of them.

    It ends when the server ends the subscription, or when any thread calls ``close``, and raises when the server is
    gone for good. Several threads may iterate: each change goes to one of them.
    """

    def __init__(self, changes: async_changes.Changes, lease: Lease) -> None:
        self._changes = changes
        self._lease = lease
        self._is_closed = False

    @property
    def wanted(self) -> SubscriptionFilter:
        """What was asked for."""
        return self._changes.wanted

    @property
    def timeout(self) -> float | None:
        """Seconds that the server has for each of its answers."""
        return self._changes.timeout

    @property
    def honoured(self) -> SubscriptionFilter | None:
        """What the server agreed to tell, which may be less than what is wanted; None until it has."""
        return self._changes.honoured

    @property
    def dropped(self) -> int:
        """How many changes the consumer was too slow for."""
        return self._changes.dropped

    @property
    def error(self) -> McplumbError | None:
        """Why nothing comes any more, if something went wrong."""
        return self._changes.error

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self._changes.has_ended

    def __enter__(self) -> Self:
        self._lease.errand().run(self._changes.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change | Missed:
        try:
            return self._lease.errand().run(self._changes.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        except Closed:
            if self._is_closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """Hear no more: whoever iterates comes to the end. From any thread, as often as you like."""
        self._is_closed = True
        if not self._lease.is_over:
            with suppress(Closed):  # with the client
                self._lease.errand().run(self._changes.__aexit__(None, None, None))


# The blocking client.


P = ParamSpec("P")
R = TypeVar("R")
_Async = async_client.Client


def _blocking(
    method: Callable[Concatenate[_Async, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """The method without ``await``, with the same parameters."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        errand = self._lease.errand()
        on_progress: Any = kwargs.get("on_progress")
        if on_progress is not None:
            kwargs["on_progress"] = carried(on_progress, "on_progress", errand.have_done)
        return errand.run(method(self._client, *args, **kwargs))

    return call


def _listening(
    method: Callable[Concatenate[_Async, P], async_changes.Changes],
) -> Callable[Concatenate[Client, P], Changes]:
    @wraps(method)
    def listen(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Changes:
        return Changes(method(self._client, *args, **kwargs), self._lease)

    listen.__doc__ = """Hear of changes: of the three lists, and of the resources with these addresses.

        ``with client.listen(tools=True) as changes``, and then ``for change in changes``. The block is entered when
        the server has agreed; ``changes.honoured`` says to how much. The timeout is for that.
        """
    return listen


class Client:
    """A connected server, for code without ``await``. Any thread may use it, and several at once.

    The methods and errors are those of ``mcplumb.Client``. A thread that is interrupted while it waits for an answer,
    for instance by Ctrl-C, cancels the request on the server, too.

    ``on_progress`` is called in the thread that waits for the answer. The other functions, those given to ``connect``,
    are called in threads of their own. All of them may block, and may use this client.
    """

    def __init__(self, client: _Async, lease: Lease) -> None:
        self._client = client
        self._lease = lease

    def __repr__(self) -> str:
        return repr(self._client)

    @property
    def revision(self) -> Revision:
        """The protocol revision that both sides speak; ``str`` of it is its date."""
        return self._client.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is. A modern one may say nothing."""
        return self._client.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        return self._client.instructions

    @property
    def stats(self) -> ClientStats:
        """What this client has seen so far."""
        return self._lease.look(lambda: self._client.stats)

    @property
    def process(self) -> ServerProcess | None:
        """The server's process: its pid, its uptime, how often and why it was started again. None if it is not ours."""
        return self._client.process

    def close(self) -> None:
        """Give up what is open, and leave. From any thread, at any time, as often as you like."""
        self._lease.close()

    list_tools = _blocking(_Async.list_tools)
    tools_page = _blocking(_Async.tools_page)
    call_tool = _blocking(_Async.call_tool)
    list_resources = _blocking(_Async.list_resources)
    resources_page = _blocking(_Async.resources_page)
    list_resource_templates = _blocking(_Async.list_resource_templates)
    resource_templates_page = _blocking(_Async.resource_templates_page)
    read_resource = _blocking(_Async.read_resource)
    list_prompts = _blocking(_Async.list_prompts)
    prompts_page = _blocking(_Async.prompts_page)
    get_prompt = _blocking(_Async.get_prompt)
    complete = _blocking(_Async.complete)
    ping = _blocking(_Async.ping)
    set_log_level = _blocking(_Async.set_log_level)
    roots_changed = _blocking(_Async.roots_changed)
    request = _blocking(_Async.request)
    notify = _blocking(_Async.notify)
    listen = _listening(_Async.listen)


# ``connect`` for code without ``await``.


#: What may be a function of the user's that is called with something and asked for something.
_ASKED = ("on_elicit", "on_sample", "on_log", "roots")
#: Seconds beyond the stop ladder's that closing may take when the process exits.
_GRACE = 2.0
#: Seconds in which a function for the lines of stderr has to take the last of them.
_LAST_LINES = 1.0


def _parameters_of(model: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Gives a function the parameters of another, for type checkers and editors as well as in the program."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        own, others = signature(function), signature(model)
        function.__signature__ = others.replace(return_annotation=own.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate


@_parameters_of(async_connecting.connect)
def connect(target: Any, **options: Any) -> Connecting:
    """Connect to a server: ``with connect(["python", "weather.py"]) as client``.

    The target and the options are those of ``mcplumb.connect``, but the functions among them must be plain ones. They
    are called in threads of their own, may block, and may use the client.
    """
    return Connecting(target, options)


class Connecting:
    """A connection to be: enter it with ``with``, or ``open`` it and close the client yourself.

    What is still open when the process exits is closed then.
    """

    def __init__(self, target: Any, options: dict[str, Any]) -> None:
        stop: StopLadder = options.get("stop") or StopLadder()
        self._lease = lease = Lease(self._close, stop.total + _GRACE)
        for name in _ASKED:
            if callable(options.get(name)):
                options[name] = carried(options[name], name, lease.have_done)
        self._stderr: LineCarrier | None = None
        if callable(options.get("stderr")):
            self._stderr = LineCarrier(options["stderr"], lease.have_done)
            options["stderr"] = self._stderr.bring
        self._connecting = async_connecting.connect(target, **options)

    def open(self) -> Client:
        """Connect, and wait until that is done. If it fails or is interrupted, everything is closed again."""
        self._lease.begin()
        try:
            client = self._lease.errand().run(self._connecting.__aenter__())
        except BaseException:
            self._lease.end()
            raise
        return Client(client, self._lease)

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.close()

    async def _close(self) -> None:
        await self._connecting.__aexit__(None, None, None)
        if self._stderr is not None:
            await self._stderr.finish(_LAST_LINES)

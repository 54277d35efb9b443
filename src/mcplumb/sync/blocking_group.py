"""The blocking group: ``connect_all``, its requests and its subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from mcplumb.client import client as async_client
from mcplumb.client import group as async_group
from mcplumb.client import group_changes as async_changes
from mcplumb.client.connector import Target
from mcplumb.client.group_changes import ServerChange
from mcplumb.client.group_member import Servers, loaded
from mcplumb.errors import Closed
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.sync.blocking_client import (
    EXIT_GRACE,
    LAST_LINES_TIMEOUT,
    Blocking,
    Client,
    LineDispatcher,
    blocking,
    parameters_of,
    thread_callbacks,
)
from mcplumb.sync.loop_thread import BlockingCall, LoopHandle

__all__ = ["ConnectingAll", "Group", "GroupChanges", "connect_all"]

P = ParamSpec("P")
_Async = async_group.Group


class GroupChanges:
    """A subscription to all servers of a group: a context manager, and within it a blocking iterator.

    It gives each `ServerChange`. The iteration ends with the group, or when any thread calls ``close``.
    """

    def __init__(self, changes: async_changes.GroupChanges, handle: LoopHandle) -> None:
        self._changes = changes
        self._handle = handle

    @property
    def servers(self) -> list[str]:
        """The servers that are subscribed to at present."""
        return self._handle.read_in_loop(lambda: self._changes.servers)

    @property
    def dropped(self) -> int:
        """The number of changes that were dropped because the consumer was too slow."""
        return self._changes.dropped

    def __enter__(self) -> Self:
        self._handle.new_call().run(self._changes.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ServerChange:
        try:
            return self._handle.new_call().run(self._changes.__anext__())
        except (StopAsyncIteration, Closed):
            raise StopIteration from None

    def close(self) -> None:
        """End the subscription and any iteration over it. Idempotent, and may be called from any thread."""
        if not self._handle.is_inactive:
            with suppress(Closed):  # the group was closed meanwhile
                self._handle.new_call().run(self._changes.__aexit__(None, None, None))


class _MemberHandle(LoopHandle):
    """The use of the loop by one client of a group: closing it leaves the loop to the group."""

    def __init__(self, group: LoopHandle, client: async_client.Client) -> None:
        super().__init__(client.close, group.patience)
        self._group = group
        self.shared_loop = group.shared_loop

    @property
    def is_inactive(self) -> bool:
        return self._group.is_inactive

    def new_call(self) -> BlockingCall:
        return self._group.new_call()

    def release(self) -> None:
        """Do nothing: the group releases the loop."""


def _listening(
    method: Callable[Concatenate[_Async, P], async_changes.GroupChanges],
) -> Callable[Concatenate[Group, P], GroupChanges]:
    @wraps(method)
    def listen(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> GroupChanges:
        return GroupChanges(method(self._client, *args, **kwargs), self._handle)

    listen.__doc__ = """Subscribe to changes of all servers: ``with group.listen(tools=True) as changes``.

        ``for server, change in changes`` gives the name of a server, and its `Change` or `Missed`. A server that is
        added, removed or connected again counts as a change of its lists. Each URI of ``resources`` is subscribed to at
        the servers that ``find_resource`` returns.
        """
    return listen


class Group(Blocking[_Async], Mapping[str, Client]):
    """Several servers as one, for code without ``await``. Several threads may use it at the same time.

    The methods and errors are those of ``mcplumb.Group``; ``group["name"]`` is the client of one server.
    """

    # A group is itself, whatever it contains.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, group: _Async, handle: LoopHandle, callbacks: _Callbacks) -> None:
        super().__init__(group, handle)
        self._callbacks = callbacks

    def __getitem__(self, name: str) -> Client:
        return self._blocking_client(self._handle.read_in_loop(lambda: self._client[name]))

    def __contains__(self, name: object) -> bool:
        return self._handle.read_in_loop(lambda: name in self._client)

    def __iter__(self) -> Iterator[str]:
        return iter(self._handle.read_in_loop(lambda: list(self._client)))

    def __len__(self) -> int:
        return self._handle.read_in_loop(lambda: len(self._client))

    @property
    def failures(self) -> dict[str, Exception]:
        """The servers that are not connected, and why. ``reconnect`` tries again."""
        return self._handle.read_in_loop(lambda: self._client.failures)

    def close(self) -> None:
        """Close all connections at the same time. Idempotent, and may be called from any thread at any time."""
        self._handle.close()

    def add(self, name: str, target: Target | Mapping[str, Any]) -> Client:
        """Add a server and return its client. If connecting fails, the error is raised and the group is unchanged."""
        ready = self._callbacks.threaded({name: target})[name]
        return self._blocking_client(self._handle.new_call().run(self._client.add(name, ready)))

    def reconnect(self, name: str) -> Client:
        """Connect again to a server, for example one that failed, and return its client; raise if it fails again."""
        return self._blocking_client(self._handle.new_call().run(self._client.reconnect(name)))

    def update(self, servers: Servers) -> async_group.GroupUpdate:
        """Change the group to these servers, for example after its config has changed; return what differs.

        Servers whose entries are the same are not disturbed, except that those that had failed are tried again.
        """
        ready = self._callbacks.threaded(loaded(servers))
        update = self._handle.new_call().run(self._client.update(ready))
        self._callbacks.forget_all_but(ready)
        return update

    remove = blocking(_Async.remove)
    list_tools = blocking(_Async.list_tools)
    call_tool = blocking(_Async.call_tool)
    find_tool = blocking(_Async.find_tool)
    list_prompts = blocking(_Async.list_prompts)
    get_prompt = blocking(_Async.get_prompt)
    find_prompt = blocking(_Async.find_prompt)
    list_resources = blocking(_Async.list_resources)
    list_resource_templates = blocking(_Async.list_resource_templates)
    read_resource = blocking(_Async.read_resource)
    find_resource = blocking(_Async.find_resource)
    complete = blocking(_Async.complete)

    listen = _listening(_Async.listen)

    def _blocking_client(self, client: async_client.Client) -> Client:
        return Client(client, _MemberHandle(self._handle, client))


class _Callbacks:
    """Replaces the callbacks among the options of single servers by async functions that call them in threads."""

    def __init__(self, handle: LoopHandle) -> None:
        self._handle = handle
        #: What was given, what replaces it, and what delivers its stderr. A server that is given again gets the same
        #: functions, so that the group sees that nothing has changed.
        self._known: list[tuple[Mapping[str, Any], dict[str, Any], LineDispatcher | None]] = []

    def threaded(self, servers: Any) -> Any:
        """Return the servers with their callbacks replaced; a loaded config has none."""
        if not isinstance(servers, Mapping) or not any(isinstance(target, Mapping) for target in servers.values()):
            return servers
        return {name: self._replaced(it) if isinstance(it, Mapping) else it for name, it in servers.items()}

    def forget_all_but(self, servers: Servers) -> None:
        """Forget the options of servers that are gone."""
        self._known = [known for known in self._known if any(known[1] is it for it in servers.values())]

    async def finish(self) -> None:
        """Wait a moment until the last lines of stderr are delivered."""
        for _, _, dispatcher in self._known:
            if dispatcher is not None:
                await dispatcher.finish(LAST_LINES_TIMEOUT)

    def _replaced(self, given: Mapping[str, Any]) -> dict[str, Any]:
        for before, known, _ in self._known:
            if before == given:
                return known
        replaced = dict(given)
        self._known.append((dict(given), replaced, thread_callbacks(replaced, self._handle)))
        return replaced


@parameters_of(async_group.connect_all)
def connect_all(servers: Servers, **options: Any) -> ConnectingAll:
    """Connect to several servers at once: ``with connect_all({"weather": "python weather.py"}) as group``.

    The servers and the options are those of ``mcplumb.connect_all``, but callbacks must be plain functions. They are
    called in threads of their own, may block, and may use the group.
    """
    return ConnectingAll(servers, options)


class ConnectingAll:
    """A group that is not open yet: enter it with ``with``, or ``open`` it and close the group yourself.

    Groups that are still open when the process exits are closed then.
    """

    def __init__(self, servers: Servers, options: dict[str, Any]) -> None:
        stop: StopLadder = options.get("stop", StopLadder())
        self._handle = LoopHandle(self._close, stop.total + EXIT_GRACE)
        self._callbacks = _Callbacks(self._handle)
        self._stderr = thread_callbacks(options, self._handle)
        self._connecting = async_group.connect_all(self._callbacks.threaded(loaded(servers)), **options)

    def open(self) -> Group:
        """Connect, and wait until the servers are ready. A failed or interrupted attempt leaves nothing open."""
        self._handle.acquire()
        try:
            group = self._handle.new_call().run(self._connecting.__aenter__())
        except BaseException:
            self._handle.release()
            raise
        return Group(group, self._handle, self._callbacks)

    def __enter__(self) -> Group:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.close()

    async def _close(self) -> None:
        await self._connecting.__aexit__(None, None, None)
        await self._callbacks.finish()
        if self._stderr is not None:
            await self._stderr.finish(LAST_LINES_TIMEOUT)

"""Subscriptions of a group: the changes of all its servers in one iteration."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from mcplumb.client.group_member import all_failed
from mcplumb.client.requests import Timeout
from mcplumb.errors import McplumbError, UsageError
from mcplumb.protocol.subscription_state import Change, ListTopic, Missed

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.client.group import Group

__all__ = ["GroupChanges", "ServerChange"]

_logger = logging.getLogger("mcplumb.client")

#: Changes of one server that are queued for the consumer. Beyond that they are replaced by one `Missed`.
_MAX_QUEUED = 256

_LISTS: dict[str, ListTopic] = {"tools": "tools", "prompts": "prompts", "resources_list": "resources"}


class ServerChange(NamedTuple):
    """A change, and the name of the server that reported it."""

    server: str
    change: Change | Missed


class GroupChanges:
    """A subscription to all servers of a group: an async context manager, and within it an async iterator.

    It gives each `ServerChange`. Equal ones that wait for the consumer are given once, so a server that floods the
    subscription cannot push out the changes of others. The iteration ends with the group. A server whose subscription
    fails or ends is logged, and reported with `Missed`; the others go on.
    """

    def __init__(
        self,
        group: Group,
        listeners: set[GroupChanges],
        wanted: Mapping[str, bool],
        uris: tuple[str, ...],
        timeout: Timeout,
    ) -> None:
        self._group = group
        self._listeners = listeners
        self._wanted = wanted
        self._uris = uris
        self._timeout = timeout
        self._is_used = False
        self._has_ended = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: In order; a dict, because equal changes are queued once.
        self._queue: dict[ServerChange, None] = {}
        self._counts: Counter[str] = Counter()
        self._arrived = asyncio.Event()
        #: The number of changes that were dropped because the consumer was too slow.
        self.dropped = 0

    async def __aenter__(self) -> Self:
        if self._is_used:
            raise UsageError("This subscription was used already: call listen again.")
        self._is_used = True
        for uri in self._uris:
            if not await self._group.find_resource(uri):
                raise UsageError(f"No server lists {uri!r}, or has a template for it: listen to a single client.")
        self._listeners.add(self)
        opened = {name: self._follow(name) for name in self._group}
        try:
            if opened:
                await asyncio.wait(opened.values())
            _check_any_opened(opened)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServerChange:
        if not self._is_used:
            raise UsageError("Enter the changes first: async with group.listen(...) as changes.")
        # Cancelling here loses nothing: a change is taken only after the last wait.
        while not self._queue:
            if self._has_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        change = next(iter(self._queue))
        del self._queue[change]
        self._counts[change.server] -= 1
        return change

    @property
    def servers(self) -> list[str]:
        """The servers that are subscribed to at present."""
        return list(self._tasks)

    def end(self) -> None:
        """End the iteration and all subscriptions. Idempotent."""
        self._has_ended = True
        self._listeners.discard(self)
        for task in self._tasks.values():
            task.cancel()
        self._arrived.set()

    def server_changed(self, name: str) -> None:
        """Report that a server has come or gone, and subscribe to it if it has come."""
        if name in self._group and not self._has_ended:
            self._follow(name)
        elif name in self._tasks:
            self._tasks[name].cancel()
        for wanted, topic in _LISTS.items():
            if self._wanted[wanted]:
                self._push(ServerChange(name, Change(topic)))

    def _follow(self, name: str) -> asyncio.Future[None]:
        """Subscribe to a server; return a future that is done when the server has agreed or failed."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        before = self._tasks.get(name)
        task = self._tasks[name] = loop.create_task(self._run(name, self._group[name], opened, before))
        task.add_done_callback(lambda _: self._ended(name, task, opened))
        return opened

    async def _run(
        self, name: str, client: Client, opened: asyncio.Future[None], before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            before.cancel()
            await asyncio.wait((before,))
        try:
            uris = [uri for uri in self._uris if name in await self._group.find_resource(uri)]
            if not uris and not any(self._wanted.values()):
                return
            listening = client.listen(**self._wanted, resources=uris, timeout=self._timeout)
            async with listening as changes:
                opened.set_result(None)
                async for change in changes:
                    self._push(ServerChange(name, change))
        except McplumbError as error:
            _logger.warning("The subscription to the server %r ended: %s", name, error)
            if not opened.done():
                opened.set_exception(error)
                return
        if not self._has_ended:
            self._push(ServerChange(name, Missed()))

    def _ended(self, name: str, task: asyncio.Task[None], opened: asyncio.Future[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not opened.done():
            opened.set_result(None)
        elif not opened.cancelled():
            opened.exception()  # marks it as retrieved: it is logged, and perhaps not awaited

    def _push(self, change: ServerChange) -> None:
        if change in self._queue or self._has_ended:
            return
        if self._counts[change.server] >= _MAX_QUEUED:
            self.dropped += self._counts[change.server]
            self._queue = {it: None for it in self._queue if it.server != change.server}
            self._counts[change.server] = 0
            change = ServerChange(change.server, Missed())
        self._queue[change] = None
        self._counts[change.server] += 1
        self._arrived.set()


def _check_any_opened(opened: Mapping[str, asyncio.Future[None]]) -> None:
    errors = {name: error for name, it in opened.items() if isinstance(error := it.exception(), Exception)}
    if errors and len(errors) == len(opened):
        raise all_failed("subscribed to", errors)

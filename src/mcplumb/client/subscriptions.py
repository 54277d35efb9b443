"""Subscriptions of a client on one connection, in both eras, and the changes they deliver."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from mcplumb.errors import Closed, McplumbError, RequestLost, RequestTimeout, UsageError
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.protocol.subscription_state import Change, Listener, Missed, Subscription, topics_of
from mcplumb.rpc.handler import CallOptions
from mcplumb.rpc.request_errors import Response, failure
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.notification_params import SubscriptionFilter
from mcplumb.wire.messages import Result

if TYPE_CHECKING:
    from mcplumb.client.client_session import ClientSession

__all__ = ["ChangeSource", "Changes", "LegacySubscriptions", "ModernSubscriptions"]

_logger = logging.getLogger("mcplumb.client")


# What a client hears of when it listens.


#: Changes that wait for their consumer. It has to look at everything anew after so many anyway.
_MAX_QUEUED = 1000


class ChangeSource(Protocol):
    """Where changes come from: the way that one era has for them."""

    async def open(self, changes: Changes) -> None:
        """Begin to bring changes, and say with ``granted`` what is honoured."""

    async def close(self, changes: Changes) -> None:
        """Bring no more. Raises nothing, and may be called again."""

    def reopen(self, changes: Changes, cause: McplumbError) -> None:
        """Begin again, because what brought them has broken off; or end them, if that is not wanted."""


class Changes:
    """An async context manager, and within it an async iterator over `Change` and `Missed`.

    It ends when the server ends the subscription, and raises when the server is gone for good. When the server is
    started again, so is the subscription: a `Missed` then stands for what may have changed meanwhile. A consumer that
    is too slow also finds a `Missed`, in the place of what it did not take in time.
    """

    def __init__(self, source: ChangeSource, wanted: SubscriptionFilter, timeout: float | None) -> None:
        self.wanted = wanted
        #: Seconds that the server has for each of its answers.
        self.timeout = timeout
        #: What the server agreed to tell, which may be less than what is wanted; None until it has.
        self.honoured: SubscriptionFilter | None = None
        #: How many changes the consumer was too slow for.
        self.dropped = 0
        #: Why nothing comes any more, if something went wrong.
        self.error: McplumbError | None = None
        self._source = source
        self._queue: deque[Change | Missed] = deque()
        self._arrived = asyncio.Event()
        #: Whether nothing more comes.
        self.has_ended = False
        self._is_used = False
        self._is_lost = False

    async def __aenter__(self) -> Self:
        if self._is_used:
            raise UsageError("These changes were listened to already: call listen again.")
        self._is_used = True
        await self._source.open(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        await self._source.close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change | Missed:
        if not self._is_used:
            raise UsageError("Enter the changes first: async with client.listen(...) as changes.")
        # Cancelled here, nothing is lost: what came is taken only after the last wait.
        while not self._queue:
            if self.error is not None:
                raise self.error
            if self.has_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()

    def lose(self) -> None:
        """The connection is gone; there may be another."""
        self._is_lost = True

    def cut(self, cause: McplumbError) -> None:
        """What brought the changes has broken off, although the connection goes on."""
        if not self.has_ended:
            self.lose()
            self._source.reopen(self, cause)

    def granted(self, honoured: SubscriptionFilter) -> None:
        """The server agreed to tell so much, for the first time or after the subscription had been lost."""
        self.honoured = honoured
        if self._is_lost:
            self._is_lost = False
            self.push(Missed())

    def push(self, change: Change | Missed) -> None:
        """Something changed."""
        if self.has_ended:
            return
        if len(self._queue) >= _MAX_QUEUED:
            self.dropped += len(self._queue)
            self._queue.clear()
            change = Missed()
        self._queue.append(change)
        self._arrived.set()

    def end(self, error: McplumbError | None = None) -> None:
        """Nothing will come any more, because of the error if there is one. The first end counts."""
        if not self.has_ended:
            self.has_ended = True
            self.error = error
            self._arrived.set()


# How changes reach a client: by the subscriptions of the modern era, or by the notifications of the legacy one.


_METHOD = "subscriptions/listen"


class _Stream(msgspec.Struct, eq=False):
    """One subscription that is open: who asked for it, and the request that it is."""

    changes: Changes
    subscription: Subscription
    call: OutgoingRequest
    #: Done when the server has acknowledged, or when it will not any more.
    opened: asyncio.Future[None]

    def mark_opened(self) -> None:
        """Whoever waits to enter may do so, unless that was cancelled a moment ago."""
        if not self.opened.done():
            self.opened.set_result(None)


class ModernSubscriptions:
    """Each ``listen`` is a request that stays open, and what comes for it carries its id."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._listener = Listener()
        self._streams: dict[Subscription, _Stream] = {}

    @property
    def strays(self) -> int:
        """Notifications that belong to no subscription."""
        return self._listener.strays

    async def open(self, changes: Changes) -> None:
        """Send the request, and wait for the server's word on what it honours."""
        try:
            async with asyncio.timeout(changes.timeout):
                await self._session.connection.drained()
                await self._start(changes).opened
        except TimeoutError:
            await self.close(changes)
            raise RequestTimeout(
                f"{_METHOD} was not acknowledged within {changes.timeout:g} s, and has been cancelled."
            ) from None
        except asyncio.CancelledError:
            await self.close(changes)
            raise

    async def close(self, changes: Changes) -> None:
        """Cancel the request."""
        for stream in list(self._streams.values()):
            if stream.changes is changes:
                del self._streams[stream.subscription]
                self._listener.close(stream.subscription)
                self._session.endpoint.give_up(stream.call, "Nobody listens any more.")

    def acknowledged(self, subscription_id: Any, honoured: SubscriptionFilter) -> None:
        """The server says what it will tell."""
        found = self._listener.acknowledged(subscription_id, honoured)
        if found is not None:
            stream = self._streams[found]
            stream.changes.granted(honoured)
            stream.mark_opened()

    def changed(self, subscription_id: Any, change: Change) -> None:
        """The server tells of a change."""
        subscription = self._listener.changed(subscription_id, change)
        if subscription is not None:
            self._streams[subscription].changes.push(change)

    def _start(self, changes: Changes) -> _Stream:
        session = self._session
        call, answer = session.open(_METHOD, {"notifications": changes.wanted})
        subscription = self._listener.open(call.id, changes.wanted)
        stream = _Stream(changes, subscription, call, asyncio.get_running_loop().create_future())
        self._streams[subscription] = stream
        answer.add_done_callback(partial(self._answered, stream))
        return stream

    def _answered(self, stream: _Stream, answer: asyncio.Future[Response]) -> None:
        if self._streams.pop(stream.subscription, None) is None:
            return  # closed by this side
        outcome, call = answer.result(), stream.call
        if type(outcome) is Result or call.state == "ended":
            self._listener.ended(call.id)
            stream.changes.end()
        else:
            self._listener.failed(call.id)
            error = failure(call, outcome, _METHOD, "server")
            if not stream.opened.done():
                stream.opened.set_exception(error)
            elif call.state == "failed" and isinstance(error, Closed | RequestLost):
                stream.changes.cut(error)
            elif call.state != "lost":  # otherwise there may be another connection
                stream.changes.end(error)
        stream.mark_opened()


class LegacySubscriptions:
    """Servers announce changes of their lists to everyone; resources are subscribed to one by one, whoever listens."""

    strays = 0

    def __init__(self, session: ClientSession, capabilities: ServerCapabilities) -> None:
        self._session = session
        self._capabilities = capabilities
        #: Each listener, with the addresses that were subscribed to for it.
        self._listeners: dict[Changes, list[str]] = {}
        self._counts: Counter[str] = Counter()
        # Two listeners may want the same resource: one request after the other, so that the count is true.
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, changes: Changes) -> None:
        """Subscribe to the resources that no other listener has subscribed to yet."""
        honoured = _supported_filter(changes.wanted, self._capabilities)
        changes.granted(honoured)
        subscribed = self._listeners[changes] = []
        try:
            for uri in honoured.resource_subscriptions or ():
                async with self._locks.setdefault(uri, asyncio.Lock()):
                    if not self._counts[uri]:
                        await self._request("resources/subscribe", changes, uri)
                    self._counts[uri] += 1
                    subscribed.append(uri)
        except BaseException:
            await self.close(changes)
            raise

    async def close(self, changes: Changes) -> None:
        """Unsubscribe from the resources that nobody else listens to. Nobody waits for the server's word on that."""
        uris = self._listeners.pop(changes, [])
        self._counts.subtract(uris)
        for uri in uris:
            if not self._counts[uri]:
                del self._counts[uri]
                self._locks.pop(uri, None)
                if self._session.is_open:
                    self._session.endpoint.open("resources/unsubscribe", {"uri": uri})

    def changed(self, _: Any, change: Change) -> None:
        """The server tells of a change: everyone who asked for it gets it."""
        listeners = [changes for changes in self._listeners if change.topic in topics_of(_honoured(changes))]
        if change.topic == "updates":
            exact = [each for each in listeners if change.uri in (_honoured(each).resource_subscriptions or ())]
            # Otherwise it is a part of a resource that somebody asked for. Of which one, only the server knows.
            listeners = exact or listeners
        for changes in listeners:
            changes.push(change)

    async def _request(self, method: str, changes: Changes, uri: str) -> None:
        await self._session.request(method, {"uri": uri}, CallOptions(timeout=changes.timeout))


def _honoured(changes: Changes) -> SubscriptionFilter:
    return changes.honoured or SubscriptionFilter()


def _supported_filter(wanted: SubscriptionFilter, capabilities: ServerCapabilities) -> SubscriptionFilter:
    """What a server with these capabilities tells of what is wanted."""
    tools, prompts, resources = capabilities.tools, capabilities.prompts, capabilities.resources
    return SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed if tools and tools.list_changed else None,
        prompts_list_changed=wanted.prompts_list_changed if prompts and prompts.list_changed else None,
        resources_list_changed=wanted.resources_list_changed if resources and resources.list_changed else None,
        resource_subscriptions=wanted.resource_subscriptions if resources and resources.subscribe else None,
    )

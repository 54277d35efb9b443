"""How changes reach a client: by the subscriptions of the modern era, or by the notifications of the legacy one."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.client.calls import Outcome, failure
from mcplumb.client.changes import Changes
from mcplumb.errors import Closed, RequestLost, RequestTimeout
from mcplumb.protocol.listening import Change, Listener, Subscription
from mcplumb.protocol.outgoing import Call
from mcplumb.protocol.topics import topics_of
from mcplumb.types.capabilities import ServerCapabilities
from mcplumb.types.subscriptions import SubscriptionFilter
from mcplumb.wire.messages import Result

if TYPE_CHECKING:
    from mcplumb.client.session import Session

__all__ = ["LegacySubscriptions", "ModernSubscriptions"]

_METHOD = "subscriptions/listen"

_logger = logging.getLogger("mcplumb.client")


class _Stream(msgspec.Struct, eq=False):
    """One subscription that is open: who asked for it, and the request that it is."""

    changes: Changes
    subscription: Subscription
    call: Call
    #: Done when the server has acknowledged, or when it will not any more.
    opened: asyncio.Future[None]

    def let_in(self) -> None:
        """Whoever waits to enter may do so, unless that was cancelled a moment ago."""
        if not self.opened.done():
            self.opened.set_result(None)


class ModernSubscriptions:
    """Each ``listen`` is a request that stays open, and what comes for it carries its id."""

    def __init__(self, session: Session) -> None:
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
                await self._begin(changes).opened
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
                self._session.calls.give_up(stream.call, "Nobody listens any more.")

    def acknowledged(self, subscription_id: Any, honoured: SubscriptionFilter) -> None:
        """The server says what it will tell."""
        found = self._listener.acknowledged(subscription_id, honoured)
        if found is not None:
            stream = self._streams[found]
            stream.changes.granted(honoured)
            stream.let_in()

    def changed(self, subscription_id: Any, change: Change) -> None:
        """The server tells of a change."""
        subscription = self._listener.changed(subscription_id, change)
        if subscription is not None:
            self._streams[subscription].changes.push(change)

    def _begin(self, changes: Changes) -> _Stream:
        session = self._session
        call, answer = session.open(_METHOD, {"notifications": changes.wanted})
        subscription = self._listener.open(call.id, changes.wanted)
        stream = _Stream(changes, subscription, call, asyncio.get_running_loop().create_future())
        self._streams[subscription] = stream
        answer.add_done_callback(partial(self._answered, stream))
        return stream

    def _answered(self, stream: _Stream, answer: asyncio.Future[Outcome]) -> None:
        if self._streams.pop(stream.subscription, None) is None:
            return  # closed by this side
        outcome, call = answer.result(), stream.call
        if type(outcome) is Result or call.state == "ended":
            self._listener.ended(call.id)
            stream.changes.end()
        else:
            self._listener.failed(call.id)
            error = failure(call, outcome, _METHOD)
            if not stream.opened.done():
                stream.opened.set_exception(error)
            elif call.state == "failed" and isinstance(error, Closed | RequestLost):
                stream.changes.cut(error)
            elif call.state != "lost":  # otherwise there may be another connection
                stream.changes.end(error)
        stream.let_in()


class LegacySubscriptions:
    """Servers announce changes of their lists to everyone; resources are subscribed to one by one, whoever listens."""

    strays = 0

    def __init__(self, session: Session, capabilities: ServerCapabilities) -> None:
        self._session = session
        self._capabilities = capabilities
        #: Each listener, with the addresses that were subscribed to for it.
        self._listeners: dict[Changes, list[str]] = {}
        self._counts: Counter[str] = Counter()
        # Two listeners may want the same resource: one request after the other, so that the count is true.
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, changes: Changes) -> None:
        """Subscribe to the resources that no other listener has subscribed to yet."""
        honoured = _offered(changes.wanted, self._capabilities)
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
                if self._session.calls.is_open:
                    self._session.calls.open("resources/unsubscribe", {"uri": uri})

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
        await self._session.request(method, {"uri": uri}, timeout=changes.timeout, max_timeout=None)


def _honoured(changes: Changes) -> SubscriptionFilter:
    return changes.honoured or SubscriptionFilter()


def _offered(wanted: SubscriptionFilter, capabilities: ServerCapabilities) -> SubscriptionFilter:
    """What a server with these capabilities tells of what is wanted."""
    tools, prompts, resources = capabilities.tools, capabilities.prompts, capabilities.resources
    return SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed if tools and tools.list_changed else None,
        prompts_list_changed=wanted.prompts_list_changed if prompts and prompts.list_changed else None,
        resources_list_changed=wanted.resources_list_changed if resources and resources.list_changed else None,
        resource_subscriptions=wanted.resource_subscriptions if resources and resources.subscribe else None,
    )

"""Notifications on the server: those from the client, for handlers, and those about changes, for subscribers.

Changes are collected, sent together at the end of a turn of the loop, and held back while the client does not keep up.
A change that is already queued is not queued again, so the queue never exceeds the number of subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from mcplumb.errors import DecodeError, RequestError
from mcplumb.protocol.subscription_state import LIST_CHANGED, TOPICS, ListTopic, Publisher
from mcplumb.rpc.thread_pool import ThreadPool
from mcplumb.server.catalog import HandlerEntry
from mcplumb.server.schema.signature import BadArguments
from mcplumb.types.notification_params import SubscriptionFilter
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import INVALID_PARAMS, Error, Notification, RequestId

if TYPE_CHECKING:
    from mcplumb.server.server_session import ServerSession

__all__ = ["NotificationHandlers", "ServerSubscriptions"]

_logger = logging.getLogger("mcplumb.server")


# --- Notifications from the client ---

#: The number of notifications in handlers at which reading pauses.
_MAX_BUSY = 100


class NotificationHandlers:
    """Calls the author's notification handlers for one connection, and counts the running ones."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._busy = 0

    def __len__(self) -> int:
        return self._busy

    def handle(self, entry: HandlerEntry, notification: Notification) -> None:
        """Call the handler for a notification."""
        endpoint = self._session.endpoint
        # Started at once, as requests are: a later request must not overtake the notification.
        task = endpoint.start_task(_handle(entry, notification, self._session.shared.thread_pool))
        if task.done():
            return
        self._busy += 1
        if self._busy == _MAX_BUSY:
            endpoint.pause("notifications")
        task.add_done_callback(self._handled)

    def _handled(self, _: asyncio.Task[None]) -> None:
        self._busy -= 1
        self._session.endpoint.unpause("notifications")
        self._session.check_finished()


async def _handle(entry: HandlerEntry, notification: Notification, thread_pool: ThreadPool) -> None:
    """Call the function for a notification. Its failure is logged and affects nothing else."""
    try:
        arguments = entry.signature.read({entry.takes: read(dict[str, Any], notification.params, what="params")})
    except (BadArguments, DecodeError) as error:
        _logger.warning("A notification for the %s was ignored. %s", entry.label, error)
        return
    try:
        if entry.signature.is_async:
            await entry.function(**arguments)
        else:
            _, failed = await thread_pool.run(entry.function, arguments)
            if failed is not None:
                _logger.error("The %s failed.", entry.label, exc_info=failed)
    except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:
        _logger.exception("The %s failed.", entry.label)


# --- Subscriptions ---


class ServerSubscriptions:
    """The subscriptions of one connection, modern and legacy. Belongs to the event loop's thread."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._publisher = Publisher(TOPICS, session.shared.limits)
        #: The resources that the legacy session subscribed to.
        self._subscribed: set[str] = set()
        self._lists: dict[ListTopic, None] = {}
        self._updates: dict[str, None] = {}
        self._flushing: asyncio.Task[None] | None = None
        #: Whether the connection announces changes to a legacy client by itself.
        self._is_bypassed: bool = getattr(session.connection, "hears_changes", False)

    def listen(self, request_id: RequestId, wanted: SubscriptionFilter) -> None:
        """Open a modern subscription; raise RequestError if there are too many."""
        # Send earlier changes first: the new subscription must not receive them.
        self._send()
        opened = self._publisher.open(request_id, wanted)
        if isinstance(opened, Error):
            raise RequestError(opened.error.code, opened.error.message)
        self._session.connection.send(opened)
        self._session.endpoint.pause_while_clogged()

    def cancel(self, request_id: RequestId) -> None:
        """End a modern subscription that the client cancelled."""
        self._publisher.cancel(request_id)

    def end_all(self) -> None:
        """End the modern subscriptions from this side."""
        session = self._session
        self._send()
        for result in self._publisher.end_all(session.shared.result_meta(session.shared.revisions[0])):
            request = session.endpoint.incoming.find(result.id)
            if request is not None:
                session.endpoint.finish(request, result.result)

    def subscribe(self, uri: str) -> None:
        """Subscribe the legacy session to a resource; raise RequestError if there are too many."""
        limits = self._session.shared.limits
        if len(uri) > limits.max_uri:
            raise RequestError(
                INVALID_PARAMS, f"The address of a resource may have no more than {limits.max_uri} characters."
            )
        if len(self._subscribed) >= limits.max_subscribed_resources and uri not in self._subscribed:
            raise RequestError(
                INVALID_PARAMS, f"No more than {limits.max_subscribed_resources} resources may be subscribed to."
            )
        self._subscribed.add(uri)

    def unsubscribe(self, uri: str) -> None:
        """Unsubscribe the legacy session from a resource."""
        self._subscribed.discard(uri)

    def unsubscribe_all(self) -> None:
        """Unsubscribe the legacy session from every resource."""
        self._subscribed.clear()

    def list_changed(self, topic: ListTopic) -> None:
        """Queue the notifications that a list has changed."""
        self._lists[topic] = None
        self._flush_soon()

    def resource_changed(self, uri: str) -> None:
        """Queue the notifications that a resource has changed."""
        if (uri in self._subscribed and not self._is_bypassed) or self._publisher.is_watched(uri):
            self._updates[uri] = None
            self._flush_soon()

    def everything_changed(self) -> None:
        """Queue the notifications of all changes that may have been missed."""
        self._lists = dict.fromkeys(LIST_CHANGED)
        self._updates = dict.fromkeys((*self._subscribed, *self._publisher.watched()))
        self._flush_soon()

    def close(self) -> None:
        """Stop sending, because the connection is closed."""
        if self._flushing is not None:
            self._flushing.cancel()

    def _flush_soon(self) -> None:
        if (self._flushing is None or self._flushing.done()) and self._session.endpoint.is_open:
            # Not by `create_task`: an eager task would send each of many changes by itself.
            self._flushing = asyncio.Task(self._flush(), loop=self._session.loop)

    async def _flush(self) -> None:
        await self._session.connection.drained()
        self._send()

    def _send(self) -> None:
        connection = self._session.connection
        lists, self._lists = self._lists, {}
        updates, self._updates = self._updates, {}
        has_legacy = self._session.is_ready_legacy and not self._is_bypassed
        for topic in lists:
            for notification in self._publisher.list_changed(topic):
                connection.send(notification)
            if has_legacy:
                connection.send(Notification(LIST_CHANGED[topic]))
        for uri in updates:
            for notification in self._publisher.resource_updated(uri):
                connection.send(notification)
            if uri in self._subscribed and not self._is_bypassed:
                connection.send(Notification("notifications/resources/updated", {"uri": uri}))

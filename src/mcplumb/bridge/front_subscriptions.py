"""The subscriptions of one client of a bridge: changes at the servers are announced in the client's era."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias

from mcplumb.client.subscriptions import Changes
from mcplumb.errors import McplumbError, RequestError
from mcplumb.protocol.subscription_state import LIST_CHANGED, TOPICS, Change, Missed, Publisher, topics_of
from mcplumb.server.dispatch.running_call import Call
from mcplumb.types.notification_params import ListenParams, SubscriptionFilter
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND, Error, Notification

if TYPE_CHECKING:
    from mcplumb.bridge.bridge_session import BridgeSession

__all__ = ["FrontSubscriptions", "OpenChanges"]

#: Opens the subscriptions at the servers for what a client wants, within a block.
OpenChanges: TypeAlias = Callable[[SubscriptionFilter], AbstractAsyncContextManager[Sequence[Changes]]]


class FrontSubscriptions:
    """The subscriptions of one connection to the bridge, modern and legacy."""

    def __init__(self, session: BridgeSession) -> None:
        self._session = session
        self._publisher = Publisher(TOPICS, session.shared.limits)
        #: The subscriptions at the servers that feed each modern one.
        self._sources: dict[Any, Sequence[Changes]] = {}
        #: The tasks that announce changes to a legacy client: of the lists, and of each resource.
        self._legacy: dict[str, asyncio.Task[None]] = {}
        self._is_ending = False

    @property
    def is_open(self) -> bool:
        """Whether there are subscriptions."""
        return bool(self._sources or self._legacy)

    # --- Modern clients ---

    async def listen(self, call: Call, open_changes: OpenChanges) -> Any:
        """Serve ``subscriptions/listen`` until the client cancels it or the servers end it; return its result."""
        wanted = read(ListenParams, call.request.params, what="params").notifications
        session = self._session
        async with AsyncExitStack() as stack:
            sources = self._sources[call.id] = await stack.enter_async_context(open_changes(wanted))
            stack.callback(self._sources.pop, call.id, None)
            if self._is_ending:
                self.end_all()
            opened = self._publisher.open(call.id, _merged(sources))
            if isinstance(opened, Error):
                raise RequestError(opened.error.code, opened.error.message)
            stack.callback(self._publisher.cancel, call.id)
            session.connection.send(opened)
            session.endpoint.pause_while_clogged()

            def announce(change: Change) -> None:
                notification = self._publisher.changed(call.id, change)
                if notification is not None:
                    session.connection.send(notification, call.id)

            await asyncio.gather(*(self._pump(changes, announce) for changes in sources))
            ended = self._publisher.end(call.id, session.shared.result_meta(call.admitted.revision))
        return None if ended is None else ended.result

    def end_all(self) -> None:
        """End the modern subscriptions from this side: their requests are answered."""
        self._is_ending = True  # also for those that are being opened
        for sources in self._sources.values():
            for changes in sources:
                changes.end()

    # --- Legacy clients ---

    async def announce_lists(self, open_changes: OpenChanges) -> None:
        """Announce changes of the lists from now on."""
        lists = SubscriptionFilter(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        if "" not in self._legacy:
            await self._watch("", lists, open_changes)

    async def subscribe(self, uri: str, open_changes: OpenChanges) -> None:
        """Announce changes of a resource from now on; raise `RequestError` if too many are subscribed to."""
        limits = self._session.shared.limits
        known = self._legacy.keys() - {"", uri}
        if len(uri) > limits.max_uri or len(known) >= limits.max_subscribed_resources:
            raise RequestError(
                INVALID_PARAMS,
                f"A client may subscribe to {limits.max_subscribed_resources} resources, whose addresses have at most "
                f"{limits.max_uri} characters.",
            )
        if uri not in self._legacy:
            await self._watch(uri, SubscriptionFilter(resource_subscriptions=[uri]), open_changes)

    def unsubscribe(self, uri: str) -> None:
        """Stop announcing changes of a resource."""
        if uri in self._legacy:
            self._legacy.pop(uri).cancel()

    def close(self) -> None:
        """Stop announcing, because the client is gone or starts a new session."""
        for task in self._legacy.values():
            task.cancel()
        self._legacy.clear()

    async def _watch(self, key: str, wanted: SubscriptionFilter, open_changes: OpenChanges) -> None:
        """Start a task that announces changes, and wait until the servers have acknowledged the subscription."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def watch() -> None:
            try:
                async with open_changes(wanted) as sources:
                    missing = set(wanted.resource_subscriptions or ()) - set(
                        _merged(sources).resource_subscriptions or ()
                    )
                    if missing:
                        raise RequestError(METHOD_NOT_FOUND, "The server does not offer subscriptions to resources.")
                    if not opened.done():
                        opened.set_result(None)
                    await asyncio.gather(*(self._pump(changes, self._announce) for changes in sources))
            except McplumbError as error:
                # A client that asked for the subscription gets the error; for others, lists do not change any more.
                if not opened.done():
                    opened.set_exception(error)
            finally:
                if not opened.done():
                    opened.cancel()

        def ended(task: asyncio.Task[None]) -> None:
            # So that the client can subscribe again.
            if self._legacy.get(key) is task:
                del self._legacy[key]

        watching = self._legacy[key] = self._session.endpoint.start_task(watch())
        watching.add_done_callback(ended)
        try:
            await opened
        except asyncio.CancelledError:
            watching.cancel()  # the client does not want it any more
            raise

    def _announce(self, change: Change) -> None:
        if not getattr(self._session.connection, "may_announce", True):
            return  # another replica does
        if change.topic == "updates":
            notification = Notification("notifications/resources/updated", {"uri": change.uri})
        else:
            notification = Notification(LIST_CHANGED[change.topic])
        self._session.connection.send(notification)

    # --- Both ---

    async def _pump(self, changes: Changes, announce: Callable[[Change], None]) -> None:
        """Announce each change, as fast as the client reads."""
        async for change in changes:
            await self._session.connection.drained()
            for each in _all_of(changes) if isinstance(change, Missed) else (change,):
                announce(each)


def _all_of(changes: Changes) -> list[Change]:
    """Return every change that may have been missed, so that the client reads everything again."""
    honoured = changes.honoured or SubscriptionFilter()
    missed = [Change(topic) for topic in LIST_CHANGED if topic in topics_of(honoured)]
    return missed + [Change("updates", uri) for uri in honoured.resource_subscriptions or ()]


def _merged(sources: Sequence[Changes]) -> SubscriptionFilter:
    """Return the combined filter that the servers honour."""
    honoured = [changes.honoured for changes in sources if changes.honoured is not None]
    uris = dict.fromkeys(uri for each in honoured for uri in each.resource_subscriptions or ())
    return SubscriptionFilter(
        tools_list_changed=any(each.tools_list_changed for each in honoured) or None,
        prompts_list_changed=any(each.prompts_list_changed for each in honoured) or None,
        resources_list_changed=any(each.resources_list_changed for each in honoured) or None,
        resource_subscriptions=list(uris) or None,
    )

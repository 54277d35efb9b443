"""Subscriptions of a client, in both eras: the iterator over changes, one connection's part, and their renewal.

`Changes` is what users iterate over. `ModernSubscriptions` and `LegacySubscriptions` feed it on one connection.
`SubscriptionRenewal` opens subscriptions again on the next connection, because they outlive the one that carries them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from mcplumb.client.link import MAX_AUTHORIZED
from mcplumb.errors import AuthorizationError, Closed, HttpError, McplumbError, RequestLost, RequestTimeout, UsageError
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.protocol.subscription_state import Change, Listener, Missed, Subscription, topics_of
from mcplumb.rpc.handler import CallOptions
from mcplumb.rpc.outgoing_requests import Response, failure
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.notification_params import SubscriptionFilter
from mcplumb.wire.messages import Result

if TYPE_CHECKING:
    from mcplumb.client.client_session import ClientSession
    from mcplumb.protocol.oauth.tokens import Grant

__all__ = ["ChangeSource", "Changes", "LegacySubscriptions", "ModernSubscriptions", "SubscriptionRenewal"]

_logger = logging.getLogger("mcplumb.client")


# --- The iterator ---

#: The number of changes queued for a consumer. Beyond it they are replaced by one `Missed`.
_MAX_QUEUED = 1000


class ChangeSource(Protocol):
    """Opens and closes the subscription that feeds a `Changes`."""

    async def open(self, changes: Changes) -> None:
        """Open the subscription, and report with ``granted`` what the server honours."""

    async def close(self, changes: Changes) -> None:
        """Close the subscription. Raises nothing, and may be called again."""

    def reopen(self, changes: Changes, cause: McplumbError) -> None:
        """Open the subscription again after its stream broke, or end it if lost subscriptions are not reopened."""

    def has_spent_token(self, changes: Changes) -> bool:
        """Return whether the access token that the subscription was opened with has ended."""


class Changes:
    """An async context manager, and within it an async iterator over `Change` and `Missed`.

    It ends when the server ends the subscription, and raises when the server is gone for good. When the server is
    restarted, or the access token has ended, the subscription is opened again, and a `Missed` stands for what may have
    changed meanwhile. A consumer that is too slow also gets a `Missed`, in place of the changes that were dropped.
    """

    def __init__(
        self,
        source: ChangeSource,
        wanted: SubscriptionFilter,
        timeout: float | None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.wanted = wanted
        #: Seconds to wait for each response of the server.
        self.timeout = timeout
        #: The part of ``wanted`` that the server honours; None until it has acknowledged.
        self.honoured: SubscriptionFilter | None = None
        #: The number of changes dropped because the consumer was too slow.
        self.dropped = 0
        #: The error that ended the subscription, if any.
        self.error: McplumbError | None = None
        self._source = source
        #: The ``_meta`` of the request for a modern subscription, in addition to that of the connection.
        self._meta = meta
        self._queue: deque[Change | Missed] = deque()
        self._arrived = asyncio.Event()
        #: Whether the subscription has ended.
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
        # Cancelling here loses nothing: a change is taken only after the last wait.
        while not self._queue:
            if self.error is not None:
                raise self.error
            if self.has_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.popleft()

    def lose(self) -> None:
        """Record that the connection is lost, so that the next grant is preceded by a `Missed`."""
        self._is_lost = True

    def cut(self, cause: McplumbError) -> None:
        """Have the subscription opened again, because its stream broke while the connection stayed open."""
        if not self.has_ended:
            self.lose()
            self._source.reopen(self, cause)

    def finish(self) -> None:
        """End the iteration because the server has ended the subscription, unless only its access token has ended."""
        if self._source.has_spent_token(self):
            self.cut(RequestLost("The subscription has ended with its access token."))
        else:
            self.end()

    def granted(self, honoured: SubscriptionFilter) -> None:
        """Record what the server honours, for the first time or after the subscription was lost."""
        self.honoured = honoured
        if self._is_lost:
            self._is_lost = False
            self.push(Missed())

    def push(self, change: Change | Missed) -> None:
        """Queue a change for the consumer."""
        if self.has_ended:
            return
        if len(self._queue) >= _MAX_QUEUED:
            self.dropped += len(self._queue)
            self._queue.clear()
            change = Missed()
        self._queue.append(change)
        self._arrived.set()

    def end(self, error: McplumbError | None = None) -> None:
        """End the iteration, with this error if there is one. Only the first call counts."""
        if not self.has_ended:
            self.has_ended = True
            self.error = error
            self._arrived.set()


# --- Subscriptions on one connection ---

_METHOD = "subscriptions/listen"


class _Stream(msgspec.Struct, eq=False):
    """One open subscription: its consumer, and the request that keeps it open."""

    changes: Changes
    subscription: Subscription
    call: OutgoingRequest
    #: Done when the server has acknowledged, or never will.
    opened: asyncio.Future[None]

    def mark_opened(self) -> None:
        """Resume the task that opens the subscription, unless it was cancelled."""
        if not self.opened.done():
            self.opened.set_result(None)


class ModernSubscriptions:
    """Modern subscriptions: each is a request that stays open, and its notifications carry its id."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._listener = Listener()
        self._streams: dict[Subscription, _Stream] = {}

    @property
    def strays(self) -> int:
        """The number of notifications without a subscription."""
        return self._listener.strays

    async def open(self, changes: Changes) -> None:
        """Send the request, and wait for the server's acknowledgement."""
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
                self._session.endpoint.give_up(stream.call, "The subscription was closed.")

    def acknowledged(self, subscription_id: Any, honoured: SubscriptionFilter) -> None:
        """Record the server's acknowledgement of a subscription."""
        found = self._listener.acknowledged(subscription_id, honoured)
        if found is not None:
            stream = self._streams[found]
            stream.changes.granted(honoured)
            stream.mark_opened()

    def changed(self, subscription_id: Any, change: Change) -> None:
        """Pass a change on to its subscription."""
        subscription = self._listener.changed(subscription_id, change)
        if subscription is not None:
            self._streams[subscription].changes.push(change)

    def _start(self, changes: Changes) -> _Stream:
        session = self._session
        call, answer = session.open(_METHOD, {"notifications": changes.wanted}, changes._meta)
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
            stream.changes.finish()
        else:
            self._listener.failed(call.id)
            error = failure(call, outcome, _METHOD, "server")
            if not stream.opened.done():
                stream.opened.set_exception(error)
            elif call.state == "failed" and isinstance(error, Closed | RequestLost):
                stream.changes.cut(error)
            elif call.state != "lost":  # otherwise the subscription may be renewed on another connection
                stream.changes.end(error)
        stream.mark_opened()


class LegacySubscriptions:
    """Legacy subscriptions: list changes are announced without asking; resources are subscribed to one by one."""

    strays = 0

    def __init__(self, session: ClientSession, capabilities: ServerCapabilities) -> None:
        self._session = session
        self._capabilities = capabilities
        #: Each consumer, with the URIs that were subscribed to for it.
        self._listeners: dict[Changes, list[str]] = {}
        self._counts: Counter[str] = Counter()
        # Two consumers may want the same resource: a lock per URI keeps its count correct.
        self._locks: dict[str, asyncio.Lock] = {}

    async def open(self, changes: Changes) -> None:
        """Subscribe to the resources that no other consumer has subscribed to yet."""
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
        """Unsubscribe from the resources without another consumer, without waiting for the responses."""
        uris = self._listeners.pop(changes, [])
        self._counts.subtract(uris)
        for uri in uris:
            if not self._counts[uri]:
                del self._counts[uri]
                self._locks.pop(uri, None)
                if self._session.is_open:
                    self._session.endpoint.open("resources/unsubscribe", {"uri": uri})

    def changed(self, _: Any, change: Change) -> None:
        """Pass a change on to every consumer that subscribed to it."""
        listeners = [changes for changes in self._listeners if change.topic in topics_of(_honoured(changes))]
        if change.topic == "updates":
            exact = [each for each in listeners if change.uri in (_honoured(each).resource_subscriptions or ())]
            # Otherwise the URI is part of a subscribed resource; only the server knows which one.
            listeners = exact or listeners
        for changes in listeners:
            changes.push(change)

    async def _request(self, method: str, changes: Changes, uri: str) -> None:
        await self._session.request(method, {"uri": uri}, CallOptions(timeout=changes.timeout))


def _honoured(changes: Changes) -> SubscriptionFilter:
    return changes.honoured or SubscriptionFilter()


def _supported_filter(wanted: SubscriptionFilter, capabilities: ServerCapabilities) -> SubscriptionFilter:
    """Return the part of ``wanted`` that a server with these capabilities supports."""
    tools, prompts, resources = capabilities.tools, capabilities.prompts, capabilities.resources
    return SubscriptionFilter(
        tools_list_changed=wanted.tools_list_changed if tools and tools.list_changed else None,
        prompts_list_changed=wanted.prompts_list_changed if prompts and prompts.list_changed else None,
        resources_list_changed=wanted.resources_list_changed if resources and resources.list_changed else None,
        resource_subscriptions=wanted.resource_subscriptions if resources and resources.subscribe else None,
    )


# --- Renewal after a lost connection ---

#: Seconds before a broken stream is opened again: the first time, and at most. The wait starts over after a stream has
#: lived for `_STABLE_AFTER` seconds, so a proxy that cuts idle streams once a minute does not make it grow.
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 30.0
_STABLE_AFTER = 20.0


class _Sessions(Protocol):
    @property
    def reopens(self) -> bool:
        """Whether lost subscriptions are opened again."""

    @property
    def grant(self) -> Grant | None:
        """What authorizes requests at present."""

    async def ready(self, what: str, within: float | None) -> ClientSession:
        """Wait for a session and return it."""

    async def authorize(self, refusal: HttpError) -> bool:
        """Get what a refused request needs, from the user if necessary. Return whether to send the request again."""


class SubscriptionRenewal:
    """Opens each subscription on the current session, and again on the next one when that session is lost."""

    def __init__(self, sessions: _Sessions) -> None:
        self._sessions = sessions
        #: Each open subscription, with the session that it was last opened on.
        self._open: dict[Changes, ClientSession] = {}
        self._renewals: dict[Changes, asyncio.Task[None]] = {}
        #: For each subscription whose stream broke: the last wait, and when the stream was opened again.
        self._waits: dict[Changes, tuple[float, float]] = {}
        #: What authorized each subscription when it was last opened.
        self._grants: dict[Changes, Grant | None] = {}
        #: The changes dropped by subscriptions that are closed by now.
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """The number of changes dropped because a consumer was too slow."""
        return self._dropped + sum(changes.dropped for changes in self._open)

    async def open(self, changes: Changes) -> None:
        """Open a subscription. If this fails or is cancelled, nothing is left of it."""
        is_granted = False
        while True:
            try:
                session = await self._sessions.ready("subscriptions/listen", changes.timeout)
            except McplumbError as error:
                if not is_granted:
                    raise
                changes.end(_gone(error.__cause__ or error))
                return
            try:
                await self._open_on(session, changes)
            except (Closed, RequestLost):
                if session.is_open:
                    raise
            else:
                if session.is_open:
                    self._open[changes] = session
                    return
                # The session was lost meanwhile, before `renew` could know of this subscription.
                is_granted = True
                changes.lose()

    async def close(self, changes: Changes) -> None:
        """Close a subscription. May be called again."""
        renewal = self._renewals.pop(changes, None)
        if renewal is not None:
            renewal.cancel()
        self._waits.pop(changes, None)
        self._grants.pop(changes, None)
        session = self._open.pop(changes, None)
        if session is not None:
            self._dropped += changes.dropped
            if session.is_open:
                await session.subscriptions.close(changes)

    def renew(self, session: ClientSession) -> None:
        """Open the subscriptions of the previous session on a new one."""
        for changes in self._open:
            if changes.has_ended:
                continue
            changes.lose()
            self._open[changes] = session
            self._start(changes, self._renew(changes, session))

    def reopen(self, changes: Changes, cause: McplumbError) -> None:
        """Open a subscription again whose stream broke while its session stayed open."""
        session = self._open.get(changes)
        if session is None or not self._sessions.reopens:
            changes.end(cause)
        else:
            self._start(changes, self._reopen(changes, session))

    def has_spent_token(self, changes: Changes) -> bool:
        """Return whether the access token that a subscription was opened with has ended, or is about to."""
        grant = self._grants.get(changes)
        return grant is not None and not grant.is_fresh(time.time())

    def end(self, cause: Exception) -> None:
        """End every subscription with this cause, because there will be no other session."""
        for changes in self._open:
            changes.end(_gone(cause))
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()

    def _start(self, changes: Changes, renewal: Coroutine[Any, Any, None]) -> None:
        before = self._renewals.get(changes)
        if before is not None and before is not asyncio.current_task():
            before.cancel()
        self._renewals[changes] = asyncio.get_running_loop().create_task(renewal)

    async def _reopen(self, changes: Changes, session: ClientSession) -> None:
        loop = asyncio.get_running_loop()
        wait, since = self._waits.get(changes, (0.0, loop.time()))
        if loop.time() - since > _STABLE_AFTER:
            wait = 0.0
        wait = min(max(2 * wait, _FIRST_WAIT), _LONGEST_WAIT)
        await asyncio.sleep(wait)
        self._waits[changes] = (wait, loop.time())
        await self._renew(changes, session)

    async def _renew(self, changes: Changes, session: ClientSession) -> None:
        try:
            await self._open_on(session, changes)
        except McplumbError as error:
            if not session.is_open:
                return  # `renew` or `end` follows
            may_pass = isinstance(error, AuthorizationError) and error.reason == "unreachable"
            if may_pass or isinstance(error, Closed | RequestLost):
                changes.cut(error)
            else:
                changes.end(error)

    async def _open_on(self, session: ClientSession, changes: Changes) -> None:
        """Open a subscription on a session, and get what it needs for that, from the user if necessary."""
        for attempt in itertools.count(1):
            self._grants[changes] = self._sessions.grant
            try:
                await session.subscriptions.open(changes)
            except HttpError as refusal:
                if attempt > MAX_AUTHORIZED or not await self._sessions.authorize(refusal):
                    raise
            else:
                return


def _gone(cause: BaseException) -> Closed:
    gone = Closed(f"The subscription ended with its connection. {cause}")
    gone.__cause__ = cause
    return gone

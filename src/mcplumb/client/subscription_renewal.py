"""Renewal of subscriptions: they outlive the connections that carry them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from mcplumb.client.client_session import ClientSession
from mcplumb.client.subscriptions import Changes
from mcplumb.errors import Closed, McplumbError, RequestLost

__all__ = ["SubscriptionRenewal"]

#: Seconds before a broken stream is opened again: the first time, and at most. The wait starts over after a stream has
#: lived for `_STABLE_AFTER` seconds, so a proxy that cuts idle streams once a minute does not make it grow.
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 30.0
_STABLE_AFTER = 20.0


class _Sessions(Protocol):
    @property
    def reopens(self) -> bool:
        """Whether lost subscriptions are opened again."""

    async def ready(self, what: str, within: float | None) -> ClientSession:
        """Wait for a session and return it."""


class SubscriptionRenewal:
    """Opens each subscription on the current session, and again on the next one when that session is lost."""

    def __init__(self, sessions: _Sessions) -> None:
        self._sessions = sessions
        #: Each open subscription, with the session that it was last opened on.
        self._open: dict[Changes, ClientSession] = {}
        self._renewals: dict[Changes, asyncio.Task[None]] = {}
        #: For each subscription whose stream broke: the last wait, and when the stream was opened again.
        self._waits: dict[Changes, tuple[float, float]] = {}
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
                await session.subscriptions.open(changes)
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
            await session.subscriptions.open(changes)
        except (Closed, RequestLost) as error:
            if session.is_open:
                changes.cut(error)
        except McplumbError as error:
            if session.is_open:  # otherwise `renew` or `end` follows
                changes.end(error)


def _gone(cause: BaseException) -> Closed:
    gone = Closed(f"The subscription ended with its connection. {cause}")
    gone.__cause__ = cause
    return gone

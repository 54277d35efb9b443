"""The subscriptions of a client, which outlive the connections that carry them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from mcpipe.client.changes import Changes
from mcpipe.client.session import Session
from mcpipe.errors import Closed, McpipeError, RequestLost

__all__ = ["Listening"]


class _Sessions(Protocol):
    async def ready(self, what: str, within: float | None) -> Session:
        """The session to use, once there is one."""


class Listening:
    """Opens each subscription on the session there is, and again on the next when that one is lost."""

    def __init__(self, sessions: _Sessions) -> None:
        self._sessions = sessions
        #: Each live subscription, with the session that it was last opened on.
        self._live: dict[Changes, Session] = {}
        self._renewals: dict[Changes, asyncio.Task[None]] = {}
        #: Changes that consumers who are gone by now were too slow for.
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Changes that a consumer was too slow for."""
        return self._dropped + sum(changes.dropped for changes in self._live)

    async def open(self, changes: Changes) -> None:
        """Open a subscription. Cancelled or failed, nothing is left of it."""
        is_granted = False
        while True:
            try:
                session = await self._sessions.ready("subscriptions/listen", changes.timeout)
            except McpipeError as error:
                if not is_granted:
                    raise
                changes.end(_gone(error.__cause__ or error))
                return
            try:
                await session.subscriptions.open(changes)
            except (Closed, RequestLost):
                if session.calls.is_open:
                    raise
            else:
                if session.calls.is_open:
                    self._live[changes] = session
                    return
                # It was lost in the same moment, and nobody has renewed what was not known yet.
                is_granted = True
                changes.lose()

    async def close(self, changes: Changes) -> None:
        """Close a subscription. May be called again."""
        renewal = self._renewals.pop(changes, None)
        if renewal is not None:
            renewal.cancel()
        session = self._live.pop(changes, None)
        if session is not None:
            self._dropped += changes.dropped
            if session.calls.is_open:
                await session.subscriptions.close(changes)

    def renew(self, session: Session) -> None:
        """There is another session: open on it what was open on the one before."""
        for changes in self._live:
            if changes.has_ended:
                continue
            changes.lose()
            self._live[changes] = session
            self._renewals[changes] = asyncio.get_running_loop().create_task(self._renew(changes, session))

    def end(self, cause: Exception) -> None:
        """There will be no other session: every subscription has ended, for this reason."""
        for changes in self._live:
            changes.end(_gone(cause))
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()

    async def _renew(self, changes: Changes, session: Session) -> None:
        try:
            await session.subscriptions.open(changes)
        except McpipeError as error:
            if session.calls.is_open:  # otherwise there will be another, or the end
                changes.end(error)


def _gone(cause: BaseException) -> Closed:
    gone = Closed(f"The subscription ended with its connection. {cause}")
    gone.__cause__ = cause
    return gone

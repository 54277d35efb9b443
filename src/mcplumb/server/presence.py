"""Whom a server serves at the moment, and what is kept open for them: its lifespan and its threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from mcplumb.server.lifespans import Lifespans
from mcplumb.server.session import Session
from mcplumb.server.shared import Shared
from mcplumb.transports.connection import Connection, Peer

__all__ = ["Host", "Presence"]


class Host(Protocol):
    """Something that takes connections for a server."""

    def stop(self) -> None:
        """Take no more, and stop the sessions. From any thread."""


class Presence:
    """The sessions, the hosts and the holds of one server. The first opens what they share, the last closes it."""

    def __init__(self, shared: Shared, lifespans: Lifespans) -> None:
        self._shared = shared
        self._lifespans = lifespans
        self._sessions: set[Session] = set()
        self._hosts: set[Host] = set()
        self._holds = 0
        self._lock = threading.Lock()

    async def serve(self, connection: Connection, peer: Peer, *, finish_within: float, stop_within: float) -> None:
        """Serve one connection, to its end."""
        session = Session(self._shared, connection, peer)
        with self._lock:
            self._sessions.add(session)
        try:
            if not self._lifespans.are_needed:
                await session.run(finish_within=finish_within, stop_within=stop_within)
                return
            session.start(finish_within)
            async with self._lifespans.running(session.ending.why, within=finish_within) as value:
                self._shared.lifespan = value
                await session.run(finish_within=finish_within, stop_within=stop_within)
        finally:
            connection.abort()
            with self._lock:
                self._sessions.discard(session)
            self._let_go()

    @asynccontextmanager
    async def held(self, given_up: asyncio.Future[Any], *, within: float) -> AsyncIterator[None]:
        """Keep what the sessions share open, also while there are none.

        ``given_up`` and ``within`` are as for `Lifespans.running`.
        """
        with self._lock:
            self._holds += 1
        try:
            async with self._lifespans.running(given_up, within=within) as value:
                self._shared.lifespan = value
                yield
        finally:
            with self._lock:
                self._holds -= 1
            self._let_go()

    def join(self, host: Host) -> None:
        """From now on this host is stopped with the others."""
        with self._lock:
            self._hosts.add(host)

    def leave(self, host: Host) -> None:
        """It has ended."""
        with self._lock:
            self._hosts.discard(host)

    def stop(self, within: float) -> bool:
        """Stop every host, which then stops the sessions, or else every session; False if there are none.

        From any thread.
        """
        with self._lock:
            hosts = list(self._hosts)
        for host in hosts:
            host.stop()
        return bool(hosts) or self.tell(lambda session: session.stop(within))

    def tell(self, tell: Callable[[Session], None]) -> bool:
        """Tell every session something, in its own thread; False if there are none. From any thread."""
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            if threading.get_ident() == session.thread:
                tell(session)
            else:
                with suppress(RuntimeError):  # its loop has just been closed
                    session.loop.call_soon_threadsafe(tell, session)
        return bool(sessions)

    def _let_go(self) -> None:
        with self._lock:
            if not self._sessions and not self._holds:
                self._shared.lifespan = None
                self._shared.workers.close()

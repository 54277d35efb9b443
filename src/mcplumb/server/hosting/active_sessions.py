"""The open sessions of a server, and its lifespan: resources that are open while any session is.

A `Server` is made of this before it runs, so nothing here loads asyncio until then (``_fast/lazy_ssl.py`` says why).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from mcplumb.server.shared_state import Shared

if TYPE_CHECKING:
    import asyncio

    from mcplumb.server.server_session import Session
    from mcplumb.transports.connection import Connection, Peer

__all__ = ["Host", "Lifespan", "Lifespans", "Presence"]

_logger = logging.getLogger("mcplumb.server")


# The server's own resources, such as a pool of connections: opened before the first request, closed after the last.


#: Seconds that a lifespan has to end once it is cancelled.
_LAST_WAIT = 1.0

#: Makes a context manager; what that gives is ``ctx.lifespan``.
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class Lifespans:
    """Runs a lifespan while anyone needs it, in a task of its own.

    Whoever comes first starts it and whoever leaves last ends it, but these may be different tasks, and a context
    manager must be left by the task that entered it.
    """

    def __init__(self, lifespan: Lifespan | None) -> None:
        self._lifespan = lifespan
        #: Whether there is anything to run.
        self.are_needed = lifespan is not None
        self._users = 0
        #: The task of a lifespan that is about to end.
        self._ending: asyncio.Task[None] | None = None
        #: The task, what it gives, and how to end it; None while nobody needs it.
        self._running: tuple[asyncio.Task[None], asyncio.Future[Any], asyncio.Event] | None = None

    @asynccontextmanager
    async def running(self, given_up: asyncio.Future[Any], *, within: float = 30.0) -> AsyncIterator[Any]:
        """Gives the lifespan's value; raises what it raises, on the way in and on the way out.

        If ``given_up`` is done before there is a value, that is None, and the lifespan is cancelled if nobody else
        waits for it. So it is when its end takes longer than ``within`` seconds.
        """
        if self._lifespan is None:
            yield None
            return
        import asyncio

        if self._ending is not None:
            # The next one may need what this one has not let go yet.
            both = (self._ending, given_up)
            await asyncio.wait(both, timeout=within + _LAST_WAIT, return_when=asyncio.FIRST_COMPLETED)
            if given_up.done():
                yield None
                return
        if self._running is None:
            opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            unused = asyncio.Event()
            self._running = asyncio.create_task(self._run(self._lifespan, opened, unused)), opened, unused
        task, opened, unused = self._running
        self._users += 1
        try:
            if not opened.done():
                await asyncio.wait((opened, given_up), return_when=asyncio.FIRST_COMPLETED)
            yield opened.result() if opened.done() else None
        finally:
            self._users -= 1
            if not self._users:
                self._running, self._ending = None, task
                unused.set()
                if opened.done():
                    await asyncio.wait((task,), timeout=within)
                if not task.done():
                    task.cancel()
                    await asyncio.wait((task,), timeout=_LAST_WAIT)
                self._ending = None
                if not task.done():
                    _logger.warning("The lifespan of the server does not end, and is left behind.")
                elif not task.cancelled():
                    task.result()

    async def _run(self, lifespan: Lifespan, opened: asyncio.Future[Any], unused: asyncio.Event) -> None:
        import asyncio

        try:
            async with lifespan() as value:
                opened.set_result(value)
                await unused.wait()
        except asyncio.CancelledError:
            opened.cancel()
            raise
        except BaseException as error:
            if opened.done():
                raise
            # Whoever waits for it gets this, so it is not raised here.
            opened.set_exception(error)


# Whom a server serves at the moment, and what is kept open for them: its lifespan and its threads.


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
        from mcplumb.server.server_session import Session

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

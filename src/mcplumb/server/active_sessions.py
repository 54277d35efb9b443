"""The open sessions of a server, and its lifespan, which is open while any session is.

A `Server` is made of this before it runs, so nothing here loads asyncio until then: ``_fast/lazy_modules.py`` says why.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from mcplumb.errors import UsageError
from mcplumb.server.server_state import SharedState

if TYPE_CHECKING:
    import asyncio

    from mcplumb.server.server import Server
    from mcplumb.server.server_session import ServerSession
    from mcplumb.transports.connection import Connection, Peer

__all__ = ["ActiveSessions", "Host", "Lifespan", "LifespanRunner", "NewSession", "bind_lifespan"]


# The lifespan: the server's own resources, such as a connection pool, opened before the first request.

#: How many seconds a cancelled lifespan may take to end.
_CANCEL_WAIT = 1.0

#: How many seconds a lifespan that is cancelled from outside waits for its users, which are cancelled as well.
_LEAVE_WITHIN = 2.0

#: How many sessions are kept for the next connections.
_MAX_SPARE = 100

#: Returns a context manager whose value is ``ctx.lifespan``. It may take the server as its argument.
Lifespan: TypeAlias = (
    "Callable[[], AbstractAsyncContextManager[Any]] | Callable[[Server], AbstractAsyncContextManager[Any]]"
)

#: Makes the session of a connection.
NewSession: TypeAlias = "Callable[[SharedState, Connection, Peer], ServerSession]"

_BoundLifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


def bind_lifespan(lifespan: Lifespan | None, server: Server) -> _BoundLifespan | None:
    """Return the lifespan as a function without arguments; raise UsageError if it cannot be a lifespan."""
    if lifespan is None:
        return None
    import contextlib
    import inspect

    name = getattr(lifespan, "__name__", None) or repr(lifespan)
    if not callable(lifespan):
        raise UsageError(
            "The lifespan must be a function that returns an async context manager, not of the type "
            f"{type(lifespan).__name__!r}: pass the function itself, without calling it."
        )
    is_sync_manager = getattr(lifespan, "__globals__", None) is vars(contextlib) and inspect.isgeneratorfunction(
        inspect.unwrap(lifespan)
    )
    if inspect.isasyncgenfunction(lifespan):
        raise UsageError(f"The lifespan {name!r} is an async generator: put @contextlib.asynccontextmanager above it.")
    if inspect.iscoroutinefunction(lifespan) or inspect.isgeneratorfunction(lifespan) or is_sync_manager:
        raise UsageError(
            f"The lifespan {name!r} must be an async context manager: an async function with one yield, and "
            "@contextlib.asynccontextmanager above it."
        )
    try:
        signature = inspect.signature(lifespan)
    except (TypeError, ValueError):  # written in C: it fails when it is called
        return cast("_BoundLifespan", lifespan)
    for arguments in ((), (server,)):
        with suppress(TypeError):
            signature.bind(*arguments)
            return partial(lifespan, *arguments)
    raise UsageError(f"The lifespan {name!r} takes {signature}: it is called without arguments, or with the server.")


class LifespanRunner:
    """Runs a lifespan in its own task while it has users.

    The first user opens it and the last one closes it. These may be different tasks, but a context manager must be
    exited by the task that entered it: hence the separate task.
    """

    def __init__(self, lifespan: _BoundLifespan | None) -> None:
        self._lifespan = lifespan
        #: Whether there is a lifespan to run.
        self.are_needed = lifespan is not None
        self._users = 0
        #: The task that waits for a lifespan to end.
        self._ending: asyncio.Task[None] | None = None
        #: The task, its value, and the event that ends it; None while there are no users.
        self._running: tuple[asyncio.Task[None], asyncio.Future[Any], asyncio.Event] | None = None

    @asynccontextmanager
    async def running(self, given_up: asyncio.Future[Any], *, within: float = 30.0) -> AsyncIterator[Any]:
        """Use the lifespan: yield its value, and raise the exceptions of its entry and exit.

        If ``given_up`` is done before there is a value, yield None, and cancel the lifespan if it has no other users.
        It is also cancelled if its exit takes longer than ``within`` seconds.
        """
        if self._lifespan is None:
            yield None
            return
        import asyncio

        while self._ending is not None:  # again: another user may have come and gone meanwhile
            # The next run may need resources that this one has not released yet.
            await asyncio.wait((self._ending, given_up), return_when=asyncio.FIRST_COMPLETED)
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
                self._running = None
                unused.set()
                # A task of its own, because it goes on, and is bounded, even if this user does not wait for it.
                self._ending = asyncio.create_task(self._end(task, within if opened.done() else 0.0))
                self._ending.add_done_callback(self._has_ended)
                await asyncio.shield(self._ending)

    def _has_ended(self, _: asyncio.Task[None]) -> None:
        self._ending = None

    async def _end(self, task: asyncio.Task[None], within: float) -> None:
        """Wait until the lifespan has ended, cancel it if it takes longer, and raise what its exit raised."""
        import asyncio

        if within:
            await asyncio.wait((task,), timeout=within)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=_CANCEL_WAIT)
        if not task.done():
            import logging

            logging.getLogger("mcplumb.server").warning("The lifespan of the server does not end and is abandoned.")
        elif not task.cancelled():
            task.result()

    async def _run(self, lifespan: _BoundLifespan, opened: asyncio.Future[Any], unused: asyncio.Event) -> None:
        import asyncio

        try:
            manager = lifespan()
            if not hasattr(type(manager), "__aenter__"):
                kind = type(manager).__name__
                raise UsageError(f"The lifespan returned a value of type {kind!r}, not an async context manager.")  # noqa: TRY301
            async with manager as value:
                opened.set_result(value)
                try:
                    await unused.wait()
                except asyncio.CancelledError:
                    if unused.is_set():
                        raise
                    # The event loop ends and has cancelled all tasks. What is open has to be closed all the same, but
                    # not before its users have ended.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(unused.wait(), _LEAVE_WITHIN)
        except asyncio.CancelledError:
            opened.cancel()
            raise
        except BaseException as error:
            if opened.done():
                raise
            # The users that wait for the value raise this error, so it is not raised here.
            opened.set_exception(error)


# The open sessions, and the hosts that accept them.


class Host(Protocol):
    """Accepts connections for a server."""

    def stop(self) -> None:
        """Accept no more connections, and stop the sessions. May be called from any thread."""


class ActiveSessions:
    """The open sessions of one server, its hosts, and its holds.

    The first of them opens what all sessions share, the lifespan and the threads, and the last one closes it.
    """

    def __init__(self, shared: SharedState, lifespans: LifespanRunner, new_session: NewSession | None = None) -> None:
        self._shared = shared
        #: Makes the session of each connection; None for the usual one.
        self.new_session = new_session
        self._lifespans = lifespans
        self._sessions: set[ServerSession] = set()
        #: The sessions of connections that were begun, and are not answered yet.
        self._begun: dict[Connection, ServerSession] = {}
        #: Sessions that have served a connection, and can serve another.
        self._spare: list[ServerSession] = []
        self._hosts: set[Host] = set()
        self._holds = 0
        self._lock = threading.Lock()
        self._is_prepared = False

    def _prepare(self) -> None:
        """Choose the class and the observer of sessions, before the first one."""
        self._is_prepared = True
        if self.new_session is None:
            from mcplumb.server.server_session import ServerSession

            self.new_session = ServerSession
        if "opentelemetry.trace" in sys.modules:  # otherwise nothing can have configured it
            from mcplumb.rpc.observed_endpoint import combined
            from mcplumb.telemetry.opentelemetry_observer import configured_observer

            self._shared.observer = combined(configured_observer(), self._shared.observer)

    async def serve(self, connection: Connection, peer: Peer, *, finish_within: float, stop_within: float) -> None:
        """Serve one connection until it ends."""
        session = self._begun.pop(connection, None)
        has_begun = session is not None
        if session is None:
            session = self._new(connection, peer)
        session.on_stop = None
        with self._lock:
            self._sessions.add(session)
        try:
            if not self._lifespans.are_needed:
                await session.run(finish_within=finish_within, stop_within=stop_within)
                return
            if not has_begun:
                session.start(finish_within)
            async with self._lifespans.running(session.ending.why, within=finish_within) as value:
                self._shared.lifespan = value
                await session.run(finish_within=finish_within, stop_within=stop_within)
        finally:
            connection.abort()
            with self._lock:
                self._sessions.discard(session)
            self._release_if_unused()

    def _new(self, connection: Connection, peer: Peer) -> ServerSession:
        if not self._is_prepared:
            self._prepare()
        return self.new_session(self._shared, connection, peer)  # type: ignore[misc] # `_prepare` sets it

    # Connections that carry one request. Mostly it is answered at once, and its session serves the next one.

    def begin(self, connection: Connection, peer: Peer, loop: asyncio.AbstractEventLoop) -> ServerSession | None:
        """Return a session for a connection that carries one request, without a task that runs it.

        It ends with `end`, or with `serve` for the same connection, if more has to be done than to answer. Returns None
        if the server is not ready: `serve` waits for that.
        """
        if not self._holds:
            return None  # the lifespan may not be open
        if peer.principal is None:
            try:
                while (session := self._spare.pop()).loop is not loop:
                    pass  # that loop has ended, or is another thread's
            except IndexError:  # not checked before: another thread may take the last one
                pass
            else:
                session.reuse(connection)
                return session
        return self._new(connection, peer)

    def wait(self, session: ServerSession, on_stop: Callable[[], None]) -> None:
        """Keep a session whose request is not answered yet. ``on_stop`` is called if it has to be served now."""
        session.on_stop = on_stop
        self._begun[session.connection] = session
        with self._lock:
            self._sessions.add(session)

    def end(self, session: ServerSession) -> bool:
        """Release a session whose request is answered, or whose client is gone.

        Returns False if that leaves something to do: then the connection has to be served.
        """
        if not session.is_unused:
            self._begun[session.connection] = session
            return False
        if session.on_stop is not None:
            self._forget(session)
        if not session.is_kept and session.principal is None and len(self._spare) < _MAX_SPARE:
            self._spare.append(session)
        return True

    def drop(self, session: ServerSession) -> None:
        """Cancel all work of a session that was begun, and release it."""
        session.drop()
        self._forget(session)

    @property
    def has_begun(self) -> bool:
        """Whether there are sessions that no task runs, and whose requests are not answered yet."""
        return bool(self._begun)

    def stop_begun(self) -> None:
        """Stop the sessions that no task runs, at once."""
        for session in list(self._begun.values()):
            session.stop(0.0)

    def _forget(self, session: ServerSession) -> None:
        session.on_stop = None
        self._begun.pop(session.connection, None)
        with self._lock:
            self._sessions.discard(session)

    @asynccontextmanager
    async def held(self, given_up: asyncio.Future[Any], *, within: float) -> AsyncIterator[None]:
        """Keep the lifespan and the threads open, even while there are no sessions.

        ``given_up`` and ``within`` are as for `LifespanRunner.running`.
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
            self._release_if_unused()

    def join(self, host: Host) -> None:
        """Add a host: `stop` stops it."""
        with self._lock:
            self._hosts.add(host)

    def leave(self, host: Host) -> None:
        """Remove a host that has ended."""
        with self._lock:
            self._hosts.discard(host)

    def stop(self, within: float) -> bool:
        """Stop every host, which stops its sessions; without hosts, stop every session.

        Returns False if there are neither. May be called from any thread.
        """
        with self._lock:
            hosts = list(self._hosts)
        for host in hosts:
            host.stop()
        return bool(hosts) or self.for_each_session(lambda session: session.stop(within))

    def for_each_session(self, call: Callable[[ServerSession], None]) -> bool:
        """Call a function with every session, in the session's thread; return False if there are no sessions.

        May be called from any thread.
        """
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            if threading.get_ident() == session.thread:
                call(session)
            else:
                with suppress(RuntimeError):  # its loop has just been closed
                    session.loop.call_soon_threadsafe(call, session)
        return bool(sessions)

    def count_requests(self) -> tuple[int, int]:
        """Return how many requests are being answered, and how many subscriptions are open."""
        with self._lock:
            sessions = list(self._sessions)
        everything = [session.endpoint.incoming for session in sessions]
        subscriptions = sum(len(incoming.exempt_ids) for incoming in everything)
        return sum(map(len, everything)) - subscriptions, subscriptions

    def _release_if_unused(self) -> None:
        with self._lock:
            if not self._sessions and not self._holds:
                self._spare.clear()
                self._shared.lifespan = None
                self._shared.thread_pool.close()

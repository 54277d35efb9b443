"""The open legacy sessions, found by their ids."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import Generic, Protocol, TypeVar

from mcplumb.revisions import Revision
from mcplumb.transports.connection import Connection, Peer, Serve
from mcplumb.transports.http_server.legacy_post import busy, check_reads_events, session_over
from mcplumb.transports.http_server.legacy_session import SessionConnection
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.request import JSON, HttpRequest, Refusal
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail, Message, Request

__all__ = ["Member", "Roster", "Sessions"]

_logger = logging.getLogger("mcplumb.http")


# The sessions that are open, each served by a task of its own and found by an id that nobody can guess.


#: Random bytes in a session's id: nobody can try as many ids as there are.
_ID_BYTES = 24
#: Seconds after which a client that found no room may try again.
_RETRY_AFTER = 10
#: Seconds that a session may take to end which makes room for another one.
_LEAVE_WITHIN = 5.0


class Member(Connection, Protocol):
    """A connection that can be told that its client is gone."""

    def hang_up(self) -> None:
        """The client sends no more. May be called again."""


_M = TypeVar("_M", bound=Member)


class Roster(Generic[_M]):
    """At most ``max_sessions`` connections. It belongs to the event loop in which the first of them is admitted."""

    def __init__(self, serve: Serve, *, max_sessions: int) -> None:
        self._serve = serve
        self._max_sessions = max_sessions
        # A session outlives the request that opened it, so it does not run among that one's variables.
        self._context = copy_context()
        self._serving: dict[_M, asyncio.Task[None]] = {}
        self._members: dict[str, tuple[_M, str | None]] = {}
        self._ids: dict[_M, str] = {}
        #: Those which make room for others, the oldest first.
        self._tentative: dict[_M, None] = {}
        self._is_closing = False

    async def make_room(self) -> None:
        """If there is no room, end the session that has been tentative for the longest time, if one is."""
        if len(self._serving) < self._max_sessions or not self._tentative:
            return
        oldest = next(iter(self._tentative))
        serving = self._serving[oldest]
        self.dismiss(oldest)
        await asyncio.wait((serving,), timeout=_LEAVE_WITHIN)

    def admit(self, connection: _M, principal: str | None) -> None:
        """Begin to serve a connection; `Refusal` if there is no room. It has no id yet."""
        if self._is_closing:
            raise busy("The server is stopping.", seconds=_RETRY_AFTER)
        if len(self._serving) >= self._max_sessions:
            raise busy("The server has as many sessions as it can. Try again later.", seconds=_RETRY_AFTER)
        peer = Peer(era="legacy", principal=principal)
        task = asyncio.get_running_loop().create_task(self._serve(connection, peer), context=self._context.copy())
        self._serving[connection] = task
        task.add_done_callback(partial(self._served, connection))

    def enter(self, connection: _M, principal: str | None, *, is_tentative: bool = False) -> str:
        """From now on the connection is found by this id, by whoever has proved to be the same. Called once.

        A tentative one makes room for others, until it is confirmed.
        """
        if is_tentative and connection in self._serving:
            self._tentative[connection] = None
        session_id = self._ids[connection] = os.urandom(_ID_BYTES).hex()
        self._members[session_id] = connection, principal
        return session_id

    def find(self, session_id: str, principal: str | None) -> _M:
        """The connection with this id; `Refusal` if there is none, or it is somebody else's."""
        connection, owner = self._members.get(session_id, (None, None))
        if connection is None or owner != principal:
            raise session_over()
        return connection

    def confirm(self, connection: _M) -> None:
        """The connection is there to stay. May be called again."""
        self._tentative.pop(connection, None)

    def dismiss(self, connection: _M) -> None:
        """End a session: it is not found any more, and what was accepted is finished. May be called again."""
        self._forget(connection)
        connection.hang_up()

    async def close(self) -> None:
        """Admit nobody, and end all sessions. Cancelled, it aborts those that are left."""
        self._is_closing = True
        for connection in list(self._serving):
            self.dismiss(connection)
        try:
            while self._serving:
                await asyncio.wait(self._serving.values())
        finally:
            for task in self._serving.values():
                task.cancel()

    def _forget(self, connection: _M) -> None:
        self.confirm(connection)
        session_id = self._ids.pop(connection, None)
        if session_id is not None:
            del self._members[session_id]

    def _served(self, connection: _M, task: asyncio.Task[None]) -> None:
        del self._serving[connection]
        self._forget(connection)
        # Whoever waits for an answer from it still does, if it was not served to its end.
        connection.abort()
        if not task.cancelled() and task.exception() is not None:
            _logger.error("A session ended with an error.", exc_info=task.exception())


# Streamable HTTP as legacy clients speak it: sessions, which are opened with ``initialize`` and found by their id.


_NO_SESSION = "This request needs the header Mcp-Session-Id, which came with the answer to initialize."


#: Idle seconds that a session has whose client has not said that it is initialized.
_CONFIRM_WITHIN = 60.0


class Sessions:
    """All legacy sessions of an application, each for one client. They end when they were idle for too long.

    One whose client was never heard of again ends early, or as soon as there is no room for another one.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        options: HttpOptions,
        revisions: Sequence[Revision],
        trace: Trace | None = None,
    ) -> None:
        self._options = options
        self._versions = [revision.name for revision in revisions if not revision.is_modern]
        self._trace = trace
        self._roster: Roster[SessionConnection] = Roster(serve, max_sessions=options.max_sessions)

    async def post(
        self, request: HttpRequest, item: Message | BadMessage | Batch, principal: str | None = None
    ) -> None:
        """Answer a POST with this message in it; `Refusal` if it is refused."""
        has_session = request.header("mcp-session-id") is not None
        if isinstance(item, BadMessage) and not has_session:
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        if isinstance(item, Request) and item.method == "initialize" and not has_session:
            await self._open(request, item, principal)
            return
        session = self._find(request, principal)
        try:
            await session.post(request, item)
        finally:
            if session.is_confirmed:
                self._roster.confirm(session)

    async def get(self, request: HttpRequest, principal: str | None = None) -> None:
        """Answer a GET: with a stream of what the server has to say."""
        check_reads_events(request)
        await self._find(request, principal).listen(request, request.header("last-event-id"))

    async def delete(self, request: HttpRequest, principal: str | None = None) -> None:
        """Answer a DELETE: the client needs its session no more."""
        self._roster.dismiss(self._find(request, principal))
        await request.respond(204)

    async def close(self) -> None:
        """End all sessions; what was accepted is answered. Cancelled, it aborts."""
        await self._roster.close()

    async def _open(self, request: HttpRequest, initialize: Request, principal: str | None) -> None:
        await self._roster.make_room()
        session = SessionConnection(options=self._options, trace=self._trace)
        self._roster.admit(session, principal)
        try:
            # As long as it has no id, nobody else could end it.
            request.watch(session.hang_up)
            try:
                answer = await session.open(initialize)
            finally:
                request.unwatch()
            headers = []
            if session.revision is None:
                self._roster.dismiss(session)
            else:
                headers.append((b"mcp-session-id", self._enter(session, principal)))
            await request.respond(200, answer, content_type=JSON, headers=headers)
        except BaseException:
            # Nobody knows its id.
            self._roster.dismiss(session)
            raise

    def _enter(self, session: SessionConnection, principal: str | None) -> bytes:
        session.expire_after(
            self._options.session_ttl, lambda: self._roster.dismiss(session), confirmed_within=_CONFIRM_WITHIN
        )
        return self._roster.enter(session, principal, is_tentative=True).encode()

    def _find(self, request: HttpRequest, principal: str | None) -> SessionConnection:
        session_id = request.header("mcp-session-id")
        if session_id is None:
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, _NO_SESSION))
        session = self._roster.find(session_id, principal)
        version = request.header("mcp-protocol-version")
        if version is not None and version not in self._versions:
            known = ", ".join(self._versions)
            reason = f"MCP-Protocol-Version is {version[:40]!r}, and the sessions of this server have {known}."
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, reason))
        return session

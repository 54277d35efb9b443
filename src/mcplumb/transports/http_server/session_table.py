"""The open legacy sessions of an application: admit, find by id, expire and close them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from mcplumb.protocol.principal import Principal, identity_of
from mcplumb.revisions import LATEST, Revision
from mcplumb.transports.connection import Connection, Peer, Serve
from mcplumb.transports.http_server.asgi_request import JSON, HttpRequest, Refusal
from mcplumb.transports.http_server.exchange import Exchange
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.legacy_post import busy, check_reads_events, session_elsewhere, session_over
from mcplumb.transports.http_server.legacy_session import LegacySession
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail, Message, Request

__all__ = ["CONFIRM_WITHIN", "ID_BYTES", "LegacySessions", "SessionEntry", "SessionTable"]

_logger = logging.getLogger("mcplumb.http")


# The table, for Streamable HTTP and for HTTP+SSE


#: Random bytes in a session's id, too many to guess it.
ID_BYTES = 24
#: Random bytes before these that name the table: an id of another process can be told from one that has expired.
_NAME_BYTES = 4
_ID_LENGTH = 2 * (_NAME_BYTES + ID_BYTES)
#: Seconds after which a refused client may try again.
_RETRY_AFTER = 10
#: Seconds to wait for the end of a session that makes room for another one.
_LEAVE_WITHIN = 5.0


class SessionEntry(Connection, Protocol):
    """The connection of a session, as the table needs it."""

    def hang_up(self) -> None:
        """Report that the client sends nothing more. May be called again."""


_M = TypeVar("_M", bound=SessionEntry)


class SessionTable(Generic[_M]):
    """At most ``max_sessions`` sessions, each served in a task and found by an id that cannot be guessed.

    It belongs to the event loop in which the first session is admitted.
    """

    def __init__(self, serve: Serve, *, max_sessions: int) -> None:
        self._serve = serve
        self._max_sessions = max_sessions
        # A session outlives the request that opened it, so it must not run with the context variables of that request.
        self._context = copy_context()
        self._serving: dict[_M, asyncio.Task[None]] = {}
        #: By id: the connection, and the identity of the principal to whom it belongs.
        self._by_id: dict[str, tuple[_M, str | None]] = {}
        self._ids: dict[_M, str] = {}
        #: Sessions that make room for others, oldest first.
        self._tentative: dict[_M, None] = {}
        self._is_closing = False
        self._name = os.urandom(_NAME_BYTES).hex()
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._serving)

    async def make_room(self) -> None:
        """If the table is full, end the oldest tentative session, if there is one."""
        if not self.is_full or not self._tentative:
            return
        await self.dismissed(next(iter(self._tentative)))

    async def dismissed(self, connection: _M) -> None:
        """End a session, and wait some seconds for its end."""
        serving = self._serving[connection]
        self.dismiss(connection)
        await asyncio.wait((serving,), timeout=_LEAVE_WITHIN)

    @property
    def is_full(self) -> bool:
        """Whether no more sessions are admitted."""
        return len(self._serving) >= self._max_sessions

    @property
    def is_closing(self) -> bool:
        """Whether it admits no more sessions, and its sessions end."""
        return self._is_closing

    @property
    def serving(self) -> list[_M]:
        """All sessions that have not ended, the oldest first."""
        return list(self._serving)

    def admit(self, connection: _M, principal: Principal | None) -> None:
        """Start to serve a connection, which has no id yet; raise `Refusal` if the table is full."""
        if self._is_closing:
            raise busy("The server is stopping.", seconds=_RETRY_AFTER)
        if self.is_full:
            raise busy("The server has reached its limit of sessions. Try again later.", seconds=_RETRY_AFTER)
        peer = Peer(era="legacy", principal=principal, is_remote=True)
        task = asyncio.get_running_loop().create_task(self._serve(connection, peer), context=self._context.copy())
        self._serving[connection] = task
        task.add_done_callback(partial(self._served, connection))

    def enter(
        self,
        connection: _M,
        principal: Principal | None,
        *,
        is_tentative: bool = False,
        session_id: str | None = None,
    ) -> str:
        """Give the connection an id, by which requests of the same principal find it, and return it. Called once.

        A tentative session makes room for others until it is confirmed.
        """
        if is_tentative and connection in self._serving:
            self._tentative[connection] = None
        if session_id is None:
            session_id = self._name + os.urandom(ID_BYTES).hex()
        self._ids[connection] = session_id
        self._by_id[session_id] = connection, identity_of(principal)
        return session_id

    def find(self, session_id: str, principal: Principal | None) -> _M:
        """Return the connection with this id; raise `Refusal` if there is none, or it has another principal."""
        connection, owner = self._by_id.get(session_id, (None, None))
        if connection is None or owner != identity_of(principal):
            raise self._refusal(session_id)
        return connection

    def of_nobody(self, session_id: str) -> _M | None:
        """Return the connection with this id if it belongs to no principal; None if there is none."""
        connection, owner = self._by_id.get(session_id, (None, None))
        return connection if owner is None else None

    @property
    def ids(self) -> list[str]:
        """The ids of all sessions that can be found."""
        return list(self._by_id)

    def lookup(self, session_id: str) -> _M | None:
        """Return the connection with this id, of any principal; None if there is none."""
        return self._by_id.get(session_id, (None, None))[0]

    def _refusal(self, session_id: str) -> Refusal:
        if session_id.startswith(self._name) or len(session_id) != _ID_LENGTH:
            return session_over()
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "A client asks for a legacy session that this process has not opened. If several processes share their "
                "clients, route requests by Mcp-Session-Id, or serve modern clients only: Server(revisions=[%r]).",
                LATEST.name,
            )
        return session_elsewhere()

    def confirm(self, connection: _M) -> None:
        """Make a tentative session permanent. May be called again."""
        self._tentative.pop(connection, None)

    def dismiss(self, connection: _M) -> None:
        """End a session: it is no longer found, and its accepted requests finish. May be called again."""
        self._forget(connection)
        connection.hang_up()

    async def close(self, *, within: float = 0.0) -> None:
        """Admit no more sessions, and end those that have not ended by themselves within these seconds.

        If cancelled, it aborts those that are left.
        """
        self._is_closing = True
        try:
            if within and self._serving:
                await asyncio.wait(self._serving.values(), timeout=within)
            for connection in list(self._serving):
                self.dismiss(connection)
            while self._serving:
                await asyncio.wait(self._serving.values())
        finally:
            for task in self._serving.values():
                task.cancel()

    def _forget(self, connection: _M) -> None:
        self.confirm(connection)
        session_id = self._ids.pop(connection, None)
        if session_id is not None:
            del self._by_id[session_id]

    def _served(self, connection: _M, task: asyncio.Task[None]) -> None:
        del self._serving[connection]
        self._forget(connection)
        # If serving failed, HTTP requests may still wait for answers.
        connection.abort()
        if not task.cancelled() and task.exception() is not None:
            _logger.error("A session ended with an error.", exc_info=task.exception())


# Streamable HTTP of the legacy era


_NO_SESSION = "This request needs the header Mcp-Session-Id, which came with the answer to initialize."

#: Idle seconds after which a session expires whose client has not sent ``notifications/initialized``.
CONFIRM_WITHIN = 60.0

_S = TypeVar("_S", bound=LegacySession)


class LegacySessions(Generic[_S]):
    """All legacy sessions of an application. A session starts with ``initialize`` and expires when it is idle.

    A session whose client never sent ``notifications/initialized`` expires sooner, and makes room if the table is full.
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
        self._table: SessionTable[_S] = SessionTable(serve, max_sessions=options.max_sessions)

    def __len__(self) -> int:
        return len(self._table)

    async def post(
        self, request: HttpRequest, item: Message | BadMessage | Batch, principal: Principal | None = None
    ) -> None:
        """Serve a POST with this message in it; raise `Refusal` if it is refused."""
        has_session = request.header("mcp-session-id") is not None
        if isinstance(item, BadMessage) and not has_session:
            raise Refusal(400, ErrorDetail(item.code, item.reason), request_id=item.id)
        if isinstance(item, Request) and item.method == "initialize" and not has_session:
            await self._open(request, item, principal)
            return
        session = await self._find(request, principal)
        await self._before(session, item)
        try:
            await session.post(request, item)
        finally:
            if session.is_confirmed:
                self._table.confirm(session)

    def accepts(self, version: str | None) -> bool:
        """Return whether requests of sessions may have this ``MCP-Protocol-Version``, or none."""
        return version is None or version in self._versions

    def begin(self, request: HttpRequest, item: Request, session_id: str, exchange: Exchange, *, size: int) -> bool:
        """Serve a POST with a request of a session, without a task; return False if it must be served as any other.

        ``request`` has the head of the POST, which has passed all checks, and ``size`` is that of its body.
        """
        session = self._table.of_nobody(session_id)
        return session is not None and session.begin(request, item, session_id, exchange, size=size)

    async def get(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a GET, which opens or resumes a stream of messages from the server."""
        check_reads_events(request)
        session = await self._find(request, principal)
        await session.listen(request, request.header("last-event-id"))

    async def delete(self, request: HttpRequest, principal: Principal | None = None) -> None:
        """Serve a DELETE, which ends the session."""
        self._table.dismiss(await self._find(request, principal))
        await request.respond(204)

    async def close(self) -> None:
        """End all sessions; accepted requests are answered. If cancelled, it aborts."""
        await self._table.close()

    async def _open(self, request: HttpRequest, initialize: Request, principal: Principal | None) -> None:
        await self._make_room()
        session = self._new_session(request, initialize, principal)
        self._table.admit(session, principal)
        try:
            # Without an id, no other request can end the session.
            request.watch(session.hang_up)
            try:
                answer = await session.open(initialize)
            finally:
                request.unwatch()
            headers = []
            if session.revision is None:
                self._table.dismiss(session)
            else:
                headers.append((b"mcp-session-id", await self._enter(session, principal)))
            await request.respond(200, answer, content_type=JSON, headers=headers)
        except BaseException:
            # The client did not get the id.
            self._table.dismiss(session)
            raise

    # What an application with replicas does in another way

    async def _make_room(self) -> None:
        await self._table.make_room()

    def _new_session(self, request: HttpRequest, _: Request, __: Principal | None) -> _S:
        session: Any = LegacySession(options=self._options, trace=request.trace_of(self._trace))
        return session  # type: ignore[no-any-return] # the one of a table without replicas

    async def _before(self, session: _S, item: Message | BadMessage | Batch) -> None:
        """Prepare for a message of a session."""

    async def _enter(self, session: _S, principal: Principal | None) -> bytes:
        session.expire_after(
            self._options.session_ttl, lambda: self._table.dismiss(session), confirmed_within=CONFIRM_WITHIN
        )
        return self._table.enter(session, principal, is_tentative=True).encode()

    async def _look_up(self, session_id: str, principal: Principal | None, _: HttpRequest) -> _S:
        return self._table.find(session_id, principal)

    async def _find(self, request: HttpRequest, principal: Principal | None) -> _S:
        session_id = request.header("mcp-session-id")
        if session_id is None:
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, _NO_SESSION))
        session = await self._look_up(session_id, principal, request)
        version = request.header("mcp-protocol-version")
        if version is not None and not self.accepts(version):
            known = ", ".join(self._versions)
            reason = f"MCP-Protocol-Version is {version[:40]!r}, but the sessions of this server use {known}."
            raise Refusal(400, ErrorDetail(INVALID_REQUEST, reason))
        return session

"""Streamable HTTP as legacy clients speak it: sessions, which are opened with ``initialize`` and found by their id."""

from __future__ import annotations

from collections.abc import Sequence

from mcplumb.revisions import Revision
from mcplumb.transports.connection import Serve
from mcplumb.transports.framed import Trace
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.posted import check_reads_events
from mcplumb.transports.http_server.requests import JSON, HttpRequest, Refusal
from mcplumb.transports.http_server.roster import Roster
from mcplumb.transports.http_server.session import SessionConnection
from mcplumb.wire.decoding import BadMessage, Batch
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail, Message, Request

__all__ = ["Sessions"]

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

"""The handshake: detect the server's era, agree on a revision, and remember the era.

`Handshake` drives the rules of `protocol.era` over a real connection and a real clock. `EraMemory` keeps the era of
each server. It is only a hint: a wrong one costs one more request, and is corrected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from typing import Any, TypeVar

import msgspec

from mcplumb.client.client_session import ClientSession, metadata
from mcplumb.client.client_settings import ANONYMOUS, ClientSettings
from mcplumb.client.link import Link, Phase
from mcplumb.errors import (
    AuthorizationError,
    Closed,
    ConnectError,
    DecodeError,
    HttpError,
    NoCommonRevision,
    ServerExited,
    UsageError,
)
from mcplumb.protocol.era import (
    Action,
    Agreed,
    EraFinder,
    Failed,
    SendInitialize,
    SendInitialized,
    SendProbe,
    StartAgain,
)
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.revisions import Era, Revision
from mcplumb.rpc.outgoing_requests import Response
from mcplumb.types.base import Implementation, Payload
from mcplumb.types.lifecycle import InitializeParams, ServerCapabilities
from mcplumb.types.meta import SERVER_INFO
from mcplumb.types.payload_decoder import read
from mcplumb.types.revision_adapter import for_revision
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Error, ErrorDetail, Result

__all__ = ["EraMemory", "Handshake", "HandshakeResult", "process_memory"]

_logger = logging.getLogger("mcplumb.client")


# --- The era memory ---

#: The number of servers remembered; the least recently seen are dropped first.
_MAX_SERVERS = 1000
#: Seconds after which an entry of the file expires: the server may support the other era by then.
_MAX_AGE = 7 * 24 * 3600.0
#: Seconds after which the time stamp of an unchanged entry is renewed in the file.
_FRESH_FOR = 24 * 3600.0


class EraMemory:
    """The era of each server, by its key: in memory and, with a ``path``, in a file that programs share.

    The file is readable only by its owner and holds digests of the keys, never the commands themselves. A file that
    cannot be read or written is not an error: it is logged once.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is not None and not os.fspath(path):
            raise UsageError("The path of the era memory is empty: name a file, or leave it out.")
        self._path = None if path is None else os.path.expanduser(path)  # noqa: PTH111 - pathlib is slow to load
        self._eras: dict[str, Era] = {}
        self._has_warned = False

    def recall(self, key: str) -> Era | None:
        """Return the era of a server, or None if it is not known."""
        era = self._eras.get(key)
        if era is None and self._path is not None:
            era = _era_of(self._load().get(_digest(key)), time.time())
        return era

    def learn(self, key: str, era: Era) -> None:
        """Remember the era of a server, in place of the one known before."""
        self._eras.pop(key, None)
        self._eras[key] = era
        if len(self._eras) > _MAX_SERVERS:
            del self._eras[next(iter(self._eras))]
        if self._path is not None:
            self._store(_digest(key), era, time.time())

    def _store(self, name: str, era: Era, now: float) -> None:
        servers = self._load()
        entry = servers.pop(name, None)
        if _era_of(entry, now) == era and now - entry["seen"] < _FRESH_FOR:
            return
        known = [(each, entry) for each, entry in servers.items() if _era_of(entry, now) is not None]
        self._save(dict([*known[1 - _MAX_SERVERS :], (name, {"era": era, "seen": now})]))

    def _load(self) -> dict[str, Any]:
        import json
        from pathlib import Path

        try:
            servers = json.loads(Path(self._path or "").read_bytes())["servers"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            self._log_failure("read", error)
            return {}
        return servers if isinstance(servers, dict) else {}

    def _save(self, servers: dict[str, Any]) -> None:
        import json
        from pathlib import Path

        path = Path(self._path or "")
        beside = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.touch(mode=0o600, exist_ok=False)
            try:
                beside.write_text(json.dumps({"servers": servers}))
                beside.replace(path)  # atomic: a concurrent reader sees the old or the new file
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            self._log_failure("written", error)

    def _log_failure(self, what: str, error: Exception) -> None:
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        _logger.log(level, "The memory of servers in %s cannot be %s: %s", self._path, what, error)


#: The eras found by this process.
process_memory = EraMemory()


def _era_of(entry: Any, now: float) -> Era | None:
    """Return the era in an entry of the file; None if the entry is malformed or expired."""
    match entry:
        case {"era": "modern" | "legacy" as era, "seen": int() | float() as seen} if 0 <= now - seen < _MAX_AGE:
            known: Era = era
            return known
    return None


def _digest(key: str) -> str:
    from hashlib import sha256

    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


# --- The handshake ---

T = TypeVar("T")

#: Seconds between two looks whether the server has read the probe: nothing reports when a pipe is read.
_READ_POLL = 0.05
#: HTTP status codes that refuse access, whatever the era.
_ACCESS_DENIED = frozenset((401, 403, 407))
#: HTTP status codes of a path without an MCP server.
_WRONG_PATH = frozenset((404, 405))


class HandshakeResult(msgspec.Struct, frozen=True):
    """The revision agreed on, and what the server declared."""

    revision: Revision
    server_info: Implementation | None
    capabilities: ServerCapabilities
    instructions: str | None
    #: The error with which the server answered ``server/discover``; None if it gave a result, no answer, or was not
    #: asked. Code 0 is for a refusal over HTTP without a JSON-RPC error.
    refusal: ErrorDetail | None = None


class Handshake:
    """One handshake over a link. ``session`` is the current session, even after a failure, so that it can be closed."""

    def __init__(
        self, link: Link, settings: ClientSettings, *, remembered: Era | None = None, first_id: int = 1
    ) -> None:
        self.session: ClientSession | None = None
        self._link = link
        self._settings = settings
        self._first_id = first_id
        self._phase: Phase = "spawn"
        waits = settings.waits
        if not link.may_be_silent:
            # Every request gets a response over this link: silence means that the server is slow.
            patience = waits.patience
            waits = msgspec.structs.replace(waits, quiet=patience, quiet_modern=patience, quiet_unseen=patience)
        self._finder = EraFinder(
            settings.revisions, waits=waits, remembered=remembered, can_start_afresh=link.process is not None
        )
        self._loop = asyncio.get_running_loop()
        #: The open requests, by the futures of their responses.
        self._pending: dict[asyncio.Future[Response], OutgoingRequest] = {}
        #: The server's answers, by method.
        self._answers: dict[str, _ServerAnswer] = {}
        self._refusal: ErrorDetail | None = None
        #: The refusals of the requests over HTTP, without JSON-RPC errors.
        self._http_refusals: list[HttpError] = []

    @property
    def next_id(self) -> int:
        """The id of the next request; the next handshake continues from it."""
        return self._first_id if self.session is None else self.session.endpoint.outgoing.next_id

    async def run(self) -> tuple[ClientSession, HandshakeResult]:
        """Agree on a revision and return the session; raise ``ConnectError`` if that fails."""
        session = await self._connect()
        todo = deque(self._finder.started(self._loop.time()))
        while True:
            while not todo:
                todo.extend(await self._wait(session))
            match todo.popleft():
                case SendProbe(revision):
                    self._phase = "probe"
                    self._ask(session, "server/discover", {"_meta": metadata(self._settings, revision)})
                case SendInitialize(revision):
                    self._phase = "handshake"
                    session.expect_legacy(revision)
                    self._ask(session, "initialize", _initialize_params(self._settings, revision))
                case SendInitialized():
                    await self._send_initialized(session)
                case StartAgain():
                    session = await self._connect()
                    todo.extend(self._finder.started(self._loop.time()))
                case Agreed(revision):
                    return session, self._agree(session, revision)
                case Failed(error):
                    if (refusal := self._only_refusal(error)) is not None:
                        raise ConnectError(f"{refusal} {self._link.describe()}".strip()) from refusal
                    # The lines that could not be read, and the end of stderr, often show the cause.
                    error.args = (f"{error} {_describe_faults(session)}{self._link.describe()}".strip(),)
                    raise error

    async def _connect(self) -> ClientSession:
        if self.session is not None:
            await self.session.close(0)
        self._pending.clear()
        self._phase = "spawn"
        connection = await self._link.open()
        new_session = self._settings.new_session or ClientSession
        self.session = new_session(connection, self._settings, first_id=self.next_id)
        self.session.start()
        return self.session

    def _ask(self, session: ClientSession, method: str, params: Any) -> None:
        if session.is_open:  # otherwise `_wait` reports that the connection is lost
            call, answer = session.endpoint.open(method, params)
            self._pending[answer] = call

    async def _send_initialized(self, session: ClientSession) -> None:
        try:
            await session.notify("notifications/initialized")
        except Closed:
            cause = await self._link.explain(self._phase, await session.over)
            if isinstance(cause, ConnectError):
                raise cause from None
            raise ConnectError(str(cause)) from cause

    async def _wait(self, session: ClientSession) -> tuple[Action, ...]:
        """Wait for an answer, a deadline or the end of the connection, and return the next actions."""
        finder, loop = self._finder, self._loop
        if finder.awaits_reading and (is_read := self._link.has_read()) is not False:
            finder.probe_read(loop.time(), is_known=is_read is True)
        timeout = None if finder.deadline is None else max(0.0, finder.deadline - loop.time())
        if finder.awaits_reading:
            timeout = _READ_POLL if timeout is None else min(timeout, _READ_POLL)
        events: list[asyncio.Future[Any]] = [*self._pending, session.over]
        await asyncio.wait(events, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for answer in [answer for answer in self._pending if answer.done()]:
            actions = self._report(self._pending.pop(answer), answer.result())
            if actions:
                return actions
        if not session.over.done():
            return finder.due(loop.time())
        cause = await self._link.explain(self._phase, session.over.result())
        session.lose(cause)
        if isinstance(cause, ConnectError) and (not isinstance(cause, ServerExited) or cause.phase == "spawn"):
            raise cause  # it did not read the request, so starting it again would not help
        actions = finder.exited(loop.time())
        for action in actions:
            if isinstance(action, Failed) and not isinstance(action.error, NoCommonRevision):
                if isinstance(cause, ServerExited):
                    raise cause
                raise ConnectError(f"{action.error} {_describe_faults(session)}{cause}") from cause
        return actions

    def _report(self, call: OutgoingRequest, outcome: Response) -> tuple[Action, ...]:
        finder, now, method = self._finder, self._loop.time(), call.method
        is_probe = method == "server/discover"
        if call.state == "failed":
            outcome = Error(call.id, self._error_detail(call))
        if isinstance(outcome, Result):
            answer = self._answers[method] = _read_or_none(_ServerAnswer, outcome.result) or _ServerAnswer()
            if is_probe:
                return finder.probe_result(answer.supported_versions, now)
            return finder.init_result(answer.protocol_version, now)
        if outcome is None:
            return ()  # `_wait` reports that the connection is lost
        detail = ErrorDetail(outcome.code, outcome.reason) if isinstance(outcome, BadMessage) else outcome.error
        if not is_probe:
            return finder.init_error(detail, now)
        self._refusal = detail
        return finder.probe_error(detail, now)

    def _only_refusal(self, error: ConnectError) -> HttpError | None:
        """Return the refusal of all requests if they had the same HTTP status: then it is not worth repeating."""
        statuses = {refusal.status for refusal in self._http_refusals}
        is_about_revisions = isinstance(error, NoCommonRevision) and not statuses <= _WRONG_PATH
        if self._answers or len(statuses) != 1 or is_about_revisions:
            return None
        return self._http_refusals[-1]

    def _error_detail(self, call: OutgoingRequest) -> ErrorDetail:
        """Return what an unanswered request says about the server's era; raise `ConnectError` if it says nothing."""
        cause = call.cause
        if isinstance(cause, HttpError) and cause.status not in _ACCESS_DENIED:
            self._http_refusals.append(cause)
            return ErrorDetail(0, str(cause))
        if isinstance(cause, Closed):  # it cannot be reached, and the cause names its address
            raise ConnectError(str(cause)) from cause
        if isinstance(cause, AuthorizationError):
            raise AuthorizationError(
                cause.reason, f"{cause} {self._link.describe()}", issuer=cause.issuer, resource=cause.resource
            ) from cause
        raise ConnectError(f"The handshake failed. {cause} {self._link.describe()}".strip()) from cause

    def _agree(self, session: ClientSession, revision: Revision) -> HandshakeResult:
        for call in self._pending.values():
            # Without a cancellation: a server that has not answered may not know that notification.
            session.endpoint.forget(call)
        answer = self._answers["server/discover" if revision.is_modern else "initialize"]
        meta = answer.meta if isinstance(answer.meta, dict) else {}
        capabilities = _read_capabilities(answer.capabilities)
        session.agree(revision, capabilities)
        return HandshakeResult(
            revision,
            _read_or_none(Implementation, meta.get(SERVER_INFO) if revision.is_modern else answer.server_info),
            capabilities,
            _read_or_none(str, answer.instructions),
            self._refusal,
        )


def _describe_faults(session: ClientSession) -> str:
    echo = "It sent the client's requests back, as a program does that echoes its input. " if session.has_echo else ""
    if session.first_fault is None:
        return echo
    count = session.connection.stats.bad_lines
    many = "a line that is not a message" if count < 2 else f"{count} lines that are not messages, the first of them"
    return f"{echo}The server wrote {many}: {session.first_fault} "


class _ServerAnswer(Payload, frozen=True, kw_only=True):
    """The result of server/discover or initialize. Missing and invalid fields are tolerated."""

    supported_versions: Any = None
    protocol_version: Any = None
    capabilities: Any = None
    server_info: Any = None
    instructions: Any = None
    meta: Any = msgspec.field(default=None, name="_meta")


def _read_or_none(kind: type[T], value: Any) -> T | None:
    try:
        return None if value is None else read(kind, value)
    except DecodeError:
        return None


def _read_capabilities(value: Any) -> ServerCapabilities:
    """Return what a server declares. A feature whose details cannot be read is declared all the same."""
    whole = _read_or_none(ServerCapabilities, value)
    if whole is not None or not isinstance(value, dict):
        return whole or ServerCapabilities()
    kept: dict[str, Any] = {}
    for name, part in value.items():
        if _read_or_none(ServerCapabilities, {name: part}) is not None:
            kept[name] = part
        elif part:
            kept[name] = {}
    return _read_or_none(ServerCapabilities, kept) or ServerCapabilities()


def _initialize_params(settings: ClientSettings, revision: Revision) -> InitializeParams:
    return for_revision(
        InitializeParams(
            protocol_version=revision.name,
            capabilities=settings.input_handlers.capabilities,
            client_info=settings.client_info or ANONYMOUS,
        ),
        revision,
    )

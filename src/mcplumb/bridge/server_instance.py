"""One running server behind a bridge: its connection, and where its logs, questions and notifications go.

A server sends some messages without saying whom they are for. If one client owns the instance, or is the only one that
has ever used it, they go to that client. If several clients share it, a message goes to the client whose calls are the
only ones it can belong to, and otherwise to nobody: it is counted, and reported once. A call that was cancelled may go
on at the server for a while, so what is sent then may belong to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mcplumb.bridge.principal_state import may_have_bound_state, open_state, seal_state
from mcplumb.bridge.raw_pass import sender_alone
from mcplumb.client.client import Client
from mcplumb.client.client_session import ClientSession, metadata
from mcplumb.client.client_settings import ClientSettings
from mcplumb.client.connector import Connecting
from mcplumb.client.input_handlers import InputHandlers
from mcplumb.client.requests import Requests
from mcplumb.client.subscriptions import Changes
from mcplumb.errors import DecodeError, McplumbError, ProtocolError, RemoteError, RequestTimeout
from mcplumb.protocol.translation import meta_for_server, result_for_client
from mcplumb.revisions import Revision
from mcplumb.rpc.handler import CallOptions, Handled, Outcome
from mcplumb.rpc.user_callbacks import OnProgress
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import LineConnection
from mcplumb.types.base import Implementation
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import LOGGING_LEVELS, LoggingLevel, LogMessageParams, SubscriptionFilter
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, ErrorDetail, Notification

if TYPE_CHECKING:
    from mcplumb.bridge.bridge_session import BridgeSession
    from mcplumb.bridge.parked_calls import PendingCall
    from mcplumb.client.handshake import HandshakeResult
    from mcplumb.server.dispatch.running_call import Call

__all__ = ["NEEDED", "BackSession", "FrontClient", "ServerInstance", "can_be_asked"]

_logger = logging.getLogger("mcplumb.bridge")

#: The client capability that each question of a server needs.
NEEDED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
#: Seconds for the server to acknowledge a subscription.
_LISTEN_TIMEOUT = 60.0
#: Seconds for which a call that was cancelled may go on at the server, and how many such calls are remembered.
_ABANDONED_FOR, _MAX_ABANDONED = 60.0, 1000
#: Why most messages go to no client, for the log.
_UNKNOWN = "it is not known which one is meant. With share='never', each client has its own server"


class FrontClient(msgspec.Struct, eq=False):
    """The facts about a client of the bridge that its server depends on."""

    capabilities: ClientCapabilities
    client_info: Implementation | None
    principal: str | None
    #: The session of a legacy client, which can be sent requests; None for a modern client.
    session: BridgeSession | None
    #: Whether the client stays connected between its requests. Over modern HTTP, each request stands alone.
    stays: bool


def can_be_asked(capabilities: ClientCapabilities) -> bool:
    """Return whether a server may ask a client with these capabilities anything."""
    return any(getattr(capabilities, name) is not None for name in NEEDED.values())


class ServerInstance:
    """One connection to a server. ``owner`` is the client that it serves alone; None if clients share it."""

    def __init__(self, name: str, connecting: Connecting, owner: FrontClient | None) -> None:
        self.name = name
        self.owner = owner
        #: How many clients and calls use it.
        self.users = 0
        #: When a call last ended that is not among its users.
        self.used_at = 0.0
        #: How many subscriptions and others use it that leave it free for calls.
        self.guests = 0
        #: The calls in flight, in order.
        self.calls: dict[Call, None] = {}
        #: The calls in flight that can be asked questions: those of modern clients on a legacy server.
        self.pending: list[PendingCall] = []
        #: Messages that could not be attributed to a client.
        self.unattributed = 0
        #: Messages for clients that do not keep up.
        self.dropped = 0
        #: The only session that has ever used it; None if there was none, or several.
        self._only: BridgeSession | None = None
        self._has_several = False
        #: The sessions of calls that ended without an answer of the server, and until when these may go on there.
        self._abandoned: deque[tuple[BridgeSession, float]] = deque(maxlen=_MAX_ABANDONED)
        #: The questions that wait for the answer of a legacy client, and the calls whose responses carried them.
        self._carriers: dict[asyncio.Future[Any], Call | None] = {}
        #: The log level of a legacy server, if one was set.
        self._level: LoggingLevel | None = None
        #: Set when no call is in flight; None if no task waits for that.
        self.idle: asyncio.Event | None = None
        supervisor = connecting.supervisor
        self._own_info = supervisor.settings.client_info
        declared = ClientCapabilities() if owner is None else owner.capabilities
        handlers = InputHandlers()
        handlers.capabilities = declared
        supervisor.settings = replace(
            supervisor.settings, input_handlers=handlers, new_session=partial(BackSession, self), cache=False
        )
        if owner is not None and owner.client_info is not None:
            supervisor.settings = replace(supervisor.settings, client_info=owner.client_info)
        self._connecting = connecting
        self.supervisor = supervisor
        self.client: Client
        self.passes_raw = False

    async def start(self) -> None:
        """Connect to the server; raise `ConnectError` if that fails."""
        self.client = await self._connecting
        self._requests = Requests(self.supervisor)
        #: Whether requests may pass as they are: over HTTP, parts of them are repeated in headers, and an observer may
        #: add to them.
        self.passes_raw = not self.supervisor.link.mirrors and self.supervisor.settings.observer is None

    async def close(self) -> None:
        """Close the connection, and stop the server if it was started for it."""
        await self.supervisor.close()

    def share(self) -> None:
        """Let other clients use it, too; its declarations no longer describe the client that it was started for."""
        self.owner = None
        supervisor = self.supervisor
        handlers = InputHandlers()
        supervisor.settings = replace(supervisor.settings, input_handlers=handlers, client_info=self._own_info)
        session = supervisor.session
        if isinstance(session, BackSession):
            session.describe_client(supervisor.settings)

    def used_by(self, session: BridgeSession) -> None:
        """Record that a session uses it."""
        if session.is_single:
            self.lend()
        elif self._only is not session:
            self._has_several = self._has_several or self._only is not None
            self._only = None if self._has_several else session

    def lend(self) -> None:
        """Record that stateless requests use it: each may come from another client."""
        self._only, self._has_several = None, True

    @property
    def is_over(self) -> bool:
        """Whether the server is gone, and is not started again."""
        return self.supervisor.has_ended

    @property
    def is_busy(self) -> bool:
        """Whether calls are in flight."""
        return bool(self.calls or self.pending)

    @property
    def has_abandoned(self) -> bool:
        """Whether a call ended without an answer, so that the server may still work on it."""
        return bool(self._abandoned)

    @property
    def known(self) -> HandshakeResult:
        """What the server declared."""
        return self.supervisor.handshake_result

    @property
    def revision(self) -> Revision:
        """The revision that the server speaks."""
        return self.supervisor.handshake_result.revision

    # --- What clients send ---

    async def request(
        self, call: Call, method: str, params: dict[str, Any], meta: dict[str, Any], on_progress: OnProgress | None
    ) -> msgspec.Raw:
        """Send a client's request, and return the result. It is sent again after a crash if that is safe."""
        if not may_have_bound_state(call):
            return await self._counted(call, self.ask(method, params, meta, on_progress))
        params = open_state(call, self.name, params)
        return seal_state(call, self.name, await self._counted(call, self.ask(method, params, meta, on_progress)))

    async def recover(
        self, call: Call, back: ClientSession, params: dict[str, Any], meta: dict[str, Any], lost: McplumbError
    ) -> msgspec.Raw:
        """Send a request that was lost with its session again, if that is safe, and return the result."""
        options = CallOptions(None, None, None, meta or None)
        return await self._counted(call, self._requests.recover(back, call.method, params, options, lost))

    async def _counted(self, call: Call, sending: Coroutine[Any, Any, msgspec.Raw]) -> msgspec.Raw:
        self.calls[call] = None
        try:
            return await sending
        except (asyncio.CancelledError, RequestTimeout):
            self._abandon(call)
            raise
        finally:
            self.has_ended(call)

    def has_ended(self, call: Call, *, is_abandoned: bool = False) -> None:
        """Record that a call has ended, or was abandoned while the server may still work on it."""
        # Several requests of the bridge may serve the same call.
        self.calls.pop(call, None)
        if is_abandoned:
            self._abandon(call)
        if self.idle is not None:
            self._check_idle()

    def ask(
        self, method: str, params: dict[str, Any], meta: dict[str, Any], on_progress: OnProgress | None = None
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        """Send any request, and return the result."""
        return self._requests.ask(method, params, msgspec.Raw, CallOptions(None, None, on_progress, meta or None))

    async def wait_idle(self) -> None:
        """Wait until no call is in flight."""
        while self.is_busy:
            self.idle = self.idle or asyncio.Event()
            await self.idle.wait()

    def ended(self, pending: PendingCall, last: Call | None) -> None:
        """Record that a call that could be asked questions has ended; ``last`` is its request if it was cancelled."""
        self.pending.remove(pending)
        if last is not None:
            self._abandon(last)
        self._check_idle()

    def _check_idle(self) -> None:
        if self.idle is not None and not self.is_busy:
            self.idle.set()
            self.idle = None

    def _abandon(self, call: Call) -> None:
        # The loop's clock, which the sessions of a bridge share.
        session = _session_of(call)
        session.is_kept = True  # if it served another client, what this call still sends would go there
        self._abandoned.append((session, session.loop.time() + _ABANDONED_FOR))
        for asking in [asking for asking, carrier in self._carriers.items() if carrier is call]:
            del self._carriers[asking]
            asking.cancel()

    async def notify(self, notification: Notification) -> None:
        """Pass on a notification of a client."""
        session = await self.supervisor.ready(notification.method, self.supervisor.settings.timeout)
        await session.notify(notification.method, notification.params)

    async def raise_log_level(self, level: LoggingLevel) -> None:
        """Make a legacy server send messages of this level. Clients that share it get only what they requested."""
        if self.revision.is_modern or self.known.capabilities.logging is None:
            return
        is_legacy_owner = self.owner is not None and self.owner.session is not None
        if level == self._level or not (
            self._level is None or is_legacy_owner or _severity(level) < _severity(self._level)
        ):
            return
        await self.client.set_log_level(level)
        self._level = level

    def changes(self, wanted: SubscriptionFilter, client: FrontClient) -> Changes:
        """Return a subscription to changes for a client, to be entered.

        It describes the client as its calls do: another bridge behind this one goes by that.
        """
        meta = meta_for_server(
            {}, self.revision, capabilities=client.capabilities, client_info=client.client_info, log_level=None
        )
        return Changes(self.supervisor.subscriptions, wanted, _LISTEN_TIMEOUT, meta)

    # --- What the server sends ---

    def result_for(self, front: Revision, result: msgspec.Raw, method: str) -> Any:
        """Return a result as a client's revision has it; raise `ProtocolError` if it cannot be read."""
        try:
            return result_for_client(
                result, method, front=front, back=self.revision, server_info=self.known.server_info
            )
        except DecodeError as error:
            raise ProtocolError(f"Its result of {method} cannot be read. {error}") from error

    async def answer(self, request: Handled) -> Outcome:
        """Return the answer to a question of a legacy server."""
        method, params = request.method, request.request.params
        owner = self.owner
        if owner is None:
            why = "clients share this server, and it is not known which of them is meant"
            return self._refuse(method, why, _UNKNOWN)
        needed = NEEDED.get(method)
        if needed is not None and getattr(owner.capabilities, needed) is None:
            return ErrorDetail(METHOD_NOT_FOUND, f"The client did not declare that it can do {method}.")
        try:
            if owner.session is not None:
                return await self._ask_owner(owner.session, method, params)
            # One whose client waits; otherwise the client gets the question when it answers an earlier one.
            waiting = sorted(self.pending, key=lambda pending: not pending.is_waiting)
            if not waiting or needed is None:
                why = "no call is open that could carry it"
                remedy = ". If the server needs folders, name them in its command" if method == "roots/list" else ""
                return self._refuse(method, why, f"{why}: a modern client can be asked only with one{remedy}")
            return await waiting[0].ask(method, params, self.revision)
        except RemoteError as error:
            return ErrorDetail(error.code, error.message, UNSET if error.data is None else error.data)
        except McplumbError as error:
            return ErrorDetail(INTERNAL_ERROR, str(error))

    async def _ask_owner(self, session: BridgeSession, method: str, params: Any) -> Any:
        """Ask a legacy client. Over HTTP, the question goes out with the response to one of its calls.

        It may not be that call's question. If the client cancels the call, it may not have read the question either, so
        it is asked again with another call.
        """
        while True:
            carrier = next((call for call in self.calls if call.session is session), None)
            about = None if carrier is None else carrier.id
            asking = asyncio.ensure_future(session.ask_client(method, params, about, self.revision))
            self._carriers[asking] = None if session.line is not None else carrier
            try:
                return await asking
            except asyncio.CancelledError:
                if asking in self._carriers:
                    raise  # the server does not want an answer any more
            finally:
                self._carriers.pop(asking, None)

    def notified(self, notification: Notification) -> None:
        """Pass on a log message, or a notification of an extension, to the client that it is for."""
        owner = None if self.owner is None else self.owner.session
        if owner is not None and not self.revision.is_modern:
            # A session of its own: the client gets what it would get without the bridge.
            self._pass_on(notification, owner, self._call_of(owner))
        elif notification.method == "notifications/message":
            self._pass_on_log(notification)
        elif self._only is not None and self._only.may_get(notification.method):
            self._pass_on(notification, self._only, self._call_of(self._only))
        elif notification.method not in METHODS:
            self._count_unattributed(f"the notification {notification.method!r}")

    def _pass_on_log(self, notification: Notification) -> None:
        try:
            level = read(LogMessageParams, notification.params).level
        except DecodeError:
            self._count_unattributed("a log message that cannot be read")
            return
        calls = [call for call in self._open_calls() if call.wants_log(level)]
        sessions = {_session_of(call) for call in calls}
        if self._only is not None:
            if not calls and self._only.wants_log(level):
                self._pass_on(notification, self._only, None)
        else:
            now = asyncio.get_running_loop().time()
            while self._abandoned and self._abandoned[0][1] < now:
                self._abandoned.popleft()
            sessions |= {session for session, _ in self._abandoned}
        if calls and len(sessions) == 1:
            self._pass_on(notification, _session_of(calls[0]), calls[0])
        elif sessions:
            self._count_unattributed("a log message, which may belong to several clients")

    def _open_calls(self) -> list[Call]:
        return [*self.calls, *(pending.call for pending in self.pending if pending.call is not None)]

    def _call_of(self, session: BridgeSession) -> Call | None:
        return next((call for call in self._open_calls() if call.session is session), None)

    def _pass_on(self, notification: Notification, session: BridgeSession, call: Call | None) -> None:
        """Send a client a notification, or drop it if the client does not keep up."""
        if session.connection.is_clogged:
            self.dropped += 1
        else:
            session.pass_on(notification, call)

    def _refuse(self, method: str, why: str, explained: str) -> ErrorDetail:
        self._count_unattributed(f"the request {method[:80]!r}", explained)
        return ErrorDetail(INVALID_REQUEST, f"The bridge cannot pass on {method[:80]}: {why}.")

    def _count_unattributed(self, what: str, why: str = _UNKNOWN) -> None:
        self.unattributed += 1
        level = logging.WARNING if self.unattributed == 1 else logging.DEBUG
        _logger.log(level, "The server %r sent %s, which went to no client, because %s.", self.name, what, why)


class BackSession(ClientSession):
    """The bridge's session with a server: it passes on the server's own requests and notifications."""

    def __init__(
        self, instance: ServerInstance, connection: Connection, settings: ClientSettings, *, first_id: int = 1
    ) -> None:
        super().__init__(connection, settings, first_id=first_id)
        self._instance = instance
        self.line = connection if isinstance(connection, LineConnection) else None
        self.send_alone = sender_alone(connection)
        self._passed_on = self._notified.keys() - {"notifications/message"}

    def describe_client(self, settings: ClientSettings) -> None:
        """Declare the capabilities of these settings from now on."""
        if self.revision.is_modern:
            self._meta = metadata(settings, self.revision)
            self._encode_meta()

    def _begin(self, request: Handled) -> Outcome | Coroutine[Any, Any, Outcome]:
        return {} if request.method == "ping" else self._instance.answer(request)

    def notified(self, notification: Notification) -> None:
        """Handle notifications about the bridge's own requests and subscriptions, and pass on the rest."""
        if notification.method in self._passed_on:
            super().notified(notification)
        else:
            self._instance.notified(notification)


def _severity(level: LoggingLevel) -> int:
    return LOGGING_LEVELS.index(level)


def _session_of(call: Call) -> BridgeSession:
    session: Any = call.session
    return session  # type: ignore[no-any-return]

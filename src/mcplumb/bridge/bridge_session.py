"""The bridge's session with one client: its handler on the endpoint, which forwards requests to servers.

A request is admitted as a server admits it. Then `BridgeSession.send` leases an instance of the server, translates the
params, sends them, and translates the result. Between the eras, questions of a server travel in another form:

* A modern server answers with a question, and a legacy client is sent a request: `_ask_for_server`.
* A legacy server sends a request, and a modern client gets it as a result: `mcplumb.bridge.parked_calls`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from mcplumb.bridge.forwarded_methods import OWN_NOTIFICATIONS, may_need_input, passing_methods, unknown_methods
from mcplumb.bridge.front_subscriptions import FrontSubscriptions
from mcplumb.bridge.parked_calls import PendingCall
from mcplumb.bridge.principal_state import may_have_bound_state
from mcplumb.bridge.raw_pass import NO_META, PASS_ON, ForwardedCall, Lane, SessionLane, decode_meta, sender_alone
from mcplumb.bridge.server_instance import NEEDED, FrontClient, ServerInstance, can_be_asked
from mcplumb.bridge.server_pool import PoolClosed, ServerPool
from mcplumb.client.requests import MAX_ROUNDS
from mcplumb.errors import (
    Closed,
    DecodeError,
    McplumbError,
    ProtocolError,
    RemoteError,
    RequestError,
    StateRefused,
    UsageError,
)
from mcplumb.protocol.http_headers import learn_headers
from mcplumb.protocol.in_flight import DUPLICATE_ID
from mcplumb.protocol.translation import (
    answer_for_server,
    error_for_client,
    is_input_required,
    members_of,
    meta_for_server,
    params_for_server,
    question_for_client,
    read_input_required,
    urls_to_visit,
)
from mcplumb.protocol.version_negotiation import Admitted, InitializedSession, Refused
from mcplumb.revisions import LATEST_LEGACY, Revision
from mcplumb.rpc.handler import Outcome, Reply
from mcplumb.server.dispatch.running_call import Call
from mcplumb.server.server_session import ServerSession
from mcplumb.server.server_state import SharedState
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.line_connection import LineConnection
from mcplumb.types.base import INPUT_REQUIRED, Implementation, Result
from mcplumb.types.lifecycle import ClientCapabilities, DiscoverResult, InitializeResult, ServerCapabilities
from mcplumb.types.meta import SERVER_INFO, RequestMeta
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import LOGGING_LEVELS, LoggingLevel, SetLevelParams, SubscriptionFilter
from mcplumb.types.payload_decoder import UNREADABLE, read
from mcplumb.types.resources import ResourceParams
from mcplumb.types.revision_adapter import for_revision
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    ErrorDetail,
    Notification,
    Request,
    RequestId,
)

if TYPE_CHECKING:
    from mcplumb.bridge.bridge import Bridge
    from mcplumb.client.client_session import ClientSession
    from mcplumb.client.subscriptions import Changes
    from mcplumb.rpc.user_callbacks import OnProgress

__all__ = ["BridgeSession", "Described"]

_logger = logging.getLogger("mcplumb.bridge")

#: How many kinds of modern clients one connection may stand for at once: each has its own capabilities.
_MAX_CLIENTS = 16
#: Bytes from which on params are not copied to look at their end.
_LARGE = 64 * 1024
#: How many notifications of a client may wait for a server that does not read; reading pauses then.
_MAX_WAITING_NOTIFICATIONS = 100


class Described(msgspec.Struct, frozen=True):
    """The description of the servers behind the bridge that a client gets when it connects."""

    capabilities: ServerCapabilities
    server_info: Implementation | None
    instructions: str | None


class BridgeSession(ServerSession):
    """The bridge's side of one connection to a client."""

    def __init__(self, bridge: Bridge, shared: SharedState, connection: Connection, peer: Peer) -> None:
        self.bridge = bridge
        #: Whether the connection carries a single request, as over modern HTTP.
        self.is_single = peer.era == "modern"
        #: The connection, if messages on it are lines.
        self.line = connection if isinstance(connection, LineConnection) else None
        self.send_alone = sender_alone(connection)
        self._legacy_client: FrontClient | None = None
        self._modern_clients: list[FrontClient] = []
        self._leases: dict[tuple[FrontClient, ServerPool], ServerInstance] = {}
        self._leasing: dict[tuple[FrontClient, ServerPool], asyncio.Task[ServerInstance]] = {}
        #: How the latest request passed that could pass as it is, to the sole server; None if there was none.
        self._lane: Lane | None = None
        #: How the requests of the legacy session pass that have no metadata; None until one could.
        self._session_lane: SessionLane | None = None
        self._has_released = False
        self._waiting_notifications = 0
        # Bound once: looking them up for each request would cost more than most of what is done for it.
        self._begin = {name: begin.__get__(self) for name, begin in _OWN_METHODS.items()}
        self._begin_forwarding = self._forward
        super().__init__(shared, connection, peer)
        if hasattr(connection, "has_own_changes"):
            connection.has_own_changes = True
        self.changes = FrontSubscriptions(self)

    async def run(self, *, finish_within: float, stop_within: float) -> None:
        """Serve the connection until it ends; then release the servers."""
        try:
            await super().run(finish_within=finish_within, stop_within=stop_within)
        finally:
            self.changes.close()
            if not self.is_single:
                self.bridge.parked_calls.drop(self)
            self._release_all()

    def start_over(self) -> None:
        """Forget what a legacy client has set, because a session begins: it may be another client's."""
        super().start_over()
        self.changes.close()
        if self._legacy_client is not None:
            self._release(self._legacy_client)
            self._legacy_client = None

    @property
    def is_unused(self) -> bool:
        """Whether nothing is left of the requests that it has served."""
        return super().is_unused and not (self._leases or self._leasing or self.changes.is_open)

    def reuse(self, connection: Connection) -> None:
        """Serve another connection, which may be another client's."""
        super().reuse(connection)
        self.send_alone = sender_alone(connection)
        self._modern_clients.clear()

    # --- Admission ---

    def _dispatcher(self) -> Callable[[Request], Call | Reply]:
        return self._admit

    def _admit(self, request: Request) -> Call | Reply:
        name = request.method
        params = request.params
        lane = self._lane
        if (
            lane is not None
            and name in lane.methods
            and params is not UNSET
            and len(params) < _LARGE
            and bytes(params)[lane.start :] == lane.ending
        ):
            return ForwardedCall(
                request.id,
                request,
                PASS_ON,
                session=self,
                admitted=lane.admitted,
                params=None,
                instance=lane.instance,
                back=lane.back,
            )
        if name in self._begin:
            return self._admit_own(request)
        try:
            meta = decode_meta(params).meta
        except (*UNREADABLE, TypeError):
            meta = None  # whether the request is admitted at all is decided first
        if meta is NO_META and (ahead := self._session_lane) is not None and name in ahead.methods:
            return ahead.call(request, self)
        admitted = self._admission.request(request, meta)
        if admitted.__class__ is Admitted and name not in unknown_methods(admitted.revision.name):
            begin = self._begin_forwarding
            return ForwardedCall(request.id, request, begin, session=self, admitted=admitted, params=None)
        return self._not_admitted(name, admitted)

    def _admit_own(self, request: Request) -> Call | Reply:
        """Admit a request that the bridge itself answers."""
        name = request.method
        is_idle = False
        if name == "initialize":
            if self.endpoint.is_in_flight(request.id):
                return Reply(DUPLICATE_ID)
            is_idle = self.endpoint.is_idle and not self.endpoint.is_in_batch
        admitted = self._admission.request(request, is_idle=is_idle)
        if isinstance(admitted, InitializedSession):
            self.start_over()
            capabilities, client_info = admitted.capabilities, admitted.client_info
            self._legacy_client = FrontClient(capabilities, client_info, self._identity, self, stays=True)
            admitted = Admitted(admitted.revision, capabilities, client_info, None, None, RequestMeta.of(None))
        if isinstance(admitted, Refused) or name in unknown_methods(admitted.revision.name):
            return self._not_admitted(name, admitted)
        return Call(
            request.id,
            request,
            self._begin[name],
            session=self,
            admitted=admitted,
            params=None,
            is_quick=name in ("initialize", "ping"),
            stays_open=name == "subscriptions/listen",
        )

    def _not_admitted(self, name: str, admitted: Admitted | InitializedSession | Refused) -> Reply:
        if isinstance(admitted, Refused):
            return Reply(admitted.error)
        sentence = f"There is no method {name[:80]!r} in protocol revision {admitted.revision}."
        return Reply(ErrorDetail(METHOD_NOT_FOUND, sentence))

    def explain(self, call: Call, error: Exception) -> Outcome:
        """Return the error for a request that failed."""
        if isinstance(error, RequestError | RemoteError):
            return ErrorDetail(error.code, error.message, UNSET if error.data is None else error.data)
        if isinstance(error, StateRefused | DecodeError):
            return ErrorDetail(INVALID_PARAMS, str(error))
        if isinstance(error, McplumbError):
            return ErrorDetail(INTERNAL_ERROR, str(error))
        _logger.error("The bridge failed to pass on %s.", call.method, exc_info=error)
        return ErrorDetail(INTERNAL_ERROR, f"The bridge failed to pass on {call.method}, and its log says why.")

    # --- Methods that the bridge answers ---

    async def _initialize(self, call: Call) -> Outcome:
        described = await self.bridge.router.describe(self, self._client_of(call))
        revision = call.admitted.revision
        result = InitializeResult(
            protocol_version=str(revision),
            capabilities=described.capabilities,
            server_info=described.server_info or self.shared.identity,
            instructions=described.instructions,
        )
        return for_revision(result, revision)

    async def _discover(self, call: Call) -> Outcome:
        described = await self.bridge.router.describe(self, self._client_of(call))
        revision = call.admitted.revision
        result = DiscoverResult(
            supported_versions=[str(each) for each in self.shared.revisions if each.is_modern],
            capabilities=described.capabilities,
            instructions=described.instructions,
            meta={SERVER_INFO: for_revision(described.server_info or self.shared.identity, revision)},
        )
        return for_revision(result, revision)

    def _ping(self, _: Call) -> Outcome:
        return Result()

    async def _set_level(self, call: Call) -> Outcome:
        self.log_level = read(SetLevelParams, call.request.params, what="params").level
        self.leave_lane()
        await self.bridge.router.raise_log_level(self, self._client_of(call), self.log_level)
        return Result()

    async def _listen(self, call: Call) -> Outcome:
        self.endpoint.incoming.exempt(call.id)
        return await self.changes.listen(call, partial(self._open_changes, self._client_of(call)))

    async def _subscribe(self, call: Call) -> Outcome:
        uri = read(ResourceParams, call.request.params, what="params").uri
        await self.changes.subscribe(uri, partial(self._open_changes, self._client_of(call)))
        return Result()

    def _unsubscribe(self, call: Call) -> Outcome:
        self.changes.unsubscribe(read(ResourceParams, call.request.params, what="params").uri)
        return Result()

    def _open_changes(
        self, client: FrontClient, wanted: SubscriptionFilter
    ) -> AbstractAsyncContextManager[list[Changes]]:
        return self.bridge.router.changes(self, client, wanted)

    # --- Requests to servers ---

    def _forward(self, call: ForwardedCall) -> Coroutine[Any, Any, Outcome] | None:
        revision = call.admitted.revision
        if call.method == "tools/list" and revision.has_mirrored_headers:
            return self._list_tools(call)
        instance = call.instance = self._instance_for(call)
        if instance is None:
            return self.forward(call)
        call.back = instance.supervisor.session
        return call.pass_on()

    def leave_lane(self) -> None:
        """Look anew at how the next request may pass, and where to."""
        self._lane = self._session_lane = None

    def _instance_for(self, call: Call) -> ServerInstance | None:
        """Return the running instance that a request may pass to as it is; None if it may not."""
        lane, pool, admitted = self._lane, self.bridge.router.sole, call.admitted
        if lane is not None and lane.admitted is admitted and lane.back is lane.instance.supervisor.session:
            return lane.instance
        if pool is None or admitted.progress_token is not None or _logger.isEnabledFor(logging.DEBUG):
            return None
        if may_have_bound_state(call):
            return None
        client = self._client_of(call)
        instance = self._leases.get((client, pool)) if client.stays else pool.borrow(client)
        if instance is None or not instance.passes_raw or instance.revision is not admitted.revision:
            return None
        params = call.request.params
        if not admitted.revision.is_modern:
            self._open_session_lane(call, instance)
        elif client.stays and params is not UNSET and len(params) < _LARGE:
            self._lane = Lane.of(call, instance, passing_methods(admitted.revision.name))
        return instance

    def _open_session_lane(self, call: Call, instance: ServerInstance) -> None:
        """Let the requests of the legacy session that have no metadata pass to this instance without a task."""
        is_sole = self.bridge.router.sole is not None and instance.passes_raw
        if is_sole and not call.admitted.meta.raw and not _logger.isEnabledFor(logging.DEBUG):
            declared = self._meta_for(call, instance, self.log_level)
            methods = passing_methods(call.admitted.revision.name)
            self._session_lane = SessionLane.of(call.admitted, instance, methods, declared)

    async def forward(self, call: Call) -> Outcome:
        """Forward a request, and answer it within the delivery of the server's response, not a turn of the loop later.

        The endpoint gets the outcome as well, and answers what has not been: if the client does not keep up.
        """
        outcome = await self.bridge.router.forward(self, call)
        if not self.connection.is_clogged:
            self.endpoint.finish(call, outcome)
        return outcome

    async def send_lost(self, call: Call, instance: ServerInstance, back: ClientSession, lost: McplumbError) -> None:
        """Answer a request that needed no task and got no response: with that of another session, or an error."""
        await self._complete(call, instance, lambda params, meta: instance.recover(call, back, params, meta, lost))

    async def go_on(self, call: Call, instance: ServerInstance, result: msgspec.Raw) -> None:
        """Answer a request of a legacy client that needed no task and has this result, which is not the answer yet."""

        async def given(*_: object) -> msgspec.Raw:
            return result

        await self._complete(call, instance, given)

    async def _complete(
        self,
        call: Call,
        instance: ServerInstance,
        first: Callable[[dict[str, Any], dict[str, Any]], Coroutine[Any, Any, msgspec.Raw]],
    ) -> None:
        """Answer a request whose first result comes from this function of its params and metadata."""
        method, front = call.method, call.admitted.revision
        outcome: Outcome
        try:
            params, meta = await self._translated(call, instance, members_of(call.request.params), method)
            result = await self._final(call, instance, method, params, meta, None, await first(params, meta))
            outcome = instance.result_for(front, result, method)
        except McplumbError as error:
            outcome = self.explain(call, self._named_error(error, method, instance.name, front, instance.revision))
        await self.finish_later(call, outcome)

    async def finish_later(self, call: Call, outcome: Outcome) -> None:
        """Answer a request once the client reads again."""
        if self.connection.is_clogged:
            self.endpoint.pause_while_clogged()
            await self.connection.drained()
        self.endpoint.finish(call, outcome)

    def start_for(self, call: Call, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that answers a request. It is cancelled with the request."""
        call.task = self.endpoint.start_task(coroutine)

    def _named_error(
        self, error: McplumbError, method: str, server: str, front: Revision, back: Revision
    ) -> McplumbError:
        """Return the error for a request that failed: the server's own, or one that names the server."""
        if isinstance(error, RemoteError):
            detail = ErrorDetail(error.code, error.message, UNSET if error.data is None else error.data)
            detail = error_for_client(detail, method, front=front, back=back)
            return RequestError(detail.code, detail.message, error.data)
        if isinstance(error, RequestError | StateRefused | DecodeError | PoolClosed):
            return error
        return RequestError(INTERNAL_ERROR, f"The server {server!r} gave no result. {error}")

    async def _list_tools(self, call: Call) -> Outcome:
        """Forward a list of tools, and remember which arguments clients over HTTP repeat in headers."""
        outcome = await self.bridge.router.forward(self, call)
        learn_headers(outcome, self.bridge.param_headers)
        return outcome

    async def send(self, call: Call, pool: ServerPool, members: dict[str, Any], method: str | None = None) -> Any:
        """Send a request with these params to a server, and return the result as the client's revision has it.

        ``method`` is for a request that the bridge makes to serve the client's own. Raises `RequestError` with the
        server's error, as the client's revision has it, and `PoolClosed` if nothing was sent.
        """
        client, front = self._client_of(call), call.admitted.revision
        method = method or call.method
        if _logger.isEnabledFor(logging.DEBUG):
            who = "a client" if client.client_info is None else client.client_info.name
            _logger.debug("%s (%s) sends %s to %s.", who[:80], front, method[:80], pool.name)
        instance: ServerInstance | None = None
        try:
            may_park = front.has_input_required and may_need_input(method)
            # A legacy server has no state of requests: it is the bridge's, and its call has an instance already.
            if may_park and "requestState" in members and pool.is_legacy:
                return await self._go_on(call, members)
            instance = self._leases.get((client, pool))
            if instance is None or instance.is_over:
                instance = await self.lease(client, pool)
            if may_park and not instance.revision.has_input_required:
                if "requestState" in members:
                    return await self._go_on(call, members)
                if instance.owner is not None and can_be_asked(client.capabilities):
                    used, instance = instance, None  # the pending call gives it back
                    return await self._send_and_park(call, client, pool, used, members)
            return await self._send(call, instance, members, method)
        except McplumbError as error:
            if isinstance(error, RemoteError) and (asked := self._urls_as_questions(call, error)) is not None:
                return asked
            # Without an instance of its own, it was a call that a legacy server may ask about.
            back = LATEST_LEGACY if instance is None else instance.revision
            raise self._named_error(error, method, pool.name, front, back) from error
        finally:
            if instance is not None and not client.stays:
                pool.release(instance)

    async def _send(self, call: Call, instance: ServerInstance, members: dict[str, Any], method: str) -> Any:
        admitted = call.admitted
        front = admitted.revision
        params, meta = await self._translated(call, instance, members, method)
        on_progress = None if admitted.progress_token is None else call.progress
        result = await instance.request(call, method, params, meta, on_progress)
        result = await self._final(call, instance, method, params, meta, on_progress, result)
        if not front.is_modern and self._session_lane is None:
            self._open_session_lane(call, instance)
        return instance.result_for(front, result, method)

    async def _final(
        self,
        call: Call,
        instance: ServerInstance,
        method: str,
        params: dict[str, Any],
        meta: dict[str, Any],
        on_progress: OnProgress | None,
        result: msgspec.Raw,
    ) -> msgspec.Raw:
        """Return the final result of a request: for as long as the server asks for input, ask a legacy client."""
        back = instance.revision
        if call.admitted.revision.has_input_required or not may_need_input(method):
            return result
        rounds = 1
        while is_input_required(result, back):
            if rounds == MAX_ROUNDS:
                raise ProtocolError(f"It asked for input {MAX_ROUNDS} times, and gave no result.")
            rounds += 1
            params = await self._ask_for_server(call, result, params, back)
            result = await instance.request(call, method, params, meta, on_progress)
        return result

    async def _translated(
        self, call: Call, instance: ServerInstance, members: dict[str, Any], method: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the params and the ``_meta`` for a server."""
        admitted, back = call.admitted, instance.revision
        level = admitted.log_level if admitted.revision.is_modern else self.log_level
        if level is not None and not back.is_modern and admitted.revision.is_modern:
            await _quietly(instance.raise_log_level(level), f"set the log level of the server {instance.name!r}")
        params = params_for_server(members, method, back)
        known = METHODS.get(method)
        named_by = None if known is None else known.named_by
        if named_by is not None and isinstance(params.get(named_by), msgspec.Raw):
            # The name is needed to tell whether the call may be sent again, and in headers.
            params[named_by] = read(str, params[named_by], what=named_by)
        return params, self._meta_for(call, instance, level)

    def _meta_for(self, call: Call, instance: ServerInstance, level: LoggingLevel | None) -> dict[str, Any]:
        """Return the ``_meta`` of a request for a server."""
        admitted, back = call.admitted, instance.revision
        return meta_for_server(
            admitted.meta.raw,
            back,
            capabilities=admitted.capabilities,
            client_info=admitted.client_info,
            log_level=level if back.is_modern else None,
        )

    # --- Questions: from a modern server to a legacy client ---

    async def _ask_for_server(
        self, call: Call, result: msgspec.Raw, params: dict[str, Any], back: Revision
    ) -> dict[str, Any]:
        """Ask a legacy client the questions of a modern server, and return the params of the next round."""
        try:
            asked = read_input_required(result)
        except DecodeError as error:
            raise ProtocolError(f"It asked for input that cannot be read. {error}") from error
        if not asked.input_requests and asked.request_state is UNSET:
            raise ProtocolError("It asked for input, but did not say which.")
        for question in asked.input_requests.values():
            needed = NEEDED.get(question.method)
            if needed is None or getattr(call.admitted.capabilities, needed) is None:
                raise ProtocolError(f"It asks for {question.method[:80]!r}, which the client did not declare.")
        retry = {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}
        if asked.input_requests:
            # One after the other: a person can answer only one question at a time.
            retry["inputResponses"] = {
                key: await self.ask_client(question.method, question.params, call.id, back)
                for key, question in asked.input_requests.items()
            }
        if asked.request_state is not UNSET:
            retry["requestState"] = asked.request_state
        return retry

    async def ask_client(self, method: str, params: Any, about: RequestId | None, back: Revision) -> Any:
        """Send a legacy client a server's question, and return the answer as the server's revision has it.

        ``about`` is the client's request that the question belongs to, if it is known.
        """
        session = self._admission.session
        if session is None:
            raise UsageError("The client has not opened its session yet.")
        translated = question_for_client(params, method, session.revision, new_id=token_hex(8))
        self.endpoint.unpause("queue")
        try:
            answer = await self.endpoint.request(method, translated, about=about)
        finally:
            self.endpoint.pause_if_queue_is_full()
        return answer_for_server(answer, method, back)

    # --- Questions: from a legacy server to a modern client ---

    async def _send_and_park(
        self, call: Call, client: FrontClient, pool: ServerPool, instance: ServerInstance, members: dict[str, Any]
    ) -> Any:
        """Send a call that the server may interrupt with questions, on an instance leased for it."""

        def release(ended: PendingCall | None, last: Call | None) -> None:
            if ended is not None:
                instance.ended(ended, last)
            if not client.stays:
                pool.release(instance)

        try:
            params, meta = await self._translated(call, instance, members, call.method)
        except BaseException:
            release(None, None)
            raise
        pending = PendingCall(call.admitted.revision, instance, release)
        on_progress = None if call.admitted.progress_token is None else pending.progress
        instance.pending.append(pending)
        pending.start(instance.ask(call.method, params, meta, on_progress))
        return await self._result_of(call, pending)

    async def _go_on(self, call: Call, members: dict[str, Any]) -> Any:
        """Continue a call that the server has interrupted with questions."""
        state = read(str, members["requestState"], what="requestState")
        responses = members_of(members.get("inputResponses", msgspec.Raw(b"{}")))
        remote = self.bridge.remote_calls
        if remote is not None:
            owner = self.bridge.parked_calls.owner_of(self.shared.sealer, state, call)
            if owner is not None:
                outcome = await remote.send(owner, call)
                if isinstance(outcome, ErrorDetail):
                    raise RequestError(outcome.code, outcome.message, None if outcome.data is UNSET else outcome.data)
                return outcome
        pending = self.bridge.parked_calls.take(self.shared.sealer, state, call, self._place)
        pending.answer(responses)
        return await self._result_of(call, pending)

    async def _result_of(self, call: Call, pending: PendingCall) -> Any:
        """Return the result of a call, or the questions that the server asks first."""
        result, front, used = await pending.wait(call), call.admitted.revision, pending.instance
        if result is None:
            info = used.known.server_info
            asked = self.bridge.parked_calls.park(pending, call, self._place)
            return asked if info is None else asked | {"_meta": {SERVER_INFO: for_revision(info, front)}}
        return used.result_for(front, result, call.method)

    @property
    def _place(self) -> object:
        """The connection that the answer to a question must come from, if it carries several requests."""
        return None if self.is_single else self

    def _urls_as_questions(self, call: Call, error: RemoteError) -> dict[str, Any] | None:
        """Return a result that sends a modern client's user to web pages, if a server's error asks for that."""
        elicitation = call.admitted.capabilities.elicitation
        if not call.admitted.revision.has_input_required or elicitation is None or not elicitation.has_url:
            return None
        urls = urls_to_visit(ErrorDetail(error.code, error.message, UNSET if error.data is None else error.data))
        if not urls:
            return None
        questions = {
            f"url-{number}": {"method": "elicitation/create", "params": for_revision(url, call.admitted.revision)}
            for number, url in enumerate(urls, 1)
        }
        return {"resultType": INPUT_REQUIRED, "inputRequests": questions}

    # --- Notifications ---

    def notified(self, notification: Notification) -> None:
        """Handle a notification of the client, or pass it on to the server that the client has for itself."""
        super().notified(notification)
        method = notification.method
        if method == "notifications/initialized" and self.is_ready_legacy and self._legacy_client is not None:
            open_changes = partial(self._open_changes, self._legacy_client)
            self.endpoint.start_task(_quietly(self.changes.announce_lists(open_changes), "announce list changes"))
        if method in OWN_NOTIFICATIONS:
            return
        known = METHODS.get(method)
        if self.is_single:
            if known is None:
                client = FrontClient(ClientCapabilities(), None, self._identity, None, stays=False)
                self.bridge.router.notify(notification, client)
            return
        for (_, pool), instance in list(self._leases.items()):
            # A modern server does not attribute what is not part of a request to anybody.
            is_for_it = instance.owner is not None or (known is None and instance.revision.is_modern)
            if is_for_it and (known is None or known.sent_by("client", instance.revision)):
                self._notify_server(pool, instance, notification)

    def _notify_server(self, pool: ServerPool, instance: ServerInstance, notification: Notification) -> None:
        """Pass on a notification, in order; pause reading while too many wait for a server that does not read."""
        passing = self.endpoint.start_task(_quietly(instance.notify(notification), f"reach the server {pool.name!r}"))
        if passing.done():
            return
        self._waiting_notifications += 1
        if self._waiting_notifications == _MAX_WAITING_NOTIFICATIONS:
            self.endpoint.pause("notifications")
        passing.add_done_callback(self._notified_server)

    def _notified_server(self, _: asyncio.Task[None]) -> None:
        self._waiting_notifications -= 1
        self.endpoint.unpause("notifications")

    def may_get(self, method: str) -> bool:
        """Return whether a notification may be sent to a client that has no request in flight."""
        if self.is_single:
            return False
        opened, known = self._admission.session, METHODS.get(method)
        revision = self.shared.revisions[0] if opened is None else opened.revision
        return known is None or known.sent_by("server", revision)

    def wants_log(self, level: LoggingLevel) -> bool:
        """Return whether a legacy client wants log messages of this level at any time."""
        return self.is_ready_legacy and LOGGING_LEVELS.index(level) >= LOGGING_LEVELS.index(self.log_level)

    def pass_on(self, notification: Notification, call: Call | None) -> None:
        """Send the client a notification of its server, with the request that it belongs to if that is known."""
        if call is not None:
            self.endpoint.notify_about(call, notification)
        else:
            self.connection.send(notification)

    # --- Servers ---

    def _client_of(self, call: Call) -> FrontClient:
        """Return the client that a request comes from: the legacy session, or one with these modern capabilities."""
        admitted = call.admitted
        if not admitted.revision.is_modern and self._legacy_client is not None:
            return self._legacy_client
        capabilities = admitted.capabilities
        for client in self._modern_clients:
            if client.capabilities is capabilities or client.capabilities == capabilities:
                return client
        client = FrontClient(capabilities, admitted.client_info, self._identity, None, stays=not self.is_single)
        if len(self._modern_clients) >= _MAX_CLIENTS:
            replaced = next((each for each in self._modern_clients if not self._is_busy(each)), None)
            if replaced is None:
                # It gets a server for one call at a time.
                return FrontClient(capabilities, admitted.client_info, self._identity, None, stays=False)
            self._modern_clients.remove(replaced)
            self._release(replaced)
        self._modern_clients.append(client)
        return client

    @property
    def _identity(self) -> str | None:
        return None if self.principal is None else self.principal.identity

    def _is_busy(self, client: FrontClient) -> bool:
        """Return whether a modern client has requests in flight, or calls that wait for its answers."""
        calls: Any = self.endpoint.incoming.requests.values()
        return (
            any(call.admitted.capabilities == client.capabilities for call in calls)
            or any(key[0] is client for key in self._leasing)
            or any(key[0] is client and instance.pending for key, instance in self._leases.items())
        )

    async def lease(self, client: FrontClient, pool: ServerPool) -> ServerInstance:
        """Return an instance of a server for a client. One that stays keeps it until it is gone."""
        if self._has_released:
            raise Closed("The client is gone.")
        if not client.stays:
            instance = await pool.lease(client)
            instance.used_by(self)
            return instance
        key = client, pool
        if key in self._leases and self._leases[key].is_over:
            self.leave_lane()
            pool.release(self._leases.pop(key))
        if key not in self._leases:
            if key not in self._leasing:
                # Of several requests that come at once, all wait for the same start, even if one is cancelled.
                # Not by `create_task`: an eager task may end before it has the callback, which would come too late.
                starting = self._leasing[key] = asyncio.Task(pool.lease(client), loop=self.loop)
                starting.add_done_callback(partial(self._leased, key))
            await asyncio.shield(self._leasing[key])
        if key not in self._leases:
            pool.check_open()
            raise Closed("The client is gone.")
        return self._leases[key]

    @asynccontextmanager
    async def leased(self, client: FrontClient, pool: ServerPool) -> AsyncIterator[ServerInstance]:
        """Use an instance within a block for something other than a call; for longer if the client stays."""
        if client.stays:
            yield await self.lease(client, pool)
            return
        instance = await pool.join(client)
        try:
            yield instance
        finally:
            pool.leave(instance)

    def _leased(self, key: tuple[FrontClient, ServerPool], starting: asyncio.Task[ServerInstance]) -> None:
        self._leasing.pop(key, None)
        if starting.cancelled() or starting.exception() is not None:
            return
        client, pool = key
        is_gone = not (client is self._legacy_client or client in self._modern_clients)
        if self._has_released or pool.has_closed or is_gone:
            pool.release(starting.result())  # the client has gone meanwhile, or the server was removed
        else:
            starting.result().used_by(self)
            self._leases[key] = starting.result()

    def _release(self, client: FrontClient) -> None:
        self.leave_lane()
        for key in [key for key in self._leases if key[0] is client]:
            key[1].release(self._leases.pop(key))

    def forget(self, pools: Sequence[ServerPool]) -> None:
        """Release servers that are removed from the bridge."""
        self.leave_lane()
        for key in [key for key in self._leases if key[1] in pools]:
            key[1].release(self._leases.pop(key))

    def _release_all(self) -> None:
        self._has_released = True
        self.leave_lane()
        for starting in self._leasing.values():
            starting.cancel()
        for (_, pool), instance in self._leases.items():
            pool.release(instance)
        self._leases.clear()

    async def _wind_down(self, why: Any, within: float) -> None:
        if why != "broken":
            self.changes.end_all()
        await super()._wind_down(why, within)


_OWN_METHODS: dict[str, Any] = {
    "initialize": BridgeSession._initialize,
    "server/discover": BridgeSession._discover,
    "ping": BridgeSession._ping,
    "logging/setLevel": BridgeSession._set_level,
    "subscriptions/listen": BridgeSession._listen,
    "resources/subscribe": BridgeSession._subscribe,
    "resources/unsubscribe": BridgeSession._unsubscribe,
}


async def _quietly(coroutine: Coroutine[Any, Any, None], what: str) -> None:
    """Await something that no request waits for; log its failure."""
    try:
        await coroutine
    except McplumbError as error:
        _logger.info("The bridge could not %s. %s", what, error)

"""The client's session on one connection: its handler on the endpoint, for the revision agreed on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from mcplumb.client.client_settings import ClientSettings, ClientStats
from mcplumb.client.subscriptions import LegacySubscriptions, ModernSubscriptions
from mcplumb.errors import Closed, DecodeError, McplumbError, RequestError
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.protocol.subscription_state import LIST_CHANGED, Change, Topic
from mcplumb.revisions import Revision
from mcplumb.rpc.endpoint import Endpoint
from mcplumb.rpc.handler import NO_OPTIONS, CallOptions, Handled, Outcome, Reply
from mcplumb.rpc.outgoing_requests import Response
from mcplumb.rpc.user_callbacks import CallbackQueue
from mcplumb.transports.connection import Connection
from mcplumb.types.base import Params
from mcplumb.types.client_features import CreateMessageRequest, ElicitRequest, InputRequest, ListRootsRequest
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, read_subscription_id
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import (
    AcknowledgedParams,
    CancelledParams,
    LoggingLevel,
    LogMessageParams,
    ProgressParams,
)
from mcplumb.types.payload_decoder import read
from mcplumb.types.revision_adapter import for_revision
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Error,
    ErrorDetail,
    Notification,
    Request,
    RequestId,
)

__all__ = ["ClientSession", "metadata"]

#: Seconds in which the server's last messages may still arrive after it stopped reading.
_LAST_MESSAGES_WAIT = 1.0
#: The number of warnings about one server; later ones are logged at debug level.
_MOST_WARNINGS = 20
_LONGEST_QUOTE = 80

_INPUT_REQUESTS: dict[str, type[InputRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}

_logger = logging.getLogger("mcplumb.client")


class ClientSession:
    """The client's side of one connection. It has no revision until ``agree`` sets one."""

    #: The revision that both sides agreed on.
    revision: Revision

    def __init__(self, connection: Connection, settings: ClientSettings, *, first_id: int = 1) -> None:
        self.connection = connection
        if settings.observer is None:
            self.endpoint = Endpoint(connection, self, settings.limits, peer="server", first_id=first_id)
        else:
            from mcplumb.rpc.observed_endpoint import ObservedEndpoint

            self.endpoint = ObservedEndpoint(
                connection, self, settings.limits, peer="server", first_id=first_id, observer=settings.observer
            )
        self.received = self.endpoint.received
        self.violations = 0
        #: The number of server requests left unanswered because the server does not read.
        self.dropped = 0
        #: The first line that is not a message, and why.
        self.first_fault: str | None = None
        #: Resolves to a sentence that says how the connection ended. The owner then calls ``lose``.
        self.over: asyncio.Future[str] = self.endpoint.loop.create_future()
        #: Called with each change that the server reports, with or without a subscription.
        self.on_change: Callable[[Change], None] | None = None
        self._settings = settings
        self._has_agreed = False
        #: The legacy revision in which the server may send requests; None if it may send none.
        self._legacy: Revision | None = None
        # A placeholder until ``agree`` sets the one of the era.
        self.subscriptions: ModernSubscriptions | LegacySubscriptions = LegacySubscriptions(self, ServerCapabilities())
        self._logs = None if settings.on_log is None else CallbackQueue(settings.on_log, "on_log")
        #: Whether a request of this client has come back.
        self.has_echo = False
        self._warnings = 0
        self._meta: dict[str, Any] = {}
        #: The ``_meta`` of requests that carry no other, encoded once; None if they carry none.
        self.encoded_meta: msgspec.Raw | None = None
        self._last_messages: asyncio.TimerHandle | None = None
        self._notified: dict[str, Callable[[Any], None]] = {
            "notifications/progress": self._progressed,
            "notifications/message": self._logged,
            "notifications/cancelled": self._cancelled,
            "notifications/subscriptions/acknowledged": self._acknowledged,
            "notifications/resources/updated": partial(self._changed, "updates"),
            **{method: partial(self._changed, topic) for topic, method in LIST_CHANGED.items()},
        }

    # --- The handshake ---

    def start(self) -> None:
        """Start reading."""
        self.connection.start(self)

    def expect_legacy(self, revision: Revision) -> None:
        """Accept requests from the server from now on, because ``initialize`` is being sent or was answered."""
        self._legacy = revision

    def agree(self, revision: Revision, capabilities: ServerCapabilities) -> None:
        """Use this revision from now on."""
        self.revision = revision
        self._has_agreed = True
        if revision.is_modern:
            self._legacy = None
            self.subscriptions = ModernSubscriptions(self)
            self._meta = metadata(self._settings, revision)
            self._encode_meta()
        else:
            self.expect_legacy(revision)
            self.subscriptions = LegacySubscriptions(self, capabilities)

    # --- What the client does ---

    @property
    def is_open(self) -> bool:
        """Whether the session can send."""
        return self.endpoint.closed is None

    @property
    def metadata(self) -> dict[str, Any]:
        """The ``_meta`` of requests that carry no other."""
        return self._meta

    def request(
        self, method: str, params: dict[str, Any], options: CallOptions = NO_OPTIONS, start: float | None = None
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        """Send a request and return its result, as raw JSON. Adds the metadata to ``params``."""
        if options.meta is not None or options.on_progress is not None:
            params["_meta"] = {**self._meta, **(options.meta or {})}
        elif self.encoded_meta is not None:
            params["_meta"] = self.encoded_meta
        else:
            params.pop("_meta", None)  # the params may have been sent on another session before
        return self.endpoint.request(method, params, options, start)

    def open(
        self, method: str, params: dict[str, Any], meta: Mapping[str, Any] | None = None
    ) -> tuple[OutgoingRequest, asyncio.Future[Response]]:
        """Send a request that stays open, and return it with the future of its response."""
        return self.endpoint.open(method, {**params, "_meta": self._meta if meta is None else {**self._meta, **meta}})

    async def notify(self, method: str, params: Any = UNSET) -> None:
        """Send a notification as soon as the connection is not clogged."""
        await self.endpoint.notify(Notification(method, params), self._settings.timeout)

    def set_log_level(self, level: LoggingLevel) -> None:
        """Request log messages of this level and above, with each request of a modern connection."""
        self._meta[LOG_LEVEL] = level
        self._encode_meta()

    @property
    def stats(self) -> ClientStats:
        """The counters of this connection."""
        endpoint = self.endpoint
        return ClientStats(
            **msgspec.structs.asdict(self.connection.stats),
            late_answers=endpoint.outgoing.late,
            unknown_answers=endpoint.outgoing.unknown,
            violations=self.violations,
            strays=self.subscriptions.strays,
            dropped=self.dropped + endpoint.dropped + (0 if self._logs is None else self._logs.dropped),
        )

    def lose(self, cause: McplumbError) -> None:
        """Fail every open request with this cause, because the connection is lost."""
        self.endpoint.lose(cause)
        self.endpoint.drop_all()

    async def close(self, within: float) -> None:
        """Cancel open requests, notify the server, and close the connection within this many seconds, or abort it.

        If cancelled, it aborts the connection.
        """
        self.endpoint.drop_all()
        self.endpoint.give_up_all("The client is being closed.")
        self._end("The client was closed.")
        self.lose(Closed("The client was closed."))
        try:
            async with asyncio.timeout(within):
                await self.connection.close()
                if self._logs is not None:
                    await self._logs.finish(None)
                await self.endpoint.wait_for_tasks(within)
        except TimeoutError:
            _logger.debug("The server did not read the last messages in time.")
        finally:
            self.connection.abort()

    # --- What the connection reports ---

    def ended(self, *, clean: bool) -> None:
        """End the session, because the server has closed its output."""
        self._end("The server closed the connection." if clean else "The connection ended in the middle of a message.")

    def hung_up(self) -> None:
        """Do nothing: this is only reported while reading is paused, which a client never does."""

    def broke(self, error: OSError) -> None:
        """Refuse new requests, because the server no longer reads. Messages it has already sent may still arrive."""
        how = f"The server does not read any more: {error.strerror or error}."
        self.endpoint.refuse(Closed(how))
        self._last_messages = self.endpoint.loop.call_later(_LAST_MESSAGES_WAIT, self._end, how)

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """Fail one request that gets no response, although the connection stays open."""
        self.endpoint.failed(request_id, error)

    def _end(self, how: str) -> None:
        if self._last_messages is not None:
            self._last_messages.cancel()
        if not self.over.done():
            self.endpoint.refuse(Closed(how))
            self.over.set_result(how)

    # --- Requests of a legacy server ---

    def admit(self, request: Request) -> Handled | Reply:
        """Admit a request of a legacy server; a modern server must not send any."""
        if self._is_echo(request):
            self.has_echo = True
            self._violate(
                f"it sent the client's request {request.method!a} back, as a program does that echoes its input."
            )
            return Reply(None)  # an error would come back, too, and be taken for the response
        if self._legacy is None:
            self._violate(f"it sent the request {request.method[:_LONGEST_QUOTE]!a}, which gets no answer.")
            return Reply(None)
        if self.connection.is_clogged:
            # Responses would pile up. Reading cannot be paused: the next message may be the response a caller awaits.
            self.dropped += 1
            return Reply(None)
        return Handled(request.id, request, self._begin)

    def _is_echo(self, request: Request) -> bool:
        """Whether it is an open request of this client: a terminal between the two, or a program, echoes its input."""
        method = METHODS.get(request.method)
        if method is None or method.server is not None:  # both may send a ping, and use the same ids
            return False
        return any(each.id == request.id and each.method == request.method for each in self.endpoint.outgoing.all())

    def explain(self, request: Handled, error: Exception) -> Outcome:
        """Return the error for a request that could not begin."""
        if isinstance(error, DecodeError):
            return ErrorDetail(INVALID_PARAMS, str(error))
        return _failed_handler(request.method, error)

    def _begin(self, request: Handled) -> Outcome | Coroutine[Any, Any, Outcome]:
        method, revision = request.method, self._legacy
        if method == "ping":
            return {}
        kind = _INPUT_REQUESTS.get(method)
        if kind is None or revision is None or not METHODS[method].sent_by("server", revision):
            return ErrorDetail(METHOD_NOT_FOUND, f"This client does not know the method {method[:80]!a}.")
        params = read(dict[str, Any], request.request.params)
        asked = read(kind, {"method": method, "params": params}, what="request")
        if not self._settings.input_handlers.can_answer(asked):
            return ErrorDetail(METHOD_NOT_FOUND, f"This client did not declare that it can do {method}.")
        return self._answer(method, asked, revision)

    async def _answer(self, method: str, asked: InputRequest, revision: Revision) -> Outcome:
        """Return the result of the user's handler. Deadlines of requests stand still, because the server waits."""
        self.endpoint.hold_deadlines()
        try:
            try:
                return _encoded(await self._settings.input_handlers.answer(asked, revision))
            except RequestError as error:
                data = UNSET if error.data is None else _encoded(error.data)
                return ErrorDetail(error.code, error.message, data)
        except Exception as error:  # noqa: BLE001 - logged; the server gets an error response
            return _failed_handler(method, error)
        finally:
            self.endpoint.resume_deadlines()

    def idle(self) -> None:
        """Do nothing: a closing client does not wait for the server's requests."""

    # --- Notifications and malformed messages ---

    def notified(self, notification: Notification) -> None:
        """Handle a notification of the server."""
        handle = self._notified.get(notification.method)
        if handle is None:
            return
        try:
            handle(notification.params)
        except DecodeError as error:
            self._violate(f"it sent {notification.method}, and that cannot be understood. {error}")

    def malformed(self, bad: BadMessage) -> Error | None:
        """Log a line that is not a message; return a reply if it looks like a request that the server may send."""
        fault = f"{bad.quoted}. {bad.reason}"
        what = "The connection ended within a line" if bad.is_torn else "A line from the server was ignored"
        self._warn(f"{what}: {fault}")
        if self.first_fault is None:
            self.first_fault = fault
        if bad.is_response or bad.is_torn or self._legacy is None or self.connection.is_clogged:
            return None
        return bad.reply(idless_errors=False)

    def malformed_batch(self) -> None:
        """Record a violation: a batch in a revision without batches."""
        self._violate("it sent a batch, which this revision does not have.")

    def rejected(self, error: ErrorDetail) -> None:
        """Log that the server could not read one of our messages."""
        self._warn(f"The server could not read a message: {error.message[:_LONGEST_QUOTE]!a}.")

    @property
    def has_batches(self) -> bool:
        """Whether the revision in use has batches."""
        return self._has_agreed and self.revision.has_batches

    def _progressed(self, params: Any) -> None:
        self.endpoint.progressed(read(ProgressParams, params, what="params"))

    def _logged(self, params: Any) -> None:
        if self._logs is not None:
            self._logs.put(read(LogMessageParams, params, what="params"))

    def _cancelled(self, params: Any) -> None:
        request_id = read(CancelledParams, params, what="params").request_id
        if self._legacy is not None:
            self.endpoint.cancelled(request_id)
        else:
            self.endpoint.subscription_ended(request_id)

    def _acknowledged(self, params: Any) -> None:
        if isinstance(self.subscriptions, ModernSubscriptions):
            acknowledged = read(AcknowledgedParams, params, what="params")
            self.subscriptions.acknowledged(read_subscription_id(acknowledged.meta), acknowledged.notifications)

    def _changed(self, topic: Topic, params: Any) -> None:
        news = read(_Change, params, what="params")
        change = Change(topic, news.uri)
        if self.on_change is not None:
            self.on_change(change)
        self.subscriptions.changed(read_subscription_id(news.meta), change)

    def _violate(self, what: str) -> None:
        self.violations += 1
        self._warn(f"The server broke a rule: {what}")

    def _warn(self, sentence: str) -> None:
        self._warnings += 1
        _logger.log(logging.WARNING if self._warnings <= _MOST_WARNINGS else logging.DEBUG, "%s", sentence)

    def _encode_meta(self) -> None:
        self.encoded_meta = msgspec.Raw(msgspec.json.encode(self._meta))


class _Change(Params, frozen=True):
    uri: str | None = None


def metadata(settings: ClientSettings, revision: Revision) -> dict[str, Any]:
    """Return the ``_meta`` of a modern client's requests: revision, capabilities, and name and version."""
    meta: dict[str, Any] = {
        PROTOCOL_VERSION: revision.name,
        CLIENT_CAPABILITIES: for_revision(settings.input_handlers.capabilities, revision),
    }
    if settings.client_info is not None:
        meta[CLIENT_INFO] = for_revision(settings.client_info, revision)
    return meta


def _encoded(value: Any) -> msgspec.Raw:
    # Encoded here, so that a value that cannot be encoded fails only its own handler.
    return msgspec.Raw(msgspec.json.encode(value))


def _failed_handler(method: str, error: Exception) -> ErrorDetail:
    _logger.error("The handler for %s raised an exception; the server gets an error.", method, exc_info=error)
    return ErrorDetail(INTERNAL_ERROR, f"The client's handler for {method} failed.")

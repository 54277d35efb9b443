"""An endpoint whose requests are observed: counted, timed or traced.

An `Endpoint` knows nothing of this and pays nothing for it: where somebody observes, a session makes an
`ObservedEndpoint` in its place. It wraps what the two directions have in common. A request of the peer is observed from
its ``begin`` to its outcome, a request of this side from the call to its result, or until a subscription is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from types import CoroutineType
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from mcplumb.errors import HttpError, RemoteError, RequestTimeout
from mcplumb.limits import Limits
from mcplumb.protocol.in_flight import BatchAnswers, OutgoingRequest
from mcplumb.rpc.endpoint import Endpoint
from mcplumb.rpc.handler import NO_OPTIONS, CallOptions, Handled, Outcome, Reply
from mcplumb.rpc.outgoing_requests import Response, failure
from mcplumb.transports.connection import Connection
from mcplumb.types.payload_decoder import UNREADABLE
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import ErrorDetail, Request, RequestId, Result

__all__ = ["Failure", "ObservedEndpoint", "Observer", "Watch", "combined", "failure_of"]

#: The request that is answered when its subscription ends.
_LISTEN = "subscriptions/listen"


class Failure(msgspec.Struct, frozen=True):
    """Why a request failed."""

    #: A word from a small set: the code of an error response, ``tool_error``, ``timeout``, ``cancelled``, or a class.
    kind: str
    #: The sentence of an error response.
    message: str | None = None
    #: The code of an error response.
    code: int | None = None


class Watch(Protocol):
    """Observes one request. Its methods return at once and raise nothing."""

    def enter(self) -> None:
        """Mark the current context, and the tasks that it starts, as working on the request."""

    def leave(self) -> None:
        """Undo `enter`, in the same context."""

    def end(self, failure: Failure | None) -> None:
        """Record the end of the request, which may have failed. Called once."""


class Observer(Protocol):
    """Observes the requests of any number of endpoints. Its methods return at once and raise nothing."""

    def received(self, endpoint: Endpoint, request: Request, admitted: Handled | Reply) -> Watch:
        """Return the watch for a request of the peer, which begins now or was refused."""

    def sending(self, endpoint: Endpoint, method: str, params: Any) -> tuple[Watch, Any]:
        """Return the watch for a request of this side, and the params to send."""

    def refused(self, error: ErrorDetail) -> None:
        """Record that a request of the peer is not accepted."""

    def malformed(self) -> None:
        """Note a line of the peer that is not a message."""

    def ended(self, endpoint: Endpoint, seconds: float) -> None:
        """Record the end of a connection, and how long it was open."""

    def restarted(self) -> None:
        """Record that a server was started, or connected to, again."""


class _IsError(msgspec.Struct, rename="camel"):
    is_error: bool = False


_decode_is_error = msgspec.json.Decoder(_IsError).decode


def failure_of(method: str, outcome: Any) -> Failure | None:
    """Return why a request failed, by its outcome, raw result or exception; None if it did not."""
    if isinstance(outcome, ErrorDetail):
        return Failure(str(outcome.code), outcome.message, outcome.code)
    if isinstance(outcome, BaseException):
        return _failure_of_error(outcome)
    if method != "tools/call":
        return None
    if isinstance(outcome, msgspec.Raw):
        try:
            is_error = _decode_is_error(outcome).is_error
        except UNREADABLE:
            is_error = False
    else:
        is_error = bool(outcome.get("isError") if isinstance(outcome, dict) else getattr(outcome, "is_error", None))
    return Failure("tool_error") if is_error else None


def _failure_of_error(error: BaseException) -> Failure:
    if isinstance(error, RemoteError):
        return Failure(str(error.code), error.message, error.code)
    if isinstance(error, asyncio.CancelledError):
        return Failure("cancelled")
    if isinstance(error, RequestTimeout):
        return Failure("timeout")
    if isinstance(error, HttpError):
        return Failure(str(error.status), str(error))
    return Failure(type(error).__name__, str(error))


class ObservedEndpoint(Endpoint):
    """An endpoint that tells an observer of its requests."""

    __slots__ = ("_began", "_has_ended", "_observer", "handler", "peer")

    def __init__(
        self, connection: Connection, handler: Any, limits: Limits, *, peer: str, observer: Observer, **options: int
    ) -> None:
        super().__init__(connection, handler, limits, peer=peer, **options)
        #: The client's or the server's session.
        self.handler = handler
        #: What the other end is: "server" or "client".
        self.peer = peer
        self._observer = observer
        self._admit = self._observe
        self._began = self.loop.time()
        self._has_ended = False

    # --- Requests of the peer ---

    def _observe(self, request: Request) -> Handled | Reply:
        admitted: Handled | Reply = self.handler.admit(request)
        if request.id in getattr(self.connection, "repeated", ()):
            return admitted  # it was observed where the client has sent it
        if isinstance(admitted, Reply):
            watch = self._observer.received(self, request, admitted)
            watch.end(failure_of(request.method, admitted.outcome))
        else:
            # Not yet observed: it may be queued, and admitted again when there is room.
            admitted.begin = partial(self._begin, admitted.begin)
        return admitted

    def _begin(self, begin: Any, request: Handled) -> Outcome | Coroutine[Any, Any, Outcome] | None:
        watch = self._observer.received(self, request.request, request)
        watch.enter()
        try:
            outcome = begin(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets a response
            outcome = self.handler.explain(request, error)
        finally:
            watch.leave()
        if outcome.__class__ is CoroutineType:
            return self._run(watch, outcome, request)
        watch.end(failure_of(request.method, outcome))
        return outcome

    async def _run(self, watch: Watch, work: Coroutine[Any, Any, Outcome], request: Handled) -> Outcome:
        watch.enter()  # the context belongs to this request alone, so nothing has to be undone
        try:
            outcome = await work
        except BaseException as error:
            if request.state != "running" or not isinstance(error, Exception):
                watch.end(failure_of(request.method, error))
                raise
            outcome = self.handler.explain(request, error)
        watch.end(failure_of(request.method, outcome))
        return outcome

    def _reply(self, request_id: RequestId, outcome: Outcome | None, batch: BatchAnswers | None) -> None:
        if isinstance(outcome, ErrorDetail):
            self._observer.refused(outcome)
        super()._reply(request_id, outcome, batch)

    def _received_bad(self, bad: BadMessage) -> None:
        self._observer.malformed()
        super()._received_bad(bad)

    def drop_all(self) -> None:
        """Stop the work on every request of the peer, because the connection ends."""
        if not self._has_ended:
            self._has_ended = True
            self._observer.ended(self, self.loop.time() - self._began)
        super().drop_all()

    # --- Requests of this side ---

    @property
    def next_id(self) -> int | None:
        """The id of a request that is sent now; None if it has to wait, and others may come first."""
        number = self.outgoing.next_id
        is_free = self._slots is not None and self._slots.free and not self._slots.waiting
        return number if is_free and not self.connection.is_clogged else None

    async def request(
        self,
        method: str,
        params: Any = UNSET,
        options: CallOptions = NO_OPTIONS,
        start: float | None = None,
        about: RequestId | None = None,
    ) -> msgspec.Raw:
        """Send a request and return its result, as raw JSON. See `Endpoint.request`."""
        watch, params = self._observer.sending(self, method, params)
        try:
            result = await super().request(method, params, options, start, about)
        except BaseException as error:
            watch.end(failure_of(method, error))
            raise
        watch.end(failure_of(method, result))
        return result

    def open(self, method: str, params: Any) -> tuple[OutgoingRequest, asyncio.Future[Response]]:
        """Send a request without a deadline. A subscription is observed until it is sent. See `Endpoint.open`."""
        watch, params = self._observer.sending(self, method, params)
        try:
            opened = super().open(method, params)
        except BaseException as error:
            watch.end(failure_of(method, error))
            raise
        if method == _LISTEN:
            watch.end(None)
        else:
            opened[1].add_done_callback(partial(self._end, watch, opened[0]))
        return opened

    def _end(self, watch: Watch, request: OutgoingRequest, answer: asyncio.Future[Response]) -> None:
        response = None if answer.cancelled() else answer.result()
        if isinstance(response, Result):
            watch.end(failure_of(request.method, response.result))
        elif request.state == "cancelled":
            watch.end(failure_of(request.method, asyncio.CancelledError()))
        else:
            watch.end(failure_of(request.method, failure(request, response, request.method, self.peer)))


# --- Several observers ---


def combined(*observers: Observer | None) -> Observer | None:
    """Return one observer that stands for all of these; None if there are none."""
    given = [observer for observer in observers if observer is not None]
    if len(given) < 2:
        return given[0] if given else None
    return _Observers(given)


class _Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def received(self, endpoint: Endpoint, request: Request, admitted: Handled | Reply) -> Watch:
        return _Watches([each.received(endpoint, request, admitted) for each in self._observers])

    def sending(self, endpoint: Endpoint, method: str, params: Any) -> tuple[Watch, Any]:
        watches = []
        for each in self._observers:
            watch, params = each.sending(endpoint, method, params)
            watches.append(watch)
        return _Watches(watches), params

    def refused(self, error: ErrorDetail) -> None:
        for each in self._observers:
            each.refused(error)

    def malformed(self) -> None:
        for each in self._observers:
            each.malformed()

    def ended(self, endpoint: Endpoint, seconds: float) -> None:
        for each in self._observers:
            each.ended(endpoint, seconds)

    def restarted(self) -> None:
        for each in self._observers:
            each.restarted()


class _Watches:
    """The watches of several observers for one request."""

    __slots__ = ("_watches",)

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    def enter(self) -> None:
        for each in self._watches:
            each.enter()

    def leave(self) -> None:
        for each in reversed(self._watches):
            each.leave()

    def end(self, failure: Failure | None) -> None:
        for each in reversed(self._watches):
            each.end(failure)

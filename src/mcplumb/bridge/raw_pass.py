"""Requests that need no task of their own: the server's response ends them, within the delivery of that response.

A request passes as it is if client and server speak the same revision: nothing has to change. A request of a legacy
client passes to a modern server with metadata added to its params, which stay as they are; its result is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import DecodeError
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.protocol.translation import (
    asks_for_input,
    error_for_client,
    members_for_client,
    members_of,
    params_with_meta,
)
from mcplumb.protocol.version_negotiation import Admitted
from mcplumb.rpc.handler import Outcome
from mcplumb.rpc.outgoing_requests import failure
from mcplumb.server.dispatch.running_call import Call
from mcplumb.types.base import Params
from mcplumb.types.payload_decoder import undecoded
from mcplumb.wire.messages import Error, Message, Request, Result

if TYPE_CHECKING:
    from mcplumb.bridge.server_instance import ServerInstance
    from mcplumb.transports.connection import Connection

__all__ = [
    "NO_META",
    "PASS_ON",
    "ForwardedCall",
    "Lane",
    "SessionLane",
    "TranslatedCall",
    "decode_meta",
    "sender_alone",
]

#: Reads the metadata of a request that is passed on, and leaves it as JSON.
decode_meta = msgspec.json.Decoder(undecoded(Params, "meta")).decode
#: What it finds in params that have none, and only in these.
NO_META: msgspec.Raw = decode_meta(b"{}").meta


def sender_alone(connection: Connection) -> Callable[[Message], None]:
    """Return what sends a message on a connection that was made of another one, and that nothing follows."""
    found: Callable[[Message], None] = getattr(connection, "send_alone", connection.send)
    return found


class Lane(msgspec.Struct, frozen=True, eq=False):
    """How a request was admitted that passed as it is, and where to: others with the same metadata pass as well.

    Most clients write the metadata last, and always the same: then comparing the ``ending`` of the params is enough.
    Params that end so have no later ``_meta``, and no string contains this, because its first quote would end it.
    The log of forwarded requests has to be switched on (DEBUG) before a connection has a lane.
    """

    admitted: Admitted
    instance: ServerInstance
    #: The session with the server. The next one, after a restart, may be in another revision.
    back: Any
    methods: frozenset[str]
    ending: bytes
    #: Where it begins, counted from the end of the params.
    start: int

    @classmethod
    def of(cls, call: Call, instance: ServerInstance, methods: frozenset[str]) -> Lane:
        """Return the lane of a request that passes, for requests with these methods."""
        meta = decode_meta(call.request.params).meta
        ending = b',"_meta":%b}' % bytes(meta)
        return cls(call.admitted, instance, instance.supervisor.session, methods, ending, -len(ending))


class SessionLane(msgspec.Struct, frozen=True, eq=False):
    """Where the requests of a legacy session go that have no metadata: they were all admitted with the session."""

    admitted: Admitted
    instance: ServerInstance
    #: The session with the server.
    back: Any
    methods: frozenset[str]
    #: The metadata of the session's requests for a modern server, as JSON; None if they pass as they are.
    meta: bytes | None

    @classmethod
    def of(
        cls, admitted: Admitted, instance: ServerInstance, methods: frozenset[str], declared: dict[str, Any]
    ) -> SessionLane | None:
        """Return the lane for requests with these methods, if there is one between the revisions.

        ``declared`` is what their metadata says about the client, for a modern server.
        """
        front, back, session = admitted.revision, instance.revision, instance.supervisor.session
        if front.is_modern:
            return None
        if front is back:
            return cls(admitted, instance, session, methods, None)
        if not back.is_modern:
            return None
        return cls(admitted, instance, session, methods, msgspec.json.encode({**session.metadata, **declared}))

    def call(self, request: Request, session: Any) -> ForwardedCall:
        """Admit a request of this session with the client."""
        admitted, instance, back, meta = self.admitted, self.instance, self.back, self.meta
        if meta is None:
            return ForwardedCall(
                request.id,
                request,
                PASS_ON,
                session=session,
                admitted=admitted,
                params=None,
                instance=instance,
                back=back,
            )
        return TranslatedCall(
            request.id,
            request,
            TranslatedCall.pass_on,
            session=session,
            admitted=admitted,
            params=None,
            instance=instance,
            back=back,
            meta=meta,
        )


class ForwardedCall(Call, eq=False, gc=True, kw_only=True):
    """A client's request that goes to a server.

    While it is passed on as it is, it is what waits for the response: it gets that in place of a future, and no task
    has to be cancelled.
    """

    #: The instance of the server that it may pass to as it is, if there is one.
    instance: Any = None
    #: The session with the server that it may pass on.
    back: Any = None
    #: What was sent; None while the request is not being passed on.
    sent: OutgoingRequest | None = None

    def pass_on(self) -> Coroutine[Any, Any, Outcome] | None:
        """Send the request as it is, to answer it with the response; forward it in a task if it would have to wait."""
        request = self.request
        back = self.back
        sent = self.sent = back.endpoint.pass_on(request.method, request.params, self, back.send_alone)
        if sent is None:
            return self._forward()
        self.instance.calls[self] = None
        return None

    def _forward(self) -> Coroutine[Any, Any, Outcome]:
        """Forward the request in a task, because it would have to wait."""
        session: Any = self.session
        if self.back.endpoint.closed is not None:
            session.leave_lane()
        forwarding: Coroutine[Any, Any, Outcome] = session.forward(self)
        return forwarding

    def done(self) -> bool:
        """Return whether there was a response, or is none wanted any more."""
        return self.sent is None

    def set_result(self, response: Any) -> None:
        """Answer the client with a response of the server, or look for another way if there is none."""
        sent: Any = self.sent
        self.sent = None  # or the two would hold each other until the garbage collector finds them
        instance = self.instance
        instance.calls.pop(self, None)
        if instance.idle is not None:
            instance.has_ended(self)
        front: Any = self.session
        if front.is_single:
            instance.used_at = front.loop.time()
        kind = response.__class__
        if kind is not Result and kind is not Error:
            lost = failure(sent, response, self.method, "server")
            front.start_for(self, front.send_lost(self, instance, self.back, lost))
            return
        if front.connection.is_clogged:
            outcome = response.result if kind is Result else response.error
            front.start_for(self, front.finish_later(self, outcome))
        else:
            front.endpoint.pass_back(self, response, front.send_alone)

    def stop(self) -> None:
        """Stop the work, and cancel the request at the server, because the client does not want the response."""
        super().stop()
        sent, self.sent = self.sent, None
        if sent is not None:
            self.instance.has_ended(self, is_abandoned=True)
            self.back.endpoint.give_up(sent, "The client does not wait for the answer any more.")


#: Begins a request that passes as it is.
PASS_ON = ForwardedCall.pass_on


class TranslatedCall(ForwardedCall, eq=False, gc=True, kw_only=True):
    """A request of a legacy client that goes to a modern server."""

    #: Its metadata for the server, as JSON.
    meta: bytes

    def pass_on(self) -> Coroutine[Any, Any, Outcome] | None:
        """Send the request with its metadata; forward it in a task if it would have to wait."""
        request, back = self.request, self.back
        written: Any = request.params
        params = params_with_meta(written, self.meta)
        sent = self.sent = back.endpoint.pass_on(request.method, params, self, back.send_alone)
        if sent is None:
            return self._forward()
        self.instance.calls[self] = None
        return None

    def set_result(self, response: Any) -> None:
        """Answer the client with the translated response; ask it first what the server asks with its result."""
        front, back, method = self.admitted.revision, self.back.revision, self.method
        kind = response.__class__
        if kind is Result:
            try:
                members = members_of(response.result)
            except DecodeError:
                self._go_on_with(response.result)  # to an error that names the server
                return
            if asks_for_input(members):
                self._go_on_with(response.result)
                return
            response = Result(response.id, members_for_client(members, method, front=front, back=back))
        elif kind is Error:
            response = Error(response.id, error_for_client(response.error, method, front=front, back=back))
        ForwardedCall.set_result(self, response)

    def _go_on_with(self, result: msgspec.Raw) -> None:
        self.sent = None
        self.instance.has_ended(self)
        front: Any = self.session
        front.start_for(self, front.go_on(self, self.instance, result))

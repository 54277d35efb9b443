"""Requests that pass as they are: client and server speak the same revision, and nothing has to change.

Such a request has no task of its own. The server's response ends it, within the delivery of that response.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.protocol.version_negotiation import Admitted
from mcplumb.rpc.handler import Outcome
from mcplumb.rpc.outgoing_requests import failure
from mcplumb.server.dispatch.running_call import Call
from mcplumb.types.base import Params
from mcplumb.types.payload_decoder import undecoded
from mcplumb.wire.messages import Error, Result

if TYPE_CHECKING:
    from mcplumb.bridge.server_instance import ServerInstance

__all__ = ["ForwardedCall", "Lane", "decode_meta"]

#: Reads the metadata of a request that is passed on, and leaves it as JSON.
decode_meta = msgspec.json.Decoder(undecoded(Params, "meta")).decode


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

    @classmethod
    def of(cls, call: Call, instance: ServerInstance, methods: frozenset[str]) -> Lane:
        """Return the lane of a request that passes, for requests with these methods."""
        meta = decode_meta(call.request.params).meta
        return cls(call.admitted, instance, instance.supervisor.session, methods, b',"_meta":%b}' % bytes(meta))


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
        sent = self.sent = self.back.endpoint.pass_on(request.method, request.params, self)
        if sent is None:
            session: Any = self.session
            if self.back.endpoint.closed is not None:
                session.leave_lane()
            forwarding: Coroutine[Any, Any, Outcome] = session.forward(self)
            return forwarding
        self.instance.calls[self] = None
        return None

    def done(self) -> bool:
        """Return whether there was a response, or is none wanted any more."""
        return self.sent is None

    def set_result(self, response: Any) -> None:
        """Answer the client with a response of the server, or look for another way if there is none."""
        sent: Any = self.sent
        self.sent = None  # or the two would hold each other until the garbage collector finds them
        instance = self.instance
        instance.has_ended(self)
        front: Any = self.session
        if front.is_single:
            instance.used_at = front.loop.time()
        kind = response.__class__
        if kind is Result:
            outcome = response.result
        elif kind is Error:
            outcome = response.error
        else:
            lost = failure(sent, response, self.method, "server")
            front.start_for(self, front.send_lost(self, instance, self.back, lost))
            return
        if front.connection.is_clogged:
            front.start_for(self, front.finish_later(self, outcome))
        else:
            front.endpoint.finish(self, outcome)

    def stop(self) -> None:
        """Stop the work, and cancel the request at the server, because the client does not want the response."""
        super().stop()
        sent, self.sent = self.sent, None
        if sent is not None:
            self.instance.has_ended(self, is_abandoned=True)
            self.back.endpoint.give_up(sent, "The client does not wait for the answer any more.")

"""Requests that pass as they are: client and server speak the same revision, and nothing has to change.

Such a request has no task of its own. The server's response ends it, within the delivery of that response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcplumb.rpc.outgoing_requests import failure
from mcplumb.wire.messages import Error, Result

if TYPE_CHECKING:
    from mcplumb.bridge.bridge_session import BridgeSession
    from mcplumb.bridge.server_instance import BackSession, ServerInstance
    from mcplumb.protocol.in_flight import OutgoingRequest
    from mcplumb.server.dispatch.running_call import Call

__all__ = ["PassedCall"]


class PassedCall:
    """One request that was passed on. It gets the response in place of a future, and is cancelled in place of a task.

    ``request`` is what was sent, on the session ``back``; None until it was.
    """

    __slots__ = ("_call", "_front", "_instance", "_is_done", "back", "request")

    def __init__(self, front: BridgeSession, call: Call, instance: ServerInstance, back: BackSession) -> None:
        self._front = front
        self._call = call
        self._instance = instance
        self._is_done = False
        self.back = back
        self.request: OutgoingRequest | None = None

    def done(self) -> bool:
        """Return whether there was a response, or is none wanted any more."""
        return self._is_done

    def set_result(self, response: Any) -> None:
        """Answer the client with a response of the server, or look for another way if there is none."""
        self._is_done = True
        call, front = self._call, self._front
        call.task = None  # or the two would hold each other until the garbage collector finds them
        self._instance.has_ended(call)
        kind = response.__class__
        if kind is Result:
            outcome = response.result
        elif kind is Error:
            outcome = response.error
        else:
            request: Any = self.request
            lost = failure(request, response, call.method, "server")
            self.request = None
            front.start_for(call, front.send_lost(call, self._instance, self.back, lost))
            return
        self.request = None
        if front.line is not None and self.back.line is not None:
            front.line.follow(self.back.line)
        if front.connection.is_clogged:
            front.start_for(call, front.finish_later(call, outcome))
        else:
            front.endpoint.finish(call, outcome)

    def cancel(self) -> None:
        """Cancel the request at the server, because the client does not want the response any more."""
        if not self._is_done and self.request is not None:
            self._is_done = True
            self._instance.has_ended(self._call, is_abandoned=True)
            self.back.endpoint.give_up(self.request, "The client does not wait for the answer any more.")

"""Calls of modern clients that wait at another replica of the bridge: see `mcplumb.bridge.parked_calls`.

A legacy server asks a question while it works on a call, at one replica. The client sends the call again with the
answer, and that may reach another replica. It sends the request on to the first, which serves it as if it had got it
itself, and sends back every message.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import McplumbError, RequestError, StoreUnavailable
from mcplumb.protocol.principal import Principal
from mcplumb.rpc.handler import Outcome
from mcplumb.server.dispatch.running_call import Call
from mcplumb.transports.connection import Peer
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
    encode_line,
)

if TYPE_CHECKING:
    from mcplumb.server.server import Server
    from mcplumb.stores.replica import Replica
    from mcplumb.transports.connection import Connection

__all__ = ["RemoteCalls"]

#: Seconds between two looks at whether the other replica is still there.
_LOOK_AGAIN = 5.0
_GONE = "The process in which this call waited for an answer has ended: whether it took effect is unknown."


class _Sent(msgspec.Struct, array_like=True, frozen=True):
    """A request for another replica, and its sender."""

    number: int
    line: bytes
    principal: Principal | None


class _Back(msgspec.Struct, array_like=True, frozen=True):
    """A message about such a request, or its answer."""

    number: int
    line: bytes


_encode = msgspec.msgpack.Encoder().encode
_read_sent = msgspec.msgpack.Decoder(_Sent).decode
_read_back = msgspec.msgpack.Decoder(_Back).decode


class RemoteCalls:
    """Sends requests on to other replicas, and serves those that others send. Belongs to the bridge's event loop."""

    def __init__(self, front: Server, replica: Replica) -> None:
        self._front = front
        self._replica = replica
        self._numbers = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Result | Error], Call]] = {}
        #: The connections of requests that other replicas sent, by the replica and its number.
        self._served: dict[tuple[int, int], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        replica.handle("call", self._told_call)
        replica.handle("call-message", self._told_message)
        replica.handle("call-cancelled", self._told_cancelled)

    @property
    def own_number(self) -> int | None:
        """The number of this replica; None while it is not among the replicas."""
        return self._replica.number if self._replica.is_open else None

    async def send(self, owner: int, call: Call) -> Outcome:
        """Return the outcome of a request at the replica that knows its call; raise `RequestError` if that is gone."""
        number, replica = next(self._numbers), self._replica
        answer: asyncio.Future[Result | Error] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer, call
        try:
            if not await replica.tell(owner, "call", _encode(_Sent(number, encode_line(call.request), call.principal))):
                raise RequestError(INVALID_PARAMS, _GONE)
            while not answer.done():
                await asyncio.wait((answer,), timeout=_LOOK_AGAIN)
                if not answer.done() and not await replica.is_alive(owner):
                    raise RequestError(INTERNAL_ERROR, _GONE)
        except StoreUnavailable as error:
            raise RequestError(INTERNAL_ERROR, str(error)) from error
        except asyncio.CancelledError:
            self._start(self._tell(owner, "call-cancelled", str(number).encode()))
            raise
        finally:
            del self._waiting[number]
        response = answer.result()
        return response.error if isinstance(response, Error) else response.result

    def close(self) -> None:
        """End the requests that are served for other replicas."""
        for connection in self._served.values():
            connection.abort()
        for task in self._tasks:
            task.cancel()

    # --- What other replicas say ---

    def _told_call(self, sender: int, body: bytes) -> None:
        self._start(self._serve(sender, _read_sent(body)))

    def _told_message(self, _: int, body: bytes) -> None:
        back = _read_back(body)
        answer, call = self._waiting.get(back.number, (None, None))
        message = decode_line(back.line, True, 1)
        if answer is None or call is None or answer.done():
            return
        if isinstance(message, Result | Error):
            answer.set_result(message)
        elif isinstance(message, Notification):
            call.session.endpoint.notify_about(call, message)

    def _told_cancelled(self, sender: int, body: bytes) -> None:
        connection = self._served.get((sender, int(body)))
        if connection is not None:
            connection.abort()

    async def _serve(self, sender: int, sent: _Sent) -> None:
        """Serve a request of another replica, on a connection of its own."""
        request = decode_line(sent.line, True, 1, Request)
        if not isinstance(request, Request):
            return
        near, far = memory_pair()
        key = sender, sent.number
        self._served[key] = near
        passing = _Passing()
        near.start(passing)
        near.send(request)
        peer = Peer("modern", sent.principal, is_remote=True)
        serving = asyncio.get_running_loop().create_task(self._front.serve_connection(far, peer))
        try:
            while (message := await passing.messages.get()) is not None:
                await self._tell(sender, "call-message", _encode(_Back(sent.number, encode_line(message))))
                if isinstance(message, Result | Error):
                    break
            await near.close()
            await asyncio.wait((serving,))
        finally:
            near.abort()
            serving.cancel()
            del self._served[key]

    async def _tell(self, number: int, kind: str, body: bytes) -> None:
        """Send a message; retry for a while if the store is unreachable."""
        for _ in range(50):
            try:
                await self._replica.tell(number, kind, body)
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            else:
                return

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Passing:
    """The receiver of a connection to the bridge itself: keeps messages until they are sent on."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message | None] = asyncio.Queue()

    def received(self, item: Message | BadMessage | Batch) -> None:
        """Keep a message."""
        if not isinstance(item, BadMessage | Batch):
            self.messages.put_nowait(item)

    def ended(self, *, clean: bool) -> None:
        """End: nothing more will come."""
        self.messages.put_nowait(None)

    def hung_up(self) -> None:
        """Do nothing: ``ended`` follows."""

    def broke(self, error: OSError) -> None:
        """End: nothing more will come."""
        self.messages.put_nowait(None)

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """Answer a request that did not reach the bridge."""
        self.messages.put_nowait(Error(request_id, ErrorDetail(INTERNAL_ERROR, str(error))))

"""The requests that a server sends to a legacy client, and their answers."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from mcplumb.errors import Closed, DecodeError, EncodeError, McplumbError, ProtocolError, RemoteError
from mcplumb.protocol.outgoing import Call as Inquiry
from mcplumb.protocol.outgoing import Outgoing
from mcplumb.server.outbox import Outbox
from mcplumb.types.base import Payload
from mcplumb.types.reading import read
from mcplumb.wire.decoding import BadMessage
from mcplumb.wire.messages import Error, Request, RequestId, Result

__all__ = ["Inquiries"]

_logger = logging.getLogger("mcplumb.server")


class Inquiries:
    """The open questions of one connection. They belong to the thread of the event loop."""

    def __init__(self, outbox: Outbox, loop: asyncio.AbstractEventLoop, *, max_in_flight: int) -> None:
        self._outbox = outbox
        self._loop = loop
        self._outgoing = Outgoing(max_in_flight=max_in_flight)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, method: str, params: Payload | None, about: RequestId | None = None) -> Any:
        """Send a request, about one of the client's, and wait for its result.

        ``RemoteError`` if the client answers with an error, ``Closed`` if it cannot answer, ``ProtocolError`` if it
        answers with what is no answer, ``EncodeError`` if it cannot be written. Cancelled, it tells the client so.
        """
        inquiry = self._outgoing.open(method, self._loop.time(), timeout=None)
        try:
            self._outbox.send(Request(inquiry.id, method, msgspec.UNSET if params is None else params), about)
        except EncodeError:
            self._outgoing.cancel(inquiry)  # and the client, which knows nothing of it, is not told
            raise
        answer = self._waiting[inquiry.id] = self._loop.create_future()
        try:
            return await answer
        finally:
            self._waiting.pop(inquiry.id, None)
            cancellation = self._outgoing.cancel(inquiry)
            if cancellation is not None:
                self._outbox.send(cancellation, about)

    def answer(self, response: Result | Error) -> None:
        """The client sent a response."""
        if isinstance(response, Result):
            self._settle(self._outgoing.answer(response), response.result, None)
        else:
            detail = response.error
            error = RemoteError(detail.code, detail.message, _maybe_read(detail.data))
            self._settle(self._outgoing.answer(response), None, error)

    def break_off(self, bad: BadMessage) -> None:
        """The client sent something that was meant to be a response."""
        sentence = f"The client answered with what is no answer. {bad.reason}"
        self._settle(self._outgoing.break_off(bad.id), None, ProtocolError(sentence))

    def fail(self, request_id: RequestId, error: McplumbError) -> None:
        """A question cannot be answered, for this reason."""
        self._settle(self._outgoing.break_off(request_id), None, ProtocolError(str(error)))

    def close(self) -> None:
        """The client sends nothing any more."""
        closed = Closed("The client sends nothing any more, so it cannot answer.")
        for inquiry in self._outgoing.close(closed):
            self._settle(inquiry, None, closed)

    def _settle(self, inquiry: Inquiry | None, result: Any, error: Exception | None) -> None:
        waiting = None if inquiry is None else self._waiting.pop(inquiry.id, None)
        if waiting is None or waiting.done():
            _logger.debug("A response that nobody waits for was passed over.")
        elif error is None:
            waiting.set_result(result)
        else:
            waiting.set_exception(error)


def _maybe_read(data: Any) -> Any:
    """What an error carries; None if nothing, or if Python cannot hold it."""
    try:
        return None if data is msgspec.UNSET else read(Any, data)
    except DecodeError:
        return None

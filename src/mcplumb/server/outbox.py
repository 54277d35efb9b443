"""What a session sends, and when it stops reading because the client does not."""

from __future__ import annotations

import asyncio
import logging

from mcplumb.errors import EncodeError
from mcplumb.protocol.in_flight import BatchAnswers
from mcplumb.transports.connection import Connection
from mcplumb.wire.messages import INTERNAL_ERROR, Error, ErrorDetail, Message, Request, RequestId, Result, encode_line

__all__ = ["Outbox"]

_logger = logging.getLogger("mcplumb.server")


class Outbox:
    """The sending side of one connection. It belongs to the thread of the event loop."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        #: Why nothing is read at the moment.
        self._pauses: set[str] = set()
        self._unclogging: asyncio.Task[None] | None = None

    def send(self, message: Message, about: RequestId | None = None) -> None:
        """Send a message, which may be about a request of the client's.

        What cannot be written is logged, and a response becomes an error that says so.

        A request raises the `EncodeError`: somebody would wait for its answer.
        """
        try:
            self._connection.send(message, about)
        except EncodeError as error:
            if isinstance(message, Request):
                raise
            self.explain(message, error)

    def explain(self, message: Message, error: EncodeError) -> None:
        """A message could not be written: that is logged, and whoever waits for it is told."""
        _logger.error("%s", error)
        if isinstance(message, Result | Error):
            self._connection.send(_unwritable(message))

    def deliver(self, response: Result | Error, batch: BatchAnswers | None) -> None:
        """Send a response, or keep it until its batch is complete."""
        if batch is None:
            self.send(response)
            return
        try:
            encode_line(response)
        except EncodeError as error:
            _logger.error("%s", error)  # noqa: TRY400 - the sentence says it all
            response = _unwritable(response)
        self._send_batch(batch.answer(response))

    def deliver_now(self, response: Result | Error, batch: BatchAnswers | None) -> None:
        """The same for what nobody had to work for: a client that does not read it is not read, either."""
        self.deliver(response, batch)
        self.pause_while_clogged()

    def pause_while_clogged(self) -> None:
        """Read nothing until the client has caught up, if it has to."""
        if self._connection.is_clogged and self._unclogging is None:
            self.pause("clogged")
            self._unclogging = self._loop.create_task(self._unclog())

    def skip(self, batch: BatchAnswers | None) -> None:
        """One request of a batch gets no answer."""
        if batch is not None:
            self._send_batch(batch.skip())

    def pause(self, reason: str) -> None:
        """Stop reading, until this reason and all others are gone."""
        if not self._pauses:
            self._connection.pause()
        self._pauses.add(reason)

    def unpause(self, reason: str) -> None:
        """This is no reason any more."""
        if reason in self._pauses:
            self._pauses.remove(reason)
            if not self._pauses:
                self._connection.resume()

    def close(self) -> None:
        """Nothing is read any more anyway."""
        if self._unclogging is not None:
            self._unclogging.cancel()

    def _send_batch(self, answers: list[Result | Error] | None) -> None:
        if answers:
            self._connection.send_batch(answers)

    async def _unclog(self) -> None:
        await self._connection.drained()
        self._unclogging = None
        self.unpause("clogged")


def _unwritable(response: Result | Error) -> Error:
    return Error(response.id, ErrorDetail(INTERNAL_ERROR, "The server's answer cannot be written as JSON."))

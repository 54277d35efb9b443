"""Answering the requests of a legacy server: pings, and questions to the user, to a model or about the roots."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from msgspec import UNSET

from mcplumb.client.callbacks import Inputs
from mcplumb.client.calls import Calls
from mcplumb.errors import DecodeError, RequestError
from mcplumb.limits import Limits
from mcplumb.protocol.in_flight import BatchAnswers, Incoming, Work
from mcplumb.revisions import Revision
from mcplumb.transports.connection import Connection
from mcplumb.types.client_features import CreateMessageRequest, ElicitRequest, InputRequest, ListRootsRequest
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Error,
    ErrorDetail,
    Request,
    RequestId,
    Response,
    Result,
)

__all__ = ["Answering"]

_QUESTIONS: dict[str, type[InputRequest]] = {
    "elicitation/create": ElicitRequest,
    "sampling/createMessage": CreateMessageRequest,
    "roots/list": ListRootsRequest,
}

_logger = logging.getLogger("mcplumb.client")


class Answering:
    """The server's open requests on one connection. Each is answered once, or not at all if the server cancels it."""

    def __init__(
        self, connection: Connection, calls: Calls, inputs: Inputs, revision: Revision, limits: Limits
    ) -> None:
        #: Requests that get no answer, because the server does not read what it is sent.
        self.dropped = 0
        self.revision = revision
        self._connection = connection
        self._calls = calls
        self._inputs = inputs
        self._incoming: Incoming[Work] = Incoming(max_in_flight=limits.max_in_flight)
        self._tasks: dict[Work, asyncio.Task[None]] = {}
        self._batches: dict[RequestId, BatchAnswers] = {}

    def asked(self, request: Request, batch: BatchAnswers | None = None) -> None:
        """The server asks something, by itself or in a batch."""
        if self._connection.is_clogged:
            # The answers would pile up. Reading less is no way out: the next message may be what a call waits for.
            self.dropped += 1
            self._send(None, batch)
            return
        if self._incoming.is_full:
            self._send(_error(request, INTERNAL_ERROR, "This client is busy with too many requests already."), batch)
            return
        work = Work(request.id, request)
        refused = self._incoming.accept(work)
        if refused is not None:
            self._send(refused, batch)
            return
        answer = self._answer_at_once(request)
        if isinstance(answer, Result | Error):
            self._send(answer if self._incoming.answer(work) else None, batch)
            return
        if batch is not None:
            self._batches[work.id] = batch
        task = asyncio.get_running_loop().create_task(self._work(work, answer))
        self._tasks[work] = task
        task.add_done_callback(lambda _: self._tasks.pop(work))

    def refuse(self, bad: BadMessage) -> None:
        """The server sent something that is no message: if it has an id, the server hears of it."""
        reply = bad.reply(idless_errors=False)
        if reply is not None and not self._connection.is_clogged:
            self._connection.send(reply)

    def cancelled(self, request_id: Any) -> None:
        """The server does not want an answer any more."""
        work = self._incoming.cancel(request_id)
        if work is not None:
            self._tasks[work].cancel()
            self._send(None, self._batches.pop(work.id, None))

    def stop(self) -> list[asyncio.Task[None]]:
        """Nobody wants any answer: returns the tasks that are being stopped."""
        self._incoming.close()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _answer_at_once(self, request: Request) -> Response | InputRequest:
        """The answer, if it needs no handler; otherwise the question that the handler gets."""
        method = request.method
        if method == "ping":
            return Result(request.id, {})
        kind = _QUESTIONS.get(method)
        if kind is None or not METHODS[method].sent_by("server", self.revision):
            return _error(request, METHOD_NOT_FOUND, f"This client does not know the method {method[:80]!a}.")
        try:
            question = read(kind, {"method": method, "params": read(dict[str, Any], request.params)}, what="request")
        except DecodeError as error:
            return _error(request, INVALID_PARAMS, str(error))
        if not self._inputs.can_answer(question):
            return _error(request, METHOD_NOT_FOUND, f"This client did not declare that it can do {method}.")
        return question

    async def _work(self, work: Work, question: InputRequest) -> None:
        self._calls.hold()
        try:
            answer = await self._ask_handler(work, question)
        except Exception:
            _logger.exception("The handler for %s raised an exception; the server gets an error.", work.method)
            answer = _error(work, INTERNAL_ERROR, f"The client's handler for {work.method} failed.")
        finally:
            self._calls.resume()
        await self._connection.drained()
        self._send(answer if self._incoming.answer(work) else None, self._batches.pop(work.id, None))

    async def _ask_handler(self, work: Work, question: InputRequest) -> Response:
        try:
            return Result(work.id, _written(await self._inputs.answer(question, self.revision)))
        except RequestError as error:
            data = UNSET if error.data is None else _written(error.data)
            return Error(work.id, ErrorDetail(error.code, error.message, data))

    def _send(self, answer: Response | None, batch: BatchAnswers | None) -> None:
        if batch is not None:
            answers = batch.skip() if answer is None else batch.answer(answer)
            if answers:
                self._connection.send_batch(answers)
        elif answer is not None:
            self._connection.send(answer)


def _error(request: Request | Work, code: int, sentence: str) -> Error:
    return Error(request.id, ErrorDetail(code, sentence))


def _written(value: Any) -> msgspec.Raw:
    # At once, so that a value which cannot be written is the failure of its handler and of nothing else.
    return msgspec.Raw(msgspec.json.encode(value))

"""One end of a JSON-RPC connection: the requests in flight in both directions, from the first message to the last.

Clients and servers are handlers on an `Endpoint`. It receives what the connection reads, and it is the only place that
begins and ends requests:

* A request of the peer is admitted by the handler, which returns a record of it. Its ``begin`` returns the outcome, or
  a coroutine that returns it; the endpoint runs that in a task of its own. ``finish`` sends the outcome, or in a
  bridge ``pass_back``. Nothing else answers a request, so nothing is sent for one that has ended.
* A request of this side takes a send slot, gets an id and a deadline, and is awaited as a future. One timer serves all
  deadlines. A response resumes its caller within the delivery of the message, so that what the caller sends next leaves
  with the same write.

Everything here belongs to the thread of the event loop. Nothing waits for the peer: a message that arrives is dealt
with at once, or handed to a task.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from mcplumb._fast.eager_futures import give, give_now
from mcplumb._fast.eager_tasks import TaskStarter
from mcplumb.errors import Closed, EncodeError, McplumbError, RequestTimeout
from mcplumb.limits import Limits
from mcplumb.protocol import in_flight
from mcplumb.protocol.in_flight import (
    ANSWERED,
    OUT_ANSWERED,
    BatchAnswers,
    Batches,
    Incoming,
    Outgoing,
    OutgoingRequest,
)
from mcplumb.rpc.handler import NO_OPTIONS, CallOptions, Handled, Handler, Outcome, Reply
from mcplumb.rpc.outgoing_requests import DeadlineTimer, Deferred, Response, SendSlots, describe, failure
from mcplumb.transports.connection import Connection
from mcplumb.types.meta import PROGRESS_TOKEN
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import ProgressParams
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result, encode_line

if TYPE_CHECKING:
    from mcplumb.rpc.user_callbacks import OnProgress, ProgressCallback

__all__ = ["Endpoint"]

_logger = logging.getLogger("mcplumb.rpc")

#: Stands for the requests of an endpoint that has sent none.
_NOTHING_SENT: dict[int, OutgoingRequest] = {}
_MAY_NEED_INPUT = frozenset(name for name, method in METHODS.items() if method.may_need_input)


class Endpoint:
    """One end of one connection. ``peer`` is what the other end is called in messages: "server" or "client".

    With ``max_queued``, requests beyond ``limits.max_in_flight`` wait in a queue of that length, and reading pauses
    while it is full or the peer does not read. Without, they are refused and reading never pauses: the next message may
    be what a request of this side waits for.
    """

    __slots__ = (
        "_admit", "_batches", "_deadline_holds", "_fresh_context", "_handler", "_is_held_back", "_is_releasing",
        "_limits", "_max_queued", "_new_future", "_on_message", "_outgoing", "_pauses", "_peer", "_progress",
        "_queue", "_sent", "_slots", "_start_task", "_tasks", "_timer", "_unclogging", "closed",
        "connection", "dropped", "first_id", "incoming", "is_open", "loop",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        handler: Handler,
        limits: Limits,
        *,
        peer: str,
        max_queued: int = 0,
        first_id: int = 1,
    ) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()
        #: Whether new requests of the peer are accepted.
        self.is_open = True
        #: Why nothing can be sent any more; None while it can.
        self.closed: McplumbError | None = None
        #: Progress values that callbacks were too slow for.
        self.dropped = 0
        self.first_id = first_id
        self._peer = peer
        self._handler = handler
        self._limits = limits
        # Requests of the peer
        self.incoming: Incoming[Handled] = Incoming(max_in_flight=limits.max_in_flight)
        self._admit = handler.admit
        self._start_task = TaskStarter(self.loop).start
        # Each request begins with the context variables of the task that serves the connection.
        self._fresh_context: Callable[[], Context] = copy_context().copy
        #: The tasks that run, each with its request, if it runs one.
        self._tasks: dict[asyncio.Task[Any], Handled | None] = {}
        self._batches = Batches()
        self._max_queued = max_queued
        #: Requests beyond the cap, in order. A plain dict would step over all that have left to find the first.
        self._queue: OrderedDict[RequestId, tuple[Request, BatchAnswers | None]] | None = None
        self._is_releasing = False
        #: Whether a request needs more than the straight way: others are queued or batched, activity is watched, or the
        #: end has begun.
        self._is_held_back = False
        self._on_message: Callable[[], None] | None = None
        #: Why nothing is read at the moment.
        self._pauses: set[str] = set()
        self._unclogging: asyncio.Task[None] | None = None
        # Requests of this side, made with the first of them.
        self._new_future: Callable[[], Future[Response]] = partial(Future, loop=self.loop)
        self._outgoing: Outgoing | None = None
        self._sent: dict[int, OutgoingRequest] = _NOTHING_SENT
        self._slots: SendSlots | None = None
        self._progress: dict[int, ProgressCallback] | None = None
        self._timer: DeadlineTimer | None = None
        self._deadline_holds = 0

    # --- Messages ---

    def received(self, item: Any, batch: BatchAnswers | None = None) -> None:
        """Handle a `Message`, `BadMessage` or `Batch` of the peer; a message may be part of a batch."""
        kind = type(item)
        if kind is Request:
            needs_care = self._is_held_back
            if needs_care and not self._may_accept(item, batch):
                return
            request: Any = self._admit(item)
            if request.__class__ is Reply:
                self._reply(item.id, request.outcome, batch)
                return
            incoming = self.incoming
            requests = incoming.requests
            if (
                needs_care or len(requests) >= incoming.limit or requests.setdefault(item.id, request) is not request
            ) and not self._accept(request, batch):
                return
            try:
                outcome = request.begin(request)
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer gets a response
                outcome = self._handler.explain(request, error)
            if outcome.__class__ is CoroutineType:
                task = self._start_task(outcome, self._fresh_context())
                if not task.done():
                    request.task = task
                    self._tasks[task] = request
                    task.add_done_callback(self._finish_task)
                    return
                try:
                    outcome = task.result()
                except (Exception, asyncio.CancelledError):  # noqa: BLE001 - whatever it is, the peer gets a response
                    outcome = self._outcome_of(request, task)
            if outcome is not None:
                if self.connection.is_clogged:
                    self._finish_when_drained(request, outcome)
                else:
                    self.finish(request, outcome)
        elif kind is Result:
            if self._on_message is not None:
                self._on_message()
            number = item.id
            answered = self._sent.pop(number, None) if number.__class__ is int else None
            if answered is None:
                self._count_stray(number)
                return
            answered.state = OUT_ANSWERED
            waiter = answered.waiter
            if waiter.__class__ is Future:
                give_now(waiter, item)
            else:
                waiter.set_result(item)
        else:
            self._received_other(item)

    def _received_other(self, item: Notification | Error | BadMessage | Batch) -> None:
        if self._on_message is not None:
            self._on_message()
        if isinstance(item, Notification):
            self._handler.notified(item)
        elif isinstance(item, Error):
            if item.id is UNSET:
                self._handler.rejected(item.error)
            answered = None if self._outgoing is None else self._outgoing.answer(item)
            if answered is not None:
                (give_now if type(answered.waiter) is Future else give)(answered.waiter, item)
        elif isinstance(item, Batch):
            self._received_batch(item)
        else:
            self._received_bad(item)

    def _received_bad(self, bad: BadMessage) -> None:
        reply = self._handler.malformed(bad)
        self._break_off(bad)
        if reply is not None:
            self._deliver(reply, None)
            self.pause_while_clogged()

    def _break_off(self, bad: BadMessage) -> None:
        """End the request that a malformed response answers. One that is torn is lost with the connection instead."""
        if bad.is_response and not bad.is_torn and self._outgoing is not None:
            broken = self._outgoing.break_off(bad.id)
            if broken is not None:
                give(broken.waiter, bad)

    def _received_batch(self, batch: Batch) -> None:
        if not self._handler.has_batches:
            self._handler.malformed_batch()
            return
        replies = {}
        for place, item in enumerate(batch.items):
            if isinstance(item, BadMessage):
                reply = self._handler.malformed(item)
                if reply is not None:
                    replies[place] = reply
        answers = BatchAnswers(len(replies) + sum(isinstance(item, Request) for item in batch.items))
        for place, item in enumerate(batch.items):
            if isinstance(item, Request):
                # Again for each: a cancellation among the messages of the batch may have taken it back.
                self._is_held_back = True
                self.received(item, answers)
            elif place in replies:
                self._deliver(replies[place], answers)
                self.pause_while_clogged()
            elif isinstance(item, BadMessage):
                self._break_off(item)
            else:
                self.received(item)
        self._forget_if_complete(answers)
        self._release()

    # --- Requests of the peer ---

    def _may_accept(self, request: Request, batch: BatchAnswers | None) -> bool:
        """Record the activity of the peer; refuse the request if no new ones are accepted."""
        if self._is_releasing:
            return True
        if self._on_message is not None:
            self._on_message()
        if not self.is_open:
            self._reply(request.id, in_flight.STOPPING, batch)
            return False
        return True

    def _accept(self, request: Handled, batch: BatchAnswers | None) -> bool:
        """Put a request in flight; False if it is queued or refused instead."""
        if self.is_in_flight(request.id):
            self._reply(request.id, in_flight.DUPLICATE_ID, batch)
            return False
        if batch is not None and request.stays_open:
            self._reply(request.id, in_flight.NOT_IN_BATCH, batch)
            return False
        if not request.is_quick and ((self._queue and not self._is_releasing) or self.incoming.is_full):
            self._enqueue(request.request, batch)
            return False
        self.incoming.accept(request)
        if batch is not None:
            self._batches.enter(request.id, batch)
            self._is_held_back = True
        return True

    def is_in_flight(self, request_id: RequestId) -> bool:
        """Whether a request of the peer with this id has not been answered yet."""
        return (
            self.incoming.find(request_id) is not None
            or request_id in self._batches
            or (self._queue is not None and request_id in self._queue)
        )

    def _enqueue(self, request: Request, batch: BatchAnswers | None) -> None:
        """Keep a request until another one has ended, and stop reading when the queue is full."""
        if not self._max_queued:
            self._reply(request.id, in_flight.TOO_MANY_OPEN, batch)
            return
        if self._queue is None:
            self._queue = OrderedDict()
        # A batch has been read as a whole already.
        if len(self._queue) >= self._max_queued and (batch is None or self._is_asking):
            self._reply(request.id, in_flight.TOO_MANY_QUEUED, batch)
            return
        self._queue[request.id] = request, batch
        self._is_held_back = True
        self.pause_if_queue_is_full()

    def _finish_task(self, task: asyncio.Task[Outcome]) -> None:
        """End a request whose coroutine had to wait and has now returned."""
        request: Any = self._tasks.pop(task)
        outcome = self._outcome_of(request, task)
        if outcome is None:
            return
        if self.connection.is_clogged:
            self._finish_when_drained(request, outcome)
        else:
            self.finish(request, outcome)

    def _outcome_of(self, request: Handled, task: asyncio.Task[Outcome]) -> Outcome | None:
        """Return the outcome of a task that has ended; None if the request has ended before, or the process ends."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if request.state != "running":
            return None
        if error is None:
            return task.result()
        if isinstance(error, asyncio.CancelledError):
            error = RuntimeError("The handler was cancelled, and not by this endpoint.")
        return self._handler.explain(request, error) if isinstance(error, Exception) else None

    def _finish_when_drained(self, request: Handled, outcome: Outcome) -> None:
        async def finish() -> None:
            await self.connection.drained()
            self.finish(request, outcome)

        # More requests would only make more responses that wait.
        self.pause_while_clogged()
        request.task = self.loop.create_task(finish())
        self.keep(request.task)

    def finish(self, request: Handled, outcome: Outcome) -> None:
        """Answer a request of the peer with its outcome, unless it has ended already."""
        if request.state == "running":
            if request.has_told:
                request.flush()
            request.state = ANSWERED
            incoming = self.incoming
            del incoming.requests[request.id]
            if incoming.exempt_ids:
                incoming.count_again(request.id)
            response = Error(request.id, outcome) if outcome.__class__ is ErrorDetail else Result(request.id, outcome)
            if not self._is_held_back:
                try:
                    self.connection.send(response)
                except EncodeError as error:
                    self._send_encode_error(response, error)
                return
            self._deliver(response, self._batches.get(request.id))
        if self._is_held_back:
            self._release()

    def pass_back(self, request: Handled, response: Any, send: Callable[[Message], None]) -> None:
        """Answer a request of the peer with the response of another end; until then, it was told nothing about it."""
        number, incoming = request.id, self.incoming
        is_result = response.__class__ is Result
        if self._is_held_back or incoming.exempt_ids or request.state != "running":
            self.finish(request, response.result if is_result else response.error)
            return
        request.state = ANSWERED
        del incoming.requests[number]
        send(Result(number, response.result) if is_result else Error(number, response.error))

    def notify_about(self, request: Handled, notification: Notification) -> None:
        """Send a notification about a request of the peer, unless that has ended."""
        permitted = self.incoming.notify(request, notification)
        if permitted is not None:
            try:
                self.connection.send(permitted, request.id)
            except EncodeError as error:
                _logger.error("%s", error)  # noqa: TRY400 - the sentence says it all

    def cancelled(self, request_id: Any) -> Handled | None:
        """End a request that the peer cancelled, without a response; None if there is nothing to cancel."""
        if self._queue is not None and type(request_id) in (int, str) and request_id in self._queue:
            self._skip(self._queue.pop(request_id)[1])
            self._release()
            return None
        request = self.incoming.cancel(request_id)
        if request is not None:
            request.stop()
            self._skip(self._batches.leave(request.id))
            self._release()
        return request

    def _reply(self, request_id: RequestId, outcome: Outcome | None, batch: BatchAnswers | None) -> None:
        """Answer a request that is not put in flight."""
        if outcome is None:
            self._skip(batch)
            return
        response = Error(request_id, outcome) if type(outcome) is ErrorDetail else Result(request_id, outcome)
        self._deliver(response, batch)
        self.pause_while_clogged()

    def _deliver(self, response: Result | Error, batch: BatchAnswers | None) -> None:
        """Send a response, or keep it until its batch is complete."""
        try:
            if batch is None:
                self.connection.send(response)
                return
            encode_line(response)
        except EncodeError as error:
            if batch is None:
                self._send_encode_error(response, error)
                return
            _logger.error("%s", error)  # noqa: TRY400 - the sentence says it all
            response = Error(response.id, in_flight.NOT_ENCODABLE)
        self._send_batch(batch.answer(response))
        self._forget_if_complete(batch)

    def _send_encode_error(self, response: Result | Error, error: EncodeError) -> None:
        _logger.error("%s", error)
        self.connection.send(Error(response.id, in_flight.NOT_ENCODABLE))

    def _skip(self, batch: BatchAnswers | None) -> None:
        """Leave a request of a batch without a response."""
        if batch is not None:
            self._send_batch(batch.skip())
            self._forget_if_complete(batch)

    def _send_batch(self, answers: Sequence[Result | Error] | None) -> None:
        if answers:
            self.connection.send_batch(answers)

    def _forget_if_complete(self, batch: BatchAnswers) -> None:
        if batch.is_complete:
            self._batches.forget(batch)

    def _release(self) -> None:
        """Begin the queued requests for which there is room again, and notice when nothing is left to do."""
        # A request may end as soon as it has begun, and so come here again while the next one is being looked for.
        if self._is_releasing:
            return
        if self._queue:
            self._is_releasing = True
            try:
                while self._queue and not self.incoming.is_full:
                    self.received(*self._queue.popitem(last=False)[1])
            finally:
                self._is_releasing = False
        if self._queue is not None:
            self.pause_if_queue_is_full()
        self._is_held_back = bool(self._queue or self._batches or not self.is_open or self._on_message is not None)
        if not self.is_open and self.is_idle:
            self._handler.idle()

    @property
    def is_unused(self) -> bool:
        """Whether the endpoint is in its initial state, so that it can serve another connection."""
        is_busy = self.incoming.requests or self._tasks or self._is_held_back or self._pauses or self._unclogging
        return not is_busy and self._slots is None and self.closed is None

    def reuse(self, connection: Connection) -> None:
        """Serve another connection, with the context variables of the caller, if this `is_unused`."""
        self.connection = connection
        self._fresh_context = copy_context().copy

    @property
    def is_idle(self) -> bool:
        """Whether no request of the peer is open or queued."""
        return not (self.incoming or self._queue)

    @property
    def is_in_batch(self) -> bool:
        """Whether requests of a batch have been accepted whose responses have not been sent."""
        return bool(self._batches)

    def stop_accepting(self) -> None:
        """Refuse new requests from now on. The handler's ``idle`` is called when the open ones have ended."""
        self.is_open = False
        self._is_held_back = True

    def watch_activity(self, on_message: Callable[[], None]) -> None:
        """Call this function for each message from now on."""
        self._on_message = on_message
        self._is_held_back = True

    def refuse_all(self) -> list[Handled]:
        """Answer every request with an error, because the server is stopping, and return those that were open."""
        queue, self._queue = self._queue, None
        for request_id, (_, batch) in (queue or {}).items():
            self._deliver(Error(request_id, in_flight.STOPPING), batch)
        refused = list(self.incoming.requests.values())
        for request in refused:
            self.finish(request, in_flight.STOPPING)
            request.stop()
        return refused

    def drop_all(self) -> None:
        """Stop the work on every request of the peer. Nothing is sent for them any more."""
        self._queue = None
        for request in self.incoming.close():
            request.stop()
        if self._unclogging is not None:
            self._unclogging.cancel()
        for task in self._tasks:
            task.cancel()

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task for a coroutine, as for a request: in a fresh context, and with its first step run at once."""
        task = self._start_task(coroutine, self._fresh_context())
        if not task.done():
            self.keep(task)
        return task

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it ends, and cancel it with the connection."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def wait_for_tasks(self, within: float) -> None:
        """Give cancelled tasks this many seconds to end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)

    # --- Backpressure ---

    def pause(self, reason: str) -> None:
        """Stop reading until this reason and all others are gone."""
        if not self._pauses:
            self.connection.pause()
        self._pauses.add(reason)

    def unpause(self, reason: str) -> None:
        """Remove a reason not to read."""
        if reason in self._pauses:
            self._pauses.remove(reason)
            if not self._pauses:
                self.connection.resume()

    def pause_while_clogged(self) -> None:
        """Read nothing until the peer has caught up, if it has to and this end may stop reading."""
        if self.connection.is_clogged and self._unclogging is None and self._max_queued:
            self.pause("clogged")
            self._unclogging = self.loop.create_task(self._unclog())

    async def _unclog(self) -> None:
        await self.connection.drained()
        self._unclogging = None
        self.unpause("clogged")

    @property
    def _is_asking(self) -> bool:
        """Whether a request of this side waits for its response, or for a slot."""
        return self._slots is not None and bool(self._outgoing or self._slots.waiting)

    def pause_if_queue_is_full(self) -> None:
        """Stop reading while no more requests can be queued, and no longer."""
        # An end that waits for responses must go on reading, or it waits for ever.
        if self._queue is None or len(self._queue) < self._max_queued or self._is_asking:
            self.unpause("queue")
        else:
            self.pause("queue")

    # --- Requests of this side ---

    async def request(
        self,
        method: str,
        params: Any = UNSET,
        options: CallOptions = NO_OPTIONS,
        start: float | None = None,
        about: RequestId | None = None,
    ) -> msgspec.Raw:
        """Send a request and return its result, as raw JSON. If cancelled, the request is cancelled at the peer too.

        The timeouts run from ``start``, or from now, and cover the wait for a slot and for a peer that does not read.
        ``about`` is the request of the peer for which this one is sent, if it is sent for one.
        """
        if start is None:
            start = self.loop.time()
        slots = self._slots or self._begin_sending()
        if slots.free and not slots.waiting and not self.connection.is_clogged:
            slots.free -= 1
        else:
            await self._wait_for_slot(slots, method, params, options, start)
        try:
            outgoing: Outgoing = self._outgoing  # type: ignore[assignment] # made together with the slots
            timer: DeadlineTimer = self._timer  # type: ignore[assignment]
            timeout, max_timeout = options.timeout, options.max_timeout
            deadline = latest = None if max_timeout is None else start + max_timeout
            if timeout is not None:
                deadline = start + timeout
                if latest is not None and latest < deadline:
                    deadline = latest
            number = outgoing.next_id
            outgoing.next_id = number + 1
            answer: Future[Response] = self._new_future()
            request = OutgoingRequest(number, method, deadline, timeout, latest, answer)
            self._sent[number] = request
            on_progress = options.on_progress
            if on_progress is not None:
                self._report_progress(request, params, on_progress)
            try:
                self.connection.send(Request(number, method, params), about)
                if deadline is not None and deadline < timer.at:
                    timer.set(deadline)
                response = await answer
                if on_progress is not None and type(response) is Result:
                    await self._finish_progress(request)
            except asyncio.CancelledError:
                self.give_up(request, "The caller does not wait for the answer any more.", about)
                raise
            except EncodeError:
                outgoing.cancel(request)  # without a word to the peer, which knows nothing of it
                raise
            finally:
                if on_progress is not None:
                    self._stop_progress(request)
        finally:
            slots.free += 1
            if slots.waiting:
                slots.wake()
        if response.__class__ is Result:
            result: msgspec.Raw = response.result
            return result
        raise failure(request, response, describe(method, params), self._peer)

    def open(self, method: str, params: Any) -> tuple[OutgoingRequest, asyncio.Future[Response]]:
        """Send a request that has no deadline and takes no slot; `Closed` if nothing can be sent any more."""
        self._check_open(method)
        answer: asyncio.Future[Response] = Deferred(loop=self.loop)
        request = self.outgoing.open(method, self.loop.time(), None, waiter=answer)
        try:
            self.connection.send(Request(request.id, method, params))
        except EncodeError:
            self.outgoing.cancel(request)
            raise
        return request, answer

    def pass_on(self, method: str, params: Any, waiter: Any, send: Callable[[Message], None]) -> OutgoingRequest | None:
        """Send a request now, without a deadline; ``waiter`` gets the response. None if it would have to wait."""
        outgoing, sent = self._outgoing, self._sent
        if outgoing is None or self.closed is not None or self.connection.is_clogged:
            return None
        if len(sent) >= self._limits.max_in_flight:
            return None
        number = outgoing.next_id
        outgoing.next_id = number + 1
        request = sent[number] = OutgoingRequest(number, method, None, None, None, waiter)
        send(Request(number, method, params))
        return request

    async def notify(self, notification: Notification, within: float | None) -> None:
        """Send a notification once the peer reads; `Closed` if nothing can be sent any more."""
        try:
            async with asyncio.timeout(within):
                await self.connection.drained()
        except TimeoutError:
            raise RequestTimeout(
                f"{notification.method} was not sent in time: the {self._peer} does not read."
            ) from None
        self._check_open(notification.method)
        self.connection.send(notification)

    def give_up(self, request: OutgoingRequest, reason: str, about: RequestId | None = None) -> None:
        """Give a request up, and tell the peer, unless it has ended already."""
        notification = self.outgoing.cancel(request, reason)
        give(request.waiter, None)
        if notification is not None:
            self.connection.send(notification, about)

    def forget(self, request: OutgoingRequest) -> None:
        """Give a request up without telling the peer."""
        self.outgoing.cancel(request)
        give(request.waiter, None)

    def give_up_all(self, reason: str) -> None:
        """Give up every open request."""
        for request in self.outgoing.all():
            self.give_up(request, reason)

    def failed(self, request_id: RequestId, cause: McplumbError) -> None:
        """End a request that gets no response, for this reason, although the connection goes on."""
        request = self.outgoing.fail(request_id, cause)
        if request is not None:
            give(request.waiter, None)

    def progressed(self, progress: ProgressParams) -> None:
        """Extend the deadline of the request that made progress, and report it."""
        request = self.outgoing.advance(progress.progress_token, progress.progress, self.loop.time())
        callback = None if request is None or self._progress is None else self._progress.get(request.id)
        if callback is not None:
            callback.put(progress)

    def subscription_ended(self, request_id: Any) -> None:
        """End a subscription of this side that the peer cancelled."""
        request = self.outgoing.end(request_id)
        if request is not None:
            give(request.waiter, None)

    def hold_deadlines(self) -> None:
        """Extend the deadlines of requests that may need input until ``resume_deadlines``: the peer waits for input.

        A legacy server does not say for which request it asks, so it may be any of them. None gets more than its
        ``max_timeout``.
        """
        self._deadline_holds += 1

    def resume_deadlines(self) -> None:
        """Let the deadlines count again from now."""
        self._extend_deadlines()
        self._deadline_holds -= 1

    @property
    def outgoing(self) -> Outgoing:
        """The requests of this side."""
        if self._outgoing is None:
            self._begin_sending()
        outgoing: Outgoing = self._outgoing  # type: ignore[assignment]
        return outgoing

    def refuse(self, cause: McplumbError) -> None:
        """Refuse to send requests from now on, for this reason; the open ones still wait for their responses."""
        if self.closed is None and self._slots is not None:
            self._slots.close()
        self.closed = self.closed or cause

    def lose(self, cause: McplumbError) -> None:
        """End every request of this side, because the connection is gone."""
        self.refuse(cause)
        self.closed = cause
        if self._outgoing is not None:
            for request in self._outgoing.close(cause):
                give(request.waiter, None)
        if self._timer is not None:
            self._timer.stop()

    def _begin_sending(self) -> SendSlots:
        limits = self._limits
        # Subscriptions stay open, and do not take the slots of other requests.
        most = limits.max_in_flight + limits.max_subscriptions
        self._outgoing = Outgoing(max_in_flight=most, first_id=self.first_id)
        self._sent = self._outgoing.requests
        self._timer = DeadlineTimer(self.connection, self.loop, self._expire)
        slots = self._slots = SendSlots(limits.max_in_flight, self.connection, self.loop)
        if self.closed is not None:
            slots.close()
        return slots

    async def _wait_for_slot(
        self, slots: SendSlots, method: str, params: Any, options: CallOptions, start: float
    ) -> None:
        waits = [start + wait for wait in (options.timeout, options.max_timeout) if wait is not None]
        self._check_open(method)
        taken = await slots.take(min(waits, default=None))
        if self.closed is not None:
            if taken:
                slots.free += 1
                slots.wake()
            self._check_open(method)
        if not taken:
            raise RequestTimeout(
                f"{describe(method, params)} was not sent in time: the {self._peer} does not read, or too many "
                "requests are open."
            )

    def _check_open(self, method: str) -> None:
        if self.closed is not None:
            raise Closed(f"{method} was not sent: the connection is closed. {self.closed}") from self.closed

    def _count_stray(self, request_id: Any) -> None:
        if self._outgoing is not None:
            self._outgoing.count_stray(request_id)

    def _report_progress(self, request: OutgoingRequest, params: Any, on_progress: OnProgress) -> None:
        from mcplumb.rpc.user_callbacks import ProgressCallback  # servers need none

        if self._progress is None:
            self._progress = {}
        params["_meta"][PROGRESS_TOKEN] = request.id
        self._progress[request.id] = ProgressCallback(on_progress, self.loop)

    async def _finish_progress(self, request: OutgoingRequest) -> None:
        left = None if request.deadline is None else max(0.0, request.deadline - self.loop.time())
        if self._progress is not None:
            await self._progress[request.id].finish(left)

    def _stop_progress(self, request: OutgoingRequest) -> None:
        if self._progress is not None:
            callback = self._progress.pop(request.id)
            callback.stop()
            self.dropped += callback.dropped

    def _expire(self) -> None:
        if self._deadline_holds:
            self._extend_deadlines()
        for request, notification in self.outgoing.expire(self.loop.time()):
            give(request.waiter, None)
            if notification is not None:
                self.connection.send(notification)
        deadline = self.outgoing.deadline
        if deadline is not None and self._timer is not None:
            self._timer.set(deadline)

    def _extend_deadlines(self) -> None:
        now = self.loop.time()
        for request in self.outgoing.all():
            if request.method in _MAY_NEED_INPUT:
                self.outgoing.extend(request, now)

"""One connection of a server: every message that comes in, and how the connection ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from mcpipe.errors import Closed, DecodeError, EncodeError, McpipeError
from mcpipe.protocol.admission import Admitted, Handshake, WithMeta
from mcpipe.protocol.batches import BatchAnswers
from mcpipe.protocol.incoming import Incoming
from mcpipe.server import forks
from mcpipe.server.call import Call
from mcpipe.server.changes import Changes
from mcpipe.server.ending import LAST_WAIT, Ending, Why
from mcpipe.server.entries import HandlerEntry
from mcpipe.server.execution import Outcome, explained, fail, hear
from mcpipe.server.inquiries import Inquiries
from mcpipe.server.logs import BadLines
from mcpipe.server.methods import CALLS, HANDLED, ONE_SHOT, Method
from mcpipe.server.outbox import Outbox
from mcpipe.server.shared import Shared
from mcpipe.server.tasks import TaskStarter
from mcpipe.transports.connection import ANYONE, Connection, Peer
from mcpipe.types.base import Payload
from mcpipe.types.lifecycle import InitializeResult
from mcpipe.types.log import LoggingLevel
from mcpipe.types.methods import METHODS
from mcpipe.types.progress import CancelledParams
from mcpipe.types.reading import read
from mcpipe.wire.decoding import BadMessage, Batch
from mcpipe.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
)

__all__ = ["Session"]

_logger = logging.getLogger("mcpipe.server")

#: How many notifications handlers of the author's may be busy with before nothing more is read.
_MOST_HEARD = 100

_STOPPING = ErrorDetail(INTERNAL_ERROR, "The server is stopping, and does not finish this request.")
_TOO_MANY = ErrorDetail(INTERNAL_ERROR, "Too many requests wait already. Send this one again when some are answered.")
_NOT_IN_BATCH = ErrorDetail(INVALID_REQUEST, "A subscription cannot be part of a batch, whose answers come together.")
_TWICE = ErrorDetail(INVALID_REQUEST, "The id of this request is that of another one that has not been answered yet.")

_NOT_EASILY_READ = (TypeError, msgspec.DecodeError, UnicodeDecodeError)


class _Asked(NamedTuple):
    """A request that can be begun. Without a method it is answered at once; without params, they are yet to be read."""

    request: Request
    method: Method | None
    params: WithMeta | None
    admitted: Admitted
    batch: BatchAnswers | None


class Session:
    """One connection, from its start to its end. It belongs to the thread of the event loop.

    It never waits for its peer: what comes in is dealt with at once, or handed to a task or a thread.
    """

    def __init__(self, shared: Shared, connection: Connection, peer: Peer = ANYONE) -> None:
        self.shared = shared
        self.connection = connection
        #: Who the client has proved to be.
        self.principal = peer.principal
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.generation = forks.generation
        #: Whether requests are taken in.
        self.is_open = True
        #: From which level on the legacy client wants log messages.
        self.log_level: LoggingLevel = "info"
        self.outbox = Outbox(connection, self.loop)
        self.workers = shared.workers
        self._admission = shared.admission(peer.era)
        self._incoming: Incoming[Call] = Incoming(max_in_flight=shared.limits.max_in_flight)
        self._handlers = shared.catalog.request_handlers
        self.find_tool = shared.catalog.tools.get
        self._batches: dict[RequestId, BatchAnswers] = {}
        #: Requests beyond the limit, in the order they came.
        self._waiting: dict[RequestId, _Asked] = {}
        self._max_waiting = shared.limits.max_waiting
        self._tasks: set[asyncio.Task[None]] = set()
        # A request may end as soon as it has begun, and so ask for the next while that is being looked for.
        self._is_releasing = False
        #: Notifications that a handler of the author's is busy with.
        self._heard = 0
        self._bad_lines = BadLines()
        self._hears = True
        self._has_started = False
        self._has_hung_up = False
        self._finish_within = 0.0
        # Each request begins with the variables of whoever serves the connection, and with no other request's.
        self.fresh_context: Callable[[], Context] = copy_context().copy
        self.start_task = TaskStarter(self.loop).start
        self.ending = Ending(self.loop)

    # What follows is made when it is needed: a connection may be there for one request, which needs none of it.

    @cached_property
    def changes(self) -> Changes:
        """What the client is to be told of."""
        return Changes(self)

    @cached_property
    def _inquiries(self) -> Inquiries:
        return Inquiries(self.outbox, self.loop, max_in_flight=self.shared.limits.max_in_flight)

    @property
    def is_ready_legacy(self) -> bool:
        """Whether a legacy client has opened a session and said that it is ready."""
        return self._admission.state == "ready"

    # From its start to its end

    async def run(self, *, finish_within: float, stop_within: float) -> None:
        """Serve the connection until it ends or is stopped, and finish what was accepted, within these seconds."""
        try:
            self.start(finish_within)
            self.outbox.unpause("waiting")
            why = await self.ending.why
            await self._wind_down(why, stop_within if why == "stopped" else finish_within)
        except BaseException:
            self._drop_all()
            raise
        finally:
            self.connection.abort()

    def start(self, finish_within: float) -> None:
        """Look at the connection without reading yet, so that a client which leaves before that is noticed."""
        if not self._has_started:
            self._has_started = True
            self._finish_within = finish_within
            self.outbox.pause("waiting")
            self.connection.start(self)
            self.connection.pause()

    def stop(self, within: float) -> None:
        """Take no more requests, and end after this many seconds at the latest."""
        self.ending.begin("stopped")
        self.ending.give_up_after(within)

    async def _wind_down(self, why: Why, within: float) -> None:
        self.is_open = False
        self.ending.bound(within)
        if why != "broken":
            if "changes" in vars(self):
                self.changes.end_all()
            if not self._check_finished():
                self.ending.give_up_after(within)
                await self.ending.finished
                self._refuse_all()
        self._drop_all()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WAIT)
        await self.ending.close(self.connection)

    def _check_finished(self) -> bool:
        """Whether nothing is left to do. At the end of the session that is told."""
        is_idle = not (self._incoming or self._waiting or self._heard)
        if is_idle and not self.is_open:
            self.ending.finish()
        return is_idle

    def _refuse_all(self) -> None:
        """Tell the client of each request that will not be finished."""
        for asked in self._waiting.values():
            self.outbox.deliver(Error(asked.request.id, _STOPPING), asked.batch)
        self._waiting.clear()
        for call in self._incoming.open():
            _logger.warning("The server stops, and does not finish %s with the id %r.", call.method, call.id)
            self._end(call, Error(call.id, _STOPPING))
            call.stop()

    def _drop_all(self) -> None:
        """Stop all work. Nothing is sent for it any more."""
        self.ending.cancel()
        self._waiting.clear()
        for call in self._incoming.close():
            call.stop()
        for part in vars(self).keys() & {"_inquiries", "changes"}:
            vars(self)[part].close()
        self.outbox.close()
        for task in self._tasks:
            task.cancel()

    # What comes in

    def received(self, item: Message | BadMessage | Batch, batch: BatchAnswers | None = None) -> None:
        """One message came, by itself or as part of a batch, or a line that is none."""
        if self._has_hung_up:
            self.ending.go_on_within(self._finish_within)
        if type(item) is not Request:
            self._take(item)
            return
        # No method of its own for requests: each goes this way, and there are enough steps on it.
        name = item.method
        method = HANDLED if name in self._handlers else CALLS.get(name)
        params = meta = None
        if method is not None:
            try:
                params = method.decode(item.params)
                meta = params.meta
            except _NOT_EASILY_READ:
                pass  # Whether the request is admitted at all comes first.
        elif name == "initialize" and self._is_in_flight(item.id):
            # Before it can open a session.
            self.outbox.deliver_now(Error(item.id, _TWICE), batch)
            return
        verdict = self._admission.request(item, meta, in_batch=batch is not None)
        if not self.is_open:
            self.outbox.deliver_now(Error(item.id, _STOPPING), batch)
        elif batch is not None and name == "subscriptions/listen":
            self.outbox.deliver_now(Error(item.id, _NOT_IN_BATCH), batch)
        elif type(verdict) is Admitted:
            if method is not None and (self._waiting or self._incoming.is_full):
                self._hold(_Asked(item, method, params, verdict, batch))
            else:
                self._begin(item, method, params, verdict, batch)
        elif isinstance(verdict, Handshake):
            self._open(item, verdict)
        else:
            self.outbox.deliver_now(Error(item.id, verdict.error), batch)

    def ended(self, *, clean: bool) -> None:
        """The client sends no more."""
        if not clean:
            _logger.info("The client's input ended in the middle of a line.")
        self._hears = False
        if "_inquiries" in vars(self):
            self._inquiries.close()
        self.ending.go_on_within(float("inf"))
        self.ending.begin("ended")

    def hung_up(self) -> None:
        """The client is gone, or sends no more: what it sent before is still read, as long as that goes on."""
        self._has_hung_up = True
        self.ending.go_on_within(self._finish_within)

    def broke(self, error: OSError) -> None:
        """The client cannot be reached any more."""
        _logger.debug("The client is gone: %s.", error)
        self.ending.begin("broken")
        self._drop_all()
        self.ending.finish()

    def failed(self, request_id: RequestId, error: McpipeError) -> None:
        """A question of ours does not reach the client."""
        self._inquiries.fail(request_id, error)

    def _take(self, item: Notification | Result | Error | BadMessage | Batch) -> None:
        """Take in what is no request."""
        if isinstance(item, Notification):
            self._notification(item)
        elif isinstance(item, Result | Error):
            self._inquiries.answer(item)
        elif isinstance(item, Batch):
            self._batch(item)
        else:
            self._bad(item)

    def _begin(
        self,
        request: Request,
        method: Method | None,
        params: WithMeta | None,
        admitted: Admitted,
        batch: BatchAnswers | None,
    ) -> None:
        call = Call(request.id, request, self, admitted)
        # What is held back is looked for only if there is any: this is on the way of each request.
        is_held = (self._waiting or self._batches) and self._is_in_flight(request.id)
        refused = Error(request.id, _TWICE) if is_held else self._incoming.accept(call)
        if refused is not None:
            self.outbox.deliver_now(refused, batch)
            return
        if batch is not None:
            self._batches[request.id] = batch
        if method is None:
            self._answer_now(call)
            return
        try:
            method.begin(call, params or read(method.params, request.params, what="params"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            fail(call, None, error)

    def _answer_now(self, call: Call) -> None:
        request, admitted = call.request, call.admitted
        answer = ONE_SHOT.get(request.method)
        outcome: Outcome | None
        if answer is None or not METHODS[request.method].sent_by("client", admitted.revision):
            sentence = f"There is no method {request.method[:80]!r} in protocol revision {admitted.revision}."
            outcome = ErrorDetail(METHOD_NOT_FOUND, sentence)
        else:
            try:
                outcome = answer(self, admitted, request)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
                outcome = explained(error, request.method, is_clients=True)
        if outcome is not None:
            self._end(call, self._response(call, outcome), at_once=True)

    def _open(self, request: Request, opened: Handshake) -> None:
        shared = self.shared
        result = InitializeResult(
            protocol_version=str(opened.revision),
            capabilities=shared.capabilities,
            server_info=shared.identity,
            instructions=shared.instructions,
        )
        self.outbox.deliver_now(Result(request.id, shared.written(result, opened.revision)), None)

    def _is_in_flight(self, request_id: RequestId) -> bool:
        is_held = request_id in self._waiting or request_id in self._batches
        return is_held or self._incoming.find(request_id) is not None

    def _hold(self, asked: _Asked) -> None:
        """Keep a request until another one has ended. Beyond ``max_waiting`` of them, the client has to wait, too."""
        request_id, batch = asked.request.id, asked.batch
        if self._is_in_flight(request_id):
            self.outbox.deliver_now(Error(request_id, _TWICE), batch)
        elif len(self._waiting) < self._max_waiting or (batch is not None and not self._inquiries):
            # A batch has been read as a whole already.
            self._waiting[request_id] = asked
            self._pause_if_full()
        else:
            self.outbox.deliver_now(Error(request_id, _TOO_MANY), batch)

    def _pause_if_full(self) -> None:
        # Whoever waits for the client's answers must go on reading, or wait for ever.
        if len(self._waiting) < self._max_waiting or self._inquiries:
            self.outbox.unpause("full")
        else:
            self.outbox.pause("full")

    def _release(self) -> None:
        """A request has ended: go on with those that wait, or with the end."""
        if self._is_releasing:
            return
        self._is_releasing = True
        while self._waiting and not self._incoming.is_full:
            self._begin(*self._waiting.pop(next(iter(self._waiting))))
        self._is_releasing = False
        self._pause_if_full()
        self._check_finished()

    def _notification(self, notification: Notification) -> None:
        method = notification.method
        if method == "notifications/cancelled":
            self._cancel(notification)
        elif method == "notifications/initialized":
            self._admission.initialized()
        entry = self.shared.catalog.notification_handlers.get(method)
        if entry is not None:
            self._hear(entry, notification)

    def _hear(self, entry: HandlerEntry, notification: Notification) -> None:
        # At once, as requests are: one that comes after the notification must not overtake it.
        task = self.start_task(hear(entry, notification, self.workers), self.fresh_context())
        if task.done():
            return
        self.keep(task)
        self._heard += 1
        if self._heard == _MOST_HEARD:
            self.outbox.pause("notifications")
        task.add_done_callback(self._has_heard)

    def _has_heard(self, _: asyncio.Task[None]) -> None:
        self._heard -= 1
        self.outbox.unpause("notifications")
        self._check_finished()

    def _cancel(self, notification: Notification) -> None:
        try:
            request_id = read(CancelledParams, notification.params, what="params").request_id
        except DecodeError as error:
            _logger.debug("A cancellation was passed over. %s", error)
            return
        if request_id in self._waiting:
            self._skip(self._waiting.pop(request_id).batch)
            self._release()
            return
        work = self._incoming.cancel(request_id)
        if work is not None:
            if work.method == "subscriptions/listen":
                self.changes.cancel(work.id)
            work.stop()
            self._skip(self._batches.pop(work.id, None))
            self._release()

    def _batch(self, batch: Batch) -> None:
        session = self._admission.session
        if session is None or not session.revision.has_batches:
            reason = "The line is a batch, and the protocol revision in use has none: send each message on a line."
            self._bad(BadMessage(reason, INVALID_REQUEST))
            return
        replies = {}
        for place, item in enumerate(batch.items):
            if isinstance(item, BadMessage):
                self._bad_lines.note(item.reason)
                reply = item.reply(idless_errors=session.revision.has_idless_errors)
                if reply is not None:
                    replies[place] = reply
        answers = BatchAnswers(len(replies) + sum(isinstance(item, Request) for item in batch.items))
        for place, item in enumerate(batch.items):
            if isinstance(item, Request):
                self.received(item, answers)
            elif place in replies:
                self.outbox.deliver_now(replies[place], answers)
            elif not isinstance(item, BadMessage):
                self.received(item)
        self._forget_complete(answers)

    def _skip(self, batch: BatchAnswers | None) -> None:
        self.outbox.skip(batch)
        self._forget_complete(batch)

    def _forget_complete(self, batch: BatchAnswers | None) -> None:
        if batch is not None and batch.is_complete:
            # Not before: until its answer is sent, an id is in use.
            self._batches = {key: other for key, other in self._batches.items() if other is not batch}

    def _bad(self, bad: BadMessage) -> None:
        self._bad_lines.note(bad.reason)
        if bad.is_response:
            self._inquiries.break_off(bad)
        session = self._admission.session
        revision = self.shared.revisions[0] if session is None else session.revision
        reply = bad.reply(idless_errors=revision.has_idless_errors)
        if reply is not None:
            self.outbox.deliver_now(reply, None)

    # What goes out

    def finish(self, call: Call, outcome: Outcome) -> None:
        """Answer a call, unless it has ended: now, or as soon as the client keeps up."""
        if call.state != "running":
            return
        if not self.connection.is_clogged:
            if call.has_told:
                call.finish()
            self._end(call, self._response(call, outcome))
        else:
            call.task = self.loop.create_task(self._finish_later(call, outcome))
            self.keep(call.task)
            # More requests would only make more answers that wait.
            self.outbox.pause_while_clogged()

    def notify(self, call: Call, notification: Notification) -> None:
        """Send a notification about a request, unless it has ended."""
        permitted = self._incoming.notify(call, notification)
        if permitted is not None:
            self.outbox.send(permitted, call.id)

    def answer_subscription(self, result: Result) -> None:
        """End a subscription with this result."""
        call = self._incoming.find(result.id)
        if call is not None:
            self._end(call, result)

    async def ask(self, method: str, params: Payload | None, about: RequestId | None = None) -> Any:
        """Send the legacy client a request, for one of its own, and wait for its result."""
        if not self._hears:
            raise Closed(f"{method} was not sent: the client sends nothing any more, so it could not answer.")
        self.outbox.unpause("full")
        try:
            return await self._inquiries.ask(method, params, about)
        finally:
            self._pause_if_full()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task until it ends, and stop it when the connection does."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_later(self, call: Call, outcome: Outcome) -> None:
        await self.connection.drained()
        self.finish(call, outcome)

    def _response(self, call: Call, outcome: Outcome) -> Result | Error:
        if type(outcome) is ErrorDetail:
            return Error(call.id, outcome)
        try:
            return Result(call.id, self.shared.written(outcome, call.admitted.revision))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            return Error(call.id, explained(error, call.method))

    def _end(self, call: Call, response: Result | Error, *, at_once: bool = False) -> None:
        """Answer a request, if it still waits for that."""
        if self._incoming.answer(call, response) is not None:
            if at_once or self._batches:
                batch = self._batches.get(call.id)
                (self.outbox.deliver_now if at_once else self.outbox.deliver)(response, batch)
                self._forget_complete(batch)
            else:
                try:
                    self.connection.send(response)
                except EncodeError as error:
                    self.outbox.explain(response, error)
        if self._waiting or not self.is_open:
            self._release()

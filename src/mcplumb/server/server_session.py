"""One connection of a server, from its first message to its end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from mcplumb._fast.begun import Begun
from mcplumb._fast.eager_tasks import TaskStarter
from mcplumb.errors import Closed, DecodeError, EncodeError, McplumbError
from mcplumb.protocol.admission import Admitted, Handshake, Refused, WithMeta
from mcplumb.protocol.in_flight import BatchAnswers, Batches, Incoming
from mcplumb.rpc import thread_pool
from mcplumb.server.dispatch.call import Call
from mcplumb.server.dispatch.execution import Outcome, explained, fail
from mcplumb.server.dispatch.methods import CALLS, HANDLED, Method, answer_now, greeting
from mcplumb.server.hosting.stderr_logs import BadLines
from mcplumb.server.outbox import Outbox
from mcplumb.server.shared_state import Shared
from mcplumb.transports.connection import ANYONE, Connection, Peer
from mcplumb.types.base import Payload
from mcplumb.types.notification_params import CancelledParams, LoggingLevel
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
)

if TYPE_CHECKING:
    from mcplumb.server.dispatch.client_input import Inquiries
    from mcplumb.server.dispatch.notifications import Changes, Hearing
    from mcplumb.server.dispatch.request_queue import Waiting

__all__ = ["LAST_WAIT", "Ending", "Session", "Why"]

_logger = logging.getLogger("mcplumb.server")


# How and when a session ends: why, until when its work may take, and how long the client has for the last answers.


#: The client's input ended, the client cannot be reached any more, or the server was stopped.
Why: TypeAlias = Literal["ended", "broken", "stopped"]

#: Seconds that stopped work may take to notice, and the client to read the last answers, at the least.
LAST_WAIT = 0.5


class Ending:
    """The end of one session. Its deadline may come nearer, and never goes away."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Why the session ends; done as soon as that is known.
        self.why: asyncio.Future[Why] = loop.create_future()
        #: Done when nothing is left to do, or the time is over.
        self.finished: asyncio.Future[None] = loop.create_future()
        self._deadline = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._closing: asyncio.Timeout | None = None

    def begin(self, why: Why) -> None:
        """The session is to end. The first reason counts."""
        if not self.why.done():
            self.why.set_result(why)

    def bound(self, within: float) -> None:
        """Everything is to have ended in so many seconds, the client's reading included."""
        self._deadline = min(self._deadline, self._loop.time() + within)

    def give_up_after(self, within: float) -> None:
        """What is not finished in so many seconds will not be."""
        self.bound(within)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self.finish)
        if self._closing is not None and not self._closing.expired():
            self._closing.reschedule(self._last_moment())

    def go_on_within(self, seconds: float) -> None:
        """The client sends no more, but not all that it sent has been read: something has to happen in this time.

        To be called again whenever something has, and ended by ``go_on_within(inf)``.
        """
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds == float("inf") else self._loop.call_later(seconds, self.begin, "ended")

    def finish(self) -> None:
        """Nothing is left to do."""
        if not self.finished.done():
            self.finished.set_result(None)

    async def close(self, connection: Connection) -> None:
        """Close the connection, with as much time for the client to read as there is."""
        closing = Begun(connection.close())
        if closing.is_done:
            return
        try:
            async with asyncio.timeout_at(self._last_moment()) as self._closing:
                await closing
        except TimeoutError:
            _logger.warning("The client did not read the last answers in time.")
        finally:
            self._closing = None

    def cancel(self) -> None:
        """The deadline matters no more."""
        self.go_on_within(float("inf"))
        if self._timer is not None:
            self._timer.cancel()

    def _last_moment(self) -> float:
        return max(self._deadline, self._loop.time() + LAST_WAIT)


# One connection of a server: every message that comes in, and how the connection ends.


_STOPPING = ErrorDetail(INTERNAL_ERROR, "The server is stopping, and does not finish this request.")
_TOO_MANY = ErrorDetail(INTERNAL_ERROR, "Too many requests wait already. Send this one again when some are answered.")
_NOT_IN_BATCH = ErrorDetail(INVALID_REQUEST, "A subscription cannot be part of a batch, whose answers come together.")
_TWICE = ErrorDetail(INVALID_REQUEST, "The id of this request is that of another one that has not been answered yet.")

_NOT_EASILY_READ = (TypeError, msgspec.DecodeError, UnicodeDecodeError)


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
        self.generation = thread_pool.generation
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
        self._batches = Batches()
        #: Requests beyond the limit; None until there is one.
        self._waiting: Waiting | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._bad_lines = BadLines()
        self._hears = True
        self._is_held = False
        self._has_hung_up = False
        self._finish_within = 0.0
        # Each request begins with the variables of whoever serves the connection, and with no other request's.
        self.fresh_context: Callable[[], Context] = copy_context().copy
        self.start_task = TaskStarter(self.loop).start
        self.ending = Ending(self.loop)

    # What follows is loaded and made when it is needed: a connection may be there for one request, which needs none.

    @cached_property
    def changes(self) -> Changes:
        """What the client is to be told of."""
        from mcplumb.server.dispatch.notifications import Changes

        return Changes(self)

    @cached_property
    def _inquiries(self) -> Inquiries:
        from mcplumb.server.dispatch.client_input import Inquiries

        return Inquiries(self.outbox, self.loop, max_in_flight=self.shared.limits.max_in_flight)

    @cached_property
    def _hearing(self) -> Hearing:
        from mcplumb.server.dispatch.notifications import Hearing

        return Hearing(self)

    @property
    def is_ready_legacy(self) -> bool:
        """Whether a legacy client has opened a session and said that it is ready."""
        return self._admission.state == "ready"

    # From its start to its end

    async def run(self, *, finish_within: float, stop_within: float) -> None:
        """Serve the connection until it ends or is stopped, and finish what was accepted, within these seconds."""
        try:
            if self._is_held:
                self.outbox.unpause("waiting")
            else:
                self._finish_within = finish_within
                self.connection.start(self)
            why = await self.ending.why
            await self._wind_down(why, stop_within if why == "stopped" else finish_within)
        except BaseException:
            self._drop_all()
            raise
        finally:
            self.connection.abort()

    def start(self, finish_within: float) -> None:
        """Look at the connection without reading yet, so that a client which leaves before that is noticed."""
        self._is_held = True
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
            if not self.check_finished():
                self.ending.give_up_after(within)
                await self.ending.finished
                self._refuse_all()
        self._drop_all()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WAIT)
        await self.ending.close(self.connection)

    def check_finished(self) -> bool:
        """Whether nothing is left to do. At the end of the session that is told."""
        is_idle = not (self._incoming or self._waiting or vars(self).get("_hearing"))
        if is_idle and not self.is_open:
            self.ending.finish()
        return is_idle

    def _refuse_all(self) -> None:
        """Tell the client of each request that will not be finished."""
        if self._waiting is not None:
            for asked in self._waiting.values():
                self.outbox.deliver(Error(asked.request.id, _STOPPING), asked.batch)
            self._waiting.clear()
        for call in self._incoming.open():
            _logger.warning("The server stops, and does not finish %s with the id %r.", call.method, call.id)
            self._end(call, _STOPPING)
            call.stop()

    def _drop_all(self) -> None:
        """Stop all work. Nothing is sent for it any more."""
        self.ending.cancel()
        if self._waiting is not None:
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
        verdict = self._admission.request(item, meta)
        if type(verdict) is not Admitted or not self.is_open:
            self._turn_away(item, verdict, batch)
        elif method is None:
            self._answer_now(item, verdict, batch)
        elif self._waiting or self._incoming.is_full:
            self._hold(item, method, params, verdict, batch)
        else:
            self._begin(item, method, params, verdict, batch)

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

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
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

    def _turn_away(self, request: Request, verdict: Admitted | Handshake | Refused, batch: BatchAnswers | None) -> None:
        """Answer a request that is not worked on: it opens a session, is refused, or comes too late."""
        if not self.is_open:
            self.outbox.deliver_now(Error(request.id, _STOPPING), batch)
        elif isinstance(verdict, Handshake):
            opened = self.shared.written(greeting(self.shared, verdict.revision), verdict.revision)
            self.outbox.deliver_now(Result(request.id, opened), None)
        elif isinstance(verdict, Refused):
            self.outbox.deliver_now(Error(request.id, verdict.error), batch)

    def _answer_now(self, request: Request, admitted: Admitted, batch: BatchAnswers | None) -> None:
        """Answer a request that calls no function of the author's; a subscription stays open."""
        if batch is not None and request.method == "subscriptions/listen":
            self.outbox.deliver_now(Error(request.id, _NOT_IN_BATCH), batch)
            return
        call = Call(request.id, request, self, admitted)
        if self._accept(call, batch):
            outcome = answer_now(call)
            if outcome is not None:
                self._end(call, outcome)
                self.outbox.pause_while_clogged()

    def _begin(
        self,
        request: Request,
        method: Method,
        params: WithMeta | None,
        admitted: Admitted,
        batch: BatchAnswers | None,
    ) -> None:
        call = Call(request.id, request, self, admitted)
        # What is held back is looked for only if there is any: this is on the way of each request.
        is_plain = not (self._waiting or self._batches or batch is not None)
        if not (is_plain and self._incoming.accept(call) is None) and not self._accept(call, batch):
            return
        try:
            method.begin(call, params or read(method.params, request.params, what="params"))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            fail(call, None, error)

    def _accept(self, call: Call, batch: BatchAnswers | None) -> bool:
        """Take a request in, unless its id is that of another one."""
        if self._is_in_flight(call.id):
            self.outbox.deliver_now(Error(call.id, _TWICE), batch)
            return False
        self._incoming.accept(call)
        if batch is not None:
            self._batches.enter(call.id, batch)
        return True

    def exempt(self, request_id: RequestId) -> None:
        """Do not count this request among those that are worked on."""
        self._incoming.exempt(request_id)

    def _is_in_flight(self, request_id: RequestId) -> bool:
        is_held = request_id in self._batches or (self._waiting is not None and request_id in self._waiting)
        return is_held or self._incoming.find(request_id) is not None

    def _hold(
        self, request: Request, method: Method, params: WithMeta | None, admitted: Admitted, batch: BatchAnswers | None
    ) -> None:
        """Keep a request until another one has ended."""
        from mcplumb.server.dispatch.request_queue import Asked, Waiting

        if self._is_in_flight(request.id):
            self.outbox.deliver_now(Error(request.id, _TWICE), batch)
            return
        if self._waiting is None:
            self._waiting = Waiting(self.outbox, self._inquiries, self.shared.limits.max_waiting)
        if not self._waiting.hold(Asked(request, method, params, admitted, batch)):
            self.outbox.deliver_now(Error(request.id, _TOO_MANY), batch)

    def _release(self) -> None:
        """A request has ended: go on with those that wait, or with the end."""
        if self._waiting is not None:
            self._waiting.release(self._incoming, self._begin)
        self.check_finished()

    def _notification(self, notification: Notification) -> None:
        method = notification.method
        if method == "notifications/cancelled":
            self._cancel(notification)
        elif method == "notifications/initialized":
            self._admission.initialized()
        entry = self.shared.catalog.notification_handlers.get(method)
        if entry is not None:
            self._hearing.hear(entry, notification)

    def _cancel(self, notification: Notification) -> None:
        try:
            request_id = read(CancelledParams, notification.params, what="params").request_id
        except DecodeError as error:
            _logger.debug("A cancellation was passed over. %s", error)
            return
        if self._waiting and request_id is not None and request_id in self._waiting:
            self._skip(self._waiting.pop(request_id).batch)
            self._release()
            return
        work = self._incoming.cancel(request_id)
        if work is not None:
            if work.method == "subscriptions/listen":
                self.changes.cancel(work.id)
            work.stop()
            self._skip(self._batches.leave(work.id))
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
            self._batches.forget(batch)

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
        if self.connection.is_clogged and call.is_running:
            call.task = self.loop.create_task(self._finish_later(call, outcome))
            self.keep(call.task)
            # More requests would only make more answers that wait.
            self.outbox.pause_while_clogged()
            return
        if call.has_told and call.is_running:
            call.finish()
        self._end(call, outcome)

    def notify(self, call: Call, notification: Notification) -> None:
        """Send a notification about a request, unless it has ended."""
        permitted = self._incoming.notify(call, notification)
        if permitted is not None:
            self.outbox.send(permitted, call.id)

    def answer_subscription(self, result: Result) -> None:
        """End a subscription with this result."""
        call = self._incoming.find(result.id)
        if call is not None:
            self._end(call, result.result)

    async def ask(self, method: str, params: Payload | None, about: RequestId | None = None) -> Any:
        """Send the legacy client a request, for one of its own, and wait for its result."""
        if not self._hears:
            raise Closed(f"{method} was not sent: the client sends nothing any more, so it could not answer.")
        self.outbox.unpause("full")
        try:
            return await self._inquiries.ask(method, params, about)
        finally:
            if self._waiting is not None:
                self._waiting.pause_if_full()

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold a task until it ends, and stop it when the connection does."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_later(self, call: Call, outcome: Outcome) -> None:
        await self.connection.drained()
        self.finish(call, outcome)

    def _end(self, call: Call, outcome: Outcome) -> None:
        """Answer a request, if it still waits for that."""
        if self._incoming.answer(call):
            response: Result | Error
            try:
                if type(outcome) is ErrorDetail:
                    response = Error(call.id, outcome)
                else:
                    response = Result(call.id, self.shared.written(outcome, call.admitted.revision))
            except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
                response = Error(call.id, explained(error, call.method))
            if self._batches:
                batch = self._batches.get(call.id)
                self.outbox.deliver(response, batch)
                self._forget_complete(batch)
            else:
                try:
                    self.connection.send(response)
                except EncodeError as error:
                    self.outbox.explain(response, error)
        if self._waiting or not self.is_open:
            self._release()

"""One connection of a server, from its first message to its end: the server's handler on an endpoint."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET

from mcplumb.errors import Closed, DecodeError, McplumbError
from mcplumb.rpc.endpoint import Endpoint
from mcplumb.rpc.handler import Outcome
from mcplumb.rpc.thread_pool import forks
from mcplumb.server.dispatch.call import Call
from mcplumb.server.dispatch.failures import outcome_of
from mcplumb.server.dispatch.methods import Dispatcher
from mcplumb.server.hosting.stderr_logs import BadLines
from mcplumb.server.shared_state import SharedState
from mcplumb.transports.connection import ANYONE, Connection, Peer
from mcplumb.types.base import Payload
from mcplumb.types.notification_params import CancelledParams, LoggingLevel
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import INVALID_REQUEST, Error, ErrorDetail, Notification, RequestId

if TYPE_CHECKING:
    from mcplumb.server.dispatch.notifications import NotificationHandlers, ServerSubscriptions

__all__ = ["LAST_WAIT", "Ending", "ServerSession", "Why"]

_logger = logging.getLogger("mcplumb.server")

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
        try:
            async with asyncio.timeout_at(self._last_moment()) as self._closing:
                await connection.close()
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


class ServerSession:
    """The server's side of one connection. It belongs to the thread of the event loop."""

    def __init__(self, shared: SharedState, connection: Connection, peer: Peer = ANYONE) -> None:
        self.shared = shared
        self.connection = connection
        #: Who the client has proved to be.
        self.principal = peer.principal
        self.thread = threading.get_ident()
        #: How many forks had happened when the session began.
        self.forks = len(forks)
        #: From which level on the legacy client wants log messages.
        self.log_level: LoggingLevel = "info"
        self.find_tool = shared.catalog.tools.get
        self.text_meta = shared.text_meta
        self._admission = shared.admission(peer.era)
        self.admit = Dispatcher(self, self._admission).admit
        limits = shared.limits
        self.endpoint = Endpoint(connection, self, limits, peer="client", max_queued=limits.max_waiting)
        self.received = self.endpoint.received
        self.loop = self.endpoint.loop
        self.ending = Ending(self.loop)
        self._bad_lines = BadLines()
        self._is_waiting_for_lifespan = False
        self._finish_within = 0.0

    # Loaded and made when needed: a connection may be there for one request, which needs neither.

    @cached_property
    def subscriptions(self) -> ServerSubscriptions:
        """The client's subscriptions."""
        from mcplumb.server.dispatch.notifications import ServerSubscriptions

        return ServerSubscriptions(self)

    @cached_property
    def _handlers(self) -> NotificationHandlers:
        from mcplumb.server.dispatch.notifications import NotificationHandlers

        return NotificationHandlers(self)

    @property
    def is_ready_legacy(self) -> bool:
        """Whether a legacy client has opened a session and said that it is ready."""
        return self._admission.state == "ready"

    # --- From start to end ---

    async def run(self, *, finish_within: float, stop_within: float) -> None:
        """Serve the connection until it ends or is stopped, and finish what was accepted, within these seconds."""
        try:
            if self._is_waiting_for_lifespan:
                self.endpoint.unpause("lifespan")
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
        """Watch the connection without reading yet, so that a client which leaves before that is noticed."""
        self._is_waiting_for_lifespan = True
        self._finish_within = finish_within
        self.endpoint.pause("lifespan")
        self.connection.start(self)
        self.connection.pause()

    def stop(self, within: float) -> None:
        """Accept no more requests, and end after this many seconds at the latest."""
        self.ending.begin("stopped")
        self.ending.give_up_after(within)

    async def _wind_down(self, why: Why, within: float) -> None:
        self.endpoint.stop_accepting()
        self.ending.bound(within)
        if why != "broken":
            if "subscriptions" in vars(self):
                self.subscriptions.end_all()
            if not self.check_finished():
                self.ending.give_up_after(within)
                await self.ending.finished
                for call in self.endpoint.refuse_all():
                    _logger.warning("The server stops, and does not finish %s with the id %r.", call.method, call.id)
        self._drop_all()
        await self.endpoint.wait_for_tasks(LAST_WAIT)
        await self.ending.close(self.connection)

    def check_finished(self) -> bool:
        """Whether nothing is left to do; if so, and the session is ending, that is noted."""
        is_finished = self.endpoint.is_idle and not vars(self).get("_handlers")
        if is_finished and not self.endpoint.is_open:
            self.ending.finish()
        return is_finished

    def _drop_all(self) -> None:
        """Stop all work. Nothing is sent for it any more."""
        self.ending.cancel()
        self.endpoint.drop_all()
        self.endpoint.lose(Closed(_INPUT_ENDED))
        if "subscriptions" in vars(self):
            self.subscriptions.close()

    # --- What the connection reports ---

    def ended(self, *, clean: bool) -> None:
        """The client sends no more."""
        if not clean:
            _logger.info("The client's input ended in the middle of a line.")
        self.endpoint.lose(Closed(_INPUT_ENDED))
        self.ending.go_on_within(float("inf"))
        self.ending.begin("ended")

    def hung_up(self) -> None:
        """The client is gone or sends no more; what it sent before is still read, as long as that goes on."""
        self.endpoint.watch_activity(self._active)
        self._active()

    def _active(self) -> None:
        self.ending.go_on_within(self._finish_within)

    def broke(self, error: OSError) -> None:
        """The client cannot be reached any more."""
        _logger.debug("The client is gone: %s.", error)
        self.ending.begin("broken")
        self._drop_all()
        self.ending.finish()

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """A request of this side does not reach the client."""
        self.endpoint.failed(request_id, error)

    # --- What the endpoint asks ---

    def explain(self, call: Call, error: Exception) -> Outcome:
        """Return the outcome of a call that could not begin."""
        return outcome_of(call, None, error)

    def notified(self, notification: Notification) -> None:
        """Handle a notification: by the protocol's own rules, and by the author's handler."""
        method = notification.method
        if method == "notifications/cancelled":
            self._cancel(notification)
        elif method == "notifications/initialized":
            self._admission.initialized()
        entry = self.shared.catalog.notification_handlers.get(method)
        if entry is not None:
            self._handlers.handle(entry, notification)

    def _cancel(self, notification: Notification) -> None:
        try:
            request_id = read(CancelledParams, notification.params, what="params").request_id
        except DecodeError as error:
            _logger.debug("A cancellation was ignored. %s", error)
            return
        if "subscriptions" in vars(self) and isinstance(request_id, int | str):
            self.subscriptions.cancel(request_id)
        self.endpoint.cancelled(request_id)

    def malformed(self, bad: BadMessage) -> Error | None:
        """Log a line that is no message, and return the reply that it deserves in the revision in use."""
        self._bad_lines.note(bad.reason)
        opened = self._admission.session
        revision = self.shared.revisions[0] if opened is None else opened.revision
        return bad.reply(idless_errors=revision.has_idless_errors)

    def malformed_batch(self) -> None:
        """Refuse a batch in a revision that has none."""
        reason = "The line is a batch, and the protocol revision in use has none: send each message on a line."
        self.endpoint.received(BadMessage(reason, INVALID_REQUEST))

    def rejected(self, error: ErrorDetail) -> None:
        """Log that the client could not read a message."""
        _logger.debug("The client could not read a message: %.200s", error.message)

    @property
    def has_batches(self) -> bool:
        """Whether the legacy session's revision has batches."""
        opened = self._admission.session
        return opened is not None and opened.revision.has_batches

    def idle(self) -> None:
        """Note that no request is open or queued any more."""
        self.check_finished()

    async def ask(self, method: str, params: Payload | None, about: RequestId) -> Any:
        """Send the legacy client a request, for one of its own, and return its result."""
        endpoint = self.endpoint
        endpoint.unpause("queue")
        try:
            return await endpoint.request(method, UNSET if params is None else params, about=about)
        finally:
            endpoint.pause_if_queue_is_full()


_INPUT_ENDED = "The client sends nothing any more, so it cannot answer."

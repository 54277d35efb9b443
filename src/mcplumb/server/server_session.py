"""The server's session on one connection: its handler on the endpoint, from the first message to the shutdown."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET

from mcplumb.errors import Closed, DecodeError, McplumbError
from mcplumb.rpc.endpoint import Endpoint
from mcplumb.rpc.handler import Outcome, Reply
from mcplumb.rpc.thread_pool import forks
from mcplumb.server.dispatch.failures import outcome_of
from mcplumb.server.dispatch.methods import Dispatcher
from mcplumb.server.dispatch.running_call import Call
from mcplumb.server.server_state import SharedState
from mcplumb.server.stderr_logs import BadLines
from mcplumb.transports.connection import ANYONE, Connection, Peer, StartedAwait
from mcplumb.types.base import Payload
from mcplumb.types.notification_params import CancelledParams, LoggingLevel
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import INVALID_REQUEST, Error, ErrorDetail, Notification, Request, RequestId

if TYPE_CHECKING:
    from mcplumb.server.dispatch.notifications import NotificationHandlers, ServerSubscriptions

__all__ = ["LAST_WAIT", "Ending", "ServerSession", "Why"]

_logger = logging.getLogger("mcplumb.server")

#: Why a session ends: the client closed its output, the client is unreachable, or the server was stopped.
Why: TypeAlias = Literal["ended", "broken", "stopped"]

#: The minimum of seconds for cancelled work to stop, and for the client to read the last responses.
LAST_WAIT = 0.5

_INPUT_ENDED = "The client sends nothing any more, so it cannot answer."


class Ending:
    """The shutdown of one session. Its deadline can only move earlier."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Resolves to the reason as soon as the session has to end.
        self.why: asyncio.Future[Why] = loop.create_future()
        #: Done when no work is left, or the deadline has passed.
        self.finished: asyncio.Future[None] = loop.create_future()
        self._deadline = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._closing: asyncio.Timeout | None = None

    def begin(self, why: Why) -> None:
        """Start the shutdown. Only the first reason counts."""
        if not self.why.done():
            self.why.set_result(why)

    def bound(self, within: float) -> None:
        """Limit the whole shutdown to this many seconds, including the time for the client to read."""
        self._deadline = min(self._deadline, self._loop.time() + within)

    def give_up_after(self, within: float) -> None:
        """Abandon work that is not finished within this many seconds."""
        self.bound(within)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._deadline, self.finish)
        if self._closing is not None and not self._closing.expired():
            self._closing.reschedule(self._last_moment())

    def go_on_within(self, seconds: float) -> None:
        """End the session unless this is called again within this many seconds; ``inf`` turns the timer off.

        For a client that has closed its output while its last messages are not all read: each message renews it.
        """
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds == float("inf") else self._loop.call_later(seconds, self.begin, "ended")

    def finish(self) -> None:
        """Report that no work is left."""
        if not self.finished.done():
            self.finished.set_result(None)

    async def close(self, connection: Connection) -> None:
        """Close the connection, and leave the client the remaining time to read."""
        closing = StartedAwait(connection.close())
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
        """Cancel all timers."""
        self.go_on_within(float("inf"))
        if self._timer is not None:
            self._timer.cancel()

    def _last_moment(self) -> float:
        return max(self._deadline, self._loop.time() + LAST_WAIT)


class ServerSession:
    """The server's side of one connection. It belongs to the event loop's thread."""

    def __init__(self, shared: SharedState, connection: Connection, peer: Peer = ANYONE) -> None:
        self.shared = shared
        self.connection = connection
        #: Who the client is, if it is authenticated. Over HTTP, the calls of a legacy session have principals of their
        #: own, with the same identity.
        self.principal = peer.principal
        #: Whether scopes count: not for a client on this machine that owns the server.
        self.has_scopes = peer.is_remote or peer.principal is not None
        self.thread = threading.get_ident()
        #: The number of forks when the session began; a difference means that this is a forked child.
        self.forks = len(forks)
        #: The minimum level of log messages for a legacy client.
        self.log_level: LoggingLevel = "info"
        self.find_tool = shared.catalog.tools.get
        self.text_meta = shared.text_meta
        self._admission = shared.admission(peer.era)
        self.admit = self._dispatcher()
        if self.has_scopes:
            from mcplumb.server.dispatch.scope_check import ScopeCheck

            self.admit = ScopeCheck(self, self.admit).admit
        limits = shared.limits
        # Of a session that several processes serve, each has ids of its own.
        first_id: int = getattr(connection, "first_request_id", 1) if peer.era == "legacy" else 1
        if shared.observer is None:
            self.endpoint = Endpoint(
                connection, self, limits, peer="client", max_queued=limits.max_waiting, first_id=first_id
            )
        else:
            from mcplumb.rpc.observed_endpoint import ObservedEndpoint

            self.endpoint = ObservedEndpoint(
                connection,
                self,
                limits,
                peer="client",
                max_queued=limits.max_waiting,
                first_id=first_id,
                observer=shared.observer,
            )
        self.received = self.endpoint.received
        self.loop = self.endpoint.loop
        self.ending = Ending(self.loop)
        self._bad_lines = BadLines()
        self._is_waiting_for_lifespan = False
        self._finish_within = 0.0
        #: Whether a `Context` refers to it, which the author's function may keep when its call has ended.
        self.is_kept = False
        #: Is called when the session is stopped, while nothing runs it.
        self.on_stop: Callable[[], None] | None = None

    def _dispatcher(self) -> Callable[[Request], Call | Reply]:
        """Return the function that admits requests."""
        return Dispatcher(self, self._admission).admit

    # Created when needed: over HTTP a connection carries one request, which needs neither.

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
        """Whether a legacy client has initialized its session and sent ``notifications/initialized``."""
        return self._admission.state == "ready"

    # --- Start and shutdown ---

    async def run(self, *, finish_within: float, stop_within: float) -> None:
        """Serve the connection until it ends or is stopped, then finish accepted requests within these seconds."""
        try:
            if self._is_waiting_for_lifespan:
                self.endpoint.unpause("lifespan")
            else:
                self._finish_within = finish_within
                self.connection.start(self)
            why = await self.ending.why
            await self._wind_down(why, stop_within if why == "stopped" else finish_within)
        except BaseException:
            self.drop()
            raise
        finally:
            self.connection.abort()

    def start(self, finish_within: float) -> None:
        """Watch the connection without reading from it, so that a client that disconnects meanwhile is noticed."""
        self._is_waiting_for_lifespan = True
        self._finish_within = finish_within
        self.endpoint.pause("lifespan")
        self.connection.start(self)
        self.connection.pause()

    def stop(self, within: float) -> None:
        """Stop accepting requests, and end within this many seconds."""
        self.ending.begin("stopped")
        self.ending.give_up_after(within)
        if self.on_stop is not None:
            self.on_stop()

    @property
    def is_unused(self) -> bool:
        """Whether nothing is left of the requests that it has served."""
        names = vars(self)
        return self.endpoint.is_unused and not (
            "subscriptions" in names or "_handlers" in names or self.ending.why.done()
        )

    def reuse(self, connection: Connection) -> None:
        """Serve another connection of a client that is not authenticated, if this `is_unused` and not kept."""
        self.connection = connection
        self.endpoint.reuse(connection)

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
        self.drop()
        await self.endpoint.wait_for_tasks(LAST_WAIT)
        await self.ending.close(self.connection)

    def check_finished(self) -> bool:
        """Return whether no work is left, and if so complete a shutdown in progress."""
        is_finished = self.endpoint.is_idle and not vars(self).get("_handlers")
        if is_finished and not self.endpoint.is_open:
            self.ending.finish()
        return is_finished

    def drop(self) -> None:
        """Cancel all work. Nothing more is sent for it."""
        self.ending.cancel()
        self.endpoint.drop_all()
        if self.endpoint.closed is None:
            self.endpoint.lose(Closed(_INPUT_ENDED))
        if "subscriptions" in vars(self):
            self.subscriptions.close()

    # --- Reports of the connection ---

    def ended(self, *, clean: bool) -> None:
        """Start the shutdown, because the client has closed its output."""
        if not clean:
            _logger.info("The client's input ended in the middle of a line.")
        self.endpoint.lose(Closed(_INPUT_ENDED))
        self.ending.go_on_within(float("inf"))
        self.ending.begin("ended")

    def hung_up(self) -> None:
        """Bound the time for reading the rest, because the client has closed its output or is gone."""
        self.endpoint.watch_activity(self._active)
        self._active()

    def _active(self) -> None:
        self.ending.go_on_within(self._finish_within)

    def broke(self, error: OSError) -> None:
        """Drop all work, because the client is unreachable."""
        _logger.debug("The client is gone: %s.", error)
        self.ending.begin("broken")
        self.drop()
        self.ending.finish()

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """Fail a request of this side that did not reach the client."""
        self.endpoint.failed(request_id, error)

    # --- Calls from the endpoint ---

    def start_over(self) -> None:
        """Forget what a legacy client has set, because a session begins: it may be another client's."""
        self.log_level = "info"
        if "subscriptions" in vars(self):
            self.subscriptions.unsubscribe_all()

    def explain(self, call: Call, error: Exception) -> Outcome:
        """Return the outcome of a call that could not be started."""
        return outcome_of(call, None, error)

    def notified(self, notification: Notification) -> None:
        """Handle a notification by the rules of the protocol, and with the author's handler if there is one."""
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
        """Log a line that is not a message, and return the reply for it in the revision in use."""
        self._bad_lines.note(bad.reason)
        opened = self._admission.session
        revision = self.shared.revisions[0] if opened is None else opened.revision
        return bad.reply(idless_errors=revision.has_idless_errors)

    def malformed_batch(self) -> None:
        """Refuse a batch in a revision without batches."""
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
        """Complete a shutdown in progress, because no request is open or queued any more."""
        self.check_finished()

    async def ask(self, method: str, params: Payload | None, about: RequestId) -> Any:
        """Send a legacy client a request that belongs to one of its own, and return the result."""
        endpoint = self.endpoint
        endpoint.unpause("queue")
        try:
            return await endpoint.request(method, UNSET if params is None else params, about=about)
        finally:
            endpoint.pause_if_queue_is_full()

"""`Call`: one admitted request, with its progress, its log messages and its cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError as ThreadCancelled
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any, TypeVar

from mcplumb.errors import RequestCancelled
from mcplumb.protocol.version_negotiation import Admitted
from mcplumb.rpc.handler import Handled
from mcplumb.types.base import Number
from mcplumb.types.notification_params import LOGGING_LEVELS, LoggingLevel, LogMessageParams, ProgressParams
from mcplumb.types.revision_adapter import for_revision
from mcplumb.wire.messages import Notification

if TYPE_CHECKING:
    from mcplumb.protocol.principal import Principal
    from mcplumb.protocol.progress import ProgressMeter
    from mcplumb.server.dispatch.client_input import Answers
    from mcplumb.server.server_session import ServerSession

__all__ = ["Call"]

T = TypeVar("T")

#: Seconds between attempts to send progress to a client that does not keep up.
_RETRY = 0.1

_ENDED = "The request was cancelled or has ended, and nothing more is sent for it."

_SEVERITY: dict[str, int] = {level: number for number, level in enumerate(LOGGING_LEVELS)}

#: The ``waits`` of calls without a context.
_NO_WAITS: Any = frozenset()


class Call(Handled, eq=False, gc=True, kw_only=True):
    """One admitted request. It belongs to the event loop's thread, except where a method says otherwise."""

    session: ServerSession
    admitted: Admitted
    #: The decoded params; None if decoding failed, in which case ``begin`` decodes them again for the error.
    params: Any
    #: The client's input for a modern call; None until there is an answer or a question.
    answers: Answers | None = None
    #: Who sent the request, if that is authenticated.
    principal: Principal | None = None
    #: Also read by other threads.
    is_cancelled: bool = False
    #: The futures that other threads wait for, until the tasks that resolve them run, and then these tasks. `Context`
    #: replaces the empty default.
    waits: set[ThreadFuture[Any] | asyncio.Task[Any]] = _NO_WAITS
    _meter: ProgressMeter | None = None
    _timer: asyncio.TimerHandle | None = None

    def progress(self, progress: Number, total: Number | None, message: str | None) -> None:
        """Send progress to the client, if it asked for it. It may be held back and merged with later progress."""
        token = self.admitted.progress_token
        if token is None or not self.is_running:
            return
        meter = self._meter
        if meter is None:
            from mcplumb.protocol.progress import ProgressMeter  # most calls report none

            meter = self._meter = ProgressMeter()
            self.has_told = True
        meter.hold(ProgressParams(token, progress, total, message))
        self._release(meter)

    def log(self, level: LoggingLevel, data: Any, logger: str | None) -> None:
        """Send the client a log message, if it wants this level."""
        if self.wants_log(level):
            self._notify("notifications/message", LogMessageParams(level, data, logger=logger))

    def wants_log(self, level: LoggingLevel) -> bool:
        """Return whether the client wants log messages of this level. May be called from any thread."""
        least = self.admitted.log_level if self.admitted.revision.is_modern else self.session.log_level
        return least is not None and self.is_running and _SEVERITY[level] >= _SEVERITY[least]

    def release_stream(self, retry: float) -> None:
        """Release the HTTP stream of this request, where the transport has one per request."""
        release = getattr(self.session.connection, "release", None)
        if release is not None and self.is_running:
            release(self.id, retry)

    def headers(self) -> dict[str, str] | None:
        """Return the headers of the HTTP request; None where the transport has none. May be called from any thread."""
        headers_of = getattr(self.session.connection, "headers_of", None)
        found: dict[str, str] | None = None if headers_of is None else headers_of(self.id)
        return found

    def encoded(self, outcome: Any) -> Any:
        """Return a result in the form of the client's revision."""
        return self.session.shared.written(outcome, self.admitted.revision)

    def flush(self) -> None:
        """Send held-back progress before the response is sent."""
        if self._timer is not None:
            self._timer.cancel()
        self._stop_waits()
        if self._meter is not None and (last := self._meter.last()) is not None:
            self._notify("notifications/progress", last)

    def stop(self) -> None:
        """Cancel the work as far as possible, because no response is wanted any more."""
        self.is_cancelled = True
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()
        self._stop_waits()

    def wait_in_thread(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and return its result. To be called from another thread only.

        Raises ``RequestCancelled`` if the request ends first.
        """
        outcome: ThreadFuture[T] = ThreadFuture()
        # Registered before the check: if the request ends after the check, `_stop_waits` cancels it.
        self.has_told = True
        self.waits.add(outcome)
        try:
            self.check_running()
            self.session.loop.call_soon_threadsafe(self._begin_wait, coroutine, outcome)
            return outcome.result()
        except (RuntimeError, ThreadCancelled) as error:
            if isinstance(error, RuntimeError) and not self.session.loop.is_closed():
                raise
            raise RequestCancelled(_ENDED) from None
        finally:
            self.waits.discard(outcome)
            coroutine.close()

    def check_running(self) -> None:
        """Raise ``RequestCancelled`` if the request has ended."""
        if not self.is_running:
            raise RequestCancelled(_ENDED)

    def is_own_thread(self) -> bool:
        """Return whether the caller is in the event loop's thread."""
        return threading.get_ident() == self.session.thread

    def _begin_wait(self, coroutine: Coroutine[Any, Any, T], outcome: ThreadFuture[T]) -> None:
        if outcome.cancelled():
            return
        # From here on the task resolves the future: its coroutine must not be closed before it has ended.
        self.waits.discard(outcome)
        task = self.session.loop.create_task(coroutine)
        self.waits.add(task)
        task.add_done_callback(self.waits.discard)

        def hand_over(done: asyncio.Task[T]) -> None:
            if done.cancelled():
                outcome.cancel()
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        task.add_done_callback(hand_over)

    def _stop_waits(self) -> None:
        for wait in tuple(self.waits):
            wait.cancel()

    def _notify(self, method: str, params: ProgressParams | LogMessageParams) -> None:
        self.session.endpoint.notify_about(self, Notification(method, for_revision(params, self.admitted.revision)))

    def _release(self, meter: ProgressMeter) -> None:
        """Send held-back progress if it is due and the client keeps up; otherwise set a timer."""
        if self._timer is not None:
            return
        now = self.session.loop.time()
        if self.session.connection.is_clogged:
            self._timer = self.session.loop.call_at(now + _RETRY, self._try_again, meter)
            return
        due = meter.due(now)
        if due is not None:
            self._notify("notifications/progress", due)
        if meter.deadline is not None:
            self._timer = self.session.loop.call_at(meter.deadline, self._try_again, meter)

    def _try_again(self, meter: ProgressMeter) -> None:
        self._timer = None
        self._release(meter)

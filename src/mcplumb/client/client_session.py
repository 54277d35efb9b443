"""One connection to one server: what comes in finds its way, and what goes out is said as the revision has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from mcplumb.client.answering import Answering
from mcplumb.client.callbacks import Courier, OnProgress
from mcplumb.client.calls import Calls, Outcome
from mcplumb.client.options import ClientStats, Settings
from mcplumb.client.subscriptions import LegacySubscriptions, ModernSubscriptions
from mcplumb.errors import Closed, DecodeError, McplumbError
from mcplumb.protocol.in_flight import BatchAnswers, Call
from mcplumb.protocol.subscription_state import LIST_CHANGED, Change, Topic
from mcplumb.revisions import Revision
from mcplumb.transports.connection import Connection
from mcplumb.types.base import Params
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, read_subscription_id
from mcplumb.types.notification_params import (
    AcknowledgedParams,
    CancelledParams,
    LoggingLevel,
    LogMessageParams,
    ProgressParams,
)
from mcplumb.types.payload_decoder import read
from mcplumb.types.revision_adapter import for_revision
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, Message, Notification, Request, RequestId, Result

__all__ = ["Session", "metadata"]

#: Seconds in which the server's last words may still come after it stopped reading ours.
_LAST_WORDS = 1.0
#: A server that goes on making mistakes after so many warnings fills no log with them.
_MOST_WARNINGS = 20
_LONGEST_QUOTE = 80

_logger = logging.getLogger("mcplumb.client")


class Session:
    """The receiver of one connection. It speaks no revision until ``agree`` says which one."""

    def __init__(self, connection: Connection, settings: Settings, *, first_id: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.connection = connection
        self.calls = Calls(connection, settings.limits, first_id=first_id)
        self.violations = 0
        #: The first line that was no message, and what was wrong with it.
        self.first_fault: str | None = None
        #: Done when nothing more will come: says how the connection ended. Its owner then calls ``lose``.
        self.over: asyncio.Future[str] = loop.create_future()
        #: Is called with each change that the server tells of, whether anybody listens or not.
        self.on_change: Callable[[Change], None] | None = None
        self._loop = loop
        self._settings = settings
        self._revision: Revision | None = None
        self._answering: Answering | None = None
        # Until there is an agreement, nobody listens.
        self.subscriptions: ModernSubscriptions | LegacySubscriptions = LegacySubscriptions(self, ServerCapabilities())
        self._logs = None if settings.on_log is None else Courier(settings.on_log, "on_log")
        self._warnings = 0
        #: What every request carries, and the same written once for the requests that carry nothing else.
        self._meta: dict[str, Any] = {}
        self._written_meta: msgspec.Raw | None = None
        self._last_words: asyncio.TimerHandle | None = None
        self._notified: dict[str, Callable[[Any], None]] = {
            "notifications/progress": self._progressed,
            "notifications/message": self._logged,
            "notifications/cancelled": self._cancelled,
            "notifications/subscriptions/acknowledged": self._acknowledged,
            "notifications/resources/updated": partial(self._changed, "updates"),
            **{method: partial(self._changed, topic) for topic, method in LIST_CHANGED.items()},
        }

    # What the opening does

    def start(self) -> None:
        """Begin to read."""
        self.connection.start(self)

    def expect_legacy(self, revision: Revision) -> None:
        """``initialize`` is being sent, or was answered: a server that knows it may send requests from now on."""
        if self._answering is None:
            settings = self._settings
            self._answering = Answering(self.connection, self.calls, settings.inputs, revision, settings.limits)
        self._answering.revision = revision

    def agree(self, revision: Revision, capabilities: ServerCapabilities) -> None:
        """From now on both sides speak this revision."""
        self._revision = revision
        if revision.is_modern:
            self._answering = None
            self.subscriptions = ModernSubscriptions(self)
            self._meta = metadata(self._settings, revision)
            self._write_meta()
        else:
            self.expect_legacy(revision)
            self.subscriptions = LegacySubscriptions(self, capabilities)

    # What the client does

    def request(
        self,
        method: str,
        params: dict[str, Any],
        timeout: float | None,
        max_timeout: float | None,
        on_progress: OnProgress | None = None,
        meta: dict[str, Any] | None = None,
        start: float | None = None,
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        """Send a request and wait for its result. ``params`` is given away: it gets the metadata."""
        if meta is None and on_progress is None:
            if self._written_meta is not None:
                params["_meta"] = self._written_meta
            else:
                params.pop("_meta", None)  # it may have been sent on another session before
        else:
            params["_meta"] = {**self._meta, **(meta or {})}
        return self.calls.request(method, params, timeout, max_timeout, on_progress, start)

    def open(self, method: str, params: dict[str, Any]) -> tuple[Call, asyncio.Future[Outcome]]:
        """Send a request that stays open."""
        return self.calls.open(method, {**params, "_meta": self._meta})

    async def notify(self, method: str, params: Any = UNSET) -> None:
        """Tell the server something, as soon as it reads."""
        await self.calls.notify(Notification(method, params), self._settings.timeout)

    def set_log_level(self, level: LoggingLevel) -> None:
        """Ask for log messages from this level on, with each request of a modern connection."""
        self._meta[LOG_LEVEL] = level
        self._write_meta()

    @property
    def stats(self) -> ClientStats:
        """What was seen so far."""
        couriers = (self.calls, self._logs, self._answering)
        return ClientStats(
            **msgspec.structs.asdict(self.connection.stats),
            late_answers=self.calls.late,
            unknown_answers=self.calls.unknown,
            violations=self.violations,
            strays=self.subscriptions.strays,
            dropped=sum(courier.dropped for courier in couriers if courier is not None),
        )

    def lose(self, cause: McplumbError) -> None:
        """The connection is gone, for this reason: everyone who waits for an answer is told."""
        self.calls.lose(cause)
        if self._answering is not None:
            self._answering.stop()

    async def close(self, within: float) -> None:
        """Give up what is open, tell the server, and close the connection: in so many seconds, or by force.

        Cancelled, it closes by force.
        """
        tasks = [] if self._answering is None else self._answering.stop()
        self.calls.give_up_all("The client is being closed.")
        self._end("The client was closed.")
        self.lose(Closed("The client was closed."))
        try:
            async with asyncio.timeout(within):
                await self.connection.close()
                if self._logs is not None:
                    await self._logs.finish(None)
                if tasks:
                    await asyncio.wait(tasks)
        except TimeoutError:
            _logger.debug("The server did not read the last messages in time.")
        finally:
            self.connection.abort()

    # What the connection does

    def received(self, item: Message | BadMessage | Batch) -> None:
        """One message came, or a line that is none."""
        if isinstance(item, Result):
            self.calls.answered(item)
        elif isinstance(item, Notification):
            self._hear(item)
        elif isinstance(item, Error):
            if item.id is UNSET:
                self._warn(f"The server could not read a message: {item.error.message[:_LONGEST_QUOTE]!a}.")
            self.calls.answered(item)
        elif isinstance(item, Request):
            self._asked(item, None)
        elif isinstance(item, Batch):
            self._receive_batch(item)
        else:
            self._pass_over(item)

    def ended(self, *, clean: bool) -> None:
        """The server sends no more."""
        self._end("The server closed the connection." if clean else "The connection ended in the middle of a message.")

    def hung_up(self) -> None:
        """Cannot happen: reading is never paused."""

    def broke(self, error: OSError) -> None:
        """The server reads no more. What it has written before that may still come."""
        how = f"The server does not read any more: {error.strerror or error}."
        self.calls.refuse(Closed(how))
        self._last_words = self._loop.call_later(_LAST_WORDS, self._end, how)

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        """A request gets no answer, although the connection goes on."""
        self.calls.failed(request_id, error)

    def _end(self, how: str) -> None:
        if self._last_words is not None:
            self._last_words.cancel()
        if not self.over.done():
            self.calls.refuse(Closed(how))
            self.over.set_result(how)

    def _asked(self, request: Request, batch: BatchAnswers | None) -> None:
        if self._answering is not None:
            self._answering.asked(request, batch)
        else:
            self._violate(f"it sent the request {request.method[:_LONGEST_QUOTE]!a}, which gets no answer.")

    def _receive_batch(self, batch: Batch) -> None:
        if self._revision is None or not self._revision.has_batches:
            self._violate("it sent a batch, which this revision does not have.")
            return
        answers = BatchAnswers(sum(isinstance(item, Request) for item in batch.items))
        for item in batch.items:
            if isinstance(item, Request):
                self._asked(item, answers)
            else:
                self.received(item)

    def _pass_over(self, bad: BadMessage) -> None:
        fault = f"{bad.quoted}. {bad.reason}"
        self._warn(f"A line from the server was passed over: {fault}")
        if self.first_fault is None:
            self.first_fault = fault
        if bad.is_response:
            self.calls.broken(bad)
        elif self._answering is not None:
            self._answering.refuse(bad)

    def _hear(self, notification: Notification) -> None:
        heard = self._notified.get(notification.method)
        if heard is None:
            return
        try:
            heard(notification.params)
        except DecodeError as error:
            self._violate(f"it sent {notification.method}, and that cannot be understood. {error}")

    def _progressed(self, params: Any) -> None:
        self.calls.progressed(read(ProgressParams, params, what="params"))

    def _logged(self, params: Any) -> None:
        if self._logs is not None:
            self._logs.bring(read(LogMessageParams, params, what="params"))

    def _cancelled(self, params: Any) -> None:
        request_id = read(CancelledParams, params, what="params").request_id
        if self._answering is not None:
            self._answering.cancelled(request_id)
        else:
            self.calls.ended(request_id)

    def _acknowledged(self, params: Any) -> None:
        if isinstance(self.subscriptions, ModernSubscriptions):
            acknowledged = read(AcknowledgedParams, params, what="params")
            self.subscriptions.acknowledged(read_subscription_id(acknowledged.meta), acknowledged.notifications)

    def _changed(self, topic: Topic, params: Any) -> None:
        news = read(_Change, params, what="params")
        change = Change(topic, news.uri)
        if self.on_change is not None:
            self.on_change(change)
        self.subscriptions.changed(read_subscription_id(news.meta), change)

    def _violate(self, what: str) -> None:
        self.violations += 1
        self._warn(f"The server broke a rule: {what}")

    def _warn(self, sentence: str) -> None:
        self._warnings += 1
        _logger.log(logging.WARNING if self._warnings <= _MOST_WARNINGS else logging.DEBUG, "%s", sentence)

    def _write_meta(self) -> None:
        self._written_meta = msgspec.Raw(msgspec.json.encode(self._meta))


class _Change(Params, frozen=True):
    uri: str | None = None


def metadata(settings: Settings, revision: Revision) -> dict[str, Any]:
    """What every request of a modern client says: the revision, what the client can do, and who it is."""
    meta: dict[str, Any] = {
        PROTOCOL_VERSION: revision.name,
        CLIENT_CAPABILITIES: for_revision(settings.inputs.capabilities, revision),
    }
    if settings.client_info is not None:
        meta[CLIENT_INFO] = for_revision(settings.client_info, revision)
    return meta

"""The supervisor: keeps one server connected, restarts it after a crash, and stops it in the end."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
from typing import TYPE_CHECKING

import msgspec

from mcplumb.client.client_session import ClientSession
from mcplumb.client.client_settings import ClientSettings, ClientStats
from mcplumb.client.handshake import EraMemory, Handshake, HandshakeResult
from mcplumb.client.known_tools import ToolRegistry
from mcplumb.client.link import MAX_AUTHORIZED, Link
from mcplumb.client.result_cache import ResultCache
from mcplumb.client.subscriptions import SubscriptionRenewal
from mcplumb.errors import Closed, ConnectError, HttpError, McplumbError, RequestTimeout, ServerDown, UsageError
from mcplumb.protocol.restart import BreakerOpen, GiveUp, Restarter, RestartPolicy
from mcplumb.protocol.subscription_state import Change
from mcplumb.types.notification_params import LoggingLevel

if TYPE_CHECKING:
    from mcplumb.protocol.oauth.tokens import Grant
    from mcplumb.recording.recorded_trace import RecordedTrace

__all__ = ["Supervisor"]

_logger = logging.getLogger("mcplumb.client")

_NO_RESTART = RestartPolicy(enabled=False)
#: Seconds for the server to read the last messages before its input is closed.
_LAST_WRITE_WAIT = 0.5
#: The number of characters of a server's name and version that are logged.
_LONGEST_NAME = 80


class Supervisor:
    """The connections of one server, one after the other. They belong to a task; all methods only signal that task."""

    #: The latest session, and the result of its handshake.
    session: ClientSession
    handshake_result: HandshakeResult

    def __init__(
        self, link: Link, settings: ClientSettings, memory: EraMemory, recorded: RecordedTrace | None = None
    ) -> None:
        self.settings = settings
        #: Records the messages of the link, if they are recorded.
        self._recorded = recorded
        self.link = link
        self.subscriptions = SubscriptionRenewal(self)
        #: None if caching is turned off.
        self.cache = ResultCache() if settings.cache else None
        self.registry = ToolRegistry()
        #: The log level to set on each new connection; None leaves it to the server.
        self._log_level: LoggingLevel | None = None
        self._memory = memory
        self._restarter = Restarter(settings.restart if link.can_restart else _NO_RESTART)
        self._handshake: Handshake | None = None
        self._task: asyncio.Task[None] | None = None
        #: The process that opened it.
        self._own_pid = 0
        #: Set and replaced with each change of state, to wake the tasks that wait for one.
        self._state_changed = asyncio.Event()
        self._is_open = False
        #: Whether there will be no other session.
        self.has_ended = False
        #: Why the last connection was lost or could not be opened.
        self._cause: Exception | None = None
        #: The counters of all earlier sessions.
        self._past: ClientStats | None = None

    async def open(self) -> None:
        """Connect and agree on a revision. If this fails or is cancelled, everything is closed again."""
        if self._task is not None:
            raise UsageError("This was connected already: call connect again.")
        if self.has_ended:
            raise Closed("This was closed before it was opened: call connect again.")
        self._own_pid = os.getpid()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_retrieve_exception)
        try:
            await self._wait_until_opened()
        except asyncio.CancelledError:
            await self.close()
            raise
        if not self._is_open:
            await self.close()
            raise self._cause or Closed("The client was closed.")

    async def close(self) -> None:
        """Close the connection and stop the server. May be called from any task, at any time, repeatedly.

        Takes half a second longer than the stop ladder at most. If cancelled, it goes on in the background. In a fork
        it does nothing: the connection belongs to the parent process.
        """
        task = self._task
        if task is not None and os.getpid() != self._own_pid:
            return
        if task is not None and not task.done():
            self.check_loop()
        if not self.has_ended:
            self.has_ended = True
            if task is not None:
                task.cancel()
                self._announce_change()  # the task cannot do it if it is cancelled before its first step
        if task is not None and not task.done():
            await asyncio.wait((task,))

    async def ready(self, what: str, within: float | None) -> ClientSession:
        """Wait for an open session and return it; raise if none is expected. ``what`` names the request in errors."""
        self.check_loop()
        try:
            async with asyncio.timeout(within):
                while not self.session.is_open:
                    self._check_alive(what)
                    await self._state_changed.wait()
        except TimeoutError:
            raise RequestTimeout(
                f"{what} was not sent in time: the server is being {self._restart_verb}. {self._cause or ''}".strip()
            ) from self._cause
        return self.session

    def check_loop(self) -> None:
        """Raise `UsageError` outside the process and the event loop that the client belongs to."""
        if os.getpid() != self._own_pid:
            raise UsageError("A client belongs to the process in which it was connected: connect again in this one.")
        if self._task is None or self._task.get_loop() is not asyncio.get_running_loop():
            raise UsageError("A client belongs to the event loop in which it was connected: connect again in this one.")

    def set_log_level(self, level: LoggingLevel) -> None:
        """Set the log level of this session and of later ones."""
        self._log_level = level
        if self.handshake_result.revision.is_modern:
            self.session.set_log_level(level)

    @property
    def stats(self) -> ClientStats:
        """The counters of all connections so far."""
        stats = self.session.stats
        stats = msgspec.structs.replace(stats, dropped=stats.dropped + self.subscriptions.dropped)
        return stats if self._past is None else stats + self._past

    @property
    def reopens(self) -> bool:
        """Whether lost connections and subscriptions are opened again."""
        return self.link.can_restart and self.settings.restart.enabled

    @property
    def grant(self) -> Grant | None:
        """What authorizes requests at present."""
        authorizer = self.link.authorizer
        return None if authorizer is None else authorizer.grant

    @property
    def _restart_verb(self) -> str:
        return "connected to again" if self.link.process is None else "started again"

    async def _wait_until_opened(self) -> None:
        while not self._is_open and not self.has_ended:
            await self._state_changed.wait()

    def _announce_change(self) -> None:
        self._state_changed.set()
        self._state_changed = asyncio.Event()

    def _check_alive(self, what: str) -> None:
        """Raise if no session is expected."""
        if self.has_ended:
            why = "the client was closed." if self._cause is None else f"the server is gone. {self._cause}"
            raise Closed(f"{what} was not sent: {why}") from self._cause
        if self._restarter.fails_fast:
            failures, cause = self._restarter.failures, self._cause
            due = self._restarter.deadline
            wait = max(0.0, due - asyncio.get_running_loop().time()) if due is not None else 0.0
            raise ServerDown(
                f"{what} was not sent: the server has failed {failures} times in a row. It is {self._restart_verb} in "
                f"{wait:.0f} s, and until then every call fails at once. The last time: {cause}"
            ) from cause

    # --- The task ---

    async def _run(self) -> None:
        try:
            try:
                await self._stay_connected()
            except asyncio.CancelledError:
                pass  # by ``close``, or at the end of the event loop
            except Exception as error:  # noqa: BLE001 - raised from `open`, or from the next request
                self._cause = error
            if os.getpid() == self._own_pid:
                await self._shut_down()
        except BaseException:
            # Cancelled a second time, or the event loop was discarded.
            self.link.kill()
            raise

    async def _stay_connected(self) -> None:
        """Connect, and reconnect after each loss. Raises the reason when it gives up."""
        await self._connect()
        self._is_open = True
        self._announce_change()
        while True:
            how = await asyncio.shield(self.session.over)
            cause: McplumbError | None = await self.link.explain("call", how)
            while cause is not None:
                await self._wait_before_restart(cause)
                cause = await self._reconnect()

    async def _wait_before_restart(self, cause: McplumbError) -> None:
        """Fail the session with this cause, and wait until the next restart is due; raise the cause if none is."""
        loop = asyncio.get_running_loop()
        self._cause = cause
        if self._recorded is not None:
            self._recorded.recorder.event("disconnected", reason=str(cause))
        decision = self._restarter.exited(loop.time(), random.random())  # noqa: S311 - chance, not secrets
        self.session.lose(cause)
        if isinstance(decision, GiveUp):
            raise cause
        self._announce_change()
        # Stop what is left of the old server now, not when the next one starts.
        await self.link.close()
        due = decision.until if isinstance(decision, BreakerOpen) else decision.at
        wait = max(0.0, due - loop.time())
        _logger.info("The server is %s in %.1f s. %s", self._restart_verb, wait, cause)
        await asyncio.sleep(wait)

    async def _reconnect(self) -> McplumbError | None:
        """Connect again and restore the subscriptions; return the error if that fails."""
        past = self.session.stats if self._past is None else self._past + self.session.stats
        try:
            await self._connect()
        except McplumbError as error:
            return error
        self._past = past
        self._cause = None
        self._clear_caches()
        self.subscriptions.renew(self.session)
        self._announce_change()
        if self.settings.observer is not None:
            self.settings.observer.restarted()
        return None

    async def _connect(self) -> None:
        key = self.link.key
        self._restarter.started(asyncio.get_running_loop().time())
        self._handshake = self._new_handshake()
        start = asyncio.get_running_loop().time()
        for attempt in itertools.count(1):
            try:
                self.session, self.handshake_result = await self._handshake.run()
                break
            except ConnectError as error:
                refusal = error.__cause__
                if attempt > MAX_AUTHORIZED or not isinstance(refusal, HttpError):
                    raise
                try:
                    is_authorized = await self.authorize(refusal)
                except HttpError as advised:
                    raise ConnectError(str(error).replace(str(refusal), str(advised))) from advised
                if not is_authorized:
                    raise
            self._handshake = self._new_handshake()
        self.session.on_change = self._changed
        self._restarter.connected(asyncio.get_running_loop().time())
        self._log_connected(asyncio.get_running_loop().time() - start)
        if key is not None and len({revision.era for revision in self.settings.revisions}) > 1:
            # With only one era allowed, the outcome says nothing about the server.
            self._memory.learn(key, self.handshake_result.revision.era)
        self._restore_log_level()

    def _new_handshake(self) -> Handshake:
        key = self.link.key
        return Handshake(
            self.link,
            self.settings,
            remembered=None if key is None else self._memory.recall(key),
            first_id=1 if self._handshake is None else self._handshake.next_id,
        )

    async def authorize(self, refusal: HttpError) -> bool:
        """Get what a refused request needs, from the user if necessary. Return whether to send the request again."""
        authorizer = self.link.authorizer
        if authorizer is None or refusal.status not in (401, 403):
            return False
        return await authorizer.authorize(refusal)

    def _log_connected(self, seconds: float) -> None:
        revision, info, process = self.handshake_result.revision, self.handshake_result.server_info, self.link.process
        who = "a server without a name" if info is None else f"{info.name} {info.version}"[:_LONGEST_NAME]
        where = "" if process is None else f" (process {process.pid})"
        _logger.info("Connected to %s%s in protocol revision %s, after %.3f s.", who, where, revision, seconds)

    def _restore_log_level(self) -> None:
        """Set the log level of the previous session on the new one."""
        if self.handshake_result.revision.is_modern:
            level = self._log_level or ("info" if self.settings.on_log is not None else None)
            if level is not None:
                self.session.set_log_level(level)
        elif self._log_level is not None:
            self.session.endpoint.open("logging/setLevel", {"level": self._log_level})

    def _changed(self, change: Change) -> None:
        if self.cache is not None:
            self.cache.changed(change)
        if change.topic == "tools":
            self.registry.clear()

    def _clear_caches(self) -> None:
        """Clear what was learned from the old server: the new one may differ."""
        if self.cache is not None:
            self.cache.clear()
        self.registry.clear()

    async def _shut_down(self) -> None:
        self.has_ended = True
        self.subscriptions.end(self._cause or Closed("The client was closed."))
        self._announce_change()
        if self._handshake is not None and self._handshake.session is not None:
            await self._handshake.session.close(min(_LAST_WRITE_WAIT, self.settings.stop.close_wait))
        await self.link.close()
        self.settings.input_handlers.close()
        if self._recorded is not None:
            await asyncio.to_thread(self._recorded.recorder.close)
        _logger.info("The connection is closed, and the server is released.")


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    # asyncio would log an exception that is never retrieved; `open` and requests raise it.
    if not task.cancelled():
        task.exception()

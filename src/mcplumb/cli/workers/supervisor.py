"""The supervisor: starts the workers, replaces those that die, reloads them one after the other, and stops them.

The supervisor opens the listening sockets and hands them on; it never accepts. So a connection always finds somebody
who listens: while a worker is replaced it waits in the queue that all workers share. With ``SO_REUSEPORT``, each worker
would have a queue of its own, and what waits in it would be reset when the worker ends.

Workers lead sessions of their own: Ctrl-C reaches the supervisor only, which stops them. If the supervisor is killed,
they notice the end of their control channel, and the watchdog stops what does not.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from mcplumb.cli.workers.control_channel import Channel, Inherited, Message
from mcplumb.errors import ConnectError, UsageError
from mcplumb.protocol.restart import BreakerOpen, GiveUp, Restarter, RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.telemetry.metric_families import Family, Snapshot, counters_of, merged
from mcplumb.transports.address import HttpAddress, TcpAddress, read_address
from mcplumb.transports.http_server.origin import warn_if_open
from mcplumb.transports.process import watchdog
from mcplumb.transports.process.exit_watch import Exit, reap, watch_exit
from mcplumb.transports.process.tree import MARK
from mcplumb.transports.socket_listener import listening_sockets

__all__ = ["Supervisor", "WorkersFailed"]

_logger = logging.getLogger("mcplumb.workers")

#: Connections that may wait to be accepted. The system may allow fewer.
_BACKLOG = 2048
#: A worker that dies is replaced soon, and less and less soon if it keeps dying.
_RESTART = RestartPolicy(healthy_after=10.0, breaker_after=6, breaker_wait=30.0, breaker_max_wait=60.0)
#: Seconds for a worker to become ready in a reload, before the reload is given up.
_READY_WITHIN = 60.0
#: Seconds that a worker may take to exit beyond the time for its requests: it ends itself before.
_STOP_GRACE = 8.0
#: Seconds for workers to say what they count. Of one that is late, the last numbers are taken.
_COUNT_WITHIN = 1.0
#: Seconds for the system to end a process that was killed.
_KILL_WAIT = 2.0
_RELOAD_ENDS = "The reload ends here, and the other workers stay as they are. %s"


class WorkersFailed(ConnectError):
    """The workers cannot start."""


class _Worker:
    """One process of the supervisor, from its start to its end."""

    def __init__(self, number: int, pid: int) -> None:
        #: The place that it fills, from 1.
        self.number = number
        self.pid = pid
        self.channel: Channel | None = None
        loop = asyncio.get_running_loop()
        #: Done when it is ready: with None, or with why it is not.
        self.started: asyncio.Future[str | None] = loop.create_future()
        self.exited: asyncio.Future[Exit] = loop.create_future()
        #: Seconds that it may take to stop.
        self.stop_within = 1.5
        #: Whether it is to exit.
        self.is_leaving = False
        #: Why it could not start or go on, in its own words.
        self.failure: str | None = None
        self.counts: Snapshot = []

    def leave(self) -> None:
        """Tell it to finish what it has, and to exit. May be called again."""
        if self.is_leaving:
            return
        self.is_leaving = True
        if self.channel is not None and self.started.done():
            self.channel.send(Message(drain=True))
        else:
            self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker, or to it and its children if that kills."""
        if not self.exited.done():
            with suppress(ProcessLookupError, PermissionError):
                (os.killpg if number is signal.SIGKILL else os.kill)(self.pid, number)


class Supervisor:
    """Keeps ``count`` workers running at the HTTP addresses.

    ``command`` returns the command line of a worker for these addresses and descriptors. With ``has_keys``, workers
    have the keys for sealed state from elsewhere. ``on_ready`` is called with each address when all workers accept
    connections.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        count: int,
        command: Callable[[Sequence[str], Inherited], list[str]],
        *,
        needs_tokens: bool = False,
        has_keys: bool = False,
        on_ready: Callable[[str], object] | None = None,
    ) -> None:
        self._addresses = list(addresses)
        self._count = count
        self._command = command
        self._needs_tokens = needs_tokens
        self._on_ready = on_ready
        self._sockets: list[list[socket.socket]] = []
        #: The worker in each place, and its rules for restarts.
        self._workers: dict[int, _Worker] = {}
        self._restarters = {number: Restarter(_RESTART) for number in range(1, count + 1)}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        #: All processes that have not exited, those that leave included.
        self._running: set[_Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        #: The same for all, so that any worker continues what another has begun.
        self._state_keys = [] if has_keys else [secrets.token_bytes(32)]
        self._reload: asyncio.Task[None] | None = None
        self._reload_again = False
        self._has_started = False
        self._is_stopping = False
        self._stopped: asyncio.Future[None]
        #: What the workers counted that have exited, and how many died.
        self._past: Snapshot = []
        self._restarts = 0
        self._numbers = itertools.count(1)
        self._answers: dict[tuple[_Worker, int], asyncio.Future[None]] = {}

    async def run(self) -> None:
        """Run the workers until SIGTERM or SIGINT; raise `WorkersFailed` if they cannot start."""
        loop = asyncio.get_running_loop()
        self._stopped = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._request_reload)
        watchdog.prepare()
        try:
            await self._listen()
            for place in self._restarters:
                self._start_in(place)
            await self._wait_until_ready()
            self._has_started = True
            if not self._is_stopping:
                for address in self._addresses:
                    _logger.info("Serving at %s with %d workers.", address, self._count)
                    if self._on_ready is not None:
                        self._on_ready(address)
                await self._stopped
        finally:
            await self._end()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)

    # --- Start ---

    async def _listen(self) -> None:
        for number, text in enumerate(self._addresses):
            address = read_address(text)
            if not isinstance(address, HttpAddress):
                raise UsageError(f"Workers serve http:// addresses, and {text!r} is none.")
            sockets = await listening_sockets(TcpAddress(address.host, address.port))
            self._sockets.append(sockets)
            for each in sockets:
                each.setblocking(False)
                each.listen(_BACKLOG)
            address = msgspec.structs.replace(address, port=sockets[0].getsockname()[1], path=address.path or "/mcp")
            self._addresses[number] = str(address)
            warn_if_open(address, needs_tokens=self._needs_tokens)

    async def _wait_until_ready(self) -> None:
        """Wait for the first start of all workers; raise if one of them cannot, because then none of them can."""
        waiting: set[asyncio.Future[Any]] = {worker.started for worker in self._workers.values()}
        while waiting and not self._is_stopping:
            done, waiting = await asyncio.wait({*waiting, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
            waiting.discard(self._stopped)
            for each in done:
                if each.result() is not None and not self._is_stopping:
                    raise WorkersFailed(each.result())

    def _start_in(self, place: int) -> None:
        """Start a worker in a place, where none is."""
        self._timers.pop(place, None)
        self._restarters[place].started(asyncio.get_running_loop().time())
        try:
            self._workers[place] = self._start(place)
        except OSError as error:
            self._plan_restart(place, f"Worker {place} cannot be started: {error}.")

    def _start(self, place: int) -> _Worker:
        ours, theirs = socket.socketpair()
        listening = tuple(tuple(each.fileno() for each in sockets) for sockets in self._sockets)
        inherited = Inherited(theirs.fileno(), listening)
        mark = secrets.token_hex(8)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program
                self._command(self._addresses, inherited),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *itertools.chain(*listening)],
                start_new_session=True,
                env={**os.environ, MARK: mark},
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        process.returncode = 0  # Popen must not reap it: this module does
        worker = _Worker(place, process.pid)
        self._running.add(worker)
        watchdog.register(worker.pid, StopLadder(close_wait=worker.stop_within, term_wait=_STOP_GRACE), mark=mark)
        watch_exit(worker.pid, lambda: self._exited(worker))
        self._spawn(self._listen_to(worker, ours))
        return worker

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen_to(self, worker: _Worker, connected: socket.socket) -> None:
        channel = worker.channel = await Channel.open(connected)
        channel.send(Message(state_keys=self._state_keys))
        try:
            async for message in channel.receive():
                self._received(worker, message)
        except (msgspec.MsgspecError, ValueError) as error:
            _logger.warning("Worker %d sent a message that cannot be read: %s", worker.number, error)
        finally:
            channel.close()

    def _received(self, worker: _Worker, message: Message) -> None:
        if message.ready is not None:
            worker.stop_within = message.ready
            self._restarters[worker.number].connected(asyncio.get_running_loop().time())
            _resolve(worker.started, None)
        if message.failed is not None:
            worker.failure = message.failed
            _resolve(worker.started, message.failed)
        if message.families is not None:
            worker.counts = message.families
        if message.answered is not None:
            _resolve(self._answers.get((worker, message.answered)), None)
        if message.asked is not None:
            self._spawn(self._answer(worker, message.asked))

    # --- The end of a worker ---

    def _exited(self, worker: _Worker) -> None:
        self._spawn(self._record_exit(worker))

    async def _record_exit(self, worker: _Worker) -> None:
        """Note the end of a worker, and plan another one if it was not told to leave."""
        worker.signal(signal.SIGKILL)  # children that it has left behind; its pid is reserved until it is reaped
        end = reap(worker.pid) or Exit()
        await watchdog.unregister(worker.pid)
        await asyncio.sleep(0)  # for what it said at last
        self._running.discard(worker)
        self._past = merged([self._past, counters_of(worker.counts)])
        was_told = worker.is_leaving or self._is_stopping
        ends_all = not (self._has_started or worker.started.done())  # `_wait_until_ready` says so
        _resolve(worker.started, f"Worker {worker.number} {end} before it was ready.")
        _resolve(worker.exited, end)
        if was_told:
            _logger.debug("Worker %d (process %d) %s.", worker.number, worker.pid, end)
        elif self._workers.get(worker.number) is worker and not ends_all:
            self._restarts += 1
            why = "" if worker.failure is None else f" {worker.failure}"
            self._plan_restart(worker.number, f"Worker {worker.number} (process {worker.pid}) {end}.{why}")

    def _plan_restart(self, place: int, why: str) -> None:
        loop = asyncio.get_running_loop()
        decision = self._restarters[place].exited(loop.time(), random.random())  # noqa: S311 - chance, not secrets
        if isinstance(decision, GiveUp):
            return
        at = decision.until if isinstance(decision, BreakerOpen) else decision.at
        wait = max(0.0, at - loop.time())
        if isinstance(decision, BreakerOpen):
            failures = self._restarters[place].failures
            _logger.error(
                "%s It has ended early %d times in a row: its log says why. Another one is started in %.0f s; SIGHUP "
                "starts one at once.",
                why,
                failures,
                wait,
            )
        else:
            _logger.warning("%s Another one is started in %.1f s.", why, wait)
        self._timers[place] = loop.call_later(wait, self._start_in, place)

    # --- Reload ---

    def _request_reload(self) -> None:
        if self._is_stopping:
            return
        if self._reload is not None:
            self._reload_again = True
            return
        self._reload = asyncio.ensure_future(self._reload_all())

    async def _reload_all(self) -> None:
        """Replace the workers one after the other; the old one leaves when the new one accepts connections."""
        try:
            self._reload_again = True
            while self._reload_again and not self._is_stopping:
                self._reload_again = False
                _logger.info("Received SIGHUP: the workers are replaced one after the other.")
                for place in self._restarters:
                    if not await self._replace(place):
                        break
                else:
                    _logger.info("All workers are replaced.")
        finally:
            self._reload = None

    async def _replace(self, place: int) -> bool:
        """Replace the worker in a place; False if the new one does not start, and the old one stays."""
        if self._is_stopping:
            return False
        if place in self._timers:
            # None runs here at the moment.
            self._timers.pop(place).cancel()
            self._restarters[place] = Restarter(_RESTART)
            self._start_in(place)
            return True
        old = self._workers[place]
        try:
            new = self._start(place)
        except OSError as error:
            _logger.error(_RELOAD_ENDS, f"Worker {place} cannot be started: {error}.")  # noqa: TRY400 - it says all
            return False
        why = await _failure(new.started, _READY_WITHIN)
        if why is not None:
            new.is_leaving = True
            new.signal(signal.SIGKILL)
            _logger.error(_RELOAD_ENDS, why)
            return False
        # The old one may have died meanwhile, and have been replaced.
        if place in self._timers:
            self._timers.pop(place).cancel()
        restarter = self._restarters[place] = Restarter(_RESTART)
        now = asyncio.get_running_loop().time()
        restarter.started(now)
        restarter.connected(now)
        old, self._workers[place] = self._workers.get(place, old), new
        await self._end_worker(old)
        return True

    async def _end_worker(self, worker: _Worker) -> None:
        """Let a worker finish what it has, and wait for its end."""
        worker.leave()
        await asyncio.wait((worker.exited,), timeout=worker.stop_within + _STOP_GRACE)
        if not worker.exited.done():
            _logger.warning("Worker %d (process %d) does not stop, and is killed.", worker.number, worker.pid)
            worker.signal(signal.SIGKILL)
            await asyncio.wait((worker.exited,), timeout=_KILL_WAIT)

    # --- Stop ---

    def _stop(self, number: signal.Signals) -> None:
        if self._is_stopping:
            for worker in self._running:
                worker.signal(signal.SIGKILL)
            return
        self._is_stopping = True
        _logger.info("Received %s: the workers stop.", signal.Signals(number).name)
        self._close_sockets()
        for timer in self._timers.values():
            timer.cancel()
        for worker in self._running:
            worker.leave()
        _resolve(self._stopped, None)

    async def _end(self) -> None:
        """Stop what is left, and leave nothing behind."""
        self._is_stopping = True
        if self._reload is not None:
            self._reload.cancel()
            await asyncio.wait((self._reload,))
        self._close_sockets()
        for timer in self._timers.values():
            timer.cancel()
        running = list(self._running)
        for worker in running:
            worker.leave()
        if running:
            within = max(worker.stop_within for worker in running) + _STOP_GRACE
            await asyncio.wait([worker.exited for worker in running], timeout=within)
        for worker in list(self._running):
            _logger.warning("Worker %d (process %d) does not stop, and is killed.", worker.number, worker.pid)
            worker.signal(signal.SIGKILL)
        if self._running:
            await asyncio.wait([worker.exited for worker in self._running], timeout=_KILL_WAIT)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        watchdog.unregister_nowait()

    def _close_sockets(self) -> None:
        for each in itertools.chain(*self._sockets):
            each.close()

    # --- What the workers count ---

    async def _answer(self, worker: _Worker, number: int) -> None:
        """Tell a worker what all of them have counted, those that have ended included."""
        asked = [each for each in self._running if each.channel is not None]
        waiting = [self._ask(each) for each in asked]
        if waiting:
            await asyncio.wait(waiting, timeout=_COUNT_WITHIN)
        for key in [key for key, future in self._answers.items() if future in waiting]:
            del self._answers[key]
        families = merged([*(each.counts for each in self._running), self._past, self._own_counts()])
        if worker.channel is not None:
            worker.channel.send(Message(answered=number, families=families))

    def _ask(self, worker: _Worker) -> asyncio.Future[None]:
        number = next(self._numbers)
        answer = self._answers[worker, number] = asyncio.get_running_loop().create_future()
        if worker.channel is not None:
            worker.channel.send(Message(asked=number))
        return answer

    def _own_counts(self) -> Snapshot:
        running = sum(worker.started.done() and not worker.is_leaving for worker in self._workers.values())
        return [
            Family("mcplumb_workers", "gauge", "Workers that run.", series={(): [float(running)]}),
            Family(
                "mcplumb_worker_restarts_total",
                "counter",
                "Workers that died and were replaced.",
                series={(): [float(self._restarts)]},
            ),
        ]


async def _failure(started: asyncio.Future[str | None], within: float | None = None) -> str | None:
    """Return why a worker is not ready; None if it is."""
    try:
        return await asyncio.wait_for(asyncio.shield(started), within)
    except TimeoutError:
        return f"The new worker was not ready within {within:g} s."


def _resolve(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)

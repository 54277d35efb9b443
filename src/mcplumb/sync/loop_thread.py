"""The event loop thread that all blocking clients share, and its lifetime."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mcplumb.errors import Closed, UsageError
from mcplumb.sync.callback_threads import Job, Workers

__all__ = ["DrivenEngine", "Engine", "Errand", "Lease", "ThreadEngine", "start_engine"]

_logger = logging.getLogger("mcplumb.sync")


# The event loop of all blocking clients: in a thread of its own or, where there can be none, in those that wait.


R = TypeVar("R")

#: Seconds that a thread which gives up waiting still waits for what it waited for to end.
_SHORTLY = 1.0
#: Seconds after which a thread that waits looks up. A signal that comes in the moment before it falls asleep does not
#: wake it, and Python runs its handler only then.
_NAP = 0.5
#: Seconds in which the last tasks have to end when they are cancelled.
_PATIENCE = 2.0


class Errand:
    """One coroutine that runs in the loop while a thread waits for it.

    Meanwhile that thread runs the jobs that come into its inbox. None is the last thing to come.
    """

    __slots__ = ("_engine", "_task", "inbox")

    def __init__(self, engine: Engine) -> None:
        self.inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._engine = engine
        self._task: asyncio.Task[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, R], within: float | None = None) -> R:
        """Wait for the coroutine, and give or raise what it does; ``Closed`` if the loop ends first.

        Interrupted, for instance by a ``KeyboardInterrupt`` or a function of the user's that raises one, or after so
        many seconds without news, the coroutine is cancelled.
        """
        engine = self._engine
        try:
            engine.post(self._start, coroutine)
            while (job := engine.next_job(self, within)) is not None:
                job.run()
        except BaseException:
            self._give_up(coroutine)
            raise
        outcome: R = self._outcome()
        return outcome

    async def have_done(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Called in the loop: have the thread that waits call this function; returns what it does."""
        job = Job(function, arguments)
        self._engine.deliver(self, job)
        return await job.answer

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._engine.waiting[self] = None
        self._task = self._engine.loop.create_task(coroutine)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # which nobody may come for, and that is not worth a warning
        del self._engine.waiting[self]
        self._engine.deliver(self, None)

    def _outcome(self) -> Any:
        task, self._task = self._task, None
        try:
            if task is None or not task.done() or task.cancelled():
                raise Closed("The client was closed.")
            return task.result()
        finally:
            del task  # an exception has this frame, and must not have itself

    def _give_up(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self._engine.post(self._cancel, coroutine)
            while (job := self._engine.next_job(self, _SHORTLY)) is not None:
                job.drop()
        except Empty:
            pass  # it ends by itself
        except Closed:
            if self._task is None:
                coroutine.close()

    def _cancel(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            coroutine.close()
            self._engine.deliver(self, None)


class Engine(ABC):
    """One event loop, for errands from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: The errands that somebody waits for, the latest last. Belongs to the loop.
        self.waiting: dict[Errand, None] = {}
        self._pid = os.getpid()
        # Reentrant, because a signal's handler may come in between, and use a client.
        self._lock = threading.RLock()
        self._is_ended = False
        self._workers = Workers()

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._pid != os.getpid()

    def errand(self) -> Errand:
        """Something to be done for this thread, which must be able to wait; ``UsageError`` if it is not."""
        if self.is_foreign:
            raise UsageError(
                f"This client belongs to the process {self._pid}, from which this one was forked: connect again here."
            )
        if asyncio._get_running_loop() is self.loop:
            raise UsageError(
                "A blocking client was called in the thread that does its work, where it would wait for itself: call "
                "it in another thread, or use mcplumb.connect."
            )
        return Errand(self)

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call the function in the loop; ``Closed`` if that has ended."""
        with self._lock:
            if self._is_ended:
                raise Closed("The client was closed.")
            self.loop.call_soon_threadsafe(function, *arguments)

    async def have_done(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Called in the loop: have any other thread call this function; returns what it does."""
        job = Job(function, arguments)
        if not self._workers.submit(job):
            # The interpreter shuts down, and no thread can be started: the last one that waits does it.
            if not self.waiting:
                raise RuntimeError("There is no thread to call a function in.")
            self.deliver(next(reversed(self.waiting)), job)
        return await job.answer

    def deliver(self, errand: Errand, job: Job | None) -> None:
        """Called in the loop: give this to the thread that waits for the errand."""
        errand.inbox.put(job)

    @abstractmethod
    def next_job(self, errand: Errand, within: float | None) -> Job | None:
        """Wait for what comes into the errand's inbox; ``Empty`` after so many seconds."""

    def end(self) -> None:
        """Cancel what still runs, and close the loop. Bounded; for the last user, once."""
        with self._lock:
            self._is_ended = True
        self._stop()
        self._workers.close()

    @abstractmethod
    def _stop(self) -> None:
        """Stop the loop, and clear it in the thread that runs it."""

    def _clear(self) -> None:
        loop = self.loop
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            for errand in self.waiting:  # for tasks that do not end
                errand.inbox.put(None)
            loop.close()


class ThreadEngine(Engine):
    """The loop runs in a daemon thread, so that nothing in it can keep the process from ending."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._main, name="mcplumb-sync", daemon=True)
        self._thread.start()

    def next_job(self, errand: Errand, within: float | None) -> Job | None:
        """Wait; the loop runs by itself."""
        if within is not None:
            return errand.inbox.get(timeout=within)
        while True:
            with suppress(Empty):
                return errand.inbox.get(timeout=_NAP)

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self._leave)
        self._thread.join(_PATIENCE + 1)
        if self._thread.is_alive():
            _logger.warning("Something blocks the event loop of the blocking clients, which is left behind.")

    def _leave(self) -> None:
        self._is_stopped = True
        self.loop.stop()

    def _main(self) -> None:
        while not self._is_stopped:
            try:
                self.loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the task has been told
                _logger.debug("A task raised %s, which ends nothing but itself here.", type(error).__name__)
        self._clear()


class DrivenEngine(Engine):
    """The loop runs only while a thread waits, and in that thread: for an interpreter that starts no threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._changed = threading.Condition()
        self._is_running = False

    def deliver(self, errand: Errand, job: Job | None) -> None:
        """Give it, and let those who wait look into their inboxes."""
        super().deliver(errand, job)
        if not self._is_ended:
            self.loop.stop()

    def next_job(self, errand: Errand, within: float | None) -> Job | None:
        """Wait; the loop is run meanwhile, by one of the threads that do so."""
        deadline = None if within is None else self.loop.time() + within
        with self._changed:
            while errand.inbox.empty():
                left = None if deadline is None else deadline - self.loop.time()
                if left is not None and left <= 0:
                    raise Empty
                if self._is_running or self._is_ended:
                    self._changed.wait(left)
                else:
                    self._run(left)
        return errand.inbox.get_nowait()

    def _run(self, within: float | None) -> None:
        alarm = None if within is None else self.loop.call_later(within, self.loop.stop)
        self._is_running = True
        self._changed.release()
        try:
            self.loop.run_forever()
        finally:
            self._changed.acquire()
            self._is_running = False
            self._changed.notify_all()
            if alarm is not None:
                alarm.cancel()

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self._pause)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_running, _PATIENCE):
                _logger.warning("Something blocks the event loop of the blocking clients, which is left behind.")
                return
            self._clear()
            self._changed.notify_all()

    def _pause(self) -> None:
        if self._is_running:  # and not being cleared already
            self.loop.stop()


def start_engine() -> Engine:
    """A new engine, with a thread if there can be one."""
    loop = asyncio.new_event_loop()
    try:
        return ThreadEngine(loop)
    except RuntimeError:  # the interpreter shuts down, or the system has no thread left
        return DrivenEngine(loop)


# Who uses the engine: it starts with the first connection of the process, and ends with the last one, or at exit.


class Lease:
    """The use of the engine for one connection, from before it is opened until it is closed.

    ``close_connection`` does the latter, in the loop and in at most ``patience`` seconds.
    """

    def __init__(self, close_connection: Callable[[], Coroutine[Any, Any, object]], patience: float) -> None:
        self.close_connection = close_connection
        self.patience = patience
        #: Set by ``begin``, and kept: what the connection still does, it does there.
        self.engine: Engine | None = None
        self._is_given_back = False

    def begin(self) -> None:
        """Take the engine, which is started if need be. Once."""
        _landlord.let(self)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to close: not yet, not any more, or not in this fork of its process."""
        return self.engine is None or self._is_given_back or self.engine.is_foreign

    def errand(self) -> Errand:
        """Something to do in the loop: ``Closed`` after the end, ``UsageError`` if this thread cannot wait for it."""
        if self.engine is None or self._is_given_back:
            raise Closed("The client was closed.")
        return self.engine.errand()

    def look(self, read: Callable[[], R]) -> R:
        """What ``read`` gives: in the loop, where nothing changes meanwhile, or here if the loop is not at work."""
        try:
            return self.errand().run(_called(read))
        except (Closed, UsageError):
            return read()

    async def have_done(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Called in the loop: have another thread call this function; returns what it does."""
        if self.engine is None:
            raise Closed("The client was not opened.")
        return await self.engine.have_done(function, *arguments)

    def close(self) -> None:
        """Close the connection, and give the engine back. From any thread, as often as you like."""
        if self.is_over:
            return
        errand = self.errand()
        try:
            errand.run(self.close_connection())
        except Closed:
            pass  # somebody else was faster
        finally:
            self.end()

    def end(self) -> None:
        """Give the engine back. Without any other user it ends, and with it all that it does."""
        self._is_given_back = True
        _landlord.take_back(self)


class _Landlord:
    """Has the one engine of this process, while there are users."""

    def __init__(self) -> None:
        # Reentrant, because a signal's handler may come in between, and close a client.
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._users: set[Lease] = set()
        self._inherited: list[Engine | None] = []

    def let(self, lease: Lease) -> None:
        with self._lock:
            if lease.engine is not None:
                raise UsageError("This was connected already: call connect again.")
            if self._engine is None:
                self._engine = start_engine()
            self._users.add(lease)
            lease.engine = self._engine

    def take_back(self, lease: Lease) -> None:
        with self._lock:
            if lease not in self._users:
                return
            self._users.discard(lease)
            engine = self._engine
            if engine is None or self._users:
                return
            self._engine = None
        engine.end()

    def close_all(self) -> None:
        """The interpreter exits: close what was left open, so that the servers can leave in order."""
        with self._lock:
            engine, users = self._engine, list(self._users)
        if engine is None:
            return
        try:
            with suppress(Closed, Empty):
                engine.errand().run(_close_each(users), within=max(lease.patience for lease in users))
        finally:
            for lease in users:
                lease.end()

    def forget(self) -> None:
        """This process is a fork: the engine's thread is not here, and its descriptors are also those of another."""
        # Kept, because a loop that is thrown away closes itself, and for the other process as well.
        self._inherited.append(self._engine)
        self._lock = threading.RLock()
        self._engine = None
        self._users = set()


async def _called(function: Callable[[], R]) -> R:
    return function()


async def _close_each(leases: list[Lease]) -> None:
    await asyncio.gather(*(lease.close_connection() for lease in leases), return_exceptions=True)


_landlord = _Landlord()
atexit.register(_landlord.close_all)
os.register_at_fork(after_in_child=_landlord.forget)

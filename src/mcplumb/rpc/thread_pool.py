"""The thread pool that runs plain functions of servers and plain callbacks of clients, and the guard against forks.

A server has one pool, each client has one for its input handlers, and all blocking clients of a process share one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from mcplumb.errors import UsageError

if TYPE_CHECKING:
    import asyncio

__all__ = ["AwaitedJob", "Job", "PoolExhausted", "ThreadPool", "end_fork", "forks", "value_of"]


#: How many times as many threads a pool may have by default as calls that are waited for: the others are held by
#: cancelled calls that still run. An idle thread costs some 100 KB.
_THREADS_PER_PLACE = 8


# --- Forks ---

#: One item for each fork between the process that loaded this module and this one. A function that forks also returns
#: in the child, which is not the server and must exit. Almost always empty, so checking it costs nothing.
forks: list[None] = []

os.register_at_fork(after_in_child=lambda: forks.append(None))


def end_fork() -> None:
    """End this process, which is a fork of the one that serves."""
    os._exit(1)


# --- Jobs ---


class PoolExhausted(RuntimeError):
    """Every thread of a pool is held by a cancelled call that still runs."""

    def __init__(self, cancelled: int) -> None:
        super().__init__(
            f"No thread is left for a plain function: {cancelled} cancelled calls still run, because their functions "
            "have not returned."
        )


class Job:
    """One function call, waiting for a thread or running in one.

    The function runs in a context of variables that is its alone.
    A job that is abandoned before it starts is never run, and ``report`` is not called for it.
    """

    __slots__ = ("_context", "_forks", "_function", "_kwargs", "is_abandoned", "is_running")

    def __init__(self, function: Callable[..., Any], kwargs: dict[str, Any], context: Context) -> None:
        self._function = function
        self._kwargs = kwargs
        self._context = context
        self._forks = len(forks)
        #: Whether a thread of a pool runs it.
        self.is_running = False
        self.is_abandoned = False

    def run(self) -> None:
        """Call the function and report its outcome; re-raise a ``BaseException`` that is not an ``Exception``."""
        value, error = None, None
        try:
            value = self._context.run(self._function, **self._kwargs)
        except BaseException as raised:  # noqa: BLE001 - reported, and raised below if it must not be caught
            error = raised
        if self.is_running and len(forks) != self._forks:
            # A thread of the pool has nothing to return to in the child.
            end_fork()
        self.report(value, error)
        if error is not None and not isinstance(error, Exception):
            raise error

    def report(self, value: Any, error: BaseException | None) -> None:
        """Take the function's value, or its exception. Called exactly once, in the thread that ran it."""


class AwaitedJob(Job):
    """A job that a task awaits: ``future`` gets the pair of its value and its exception, of which one is None.

    It is not run once the future is cancelled.
    """

    __slots__ = ("_loop", "future")

    def __init__(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        from asyncio import get_running_loop  # a server is made before it runs, and loads asyncio when it does

        super().__init__(function, kwargs, copy_context())
        self._loop = get_running_loop()
        self.future: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

    def run(self) -> None:
        """Call the function, unless the future is cancelled: its task abandons the job in the next turn of the loop."""
        if not self.future.cancelled():
            super().run()

    def report(self, value: Any, error: BaseException | None) -> None:
        """Set the future in its loop."""
        self._post(self._settle, value, error)

    def cancel(self) -> None:
        """Cancel the future of a job that will not be run."""
        self._post(self.future.cancel)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if not self.future.done():
            self.future.set_result((value, error))

    def _post(self, function: Callable[..., Any], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the future any more
            self._loop.call_soon_threadsafe(function, *arguments)


def value_of(outcome: tuple[Any, BaseException | None]) -> Any:
    """Return the value of a job, or raise its exception."""
    value, error = outcome
    if error is None:
        return value
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        raise error
    # A coroutine cannot raise StopIteration, and anything but an Exception would stop the loop.
    raise RuntimeError(f"The function raised {type(error).__name__}.") from error


# --- The pool ---


class ThreadPool:
    """A pool of threads in which at most ``size`` jobs are run and waited for at once. Further jobs wait, in order.

    A job that was abandoned while it ran keeps its thread, because nothing can stop it, but loses its place: another
    thread makes up for it, until there are ``max_threads``, by default eight times the size. If abandoned jobs hold
    them all, nothing can run: every job, also those that wait already, then fails at once with `PoolExhausted`.

    Threads are started when they are needed and reused. They are daemons: a function that never returns cannot keep
    the process from ending.
    """

    def __init__(self, size: int, max_threads: int | None = None, *, name: str = "mcplumb-worker") -> None:
        most = _THREADS_PER_PLACE * size if max_threads is None else max_threads
        if size < 1:
            raise UsageError(f"The number of threads for plain functions is {size}: it must be at least 1.")
        if most < size:
            raise UsageError(f"max_threads is {most}: it must be at least the number of threads, which is {size}.")
        self._size = size
        self._max_threads = most
        self._name = name
        self._jobs: deque[Job] = deque()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._thread_ended = threading.Condition(lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        #: The number of abandoned jobs that still run.
        self._stuck = 0
        self._closed = False

    def submit(self, job: Job) -> None:
        """Run the job in a thread, as soon as one is free.

        Raises `PoolExhausted`, or `RuntimeError` if the system has no thread left.
        """
        with self._changed:
            if self._stuck >= self._max_threads:
                raise PoolExhausted(self._stuck)
            self._closed = False
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif not self._add_thread() and not self._threads:
                self._jobs.remove(job)
                raise RuntimeError("The system has no thread left to run a plain function in.")

    async def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[Any, BaseException | None]:
        """Call a plain function in a thread; return its value and None, or None and what it raised.

        If cancelled, the job is abandoned. Raises what ``submit`` raises.
        """
        job = AwaitedJob(function, kwargs)
        self.submit(job)
        return await self.wait_for(job)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a plain function in a thread; return its value, or raise what it raised."""
        return value_of(await self.run(partial(function, *arguments), {}))

    async def wait_for(self, job: AwaitedJob) -> tuple[Any, BaseException | None]:
        """Wait for the outcome of a submitted job. If cancelled, the job is abandoned."""
        try:
            return await job.future
        finally:
            if job.future.cancelled():
                self.abandon(job)

    def abandon(self, job: Job) -> None:
        """Abandon the job: no task waits for it any more."""
        refused: list[Job] = []
        with self._changed:
            if job.is_abandoned:
                return
            job.is_abandoned = True
            if job.is_running:
                self._stuck += 1
                if self._stuck >= self._max_threads:
                    refused.extend(self._jobs)
                    self._jobs.clear()
                elif self._jobs:
                    self._add_thread()
            elif job in self._jobs:
                self._jobs.remove(job)
        for waiting in refused:
            waiting.report(None, PoolExhausted(self._stuck))

    def close(self, within: float = 0.0) -> None:
        """Let each thread end after its current job, and drop the queued jobs. A later job starts threads again.

        Waits up to ``within`` seconds for the idle threads, which takes them microseconds.
        """
        with self._changed:
            self._closed = True
            self._jobs.clear()
            ending = set(self._threads)
            busy = len(ending) - self._idle
            self._changed.notify_all()
            if within:
                self._thread_ended.wait_for(lambda: len(self._threads) <= busy, within)
                ending -= self._threads
        if within:
            for thread in ending:
                thread.join()

    def _add_thread(self) -> bool:
        """Start another thread if there may be one more, and the system has one."""
        if len(self._threads) >= self._bound:
            return False
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more: what waits is run by the threads there are
            return False
        self._threads.add(thread)
        return True

    @property
    def _bound(self) -> int:
        return min(self._size + self._stuck, self._max_threads)

    def _work(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        # In a function of its own: a thread that waits must not keep its last job, and all that hangs on it, alive.
        job = self._next_job()
        if job is None:
            return False
        with suppress(BaseException):  # the job has reported it
            job.run()
        with self._changed:
            job.is_running = False
            if job.is_abandoned:
                self._stuck -= 1
        return True

    def _next_job(self) -> Job | None:
        with self._changed:
            while True:
                if self._closed or len(self._threads) > self._bound:
                    self._threads.discard(threading.current_thread())
                    self._thread_ended.notify_all()
                    return None
                if self._jobs:
                    job = self._jobs.popleft()
                    job.is_running = True
                    return job
                self._idle += 1
                self._changed.wait()
                self._idle -= 1

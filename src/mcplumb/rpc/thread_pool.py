"""The thread pool for plain functions: bounded, first come, first served; and the guard against forks."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from mcplumb.errors import UsageError

__all__ = ["Job", "Workers", "end_fork", "forks"]


#: One item for each fork between the process that loaded this module and this one. A function that forks also returns
#: in the child, which is not the server and must exit. Almost always empty, so checking it costs nothing.
forks: list[None] = []

os.register_at_fork(after_in_child=lambda: forks.append(None))


def end_fork() -> None:
    """End this process, which is a fork of the one that serves."""
    os._exit(1)


class Job:
    """One function call, waiting for a thread or running in one. ``done`` is called in that thread, exactly once.

    The function runs in a context of variables that is its alone.
    A job that is abandoned before it starts is never run, and ``done`` is not called for it.
    """

    __slots__ = ("_context", "_done", "_forks", "_function", "_kwargs", "is_abandoned", "is_running")

    def __init__(
        self,
        function: Callable[..., Any],
        kwargs: dict[str, Any],
        done: Callable[[Any, BaseException | None], None],
        context: Context,
    ) -> None:
        self._function = function
        self._kwargs = kwargs
        self._done = done
        self._context = context
        self._forks = len(forks)
        self.is_running = False
        self.is_abandoned = False

    def run(self) -> None:
        """Call the function, and report its value or its exception."""
        value, error = None, None
        try:
            value = self._context.run(self._function, **self._kwargs)
        except BaseException as raised:  # noqa: BLE001 - raised in the waiting task
            error = raised
        if len(forks) != self._forks:
            end_fork()
        self._done(value, error)


class Workers:
    """A pool of at most ``size`` threads, started when they are needed.

    Jobs beyond that wait in the order they came. A job that was abandoned while it ran keeps its thread, for nothing
    can stop it, but no longer its place: up to ``size`` further threads make up for such.
    The threads are daemons: a function that never returns cannot keep the process from ending.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise UsageError(f"The number of threads for plain functions is {size}: it must be at least 1.")
        self._size = size
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._stuck = 0
        self._closed = False

    def submit(self, job: Job) -> None:
        """Run the job in a thread, as soon as one is free."""
        with self._changed:
            self._closed = False
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif not self._add_thread() and not self._threads:
                self._jobs.remove(job)
                raise RuntimeError("The system has no thread left to run a plain function in.")

    async def run(self, function: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[Any, BaseException | None]:
        """Call a plain function in a thread; return its value and None, or None and what it raised.

        If cancelled, the job is abandoned. Raises `RuntimeError` if the system has no thread left.
        """
        import asyncio  # a server is made before it runs, and loads this when it does

        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def settle(value: Any, error: BaseException | None) -> None:
            if not done.done():
                done.set_result((value, error))

        def hand_over(value: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, value, error)

        def call_if_wanted(**kwargs: Any) -> Any:
            # A task that is cancelled abandons the job in the next turn of the loop only.
            return None if done.cancelled() else function(**kwargs)

        job = Job(call_if_wanted, kwargs, hand_over, copy_context())
        self.submit(job)
        try:
            return await done
        except asyncio.CancelledError:
            self.abandon(job)
            raise

    def abandon(self, job: Job) -> None:
        """Abandon the job: no task waits for it any more."""
        with self._changed:
            if job.is_abandoned:
                return
            job.is_abandoned = True
            if job.is_running:
                self._stuck += 1
                if self._jobs:
                    self._add_thread()
            elif job in self._jobs:
                self._jobs.remove(job)

    def close(self) -> None:
        """Let every thread end once its job has ended, and drop what waits. A later job starts threads again."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()

    def _add_thread(self) -> bool:
        """Start another thread if there may be one more, and the system has one."""
        if self._threads >= self._bound:
            return False
        try:
            threading.Thread(target=self._work, name=f"mcplumb-worker-{self._threads + 1}", daemon=True).start()
        except RuntimeError:  # the system has no more: what waits is run by the threads there are
            return False
        self._threads += 1
        return True

    @property
    def _bound(self) -> int:
        return self._size + min(self._stuck, self._size)

    def _work(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        # In a function of its own: a thread that waits must not keep its last job, and all that hangs on it, alive.
        job = self._next_job()
        if job is None:
            return False
        job.run()
        with self._changed:
            job.is_running = False
            if job.is_abandoned:
                self._stuck -= 1
        return True

    def _next_job(self) -> Job | None:
        with self._changed:
            while True:
                if self._closed or self._threads > self._bound:
                    self._threads -= 1
                    return None
                if self._jobs:
                    job = self._jobs.popleft()
                    job.is_running = True
                    return job
                self._idle += 1
                self._changed.wait()
                self._idle -= 1

"""Threads that run the callbacks of blocking clients.

They may also call the same client again, which the loop could not wait for.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from queue import SimpleQueue
from typing import Any

from mcplumb.errors import UsageError

__all__ = ["HaveDone", "Job", "LineCarrier", "Workers", "carried"]

_logger = logging.getLogger("mcplumb.sync")


# Calls of users' functions, which may block, and the threads that make them while the loop goes on.


#: Functions that run at once. A person cannot answer so many questions, and a model will not; more of them wait.
_MOST_THREADS = 64
#: Seconds that an idle thread has to end in, which takes it microseconds.
_PATIENCE = 2.0


class Job:
    """One call of a plain function, made in the loop and run in any other thread; ``answer`` is what comes of it.

    If nobody waits for the answer any more, it is not run.
    """

    __slots__ = ("_arguments", "_context", "_function", "_loop", "answer")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> None:
        """Call the function. Raises what is not meant to be caught, such as a ``KeyboardInterrupt``."""
        if self.answer.done():
            return
        try:
            value = self._context.run(_call, self._function, self._arguments)
        except BaseException as error:
            is_plain = isinstance(error, Exception)
            # No future takes a StopIteration, and the others would end the loop.
            fits = is_plain and not isinstance(error, StopIteration)
            self._tell(self._fail, error if fits else RuntimeError(f"The function raised {type(error).__name__}."))
            if not is_plain:
                raise
        else:
            self._tell(self._settle, value)

    def drop(self) -> None:
        """It will not be run."""
        self._tell(self.answer.cancel)

    def _tell(self, what: Callable[..., Any], *news: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it whoever waited
            self._loop.call_soon_threadsafe(what, *news)

    def _settle(self, value: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(value)

    def _fail(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    value = function(*arguments)
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise UsageError("A function of a blocking client's gave something to await, which nobody does here.")
    return value


class Workers:
    """Threads that run jobs, started when they are needed and used again.

    They are daemons: a function that never returns cannot keep the process from ending.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        #: Jobs that run or wait.
        self._jobs = 0

    def submit(self, job: Job) -> bool:
        """Run the job as soon as there is a thread for it; False if there is none, and none can be started."""
        with self._changed:
            if self._jobs >= len(self._threads) and not self._add_thread() and not self._threads:
                return False
            self._jobs += 1
        self._inbox.put(job)
        return True

    def close(self) -> None:
        """Let every thread end after its last job, and wait for those that have none."""
        with self._changed:
            threads = set(self._threads)
            for _ in threads:
                self._inbox.put(None)
            self._changed.wait_for(lambda: len(self._threads) <= self._jobs, _PATIENCE)
            threads -= self._threads
        for thread in threads:
            thread.join()

    def _add_thread(self) -> bool:
        if len(self._threads) >= _MOST_THREADS:
            return False
        thread = threading.Thread(target=self._work, name="mcplumb-sync-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter shuts down, or the system has no more
            return False
        self._threads.add(thread)
        return True

    def _work(self) -> None:
        while self._run_next():
            pass
        with self._changed:
            self._threads.discard(threading.current_thread())
            self._changed.notify_all()

    def _run_next(self) -> bool:
        # In a function of its own: a thread that waits must not keep its last job, and all that hangs on it, alive.
        job = self._inbox.get()
        if job is None:
            return False
        with suppress(BaseException):  # whoever waits for the job has been told
            job.run()
        with self._changed:
            self._jobs -= 1
            self._changed.notify_all()
        return True


# Users' functions, made fit for the loop: it never calls them itself, because they may block.


#: Has a function called in some thread, and waits for it in the loop.
HaveDone = Callable[..., Coroutine[Any, Any, Any]]


#: Characters that wait for a function which is slower than the server. Beyond that the oldest lines are dropped.
_MAX_WAITING = 4 * 1024 * 1024


class LineCarrier:
    """Has a function called with each line, in another thread, in order, all that came meanwhile in one go."""

    def __init__(self, function: Callable[[str], object], have_done: HaveDone) -> None:
        self._call = carried(self._call_with_each, "stderr", have_done)
        carried(function, "stderr", have_done)  # says so if it is async
        self._function = function
        self._lines: deque[str] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    def bring(self, line: str) -> None:
        """Called in the loop with each line."""
        self._lines.append(line)
        self._size += len(line)
        while self._size > _MAX_WAITING:
            self._size -= len(self._lines.popleft())
            if not self._has_warned:
                self._has_warned = True
                _logger.warning("The function for stderr is too slow: some of the oldest lines are dropped.")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def finish(self, within: float) -> None:
        """Wait until the last line is delivered, but no longer than this many seconds; then stop."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=within)
            self._task.cancel()

    async def _deliver(self) -> None:
        while self._lines:
            lines = list(self._lines)
            self._lines.clear()
            self._size = 0
            await self._call(lines)

    def _call_with_each(self, lines: list[str]) -> None:
        for line in lines:
            try:
                self._function(line)
            except Exception:
                _logger.exception("The function for stderr raised an exception.")


def carried(function: Callable[..., Any], what: str, have_done: HaveDone) -> Callable[..., Coroutine[Any, Any, Any]]:
    """The same as an async function, which has the plain one called in another thread."""
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise UsageError(f"{what} is an async function, which a blocking client has no loop for: give it a plain one.")

    async def call(*arguments: Any) -> Any:
        return await have_done(function, *arguments)

    return call

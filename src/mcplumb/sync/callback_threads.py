"""Threads that run the callbacks of blocking clients.

A user's callback may block, and may use the client that called it; the event loop therefore never calls one itself. It
hands a `CallbackJob` to a thread and awaits the job's future.
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

__all__ = ["CallInThread", "CallbackJob", "CallbackThreads", "LineDispatcher", "threaded_callback"]

_logger = logging.getLogger("mcplumb.sync")

#: Calls a function in another thread and returns its result; awaited in the loop.
CallInThread = Callable[..., Coroutine[Any, Any, Any]]

#: Callbacks that run at the same time; further ones are queued.
_MAX_THREADS = 64
#: Seconds to wait for idle threads to end, which takes them microseconds.
_SHUTDOWN_TIMEOUT = 2.0
#: Characters of stderr that are queued for a callback slower than the server. Beyond that the oldest lines are dropped.
_MAX_QUEUED = 4 * 1024 * 1024


# --- Jobs and threads ---


class CallbackJob:
    """One call of a plain function, created in the loop and run in another thread.

    ``future`` receives the result in the loop. A job whose future is already cancelled is not run.
    """

    __slots__ = ("_arguments", "_context", "_function", "_loop", "future")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> None:
        """Call the function and set the future; re-raise what is no ``Exception``, such as ``KeyboardInterrupt``."""
        if self.future.done():
            return
        try:
            value = self._context.run(_call, self._function, self._arguments)
        except BaseException as error:
            is_plain = isinstance(error, Exception)
            # A future refuses StopIteration, and anything but an Exception would stop the loop.
            fits = is_plain and not isinstance(error, StopIteration)
            self._post(self._fail, error if fits else RuntimeError(f"The function raised {type(error).__name__}."))
            if not is_plain:
                raise
        else:
            self._post(self._settle, value)

    def cancel(self) -> None:
        """Cancel the future of a job that will not be run."""
        self._post(self.future.cancel)

    def _post(self, function: Callable[..., Any], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing awaits the future any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _settle(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    value = function(*arguments)
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise UsageError("A callback of a blocking client returned an awaitable: give it a plain function.")
    return value


class CallbackThreads:
    """A pool of threads that run jobs, started on demand and reused.

    The threads are daemons: a callback that never returns cannot keep the process alive.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inbox: SimpleQueue[CallbackJob | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        #: Jobs that are running or queued.
        self._jobs = 0

    def submit(self, job: CallbackJob) -> bool:
        """Queue the job; return False if there is no thread and none can be started."""
        with self._changed:
            if self._jobs >= len(self._threads) and not self._add_thread() and not self._threads:
                return False
            self._jobs += 1
        self._inbox.put(job)
        return True

    def close(self) -> None:
        """Let every thread end after its current job, and wait for the idle ones."""
        with self._changed:
            threads = set(self._threads)
            for _ in threads:
                self._inbox.put(None)
            self._changed.wait_for(lambda: len(self._threads) <= self._jobs, _SHUTDOWN_TIMEOUT)
            threads -= self._threads
        for thread in threads:
            thread.join()

    def _add_thread(self) -> bool:
        if len(self._threads) >= _MAX_THREADS:
            return False
        thread = threading.Thread(target=self._work, name="mcplumb-sync-worker", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter shuts down, or the system is out of threads
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
        # A separate function, so that an idle thread does not keep its last job, and what that refers to, alive.
        job = self._inbox.get()
        if job is None:
            return False
        with suppress(BaseException):  # the job's future has it
            job.run()
        with self._changed:
            self._jobs -= 1
            self._changed.notify_all()
        return True


# --- Callbacks ---


def threaded_callback(
    function: Callable[..., Any], what: str, call_in_thread: CallInThread
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return an async function that calls the plain one in another thread; ``what`` names it in the `UsageError`."""
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise UsageError(f"{what} is an async function, which a blocking client cannot call: give it a plain one.")

    async def call(*arguments: Any) -> Any:
        return await call_in_thread(function, *arguments)

    return call


class LineDispatcher:
    """Calls a function with each line of stderr, in order, in another thread; lines that queue up share one job."""

    def __init__(self, function: Callable[[str], object], call_in_thread: CallInThread) -> None:
        self._call = threaded_callback(self._call_with_each, "stderr", call_in_thread)
        threaded_callback(function, "stderr", call_in_thread)  # raises if the function is async
        self._function = function
        self._lines: deque[str] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False

    def feed(self, line: str) -> None:
        """Queue a line. Must be called in the loop."""
        self._lines.append(line)
        self._size += len(line)
        while self._size > _MAX_QUEUED:
            self._size -= len(self._lines.popleft())
            if not self._has_warned:
                self._has_warned = True
                _logger.warning("The function for stderr is too slow: some of the oldest lines are dropped.")
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._deliver())

    async def finish(self, within: float) -> None:
        """Wait up to ``within`` seconds until the last line is delivered, then stop."""
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

"""The event loop that all blocking clients of a process share, and its lifetime.

* `SharedLoop` is the loop: `ThreadedLoop` runs it in a daemon thread, `CallerDrivenLoop` in the threads that wait.
* `BlockingCall` runs one coroutine in the loop while the calling thread waits for its result.
* `LoopHandle` is one connection's use of the loop, which starts with the first handle and ends with the last one.

Contract: coroutines run only in the loop; user callbacks run only in other threads, because they may block.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mcplumb.errors import Closed, UsageError
from mcplumb.rpc.thread_pool import AwaitedJob, ThreadPool, value_of

__all__ = ["BlockingCall", "CallerDrivenLoop", "LoopHandle", "SharedLoop", "ThreadedLoop", "start_loop"]

_logger = logging.getLogger("mcplumb.sync")

R = TypeVar("R")

#: Seconds that an interrupted thread waits for its cancelled coroutine to end.
_CANCEL_TIMEOUT = 1.0
#: Seconds between two wake-ups of a waiting thread. A signal that arrives just before the thread blocks does not wake
#: it, and Python runs the signal's handler only once the thread is awake.
_SIGNAL_CHECK_INTERVAL = 0.5
#: Callbacks that run at the same time; further ones are queued.
_MAX_THREADS = 64
#: Seconds that the remaining tasks have to end after they are cancelled, and that idle threads have to end.
_SHUTDOWN_TIMEOUT = 2.0


class BlockingCall:
    """One coroutine that runs in the loop while the calling thread waits for it.

    The waiting thread runs the callback jobs that arrive in its inbox. None marks the end of the call.
    """

    __slots__ = ("_shared_loop", "_task", "inbox")

    def __init__(self, shared_loop: SharedLoop) -> None:
        self.inbox: SimpleQueue[AwaitedJob | None] = SimpleQueue()
        self._shared_loop = shared_loop
        self._task: asyncio.Task[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, R], within: float | None = None) -> R:
        """Run the coroutine and return its result; raise ``Closed`` if the loop ends first.

        The coroutine is cancelled if the wait is interrupted, for instance by a ``KeyboardInterrupt`` here or in a
        callback, or if nothing arrives in the inbox for ``within`` seconds, which raises ``Empty``.
        """
        shared_loop = self._shared_loop
        try:
            shared_loop.post(self._start, coroutine)
            while (job := shared_loop.next_job(self, within)) is not None:
                job.run()
        except BaseException:
            self._cancel_and_wait(coroutine)
            raise
        outcome: R = self._outcome()
        return outcome

    async def call_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function in the waiting thread and return its result. Must be awaited in the loop."""
        job = AwaitedJob(partial(function, *arguments), {})
        self._shared_loop.deliver(self, job)
        return value_of(await job.future)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._shared_loop.active_calls[self] = None
        self._task = self._shared_loop.loop.create_task(coroutine)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: an interrupted caller never reads it
        del self._shared_loop.active_calls[self]
        self._shared_loop.deliver(self, None)

    def _outcome(self) -> Any:
        task, self._task = self._task, None
        try:
            if task is None or not task.done() or task.cancelled():
                raise Closed("The client was closed.")
            return task.result()
        finally:
            del task  # breaks the cycle: a raised exception refers to this frame, and the task to the exception

    def _cancel_and_wait(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            self._shared_loop.post(self._cancel, coroutine)
            while (job := self._shared_loop.next_job(self, _CANCEL_TIMEOUT)) is not None:
                job.cancel()
        except Empty:
            pass  # the coroutine delays its cancellation; it ends later, unattended
        except Closed:
            if self._task is None:
                coroutine.close()

    def _cancel(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            coroutine.close()
            self._shared_loop.deliver(self, None)


class SharedLoop(ABC):
    """One event loop that runs coroutines for any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: The calls in progress, newest last. Accessed only from the loop.
        self.active_calls: dict[BlockingCall, None] = {}
        self._pid = os.getpid()
        # Reentrant, because a signal handler may interrupt the holder and use a client.
        self._lock = threading.RLock()
        self._is_ended = False
        self._threads = ThreadPool(_MAX_THREADS, name="mcplumb-sync-worker")

    @property
    def is_from_parent_process(self) -> bool:
        """Whether the loop belongs to the process that this one was forked from."""
        return self._pid != os.getpid()

    def new_call(self) -> BlockingCall:
        """Return a call for the current thread; raise ``UsageError`` if this thread or process must not wait."""
        if self.is_from_parent_process:
            raise UsageError(
                f"This client belongs to the process {self._pid}, from which this one was forked: connect again here."
            )
        if asyncio._get_running_loop() is self.loop:
            raise UsageError(
                "A blocking client was called in the thread that does its work, where it would wait for itself: call "
                "it in another thread, or use mcplumb.connect."
            )
        return BlockingCall(self)

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Schedule the function in the loop; raise ``Closed`` if the loop has ended."""
        with self._lock:
            if self._is_ended:
                raise Closed("The client was closed.")
            self.loop.call_soon_threadsafe(function, *arguments)

    async def call_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function in a worker thread and return its result. Must be awaited in the loop."""
        job = AwaitedJob(partial(function, *arguments), {})
        try:
            self._threads.submit(job)
        except RuntimeError:
            # No thread can be started while the interpreter shuts down: the thread of the newest call runs the job.
            if not self.active_calls:
                raise
            self.deliver(next(reversed(self.active_calls)), job)
        return value_of(await self._threads.wait_for(job))

    def deliver(self, call: BlockingCall, job: AwaitedJob | None) -> None:
        """Put a job, or None for the end, into the call's inbox. Must be called in the loop."""
        call.inbox.put(job)

    @abstractmethod
    def next_job(self, call: BlockingCall, within: float | None) -> AwaitedJob | None:
        """Wait for the next item of the call's inbox; raise ``Empty`` after ``within`` seconds."""

    def shut_down(self) -> None:
        """Cancel all tasks and close the loop, in bounded time. Called once, when the last handle is released."""
        with self._lock:
            self._is_ended = True
        self._stop()
        self._threads.close(_SHUTDOWN_TIMEOUT)

    @abstractmethod
    def _stop(self) -> None:
        """Stop the loop, then call ``_cancel_tasks_and_close`` in the thread that ran it."""

    def _cancel_tasks_and_close(self) -> None:
        loop = self.loop
        try:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=_SHUTDOWN_TIMEOUT))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            for call in self.active_calls:  # those whose tasks ignore their cancellation
                call.inbox.put(None)
            loop.close()


class ThreadedLoop(SharedLoop):
    """A loop that runs in a daemon thread, so that a blocked loop cannot keep the process alive."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._main, name="mcplumb-sync", daemon=True)
        self._thread.start()

    def next_job(self, call: BlockingCall, within: float | None) -> AwaitedJob | None:
        """Wait for the next item; the loop runs in its own thread meanwhile."""
        if within is not None:
            return call.inbox.get(timeout=within)
        while True:
            with suppress(Empty):
                return call.inbox.get(timeout=_SIGNAL_CHECK_INTERVAL)

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop_loop)
        self._thread.join(_SHUTDOWN_TIMEOUT + 1)
        if self._thread.is_alive():
            _logger.warning("Something blocks the event loop of the blocking clients; it is abandoned.")

    def _stop_loop(self) -> None:
        self._is_stopped = True
        self.loop.stop()

    def _main(self) -> None:
        while not self._is_stopped:
            try:
                self.loop.run_forever()
            except BaseException as error:  # noqa: BLE001 - the caller that waits for the task gets it
                _logger.debug("A task raised %s; the event loop goes on.", type(error).__name__)
        self._cancel_tasks_and_close()


class CallerDrivenLoop(SharedLoop):
    """A loop that runs in a waiting thread, for an interpreter that cannot start threads (any more)."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._changed = threading.Condition()
        self._is_running = False

    def deliver(self, call: BlockingCall, job: AwaitedJob | None) -> None:
        """Put the item into the call's inbox and stop the loop, so that all waiting threads check theirs."""
        super().deliver(call, job)
        if not self._is_ended:
            self.loop.stop()

    def next_job(self, call: BlockingCall, within: float | None) -> AwaitedJob | None:
        """Wait for the next item; one of the waiting threads runs the loop meanwhile."""
        deadline = None if within is None else self.loop.time() + within
        with self._changed:
            while call.inbox.empty():
                left = None if deadline is None else deadline - self.loop.time()
                if left is not None and left <= 0:
                    raise Empty
                if self._is_running or self._is_ended:
                    self._changed.wait(left)
                else:
                    self._run(left)
        return call.inbox.get_nowait()

    def _run(self, within: float | None) -> None:
        timer = None if within is None else self.loop.call_later(within, self.loop.stop)
        self._is_running = True
        self._changed.release()
        try:
            self.loop.run_forever()
        finally:
            self._changed.acquire()
            self._is_running = False
            self._changed.notify_all()
            if timer is not None:
                timer.cancel()

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop_if_running)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._is_running, _SHUTDOWN_TIMEOUT):
                _logger.warning("Something blocks the event loop of the blocking clients; it is abandoned.")
                return
            self._cancel_tasks_and_close()
            self._changed.notify_all()

    def _stop_if_running(self) -> None:
        if self._is_running:  # false if _cancel_tasks_and_close runs the loop
            self.loop.stop()


def start_loop() -> SharedLoop:
    """Start a loop, in its own thread if one can be started."""
    loop = asyncio.new_event_loop()
    try:
        return ThreadedLoop(loop)
    except RuntimeError:  # the interpreter shuts down, or the system is out of threads
        return CallerDrivenLoop(loop)


# --- The loop's lifetime ---


class LoopHandle:
    """One connection's use of the shared loop, from before it is opened until it is closed.

    ``close_connection`` closes the connection; it runs in the loop and takes at most ``patience`` seconds.
    """

    def __init__(self, close_connection: Callable[[], Coroutine[Any, Any, object]], patience: float) -> None:
        self.close_connection = close_connection
        self.patience = patience
        #: Set by ``acquire`` and kept after ``release``: the connection may still finish work in it.
        self.shared_loop: SharedLoop | None = None
        self._is_released = False

    def acquire(self) -> None:
        """Acquire the shared loop, and start it if necessary; raise ``UsageError`` on a second call."""
        _registry.acquire(self)

    @property
    def is_inactive(self) -> bool:
        """Whether there is nothing to close: not acquired yet, released, or acquired before a fork."""
        return self.shared_loop is None or self._is_released or self.shared_loop.is_from_parent_process

    def new_call(self) -> BlockingCall:
        """Return a call in the loop; raise ``Closed`` after release, ``UsageError`` if this thread must not wait."""
        if self.shared_loop is None or self._is_released:
            raise Closed("The client was closed.")
        return self.shared_loop.new_call()

    def read_in_loop(self, read: Callable[[], R]) -> R:
        """Return ``read()``, called in the loop for a consistent view, or in this thread if the loop cannot run it."""

        async def call() -> R:
            return read()

        try:
            return self.new_call().run(call())
        except (Closed, UsageError):
            return read()

    async def call_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function in a worker thread and return its result. Must be awaited in the loop."""
        if self.shared_loop is None:
            raise Closed("The client was not opened.")
        return await self.shared_loop.call_in_thread(function, *arguments)

    def close(self) -> None:
        """Close the connection and release the loop. Idempotent, and may be called from any thread."""
        if self.is_inactive:
            return
        call = self.new_call()
        try:
            call.run(self.close_connection())
        except Closed:
            pass  # another thread closed it first
        finally:
            self.release()

    def release(self) -> None:
        """Release the loop, which is shut down with its last handle."""
        self._is_released = True
        _registry.release(self)


class _LoopRegistry:
    """The one shared loop of this process, and the handles that keep it running."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may interrupt the holder and close a client.
        self._lock = threading.RLock()
        self._shared_loop: SharedLoop | None = None
        self._handles: set[LoopHandle] = set()
        self._inherited: list[SharedLoop | None] = []

    def acquire(self, handle: LoopHandle) -> None:
        with self._lock:
            if handle.shared_loop is not None:
                raise UsageError("This was connected already: call connect again.")
            if self._shared_loop is None:
                self._shared_loop = start_loop()
            self._handles.add(handle)
            handle.shared_loop = self._shared_loop

    def release(self, handle: LoopHandle) -> None:
        with self._lock:
            if handle not in self._handles:
                return
            self._handles.discard(handle)
            shared_loop = self._shared_loop
            if shared_loop is None or self._handles:
                return
            self._shared_loop = None
        shared_loop.shut_down()

    def close_all(self) -> None:
        """Close all connections when the interpreter exits, so that the servers can shut down in order."""
        with self._lock:
            shared_loop, handles = self._shared_loop, list(self._handles)
        if shared_loop is None:
            return

        async def close_connections() -> None:
            await asyncio.gather(*(handle.close_connection() for handle in handles), return_exceptions=True)

        try:
            with suppress(Closed, Empty):
                shared_loop.new_call().run(close_connections(), within=max(handle.patience for handle in handles))
        finally:
            for handle in handles:
                handle.release()

    def forget_after_fork(self) -> None:
        """Forget the parent's loop: its thread does not exist here, and its descriptors belong to the parent, too."""
        # The loop is kept alive: a collected loop closes itself, which would also affect the parent's descriptors.
        self._inherited.append(self._shared_loop)
        self._lock = threading.RLock()
        self._shared_loop = None
        self._handles = set()


_registry = _LoopRegistry()
atexit.register(_registry.close_all)
os.register_at_fork(after_in_child=_registry.forget_after_fork)

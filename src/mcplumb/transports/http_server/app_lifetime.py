"""The lifetime of what all requests of an application share, and its end when a signal ends the process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from types import FrameType
from typing import Any

__all__ = ["Lifetime", "SignalWatch"]

_logger = logging.getLogger("mcplumb.http")


class Lifetime:
    """Keeps a context manager entered, in one event loop.

    A task of its own enters and leaves it, with the context variables of the code that creates the lifetime. If that
    task is cancelled, which happens when the event loop ends, it leaves the context manager in the usual way.
    """

    def __init__(self, held: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        #: The event loop it belongs to.
        self.loop = asyncio.get_running_loop()
        #: Whether the context manager was left, or could not be entered.
        self.is_over = False
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._released: asyncio.Future[None] = self.loop.create_future()
        self._task = self.loop.create_task(self._hold(held))

    @property
    def is_open(self) -> bool:
        """Whether the context manager is entered."""
        return self._opened.done() and not self.is_over

    async def opened(self) -> None:
        """Wait until the context manager is entered, and raise what it raised. Safe to cancel."""
        await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Leave the context manager. May be called again. Safe to cancel."""
        if not self._released.done():
            self._released.set_result(None)
        await asyncio.shield(self._task)

    async def _hold(self, held: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        try:
            async with held():
                self._opened.set_result(None)
                with suppress(asyncio.CancelledError):  # the event loop ends, and nothing has closed this before
                    await self._released
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # marks it as retrieved: no task may be waiting any more
        finally:
            self.is_over = True


class SignalWatch:
    """Closes an application when SIGINT or SIGTERM arrives, beside the handlers that the program has for them.

    ASGI servers are silent about the end of the process until the last response has ended, and a stream of events ends
    only when its application closes. Mounted applications may not be notified at all. With ``comes_first``, the
    program's handler is called when the application is closed. A second signal always goes to that handler.

    Only handlers written in Python are watched: by default, SIGTERM kills the process, and SIGINT raises
    KeyboardInterrupt, on which asyncio cancels all tasks.
    """

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]], *, comes_first: bool) -> None:
        self._close = close
        self._comes_first = comes_first
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._closing: asyncio.Task[None] | None = None
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler) and handler is not signal.default_int_handler:
                    self._previous[number] = handler
                    signal.signal(number, self._handle)

    def release(self) -> None:
        """Give the signals back to their handlers. May be called again."""
        for number in self._previous:
            self._give_back(number)

    def _give_back(self, number: int) -> None:
        if signal.getsignal(number) == self._handle and threading.current_thread() is threading.main_thread():
            signal.signal(number, self._previous[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first = os.getpid() == self._process and self._closing is None  # a fork has the handler, but not the loop
        self._give_back(number)
        if is_first:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._begin, number)
                if self._comes_first:
                    return
        self._previous[number](number, frame)

    def _begin(self, number: int) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._run(number))

    async def _run(self, number: int) -> None:
        try:
            await self._close()
        except Exception:
            _logger.exception("The server could not be closed.")
        finally:
            self.release()
            if self._comes_first:
                signal.raise_signal(number)

"""Starting a task for a request: its first step runs at once, without a turn of the event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

__all__ = ["TaskStarter"]

#: A name that is given need not be made up.
_NAME = "mcplumb request"

if sys.version_info >= (3, 12):

    class TaskStarter:
        """Starts tasks in one event loop. It belongs to the loop's thread, and works while the loop runs."""

        __slots__ = ("_loop",)

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self._loop = loop

        def start(self, coroutine: Coroutine[Any, Any, Any], context: Context) -> asyncio.Task[Any]:
            """A task for the coroutine, in this context, which has run as far as it can without waiting.

            Often it is done already.
            """
            return asyncio.Task(coroutine, loop=self._loop, name=_NAME, context=context, eager_start=True)

else:

    class TaskStarter:
        """Starts tasks in one event loop. It belongs to the loop's thread, and works while the loop runs.

        Python 3.11 has no eager tasks. But all that a new task does to start itself is to schedule its first step, and
        that step can be taken from it while it is made, and run at once.
        """

        __slots__ = ("_loop", "_names", "_step")

        _step: Callable[[], object]

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self._loop = loop
            # A loop in C, such as uvloop's, has none; its tasks start a turn later.
            self._names: dict[str, Any] | None = getattr(loop, "__dict__", None)

        def start(self, coroutine: Coroutine[Any, Any, Any], context: Context) -> asyncio.Task[Any]:
            """A task for the coroutine, in this context, which has run as far as it can without waiting.

            Often it is done already. Called from within another task, its first step comes a turn later.
            """
            names = self._names
            if names is None:
                return self._loop.create_task(coroutine, name=_NAME, context=context)
            names["call_soon"] = self._catch
            try:
                task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self._loop, name=_NAME, context=context)
            finally:
                del names["call_soon"]
            step = self._step
            try:
                context.run(step)
            except RuntimeError:  # another task is being run, and two cannot be
                self._loop.call_soon(step, context=context)
            return task

        def _catch(self, step: Callable[[], object], *, context: Context) -> None:
            self._step = step

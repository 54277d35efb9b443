"""Waking the one who waits for a future at once, and not a turn of the event loop later."""

from __future__ import annotations

import asyncio
from typing import TypeVar

__all__ = ["give", "give_now"]

T = TypeVar("T")


def give(future: asyncio.Future[T], value: T) -> None:
    """Give a future its value, unless it has one, or is not wanted any more."""
    if not future.done():
        future.set_result(value)


def give_now(future: asyncio.Future[T], value: T) -> None:
    """The same, and run the task that awaits it, until that waits for something else or has ended.

    What the task raises stays in the task, except that KeyboardInterrupt and SystemExit come out here as well. From
    within another task, it is woken a turn later, as always: two cannot run at once.
    """
    # What is done when the future is done. It belongs to no public interface; without it, the loop has to turn.
    callbacks = getattr(future, "_callbacks", None)
    if callbacks is None or len(callbacks) != 1:
        give(future, value)
        return
    [(wake, context)] = callbacks
    future.remove_done_callback(wake)
    future.set_result(value)
    try:
        context.run(wake, future)
    except RuntimeError as error:
        # Trying costs less than asking whether a task is being run. A step that has run is not run again.
        loop = future.get_loop()
        if asyncio.current_task(loop) is None and "cannot enter context" not in str(error):
            raise
        loop.call_soon(wake, future, context=context)

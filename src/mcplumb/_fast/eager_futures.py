"""Resume the task that awaits a future as soon as its result is set, instead of a turn of the event loop later.

A future that a task awaits has exactly one callback, which is the task's next step (``Future._callbacks``).
`give_now` removes it, sets the result, and runs it in its context. Where another task is running, ``Context.run``
or the task itself refuses ("cannot enter context"), and the step is scheduled as asyncio would have done it.

What it buys, on one core: 9.7 µs of 30.8 a call of a client, one at a time (31 %), and 0.7 µs of 7.7 of its CPU with
64 in flight (9 %); on 3.13, 8.0 µs of 31.4 and 0.5 of 7.8. ``python -m bench tricks`` measures it.

Proven on CPython 3.11 to 3.14 on Linux, with the futures and tasks of asyncio in C and in Python (up to 3.13: from 3.14
on, ``current_task`` does not know tasks in Python), in debug mode and with eager task factories; it uses nothing of the
event loop but ``call_soon``. On other Pythons, and when it is switched off, `give_now` is `give`, and it acts as `give`
for other kinds of futures, which have no ``_callbacks``.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from mcplumb._fast import may_use

__all__ = ["give", "give_now"]

T = TypeVar("T")


def give(future: asyncio.Future[T], value: T) -> None:
    """Set the result of a future, unless it has one already or was cancelled."""
    if not future.done():
        future.set_result(value)


def give_now(future: asyncio.Future[T], value: T) -> None:
    """Set the result of a future and resume the task that awaits it, until that task waits again or has ended.

    What the task raises stays in the task, except that KeyboardInterrupt and SystemExit are raised here as well.
    Called from within another task, it resumes the task a turn later: two tasks cannot run at once.
    """
    try:
        [(wake, context)] = future._callbacks  # None, a list, or unknown: trying costs nothing
    except (TypeError, ValueError, AttributeError):
        give(future, value)
        return
    future.remove_done_callback(wake)
    future.set_result(value)
    try:
        context.run(wake, future)
    except RuntimeError as error:
        # Trying costs less than checking first whether a task is running.
        loop = future.get_loop()
        if asyncio.current_task(loop) is None and "cannot enter context" not in str(error):
            raise
        loop.call_soon(wake, future, context=context)


if not may_use("eager_futures"):
    give_now = give

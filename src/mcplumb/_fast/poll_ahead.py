"""Waiting in place of the event loop, while it has nothing to do but to wait.

A peer that waits for each answer sends its next message soon after it has got one. Until then there is mostly nothing
else to do; the loop would go the long way round, only to wait and to find this one descriptor again. That turn is a
good part of what a message costs.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any, NoReturn

__all__ = ["Lull", "lull_of"]

#: Seconds to wait. Who waits longer does not mind a turn of the loop; and callbacks are expected to take less than a
#: tenth of a second, also with as many waits as one of them may have.
_LONGEST = 0.005
#: After this many interruptions, about every 64th message is followed by a wait.
_MOST_MISSES = 6


class _Raised(asyncio.Handle):
    """What a signal handler raised while this waited. It leaves the loop as if that had waited, and no callback."""

    def _run(self) -> NoReturn:
        raise self._args[0]


class Lull:
    """The time between two messages from one descriptor, which the loop watches. It belongs to the loop's thread."""

    __slots__ = ("_agenda", "_fd", "_loop", "_misses", "_pass_over", "_poll")

    def __init__(self, loop: Any, fd: int) -> None:
        self._loop = loop
        self._agenda = loop._ready
        self._fd = fd
        # Of everything that the loop watches, which has what other threads and signals want, too.
        self._poll = loop._selector._selector.poll
        self._misses = 0
        self._pass_over = 0

    def brings_input(self) -> bool:
        """Wait a moment for something to do, and say whether that is input of this descriptor, or its end.

        If not, the loop has to turn. Where others come in between again and again, this does not even wait.
        """
        loop = self._loop
        if self._agenda or loop._stopping or loop._debug:
            return False  # what is due comes first, and in debug mode it is asked how long a callback takes
        if self._pass_over:
            self._pass_over -= 1
            return False
        if loop._scheduled and loop._scheduled[0].when() < loop.time() + _LONGEST:
            return False
        # What is not taken here is still there when the loop looks.
        try:
            ready = self._poll(_LONGEST, 2)
        except BaseException as error:  # noqa: BLE001 - it is raised where it would have been
            self._agenda.append(_Raised(len, (error,), loop))
            return False
        if not ready:
            return False
        if len(ready) == 1 and ready[0][0] == self._fd:
            self._misses = 0
            return True
        self._misses = min(self._misses + 1, _MOST_MISSES)
        self._pass_over = 2**self._misses - 2
        return False


def lull_of(loop: asyncio.AbstractEventLoop, fd: int) -> Lull | None:
    """That of a descriptor in a loop; None if the loop is not asyncio's own, or the system has no ``epoll``."""
    if not isinstance(loop, asyncio.SelectorEventLoop):
        return None
    if type(loop)._run_once is not asyncio.BaseEventLoop._run_once:  # type: ignore[attr-defined]
        return None  # whoever turns it in another way may have something else to do
    epoll = getattr(selectors, "EpollSelector", None)
    if epoll is None or type(loop._selector) is not epoll:  # type: ignore[attr-defined]
        return None
    return Lull(loop, fd)

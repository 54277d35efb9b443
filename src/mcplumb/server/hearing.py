"""Notifications that handlers of the author's hear."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mcplumb.server.entries import HandlerEntry
from mcplumb.server.execution import hear
from mcplumb.wire.messages import Notification

if TYPE_CHECKING:
    from mcplumb.server.session import Session

__all__ = ["Hearing"]

#: How many notifications handlers may be busy with before nothing more is read.
_MOST_HEARD = 100


class Hearing:
    """The notifications of one connection that handlers are busy with."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._busy = 0

    def __len__(self) -> int:
        return self._busy

    def hear(self, entry: HandlerEntry, notification: Notification) -> None:
        """Let a handler hear a notification."""
        session = self._session
        # At once, as requests are: one that comes after the notification must not overtake it.
        task = session.start_task(hear(entry, notification, session.workers), session.fresh_context())
        if task.done():
            return
        session.keep(task)
        self._busy += 1
        if self._busy == _MOST_HEARD:
            session.outbox.pause("notifications")
        task.add_done_callback(self._has_heard)

    def _has_heard(self, _: asyncio.Task[None]) -> None:
        self._busy -= 1
        self._session.outbox.unpause("notifications")
        self._session.check_finished()

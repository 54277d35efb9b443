"""Optimizations that rely on internals of CPython or asyncio: one file each, and one switch for all of them.

``MCPLUMB_PLAIN=1`` in the environment turns every trick off, ``MCPLUMB_PLAIN=poll_ahead,eager_tasks`` the named ones.
It is read once, at import. A trick is also off on every Python, system and event loop on which it is not proven: see
`may_use` and `is_proven_on`. No other package may use such internals (``tests/repo/test_internals.py``).

- `poll_ahead` waits for the next message inside the callback that read the last one.
- `eager_tasks` runs the first step of a task when it is created.
- `eager_futures` resumes the task that awaits a future when the result is set.
- `plain_functions` reads the signatures of tools without ``inspect``.
- `lazy_modules` loads ``ssl``, ``inspect`` and others that ``asyncio`` imports when they are first used, and
  `malloc_settings` lets glibc keep the memory of large messages. Both affect the whole process, so only ``Server.run``
  and ``mcplumb serve`` use them.
- `late_collection` loads modules without looking for garbage meanwhile. Only ``Server.run`` uses it.

``python -m bench tricks`` measures what each of them buys.

The same switch turns the shortcuts elsewhere off, which rely on no internals:

- ``taskless_posts`` answers modern POSTs over HTTP without a task, a session of their own or, if their heads are known,
  the HTTP parser.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["SHORTCUTS", "TRICKS", "is_proven_on", "is_switched_off", "may_use"]

#: Every trick, by the name of its file.
TRICKS = (
    "poll_ahead", "eager_tasks", "eager_futures", "plain_functions",
    "lazy_modules", "malloc_settings", "late_collection",
)  # fmt: skip
#: Shortcuts elsewhere.
SHORTCUTS = ("taskless_posts",)

_setting = os.environ.get("MCPLUMB_PLAIN", "0")
_switched_off = (*TRICKS, *SHORTCUTS) if _setting == "1" else tuple(_setting.split(","))
_is_proven = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info < (3, 15) and sys.platform == "linux"


def is_switched_off(trick: str) -> bool:
    """Return whether the environment turns a trick or a shortcut off."""
    return trick in _switched_off


def may_use(trick: str) -> bool:
    """Return whether a trick is on: proven on this Python and system, and not switched off."""
    return _is_proven and not is_switched_off(trick)


def is_proven_on(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop is asyncio's own selector loop, and not a subclass of it."""
    from asyncio import SelectorEventLoop  # importing this package must not load asyncio

    return type(loop) is SelectorEventLoop

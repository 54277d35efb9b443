"""What a piece of a program leaves behind."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from mcplumb.testing.recording_end import require

__all__ = ["nothing_left"]

_FOLDER = "/dev/fd"
#: Seconds between two looks at something that nobody tells of.
_LOOK_AGAIN = 0.005
#: What Python says of things that were dropped instead of closed, and of coroutines that were never awaited.
_DROPPED = (ResourceWarning, RuntimeWarning)


@asynccontextmanager
async def nothing_left(patience: float) -> AsyncIterator[None]:
    """Fails if what runs inside leaves tasks or descriptors behind, drops something open, or an error that nobody sees.

    Whatever is on its way out has ``patience`` seconds for it. Other tasks must not open or close anything meanwhile.
    """
    tasks = asyncio.all_tasks()
    descriptors = _descriptors()
    with _complaints() as complaints, _warnings() as said:
        try:
            yield
        except AssertionError as error:
            for complaint in complaints:
                error.add_note(f"The event loop was told of an error that nobody saw: {complaint}.")
            raise
        left = asyncio.all_tasks() - tasks
        if left:
            _, left = await asyncio.wait(left, timeout=patience)
        require(not left, f"Tasks are left behind: {', '.join(repr(task.get_coro()) for task in left)}.")
        deadline = asyncio.get_running_loop().time() + patience
        # Nobody tells when the last descriptor is closed.
        while (opened := _descriptors() - descriptors) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN)
        require(
            not opened, f"{len(opened)} descriptors are left open: {', '.join(kind for _, kind in sorted(opened))}."
        )
        gc.collect()
    dropped = [str(warning.message) for warning in said if issubclass(warning.category, _DROPPED)]
    require(not dropped, f"Something was dropped instead of closed: {'; '.join(dropped)}.")
    require(not complaints, f"The event loop was told of errors that nobody saw: {'; '.join(complaints)}.")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the event loop is told that went wrong in callbacks, and in tasks that nobody awaits."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    found: list[str] = []

    def keep(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        found.append(context["message"] if error is None else f"{context['message']}: {error!r}")

    loop.set_exception_handler(keep)
    try:
        yield found
    finally:
        loop.set_exception_handler(before)


@contextmanager
def _warnings() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as said:
        for category in _DROPPED:
            warnings.simplefilter("always", category)
        yield said
    for warning in said:
        if not issubclass(warning.category, _DROPPED):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _descriptors() -> set[tuple[int, str]]:
    """The open descriptors of the process and what they are; none where the system does not tell."""
    try:
        names = os.listdir(_FOLDER)  # noqa: PTH208 - a Path would be one more module to load
    except OSError:
        return set()
    found = set()
    for name in names:
        try:
            status = os.fstat(int(name))
        except OSError:
            continue  # the one that was open to list the others
        found.add((int(name), f"{name} ({_kind(status.st_mode)}, inode {status.st_ino})"))
    return found


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file", stat.S_IFCHR: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something else")

"""Detect what a piece of a program leaves behind: tasks, descriptors, warnings and unhandled errors."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from mcplumb.testing.recording_receiver import require

__all__ = ["no_leaks"]

_FOLDER = "/dev/fd"
#: Seconds between two checks of the open descriptors.
_POLL_INTERVAL = 0.005
#: Python's warnings about objects that were dropped instead of closed, and coroutines that were never awaited.
_DROPPED = (ResourceWarning, RuntimeWarning)


@asynccontextmanager
async def no_leaks(patience: float) -> AsyncIterator[None]:
    """Fail if the block leaves tasks or descriptors behind, drops open objects, or causes unhandled errors.

    Pending cleanup has ``patience`` seconds to finish. Other tasks must not open or close anything meanwhile.
    """
    tasks = asyncio.all_tasks()
    descriptors = _descriptors()
    with _loop_errors() as loop_errors, _warnings() as recorded:
        try:
            yield
        except AssertionError as error:
            for loop_error in loop_errors:
                error.add_note(f"The event loop reported an unhandled error: {loop_error}.")
            raise
        left = asyncio.all_tasks() - tasks
        if left:
            _, left = await asyncio.wait(left, timeout=patience)
        require(not left, f"Tasks are left behind: {', '.join(repr(task.get_coro()) for task in left)}.")
        deadline = asyncio.get_running_loop().time() + patience
        # There is no event for the closing of a descriptor.
        while (opened := _descriptors() - descriptors) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_INTERVAL)
        require(
            not opened, f"{len(opened)} descriptors are left open: {', '.join(kind for _, kind in sorted(opened))}."
        )
        gc.collect()
    dropped = [str(warning.message) for warning in recorded if issubclass(warning.category, _DROPPED)]
    require(not dropped, f"Something was dropped instead of closed: {'; '.join(dropped)}.")
    require(not loop_errors, f"The event loop reported unhandled errors: {'; '.join(loop_errors)}.")


@contextmanager
def _loop_errors() -> Iterator[list[str]]:
    """Collect the errors that reach the event loop's exception handler: from callbacks and tasks not awaited."""
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
    with warnings.catch_warnings(record=True) as recorded:
        for category in _DROPPED:
            warnings.simplefilter("always", category)
        yield recorded
    for warning in recorded:
        if not issubclass(warning.category, _DROPPED):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _descriptors() -> set[tuple[int, str]]:
    """Return the open descriptors of the process with a description; empty if the system cannot list them."""
    try:
        names = os.listdir(_FOLDER)  # noqa: PTH208 - a Path would be one more module to load
    except OSError:
        return set()
    found = set()
    for name in names:
        try:
            status = os.fstat(int(name))
        except OSError:
            continue  # the descriptor of the listing itself
        found.add((int(name), f"{name} ({_kind(status.st_mode)}, inode {status.st_ino})"))
    return found


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file", stat.S_IFCHR: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something else")

"""Event loops for tests: run a coroutine under supervision, let the loop turn, wait until something is so.

``pytest_pyfunc_call`` makes ``async def test_…`` work: each such test is run in an event loop of its own by ``run``.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

import mcplumb

T = TypeVar("T")

#: Real seconds that nothing takes, on the slowest machine either. They pass only if something is broken.
PATIENCE = 60.0
#: Turns of the loop in which everything happens that can happen without waiting.
TURNS = 50
#: How often ``until`` looks before it pauses between two looks, and the pause, in seconds.
EAGER_LOOKS, PAUSE = 200, 0.002

#: Runs a native async test in a loop with asyncio's debug mode.
debug_loop = pytest.mark.debug_loop

_PACKAGE = Path(mcplumb.__file__).parent

# Some tests replace it.
_now = time.monotonic


def run(main: Coroutine[Any, Any, T], *, eager: bool = False, debug: bool = False, within: float = 2 * PATIENCE) -> T:
    """Run a coroutine in a new event loop; fail if it hangs, or leaves a task or an unhandled error behind.

    It hangs if it takes longer than ``within``, which is for what restarts many processes, one after the other.
    ``eager`` selects a loop that runs the first step of a task at once. ``debug`` turns on asyncio's debug mode.
    """

    async def supervised() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        if sys.version_info >= (3, 12) and eager:
            loop.set_task_factory(asyncio.eager_task_factory)
        faults: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: faults.append(context))
        deadline = _now() + within

        watch: asyncio.TimerHandle

        def check() -> None:
            # Tests may move the loop's clock, which then runs ahead of real time.
            nonlocal watch
            if _now() < deadline:
                watch = loop.call_later(deadline - _now(), check)
            else:
                task.cancel("The test hangs.")

        watch = loop.call_later(within, check)
        try:
            result = await main
        finally:
            watch.cancel()
        await turns()
        left = asyncio.all_tasks() - {task}
        # A peer that a test plays sees the end of its connection only later. The package's own tasks must have ended.
        if left and not any(_is_of_the_package(other) for other in left):
            _, left = await asyncio.wait(left, timeout=PATIENCE)
        assert not left, f"tasks are left behind: {left}"
        assert not faults, f"errors that nothing handled: {faults}"
        return result

    return asyncio.run(supervised(), debug=debug)


def _is_of_the_package(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is None or Path(code.co_filename).is_relative_to(_PACKAGE)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a native async test in an event loop of its own, and leave all others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run(pyfuncitem.obj(**arguments), debug=pyfuncitem.get_closest_marker("debug_loop") is not None)
    return True


async def turns(count: int = TURNS) -> None:
    """Let everything happen that can happen without waiting."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(
    condition: Callable[[], object], what: str = "something", report: Callable[[], object] = lambda: ""
) -> None:
    """Let the loop run until this is so; fail after PATIENCE, naming what was waited for."""
    deadline, looks = _now() + PATIENCE, 0
    while not condition():
        assert _now() < deadline, f"waited in vain for {what} {report()}"
        looks += 1
        await asyncio.sleep(0 if looks < EAGER_LOOKS else PAUSE)


async def other_tasks_end() -> None:
    """Wait until the calling task is the only one."""
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "the other tasks to end", asyncio.all_tasks)


class Watched:
    """Lets a test wait until what an object has seen makes a condition true, without polling.

    A subclass sets ``_changed`` whenever it has seen something.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], T]) -> T:
        """Wait until the condition is true, and return what it is."""
        while not (result := condition()):
            self._changed.clear()
            await self._changed.wait()
        return result


def blocking_until(
    condition: Callable[[], object], what: str = "something", report: Callable[[], object] = lambda: ""
) -> None:
    """Block until this is so, where there is no event loop; fail after PATIENCE."""
    deadline = _now() + PATIENCE
    while not condition():
        assert _now() < deadline, f"waited in vain for {what} {report()}"
        time.sleep(PAUSE)


async def happens(event: threading.Event) -> None:
    """Wait for a thread's event without blocking the event loop."""
    assert await asyncio.to_thread(event.wait, PATIENCE)
